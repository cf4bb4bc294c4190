//! What was begun ends with the key, the account or the openness that allowed it.

use crate::fake::Fake;
use crate::keys::{Keyed, PATH, TEXT, secret, value};
use crate::wire::{Answer, Server, request};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// An event stream once outlived the key that it was opened with (another server's issue 211).
#[test]
fn a_live_read_ends_with_its_key() {
    type End = fn(&Keyed, &str);
    let ends: [(&str, End); 3] = [
        ("revoked", |keyed, id| {
            let revoked = keyed.manage("DELETE", &format!("/v1/keys/{id}"), &Value::Null);
            assert_eq!(revoked.status, 200);
        }),
        ("expired", |keyed, id| {
            keyed.fake.pass(1_000);
            let ended = json!({ "expires_ms": 1 });
            assert_eq!(keyed.manage("PATCH", &format!("/v1/keys/{id}"), &ended).status, 200);
        }),
        ("account revoked", |keyed, _| {
            assert_eq!(keyed.manage("PATCH", "/v1/accounts/a", &json!({ "revoked": true })).status, 200);
        }),
    ];
    for (what, end) in ends {
        for live in ["sse", "long-poll&timeout_ms=50000"] {
            let keyed = Keyed::start();
            keyed.manage("POST", "/v1/plans", &json!({ "name": "p" }));
            keyed.manage("POST", "/v1/accounts", &json!({ "name": "a", "plan": "p", "buckets": ["app"] }));
            keyed.ask(&keyed.admin, "PUT", PATH, &[TEXT], b"x");
            let (id, key) = keyed.key(&json!({ "scopes": ["read"], "account": "a" }));
            let bearer = format!("Bearer {key}");
            let mut reader = keyed.server.connect();
            let target = format!("{PATH}?offset=1&live={live}");
            reader.write_all(&request("GET", &target, &[("authorization", &bearer)], b"")).expect("taken");
            let start = Instant::now();
            while keyed.fake.waiting() == 0 && start.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(keyed.fake.waiting(), 1, "{what} {live}: the reader waits");
            end(&keyed, &id);
            // The connection's own timeout is far below the minute for which it would have waited.
            if live == "sse" {
                let mut events = String::new();
                while !events.ends_with("0\r\n\r\n") {
                    let mut piece = [0; 1_024];
                    let bytes = reader.read(&mut piece).unwrap_or_else(|error| panic!("{what} {live}: {error}"));
                    assert!(bytes > 0, "{what} {live}: cut, not ended: {events}");
                    events.push_str(&String::from_utf8_lossy(&piece[..bytes]));
                }
                assert!(events.contains("event: control"), "{events}");
            } else {
                let answer = Answer::read(&mut reader, "GET");
                assert!(matches!(answer.status, 401 | 403), "{what} {live}: {answer:?}");
            }
        }
    }
}

/// Sends a request's head and all of its body but the last byte, which the caller sends.
fn half(server: &Server, key: Option<&str>, method: &str, target: &str, body: &[u8]) -> std::net::TcpStream {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).chain([TEXT]).collect();
    let mut stream = server.connect();
    let whole = request(method, target, &headers, body);
    stream.write_all(&whole[..whole.len() - 1]).expect("it is taken");
    stream
}

