//! Reads that go on as a stream of events.

use crate::events::Events;
use crate::fake::{Fake, Stage};
use crate::wire::Server;
use highwater_node::Unavailable;
use std::time::{Duration, Instant};

const PATH: &str = "/v1/stream/a";
const TEXT: (&str, &str) = ("content-type", "text/plain");
const CLOSES: (&str, &str) = ("stream-closed", "true");

fn open(server: &Server, query: &str) -> Events {
    Events::open(server, &format!("{PATH}?live=sse&{query}"), &[])
}

/// Waits until so many readers wait at the tail.
fn until(fake: &Fake, count: usize) {
    let start = Instant::now();
    while fake.waiting() != count {
        assert!(start.elapsed() < Duration::from_secs(5), "{} readers wait", fake.waiting());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_head_of_an_event_stream_says_what_it_is() {
    let server = Server::start(Fake::new());
    let token = server.ask("PUT", PATH, &[TEXT], b"abc").header("stream-incarnation").map(str::to_owned);
    let head = open(&server, "offset=0").head;
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert!(head.header("cache-control").is_some_and(|value| value.contains("no-cache")));
    assert_eq!(head.header("content-length"), None);
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    assert_eq!(head.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(head.header("access-control-allow-origin"), Some("*"));
    assert_eq!(head.header("stream-incarnation"), token.as_deref());
    assert_eq!(head.header("stream-sse-data-encoding"), None);
    assert_eq!(head.header("etag"), None);
}

#[test]
fn what_a_read_is_refused_for_comes_before_any_event() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    let ask = |query: &str| server.ask("GET", &format!("{PATH}?live=sse{query}"), &[], b"");
    assert_eq!(ask("&offset=0").told(), (404, "STREAM_NOT_FOUND".to_owned()));
    server.ask("PUT", PATH, &[TEXT], b"abc");
    assert_eq!(ask("").told(), (400, "INVALID_QUERY".to_owned()));
    assert_eq!(ask("&offset=x").told(), (400, "INVALID_OFFSET".to_owned()));
    assert_eq!(ask("&offset=9").told(), (416, "OFFSET_OUT_OF_RANGE".to_owned()));
    fake.fail(Stage::Read, Unavailable::LiveReadsExhausted);
    assert_eq!(ask("&offset=0").told(), (429, "LIVE_READS_EXHAUSTED".to_owned()));
}

#[test]
fn what_is_there_comes_at_once_and_what_comes_comes_when_it_does() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"line1");
    let mut events = open(&server, "offset=-1");
    let (data, control) = events.pair();
    assert_eq!((data.as_str(), control.says()), ("line1", (5, true, false)));
    let cursor = |control: &crate::events::Event| control.control()["streamCursor"].as_str().map(str::to_owned);
    assert!(cursor(&control).is_some_and(|cursor| cursor.bytes().all(|byte| byte.is_ascii_digit())));
    for (body, next) in [("two\n", 9), (" three", 15)] {
        until(&fake, 1);
        server.ask("POST", PATH, &[TEXT], body.as_bytes());
        let (data, control) = events.pair();
        assert_eq!((data.as_str(), control.says()), (body, (next, true, false)));
    }
    until(&fake, 1);
    server.ask("POST", PATH, &[CLOSES], b"");
    let last = events.rest();
    assert_eq!(last.iter().map(crate::events::Event::says).collect::<Vec<_>>(), [(15, true, true)]);
    assert_eq!(cursor(&last[0]), None, "nobody comes again");
}

#[test]
fn a_stream_without_bytes_is_told_once() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    for query in ["offset=-1", "offset=0", "offset=now"] {
        let mut events = open(&server, query);
        assert_eq!(events.next().expect("an event").says(), (0, true, false), "{query}");
        until(&fake, 1);
        drop(events);
        until(&fake, 0);
    }
    server.ask("POST", PATH, &[TEXT], b"abc");
    assert_eq!(open(&server, "offset=now").next().expect("an event").says(), (3, true, false));
    server.ask("POST", PATH, &[CLOSES], b"");
    for query in ["offset=now", "offset=3"] {
        let says: Vec<_> = open(&server, query).rest().iter().map(crate::events::Event::says).collect();
        assert_eq!(says, [(3, true, true)], "{query}");
    }
}

