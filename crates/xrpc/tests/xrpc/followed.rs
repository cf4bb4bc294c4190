//! A consumer that follows the specification, over real sockets: through lives of a server, and through the restore of one.

use crate::server::{COLLECTION, Server};
use crate::stream::{Subscriber, newest, subscribe};
use crate::wire;
use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Clock, Random as _};
use highwater_consumer::follower::{Follower, Input, Options, Output, Source};
use highwater_disk::SystemClock;
use highwater_pds::lifecycle::Change;
use highwater_pds::{Account, Position};
use highwater_repo::key::PublicKey;
use highwater_repo::syntax::Did;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// What a consumer asks a server: documents and repositories, over HTTP.
struct Asked<'a> {
    server: &'a Server,
    exports: usize,
}

impl Source for Asked<'_> {
    fn key(&mut self, did: &Did) -> Option<PublicKey> {
        let host = did.as_str().strip_prefix("did:web:")?;
        let document = wire::ask(self.server.address, "GET", "/.well-known/did.json", &[("host", host)], None).ok();
        PublicKey::parse(document["verificationMethod"][0]["publicKeyMultibase"].as_str()?).ok()
    }

    fn repo(&mut self, did: &Did) -> Option<Bytes> {
        self.exports += 1;
        let answer = self.server.query("com.atproto.sync.getRepo", &format!("did={did}"));
        (answer.status == 200).then(|| answer.body.into())
    }
}

/// A consumer and its connection.
struct Consumer {
    follower: Follower,
    socket: Option<Subscriber>,
    exports: usize,
}

impl Consumer {
    fn new() -> Self {
        Self { follower: Follower::new(Options::default()), socket: None, exports: 0 }
    }

    fn connect(&mut self, server: &Server) {
        let cursor = self.follower.cursor().unwrap_or_default();
        self.socket = Some(subscribe(server, &format!("?cursor={cursor}")));
        self.step(server, Input::Connected { cursor: Some(cursor) });
    }

    fn step(&mut self, server: &Server, input: Input) -> Vec<Output> {
        let mut asked = Asked { server, exports: 0 };
        let found = self.follower.follow(SystemClock::default().wall(), input, &mut asked);
        self.exports += asked.exports;
        found
    }

    /// Reads to the newest event that there is; what was found, none of which a server must not do.
    fn read(&mut self, server: &Server) -> Vec<Output> {
        let (mut all, newest) = (Vec::new(), newest(server));
        while self.follower.cursor().unwrap_or_default() < newest {
            let message = self.socket.as_mut().and_then(Subscriber::message).expect("a message");
            all.extend(self.step(server, Input::Message(message)));
        }
        let wrong = all.iter().find(|output| {
            let wrong = matches!(output, Output::Violation { .. } | Output::Refused(_));
            wrong || matches!(output, Output::Ignored { fetched: false, .. })
        });
        assert_eq!(wrong, None);
        all
    }

    /// What is held is what the server lists, at its newest revisions.
    fn agrees(&self, server: &Server, accounts: &[Account]) {
        for account in accounts {
            let row = server.row(account.id);
            let held = self.follower.account(&account.did).expect("it is held");
            assert_eq!(held.position().map(|it| it.is_active()), row.position().map(|it| it == Position::Active));
            if row.position() != Some(Position::Active) {
                continue;
            }
            assert!(held.is_synchronized(), "{}", account.did);
            assert_eq!(held.head().map(|head| head.rev), row.head.map(|head| head.rev), "{}", account.did);
            let records = held.records().expect("they are held").iter();
            let held: BTreeMap<_, _> = records.map(|(path, record)| (path.clone(), record.cid.to_string())).collect();
            assert_eq!(held, listed(server, account), "{}", account.did);
        }
    }
}

/// The records of an account as the server lists them.
fn listed(server: &Server, account: &Account) -> BTreeMap<String, String> {
    let query = format!("repo={}&collection={COLLECTION}&limit=100", account.did);
    let answer = server.query("com.atproto.repo.listRecords", &query).ok();
    let record = |record: &serde_json::Value| {
        let uri = record["uri"].as_str().expect("a URI");
        let path = uri.strip_prefix(&format!("at://{}/", account.did)).expect("of the account");
        (path.to_owned(), record["cid"].as_str().expect("a CID").to_owned())
    };
    answer["records"].as_array().expect("a list").iter().map(record).collect()
}

fn delete(server: &Server, account: &Account, rkey: &str) {
    let input = json!({ "repo": account.did.as_str(), "collection": COLLECTION, "rkey": rkey });
    server.write(account, "deleteRecord", &input).ok();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("copied")),
        }
    }
}

