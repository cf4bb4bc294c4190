//! JSON streams: messages in, arrays out.

use crate::events::Events;
use crate::fake::Fake;
use crate::wire::{Answer, Server};
use std::time::Duration;

const PATH: &str = "/v1/stream/a";
const JSON: (&str, &str) = ("content-type", "application/json");
const CLOSES: (&str, &str) = ("stream-closed", "true");

fn get(server: &Server, query: &str) -> Answer {
    server.ask("GET", &format!("{PATH}?{query}"), &[], b"")
}

fn post(server: &Server, body: &str) -> Answer {
    server.ask("POST", PATH, &[JSON], body.as_bytes())
}

#[test]
fn messages_come_back_as_one_array_however_they_came() {
    let server = Server::start(Fake::new());
    assert_eq!(server.ask("PUT", PATH, &[JSON], b" [ 1 , {\"a\" : [ ] } ] ").status, 201);
    for (body, next) in [("\"x y\"", 17), ("[[2,3], 4.50]", 28), ("{ }", 31)] {
        let answer = post(&server, body);
        assert_eq!((answer.status, answer.next()), (204, next), "{body}");
    }
    let all = get(&server, "offset=-1");
    assert_eq!((all.text().as_str(), all.next()), ("[1,{\"a\":[]},\"x y\",[2,3],4.50,{}]", 31));
    assert_eq!(all.header("content-type"), Some("application/json"));
    assert_eq!(all.header("content-length"), Some("32"));
    assert_eq!(get(&server, "offset=11").text(), "[\"x y\",[2,3],4.50,{}]");
}

#[test]
fn a_type_with_parameters_is_json_too() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[("content-type", "Application/JSON; charset=utf-8")], b"");
    assert_eq!(post(&server, "[1]").status, 204, "parameters are compared for requests with a token alone");
    let answer = get(&server, "offset=-1");
    assert_eq!(
        (answer.text().as_str(), answer.header("content-type")),
        ("[1]", Some("application/json; charset=utf-8"))
    );
}

#[test]
fn what_holds_no_message_is_refused_and_changes_nothing() {
    let server = Server::start(Fake::new());
    assert_eq!(server.ask("PUT", PATH, &[JSON], b"{").told(), (400, "INVALID_JSON".to_owned()));
    assert_eq!(server.ask("HEAD", PATH, &[], b"").status, 404);
    assert_eq!(server.ask("PUT", PATH, &[JSON], b"[]").status, 201, "an empty stream");
    for (body, code) in [("[]", "EMPTY_APPEND"), ("", "EMPTY_APPEND"), (" ", "INVALID_JSON"), ("[1,]", "INVALID_JSON")]
    {
        for closes in [false, true] {
            let headers = if closes { &[JSON, CLOSES][..] } else { &[JSON] };
            if body.is_empty() && closes {
                continue;
            }
            assert_eq!(server.ask("POST", PATH, headers, body.as_bytes()).told(), (400, code.to_owned()), "{body:?}");
        }
    }
    let head = server.ask("HEAD", PATH, &[], b"");
    assert_eq!((head.next(), head.header("stream-closed")), (0, None));
    let told = post(&server, "[1, nul]").text();
    assert!(told.contains("at byte 4"), "{told}");
}

/// What is wrong with a body is told only for a write that would otherwise apply, in the contract's order.
#[test]
fn json_is_judged_after_the_content_type_and_after_closure() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[("content-type", "text/plain")], b"");
    assert_eq!(post(&server, "[").told(), (409, "CONTENT_TYPE_MISMATCH".to_owned()));
    server.ask("DELETE", PATH, &[], b"");
    server.ask("PUT", PATH, &[JSON], b"");
    assert_eq!(
        server.ask("POST", PATH, &[("content-type", "text/plain")], b"[").told(),
        (409, "CONTENT_TYPE_MISMATCH".to_owned())
    );
    server.ask("POST", PATH, &[CLOSES], b"");
    for headers in [&[JSON][..], &[JSON, CLOSES]] {
        assert_eq!(server.ask("POST", PATH, headers, b"[").told(), (409, "STREAM_CLOSED".to_owned()));
        assert_eq!(server.ask("POST", PATH, headers, b"[]").told(), (409, "STREAM_CLOSED".to_owned()));
    }
    assert_eq!(server.ask("POST", PATH, &[CLOSES], b"").status, 204);
}

/// A repeat is recognised by the digest of the body as it was sent, not as it is kept.
#[test]
fn a_keyed_write_is_recognised_by_the_bytes_that_were_sent() {
    let server = Server::start(Fake::new());
    let token = server.ask("PUT", PATH, &[JSON], b"").header("stream-incarnation").map(str::to_owned).expect("a token");
    let write = |seq: &str, body: &str| {
        let digest = crate::fake::digest(body.as_bytes());
        let key = [("producer-id", "w"), ("producer-epoch", "1"), ("producer-seq", seq)];
        let rest = [("producer-digest", digest.as_str()), ("stream-incarnation", token.as_str()), JSON];
        server.ask("POST", PATH, &[&key[..], &rest].concat(), body.as_bytes())
    };
    let written = write("0", "[ 1, 2 ]");
    assert_eq!((written.status, written.next()), (200, 4));
    let repeat = write("0", "[ 1, 2 ]");
    assert_eq!((repeat.status, repeat.next()), (204, 4));
    assert_eq!(write("0", "[1,2]").told(), (403, "PRODUCER_KEY_CONFLICT".to_owned()));
    assert_eq!(write("1", "[").told(), (400, "INVALID_JSON".to_owned()));
    assert_eq!(write("1", "3").next(), 6, "a refusal moves no record");
}