#[test]
fn a_connection_goes_on_with_another_request_behind_the_end_of_events() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT, CLOSES], b"abc");
    let mut events = open(&server, "offset=0");
    assert_eq!(events.rest().len(), 2);
    std::io::Write::write_all(&mut events.stream, &crate::wire::request("HEAD", PATH, &[], b"")).expect("taken");
    assert_eq!(crate::wire::Answer::read(&mut events.stream, "HEAD").status, 200);
}

/// Closing a stream cost its readers the last data on another server (its issue 376), whenever the close came with it.
#[test]
fn the_last_data_comes_before_the_end_whenever_the_close_comes() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    for delay_ms in [0, 0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
        server.ask("PUT", PATH, &[TEXT], b"first");
        let mut events = open(&server, "offset=-1");
        std::thread::sleep(Duration::from_millis(delay_ms));
        server.ask("POST", PATH, &[TEXT, CLOSES], b"last");
        let all = events.rest();
        let data: String = all.iter().filter(|event| event.kind == "data").map(|event| event.data.as_str()).collect();
        assert_eq!(data, "firstlast", "after {delay_ms} ms");
        assert_eq!(all.last().map(crate::events::Event::says), Some((9, true, true)));
        let ends = all.iter().filter(|event| event.kind == "control" && event.says().2).count();
        assert_eq!(ends, 1);
        server.ask("DELETE", PATH, &[], b"");
    }
}

#[test]
fn other_bytes_than_text_come_as_base64_and_control_events_do_not() {
    let server = Server::start(Fake::new());
    for kind in ["application/octet-stream", "image/png", "application/x-protobuf"] {
        server.ask("PUT", PATH, &[("content-type", kind), CLOSES], &[0, 1, 0xff, 0xfe]);
        let mut events = open(&server, "offset=0");
        assert_eq!(events.head.header("stream-sse-data-encoding"), Some("base64"), "{kind}");
        let (data, control) = events.pair();
        assert_eq!((data.as_str(), control.says()), ("AAH//g==", (4, true, true)));
        server.ask("DELETE", PATH, &[], b"");
    }
}

/// Lines of a payload must never become fields or events of their own.
#[test]
fn a_payload_that_looks_like_events_stays_a_payload() {
    let server = Server::start(Fake::new());
    let payload = "a\r\n\r\nevent: control\r\ndata: {\"injected\":true}\r\rid: 7\n\nretry: 1\n:";
    server.ask("PUT", PATH, &[TEXT, CLOSES], payload.as_bytes());
    let events = open(&server, "offset=0").rest();
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0].data, payload.replace("\r\n", "\n").replace('\r', "\n"));
}

#[test]
fn a_long_stream_comes_in_pieces_each_with_its_offset() {
    let server = Server::start(Fake::new());
    let body: Vec<u8> = (0..3_000_000u32).map(|at| b'a' + (at % 23) as u8).collect();
    server.ask("PUT", PATH, &[TEXT, CLOSES], &body);
    let mut events = open(&server, "offset=7");
    let (mut read, mut next) = (String::new(), 0);
    while next < 3_000_000 {
        let (data, control) = events.pair();
        read.push_str(&data);
        let (offset, up_to_date, closed) = control.says();
        assert_eq!(offset as usize, 7 + read.len());
        assert_eq!((up_to_date, closed), (offset == 3_000_000, offset == 3_000_000), "only the last says so");
        next = offset;
    }
    assert_eq!(read.as_bytes(), &body[7..]);
    assert_eq!(events.next(), None);
}

/// A piece that ended inside a character made two broken ones; whoever comes again in between must not lose it either.
#[test]
fn a_character_cut_by_an_append_is_shown_when_it_is_whole() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut events = open(&server, "offset=0");
    assert_eq!(events.next().expect("an event").says(), (0, true, false));
    let euro = "\u{20ac}".as_bytes();
    server.ask("POST", PATH, &[TEXT], &[b"a", &euro[..1]].concat());
    let (data, control) = events.pair();
    assert_eq!((data.as_str(), control.says()), ("a", (1, true, false)), "the offset is in front of the character");
    until(&fake, 1);
    server.ask("POST", PATH, &[TEXT], &euro[1..2]);
    until(&fake, 1);
    server.ask("POST", PATH, &[TEXT], &[&euro[2..], b"b"].concat());
    let (data, control) = events.pair();
    assert_eq!((data.as_str(), control.says()), ("\u{20ac}b", (5, true, false)));
    let (data, _) = open(&server, "offset=1").pair();
    assert_eq!(data, "\u{20ac}b", "resumed");
}