/// The server runs and is stopped, its directory is copied, it runs on, and that run is lost. The copy is put back and marked. A
/// consumer that followed the lost run comes back with its cursor: it is told of the gap and never that it is ahead, ends with
/// the restored records at newer revisions, and the next write follows them.
#[test]
fn a_consumer_of_a_lost_run_ends_with_the_restored_records() {
    let server = Server::start();
    let accounts: Vec<Account> = (0..4).map(|_| server.account()).collect();
    for account in &accounts {
        (0..5).for_each(|key| drop(server.post(account, &format!("kept{key}"), "first")));
    }
    server.change(&accounts[3], Change::Lock);
    let mut consumer = Consumer::new();
    consumer.connect(&server);
    consumer.read(&server);
    consumer.agrees(&server, &accounts);

    let directory = server.stop();
    let restored = TempDir::new().expect("a directory");
    copy(directory.path(), restored.path());

    let lost = Server::at(directory);
    assert_eq!(lost.boot.frames, 0, "a start where nothing changed sends nothing");
    consumer.connect(&lost);
    lost.post(&accounts[0], "lost", "written in the lost run");
    delete(&lost, &accounts[0], "kept0");
    (0..30).for_each(|key| drop(lost.post(&accounts[1], &format!("lost{key}"), "written in the lost run")));
    lost.change(&accounts[3], Change::Lift);
    consumer.read(&lost);
    consumer.agrees(&lost, &accounts);
    let before: Vec<_> =
        accounts.iter().map(|it| consumer.follower.account(&it.did).and_then(|it| it.head())).collect();
    drop(lost.stop());

    fs::write(restored.path().join("pds/pds.restored"), "").expect("written");
    let server = Server::at(restored);
    assert!(!server.host.paths().marker().exists(), "the marker is gone");
    consumer.exports = 0;
    consumer.connect(&server);
    let found = consumer.read(&server);
    assert_eq!(found.first(), Some(&Output::Outdated));
    consumer.agrees(&server, &accounts);
    assert_eq!(consumer.exports, 2, "two repositories are others than in the lost run");
    for (account, before) in accounts.iter().zip(before).take(3) {
        let now = consumer.follower.account(&account.did).and_then(|account| account.head());
        assert!(now.map(|head| head.rev) > before.map(|head| head.rev), "a newer revision");
        assert_eq!(listed(&server, account).len(), 5);
    }
    assert_eq!(server.row(accounts[3].id).position().map(|it| it == Position::Active), Some(false));

    consumer.exports = 0;
    accounts[..3].iter().for_each(|account| drop(server.post(account, "next", "behind the restore")));
    server.change(&accounts[3], Change::Lift);
    server.post(&accounts[3], "next", "behind the lift");
    consumer.read(&server);
    consumer.agrees(&server, &accounts);
    assert_eq!(consumer.exports, 0, "everything follows what is held");

    let server = Server::at(server.stop());
    assert_eq!(server.boot.frames, 0, "the start behind a restore has nothing to say");
    consumer.connect(&server);
    assert!(
        consumer.socket.as_mut().expect("connected").is_silent(),
        "a start where nothing changed puts no frame on the wire"
    );
    server.post(&accounts[0], "last", "and goes on");
    consumer.read(&server);
    consumer.agrees(&server, &accounts);
}

/// atproto#2400: under concurrent commits a cursor skipped an event. Many write at once, and somebody who connects anew at whatever
/// place gets every event once.
#[test]
fn a_reader_that_comes_back_at_any_cursor_sees_every_event_once() {
    let server = Server::start();
    let accounts: Vec<Account> = (0..16).map(|_| server.account()).collect();
    let mut consumer = Consumer::new();
    std::thread::scope(|scope| {
        for account in &accounts {
            let server = &server;
            scope.spawn(move || (0..12).for_each(|key| drop(server.post(account, &format!("key{key}"), "x"))));
        }
        let mut random = SplitMix::new(7);
        // Three events of each account come before its writes.
        while consumer.follower.cursor().unwrap_or_default() < 16 * 15 {
            consumer.connect(&server);
            for _ in 0..1 + random.below(20) {
                if consumer.follower.cursor() == Some(16 * 15) {
                    break;
                }
                let message = consumer.socket.as_mut().and_then(Subscriber::message).expect("a message");
                let found = consumer.step(&server, Input::Message(message));
                let wrong = found.iter().find(|output| {
                    matches!(output, Output::Violation { .. } | Output::Ignored { .. } | Output::Desynchronized { .. })
                });
                assert_eq!(wrong, None);
            }
        }
    });
    consumer.agrees(&server, &accounts);
    assert_eq!((newest(&server), consumer.exports), (16 * 15, 0));
}
