//! What HTTP/2 must keep of what HTTP/1.1 promises: a refusal reaches its client, and a head has its bounds.

use crate::fake::Fake;
use crate::floods::{HEADERS, RST_STREAM, SETTINGS, frame, http2, kinds, literal};
use crate::wire::Server;
use axum::body::Body;
use axum::http::Request;
use highwater_http::HttpOptions;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};

const PATH: &str = "/v1/stream/a";
const DATA: u8 = 0;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The head of an append that is refused for what it says, before anything of its body is read.
fn refused() -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", PATH),
        ("content-type", "text/plain"),
        ("producer-id", "x"),
    ];
    fields.into_iter().flat_map(|(name, value)| literal(name, value)).collect()
}

/// Begins a request that is refused, and gives the connection once its answer is there.
fn refuse(server: &Server) -> (TcpStream, Vec<u8>) {
    let mut stream = http2(server);
    kinds(&mut stream);
    stream.write_all(&frame(SETTINGS, 1, 0, &[])).expect("it is taken");
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &refused())).expect("it is taken");
    let said = kinds(&mut stream);
    assert!(said.contains(&HEADERS) && said.contains(&DATA), "the refusal: {said:?}");
    (stream, said)
}

/// A stream that was reset while its body was on the way used to reach clients as an error of the connection, without
/// the refusal: curl said "stream error", others hung.
#[test]
fn a_refusal_over_http_2_is_not_followed_by_a_reset_while_its_body_still_comes() {
    let server = Server::start(Fake::new());
    let (mut stream, said) = refuse(&server);
    assert!(!said.contains(&RST_STREAM), "{said:?}");
    for _ in 0..3 {
        stream.write_all(&frame(DATA, 0, 1, &[b'x'; 16_000])).expect("it is taken");
    }
    let said = kinds(&mut stream);
    assert!(!said.contains(&RST_STREAM), "more of the body: {said:?}");
    stream.write_all(&frame(DATA, END_STREAM, 1, b"end")).expect("it is taken");
    let said = kinds(&mut stream);
    assert!(!said.contains(&RST_STREAM), "all of the body: {said:?}");
}

#[test]
fn a_body_over_http_2_that_nobody_reads_is_given_up_when_nothing_more_comes_or_too_much() {
    let idle = HttpOptions { drain_idle_ms_max: 50, ..HttpOptions::default() };
    let server = Server::with(Fake::new(), idle);
    let (mut stream, said) = refuse(&server);
    let ended = said.contains(&RST_STREAM) || kinds(&mut stream).contains(&RST_STREAM);
    assert!(ended, "nothing comes");
    let small = HttpOptions { request_bytes_max: 10_000, ..HttpOptions::default() };
    let server = Server::with(Fake::new(), small);
    let (mut stream, said) = refuse(&server);
    assert!(!said.contains(&RST_STREAM), "{said:?}");
    stream
        .write_all(&[frame(DATA, 0, 1, &[b'x'; 16_000]), frame(DATA, 0, 1, &[b'x'; 16_000])].concat())
        .expect("taken");
    assert!(kinds(&mut stream).contains(&RST_STREAM), "twice the limit came");
}

/// Where curl is installed. It gives up on a stream that is reset, whatever came before.
#[test]
fn curl_sees_every_refusal_over_http_2() {
    let speaks = Command::new("curl").arg("--version").output();
    if !speaks.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("HTTP2")) {
        return;
    }
    let server = Server::with(Fake::new(), HttpOptions { request_bytes_max: 4 << 20, ..HttpOptions::default() });
    let ask = |header: &str, body: &[u8]| {
        let mut curl = Command::new("curl")
            .args(["-sS", "-m", "20", "--http2-prior-knowledge", "-w", " %{http_code}", "--data-binary", "@-"])
            .args(["-H", "Content-Type: text/plain", "-H", header])
            .arg(format!("http://{}{PATH}", server.address))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("curl starts");
        // curl may end before it took everything; what it says tells.
        curl.stdin.take().expect("a pipe").write_all(body).ok();
        let said = curl.wait_with_output().expect("curl ends");
        String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned()
    };
    let over = vec![b'x'; 5 << 20];
    for round in 0..10 {
        let said = ask("Producer-Id: x", b"x");
        assert!(said.contains("INVALID_PRODUCER") && said.ends_with(" 400"), "round {round}: {said}");
        let said = ask("X-Nothing: x", &over);
        assert!(said.contains("REQUEST_TOO_LARGE") && said.ends_with(" 413"), "round {round}: {said}");
    }
}

/// The bounds of a request's head held over HTTP/1.1 alone.
#[test]
fn a_flood_of_headers_is_refused_at_its_bound_over_http_2_with_a_body_that_says_so() {
    let server = Server::start(Fake::new());
    server.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(server.address).await.expect("the server listens");
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .expect("a handshake");
        tokio::spawn(connection);
        for (count, bytes, status) in
            [(90, 10, 200), (101, 10, 431), (1_500, 1, 431), (1, 60_000, 200), (1, 70_000, 431), (4, 20_000, 431)]
        {
            let mut request = Request::builder().uri(format!("http://localhost:{}/healthz", server.address.port()));
            for n in 0..count {
                request = request.header(format!("x-{n}"), "y".repeat(bytes));
            }
            let answer = sender.send_request(request.body(Body::empty()).expect("a request")).await.expect("an answer");
            assert_eq!(answer.status().as_u16(), status, "{count} headers of {bytes} bytes");
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            let told = String::from_utf8_lossy(&body).contains("REQUEST_HEADERS_TOO_LARGE");
            assert_eq!(told, status == 431, "{count} headers of {bytes} bytes: {body:?}");
        }
    });
}
