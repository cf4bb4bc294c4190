//! The real node behind the real listener: what it stores is there again, and it answers as the fake one does.

use crate::events::Events;
use crate::inventory::{Driver, check};
use crate::wire::Server;
use highwater_client::{Append, Client, From, Key, Options, Read, Stream, StreamUrl, Written};
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_node::{Config, Node};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ursula_headers::write_outcome::inventory::row;

const PATH: &str = "/v1/stream/app/db";
const TEXT: (&str, &str) = ("content-type", "text/plain");

/// Opens a node with a log small enough for a test, and waits until it serves.
pub fn open(data: &Path) -> (Node, Server) {
    open_with(Config { groups: 2, wal_segment_bytes: 8 << 20, wal_bytes_max: 64 << 20, ..Config::new(data) })
}

fn open_with(config: Config) -> (Node, Server) {
    let node = Node::open(config, Arc::new(OsDisk::new()), Arc::new(SystemClock::new()), Box::new(SystemRandom))
        .expect("the node opens");
    let server = Server::start(node.handle());
    let start = Instant::now();
    while server.ask("GET", "/readyz", &[], b"").status != 200 {
        assert!(start.elapsed() < Duration::from_secs(10), "the node never served");
        std::thread::sleep(Duration::from_millis(20));
    }
    (node, server)
}

#[test]
fn a_real_node_answers_the_inventory() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    let mut driven = 0;
    for id in Driver::rows() {
        let answer = Driver { server: &server }.drive(id).expect(id);
        check(row(id).expect("a published row"), &answer);
        server.ask("DELETE", PATH, &[], b"");
        driven += 1;
    }
    assert!(driven >= 18, "{driven} rows");
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    let created = server.ask("PUT", PATH, &[TEXT], b"first ");
    let token = created.header("stream-incarnation").expect("a token").to_owned();
    assert_eq!(server.ask("POST", PATH, &[TEXT], b"second").status, 204);
    let before = server.ask("HEAD", PATH, &[], b"");
    server.stop();
    node.shutdown().expect("a clean end");

    let (node, mut server) = open(folder.path());
    let after = server.ask("HEAD", PATH, &[], b"");
    for name in ["stream-incarnation", "stream-next-offset", "ursula-cluster-id", "content-type"] {
        assert_eq!(before.header(name), after.header(name), "{name}");
    }
    assert_eq!(after.header("stream-incarnation"), Some(token.as_str()));
    for query in ["", "?consistency=leader"] {
        assert_eq!(server.ask("GET", &format!("{PATH}{query}"), &[], b"").text(), "first second");
    }
    server.stop();
    node.shutdown().expect("a clean end");
}

