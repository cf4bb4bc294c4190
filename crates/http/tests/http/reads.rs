//! HEAD, catch-up reads, long-polls, and what caches may keep of them.

use crate::fake::{Fake, Stage};
use crate::wire::{Server, request};
use highwater_base::{Incarnation, Offset};
use highwater_node::Unavailable;
use highwater_stream::Refusal;
use std::io::Write;
use std::time::{Duration, Instant};
use ursula_headers::head::{ServerIdentity, StreamHead};

const PATH: &str = "/v1/stream/a";
const TEXT: (&str, &str) = ("content-type", "text/plain");
const CACHEABLE: &str = "public, max-age=60, stale-while-revalidate=300";

fn get(server: &Server, query: &str, headers: &[(&str, &str)]) -> crate::wire::Answer {
    server.ask("GET", &format!("{PATH}?{query}"), headers, b"")
}

#[test]
fn every_head_names_the_server_whatever_else_it_says() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    for (path, headers, status) in [
        (PATH, &[][..], 200),
        ("/v1/stream/none", &[], 404),
        ("/v1/stream/a//b", &[], 400),
        ("/v1/stream", &[], 400),
        (PATH, &[("stream-incarnation", "x")], 400),
        (PATH, &[("stream-incarnation", "7")], 412),
        ("/v1/stream/a/snapshot", &[], 405),
        ("/v1/stream/a/snapshot/3", &[], 404),
    ] {
        let answer = server.ask("HEAD", path, headers, b"");
        assert_eq!(answer.status, status, "{path}");
        let identity = ServerIdentity::parse(answer.pairs()).expect(path).expect(path);
        assert_eq!((identity.protocol, identity.cluster_id.as_str()), (11, "fake-1"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
    }
    fake.fail(Stage::Head, Unavailable::NoLeader { group: 0 });
    let down = server.ask("HEAD", PATH, &[], b"");
    assert_eq!(down.status, 503);
    assert!(ServerIdentity::parse(down.pairs()).is_ok_and(|identity| identity.is_some()));
}

#[test]
fn head_tells_what_the_published_parser_reads() {
    let server = Server::start(Fake::new());
    let created = server.ask("PUT", PATH, &[TEXT, ("stream-closed", "true")], b"abc");
    let answer = server.ask("HEAD", PATH, &[], b"");
    let head = StreamHead::parse(answer.pairs()).expect("a head");
    assert_eq!((head.next_offset().get(), head.retained_offset().get(), head.closed()), (3, 0, true));
    assert_eq!(Some(head.incarnation().to_string().as_str()), created.header("stream-incarnation"));
    assert_eq!(head.max_request_bytes(), 33_554_432);
    assert_eq!(answer.header("content-type"), Some("text/plain"));
}

#[test]
fn a_read_says_where_it_ended_and_whether_that_is_the_end() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"0123456789");
    for (query, body, next, up_to_date) in [
        ("", "0123456789", 10, true),
        ("offset=-1", "0123456789", 10, true),
        ("offset=4", "456789", 10, true),
        ("offset=00000000000000000004&max_bytes=3", "456", 7, false),
        ("offset=10", "", 10, true),
        ("offset=now", "", 10, true),
        ("offset=0&max_bytes=10&unknown=1", "0123456789", 10, true),
        ("offset=4&consistency=leader", "456789", 10, true),
    ] {
        let answer = get(&server, query, &[]);
        assert_eq!((answer.status, answer.text().as_str(), answer.next()), (200, body, next), "{query}");
        assert_eq!(answer.header("stream-up-to-date"), up_to_date.then_some("true"), "{query}");
        assert_eq!(answer.header("content-type"), Some("text/plain"), "{query}");
        assert_eq!(answer.header("stream-closed"), None, "{query}");
        assert!(answer.header("stream-incarnation").is_some(), "{query}");
    }
    server.ask("POST", PATH, &[("stream-closed", "true")], b"");
    assert_eq!(get(&server, "offset=0&max_bytes=3", &[]).header("stream-closed"), None, "not at its end");
    assert_eq!(get(&server, "offset=0", &[]).header("stream-closed"), Some("true"));
    assert_eq!(get(&server, "offset=now", &[]).header("stream-closed"), Some("true"));
}

