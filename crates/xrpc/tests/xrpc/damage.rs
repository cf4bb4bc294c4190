//! Stored bytes that are damaged: whose failing that is, in the words of each surface.

use crate::home::refused;
use crate::server::{COLLECTION, Server};
use crate::wire::{self, Answer};
use highwater_host::Host;
use highwater_pds::Account;
use highwater_xrpc::operator::{self, Announcer, Asked};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Changes one bit behind these bytes, wherever data files of a store hold them. How often.
fn damage(store: &Path, pattern: &[u8]) -> usize {
    let mut found = 0;
    for entry in fs::read_dir(store).expect("a folder") {
        let entry = entry.expect("an entry");
        // The index is another matter: a start falls back to the one before it, and to the log.
        if !entry.file_name().to_string_lossy().starts_with("data-") {
            continue;
        }
        let mut bytes = fs::read(entry.path()).expect("a file");
        let ends = bytes.len().saturating_sub(pattern.len());
        let places: Vec<usize> = (0..ends).filter(|at| bytes[*at..].starts_with(pattern)).collect();
        places.iter().for_each(|place| bytes[place + pattern.len()] ^= 1);
        fs::write(entry.path(), bytes).expect("written");
        found += places.len();
    }
    found
}

/// Stops a server, damages what its store holds behind some bytes, and starts it again.
fn damaged(server: Server, pattern: &[u8]) -> Server {
    let directory: TempDir = server.stop();
    assert!(damage(&directory.path().join("pds/store"), pattern) > 0, "they are stored");
    Server::at(directory)
}

fn record(server: &Server, account: &Account, rkey: &str) -> Answer {
    let query = format!("repo={}&collection={COLLECTION}&rkey={rkey}", account.did);
    server.query("com.atproto.repo.getRecord", &query)
}

/// A client whose record could not be read was told that its request was wrong, and never asked again.
#[test]
fn damaged_blocks_are_the_servers_failing_and_other_accounts_are_served() {
    let server = Server::start();
    let (account, other) = (server.account(), server.account());
    server.post(&account, "one", "a text of which a bit flips");
    server.post(&other, "one", "whole");
    let server = damaged(server, b"a text of which a bit fli");
    let list = format!("repo={}&collection={COLLECTION}", account.did);
    let blocks = format!("did={}&cids={}", account.did, server.row(account.id).head.expect("a head").commit);
    for answer in [
        record(&server, &account, "one"),
        server.query("com.atproto.repo.listRecords", &list),
        server.query("com.atproto.sync.getBlocks", &blocks),
        server.query("com.atproto.sync.getRepo", &format!("did={}", account.did)),
    ] {
        assert_eq!(answer.refused(), refused(500, "InternalServerError"));
        assert!(answer.json()["message"].as_str().is_some_and(|text| text.contains("damaged")), "{}", answer.json());
    }
    assert_eq!(record(&server, &other, "one").ok()["value"]["text"], "whole");
}

#[test]
fn a_write_to_a_damaged_tree_is_refused_as_the_servers_failing_and_changes_nothing() {
    let server = Server::start();
    let account = server.account();
    server.post(&account, "one", "text");
    let root = server.row(account.id).head.expect("a head").data;
    let server = damaged(server, &root.to_bytes());
    let head = server.row(account.id).head;
    let input = json!({ "repo": account.did.as_str(), "collection": COLLECTION, "record": { "text": "x" } });
    let refusals = [
        server.write(&account, "createRecord", &input),
        record(&server, &account, "one"),
        server.query("com.atproto.repo.describeRepo", &format!("repo={}", account.did)),
    ];
    for answer in refusals {
        assert_eq!(answer.refused(), refused(500, "InternalServerError"));
    }
    assert_eq!(server.row(account.id).head, head);
    // A lock needs no block of it.
    server.change(&account, highwater_pds::lifecycle::Change::Lock);
}

struct NoRelays;

impl Announcer for NoRelays {
    fn announce(&self, _: &Host, _: bool) -> Vec<Asked> {
        Vec::new()
    }

    fn relays(&self) -> Value {
        json!([])
    }
}

/// Asks the operator's routes of a server.
fn announce(server: &Server) -> Answer {
    let listener = server.runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address: SocketAddr = listener.local_addr().expect("an address");
    let router = operator::router(Arc::clone(&server.context), Arc::new(NoRelays));
    server.runtime.spawn(async move { axum::serve(listener, router).await });
    let headers = [("content-type", "application/json")];
    wire::ask(address, "POST", "/v1/pds/announce", &headers, Some(br#"{ "resync": true }"#))
}

/// Relays were not told of an account, and its operator read that frames were sent.
#[test]
fn an_account_of_which_relays_cannot_be_told_once_more_is_named() {
    let server = Server::start();
    let (damaged_one, whole) = (server.account(), server.account());
    let head = server.row(damaged_one.id).head.expect("a head").commit;
    assert_eq!(announce(&server).ok()["failed"], 0);
    let server = damaged(server, &head.to_bytes());
    let told = announce(&server).ok();
    assert_eq!((&told["frames"], &told["failed"]), (&json!(2), &json!(1)), "{told}");
    assert_eq!(told["failed_listed"][0]["did"], damaged_one.did.as_str());
    assert!(told["failed_listed"][0]["message"].as_str().is_some_and(|why| why.contains("damaged")), "{told}");
    assert!(server.host.head(whole.id).is_ok());
}