/// Whoever held a leaked key kept a request half sent, and had a new administrator's key after the old one was revoked.
#[test]
fn a_request_that_was_half_sent_when_its_key_was_revoked_does_nothing() {
    let keyed = Keyed::start();
    keyed.ask(&keyed.admin, "PUT", PATH, &[TEXT], b"x");
    let (id, key) = keyed.key(&json!({ "scopes": ["admin"] }));
    let snapshot = format!("{PATH}/snapshot/0");
    let asks: [(&str, &str, &[u8]); 6] = [
        ("POST", "/v1/keys", br#"{"scopes":["admin"]}"#),
        ("PATCH", &format!("/v1/keys/{id}"), br#"{"expires_ms":null}"#),
        ("POST", PATH, b"late"),
        ("PUT", "/v1/stream/app/new", b"late"),
        ("PUT", &snapshot, b"late"),
        ("POST", &format!("{snapshot}/parts"), b"late"),
    ];
    let mut begun: Vec<_> =
        asks.iter().map(|(method, target, body)| half(&keyed.server, Some(&key), method, target, body)).collect();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(keyed.manage("DELETE", &format!("/v1/keys/{id}"), &Value::Null).status, 200);
    for (stream, (method, target, body)) in begun.iter_mut().zip(asks) {
        stream.write_all(&body[body.len() - 1..]).expect("it is taken");
        let answer = Answer::read(stream, method);
        assert_eq!(answer.told(), (401, "INVALID_CREDENTIAL".to_owned()), "{method} {target}");
    }
    assert_eq!(value(&keyed.manage("GET", "/v1/keys", &Value::Null))["keys"].as_array().map(Vec::len), Some(2));
    assert_eq!(keyed.ask(&keyed.admin, "GET", PATH, &[], b"").text(), "x");
    assert_eq!(keyed.ask(&keyed.admin, "GET", "/v1/stream/app/new", &[], b"").status, 404);
}

#[test]
fn a_request_that_was_half_sent_to_an_open_server_does_nothing_once_there_is_a_key() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    let mut thief = half(&server, None, "POST", "/v1/keys", br#"{"scopes":["admin"]}"#);
    let mut writer = half(&server, None, "PUT", PATH, b"late");
    std::thread::sleep(Duration::from_millis(100));
    secret(&server.ask("POST", "/v1/keys", &[], br#"{"scopes":["admin"]}"#));
    for (stream, last, method) in [(&mut thief, b"}", "POST"), (&mut writer, b"e", "PUT")] {
        stream.write_all(last).expect("it is taken");
        assert_eq!(Answer::read(stream, method).told(), (401, "INVALID_CREDENTIAL".to_owned()));
    }
}

/// An event stream went on with what the bucket's next owner wrote, and an upload ended in its streams.
#[test]
fn what_an_account_began_in_a_bucket_ends_when_the_bucket_is_anothers() {
    let keyed = Keyed::start();
    keyed.manage("POST", "/v1/plans", &json!({ "name": "p" }));
    keyed.manage("POST", "/v1/accounts", &json!({ "name": "team", "plan": "p", "buckets": ["app"] }));
    keyed.ask(&keyed.admin, "PUT", PATH, &[TEXT], b"x");
    let (_, key) = keyed.key(&json!({ "scopes": ["read", "append"], "account": "team" }));
    let bearer = format!("Bearer {key}");
    let mut live = keyed.server.connect();
    let events = format!("{PATH}?offset=now&live=sse");
    live.write_all(&request("GET", &events, &[("authorization", &bearer)], b"")).expect("it is taken");
    let mut upload = half(&keyed.server, Some(&key), "POST", PATH, b"late");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(keyed.manage("PATCH", "/v1/accounts/team", &json!({ "buckets": [] })).status, 200);
    keyed.ask(&keyed.admin, "POST", PATH, &[TEXT], b"the next owner's");
    let mut told = String::new();
    // Its end is a chunk of nothing; the connection stays.
    let mut piece = [0; 4096];
    while !told.ends_with("0\r\n\r\n") {
        let read = live.read(&mut piece).expect("the events end within the bound");
        told.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    assert!(!told.contains("owner"), "{told}");
    upload.write_all(b"e").expect("it is taken");
    assert_eq!(Answer::read(&mut upload, "POST").told(), (403, "FORBIDDEN".to_owned()));
    assert_eq!(keyed.ask(&keyed.admin, "GET", PATH, &[], b"").text(), "xthe next owner's");
}

/// What a slow reader had begun to read went on to its last byte, hours behind the revocation of its key.
#[test]
fn a_long_answer_breaks_off_with_its_key() {
    const BYTES: usize = 24 << 20;
    const SNAPSHOT: &str = "/v1/stream/app/db/snapshot/0";
    let keyed = Keyed::start();
    keyed.ask(&keyed.admin, "PUT", PATH, &[TEXT], &vec![b'x'; BYTES]);
    assert_eq!(keyed.ask(&keyed.admin, "PUT", SNAPSHOT, &[TEXT], &vec![b's'; BYTES]).status, 204);
    let json = [("content-type", "application/json")];
    let array = format!("[{}1]", "1,".repeat(BYTES / 2));
    keyed.ask(&keyed.admin, "PUT", "/v1/stream/app/json", &json, array.as_bytes());
    for target in [SNAPSHOT, PATH, "/v1/stream/app/json"] {
        let (id, key) = keyed.key(&json!({ "scopes": ["read"] }));
        let bearer = format!("Bearer {key}");
        let mut reader = keyed.server.connect();
        reader.write_all(&request("GET", target, &[("authorization", &bearer)], b"")).expect("taken");
        let mut begin = [0; 12];
        reader.read_exact(&mut begin).expect("an answer");
        assert_eq!(&begin, b"HTTP/1.1 200", "{target}");
        assert_eq!(keyed.manage("DELETE", &format!("/v1/keys/{id}"), &Value::Null).status, 200);
        let mut rest = Vec::new();
        // Reset or closed, but before the length that was stated.
        reader.read_to_end(&mut rest).ok();
        let head = rest.windows(4).position(|at| at == b"\r\n\r\n").expect("a head");
        let length = String::from_utf8_lossy(&rest[..head]).to_lowercase();
        let length = length.split("content-length: ").nth(1).and_then(|text| text.split("\r\n").next()?.parse().ok());
        let length: usize = length.expect("a stated length");
        assert!(length >= 8 << 20, "{target}: more than the kernel takes for a reader who does not read");
        assert!(rest.len() - head - 4 < length, "{target}: all of {length} bytes came");
    }
}

#[test]
fn a_live_read_of_an_open_server_ends_with_the_first_key() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut reader = server.connect();
    let target = format!("{PATH}?offset=0&live=long-poll&timeout_ms=50000");
    reader.write_all(&request("GET", &target, &[], b"")).expect("taken");
    while fake.waiting() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.ask("POST", "/v1/keys", &[], br#"{"scopes":["admin"]}"#).status, 201);
    assert_eq!(Answer::read(&mut reader, "GET").told(), (401, "INVALID_CREDENTIAL".to_owned()));
}