#[test]
fn a_cursor_that_comes_back_in_events_is_answered_with_a_greater_one() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    let cursor = |query: &str| -> u64 {
        let control = open(&server, query).pair().1.control();
        control["streamCursor"].as_str().and_then(|text| text.parse().ok()).expect("a cursor")
    };
    let first = cursor("offset=0");
    assert!(cursor(&format!("offset=0&cursor={first}")) > first);
    assert!(cursor(&format!("offset=0&cursor={}", first + 9)) > first + 9);
}

#[test]
fn a_stream_that_goes_or_becomes_another_ends_its_events() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    for again in [false, true] {
        server.ask("PUT", PATH, &[TEXT], b"abc");
        let mut events = open(&server, "offset=0");
        events.pair();
        until(&fake, 1);
        server.ask("DELETE", PATH, &[], b"");
        if again {
            server.ask("PUT", PATH, &[TEXT], b"other bytes");
        }
        assert_eq!(events.rest(), [], "no event of another stream");
        until(&fake, 0);
    }
}

/// A reader that takes nothing costs a writer nothing, and holds one piece.
#[test]
fn a_slow_reader_slows_nobody_and_gets_everything_when_it_reads() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut slow = open(&server, "offset=0");
    let mut quick = open(&server, "offset=0");
    quick.next();
    let piece = vec![b'x'; 512 << 10];
    for count in 1..=40u64 {
        assert_eq!(server.ask("POST", PATH, &[TEXT], &piece).next(), count * (512 << 10));
        let mut next = 0;
        while next < count * (512 << 10) {
            next = quick.pair().1.says().0;
        }
    }
    assert_eq!(fake.waiting(), 1, "the slow one does not wait: it has what it did not take");
    server.ask("POST", PATH, &[CLOSES], b"");
    let bytes: usize = slow.rest().iter().filter(|event| event.kind == "data").map(|event| event.data.len()).sum();
    assert_eq!(bytes, 20 << 20);
}

/// A read, an encoding and a turn of the node for each of a thousand readers was what an event cost.
#[test]
fn readers_at_the_end_of_a_stream_share_one_read_and_its_events() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut readers: Vec<Events> = (0..20).map(|_| open(&server, "offset=0")).collect();
    for reader in &mut readers {
        assert_eq!(reader.next().expect("an event").says(), (0, true, false));
    }
    until(&fake, 1);
    fake.seen();
    for count in 1..=5u64 {
        server.ask("POST", PATH, &[TEXT], b"news\r\n");
        for reader in &mut readers {
            let (data, control) = reader.pair();
            assert_eq!((data.as_str(), control.says()), ("news\n", (count * 6, true, false)));
        }
        until(&fake, 1);
    }
    let reads = fake.seen().iter().filter(|stage| **stage == Stage::Read).count();
    assert!(reads <= 10, "{reads} reads for five events: one that finds each, and one that waits behind it");
    drop(readers.split_off(1));
    server.ask("POST", PATH, &[TEXT, CLOSES], b"last");
    let last: Vec<_> = readers[0].rest().iter().map(|event| event.data.clone()).collect();
    assert_eq!((last.len(), last[0].as_str()), (2, "last"));
    until(&fake, 0);
}

#[test]
fn the_last_reader_that_leaves_ends_the_wait_and_the_next_one_begins_another() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    for round in 0..3u64 {
        let mut readers: Vec<Events> = (0..3).map(|_| open(&server, "offset=now")).collect();
        for reader in &mut readers {
            reader.next().expect("an event");
        }
        until(&fake, 1);
        server.ask("POST", PATH, &[TEXT], b"x");
        for mut reader in readers.drain(..) {
            assert_eq!(reader.pair().1.says(), (4 + round, true, false));
        }
        until(&fake, 0);
    }
}