#[test]
fn gone_and_out_of_range_come_before_the_token_and_name_it() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    assert_eq!(get(&server, "offset=0", &[]).told(), (404, "STREAM_NOT_FOUND".to_owned()));
    let created = server.ask("PUT", PATH, &[TEXT], b"abc");
    let token = created.header("stream-incarnation").expect("a token");
    let beyond = get(&server, "offset=4", &[("stream-incarnation", "7")]);
    assert_eq!((beyond.told(), beyond.next()), ((416, "OFFSET_OUT_OF_RANGE".to_owned()), 3));
    assert_eq!(beyond.header("stream-incarnation"), Some(token));
    let other = get(&server, "offset=1", &[("stream-incarnation", "7")]);
    assert_eq!(other.told(), (412, "INCARNATION_MISMATCH".to_owned()));
    assert_eq!(other.header("stream-incarnation"), Some(token));
    let incarnation = Incarnation::parse(token).expect("a token");
    fake.refuse_next(Refusal::Gone { retained: Offset(2), incarnation });
    let gone = get(&server, "offset=0", &[]);
    assert_eq!((gone.told(), gone.next()), ((410, "STREAM_GONE".to_owned()), 2));
    assert_eq!(gone.header("stream-incarnation"), Some(token));
}

#[test]
fn caches_keep_bytes_and_nothing_that_soon_is_wrong() {
    let server = Server::start(Fake::new());
    let created = server.ask("PUT", PATH, &[TEXT], b"abc");
    let token = created.header("stream-incarnation").expect("a token").to_owned();
    for (query, headers, cache) in [
        ("offset=0", &[][..], CACHEABLE),
        ("offset=0&max_bytes=1", &[], CACHEABLE),
        ("offset=0&live=long-poll", &[], CACHEABLE),
        ("offset=3", &[], "no-store"),
        ("offset=now", &[], "no-store"),
        ("offset=0&consistency=leader", &[], "no-store"),
        ("offset=0", &[("stream-incarnation", token.as_str())], "no-store"),
        ("offset=9", &[], "no-store"),
        ("offset=3&live=long-poll&timeout_ms=1", &[], "no-store"),
    ] {
        let answer = get(&server, query, headers);
        assert_eq!(answer.header("cache-control"), Some(cache), "{query} {headers:?}");
        let vary = (cache == CACHEABLE).then_some("stream-incarnation, origin");
        assert_eq!(
            answer.header("vary"),
            vary,
            "a cache must not skip a precondition, nor show one page what another was told"
        );
    }
    assert_eq!(get(&server, "offset=now", &[]).header("etag"), None);
}

/// An entity tag that was blind to closure kept readers of another server waiting for ever (its issues 220 and 227).
#[test]
fn an_entity_tag_changes_with_bytes_closure_and_token() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    let tag = |query: &str| get(&server, query, &[]).header("etag").expect("a tag").to_owned();
    let open = tag("offset=0");
    let same = get(&server, "offset=0", &[("if-none-match", &open)]);
    assert_eq!((same.status, same.body.len(), same.next()), (304, 0, 3));
    assert_eq!(same.header("etag"), Some(open.as_str()));
    assert_eq!(same.header("stream-up-to-date"), Some("true"));
    assert_eq!(get(&server, "offset=0", &[("if-none-match", "\"other\"")]).status, 200);
    let part = tag("offset=0&max_bytes=2");
    assert_ne!(part, open);

    server.ask("POST", PATH, &[("stream-closed", "true")], b"");
    let closed = get(&server, "offset=0", &[("if-none-match", &open)]);
    assert_eq!((closed.status, closed.header("stream-closed")), (200, Some("true")));
    assert_eq!(
        get(&server, "offset=0&max_bytes=2", &[("if-none-match", &part)]).status,
        304,
        "these bytes did not change"
    );

    let closed = tag("offset=0");
    server.ask("DELETE", PATH, &[], b"");
    server.ask("PUT", PATH, &[TEXT, ("stream-closed", "true")], b"xyz");
    assert_eq!(get(&server, "offset=0", &[("if-none-match", &closed)]).text(), "xyz");
}

/// A page that ended at the tail says so; the same page after more was appended does not, and must not be taken from
/// a cache as if it did.
#[test]
fn an_entity_tag_changes_when_the_end_moves_away() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    let at_end = get(&server, "offset=0&max_bytes=3", &[]);
    assert_eq!(at_end.header("stream-up-to-date"), Some("true"));
    server.ask("POST", PATH, &[TEXT], b"def");
    let tag = at_end.header("etag").expect("a tag");
    let later = get(&server, "offset=0&max_bytes=3", &[("if-none-match", tag)]);
    assert_eq!((later.status, later.text().as_str(), later.header("stream-up-to-date")), (200, "abc", None));
}

