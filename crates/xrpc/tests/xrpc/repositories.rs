//! Archives.

use crate::server::{COLLECTION, Server};
use crate::wire;
use bytes::Bytes;
use highwater_repo::{Cid, Commit, Tree, car};
use serde_json::json;
use std::collections::BTreeMap;

fn blocks(archive: &[u8]) -> (Vec<Cid>, BTreeMap<Cid, Bytes>) {
    let mut reader = car::Reader::new();
    reader.push(archive);
    let mut blocks = BTreeMap::new();
    while let Some((cid, block)) = reader.block().expect("an archive") {
        blocks.insert(cid, block);
    }
    (reader.finish().expect("whole"), blocks)
}

#[test]
fn a_repository_is_exported_whole_and_named_by_its_commit() {
    let server = Server::start();
    let account = server.account();
    for number in 0..100 {
        server.post(&account, &format!("key{number}"), &"text ".repeat(500));
    }
    let head = server.row(account.id).head.expect("a head");
    let path = format!("/xrpc/com.atproto.sync.getRepo?did={}", account.did);
    let answer = server.get(&path);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/vnd.ipld.car")));
    let (roots, found) = blocks(&answer.body);
    assert_eq!(roots, [head.commit]);
    let commit = Commit::decode(found[&head.commit].clone()).expect("a commit");
    assert_eq!((commit.rev, commit.data, &commit.did), (head.rev, head.data, &account.did));
    let tree = Tree::open(commit.data, &found).expect("a tree");
    let mut records = tree.records_of(COLLECTION, None, highwater_repo::mst::Order::Ascending);
    assert_eq!(records.page(1_000, &found).expect("all blocks").len(), 100);
    let tag = answer.header("etag").expect("a tag").to_owned();
    assert_eq!(tag, format!("\"{}\"", head.commit));
    let again = wire::ask(server.address, "GET", &path, &[("if-none-match", &tag)], None);
    assert_eq!((again.status, again.body.len()), (304, 0));
    server.post(&account, "another", "x");
    assert_eq!(wire::ask(server.address, "GET", &path, &[("if-none-match", &tag)], None).status, 200);
    let since = server.get(&format!("{path}&since={}", head.rev));
    let newest = server.row(account.id).head.expect("a head").commit;
    assert!(blocks(&since.body).1.contains_key(&newest));
    assert_eq!(server.get(&format!("{path}&since=nonsense")).refused(), (400, "InvalidRequest".to_owned()));
    let checkout = server.query("com.atproto.sync.getCheckout", &format!("did={}", account.did));
    assert_eq!(blocks(&checkout.body).0, [newest]);
    let root = server.query("com.atproto.sync.getHead", &format!("did={}", account.did));
    assert_eq!(root.ok()["root"], newest.to_string());
}

/// Whoever holds a repository up to a revision and asks for what is newer gets that, and has the newest one with it.
#[test]
fn an_export_since_a_revision_holds_what_is_newer_and_completes_what_somebody_holds() {
    let server = Server::start();
    let account = server.account();
    let path = format!("/xrpc/com.atproto.sync.getRepo?did={}", account.did);
    let text = |number: usize| format!("{number} {}", "text ".repeat(300));
    for number in 0..60 {
        server.post(&account, &format!("key{number:02}"), &text(number));
    }
    let mut held = Vec::new();
    for number in 0..20 {
        let head = server.row(account.id).head.expect("a head");
        held.push((head.rev, blocks(&server.get(&path).body).1));
        let input =
            json!({ "repo": account.did.as_str(), "collection": COLLECTION, "rkey": format!("key{number:02}") });
        match number % 3 {
            0 => drop(server.write(&account, "deleteRecord", &input).ok()),
            // What was there before comes back.
            1 => drop(server.post(&account, &format!("key{:02}", number - 1), &text(number - 1))),
            _ => drop(server.post(&account, &format!("other{number}"), "x")),
        }
    }
    let whole = server.get(&path).body;
    let (head, all) = (server.row(account.id).head.expect("a head"), blocks(&whole).1);
    for (rev, mut blocks_held) in held {
        let since = server.get(&format!("{path}&since={rev}"));
        let (roots, newer) = blocks(&since.body);
        assert_eq!(roots, [head.commit]);
        assert!(since.body.len() < whole.len() / 3, "{} of {} bytes since {rev}", since.body.len(), whole.len());
        blocks_held.extend(newer);
        assert!(all.iter().all(|(cid, block)| blocks_held.get(cid) == Some(block)), "not whole since {rev}");
        let tree = Tree::open(head.data, &blocks_held).expect("a tree");
        let mut records = tree.records_of(COLLECTION, None, highwater_repo::mst::Order::Ascending);
        records.page(1_000, &blocks_held).expect("all blocks");
    }
    let newest = server.get(&format!("{path}&since={}", head.rev));
    assert_eq!(blocks(&newest.body).1.into_keys().collect::<Vec<_>>(), [head.commit], "there is nothing newer");
    // Revisions of another run, of another account, or of nobody: nobody knows what is newer than they.
    for unknown in ["2222222222222", "3jzfcijpj2z2a", "3zzzzzzzzzzzz"] {
        let answer = server.get(&format!("{path}&since={unknown}"));
        assert!(answer.status == 200 && answer.body == whole, "{unknown}: {}", answer.status);
    }
}

#[test]
fn a_proof_shows_a_record_or_that_there_is_none() {
    let server = Server::start();
    let account = server.account();
    for number in 0..50 {
        server.post(&account, &format!("key{number}"), "x");
    }
    let head = server.row(account.id).head.expect("a head");
    for (rkey, there) in [("key7", true), ("none", false)] {
        let query = format!("did={}&collection={COLLECTION}&rkey={rkey}", account.did);
        let answer = server.query("com.atproto.sync.getRecord", &query);
        let (roots, found) = blocks(&answer.body);
        assert_eq!(roots, [head.commit]);
        let tree = Tree::open(head.data, &found).expect("the root is there");
        let value = tree.get(&format!("{COLLECTION}/{rkey}"), &found).expect("the way is there");
        assert_eq!(value.is_some_and(|cid| found.contains_key(&cid)), there, "{rkey}");
    }
}

#[test]
fn single_blocks_are_found_or_named_as_missing() {
    let server = Server::start();
    let account = server.account();
    let made = server.post(&account, "one", "x");
    let (cid, commit) = (made["cid"].as_str().expect("text"), made["commit"]["cid"].as_str().expect("text"));
    let answer = server.query("com.atproto.sync.getBlocks", &format!("did={}&cids={cid}&cids={commit}", account.did));
    let found: Vec<String> = blocks(&answer.body).1.keys().map(ToString::to_string).collect();
    assert!(found.len() == 2 && found.iter().any(|found| found == cid) && found.iter().any(|found| found == commit));
    let other = "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a";
    let ask = |cids: &str| server.query("com.atproto.sync.getBlocks", &format!("did={}{cids}", account.did)).refused();
    assert_eq!(ask(&format!("&cids={other}")), (400, "BlockNotFound".to_owned()));
    assert_eq!(ask(""), (400, "InvalidRequest".to_owned()));
    assert_eq!(ask("&cids=x"), (400, "InvalidRequest".to_owned()));
}
