//! The order in which a write is judged: size, head, routing, early answer, pressure, body, and then the stream.
//!
//! Each test breaks everything from one step on and sees that step's answer, and that no later step was reached.

use crate::fake::{Fake, Stage, digest};
use crate::wire::{Answer, Server, request};
use highwater_node::Unavailable;
use std::io::Write;

const PATH: &str = "/v1/stream/a";
const TEXT: (&str, &str) = ("content-type", "text/plain");

/// Fails every stage of a write, so that a step that is passed shows.
fn break_all(fake: &Fake) {
    fake.fail(Stage::Route, Unavailable::NoLeader { group: 0 });
    fake.fail(Stage::Early, Unavailable::ApplyStopped);
    fake.fail(Stage::Admit, Unavailable::IngressBodyBytesLimit);
    fake.fail(Stage::Write, Unavailable::HistoryPending);
}

/// Sends a head alone; nothing of the body is needed for these answers.
fn head_only(server: &Server, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
    let mut stream = server.connect();
    stream.write_all(&request(method, target, headers, b"")).expect("the head is taken");
    Answer::read(&mut stream, method)
}

#[test]
fn size_comes_before_everything() {
    let fake = Fake::new();
    break_all(&fake);
    let server = Server::start(fake.clone());
    let malformed = [("content-length", "33554433"), ("producer-id", "w"), ("stream-incarnation", "x")];
    for (method, target) in
        [("POST", PATH), ("PUT", PATH), ("POST", "/v1/stream/a//b"), ("POST", "/v1/stream/a/snapshot")]
    {
        let answer = head_only(&server, method, target, &malformed);
        assert_eq!(answer.told(), (413, "REQUEST_TOO_LARGE".to_owned()), "{method} {target}");
        assert_eq!(answer.header("ursula-max-request-bytes"), Some("33554432"));
    }
    assert_eq!(fake.seen(), []);
}

#[test]
fn a_malformed_head_comes_before_routing() {
    let fake = Fake::new();
    break_all(&fake);
    let server = Server::start(fake.clone());
    for (headers, code) in [
        (&[("producer-id", "w")][..], "INVALID_PRODUCER"),
        (&[("stream-incarnation", "x")], "INVALID_HEADER"),
        (&[("stream-seq", "")], "INVALID_HEADER"),
        (&[("producer-digest", "00")], "INVALID_HEADER"),
    ] {
        let answer = head_only(&server, "POST", PATH, &[headers, &[("content-length", "100")]].concat());
        assert_eq!(answer.told(), (400, code.to_owned()), "{headers:?}");
    }
    assert_eq!(head_only(&server, "POST", "/v1/stream/a/../b", &[]).code(), "INVALID_STREAM_ID");
    assert_eq!(fake.seen(), []);
}

#[test]
fn routing_comes_before_the_early_answer_and_pressure_after_it() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    let created = server.ask("PUT", PATH, &[TEXT], b"");
    let token = created.header("stream-incarnation").expect("a token").to_owned();
    let body = vec![7; 64 << 10];
    let digest = digest(&body);
    let key = [
        TEXT,
        ("producer-id", "w"),
        ("producer-epoch", "1"),
        ("producer-seq", "0"),
        ("producer-digest", &digest),
        ("stream-incarnation", &token),
    ];
    assert_eq!(server.ask("POST", PATH, &key, &body).status, 200);
    fake.seen();

    let length = [("content-length", "65536")];
    break_all(&fake);
    let early = [&key[..], &length].concat();
    assert_eq!(head_only(&server, "POST", PATH, &early).told(), (503, "NO_LEADER".to_owned()));
    assert_eq!(fake.seen(), [Stage::Route]);

    fake.heal();
    fake.fail(Stage::Admit, Unavailable::IngressBodyBytesLimit);
    let repeat = head_only(&server, "POST", PATH, &early);
    assert_eq!(repeat.status, 204, "{repeat:?}");
    assert_eq!(repeat.header("stream-offset"), Some("00000000000000000000"));
    assert_eq!(repeat.header("highwater-durability"), Some("synced=1, of=1"));
    assert_eq!(fake.seen(), [Stage::Route, Stage::Early]);

    let mut other = early.clone();
    other[4].1 = "0000000000000000000000000000000000000000000000000000000000000000";
    let conflict = head_only(&server, "POST", PATH, &other);
    assert_eq!(conflict.told(), (403, "PRODUCER_KEY_CONFLICT".to_owned()));
    assert_eq!(fake.seen(), [Stage::Route, Stage::Early]);

    other[3].1 = "1";
    assert_eq!(head_only(&server, "POST", PATH, &other).code(), "INGRESS_BODY_BYTES_LIMIT_REACHED");
    assert_eq!(fake.seen(), [Stage::Route, Stage::Early, Stage::Admit], "the next number needs its body");
}

