//! Records: written by their owner, read by anybody.

use crate::server::{COLLECTION, Server};
use serde_json::{Value, json};

fn record(text: &str) -> Value {
    json!({ "$type": COLLECTION, "text": text })
}

#[test]
fn a_record_is_created_read_listed_and_deleted() {
    let server = Server::start();
    let account = server.account();
    let did = account.did.as_str();
    let made = server.post(&account, "one", "first");
    assert_eq!(made["uri"], format!("at://{did}/{COLLECTION}/one"));
    assert_eq!(made["validationStatus"], "unknown");
    let head = server.row(account.id).head.expect("a head");
    assert_eq!(made["commit"], json!({ "cid": head.commit.to_string(), "rev": head.rev.to_string() }));
    for repo in [did, account.handle.as_str()] {
        let read = server.query("com.atproto.repo.getRecord", &format!("repo={repo}&collection={COLLECTION}&rkey=one"));
        assert_eq!(read.ok(), json!({ "uri": made["uri"], "cid": made["cid"], "value": record("first") }));
    }
    let told = server.query("com.atproto.repo.describeRepo", &format!("repo={did}")).ok();
    assert_eq!(told["collections"], json!([COLLECTION]));
    assert_eq!((&told["did"], &told["handle"]), (&json!(did), &json!(account.handle.as_str())));
    assert_eq!(told["didDoc"]["id"], did);
    let delete = json!({ "repo": did, "collection": COLLECTION, "rkey": "one" });
    assert!(server.write(&account, "deleteRecord", &delete).ok()["commit"]["rev"].is_string());
    let read = server.query("com.atproto.repo.getRecord", &format!("repo={did}&collection={COLLECTION}&rkey=one"));
    assert_eq!(read.refused(), (400, "RecordNotFound".to_owned()));
    assert_eq!(server.write(&account, "deleteRecord", &delete).ok(), json!({}), "nothing is there: no commit");
}

/// A commit for nothing would tell every reader of the stream that something changed.
#[test]
fn a_put_of_the_same_content_makes_no_commit_and_no_frame() {
    let server = Server::start();
    let account = server.account();
    let put = |text: &str| {
        let input =
            json!({ "repo": account.did.as_str(), "collection": COLLECTION, "rkey": "self", "record": record(text) });
        server.write(&account, "putRecord", &input).ok()
    };
    let first = put("a");
    let newest = server.host.state(|state| state.events.newest);
    let again = put("a");
    assert_eq!((&again["cid"], &again["uri"]), (&first["cid"], &first["uri"]));
    assert!(again.get("commit").is_none() && first["commit"]["cid"].is_string());
    assert_eq!(server.host.state(|state| state.events.newest), newest);
    assert_ne!(put("b")["cid"], first["cid"]);
    assert!(server.host.state(|state| state.events.newest) > newest);
}

#[test]
fn a_swap_of_something_else_is_refused_and_writes_nothing() {
    let server = Server::start();
    let account = server.account();
    let did = account.did.as_str();
    let made = server.post(&account, "one", "first");
    let (commit, cid) = (made["commit"]["cid"].clone(), made["cid"].clone());
    let put = |more: Value| {
        let mut input = json!({ "repo": did, "collection": COLLECTION, "rkey": "one", "record": record("new") });
        for (key, value) in more.as_object().expect("an object") {
            input[key] = value.clone();
        }
        server.write(&account, "putRecord", &input)
    };
    let swapped = (400, "InvalidSwap".to_owned());
    assert_eq!(put(json!({ "swapRecord": null })).refused(), swapped, "there is one");
    assert_eq!(put(json!({ "swapRecord": commit })).refused(), swapped);
    assert_eq!(put(json!({ "swapCommit": cid })).refused(), swapped);
    let delete = json!({ "repo": did, "collection": COLLECTION, "rkey": "one", "swapRecord": commit });
    assert_eq!(server.write(&account, "deleteRecord", &delete).refused(), swapped);
    let apply = json!({ "repo": did, "writes": [], "swapCommit": cid });
    assert_eq!(server.write(&account, "applyWrites", &apply).status, 400);
    assert_eq!(put(json!({ "swapRecord": "nonsense" })).refused().1, "InvalidRequest");
    assert_eq!(server.row(account.id).head.expect("a head").commit.to_string(), commit.as_str().expect("text"));
    assert!(put(json!({ "swapRecord": cid, "swapCommit": commit })).ok()["commit"].is_object());
    let mut fresh = json!({ "repo": did, "collection": COLLECTION, "rkey": "two", "record": record("x") });
    fresh["swapRecord"] = Value::Null;
    assert!(server.write(&account, "putRecord", &fresh).ok()["commit"].is_object(), "nothing was there");
}

