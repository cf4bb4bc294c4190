//! The real node behind the real listener: what it stores is there again, and it answers as the fake one does.

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
fn open(data: &Path) -> (Node, Server) {
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
