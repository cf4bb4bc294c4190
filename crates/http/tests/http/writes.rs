//! What writes are answered, and what they leave behind.

use crate::fake::{Fake, digest};
use crate::wire::{Answer, Server};
use std::collections::BTreeSet;

const PATH: &str = "/v1/stream/a/b/c";
const TEXT: (&str, &str) = ("content-type", "text/plain");

#[test]
fn a_stream_is_created_once_and_found_again() {
    let server = Server::start(Fake::new());
    let new = server.ask("PUT", PATH, &[("content-type", "TEXT/Plain")], b"first");
    assert_eq!(new.status, 201);
    assert_eq!(new.header("content-type"), Some("text/plain"));
    assert_eq!(new.header("location"), Some("http://localhost:4437/v1/stream/a/b/c"));
    assert_eq!(new.next(), 5);
    let again = server.ask("PUT", PATH, &[TEXT], b"ignored");
    assert_eq!((again.status, again.next()), (200, 5));
    assert_eq!(again.header("stream-incarnation"), new.header("stream-incarnation"));
    for other in [("content-type", "text/html"), ("stream-closed", "true")] {
        let conflict = server.ask("PUT", PATH, &[TEXT, other][usize::from(other.0 == "content-type")..], b"");
        assert_eq!(conflict.told(), (409, "STREAM_ALREADY_EXISTS_CONFLICT".to_owned()), "{other:?}");
    }
    let octets = server.ask("PUT", "/v1/stream/o", &[], b"");
    assert_eq!(octets.header("content-type"), Some("application/octet-stream"));
    let closed = server.ask("PUT", "/v1/stream/closed", &[TEXT, ("stream-closed", "TRUE")], b"all");
    assert_eq!((closed.status, closed.header("stream-closed")), (201, Some("true")));
}

#[test]
fn a_stream_deleted_and_created_again_has_another_token() {
    let server = Server::start(Fake::new());
    let first = server.ask("PUT", PATH, &[TEXT], b"");
    let token = first.header("stream-incarnation").expect("a token");
    assert_eq!(server.ask("DELETE", PATH, &[("stream-incarnation", "7")], b"").status, 412);
    assert_eq!(server.ask("DELETE", PATH, &[("stream-incarnation", token)], b"").status, 204);
    assert_eq!(server.ask("DELETE", PATH, &[], b"").told(), (404, "STREAM_NOT_FOUND".to_owned()));
    let gone = server.ask("PUT", PATH, &[TEXT, ("stream-incarnation", token)], b"");
    assert_eq!(gone.told(), (412, "INCARNATION_MISMATCH".to_owned()));
    assert_eq!(gone.header("stream-incarnation"), None, "there is no stream");
    let second = server.ask("PUT", PATH, &[TEXT], b"");
    assert_eq!(second.status, 201);
    assert_ne!(second.header("stream-incarnation"), Some(token));
}

/// A setting that this server does not know yet must not be dropped in silence: the stream would begin empty instead of
/// with what its writer meant.
#[test]
fn settings_that_are_not_offered_create_nothing() {
    let server = Server::start(Fake::new());
    for setting in
        [("stream-forked-from", "/v1/stream/x"), ("stream-fork-offset", "0"), ("stream-fork-sub-offset", "0")]
    {
        assert_eq!(server.ask("PUT", PATH, &[setting], b"").told(), (400, "UNSUPPORTED".to_owned()), "{setting:?}");
    }
    let producer = server.ask("PUT", PATH, &[TEXT, ("producer-id", "w")], b"");
    assert_eq!(producer.told(), (400, "INVALID_PRODUCER".to_owned()));
    assert_eq!(server.ask("HEAD", PATH, &[], b"").status, 404);
}

#[test]
fn parts_of_a_stream_answer_the_methods_that_they_have_and_no_stream_is_made_there() {
    let server = Server::start(Fake::new());
    server.ask("PUT", "/v1/stream/a", &[TEXT], b"x");
    for (method, tail, told, allow) in [
        ("GET", "snapshot", (405, "UNSUPPORTED"), ""),
        ("POST", "snapshot", (405, "UNSUPPORTED"), ""),
        ("DELETE", "snapshot", (405, "UNSUPPORTED"), ""),
        ("PUT", "snapshot", (400, "INVALID_STREAM_ID"), "-"),
        ("PUT", "snapshot/parts", (400, "INVALID_STREAM_ID"), "-"),
        ("PUT", "snapshot/1/parts", (400, "INVALID_STREAM_ID"), "-"),
        ("PUT", "incarnation/7/x", (400, "INVALID_STREAM_ID"), "-"),
        ("POST", "snapshot/1", (405, "METHOD_NOT_ALLOWED"), "PUT, GET, HEAD"),
        ("DELETE", "snapshot/1", (405, "METHOD_NOT_ALLOWED"), "PUT, GET, HEAD"),
        ("DELETE", "snapshot/1/parts", (405, "METHOD_NOT_ALLOWED"), "POST"),
        ("GET", "snapshot/parts", (405, "METHOD_NOT_ALLOWED"), "DELETE"),
        ("DELETE", "retention/1", (405, "METHOD_NOT_ALLOWED"), "PUT"),
        ("DELETE", "incarnation/7/chunk/1", (405, "METHOD_NOT_ALLOWED"), "GET, HEAD"),
    ] {
        let answer = server.ask(method, &format!("/v1/stream/a/{tail}"), &[TEXT], b"");
        assert_eq!(answer.told(), (told.0, told.1.to_owned()), "{method} {tail}");
        assert_eq!(
            answer.headers.iter().find(|(name, _)| name == "allow").map_or("-", |(_, v)| v.trim()),
            allow,
            "{tail}"
        );
    }
}