#[test]
fn only_a_tokened_keyed_write_that_is_large_or_waits_is_answered_early() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    let token = server.ask("PUT", PATH, &[TEXT], b"").header("stream-incarnation").expect("a token").to_owned();
    let key = [TEXT, ("producer-id", "w"), ("producer-epoch", "1"), ("producer-seq", "0")];
    let tokened = [&key[..], &[("stream-incarnation", token.as_str())]].concat();
    let expects = [&tokened[..], &[("expect", "100-continue")]].concat();
    assert_eq!(server.ask("POST", PATH, &tokened, b"small").status, 200);
    for (headers, length, early) in [
        (&tokened[..], 5, false),
        (&key[..], 64 << 10, false),
        (&[TEXT, ("stream-incarnation", token.as_str())], 64 << 10, false),
        (&tokened[..], (64 << 10) - 1, false),
        (&tokened[..], 64 << 10, true),
        (&expects[..], 5, true),
    ] {
        fake.seen();
        server.ask("POST", PATH, headers, &vec![b'x'; length]);
        assert_eq!(fake.seen().contains(&Stage::Early), early, "{length} {headers:?}");
    }
}

#[test]
fn pressure_comes_before_the_body_is_read() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    for (fault, code) in [
        (Unavailable::WalDiskPressure, "WAL_DISK_PRESSURE"),
        (Unavailable::RaftUncommittedBackpressure, "RAFT_UNCOMMITTED_BACKPRESSURE"),
        (Unavailable::IngressBodyBytesLimit, "INGRESS_BODY_BYTES_LIMIT_REACHED"),
    ] {
        fake.fail(Stage::Admit, fault);
        for method in ["POST", "PUT"] {
            let answer = head_only(&server, method, PATH, &[TEXT, ("content-length", "1000000")]);
            assert_eq!(answer.told(), (503, code.to_owned()));
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
    }
}

#[test]
fn content_is_judged_only_for_a_write_that_would_otherwise_apply() {
    let server = Server::start(Fake::new());
    let wrong = "00".repeat(32);
    let key = |seq| {
        [("producer-id", "w"), ("producer-epoch", "1"), ("producer-seq", seq), ("producer-digest", wrong.as_str())]
    };
    let ask = |headers: &[(&str, &str)], body: &[u8]| server.ask("POST", PATH, headers, body).told();
    assert_eq!(ask(&key("0"), b"x"), (404, "STREAM_NOT_FOUND".to_owned()));
    let created = server.ask("PUT", PATH, &[TEXT], b"");
    assert_eq!(created.status, 201);
    assert_eq!(
        ask(&[&key("0")[..], &[("stream-incarnation", "7")]].concat(), b"x"),
        (412, "INCARNATION_MISMATCH".to_owned())
    );
    assert_eq!(ask(&key("3"), b"x"), (409, "PRODUCER_SEQ_CONFLICT".to_owned()));
    assert_eq!(ask(&key("0"), b"x"), (400, "PRODUCER_DIGEST_MISMATCH".to_owned()));
    assert_eq!(ask(&[], b""), (400, "EMPTY_APPEND".to_owned()));
    assert_eq!(ask(&[], b"x"), (400, "MISSING_CONTENT_TYPE".to_owned()));
    assert_eq!(ask(&[("content-type", "text/html")], b"x"), (409, "CONTENT_TYPE_MISMATCH".to_owned()));
    server.ask("POST", PATH, &[("stream-closed", "true")], b"");
    assert_eq!(ask(&key("0"), b"x"), (409, "STREAM_CLOSED".to_owned()));
    assert_eq!(ask(&[("content-type", "text/html")], b"x"), (409, "STREAM_CLOSED".to_owned()));
}