/// A record of producers kept apart from the data once made another server apply a repeat twice after a crash, or
/// refuse it (its issue 143).
#[test]
fn a_keyed_write_is_recognised_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let body = vec![b'k'; 100_000];
    let (node, mut server) = open(folder.path());
    let driver = Driver { server: &server };
    let token = driver.create();
    let claim = driver.keyed(&token, 3, 0, b"claim");
    let written = driver.keyed(&token, 3, 1, &body);
    assert_eq!((claim.status, written.status), (200, 200));
    server.stop();
    node.shutdown().expect("a clean end");

    let (node, mut server) = open(folder.path());
    let driver = Driver { server: &server };
    let repeat = driver.keyed(&token, 3, 1, &body);
    assert_eq!(repeat.status, 204);
    for name in ["stream-offset", "stream-next-offset", "producer-epoch", "producer-seq"] {
        assert_eq!(repeat.header(name), written.header(name), "{name}");
    }
    assert_eq!(driver.keyed(&token, 3, 1, b"other").told(), (403, "PRODUCER_KEY_CONFLICT".to_owned()));
    assert_eq!(driver.keyed(&token, 3, 2, b"next").next(), written.next() + 4);
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn the_client_reads_every_answer_of_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    let client = Arc::new(Client::new(Options::default()).expect("a client"));
    let url = StreamUrl::parse(&format!("http://{}{PATH}", server.address)).expect("a URL");
    let stream = Stream::new(client, url);
    let (_, gone) = stream.head();
    assert!(gone.identity.is_some(), "a server names itself where there is no stream: {gone:?}");

    let (_, created) = stream.create("text/plain", None, false);
    let Some(Written::Incarnation(incarnation)) = created.done() else { panic!("not created") };
    let body = vec![b'c'; 3 << 20];
    let key = |seq| Some(Key { id: "w".to_owned(), epoch: 1, seq });
    let append =
        |body, key| Append { body, content_type: "text/plain", incarnation: Some(incarnation), key, close: false };
    for (seq, body) in [(0, &b"claim"[..]), (1, &body)] {
        for repeat in [false, true] {
            let (_, answer) = stream.append(&append(body, key(seq)));
            let Some(Written::Receipt(receipt)) = answer.clone().done() else {
                panic!("no receipt of {seq}: {answer:?}")
            };
            assert_eq!((receipt.seq, receipt.repeat, receipt.incarnation), (seq, repeat, incarnation));
        }
    }
    let request =
        Read { from: From::Start, bytes_max: None, leader: true, incarnation: Some(incarnation), wait_ms: None };
    let piece = stream.read(&request).1.done().expect("a piece");
    assert_eq!((piece.body.len(), piece.up_to_date, piece.closed), (body.len() + 5, true, false));
    let head = stream.head().1.answer.done().expect("a head");
    assert_eq!((head.incarnation, head.next), (incarnation, piece.next));
    assert_eq!(stream.delete(Some(incarnation)).1.done(), Some(Written::Holds));
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn fifty_appends_at_once_lie_one_behind_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut ends: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=50)
            .map(|n| {
                let server = &server;
                scope.spawn(move || server.ask("POST", PATH, &[TEXT], &vec![b'x'; n]).next())
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    ends.sort_unstable();
    ends.dedup();
    assert_eq!((ends.len(), ends.last()), (50, Some(&1275)));
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn a_long_poll_of_a_real_node_hears_an_append_and_a_close() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    server.ask("PUT", PATH, &[TEXT], b"");
    for (headers, body, status) in [(&[TEXT][..], &b"news"[..], 200), (&[("stream-closed", "true")], b"", 204)] {
        let offset = server.ask("HEAD", PATH, &[], b"").next();
        let answer = std::thread::scope(|scope| {
            let server = &server;
            let target = format!("{PATH}?offset={offset}&live=long-poll&timeout_ms=9000");
            let waiting = scope.spawn(move || server.ask("GET", &target, &[], b""));
            std::thread::sleep(Duration::from_millis(100));
            server.ask("POST", PATH, headers, body);
            waiting.join().expect("a reader")
        });
        assert_eq!((answer.status, answer.body.as_slice()), (status, body));
    }
    let start = Instant::now();
    let end = server.ask("GET", &format!("{PATH}?offset=4&live=long-poll&timeout_ms=9000"), &[], b"");
    assert_eq!((end.status, end.header("stream-closed")), (204, Some("true")));
    assert!(start.elapsed() < Duration::from_secs(5), "a closed end does not wait");
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn the_largest_body_that_is_advertised_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open_with(Config::new(folder.path()));
    server.ask("PUT", PATH, &[TEXT], b"");
    let limit =
        server.ask("HEAD", PATH, &[], b"").header("ursula-max-request-bytes").and_then(|text| text.parse().ok());
    let answer = server.ask("POST", PATH, &[TEXT], &vec![b'z'; limit.expect("a limit")]);
    assert_eq!(answer.status, 204, "{}", answer.text());
    let mut offset = 0;
    while offset < 32 << 20 {
        let piece = server.ask("GET", &format!("{PATH}?offset={offset}"), &[], b"");
        assert_eq!((piece.status, piece.body.len()), (200, 8 << 20));
        offset = piece.next();
    }
    server.stop();
    node.shutdown().expect("a clean end");
}

/// Every group had lost its index, every stream was answered 503, and `/readyz` said 200: a balancer went on sending.
#[test]
fn a_node_whose_every_group_refuses_is_not_ready_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let config =
        || Config { groups: 1, wal_segment_bytes: 8 << 20, wal_bytes_max: 64 << 20, ..Config::new(folder.path()) };
    let (node, mut server) = open_with(config());
    server.ask("PUT", PATH, &[TEXT], b"bytes");
    server.stop();
    node.shutdown().expect("a clean end");
    let index = std::fs::read_dir(folder.path().join("store/g0")).expect("a store").next().expect("an index");
    std::fs::write(index.expect("a name").path(), [0x5a; 4096]).expect("writable");

    let node = Node::open(config(), Arc::new(OsDisk::new()), Arc::new(SystemClock::new()), Box::new(SystemRandom))
        .expect("the node opens");
    let mut server = Server::start(node.handle());
    assert_eq!(server.ask("GET", &format!("{PATH}?offset=-1"), &[], b"").status, 503);
    let ready = server.ask("GET", "/readyz", &[], b"");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("group 0 is damaged"), "{}", ready.text());
    assert_eq!(server.ask("GET", "/healthz", &[], b"").status, 200);
    server.stop();
    node.shutdown().expect("a clean end");
}