#[test]
fn a_reader_whose_cursor_is_of_the_future_shares_the_data_and_keeps_its_cursor() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let cursor = |event: &crate::events::Event| -> u64 {
        event.control()["streamCursor"].as_str().and_then(|text| text.parse().ok()).expect("a cursor")
    };
    let mut present = open(&server, "offset=0");
    let now = cursor(&present.next().expect("an event"));
    let mut future = open(&server, &format!("offset=0&cursor={}", now + 1_000));
    assert!(cursor(&future.next().expect("an event")) > now + 1_000);
    until(&fake, 1);
    server.ask("POST", PATH, &[TEXT], b"abc");
    let (data, control) = present.pair();
    assert_eq!((data.as_str(), control.says(), cursor(&control) < now + 1_000), ("abc", (3, true, false), true));
    let (data, control) = future.pair();
    assert_eq!((data.as_str(), control.says(), cursor(&control) > now + 1_000), ("abc", (3, true, false), true));
}

#[test]
fn readers_in_different_states_at_the_same_place_each_get_what_is_theirs() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"line\r");
    // One has seen the carriage return, the other begins behind it.
    let mut saw = open(&server, "offset=0");
    assert_eq!(saw.pair().0, "line\n");
    let mut begins = open(&server, "offset=5");
    begins.next().expect("an event");
    until(&fake, 2);
    server.ask("POST", PATH, &[TEXT], b"\nmore");
    assert_eq!(saw.pair().0, "more", "the line feed belongs to the line that it ended");
    assert_eq!(begins.pair().0, "\nmore");
    // From here on they are alike.
    until(&fake, 1);
    server.ask("POST", PATH, &[TEXT], b"!");
    assert_eq!((saw.pair().0, begins.pair().0), ("!".to_owned(), "!".to_owned()));
}

#[test]
fn a_reader_that_wants_small_pieces_gets_them_when_others_do_not() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut large = open(&server, "offset=0");
    let mut small = open(&server, "offset=0&max_bytes=2");
    large.next().expect("an event");
    small.next().expect("an event");
    until(&fake, 2);
    server.ask("POST", PATH, &[TEXT], b"abcde");
    assert_eq!(large.pair().0, "abcde");
    assert_eq!([small.pair(), small.pair(), small.pair()].map(|(data, _)| data), ["ab", "cd", "e"]);
}

#[test]
fn a_read_that_fails_ends_the_events_of_all_and_they_may_come_again() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut readers: Vec<Events> = (0..3).map(|_| open(&server, "offset=0")).collect();
    readers.iter_mut().for_each(|reader| drop(reader.next()));
    until(&fake, 1);
    fake.fail(Stage::Read, Unavailable::NoLeader { group: 0 });
    server.ask("POST", PATH, &[TEXT], b"abc");
    for reader in &mut readers {
        assert_eq!(reader.rest(), []);
    }
    fake.heal();
    let mut again = open(&server, "offset=0");
    assert_eq!(again.pair().0, "abc");
    until(&fake, 1);
    server.ask("POST", PATH, &[TEXT], b"d");
    assert_eq!(again.pair().0, "d");
}

#[test]
fn more_readers_than_may_be_are_told() {
    let options = highwater_http::HttpOptions { event_readers_max: 2, ..Default::default() };
    let server = Server::with(Fake::new(), options);
    server.ask("PUT", PATH, &[TEXT], b"abc");
    let mut readers = [open(&server, "offset=0"), open(&server, "offset=0")];
    readers.iter_mut().for_each(|reader| drop(reader.pair()));
    let refused = server.ask("GET", &format!("{PATH}?live=sse&offset=0"), &[], b"");
    assert_eq!(refused.told(), (429, "LIVE_READS_EXHAUSTED".to_owned()));
    let metrics = server.ask("GET", "/metrics", &[], b"").text();
    assert!(metrics.contains("highwater_event_readers 2"), "{metrics}");
    drop(readers);
    let start = Instant::now();
    while server.ask("GET", "/metrics", &[], b"").text().contains("highwater_event_readers 2") {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(open(&server, "offset=0").pair().0, "abc");
}
