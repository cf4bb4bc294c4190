//! The stream, over its socket.

use crate::server::{COLLECTION, Server};
use crate::wire;
use bytes::Bytes;
use highwater_consumer::Frame;
use highwater_pds::Account;
use highwater_pds::sequence::RESTORE_RAISE;
use highwater_pds::{AccountId, Fact};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

/// A subscriber that reads with a library of others.
pub struct Subscriber(WebSocket<TcpStream>);

pub fn subscribe(server: &Server, cursor: &str) -> Subscriber {
    let url = format!("ws://{}/xrpc/com.atproto.sync.subscribeRepos{cursor}", server.address);
    let stream = wire::connect(server.address);
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    let (socket, _) = tungstenite::client::client_with_config(url, stream, Some(config)).expect("a socket");
    Subscriber(socket)
}

impl Subscriber {
    /// The next frame; nothing at the end.
    fn next(&mut self) -> Option<Frame> {
        self.message().map(|bytes| Frame::decode(bytes).expect("a frame"))
    }

    /// The next message; nothing at the end.
    pub fn message(&mut self) -> Option<Bytes> {
        loop {
            match self.0.read().expect("a message") {
                Message::Binary(bytes) => return Some(bytes),
                Message::Close(_) => return None,
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// So many frames' numbers.
    fn take(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next().and_then(|frame| frame.sequence()).expect("a numbered frame")).collect()
    }

    /// Whether nothing comes for a moment.
    pub fn is_silent(&mut self) -> bool {
        self.0.get_mut().set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let silent = match self.0.read() {
            Err(tungstenite::Error::Io(error)) => {
                matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
            }
            _ => false,
        };
        self.0.get_mut().set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        silent
    }
}

pub fn newest(server: &Server) -> u64 {
    server.host.state(|state| state.events.newest.map_or(0, |seq| seq.0))
}

fn writes(server: &Server, account: &Account, name: &str, count: usize) {
    for number in 0..count {
        server.post(account, &format!("{name}{number}"), "x");
    }
}

/// T12 over the wire: where a subscriber starts, for every kind of cursor.
#[test]
fn a_cursor_of_every_kind_starts_where_the_table_says() {
    let server = Server::start();
    let account = server.account();
    writes(&server, &account, "before", 3);
    let before = newest(&server);
    // As a restore does it: what lies between is a gap.
    let floor = before + RESTORE_RAISE;
    server.host.note(Fact::Floor(floor)).wait().expect("durable");
    let mut live = subscribe(&server, &format!("?cursor={floor}"));
    assert!(matches!(live.next(), Some(Frame::Outdated(_))), "the end of a gap lies in it");
    assert!(live.is_silent());
    writes(&server, &account, "behind", 2);
    let all: Vec<u64> = (1..=before).chain([floor + 1, floor + 2]).collect();
    let last = floor + 2;
    let mut subscribers: Vec<(String, bool, Vec<u64>)> = vec![
        ("?cursor=0".into(), false, all.clone()),
        ("?cursor=1".into(), false, all[1..].to_vec()),
        (format!("?cursor={}", before - 1), false, all[before as usize - 1..].to_vec()),
        (format!("?cursor={}", before + 1), true, vec![floor + 1, last]),
        (format!("?cursor={floor}"), true, vec![floor + 1, last]),
        (format!("?cursor={}", floor + 1), false, vec![last]),
        (format!("?cursor={last}"), false, vec![]),
        (String::new(), false, vec![]),
    ];
    let mut open = Vec::new();
    for (cursor, outdated, expected) in subscribers.drain(..) {
        let mut subscriber = subscribe(&server, &cursor);
        if outdated {
            assert!(matches!(subscriber.next(), Some(Frame::Outdated(_))), "{cursor}");
        }
        assert_eq!(subscriber.take(expected.len()), expected, "{cursor}");
        assert!(subscriber.is_silent(), "{cursor}");
        open.push(subscriber);
    }
    for cursor in [last + 1, 1 << 53, u64::MAX] {
        let mut subscriber = subscribe(&server, &format!("?cursor={cursor}"));
        let Some(Frame::Error(error)) = subscriber.next() else { panic!("{cursor}") };
        assert_eq!(error.error, "FutureCursor");
        assert_eq!(subscriber.next(), None, "it closes");
    }
    let huge = subscribe(&server, "?cursor=99999999999999999999999").next();
    assert!(matches!(huge, Some(Frame::Error(_))), "{huge:?}");
    for bad in ["-1", "x", "1.5", "", "%2B1"] {
        let path = format!("/xrpc/com.atproto.sync.subscribeRepos?cursor={bad}");
        let upgrade = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let answer = wire::ask(server.address, "GET", &path, &upgrade, None);
        assert_eq!(answer.refused(), (400, "InvalidRequest".to_owned()), "{bad}");
    }
    writes(&server, &account, "then", 1);
    for subscriber in open.iter_mut().chain([&mut live]) {
        let mut next = subscriber.take(1)[0];
        while next < last + 1 {
            next = subscriber.take(1)[0];
        }
        assert_eq!(next, last + 1, "all of them go on live");
    }
}

/// A request may upgrade a connection that lists several things, and must say everything that the protocol asks for.
#[test]
fn a_handshake_that_is_not_the_protocols_is_refused() {
    let server = Server::start();
    let path = "/xrpc/com.atproto.sync.subscribeRepos";
    let good = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for (at, value, status) in [(0, "keep-alive", 426), (1, "h2c", 426), (2, "8", 400), (3, "c2hvcnQ=", 400)] {
        let mut headers = good;
        headers[at].1 = value;
        assert_eq!(wire::ask(server.address, "GET", path, &headers, None).refused().0, status, "{value}");
    }
    let mut stream = wire::connect(server.address);
    let head: String = good.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: pds.test\r\n{head}\r\n").expect("taken");
    let mut bytes = [0; 512];
    let read = stream.read(&mut bytes).expect("an answer");
    let answer = String::from_utf8_lossy(&bytes[..read]).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "the example of the RFC: {answer}");
}

/// T11: who comes while others write sees every frame once, wherever it started.
#[test]
fn going_over_from_the_disk_to_what_is_new_loses_and_repeats_nothing() {
    let server = Server::start();
    let accounts: Vec<Account> = (0..4).map(|_| server.account()).collect();
    for account in &accounts {
        writes(&server, account, "before", 5);
    }
    std::thread::scope(|scope| {
        for account in &accounts {
            scope.spawn(|| writes(&server, account, "live", 40));
        }
        for round in 0..6 {
            let server = &server;
            scope.spawn(move || {
                let cursor = round * 3;
                let mut subscriber = subscribe(server, &format!("?cursor={cursor}"));
                // 3 frames of each activation, then the writes.
                let all = 4 * (3 + 5 + 40);
                let read = subscriber.take(all - cursor);
                assert!(read.windows(2).all(|pair| pair[1] == pair[0] + 1), "{read:?}");
                assert_eq!(read[0], cursor as u64 + 1);
            });
        }
    });
}

/// T11: many who read, beside ten times as many who only hold their sockets open.
#[test]
fn fifty_readers_miss_nothing_beside_five_hundred_who_take_nothing() {
    let server = Server::with(|options| options.stream.subscribers_per_address_max = 600, |_| ());
    let account = server.account();
    let idle: Vec<Subscriber> = (0..500).map(|_| subscribe(&server, "")).collect();
    let mut busy: Vec<Subscriber> = (0..50).map(|_| subscribe(&server, "?cursor=0")).collect();
    assert_eq!(server.context.subscribers(), 550);
    std::thread::scope(|scope| {
        for subscriber in &mut busy {
            scope.spawn(|| assert_eq!(subscriber.take(3 + 120), (1..=123).collect::<Vec<_>>()));
        }
        for writer in 0..4 {
            let (server, account) = (&server, &account);
            scope.spawn(move || writes(server, account, &format!("w{writer}n"), 30));
        }
    });
    assert_eq!(server.context.subscribers(), 550, "and nobody was sent away");
    drop(idle);
}

/// The host keeps 4,096 new frames for a reader who does not take them; what it reads from the disk never counts.
#[test]
fn a_reader_who_is_too_far_behind_is_told_so_and_a_long_replay_is_not() {
    let server = Server::start();
    let account = server.account();
    let fill = |from: usize, count: usize| {
        // Large enough that the sockets' buffers do not hold them all.
        let text = "x".repeat(9_000);
        for at in (from..from + count).step_by(64) {
            let pending: Vec<_> = (at..(at + 64).min(from + count))
                .map(|number| {
                    let record = json!({ "$type": COLLECTION, "text": text, "n": number });
                    let value: highwater_repo::Value = serde_json::from_value(record).expect("a value");
                    let write = highwater_host::RecordWrite {
                        action: highwater_host::Action::Put,
                        collection: COLLECTION.into(),
                        rkey: Some(format!("k{}", number % 10)),
                        record: Some(highwater_repo::data::encode(&value).into()),
                        swap_record: None,
                    };
                    let batch = highwater_host::WriteBatch { writes: vec![write], swap_commit: None };
                    server.host.write(account.id, batch)
                })
                .collect();
            for pending in pending {
                pending.wait().expect("written");
            }
        }
    };
    let mut slow = subscribe(&server, "");
    assert!(slow.is_silent());
    fill(0, 5_200);
    let mut read = 0;
    let error = loop {
        match slow.next() {
            Some(Frame::Error(error)) => break error,
            Some(_) => read += 1,
            None => panic!("no reason was given"),
        }
    };
    assert_eq!(error.error, "ConsumerTooSlow");
    assert!(read < 5_200 && slow.next().is_none());
    let mut replay = subscribe(&server, "?cursor=0");
    let all = newest(&server) as usize;
    assert_eq!(replay.take(all).last(), Some(&(all as u64)), "all of them, from the disk");
}

#[test]
fn a_socket_pings_answers_pings_and_breaks_when_the_server_stops() {
    let server = Server::with(|options| options.stream.ping_ms = 50, |_| ());
    let mut subscriber = subscribe(&server, "");
    for _ in 0..3 {
        assert!(matches!(subscriber.0.read().expect("a message"), Message::Ping(_)));
    }
    subscriber.0.send(Message::Ping(Bytes::from_static(b"there?"))).expect("sent");
    subscriber.0.send(Message::Text("what a client says is ignored".into())).expect("sent");
    let pong = (0..20).find_map(|_| match subscriber.0.read().expect("a message") {
        Message::Pong(bytes) => Some(bytes),
        _ => None,
    });
    assert_eq!(pong.expect("a pong"), b"there?"[..]);
    assert_eq!(server.context.subscribers(), 1);
    let context = server.context.clone();
    let closing = server.runtime.spawn(async move { context.close().await });
    let broken = std::iter::repeat_with(|| subscriber.0.read()).find_map(|message| match message {
        Ok(Message::Close(_)) => Some(false),
        Ok(_) => None,
        Err(_) => Some(true),
    });
    assert_eq!(broken, Some(true), "who is told goodbye does not come back");
    server.runtime.block_on(closing).expect("no panic");
    assert_eq!(server.context.subscribers(), 0);
}

#[test]
fn there_is_a_bound_on_sockets_and_on_those_of_an_address() {
    let server = Server::with(|options| options.stream.subscribers_per_address_max = 2, |_| ());
    let _held = [subscribe(&server, ""), subscribe(&server, "")];
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let path = "/xrpc/com.atproto.sync.subscribeRepos";
    let refused = wire::ask(server.address, "GET", path, &upgrade, None);
    assert_eq!(refused.refused(), (429, "RateLimitExceeded".to_owned()));
    assert!(refused.header("retry-after").is_some());
    let server = Server::with(|options| options.stream.subscribers_max = 1, |_| ());
    let _held = subscribe(&server, "");
    let refused = wire::ask(server.address, "GET", path, &upgrade, None);
    assert_eq!(refused.refused(), (503, "NotEnoughResources".to_owned()));
}

/// T11 and report 16: a reader that takes nothing for a while, and frames meanwhile, loses nothing.
#[test]
fn a_reader_that_pauses_goes_on_where_it_was_and_one_that_stays_away_is_closed() {
    let server = Server::with(
        |options| {
            options.stream.write_idle_ms_max = 4_000;
            options.stream.ping_ms = 100;
        },
        |_| (),
    );
    let account = server.account();
    let mut paused = subscribe(&server, "?cursor=0");
    assert_eq!(paused.take(3), [1, 2, 3]);
    let record = |rkey: usize| {
        let record = json!({ "$type": COLLECTION, "text": "x".repeat(900_000) });
        json!({ "repo": account.did.as_str(), "collection": COLLECTION, "rkey": format!("k{rkey}"), "record": record })
    };
    for rkey in 0..12 {
        server.write(&account, "createRecord", &record(rkey)).ok();
    }
    assert_eq!(paused.take(12), (4..16).collect::<Vec<_>>());
    let _away = subscribe(&server, "?cursor=0");
    assert_eq!(server.context.subscribers(), 2);
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        // The one that is read stays.
        assert!(paused.0.read().is_ok_and(|message| message.is_ping()));
        server.context.subscribers() == 1
    });
    assert!(gone, "whoever takes nothing is closed");
}

/// The row of an account tells the same as the frames that were sent, which relays compare.
#[test]
fn the_first_frames_of_an_account_come_in_the_protocols_order() {
    let server = Server::start();
    let account = server.account();
    let mut subscriber = subscribe(&server, "?cursor=0");
    let kinds: Vec<&str> = (0..3).map(|_| subscriber.next().expect("a frame").kind()).collect();
    assert_eq!(kinds, ["#identity", "#account", "#commit"]);
    assert_eq!(account.id, AccountId(1));
}
