//! What is refused for its size, its form, or because it comes too often.

use crate::server::{COLLECTION, Server};
use crate::wire::{self, Answer};
use serde_json::json;
use std::io::{Read, Write};

fn send(server: &Server, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    wire::ask(server.address, "POST", "/xrpc/com.atproto.repo.createRecord", headers, Some(body))
}

#[test]
fn a_body_that_is_no_input_is_refused_with_a_reason() {
    let server = Server::start();
    let account = server.account();
    let authorization = format!("Bearer {}", account.did);
    let with = |kind: &'static str| [("authorization", authorization.as_str()), ("content-type", kind)];
    let json = with("application/json");
    let good = json!({ "repo": account.did.as_str(), "collection": COLLECTION, "record": { "text": "x" } }).to_string();
    let deep =
        format!(r#"{{"repo":"x","collection":"{COLLECTION}","record":{}1{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    for body in
        ["", "{", "null", "[]", "{\"repo\":1}", "\u{fffd}", &deep, &format!("{good}x"), "{\"repo\":\"\\ud800\"}"]
    {
        assert_eq!(send(&server, &json, body.as_bytes()).refused(), (400, "InvalidRequest".to_owned()), "{body:.40}");
    }
    assert_eq!(send(&server, &json, &[0xff, 0xfe]).refused().0, 400);
    assert_eq!(send(&server, &with("text/plain"), good.as_bytes()).refused(), (415, "UnsupportedMediaType".to_owned()));
    let compressed = [json.as_slice(), &[("content-encoding", "gzip")]].concat();
    assert_eq!(send(&server, &compressed, good.as_bytes()).refused().0, 415);
    assert_eq!(send(&server, &with("application/json; charset=utf-8"), good.as_bytes()).status, 200);
    let query = "/xrpc/com.atproto.sync.getRepo?did=%zz";
    assert_eq!(server.get(query).refused(), (400, "InvalidRequest".to_owned()));
}

#[test]
fn a_body_beyond_the_limit_is_refused_before_it_is_read_and_a_slow_one_is_given_up() {
    let server = Server::with(
        |options| {
            options.json_bytes_max = 10_000;
            options.body_idle_ms_max = 100;
        },
        |_| (),
    );
    let account = server.account();
    let authorization = format!("Bearer {}", account.did);
    let head = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    assert_eq!(send(&server, &head, &vec![b' '; 10_001]).refused(), (413, "PayloadTooLarge".to_owned()));
    let mut slow = wire::connect(server.address);
    let request = format!(
        "POST /xrpc/com.atproto.repo.createRecord HTTP/1.1\r\nhost: pds.test\r\nauthorization: {authorization}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{{"
    );
    slow.write_all(request.as_bytes()).expect("taken");
    let mut answer = String::new();
    slow.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("RequestTimeout"), "{answer}");
}

/// Five requests whose bodies were announced and never came held all the room for bodies, and nobody could even log in.
#[test]
fn bodies_that_do_not_come_keep_no_room_from_those_that_do() {
    let server = Server::with(|options| options.bodies_bytes_max = 2 * options.json_bytes_max, |_| ());
    let account = server.account();
    let begun: Vec<_> = (0..6)
        .map(|_| {
            let mut stream = wire::connect(server.address);
            let head = format!(
                "POST /xrpc/com.atproto.repo.createRecord HTTP/1.1\r\nhost: pds.test\r\nexpect: 100-continue\r\n\
                 authorization: Bearer {}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
                account.did
            );
            stream.write_all(head.as_bytes()).expect("taken");
            let mut asked = [0; 12];
            stream.read_exact(&mut asked).expect("an answer");
            assert_eq!(&asked, b"HTTP/1.1 100");
            stream
        })
        .collect();
    server.post(&server.account(), "one", "x");
    server.post(&account, "one", "x");
    drop(begun);
}

/// Room for bodies is shared: whoever fills it keeps half of it for others.
#[test]
fn bodies_of_one_account_leave_room_for_those_of_others() {
    let server = Server::with(|options| options.bodies_bytes_max = 1 << 20, |_| ());
    let (greedy, other) = (server.account(), server.account());
    let text = "x".repeat(700_000);
    let record = json!({ "$type": COLLECTION, "text": text });
    let input = json!({ "repo": greedy.did.as_str(), "collection": COLLECTION, "record": record });
    let refused = server.write(&greedy, "createRecord", &input);
    assert_eq!(refused.refused(), (429, "RateLimitExceeded".to_owned()));
    server.post(&greedy, "one", "x");
    server.post(&other, "one", &"x".repeat(300_000));
}

#[test]
fn whoever_asks_too_often_hears_when_to_come_back() {
    let server = Server::with(
        |options| {
            options.rates.enabled = true;
            options.rates.requests_per_5_min = 8;
            options.rates.points_per_hour = 7;
        },
        |_| (),
    );
    let account = server.account();
    let told = |answer: &Answer, name: &str| answer.header(name).and_then(|value| value.parse::<u64>().ok());
    let health = server.get("/xrpc/_health");
    assert_eq!((told(&health, "ratelimit-limit"), told(&health, "ratelimit-remaining")), (Some(8), Some(7)));
    assert_eq!(health.header("ratelimit-policy"), Some("8;w=300"));
    server.post(&account, "one", "x");
    server.post(&account, "two", "x");
    let create = json!({ "repo": account.did.as_str(), "collection": COLLECTION, "record": { "text": "x" } });
    let refused = server.write(&account, "createRecord", &create);
    assert_eq!(refused.refused(), (429, "RateLimitExceeded".to_owned()));
    assert_eq!((told(&refused, "ratelimit-limit"), told(&refused, "ratelimit-remaining")), (Some(7), Some(1)));
    assert!(told(&refused, "retry-after").is_some_and(|seconds| (1..=3_600).contains(&seconds)));
    let delete = json!({ "repo": account.did.as_str(), "collection": COLLECTION, "rkey": "one" });
    let deleted = server.write(&account, "deleteRecord", &delete);
    assert_eq!((deleted.status, told(&deleted, "ratelimit-remaining")), (200, Some(0)), "one point was left");
    let statuses: Vec<u16> = (0..4).map(|_| server.get("/xrpc/_health").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert!(server.get("/xrpc/_health").header("access-control-allow-origin") == Some("*"), "pages hear it as well");
}

#[test]
fn any_page_may_ask_and_read_what_it_needs() {
    let server = Server::start();
    let headers = [("origin", "https://app.example"), ("access-control-request-headers", "authorization, x-own")];
    let preflight = wire::ask(server.address, "OPTIONS", "/xrpc/com.atproto.repo.createRecord", &headers, None);
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-headers"), Some("authorization, x-own"));
    assert_eq!(preflight.header("access-control-allow-origin"), Some("*"));
    for path in ["/xrpc/_health", "/xrpc/none.such.method", "/.well-known/did.json"] {
        let answer = server.get(path);
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{path}");
        let exposed = answer.header("access-control-expose-headers").expect("a list");
        assert!(["DPoP-Nonce", "WWW-Authenticate", "RateLimit-Reset"].iter().all(|name| exposed.contains(name)));
        assert!(!answer.header("server").unwrap_or_default().contains("atproto-relay"));
    }
}
