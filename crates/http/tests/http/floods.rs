//! Clients that would use up the server, or confuse it: floods of headers and of HTTP/2 frames, requests with two
//! lengths, uploads that are announced and never sent.

use crate::fake::Fake;
use crate::wire::{Server, request};
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_http::HttpOptions;
use highwater_node::{Config, Node};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/stream/a";
const TEXT: (&str, &str) = ("content-type", "text/plain");

/// What the server says until it ends the connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_flood_of_headers_is_refused_at_its_bound() {
    let server = Server::start(Fake::new());
    let many: String = (0..1_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(1 << 20));
    let endless = "x-endless: y\r\n".repeat(100_000);
    for (what, headers) in [("many", many), ("long", long), ("endless", endless)] {
        let mut stream = server.connect();
        let head = format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{headers}");
        // The server may end the connection while we still send.
        stream.write_all(head.as_bytes()).ok();
        stream.write_all(b"\r\n").ok();
        let said = rest(&mut stream);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 431 "), "{what}: {said}");
    }
    assert_eq!(server.ask("GET", "/healthz", &[], b"").status, 200);
}

/// A proxy that believes one of two lengths and a server that believes the other see different requests in the same
/// bytes, and the second of them is an attacker's with another client's key.
#[test]
fn a_request_with_two_lengths_ends_its_connection_and_smuggles_nothing() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"");
    let hidden = "DELETE /v1/stream/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let head = "POST /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
    for lengths in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5\r\n Content-Length: 6\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\r\n: chunked\r\n",
    ] {
        let mut stream = server.connect();
        write!(stream, "{head}{lengths}\r\n0\r\n\r\n{hidden}").expect("it is taken");
        let said = rest(&mut stream);
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{lengths}: one answer and the end: {said}");
        assert_eq!(server.ask("HEAD", PATH, &[], b"").status, 200, "{lengths}: the hidden request was not done");
    }
}

/// Whoever announced the largest bodies and sent nothing used to keep everybody else from writing.
#[test]
fn uploads_that_are_announced_and_not_sent_take_no_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config {
        groups: 1,
        wal_segment_bytes: 64 << 20,
        wal_bytes_max: 256 << 20,
        ingress_bytes_max: 16 << 20,
        ..Config::new(folder.path())
    };
    let node = Node::open(config, Arc::new(OsDisk::new()), Arc::new(SystemClock::new()), Box::new(SystemRandom))
        .expect("the node opens");
    let mut server = Server::start(node.handle());
    server.ask("PUT", PATH, &[TEXT], b"");
    let announce = |length: u32, sent: &[u8]| {
        let mut stream = server.connect();
        let length = length.to_string();
        stream.write_all(&request("POST", PATH, &[TEXT, ("content-length", &length)], sent)).expect("it is taken");
        stream
    };
    let announced: Vec<_> = (0..20).map(|_| announce(32 << 20, b"nothing")).collect();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.ask("POST", PATH, &[TEXT], &vec![b'x'; 4 << 20]).status, 204, "others write");
    // What is really held counts: with what the announced ones began with, 13 of 16 mebibytes are taken.
    let held: Vec<_> = (0..2).map(|_| announce(8 << 20, &vec![b'y'; 4 << 20])).collect();
    let start = Instant::now();
    while node.handle().status().ingress_bytes < 13 << 20 {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", node.handle().status().ingress_bytes);
        std::thread::sleep(Duration::from_millis(5));
    }
    let answer = server.ask("POST", PATH, &[TEXT], &vec![b'x'; 4 << 20]);
    assert_eq!(answer.told(), (503, "INGRESS_BODY_BYTES_LIMIT_REACHED".to_owned()));
    drop((announced, held));
    server.stop();
    node.shutdown().expect("a clean end");
}

/// One frame of HTTP/2.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// A header field as HPACK's literal without indexing.
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| vec![u8::try_from(text.len()).expect("below 127")];
    [vec![0], length(name), name.as_bytes().to_vec(), length(value), value.as_bytes().to_vec()].concat()
}

/// `GET` of a long-poll that would wait for long.
fn get() -> Vec<u8> {
    let path = format!("{PATH}?offset=0&live=long-poll&timeout_ms=60000");
    [literal(":method", "GET"), literal(":scheme", "http"), literal(":authority", "localhost"), literal(":path", &path)]
        .concat()
}

/// Kinds of the frames that the server sends until it ends the connection or nothing comes for a while.
pub fn kinds(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_millis(700))).expect("a timeout");
    let mut kinds = Vec::new();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        kinds.push(head[3]);
    }
    kinds
}

pub fn http2(server: &Server) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).expect("it is taken");
    stream
}

/// Opening requests and taking them back at once costs a client nothing, and used to cost other servers everything.
#[test]
fn a_rapid_reset_flood_ends_its_connection_or_costs_no_more_than_its_frames() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut stream = http2(&server);
    let flood: Vec<u8> = (0..20_000_u32)
        .flat_map(|n| {
            let id = 2 * n + 1;
            [frame(HEADERS, 5, id, &get()), frame(RST_STREAM, 0, id, &8_u32.to_be_bytes())].concat()
        })
        .collect();
    stream.write_all(&flood).ok();
    let ended = kinds(&mut stream).contains(&GOAWAY);
    let start = Instant::now();
    assert_eq!(server.ask("GET", "/healthz", &[], b"").status, 200, "others are served");
    assert!(start.elapsed() < Duration::from_secs(5));
    while fake.waiting() > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{} requests that were taken back still wait",
            fake.waiting()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("the connection was ended: {ended}");
}