#[test]
fn an_empty_end_is_an_empty_array_or_no_content() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[JSON], b"[1]");
    for query in ["offset=now", "offset=2"] {
        let answer = get(&server, query);
        assert_eq!((answer.status, answer.text().as_str(), answer.next()), (200, "[]", 2), "{query}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{query}");
    }
    let nothing = get(&server, "offset=2&live=long-poll&timeout_ms=1");
    assert_eq!((nothing.status, nothing.body.len()), (204, 0));
}

#[test]
fn a_read_begins_between_two_messages_or_not_at_all() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[JSON], b"[11,{\"a\":2},\"\\n\"]");
    let stored = "11\n{\"a\":2}\n\"\\n\"\n";
    for offset in 0..=stored.len() {
        for live in ["", "&live=long-poll&timeout_ms=1", "&live=sse"] {
            let boundary = offset == 0 || stored.as_bytes()[offset - 1] == b'\n';
            let query = format!("offset={offset}{live}");
            if !boundary {
                assert_eq!(get(&server, &query).told(), (400, "NOT_JSON_BOUNDARY".to_owned()), "{query}");
            } else if !live.contains("sse") {
                assert!(matches!(get(&server, &query).status, 200 | 204), "{query}");
            }
        }
    }
}

#[test]
fn an_answer_ends_behind_a_message_and_one_message_is_sent_whole() {
    let server = Server::start(Fake::new());
    let long = format!("\"{}\"", "x".repeat(20));
    server.ask("PUT", PATH, &[JSON], format!("[1,22,{long},4]").as_bytes());
    for (offset, bytes_max, text, next) in [
        (0, 1, "[1]".to_owned(), 2),
        (0, 4, "[1]".to_owned(), 2),
        (0, 5, "[1,22]".to_owned(), 5),
        (2, 1, "[22]".to_owned(), 5),
        (5, 1, format!("[{long}]"), 28),
        (5, 24, format!("[{long}]"), 28),
        (5, 25, format!("[{long},4]"), 30),
    ] {
        let answer = get(&server, &format!("offset={offset}&max_bytes={bytes_max}"));
        assert_eq!((answer.text(), answer.next()), (text, next), "{offset} {bytes_max}");
        assert_eq!(answer.header("stream-up-to-date").is_some(), next == 30, "{offset} {bytes_max}");
    }
}

/// A client of another server stalled on a batch without a message (its issue 264).
#[test]
fn events_hold_complete_arrays_and_never_an_empty_one() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[JSON], b"[]");
    let mut events = Events::open(&server, &format!("{PATH}?live=sse&offset=-1"), &[]);
    assert_eq!(events.head.header("stream-sse-data-encoding"), None);
    assert_eq!(events.next().expect("an event").says(), (0, true, false));
    post(&server, "[1, {\"a\": \"line\\r\\nline\"}]");
    let (data, control) = events.pair();
    assert_eq!((data.as_str(), control.says()), ("[1,{\"a\":\"line\\r\\nline\"}]", (23, true, false)));
    assert_eq!(post(&server, "[]").status, 400);
    server.ask("POST", PATH, &[JSON, CLOSES], b"null");
    let (data, control) = events.pair();
    assert_eq!((data.as_str(), control.says()), ("[null]", (28, true, true)));
    assert_eq!(events.next(), None);
}

#[test]
fn a_long_poll_of_json_gives_an_array() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[JSON], b"");
    let answer = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| get(&server, "offset=now&live=long-poll&timeout_ms=9000"));
        std::thread::sleep(Duration::from_millis(50));
        post(&server, "{\"a\" : 1}");
        waiting.join().expect("a reader")
    });
    assert_eq!((answer.status, answer.text().as_str(), answer.next()), (200, "[{\"a\":1}]", 8));
    assert!(answer.header("stream-cursor").is_some());
}

#[test]
fn a_large_body_is_taken_apart_and_comes_back_in_several_answers() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[JSON], b"");
    let message = format!("{{\"text\":\"{}\"}}", "y".repeat(1_000_000));
    let body = format!("[{}]", [message.as_str(); 12].join(" ,\n "));
    assert_eq!(post(&server, &body).status, 204);
    let (mut count, mut offset) = (0, 0);
    while count < 12 {
        let answer = get(&server, &format!("offset={offset}"));
        let messages: Vec<serde_json::Value> = serde_json::from_slice(&answer.body).expect("a whole array");
        assert!(!messages.is_empty() && answer.body.len() <= 8 << 20);
        assert!(messages.iter().all(|message| message["text"].as_str().is_some_and(|text| text.len() == 1_000_000)));
        count += messages.len();
        offset = answer.next();
    }
}

/// A snapshot, or retention, up to the middle of a message would leave half of one at the front of what can be read.
#[test]
fn snapshots_and_retention_end_between_two_messages() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[JSON], b"[11,22,33]");
    let put =
        |part: &str, offset: u64| server.ask("PUT", &format!("{PATH}/{part}/{offset}"), &[JSON], b"the state").told();
    for (part, done) in [("snapshot", 204), ("retention", 204)] {
        for inside in [1, 2, 4, 5, 8] {
            assert_eq!(put(part, inside), (400, "NOT_JSON_BOUNDARY".to_owned()), "{part} {inside}");
        }
        assert_eq!(put(part, 6).0, done, "{part}");
    }
    assert_eq!(get(&server, "offset=-1").status, 410);
    assert_eq!(get(&server, "offset=6").text(), "[33]");
}