fn claim(server: &Server, epoch: &str, seq: &str, more: &[(&str, &str)], body: &[u8]) -> Answer {
    let key = [TEXT, ("producer-id", "w"), ("producer-epoch", epoch), ("producer-seq", seq)];
    server.ask("POST", PATH, &[&key[..], more].concat(), body)
}

#[test]
fn a_receipt_says_where_the_bytes_lie_however_often_it_is_asked() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"0123");
    let first = claim(&server, "01", "0", &[], b"abc");
    assert_eq!(first.status, 200);
    let expected = [
        ("producer-epoch", "1"),
        ("producer-seq", "0"),
        ("stream-offset", "00000000000000000004"),
        ("stream-next-offset", "00000000000000000007"),
    ];
    for (name, value) in expected {
        assert_eq!(first.header(name), Some(value));
    }
    assert_eq!(first.header("highwater-durability"), Some("synced=1, of=1"));
    let repeat = claim(&server, "1", "0", &[], b"abc");
    assert_eq!(repeat.status, 204);
    assert_eq!(repeat.header("highwater-durability"), Some("synced=1, of=1"), "what holds now");
    for (name, value) in expected {
        assert_eq!(repeat.header(name), Some(value));
    }
    let takeover = claim(&server, "2", "0", &[], b"d");
    assert_eq!(takeover.header("producer-closed-epoch"), Some("1"));
    assert_eq!(takeover.header("producer-closed-seq"), Some("0"));
    let fenced = claim(&server, "1", "1", &[], b"late");
    assert_eq!(fenced.told(), (403, "PRODUCER_EPOCH_CLOSED".to_owned()));
    assert_eq!(fenced.header("producer-outcome"), Some("epoch-closed;by=claim"));
    assert_eq!(fenced.header("producer-epoch"), Some("2"));
    assert_eq!(fenced.header("highwater-durability"), None);
}

#[test]
fn a_producer_that_closes_alone_is_answered_204_each_time() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"");
    claim(&server, "1", "0", &[], b"abc");
    for _ in 0..2 {
        let close = server.ask(
            "POST",
            PATH,
            &[("producer-id", "w"), ("producer-epoch", "1"), ("producer-seq", "1"), ("stream-closed", "true")],
            b"",
        );
        assert_eq!((close.status, close.header("stream-closed"), close.next()), (204, Some("true"), 3));
        assert_eq!(close.header("producer-seq"), Some("1"));
    }
    let late = claim(&server, "1", "2", &[], b"x");
    assert_eq!(late.told(), (409, "STREAM_CLOSED".to_owned()));
    assert_eq!((late.header("stream-closed"), late.next()), (Some("true"), 3));
    let again = server.ask("POST", PATH, &[("stream-closed", "true")], b"");
    assert_eq!((again.status, again.header("stream-closed")), (204, Some("true")), "a close alone on a closed stream");
}

#[test]
fn a_digest_is_checked_for_small_and_for_large_bodies() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"");
    for (seq, length) in [("0", 10), ("1", 1 << 20)] {
        let body = vec![b'q'; length];
        let wrong = claim(&server, "1", seq, &[("producer-digest", &digest(b"other"))], &body);
        assert_eq!(wrong.told(), (400, "PRODUCER_DIGEST_MISMATCH".to_owned()));
        let right = claim(&server, "1", seq, &[("producer-digest", &digest(&body))], &body);
        assert_eq!(right.status, 200);
    }
}

/// Concurrent appends to one stream once collapsed to one offset in another server (its issue 340).
#[test]
fn fifty_appends_at_once_get_fifty_offsets() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"");
    let ends: BTreeSet<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..50)
            .map(|n| {
                let server = &server;
                scope.spawn(move || {
                    let answer = server.ask("POST", PATH, &[TEXT], &vec![b'a' + n % 26; usize::from(n) + 1]);
                    assert_eq!(answer.status, 204);
                    answer.next()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    assert_eq!(ends.len(), 50, "every append ends elsewhere");
    assert_eq!(ends.last(), Some(&(1..=50).sum()));
    assert_eq!(server.ask("GET", PATH, &[], b"").body.len(), (1..=50).sum::<usize>());
}
