//! What one request or one answer may take of what all share.

use crate::home::Home;
use crate::server::{COLLECTION, Server};
use crate::wire::{self, Answer};
use highwater_pds::Account;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read, Write};

fn send(server: &Server, account: &Account, method: &str, body: &str) -> Answer {
    let authorization = format!("Bearer {}", account.did);
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    wire::ask(server.address, "POST", &format!("/xrpc/com.atproto.repo.{method}"), &headers, Some(body.as_bytes()))
}

/// Thirteen megabytes of nested lists became more than a gigabyte of values, and only then was the record's size looked at. What
/// comes behind the megabyte is not even looked at now: that it is no data goes unnoticed.
#[test]
fn a_record_is_refused_at_its_millionth_byte_and_not_when_all_of_it_is_in_memory() {
    let server = Server::start();
    let account = server.account();
    let head = server.row(account.id).head;
    let nested = format!("[{}1.5]", "[[[0]]],".repeat(500_000));
    let text = format!("[\"{}\",1.5]", "x".repeat(1_000_000));
    for long in [nested, text] {
        let record = format!("{{\"$type\":\"{COLLECTION}\",\"x\":{long}}}");
        let did = account.did.as_str();
        let one = format!(r#"{{"repo":"{did}","collection":"{COLLECTION}","rkey":"a","record":{record}}}"#);
        let write = format!(
            r#"{{"$type":"com.atproto.repo.applyWrites#create","collection":"{COLLECTION}","rkey":"a","value":{record}}}"#
        );
        let small = write.replace(&long, "1");
        let batch = format!(r#"{{"repo":"{did}","writes":[{small},{write}]}}"#);
        for (method, body) in [("createRecord", &one), ("putRecord", &one), ("applyWrites", &batch)] {
            let refused = send(&server, &account, method, body);
            assert_eq!(refused.refused(), (413, "RecordTooLarge".to_owned()), "{method}");
            assert!(refused.json()["message"].as_str().expect("text").contains("1000000"), "{method}");
        }
    }
    assert_eq!(server.row(account.id).head, head, "nothing was written");
}

/// A megabyte of keys in descending order took a processor most of a minute, and two such requests all of a small server.
#[test]
fn an_object_with_keys_in_the_worst_order_is_taken_like_any_other() {
    let server = Server::start();
    let account = server.account();
    let mut record = String::from("{");
    (0..140_000).rev().for_each(|number| write!(record, "\"{number:05x}\":0,").expect("text"));
    write!(record, "\"$type\":\"{COLLECTION}\"}}").expect("text");
    let did = account.did.as_str();
    let body = format!(r#"{{"repo":"{did}","collection":"{COLLECTION}","rkey":"a","record":{record}}}"#);
    assert!(send(&server, &account, "createRecord", &body).ok()["cid"].is_string());
}

#[test]
fn a_login_may_have_a_few_kilobytes_and_is_refused_beyond_them_unread() {
    let home = Home::new();
    let account = home.account();
    for (headers, more) in [("content-length: 13000000", ""), ("transfer-encoding: chunked", "5000\r\n")] {
        let mut stream = wire::connect(home.server.address);
        let head = format!(
            "POST /xrpc/com.atproto.server.createSession HTTP/1.1\r\nhost: pds.test\r\nconnection: close\r\n\
             content-type: application/json\r\n{headers}\r\n\r\n{more}"
        );
        stream.write_all(head.as_bytes()).expect("taken");
        if !more.is_empty() {
            stream.write_all(&[b' '; 0x5000]).expect("taken");
        }
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 413", "{headers}");
    }
    // A name and a password as long as they may be, in the longest form that JSON has.
    let long = |bytes: usize| "\\u0041".repeat(bytes);
    let input = format!(r#"{{"identifier":"{}","password":"{}"}}"#, long(2_048), long(512));
    let json = [("content-type", "application/json")];
    let path = "/xrpc/com.atproto.server.createSession";
    let answer = wire::ask(home.server.address, "POST", path, &json, Some(input.as_bytes()));
    assert_eq!(answer.refused(), (401, "AuthenticationRequired".to_owned()));
    home.login(account.did.as_str(), crate::home::PASSWORD);
}

/// What a client sent came back in the refusal, several times as long.
#[test]
fn refusals_do_not_repeat_what_they_refuse() {
    let server = Server::start();
    let account = server.account();
    let (did, long) = (account.did.as_str(), "\u{7f}".repeat(1_000_000));
    let input = |collection: &str, rkey: &str| {
        json!({ "repo": did, "collection": collection, "rkey": rkey, "record": { "x": 1 } }).to_string()
    };
    let kind = json!({ "repo": did, "writes": [{ "$type": long, "collection": COLLECTION }] }).to_string();
    let text = json!(long).to_string();
    for (method, body) in [
        ("createRecord", input(&long, "a")),
        ("putRecord", input(COLLECTION, &long)),
        ("applyWrites", kind),
        ("deleteRecord", text),
    ] {
        let refused = send(&server, &account, method, &body);
        assert_eq!(refused.refused(), (400, "InvalidRequest".to_owned()), "{method}");
        assert!(refused.body.len() < 20_000, "{method}: {}", refused.body.len());
    }
}

fn large(server: &Server, account: &Account, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| server.post(account, &format!("k{number}"), &format!("{number}").repeat(900_000)))
        .map(|made| made["cid"].as_str().expect("a CID").to_owned())
        .collect()
}

/// A hundred records of a megabyte were read, decoded and written out for a single request that shows nothing.
#[test]
fn a_page_of_large_records_ends_early_and_says_where_to_go_on() {
    let server = Server::start();
    let account = server.account();
    large(&server, &account, 5);
    server.post(&account, "k5", "small");
    let (mut found, mut pages, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let query = format!("repo={}&collection={COLLECTION}&limit=100{cursor}", account.did);
        let answer = server.query("com.atproto.repo.listRecords", &query);
        assert!(answer.body.len() < 4 << 20, "{}", answer.body.len());
        let page = answer.ok();
        let records = page["records"].as_array().expect("a list");
        assert!(records.iter().all(|record| record["value"]["$type"] == COLLECTION));
        found.extend(
            records.iter().map(|record| record["uri"].as_str().expect("text").rsplit('/').next().map(str::to_owned)),
        );
        pages += 1;
        match page.get("cursor").and_then(Value::as_str) {
            Some(more) => cursor = format!("&cursor={more}"),
            None => break,
        }
    }
    let keys: Vec<_> = found.iter().flatten().map(String::as_str).collect();
    assert_eq!(keys, ["k5", "k4", "k3", "k2", "k1", "k0"], "each once, the newest first");
    assert!((2..=5).contains(&pages), "{pages}");
}

/// A thousand blocks of a megabyte were gathered, and copied once more, for a single request that shows nothing.
#[test]
fn blocks_that_are_more_than_an_answer_may_have_are_refused_with_their_size() {
    let server = Server::start();
    let account = server.account();
    let cids = large(&server, &account, 5);
    let ask = |cids: &[String]| {
        let cids: String = cids.iter().map(|cid| format!("&cids={cid}")).collect();
        server.query("com.atproto.sync.getBlocks", &format!("did={}{cids}", account.did))
    };
    let refused = ask(&cids);
    assert_eq!(refused.refused(), (400, "InvalidRequest".to_owned()));
    let message = refused.json()["message"].as_str().expect("text").to_owned();
    assert!(message.contains("bytes") && message.contains("fewer"), "{message}");
    for some in cids.chunks(2) {
        let answer = ask(some);
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() > some.len() * 900_000);
    }
}

/// One record in each of many collections made the description as large as the repository, and the work for it larger.
#[test]
fn a_description_names_a_thousand_collections_at_the_most() {
    let server = Server::start();
    let account = server.account();
    for batch in 0..6 {
        let writes: Vec<Value> = (0..200)
            .map(|number| {
                json!({
                    "$type": "com.atproto.repo.applyWrites#create",
                    "collection": format!("com.example.c{batch}x{number}"),
                    "rkey": "self",
                    "value": {},
                })
            })
            .collect();
        let input = json!({ "repo": account.did.as_str(), "writes": writes });
        server.write(&account, "applyWrites", &input).ok();
    }
    let told = server.query("com.atproto.repo.describeRepo", &format!("repo={}", account.did)).ok();
    assert_eq!(told["collections"].as_array().expect("a list").len(), 1_000);
    let authorization = format!("Bearer {}", account.did);
    let headers = [("authorization", authorization.as_str())];
    let path = "/xrpc/com.atproto.server.checkAccountStatus";
    let status = wire::ask(server.address, "GET", path, &headers, None).ok();
    assert_eq!(status["indexedRecords"], 1_200);
}
