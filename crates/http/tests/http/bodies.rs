//! Bodies: how much, how slow, and what becomes of those that nobody reads.

use crate::fake::{Fake, Stage};
use crate::wire::{Answer, Server, request};
use highwater_http::HttpOptions;
use highwater_node::Unavailable;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const PATH: &str = "/v1/stream/a";
const TEXT: (&str, &str) = ("content-type", "text/plain");

/// Sends a whole body before reading anything, as simple clients do, and then reads the answer.
fn push(stream: &mut TcpStream, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer, String> {
    let bytes = request("POST", PATH, headers, body);
    stream.write_all(&bytes).map_err(|error| format!("while sending: {error}"))?;
    Answer::try_read(stream, "POST")
}

/// A refusal that is sent before the body was read used to reach such a client as a reset, which reads as an unknown
/// outcome and is repeated for ever. The body is read away instead, and the connection goes on.
#[test]
fn a_client_that_sends_everything_first_still_sees_the_refusal() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    let body = vec![b'x'; 8 << 20];
    fake.fail(Stage::Route, Unavailable::NoLeader { group: 0 });
    let mut stream = server.connect();
    for round in 0..3 {
        let answer = push(&mut stream, &[TEXT], &body).expect("a refusal, not a reset");
        assert_eq!(answer.told(), (503, "NO_LEADER".to_owned()), "round {round} on one connection");
    }
    for (headers, code) in [
        (&[("host", "example.com")][..], "MISDIRECTED_REQUEST"),
        (&[("origin", "https://example.com")], "FORBIDDEN"),
        (&[("producer-id", "w")], "INVALID_PRODUCER"),
    ] {
        let answer = push(&mut stream, headers, &body).expect("a refusal, not a reset");
        assert_eq!(answer.code(), code);
    }
}

#[test]
fn a_body_over_the_limit_is_refused_from_its_head_and_read_away() {
    let options = HttpOptions { request_bytes_max: 1 << 20, ..HttpOptions::default() };
    let server = Server::with(Fake::new(), options);
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut stream = server.connect();
    for _ in 0..2 {
        let answer = push(&mut stream, &[TEXT], &vec![0; (1 << 20) + 1]).expect("a refusal, not a reset");
        assert_eq!(answer.told(), (413, "REQUEST_TOO_LARGE".to_owned()));
        assert_eq!(answer.header("ursula-max-request-bytes"), Some("1048576"));
    }
    assert_eq!(push(&mut stream, &[TEXT], &vec![0; 1 << 20]).map(|answer| answer.status), Ok(204), "the limit itself");
}

#[test]
fn a_chunked_body_is_bounded_as_it_arrives() {
    let options = HttpOptions { request_bytes_max: 100_000, ..HttpOptions::default() };
    let server = Server::with(Fake::new(), options);
    server.ask("PUT", PATH, &[TEXT], b"");
    let chunk = [format!("{:x}\r\n", 10_000).as_bytes(), &[b'y'; 10_000][..], b"\r\n"].concat();
    let mut stream = server.connect();
    for (chunks, status) in [(10, 204), (11, 413), (10, 204)] {
        let head = request("POST", PATH, &[TEXT, ("transfer-encoding", "chunked")], b"");
        stream.write_all(&[&head[..], &chunk.repeat(chunks), b"0\r\n\r\n"].concat()).expect("all is taken");
        let answer = Answer::try_read(&mut stream, "POST").expect("an answer, not a reset");
        assert_eq!(answer.status, status, "{chunks} chunks: {answer:?}");
    }
    assert_eq!(server.ask("HEAD", PATH, &[], b"").next(), 200_000);
}

#[test]
fn a_body_that_breaks_off_leaves_nothing_behind() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    fake.seen();
    let mut stream = server.connect();
    stream.write_all(&request("POST", PATH, &[TEXT, ("content-length", "10")], b"half")).expect("it is taken");
    stream.shutdown(Shutdown::Write).expect("our side ends");
    let answer = Answer::try_read(&mut stream, "POST");
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.code() == "BODY_UNREADABLE"));
    assert!(!fake.seen().contains(&Stage::Write));

    let mut stream = server.connect();
    let head = request("POST", PATH, &[TEXT, ("transfer-encoding", "chunked")], b"");
    stream.write_all(&[&head[..], b"zz\r\nnot a chunk\r\n"].concat()).expect("it is taken");
    let answer = Answer::read(&mut stream, "POST");
    assert_eq!(answer.told(), (400, "BODY_UNREADABLE".to_owned()));
    assert!(!fake.seen().contains(&Stage::Write));
}

