//! A connection that leaves HTTP for another protocol.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::get;
use highwater_http::HttpOptions;
use hyper_util::rt::TokioIo;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// More than the sockets' buffers hold.
const SENT_BYTES: usize = 32 << 20;

/// Leaves HTTP, and sends bytes.
async fn leave(mut request: Request) -> Response<Body> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.expect("the connection is handed over"));
        // A client that fails the test goes away before the end.
        let _sent = io.write_all(&vec![7; SENT_BYTES]).await;
    });
    let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let answer = answer.header("connection", "upgrade").header("upgrade", "bytes");
    answer.body(Body::empty()).expect("an answer")
}

fn ask(address: SocketAddr, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    write!(stream, "GET /bytes HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").expect("the request is taken");
    stream
}

/// Bounds of HTTP used to hold for whatever came after it: a relay that reads nothing for a minute, because it is over its own
/// limit, would have been cut after half of that.
#[test]
fn a_connection_that_left_http_may_stall_longer_than_http_allows() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let options = HttpOptions { write_idle_ms_max: 20, ..HttpOptions::default() };
    let router = axum::Router::new().route("/bytes", get(leave));
    runtime.spawn(highwater_http::serve(listener, router, options, std::future::pending()));

    let mut stream = ask(address, "connection: upgrade\r\nupgrade: bytes\r\n");
    std::thread::sleep(Duration::from_millis(200));
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the head");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    let mut sent = Vec::new();
    stream.read_to_end(&mut sent).expect("it ends well");
    assert_eq!(sent.len(), SENT_BYTES);
}
