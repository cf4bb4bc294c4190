//! What is told of accounts in every position.

use crate::server::{COLLECTION, Server};
use highwater_pds::Account;
use highwater_pds::lifecycle::Change;
use serde_json::{Value, json};

const READS: [&str; 8] = [
    "com.atproto.repo.getRecord?repo={did}&collection=com.example.note&rkey=one",
    "com.atproto.repo.listRecords?repo={did}&collection=com.example.note",
    "com.atproto.repo.describeRepo?repo={did}",
    "com.atproto.sync.getRepo?did={did}",
    "com.atproto.sync.getRecord?did={did}&collection=com.example.note&rkey=one",
    "com.atproto.sync.getLatestCommit?did={did}",
    "com.atproto.sync.getBlocks?did={did}&cids=bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a",
    "com.atproto.sync.getHead?did={did}",
];

/// What every read of an account's repository answers.
fn reads(server: &Server, account: &Account) -> Vec<String> {
    let ask = |read: &str| server.get(&format!("/xrpc/{}", read.replace("{did}", account.did.as_str())));
    READS.iter().map(|read| ask(read).json()["error"].as_str().unwrap_or_default().to_owned()).collect()
}

fn status(server: &Server, account: &Account) -> Value {
    server.query("com.atproto.sync.getRepoStatus", &format!("did={}", account.did)).json()
}

/// Relays ask where an account stands before they believe a frame, and keep or drop it by the answer.
#[test]
fn every_position_is_told_exactly_and_nothing_is_served_of_whoever_is_not_active() {
    let server = Server::start();
    let changes: [(&[Change], &str, &str); 5] = [
        (&[Change::Lock], "suspended", "RepoSuspended"),
        (&[Change::TakeDown], "takendown", "RepoTakendown"),
        (&[Change::Deactivate], "deactivated", "RepoDeactivated"),
        (&[Change::Decommission], "deactivated", "RepoDeactivated"),
        (&[Change::Erase], "deleted", "RepoNotFound"),
    ];
    for (changes, told, error) in changes {
        let account = server.account();
        server.post(&account, "one", "x");
        let head = server.row(account.id).head.expect("a head");
        let did = account.did.as_str();
        assert_eq!(status(&server, &account), json!({ "did": did, "active": true, "rev": head.rev.to_string() }));
        for change in changes {
            server.change(&account, *change);
        }
        assert_eq!(status(&server, &account), json!({ "did": did, "active": false, "status": told }));
        assert_eq!(reads(&server, &account), [error; READS.len()], "{told}");
        let rows = server.query("com.atproto.sync.listRepos", "limit=1000").ok();
        let row = rows["repos"].as_array().expect("a list").iter().find(|row| row["did"] == did).cloned();
        let head = server.row(account.id).head.expect("it stays");
        let expected = json!({
            "did": did, "active": false, "status": told, "head": head.commit.to_string(), "rev": head.rev.to_string(),
        });
        assert_eq!(row, Some(expected));
        let write = json!({ "repo": did, "collection": COLLECTION, "record": { "text": "x" } });
        let refused = server.write(&account, "createRecord", &write).refused();
        assert!(refused.0 == 400 && refused.1.starts_with("Repo"), "{told}: {refused:?}");
    }
}

#[test]
fn an_account_that_was_not_activated_is_not_there_and_a_lift_brings_one_back() {
    let server = Server::start();
    let account = server.new_account(false);
    let missing = json!("RepoNotFound");
    assert_eq!(status(&server, &account)["error"], missing);
    let told = reads(&server, &account);
    assert!(told.iter().all(|error| error == "RepoNotFound"), "{told:?}");
    assert_eq!(server.query("com.atproto.sync.listRepos", "").ok(), json!({ "repos": [] }));
    let head = server.query("com.atproto.sync.getHead", "did=did:web:nobody.pds.test").refused();
    assert_eq!(head, (400, "HeadNotFound".to_owned()));
    let account = server.account();
    server.post(&account, "one", "x");
    server.change(&account, Change::Lock);
    server.change(&account, Change::Lift);
    assert_eq!(status(&server, &account)["active"], true);
    assert_eq!(
        server.query("com.atproto.sync.getLatestCommit", &format!("did={}", account.did)).ok()["rev"],
        status(&server, &account)["rev"]
    );
}

