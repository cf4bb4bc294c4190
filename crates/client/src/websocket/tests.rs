//! Against servers that are a few written bytes.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

const PATIENCE: Duration = Duration::from_secs(5);

/// A server of one connection that agrees, then sends these bytes; it returns what it was sent until the client was gone.
fn server(parts: Vec<Vec<u8>>) -> (String, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/xrpc/stream?cursor=7", listener.local_addr().expect("bound"));
    let serve = move || {
        let (mut tcp, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tcp.read_exact(&mut byte).expect("a request");
            request.push(byte[0]);
        }
        let request = String::from_utf8(request).expect("text");
        let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("a key");
        let accept = STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
        );
        // The first part comes in one piece with the answer.
        let mut bytes = answer.into_bytes();
        for part in parts {
            bytes.extend(part);
            tcp.write_all(&bytes).expect("the client reads");
            bytes.clear();
            thread::sleep(Duration::from_millis(20));
        }
        let mut sent = Vec::new();
        tcp.read_to_end(&mut sent).ok();
        (request, sent)
    };
    (url, thread::spawn(serve))
}

fn connect(url: &str) -> WebSocket {
    WebSocket::connect(url, &WebSocketOptions { message_bytes_max: 70_000, ..WebSocketOptions::default() })
        .expect("a WebSocket")
}

/// Unmasks what a client sent: one control frame behind the other.
fn unmasked(mut sent: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = sent {
        let (mask, rest) = rest.split_at(4);
        let (payload, rest) = rest.split_at(usize::from(second & 0x7f));
        assert_ne!(second & 0x80, 0, "a client's frames are masked");
        frames.push((*first, payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()));
        sent = rest;
    }
    frames
}

#[test]
fn messages_are_read_whole_and_pings_are_answered_meanwhile() {
    let long = [b"\x82\x7e\x01\x00".as_slice(), &[7; 256]].concat();
    let longest = [b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x01".as_slice(), &[8; 65_537]].concat();
    let (url, server) = server(vec![
        b"\x82\x03one\x02\x02tw".to_vec(),
        b"\x89\x04ping\x80\x01o\x81\x04te".to_vec(),
        [b"xt".as_slice(), &long, &longest[..1_000]].concat(),
        [&longest[1_000..], b"\x8a\x00\x88\x05\x03\xf0bye"].concat(),
    ]);
    let mut socket = connect(&url);
    let mut read = || socket.read(PATIENCE).expect("it goes on").expect("in time");
    assert_eq!(read(), Message::Binary(Bytes::from_static(b"one")));
    assert_eq!(read(), Message::Binary(Bytes::from_static(b"two")));
    assert_eq!(read(), Message::Text(Bytes::from_static(b"text")));
    assert_eq!(read(), Message::Binary(vec![7; 256].into()));
    assert_eq!(read(), Message::Binary(vec![8; 65_537].into()));
    assert_eq!(read(), Message::Pong);
    assert_eq!(read(), Message::Close { code: 1008, reason: "bye".into() });
    assert!(socket.read(PATIENCE).is_err(), "nothing follows");
    drop(socket);
    let (request, sent) = server.join().expect("it served");
    assert!(request.starts_with("GET /xrpc/stream?cursor=7 HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
    assert_eq!(unmasked(&sent), [(0x8a, b"ping".to_vec()), (0x88, vec![3, 0xf0])]);
}

#[test]
fn what_does_not_come_in_time_is_not_waited_for() {
    let (url, server) = server(vec![b"\x82\x03on".to_vec()]);
    let mut socket = connect(&url);
    assert_eq!(socket.read(Duration::from_millis(50)).expect("it is open"), None);
    socket.ping().expect("it is open");
    assert_eq!(socket.read(Duration::ZERO).expect("it is open"), None);
    socket.close();
    let (_, sent) = server.join().expect("it served");
    assert_eq!(unmasked(&sent), [(0x89, Vec::new()), (0x88, vec![3, 0xe8])]);
}

#[test]
fn what_breaks_the_protocol_is_refused() {
    for (bytes, expected) in [
        (b"\x83\x00".as_slice(), "an opcode that there is not"),
        (b"\xc2\x00", "reserved bits"),
        (b"\x82\x81\x00\x00\x00\x00a", "masked"),
        (b"\x09\x00", "in parts"),
        (b"\x89\x7e\x00\x7e", "long payload"),
        (b"\x80\x00", "did not begin"),
        (b"\x02\x00\x82\x00", "within another"),
        (b"\x82\x7f\x00\x00\x00\x00\x00\x01\x86\xa0", "more than 70000 bytes"),
        (b"\x02\x7f\x00\x00\x00\x00\x00\x01\x11\x70", "more than 70000 bytes"),
        (b"\x02\x01a", "connection broke"),
    ] {
        let (bytes, many) = (bytes.to_vec(), bytes.starts_with(b"\x02\x7f"));
        let parts = if many { vec![[bytes, vec![0; 70_000], b"\x80\x01a".to_vec()].concat()] } else { vec![bytes] };
        let (url, server) = server(parts);
        let mut socket = connect(&url);
        if expected == "connection broke" {
            socket.io.tcp().shutdown(std::net::Shutdown::Both).expect("it is open");
        }
        let error = socket.read(PATIENCE).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} does not say {expected}");
        drop(socket);
        server.join().expect("it served");
    }
}

#[test]
fn an_answer_that_is_no_websocket_says_what_it_is() {
    for (answer, expected) in [
        (
            "HTTP/1.1 400 Bad Request\r\n\r\n{\"error\":\"InvalidRequest\"}",
            "answered 400 instead of a WebSocket: {\"error\"",
        ),
        ("HTTP/1.1 101 OK\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", "does not upgrade"),
        ("HTTP/1.1 101 OK\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", "does not fit the key"),
        ("SSH-2.0\r\n\r\n", "no HTTP/1.1"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("ws://{}", listener.local_addr().expect("bound"));
        let server = thread::spawn(move || {
            let (mut tcp, _) = listener.accept().expect("a client");
            let mut request = [0; 4_096];
            assert_ne!(tcp.read(&mut request).expect("a request"), 0);
            tcp.write_all(answer.as_bytes()).expect("the client reads");
        });
        let error = WebSocket::connect(&url, &WebSocketOptions::default()).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} does not say {expected}");
        server.join().expect("it served");
    }
    for url in ["ftp://host/", "host", "http://", "http://host:port/", "http://a@host/", "http://host/ a"] {
        assert!(
            matches!(WebSocket::connect(url, &WebSocketOptions::default()), Err(ConnectError::Address(_))),
            "{url}"
        );
    }
}
