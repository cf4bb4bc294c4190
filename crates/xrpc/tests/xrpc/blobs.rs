//! Blobs over sockets.

use crate::home::{CHEAP, Home, PASSWORD, refused};
use crate::server::COLLECTION;
use crate::wire::{self, Answer};
use highwater_pds::Account;
use highwater_pds::lifecycle::Change;
use serde_json::{Value, json};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR and so on";

struct Artist {
    home: Home,
    account: Account,
    token: String,
}

impl Artist {
    fn new(home: Home) -> Self {
        let account = home.account();
        let token = home.login(account.handle.as_str(), PASSWORD).access;
        Self { home, account, token }
    }

    fn send(&self, kind: &str, bytes: &[u8]) -> Answer {
        let authorization = format!("Bearer {}", self.token);
        let headers = [("authorization", authorization.as_str()), ("content-type", kind)];
        wire::ask(self.home.server.address, "POST", "/xrpc/com.atproto.repo.uploadBlob", &headers, Some(bytes))
    }

    /// Uploads, and gives the reference for a record.
    fn upload(&self, kind: &str, bytes: &[u8]) -> Value {
        self.send(kind, bytes).ok()["blob"].clone()
    }

    fn put(&self, rkey: &str, blobs: &[&Value]) -> Answer {
        let record = json!({ "$type": COLLECTION, "pictures": blobs });
        let input =
            json!({ "repo": self.account.did.as_str(), "collection": COLLECTION, "rkey": rkey, "record": record });
        self.home.call("com.atproto.repo.putRecord", &self.token, Some(input))
    }

    fn delete(&self, rkey: &str) {
        let input = json!({ "repo": self.account.did.as_str(), "collection": COLLECTION, "rkey": rkey });
        self.home.call("com.atproto.repo.deleteRecord", &self.token, Some(input)).ok();
    }

    fn get(&self, blob: &Value) -> Answer {
        let cid = blob["ref"]["$link"].as_str().expect("a CID");
        self.home.server.query("com.atproto.sync.getBlob", &format!("did={}&cid={cid}", self.account.did))
    }

    fn list(&self, query: &str) -> Answer {
        self.home.server.query("com.atproto.sync.listBlobs", &format!("did={}{query}", self.account.did))
    }

    fn listed(&self, query: &str) -> Vec<String> {
        let cids = self.list(query).ok()["cids"].as_array().expect("a list").clone();
        cids.iter().map(|cid| cid.as_str().expect("a CID").to_owned()).collect()
    }
}

fn not_found() -> (u16, String) {
    refused(400, "BlobNotFound")
}