#[test]
fn an_http_2_connection_has_a_bound_on_its_requests() {
    let fake = Fake::new();
    let server = Server::with(fake.clone(), HttpOptions { http2_requests_max: 8, ..HttpOptions::default() });
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut stream = http2(&server);
    assert!(kinds(&mut stream).contains(&SETTINGS), "the bound is told");
    stream.write_all(&frame(SETTINGS, 1, 0, &[])).expect("it is taken");
    let many: Vec<u8> = (0..100_u32).flat_map(|n| frame(HEADERS, 5, 2 * n + 1, &get())).collect();
    stream.write_all(&many).ok();
    let refused = kinds(&mut stream);
    assert!(refused.contains(&RST_STREAM) || refused.contains(&GOAWAY), "{refused:?}");
    assert!(fake.waiting() <= 8, "{} wait", fake.waiting());
}

#[test]
fn frames_without_end_end_their_connection() {
    let server = Server::start(Fake::new());
    let header = literal("x-flood", &"y".repeat(100));
    let continued: Vec<u8> = (0..10_000).flat_map(|_| frame(CONTINUATION, 0, 1, &header)).collect();
    let pings: Vec<u8> = (0..100_000).flat_map(|_| frame(PING, 0, 0, &[0; 8])).collect();
    let settings: Vec<u8> = (0..100_000).flat_map(|_| frame(SETTINGS, 0, 0, &[])).collect();
    for (what, flood) in [
        ("continuations", [frame(HEADERS, 1, 1, &get()), continued].concat()),
        ("pings", pings),
        ("settings", settings),
    ] {
        let mut stream = http2(&server);
        stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        // A flood whose answers nobody reads stops by itself: the server reads no more than it could answer.
        let taken = stream.write_all(&flood).is_ok();
        let start = Instant::now();
        assert_eq!(server.ask("GET", "/healthz", &[], b"").status, 200, "{what}: others are served");
        assert!(start.elapsed() < Duration::from_secs(5), "{what}");
        println!("{what}: taken {taken}");
    }
    let mut stream = http2(&server);
    stream
        .write_all(
            &[frame(HEADERS, 1, 1, &get()), (0..10_000).flat_map(|_| frame(CONTINUATION, 0, 1, &header)).collect()]
                .concat(),
        )
        .ok();
    let said = kinds(&mut stream);
    assert!(said.contains(&GOAWAY) || stream.read(&mut [0]).is_ok_and(|n| n == 0), "{said:?}");
}

/// A reader who takes a little now and then holds what was read for it; the bound is on all of them together.
#[test]
fn a_reader_who_takes_too_little_is_cut_and_gives_its_room_back() {
    let options = HttpOptions {
        answer_bytes_held_max: 8 << 20,
        answer_room_wait_ms_max: 100,
        write_idle_ms_max: 600,
        answer_bytes_per_second_min: 64 << 20,
        ..HttpOptions::default()
    };
    let server = Server::with(Fake::new(), options);
    server.ask("PUT", PATH, &[TEXT], &vec![b'z'; 16 << 20]);
    let mut slow = server.connect();
    slow.write_all(&request("GET", PATH, &[], b"")).expect("it is taken");
    let start = Instant::now();
    // A kilobyte now and then; all of it would take minutes.
    while server.ask("GET", PATH, &[], b"").status != 200 {
        assert!(start.elapsed() < Duration::from_secs(10), "the room never came back");
        slow.read_exact(&mut [0; 1_000]).ok();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Readers of one key who took their answers at the floor held all the memory there is for answers, and everybody else
/// was refused.
#[test]
fn slow_readers_of_one_key_leave_room_for_those_of_another() {
    let options = HttpOptions { answer_bytes_held_max: 32 << 20, answer_room_wait_ms_max: 300, ..Default::default() };
    let server = Server::with(Fake::new(), options);
    let key = |bearer: &str| {
        let headers: &[(&str, &str)] = if bearer.is_empty() { &[] } else { &[("authorization", bearer)] };
        let made = server.ask("POST", "/v1/keys", headers, br#"{"scopes":["admin","read","create"]}"#);
        let made: serde_json::Value = serde_json::from_slice(&made.body).expect("a key");
        format!("Bearer {}", made["key"].as_str().expect("its secret"))
    };
    let greedy = key("");
    let other = key(&greedy);
    server.ask("PUT", PATH, &[TEXT, ("authorization", &greedy)], &vec![b'z'; 8 << 20]);
    let slow: Vec<TcpStream> = (0..6)
        .map(|_| {
            let mut reader = server.connect();
            reader.write_all(&request("GET", PATH, &[("authorization", &greedy)], b"")).expect("taken");
            reader
        })
        .collect();
    let refused = |reader: &TcpStream| {
        let mut begin = [0; 12];
        let mut reader = reader;
        reader.read_exact(&mut begin).expect("an answer");
        &begin == b"HTTP/1.1 503"
    };
    assert_eq!(slow.iter().filter(|reader| refused(reader)).count(), 5, "one answer is a quarter of all room");
    for _ in 0..3 {
        let answer = server.ask("GET", PATH, &[("authorization", &other)], b"");
        assert_eq!((answer.status, answer.body.len()), (200, 8 << 20));
    }
    drop(slow);
}