#[test]
fn a_long_poll_gives_what_is_there_waits_for_what_comes_and_ends_in_time() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    let there = get(&server, "offset=1&live=long-poll", &[]);
    assert_eq!((there.status, there.text().as_str(), there.next()), (200, "bc", 3));
    assert!(there.header("stream-cursor").is_some_and(|cursor| cursor.bytes().all(|b| b.is_ascii_digit())));

    let start = Instant::now();
    let nothing = get(&server, "offset=3&live=long-poll&timeout_ms=60", &[]);
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert_eq!((nothing.status, nothing.next(), nothing.header("stream-up-to-date")), (204, 3, Some("true")));
    assert!(nothing.header("stream-cursor").is_some());

    for (offset, wants) in [("3", "def"), ("now", "ghi")] {
        let answer = std::thread::scope(|scope| {
            let query = format!("offset={offset}&live=long-poll&timeout_ms=9000");
            let server = &server;
            let waiting = scope.spawn(move || get(server, &query, &[]));
            std::thread::sleep(Duration::from_millis(100));
            server.ask("POST", PATH, &[TEXT], wants.as_bytes());
            waiting.join().expect("a reader")
        });
        assert_eq!((answer.status, answer.text().as_str()), (200, wants));
        assert_eq!(answer.header("etag").is_some(), offset != "now");
    }
}

#[test]
fn a_long_poll_at_a_closed_end_does_not_wait() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| get(&server, "offset=3&live=long-poll&timeout_ms=9000", &[]));
        std::thread::sleep(Duration::from_millis(100));
        server.ask("POST", PATH, &[("stream-closed", "true")], b"");
        waiting.join().expect("a reader")
    });
    for answer in [waited, get(&server, "offset=now&live=long-poll&timeout_ms=9000", &[])] {
        assert_eq!((answer.status, answer.next()), (204, 3));
        assert_eq!((answer.header("stream-closed"), answer.header("stream-up-to-date")), (Some("true"), Some("true")));
        assert_eq!(answer.header("stream-cursor"), None, "nobody asks again");
    }
    let data = get(&server, "offset=0&live=long-poll", &[]);
    assert_eq!((data.status, data.header("stream-closed")), (200, Some("true")));
}

#[test]
fn a_long_poll_notices_that_its_stream_is_gone_or_another() {
    let server = Server::start(Fake::new());
    for (again, told) in [(false, (404, "STREAM_NOT_FOUND")), (true, (412, "INCARNATION_MISMATCH"))] {
        server.ask("PUT", PATH, &[TEXT], b"abc");
        let answer = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| get(&server, "offset=3&live=long-poll&timeout_ms=9000", &[]));
            std::thread::sleep(Duration::from_millis(100));
            if again {
                // One step for the waiting reader: it must not see the moment between.
                server.ask("DELETE", PATH, &[], b"");
                server.ask("PUT", PATH, &[TEXT], b"abc");
            } else {
                server.ask("DELETE", PATH, &[], b"");
            }
            waiting.join().expect("a reader")
        });
        let either = again && answer.told() == (404, "STREAM_NOT_FOUND".to_owned());
        assert!(either || answer.told() == (told.0, told.1.to_owned()), "{answer:?}");
    }
}

/// A reader who went away must not hold its place until the wait is over.
#[test]
fn a_long_poll_ends_when_its_reader_goes_away() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut reader = server.connect();
    reader
        .write_all(&request("GET", &format!("{PATH}?offset=0&live=long-poll&timeout_ms=60000"), &[], b""))
        .expect("taken");
    let until = |count| {
        let start = Instant::now();
        while fake.waiting() != count {
            assert!(start.elapsed() < Duration::from_secs(5), "{} readers wait", fake.waiting());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(1);
    drop(reader);
    until(0);
}

#[test]
fn a_cursor_that_comes_back_is_answered_with_a_greater_one() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    let cursor = |query: &str| -> u64 {
        get(&server, query, &[]).header("stream-cursor").and_then(|text| text.parse().ok()).expect("a cursor")
    };
    let first = cursor("offset=0&live=long-poll");
    assert!(cursor(&format!("offset=0&live=long-poll&cursor={first}")) > first);
    assert!(cursor(&format!("offset=3&live=long-poll&timeout_ms=1&cursor={}", first + 9)) > first + 9);
}

#[test]
fn too_many_live_readers_are_told_to_come_back() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    fake.fail(Stage::Read, Unavailable::LiveReadsExhausted);
    let answer = get(&server, "offset=now&live=long-poll", &[]);
    assert_eq!(answer.told(), (429, "LIVE_READS_EXHAUSTED".to_owned()));
    assert_eq!(answer.header("retry-after"), Some("1"));
}