#[test]
fn a_blob_is_public_from_its_first_reference_to_its_last() {
    let artist = Artist::new(Home::new());
    let picture = artist.upload("application/octet-stream", PNG);
    assert_eq!((&picture["mimeType"], &picture["size"]), (&json!("image/png"), &json!(PNG.len())), "as its bytes say");
    assert_eq!(artist.get(&picture).refused(), not_found(), "temporary");
    assert_eq!(artist.listed(""), [""; 0]);
    artist.put("one", &[&picture]).ok();
    let answer = artist.get(&picture);
    assert_eq!((answer.status, answer.body.as_slice()), (200, PNG));
    for (name, value) in [
        ("content-type", "image/png"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("x-content-type-options", "nosniff"),
        ("content-disposition", "attachment"),
        ("access-control-allow-origin", "*"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    artist.put("two", &[&picture]).ok();
    artist.delete("one");
    assert_eq!(artist.get(&picture).status, 200, "one record refers to it");
    artist.delete("two");
    assert_eq!(artist.get(&picture).refused(), not_found());
    assert_eq!(
        artist.put("three", &[&picture]).refused(),
        not_found(),
        "it is gone, and refused like one that never was"
    );
}

#[test]
fn a_record_with_a_blob_that_is_not_there_or_is_another_is_refused_and_nothing_is_written() {
    let artist = Artist::new(Home::new());
    let mut picture = artist.upload("image/png", PNG);
    picture["ref"]["$link"] = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq".into();
    assert_eq!(artist.put("one", &[&picture]).refused(), not_found());
    for (field, value) in [("size", json!(1)), ("mimeType", json!("image/jpeg"))] {
        let mut picture = artist.upload("image/png", PNG);
        picture[field] = value;
        assert_eq!(artist.put("one", &[&picture]).refused(), refused(400, "InvalidRequest"), "{field}");
    }
    let records = artist
        .home
        .server
        .query("com.atproto.repo.listRecords", &format!("repo={}&collection={COLLECTION}", artist.account.did));
    assert_eq!(records.ok()["records"], json!([]));
}

#[test]
fn blobs_are_listed_by_page_and_since_a_revision() {
    let artist = Artist::new(Home::new());
    let mut rev = String::new();
    for number in 0..5 {
        let blob = artist.upload("text/plain", format!("blob {number}").as_bytes());
        let written = artist.put(&format!("key{number}"), &[&blob]).ok();
        if number == 2 {
            rev = written["commit"]["rev"].as_str().expect("a revision").to_owned();
        }
    }
    let all = artist.listed("");
    assert_eq!(all.len(), 5);
    let mut paged = Vec::new();
    let mut cursor = String::new();
    for _ in 0..3 {
        let page = artist.list(&format!("&limit=2{cursor}")).ok();
        paged.extend(page["cids"].as_array().expect("a list").iter().filter_map(Value::as_str).map(str::to_owned));
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(paged, all);
    assert_eq!(artist.listed(&format!("&since={rev}")).len(), 2);
    for bad in ["&limit=0", "&limit=1001", "&cursor=x", "&since=x"] {
        assert_eq!(artist.list(bad).refused(), refused(400, "InvalidRequest"), "{bad}");
    }
}

#[test]
fn an_upload_is_bounded_and_a_refused_one_leaves_nothing() {
    let artist = Artist::new(Home::with(|options| options.blob_bytes_max = 300_000, CHEAP));
    let large = vec![7; 300_000];
    let blob = artist.upload("text/plain", &large);
    artist.put("one", &[&blob]).ok();
    assert_eq!(artist.get(&blob).body, large);
    assert_eq!(artist.send("text/plain", &vec![7; 300_001]).refused(), refused(413, "BlobTooLarge"));
    assert_eq!(artist.send("text/plain", b"").refused(), refused(400, "InvalidRequest"));
    let authorization = format!("Bearer {}", artist.token);
    // Without a length, the bound is met on the way.
    let mut body = b"61a80\r\n".to_vec();
    body.extend(vec![7; 400_000]);
    body.extend(b"\r\n0\r\n\r\n");
    let answer = chunked(&artist, &authorization, &body);
    assert!(answer.contains("413") && answer.contains("BlobTooLarge"), "{answer}");
    let id = artist.account.id;
    let rows = artist.home.server.host.state(|state| state.blobs[&id].0.len());
    assert_eq!(rows, 1);
    let files = artist.home.server.host.paths().blobs_of(id);
    assert_eq!(std::fs::read_dir(files).expect("a folder").count(), 1);
    let none = wire::ask(artist.home.server.address, "POST", "/xrpc/com.atproto.repo.uploadBlob", &[], Some(b"x"));
    assert_eq!(none.refused(), refused(401, "AuthMissing"));
}

fn chunked(artist: &Artist, authorization: &str, body: &[u8]) -> String {
    use std::io::{Read, Write};
    let mut stream = wire::connect(artist.home.server.address);
    let head = format!(
        "POST /xrpc/com.atproto.repo.uploadBlob HTTP/1.1\r\nhost: pds.test\r\nconnection: close\r\n\
         authorization: {authorization}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("taken");
    let _sent = stream.write_all(body);
    let mut answer = Vec::new();
    let _ended = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn an_account_that_is_not_active_serves_no_blobs_and_takes_none() {
    let artist = Artist::new(Home::new());
    let picture = artist.upload("image/png", PNG);
    artist.put("one", &[&picture]).ok();
    for (stop, go, name, upload) in [
        (Change::Lock, Change::Lift, "RepoSuspended", "AccountTakedown"),
        (Change::TakeDown, Change::Restore, "RepoTakendown", "AccountTakedown"),
        (Change::Deactivate, Change::Reactivate, "RepoDeactivated", "AccountDeactivated"),
    ] {
        artist.home.change(&artist.account, stop);
        for answer in [artist.get(&picture), artist.list("")] {
            assert_eq!(answer.refused(), refused(400, name), "{stop:?}");
        }
        assert_eq!(artist.send("image/png", PNG).refused(), refused(401, upload), "{stop:?}");
        artist.home.change(&artist.account, go);
        assert_eq!(artist.get(&picture).body, PNG, "{go:?}");
    }
    artist.home.change(&artist.account, Change::Erase);
    for answer in [artist.get(&picture), artist.list("")] {
        assert_eq!(answer.refused(), refused(400, "RepoNotFound"));
    }
}

#[test]
fn an_upload_that_is_under_way_when_its_account_is_locked_is_refused_at_its_end() {
    use std::io::{Read, Write};
    let artist = Artist::new(Home::new());
    let mut stream = begun(&artist).expect("begun");
    stream.write_all(b"first").expect("taken");
    let folder = artist.home.server.host.paths().blobs_of(artist.account.id);
    artist.home.change(&artist.account, Change::Lock);
    stream.write_all(b"then!").expect("taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("AccountTakedown"), "{answer}");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0, "nothing is left of it");
}

/// An upload of ten bytes of which none came yet: the server asks for them once it has a place for it. What it says else, in full.
fn begun(artist: &Artist) -> Result<std::net::TcpStream, String> {
    use std::io::{Read, Write};
    let mut stream = wire::connect(artist.home.server.address);
    let head = format!(
        "POST /xrpc/com.atproto.repo.uploadBlob HTTP/1.1\r\nhost: pds.test\r\nconnection: close\r\n\
         expect: 100-continue\r\nauthorization: Bearer {}\r\ncontent-length: 10\r\n\r\n",
        artist.token
    );
    stream.write_all(head.as_bytes()).expect("taken");
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).expect("an answer");
    let mut answer = String::from_utf8_lossy(&asked).into_owned();
    if answer.starts_with("HTTP/1.1 100") {
        return Ok(stream);
    }
    stream.read_to_string(&mut answer).expect("the rest of it");
    Err(answer)
}

/// One account began all uploads that the server takes at once and sent nothing; nobody else could upload.
#[test]
fn an_account_that_begins_many_uploads_leaves_places_for_others() {
    let artist = Artist::new(Home::with(|options| options.uploads_max = 8, CHEAP));
    let mut held = Vec::new();
    let refused = loop {
        match begun(&artist) {
            Ok(stream) => held.push(stream),
            Err(answer) => break answer,
        }
    };
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("RateLimitExceeded"), "{refused}");
    assert!(refused.contains("retry-after: "), "{refused}");
    assert_eq!(held.len(), 4, "half of what there is");
    let Artist { home, .. } = artist;
    let other = Artist::new(home);
    assert_eq!(other.send("image/png", PNG).status, 200, "another account");
}

/// A client that sent a byte now and then held a place for as long as the largest blob may take.
#[test]
fn an_upload_that_crawls_is_given_up_and_gives_its_place_back() {
    use std::io::{Read, Write};
    let artist = Artist::new(Home::with(
        |options| (options.body_grace_ms, options.body_bytes_per_second_min) = (300, 1_000),
        CHEAP,
    ));
    let mut slow = begun(&artist).expect("begun");
    slow.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("a timeout");
    let mut answer = Vec::new();
    // Never idle for long, and never done: bytes come for ten seconds.
    for _ in 0..9 {
        let mut buffer = [0; 1_024];
        match slow.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => answer.extend_from_slice(&buffer[..bytes]),
            Err(_) => {}
        }
        let _sent = slow.write_all(b"x");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let _rest = slow.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("408") && answer.contains("RequestTimeout"), "{answer}");
    let folder = artist.home.server.host.paths().blobs_of(artist.account.id);
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0, "nothing is left of it");
}

#[test]
fn damaged_bytes_of_a_blob_are_never_answered_whole() {
    let artist = Artist::new(Home::new());
    let blob = artist.upload("text/plain", &vec![1; 200_000]);
    artist.put("one", &[&blob]).ok();
    let cid = blob["ref"]["$link"].as_str().expect("a CID").parse().expect("a CID");
    let path = artist.home.server.host.paths().blob(artist.account.id, &cid);
    let mut bytes = std::fs::read(&path).expect("its file");
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).expect("damaged");
    let answer = artist.get(&blob);
    assert_eq!(answer.header("content-length"), Some("200000"));
    assert!(answer.body.len() < 200_000, "it broke off at {}", answer.body.len());
    std::fs::write(&path, &bytes[..100]).expect("cut");
    assert_eq!(artist.get(&blob).refused(), refused(500, "InternalServerError"));
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(
        artist.get(&blob).refused(),
        refused(500, "InternalServerError"),
        "a row names it: nobody asked wrongly"
    );
}

/// A copy that was restored had no files of blobs: the owner hears which are missing, and an upload brings each back.
#[test]
fn blobs_whose_files_were_lost_are_listed_until_they_are_uploaded_again() {
    let artist = Artist::new(Home::new());
    let text = |number: usize| format!("blob {number}");
    let blobs: Vec<Value> = (0..5).map(|number| artist.upload("text/plain", text(number).as_bytes())).collect();
    for (number, blob) in blobs.iter().enumerate() {
        artist.put(&format!("key{number}"), &[blob]).ok();
    }
    let _temporary = artist.upload("text/plain", b"nobody refers to it");
    let missing = |query: &str| {
        let method = format!("com.atproto.repo.listMissingBlobs{query}");
        artist.home.call(&method, &artist.token, None).ok()
    };
    let status = || {
        let told = artist.home.call("com.atproto.server.checkAccountStatus", &artist.token, None).ok();
        (told["expectedBlobs"].clone(), told["importedBlobs"].clone())
    };
    assert_eq!((missing("")["blobs"].clone(), status()), (json!([]), (json!(5), json!(5))));
    let folder = artist.home.server.host.paths().blobs_of(artist.account.id);
    std::fs::remove_dir_all(&folder).expect("lost");
    assert_eq!((missing("")["blobs"].as_array().map(Vec::len), status()), (Some(5), (json!(5), json!(0))));
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    for _ in 0..4 {
        let page = missing(&format!("?limit=2{cursor}"));
        paged.extend(page["blobs"].as_array().expect("a list").iter().cloned());
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(json!(paged), missing("")["blobs"]);
    let expected = |number: usize| {
        let uri = format!("at://{}/{COLLECTION}/key{number}", artist.account.did);
        json!({ "cid": blobs[number]["ref"]["$link"], "recordUri": uri })
    };
    assert!((0..5).all(|number| paged.contains(&expected(number))), "{paged:?}");
    artist.upload("text/plain", text(3).as_bytes());
    assert_eq!(artist.get(&blobs[3]).body, text(3).as_bytes());
    assert!(!missing("")["blobs"].as_array().expect("a list").contains(&expected(3)));
    assert_eq!(status(), (json!(5), json!(1)));
    let none = artist.home.send("com.atproto.repo.listMissingBlobs", &[], None);
    assert_eq!(none.refused(), refused(401, "AuthMissing"));
}

#[test]
fn uploads_that_nobody_refers_to_go_while_the_server_runs() {
    let artist = Artist::new(Home::with(|options| options.blob_temporary_seconds = 8, CHEAP));
    let upkeep = artist.home.server.runtime.spawn(highwater_xrpc::upkeep(artist.home.server.context.clone()));
    let (kept, lost) = (artist.upload("text/plain", b"kept"), artist.upload("text/plain", b"lost"));
    artist.put("one", &[&kept]).ok();
    artist.home.clock.advance_seconds(8);
    let rows = || artist.home.server.host.state(|state| state.blobs[&artist.account.id].0.len());
    let patience = std::time::Instant::now();
    while rows() > 1 && patience.elapsed().as_secs() < 30 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(rows(), 1);
    assert_eq!(artist.put("two", &[&lost]).refused(), not_found());
    assert_eq!(artist.get(&kept).body, b"kept");
    upkeep.abort();
}