#[test]
fn a_body_that_stops_arriving_is_given_up() {
    let options = HttpOptions { body_idle_ms_max: 100, drain_idle_ms_max: 50, ..HttpOptions::default() };
    let fake = Fake::new();
    let server = Server::with(fake.clone(), options);
    server.ask("PUT", PATH, &[TEXT], b"");
    fake.seen();
    let mut stream = server.connect();
    stream.write_all(&request("POST", PATH, &[TEXT, ("content-length", "10")], b"half")).expect("it is taken");
    let answer = Answer::read(&mut stream, "POST");
    assert_eq!(answer.told(), (408, "BODY_TOO_SLOW".to_owned()));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(stream.read(&mut [0]).ok(), Some(0), "the connection ends");
    assert!(!fake.seen().contains(&Stage::Write));
}

#[test]
fn draining_ends_when_nothing_more_comes() {
    let options = HttpOptions { drain_idle_ms_max: 100, ..HttpOptions::default() };
    let fake = Fake::new();
    let server = Server::with(fake.clone(), options);
    fake.fail(Stage::Route, Unavailable::NoLeader { group: 0 });
    let mut stream = server.connect();
    stream.write_all(&request("POST", PATH, &[TEXT, ("content-length", "1000000")], b"little")).expect("it is taken");
    assert_eq!(Answer::read(&mut stream, "POST").status, 503, "at once, without the body");
    let start = Instant::now();
    assert_eq!(stream.read(&mut [0]).ok(), Some(0), "the connection ends");
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_client_that_waits_for_leave_to_send_gets_it_or_the_final_answer() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let head = request("POST", PATH, &[TEXT, ("expect", "100-continue"), ("content-length", "5")], b"");

    let mut stream = server.connect();
    stream.write_all(&head).expect("it is taken");
    assert_eq!(Answer::read(&mut stream, "POST").status, 100);
    stream.write_all(b"hello").expect("it is taken");
    assert_eq!(Answer::read(&mut stream, "POST").status, 204);

    fake.fail(Stage::Route, Unavailable::NoLeader { group: 0 });
    let mut stream = server.connect();
    stream.write_all(&head).expect("it is taken");
    let refusal = Answer::read(&mut stream, "POST");
    assert_eq!(refusal.status, 503, "no leave for a body that nobody reads");
    assert_eq!(refusal.header("connection"), Some("close"), "whether the body still comes is open");
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let options = HttpOptions { head_ms_max: 100, ..HttpOptions::default() };
    let server = Server::with(Fake::new(), options);
    for opening in [&b""[..], b"P", b"PRI * HT", b"GET /healthz HTTP/1.1\r\nHost: local"] {
        let mut stream = server.connect();
        stream.write_all(opening).expect("it is taken");
        let mut rest = Vec::new();
        let start = Instant::now();
        stream.read_to_end(&mut rest).ok();
        assert!(start.elapsed() < Duration::from_secs(5), "{opening:?}");
    }
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let options = HttpOptions { connections_max: 1, ..HttpOptions::default() };
    let server = Server::with(Fake::new(), options);
    let mut first = server.connect();
    first.write_all(&request("GET", "/healthz", &[], b"")).expect("it is taken");
    assert_eq!(Answer::read(&mut first, "GET").status, 200);
    let mut second = server.connect();
    second.write_all(&request("GET", "/healthz", &[], b"")).expect("it is taken");
    second.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    assert!(Answer::try_read(&mut second, "GET").is_err(), "no place yet");
    drop(first);
    second.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    assert_eq!(Answer::read(&mut second, "GET").status, 200);
}

#[test]
fn a_reader_who_takes_nothing_gives_its_room_back() {
    let options = HttpOptions {
        answer_bytes_held_max: 8 << 20,
        answer_room_wait_ms_max: 100,
        write_idle_ms_max: 400,
        ..HttpOptions::default()
    };
    let server = Server::with(Fake::new(), options);
    server.ask("PUT", PATH, &[TEXT], &vec![b'z'; 16 << 20]);
    let mut slow = server.connect();
    slow.write_all(&request("GET", PATH, &[], b"")).expect("it is taken");
    std::thread::sleep(Duration::from_millis(100));
    let refused = server.ask("GET", PATH, &[], b"");
    assert_eq!(refused.told(), (503, "LIVE_READ_BACKPRESSURE".to_owned()));
    let start = Instant::now();
    loop {
        let answer = server.ask("GET", PATH, &[], b"");
        if answer.status == 200 {
            assert_eq!(answer.body.len(), 8 << 20);
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(8), "the room never came back");
    }
}