#[test]
fn the_list_of_repositories_is_read_page_by_page_whatever_is_added_meanwhile() {
    let server = Server::start();
    let mut dids: Vec<String> = (0..5).map(|_| server.account().did.to_string()).collect();
    let page = |cursor: &str| {
        let told = server.query("com.atproto.sync.listRepos", &format!("limit=2{cursor}")).ok();
        let repos = told["repos"].as_array().expect("a list").iter();
        let dids: Vec<String> = repos.filter_map(|row| row["did"].as_str()).map(str::to_owned).collect();
        (dids, told["cursor"].as_str().map(|cursor| format!("&cursor={cursor}")))
    };
    let (mut read, mut cursor) = page("");
    dids.push(server.account().did.to_string());
    while let Some(next) = cursor {
        let (more, then) = page(&next);
        read.extend(more);
        cursor = then;
    }
    assert_eq!(read, dids);
    for bad in ["limit=0", "limit=1001", "cursor=x", "cursor=-1"] {
        assert_eq!(server.query("com.atproto.sync.listRepos", bad).status, 400, "{bad}");
    }
}

/// A deactivated account is on its way to another host, or thinks it over: its owner takes its repository and its blobs along.
#[test]
fn the_owner_of_a_deactivated_account_exports_it_and_nobody_else_reads_it() {
    use crate::home::{Home, PASSWORD};
    let home = Home::new();
    let (owner, other) = (home.account(), home.account());
    let session = home.login(owner.handle.as_str(), PASSWORD).access;
    let stranger = home.login(other.handle.as_str(), PASSWORD).access;
    let headers = [("authorization", format!("Bearer {session}")), ("content-type", "text/plain".to_owned())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let path = "/xrpc/com.atproto.repo.uploadBlob";
    let blob = crate::wire::ask(home.server.address, "POST", path, &headers, Some(b"picture")).ok()["blob"].clone();
    let record = json!({ "$type": COLLECTION, "picture": blob });
    let input = json!({ "repo": owner.did.as_str(), "collection": COLLECTION, "rkey": "one", "record": record });
    home.call("com.atproto.repo.putRecord", &session, Some(input)).ok();
    let did = owner.did.as_str();
    let methods = [
        format!("com.atproto.sync.getRepo?did={did}"),
        format!("com.atproto.sync.getRecord?did={did}&collection={COLLECTION}&rkey=one"),
        format!("com.atproto.sync.getLatestCommit?did={did}"),
        format!("com.atproto.sync.listBlobs?did={did}"),
        format!("com.atproto.sync.getBlob?did={did}&cid={}", blob["ref"]["$link"].as_str().expect("a CID")),
        format!("com.atproto.repo.getRecord?repo={did}&collection={COLLECTION}&rkey=one"),
        format!("com.atproto.repo.listRecords?repo={did}&collection={COLLECTION}"),
        format!("com.atproto.repo.describeRepo?repo={did}"),
    ];
    let before: Vec<_> = methods.iter().map(|method| home.send(method, &[], None).body).collect();
    home.change(&owner, Change::Deactivate);
    for (method, before) in methods.iter().zip(&before) {
        let deactivated = (400, "RepoDeactivated".to_owned());
        assert_eq!(home.send(method, &[], None).refused(), deactivated, "{method}");
        assert_eq!(home.call(method, &stranger, None).refused(), deactivated, "{method}");
        let mine = home.call(method, &session, None);
        assert_eq!((mine.status, &mine.body), (200, before), "{method}");
        assert_eq!(home.call(method, "nonsense", None).refused(), (400, "InvalidToken".to_owned()), "{method}");
    }
    let status = home.call("com.atproto.server.checkAccountStatus", &session, None).ok();
    assert_eq!((&status["indexedRecords"], &status["expectedBlobs"]), (&json!(1), &json!(1)));
    home.change(&owner, Change::Lock);
    for method in &methods {
        assert_ne!(home.call(method, &session, None).status, 200, "{method}");
    }
}