/// Other servers stored 867 records with floats or malformed CBOR, which no strict reader of the stream accepts.
#[test]
fn a_record_that_breaks_the_data_model_is_refused_whatever_validate_says_and_by_whichever_method() {
    let server = Server::start();
    let account = server.account();
    let head = server.row(account.id).head;
    let nested = (0..130).fold(json!(1), |inner, _| json!([inner]));
    let bad = [
        json!({ "x": 1.5 }),
        json!({ "x": 9_007_199_254_740_992_i64 }),
        json!({ "x": { "$link": "nonsense" } }),
        json!({ "x": { "$bytes": "?" } }),
        json!({ "x": { "$link": "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a", "y": 1 } }),
        json!({ "x": { "$type": "" } }),
        json!({ "x": { "$type": "blob", "ref": "no" } }),
        json!({ "$type": "com.example.other" }),
        json!({ "$type": 7 }),
        json!({ "x": nested }),
        json!([]),
        json!("text"),
    ];
    for value in bad {
        for validate in [None, Some(true), Some(false)] {
            let did = account.did.as_str();
            let mut input = json!({ "repo": did, "collection": COLLECTION, "rkey": "a", "record": value });
            let write =
                json!({ "$type": "com.atproto.repo.applyWrites#create", "collection": COLLECTION, "value": value });
            let mut apply = json!({ "repo": did, "writes": [write] });
            if let Some(validate) = validate {
                (input["validate"], apply["validate"]) = (validate.into(), validate.into());
            }
            for (method, input) in [("createRecord", &input), ("putRecord", &input), ("applyWrites", &apply)] {
                let refused = server.write(&account, method, input).refused();
                assert_eq!(refused, (400, "InvalidRequest".to_owned()), "{method} {value} {validate:?}");
            }
        }
    }
    let twice = format!(r#"{{"repo":"{}","collection":"{COLLECTION}","record":{{"a":1,"a":2}}}}"#, account.did);
    let authorization = format!("Bearer {}", account.did);
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    let answer = crate::wire::ask(
        server.address,
        "POST",
        "/xrpc/com.atproto.repo.createRecord",
        &headers,
        Some(twice.as_bytes()),
    );
    assert_eq!(answer.refused().0, 400);
    assert_eq!(server.row(account.id).head, head, "nothing was written");
}

#[test]
fn validation_that_cannot_be_done_is_refused_and_nothing_else_claims_it() {
    let server = Server::start();
    let account = server.account();
    let create = |validate: Value| {
        let mut input =
            json!({ "repo": account.did.as_str(), "collection": COLLECTION, "record": { "text": "no type" } });
        input["validate"] = validate;
        server.write(&account, "createRecord", &input)
    };
    let refused = create(json!(true));
    assert_eq!(refused.refused(), (400, "InvalidRequest".to_owned()));
    assert!(refused.json()["message"].as_str().expect("text").contains("lexicons"));
    for validate in [json!(false), json!(null)] {
        let made = create(validate).ok();
        assert_eq!(made["validationStatus"], "unknown");
        let rkey = made["uri"].as_str().and_then(|uri| uri.rsplit('/').next()).expect("a key").to_owned();
        assert_eq!(rkey.len(), 13, "a TID was drawn");
        let query = format!(
            "repo={}&collection={COLLECTION}&rkey={rkey}&cid={}",
            account.did,
            made["cid"].as_str().expect("text")
        );
        assert_eq!(server.query("com.atproto.repo.getRecord", &query).ok()["value"]["$type"], COLLECTION, "added");
    }
}

#[test]
fn writes_of_a_batch_are_one_commit_and_all_or_nothing() {
    let server = Server::start();
    let account = server.account();
    let did = account.did.as_str();
    server.post(&account, "old", "x");
    let write = |kind: &str, rkey: &str, value: Option<Value>| {
        let mut write =
            json!({ "$type": format!("com.atproto.repo.applyWrites#{kind}"), "collection": COLLECTION, "rkey": rkey });
        if let Some(value) = value {
            write["value"] = value;
        }
        write
    };
    let bad = json!({ "repo": did, "writes": [write("create", "a", Some(record("a"))), write("update", "none", Some(record("b")))] });
    let before = server.row(account.id).head;
    assert_eq!(server.write(&account, "applyWrites", &bad).refused(), (400, "InvalidRequest".to_owned()));
    assert_eq!(server.row(account.id).head, before);
    let good = json!({ "repo": did, "writes": [
        write("create", "a", Some(record("a"))),
        write("update", "old", Some(record("b"))),
        write("delete", "old2", None),
    ]});
    assert_eq!(server.write(&account, "applyWrites", &good).status, 400, "there is nothing to delete");
    server.post(&account, "old2", "y");
    let told = server.write(&account, "applyWrites", &good).ok();
    let kinds: Vec<&str> =
        told["results"].as_array().expect("a list").iter().filter_map(|one| one["$type"].as_str()).collect();
    assert_eq!(
        kinds,
        ["createResult", "updateResult", "deleteResult"].map(|kind| format!("com.atproto.repo.applyWrites#{kind}"))
    );
    assert_eq!(told["results"][1]["uri"], format!("at://{did}/{COLLECTION}/old"));
    for odd in [
        json!({ "$type": "other", "collection": COLLECTION }),
        write("create", "b", None),
        json!({ "$type": "com.atproto.repo.applyWrites#delete", "collection": COLLECTION }),
    ] {
        assert_eq!(
            server.write(&account, "applyWrites", &json!({ "repo": did, "writes": [odd] })).status,
            400,
            "{odd}"
        );
    }
}

/// Others refuse a body of a megabyte, though the writes of one legal event may need more.
#[test]
fn two_hundred_writes_of_an_event_that_is_nearly_full_are_taken_and_one_more_is_not() {
    let server = Server::start();
    let account = server.account();
    let writes = |count: usize, bytes: usize| {
        let writes: Vec<Value> = (0..count)
            .map(|number| {
                json!({
                    "$type": "com.atproto.repo.applyWrites#create",
                    "collection": COLLECTION,
                    "rkey": format!("key{number}"),
                    // Two bytes of JSON for one of the record.
                    "value": record(&format!("{number}{}", "\n".repeat(bytes))),
                })
            })
            .collect();
        server.write(&account, "applyWrites", &json!({ "repo": account.did.as_str(), "writes": writes }))
    };
    assert_eq!(writes(201, 1).refused(), (400, "InvalidRequest".to_owned()));
    assert_eq!(writes(200, 10_000).refused(), (413, "PayloadTooLarge".to_owned()));
    assert_eq!(writes(1, 1_000_001).refused(), (413, "RecordTooLarge".to_owned()));
    assert_eq!(writes(200, 9_500).ok()["results"].as_array().expect("a list").len(), 200);
}

#[test]
fn a_list_is_read_page_by_page_whatever_is_added_meanwhile() {
    let server = Server::start();
    let account = server.account();
    for number in 0..10 {
        server.post(&account, &format!("k{number}"), "x");
    }
    let page = |more: &str| {
        let query = format!("repo={}&collection={COLLECTION}&limit=4{more}", account.did);
        let told = server.query("com.atproto.repo.listRecords", &query).ok();
        let uris = told["records"].as_array().expect("a list").iter().filter_map(|one| one["uri"].as_str());
        let keys: Vec<String> = uris.map(|uri| uri.rsplit('/').next().unwrap_or_default().to_owned()).collect();
        (keys, told["cursor"].as_str().map(str::to_owned))
    };
    let (first, cursor) = page("");
    assert_eq!(first, ["k9", "k8", "k7", "k6"], "the newest first");
    server.post(&account, "k65", "between, and before the cursor");
    server.post(&account, "k55", "behind the cursor");
    let (second, cursor) = page(&format!("&cursor={}", cursor.expect("more")));
    assert_eq!(second, ["k55", "k5", "k4", "k3"]);
    let (third, cursor) = page(&format!("&cursor={}", cursor.expect("more")));
    assert_eq!((third.join(" ").as_str(), cursor), ("k2 k1 k0", None));
    let (ascending, cursor) = page("&reverse=true");
    assert_eq!(ascending, ["k0", "k1", "k2", "k3"]);
    assert_eq!(page(&format!("&reverse=true&cursor={}", cursor.expect("more"))).0[0], "k4");
    for bad in ["&limit=0", "&limit=101", "&cursor=a/b", "&reverse=maybe"] {
        let query = format!("repo={}&collection={COLLECTION}{bad}", account.did);
        assert_eq!(server.query("com.atproto.repo.listRecords", &query).status, 400, "{bad}");
    }
}

#[test]
fn nobody_writes_to_the_repository_of_somebody_else() {
    let server = Server::start();
    let (account, other) = (server.account(), server.account());
    let input = json!({ "repo": other.did.as_str(), "collection": COLLECTION, "record": record("x") });
    assert_eq!(server.write(&account, "createRecord", &input).refused(), (403, "Forbidden".to_owned()));
    let input = json!({ "repo": account.handle.as_str(), "collection": COLLECTION, "record": record("x") });
    assert!(server.write(&account, "createRecord", &input).ok()["uri"].is_string(), "a handle names it as well");
    let path = "/xrpc/com.atproto.repo.createRecord";
    let json = [("content-type", "application/json")];
    let answer = crate::wire::ask(server.address, "POST", path, &json, Some(input.to_string().as_bytes()));
    assert_eq!(answer.refused(), (401, "AuthMissing".to_owned()));
}