/// Closing a stream cost its readers the last data on another server (its issue 376).
#[test]
fn readers_under_load_get_the_last_data_of_a_stream_before_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    std::thread::scope(|scope| {
        for stream in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..6 {
                    let path = format!("/v1/stream/load/{stream}-{round}");
                    server.ask("PUT", &path, &[TEXT], b"first");
                    let mut readers: Vec<Events> =
                        (0..3).map(|_| Events::open(server, &format!("{path}?offset=-1&live=sse"), &[])).collect();
                    let body = vec![b'z'; 1 << (round * 3)];
                    assert_eq!(server.ask("POST", &path, &[TEXT, ("stream-closed", "true")], &body).status, 204);
                    for events in readers.iter_mut().map(Events::rest) {
                        let data: usize = events.iter().filter(|e| e.kind == "data").map(|e| e.data.len()).sum();
                        assert_eq!(data, 5 + body.len(), "{path}");
                        assert_eq!(events.last().map(|end| end.says().2), Some(true), "{path}");
                    }
                }
            });
        }
    });
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn events_of_a_real_node_go_on_through_checkpoints() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open_with(Config {
        groups: 1,
        wal_segment_bytes: 1 << 20,
        wal_bytes_max: 8 << 20,
        checkpoint_bytes: 1 << 20,
        ..Config::new(folder.path())
    });
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut events = Events::open(&server, &format!("{PATH}?offset=0&live=sse"), &[]);
    let written: String = std::thread::scope(|scope| {
        let server = &server;
        let writer = scope.spawn(move || {
            let mut written = String::new();
            for round in 0..60usize {
                let body = format!("{round}:").repeat(20_000);
                let headers = if round == 59 { &[TEXT, ("stream-closed", "true")][..] } else { &[TEXT] };
                assert_eq!(server.ask("POST", PATH, headers, body.as_bytes()).status, 204);
                written.push_str(&body);
            }
            written
        });
        writer.join().expect("a writer")
    });
    let read: String = events.rest().into_iter().filter(|e| e.kind == "data").map(|e| e.data).collect();
    assert!(read == written, "{} of {} bytes", read.len(), written.len());
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn a_message_larger_than_an_answer_comes_whole_and_its_neighbours_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open_with(Config { groups: 1, ..Config::new(folder.path()) });
    let json = ("content-type", "application/json");
    server.ask("PUT", PATH, &[json], b"[1]");
    let long = format!("\"{}\"", "m".repeat((17 << 20) - 3));
    assert_eq!(server.ask("POST", PATH, &[json], long.as_bytes()).status, 204);
    assert_eq!(server.ask("POST", PATH, &[json], b"[2,3]").next(), 2 + (17 << 20) + 4);
    let mut offset = 0;
    for (text, up_to_date) in [("[1]".to_owned(), false), (format!("[{long}]"), false), ("[2,3]".to_owned(), true)] {
        let answer = server.ask("GET", &format!("{PATH}?offset={offset}"), &[], b"");
        assert!(answer.text() == text, "at {offset}: {} bytes", answer.body.len());
        assert_eq!(answer.header("stream-up-to-date").is_some(), up_to_date, "at {offset}");
        offset = answer.next();
    }
    for inside in [1, 3, 9 << 20, (17 << 20) + 1] {
        let answer = server.ask("GET", &format!("{PATH}?offset={inside}"), &[], b"");
        assert_eq!(answer.told(), (400, "NOT_JSON_BOUNDARY".to_owned()), "{inside}");
    }
    server.stop();
    node.shutdown().expect("a clean end");
}

/// Another server let a stream end although it was closed, or read at its end, just before (its issue 392).
#[test]
fn a_window_begins_anew_with_everything_that_reaches_a_stream_but_a_head() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    let key = [("producer-id", "w"), ("producer-epoch", "0"), ("producer-seq", "0")];
    let closes = ("stream-closed", "true");
    type Touch<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, bool);
    let touches: [Touch<'_>; 7] = [
        ("head", "HEAD", vec![], false),
        ("read", "GET", vec![], true),
        ("now", "GET", vec![], true),
        ("poll", "GET", vec![], true),
        ("append", "POST", vec![TEXT], true),
        ("close", "POST", vec![closes], true),
        ("keyed", "POST", [&key[..], &[closes]].concat(), true),
    ];
    std::thread::scope(|scope| {
        for (name, method, headers, renews) in &touches {
            let server = &server;
            scope.spawn(move || {
                let path = format!("/v1/stream/window/{name}");
                assert_eq!(server.ask("PUT", &path, &[TEXT, ("stream-ttl", "2")], b"").status, 201);
                std::thread::sleep(Duration::from_millis(1_400));
                let query = match *name {
                    "now" => "?offset=now",
                    "poll" => "?offset=0&live=long-poll&timeout_ms=1",
                    _ => "",
                };
                let body = if *name == "append" { &b"x"[..] } else { b"" };
                let touched = server.ask(method, &format!("{path}{query}"), headers, body);
                assert!(touched.status < 300, "{name}: {touched:?}");
                // Half a second behind the end of a window that did not begin anew, the slack of an eighth included.
                std::thread::sleep(Duration::from_millis(1_400));
                let status = server.ask("HEAD", &path, &[], b"").status;
                assert_eq!(status, if *renews { 200 } else { 404 }, "{name}");
            });
        }
    });
    server.stop();
    node.shutdown().expect("a clean end");
}
