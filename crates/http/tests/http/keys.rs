//! Keys, accounts and plans, and what each of them is answered.

use crate::fake::Fake;
use crate::wire::{Answer, Server};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub const PATH: &str = "/v1/stream/app/db";
pub const TEXT: (&str, &str) = ("content-type", "text/plain");

/// A server, and the key of whoever runs it.
pub struct Keyed {
    pub fake: Fake,
    pub server: Server,
    pub admin: String,
}

impl Keyed {
    pub fn start() -> Self {
        let fake = Fake::new();
        let server = Server::start(fake.clone());
        let made = server.ask("POST", "/v1/keys", &[], br#"{"scopes":["admin"]}"#);
        let admin = secret(&made);
        Self { fake, server, admin }
    }

    /// Asks with a key.
    pub fn ask(&self, key: &str, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let bearer = format!("Bearer {key}");
        let headers: Vec<_> = headers.iter().copied().chain([("authorization", bearer.as_str())]).collect();
        self.server.ask(method, target, &headers, body)
    }

    /// Manages as the administrator.
    pub fn manage(&self, method: &str, target: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(&self.admin, method, target, &[], body.as_bytes())
    }

    /// A new key: its id and its spelling.
    pub fn key(&self, settings: &Value) -> (String, String) {
        let made = self.manage("POST", "/v1/keys", settings);
        let key = secret(&made);
        (key[3..15].to_owned(), key)
    }
}

/// The key in the answer to its making.
pub fn secret(made: &Answer) -> String {
    assert_eq!(made.status, 201, "{}", made.text());
    value(made)["key"].as_str().expect("a key").to_owned()
}

pub fn value(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[test]
fn the_first_key_closes_an_open_server_at_once() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    assert_eq!(server.ask("PUT", PATH, &[TEXT], b"x").status, 201, "open");
    let reader = server.ask("POST", "/v1/keys", &[], br#"{"scopes":["read"]}"#);
    assert_eq!(reader.told(), (409, "ADMIN_KEY_FIRST".to_owned()), "nobody could manage the server afterwards");
    let foreign = [("origin", "https://example.com")];
    assert_eq!(server.ask("POST", "/v1/keys", &foreign, br#"{"scopes":["admin"]}"#).status, 403, "nor may a page");

    let made = server.ask("POST", "/v1/keys", &[], br#"{"scopes":["admin"],"note":"mine"}"#);
    let admin = format!("Bearer {}", secret(&made));
    for target in [PATH, "/metrics", "/v1/admin/status", "/v1/keys", "/nothing"] {
        let refused = server.ask("GET", target, &[], b"");
        assert_eq!(refused.told(), (401, "INVALID_CREDENTIAL".to_owned()), "{target}");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"highwater\""));
        assert_eq!(refused.header("cache-control"), Some("no-store"));
    }
    assert_eq!(server.ask("GET", PATH, &[("authorization", &admin)], b"").text(), "x");
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(server.ask("GET", probe, &[], b"").status, 200, "{probe} needs none");
    }
    let preflight = [("origin", "https://example.com"), ("access-control-request-method", "GET")];
    assert_eq!(server.ask("OPTIONS", PATH, &preflight, b"").status, 204, "a browser asks this without a key");
    let page = [("authorization", admin.as_str()), ("origin", "https://example.com")];
    assert_eq!(server.ask("GET", PATH, &page, b"").header("access-control-allow-origin"), Some("*"));
}

#[test]
fn a_server_is_open_again_only_when_its_last_key_is_revoked_on_purpose() {
    let keyed = Keyed::start();
    let (id, _) = keyed.key(&json!({ "scopes": ["admin"], "expires_in_s": 10 }));
    keyed.fake.pass(11_000);
    let target = format!("/v1/keys/{}", &keyed.admin[3..15]);
    assert_eq!(keyed.manage("DELETE", &target, &Value::Null).told(), (409, "ADMIN_KEY_LAST".to_owned()));
    assert_eq!(keyed.manage("DELETE", &format!("{target}?last=true"), &Value::Null).status, 200);
    // A key that expired is left: nobody can ask, and nothing is open.
    let refused = keyed.server.ask("GET", "/v1/keys", &[], b"");
    assert_eq!(refused.told(), (401, "INVALID_CREDENTIAL".to_owned()), "{id} expired, and was not revoked");

    let keyed = Keyed::start();
    let target = format!("/v1/keys/{}", &keyed.admin[3..15]);
    assert_eq!(keyed.manage("DELETE", &target, &Value::Null).told(), (409, "ADMIN_KEY_LAST".to_owned()));
    assert_eq!(keyed.manage("DELETE", &format!("{target}?last=true"), &Value::Null).status, 200);
    assert_eq!(keyed.server.ask("PUT", PATH, &[TEXT], b"x").status, 201);
}

#[test]
fn a_key_does_what_its_scopes_say_and_where_its_prefixes_say() {
    let keyed = Keyed::start();
    assert_eq!(keyed.ask(&keyed.admin, "PUT", PATH, &[TEXT], b"x").status, 201, "an administrator may do everything");
    let parts = format!("{PATH}/snapshot/0");
    let asks: [(&str, &str, &[&str]); 7] = [
        ("GET", PATH, &["read"]),
        ("HEAD", PATH, &["read", "append"]),
        ("PUT", PATH, &["create"]),
        ("POST", PATH, &["append"]),
        ("PUT", &parts, &["snapshot"]),
        ("GET", "/metrics", &["metrics"]),
        ("DELETE", PATH, &["delete"]),
    ];
    for scope in ["read", "append", "create", "snapshot", "metrics", "delete"] {
        // The status is the whole server's, so that no prefix bounds it.
        let (within, beside): (&[&str], &[&str]) = match scope {
            "metrics" => (&[], &[]),
            _ => (&["other", "app"], &["ap", "app/d", "app/db/snapshot"]),
        };
        let (_, inside) = keyed.key(&json!({ "scopes": [scope], "prefixes": within }));
        let (_, outside) = keyed.key(&json!({ "scopes": [scope], "prefixes": beside }));
        for (method, target, scopes) in asks {
            let told = keyed.ask(&inside, method, target, &[TEXT], b"").status;
            assert_eq!(told != 403, scopes.contains(&scope), "{scope} for {method} {target}: {told}");
            if target != "/metrics" {
                assert_eq!(keyed.ask(&outside, method, target, &[TEXT], b"").status, 403, "{scope} {method} {target}");
            }
        }
        assert_eq!(keyed.ask(&inside, "GET", "/v1/keys", &[], b"").told(), (403, "FORBIDDEN".to_owned()));
        assert_eq!(keyed.ask(&inside, "POST", "/v1/keys", &[], b"{}").told(), (403, "FORBIDDEN".to_owned()));
    }
}

/// The spelling of a path must not be a way around a prefix.
#[test]
fn a_prefix_is_compared_with_the_path_that_is_used() {
    let keyed = Keyed::start();
    let (_, key) = keyed.key(&json!({ "scopes": ["create", "read"], "prefixes": ["app/a b"] }));
    let status = |target: &str| keyed.ask(&key, "PUT", target, &[TEXT], b"x").status;
    assert_eq!(status("/v1/stream/app/a%20b/x"), 201);
    assert_eq!(status("/v1/stream/%61pp/a%20b"), 201);
    for around in ["/v1/stream/app/a%20b%2F..%2Fsecret", "/v1/stream/app/a%20b/../secret", "/v1/stream/app/a%20b//x"] {
        assert_eq!(status(around), 400, "{around}");
    }
    assert_eq!(status("/v1/stream/app/a%2520b"), 403);
    assert_eq!(status("/v1/stream/App/a%20b"), 403);
}

#[test]
fn whether_a_stream_exists_is_not_told_to_a_key_without_its_path() {
    let keyed = Keyed::start();
    keyed.ask(&keyed.admin, "PUT", PATH, &[TEXT], b"secret");
    let (_, key) =
        keyed.key(&json!({ "scopes": ["read", "append", "create", "delete", "snapshot"], "prefixes": ["x"] }));
    keyed.fake.seen();
    for method in ["GET", "HEAD", "PUT", "POST", "DELETE"] {
        let there = keyed.ask(&key, method, PATH, &[TEXT], b"");
        let missing = keyed.ask(&key, method, "/v1/stream/app/no", &[TEXT], b"");
        let known = |answer: &Answer| {
            let headers = answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect::<Vec<_>>();
            (answer.status, headers, answer.body.clone())
        };
        assert_eq!(known(&there), known(&missing), "{method}");
        assert_eq!(there.status, 403);
    }
    assert_eq!(keyed.fake.seen(), [], "the node was never asked");
}

#[test]
fn a_head_names_the_server_to_those_alone_who_may_read() {
    let keyed = Keyed::start();
    let (_, key) = keyed.key(&json!({ "scopes": ["read"], "prefixes": ["app"] }));
    let identity = |answer: &Answer| answer.header("ursula-cluster-id").is_some();
    let missing = keyed.ask(&key, "HEAD", PATH, &[], b"");
    assert!(missing.status == 404 && identity(&missing), "a stream that is gone is told from another server");
    let elsewhere = keyed.ask(&key, "HEAD", "/v1/stream/other/db", &[], b"");
    assert!(elsewhere.status == 403 && !identity(&elsewhere));
    let nobody = keyed.server.ask("HEAD", PATH, &[], b"");
    assert!(nobody.status == 401 && !identity(&nobody));
}

#[test]
fn a_secret_is_shown_once() {
    let keyed = Keyed::start();
    let (id, key) = keyed.key(&json!({ "scopes": ["read"], "prefixes": ["app"], "note": "the reader of app" }));
    let (listed, one) = (
        keyed.manage("GET", "/v1/keys", &Value::Null).text(),
        keyed.manage("GET", &format!("/v1/keys/{id}"), &Value::Null),
    );
    assert!(listed.contains(&id) && !listed.contains(&key[16..]), "{listed}");
    let told = value(&one);
    assert_eq!((&told["scopes"], &told["prefixes"]), (&json!(["read"]), &json!(["app"])));
    assert_eq!(
        (&told["state"], &told["note"], &told["key"]),
        (&json!("active"), &json!("the reader of app"), &Value::Null)
    );
}

#[test]
fn a_request_that_is_repeated_makes_one_key() {
    let keyed = Keyed::start();
    let bearer = format!("Bearer {}", keyed.admin);
    let ask = |id: &str, body: &[u8]| {
        keyed.server.ask("POST", "/v1/keys", &[("authorization", &bearer), ("request-id", id)], body)
    };
    let first = ask("r-1", br#"{"scopes":["read"]}"#);
    let again = ask("r-1", br#"{"scopes":["read"]}"#);
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(value(&first)["id"], value(&again)["id"]);
    assert_eq!(value(&again)["key"], Value::Null, "its secret was told once");
    assert_eq!(ask("r-1", br#"{"scopes":["append"]}"#).told(), (409, "REQUEST_ID_REUSED".to_owned()));
    assert_eq!(ask("r-2", br#"{"scopes":["read"]}"#).status, 201);
    // An end in seconds was counted anew by each repeat, so that no repeat ever asked for the same key.
    let first = ask("r-3", br#"{"scopes":["read"],"expires_in_s":3600}"#);
    keyed.fake.pass(30_000);
    let again = ask("r-3", br#"{"scopes":["read"],"expires_in_s":3600}"#);
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(value(&first)["expires_ms"], value(&again)["expires_ms"]);
    let other = ask("r-3", br#"{"scopes":["read"],"expires_in_s":7200}"#);
    assert_eq!(other.told(), (409, "REQUEST_ID_REUSED".to_owned()));
    assert_eq!(ask("", br#"{"scopes":["read"]}"#).told(), (400, "INVALID_REQUEST".to_owned()));
}

#[test]
fn a_credential_that_is_none_and_one_that_is_over_are_told_apart() {
    let keyed = Keyed::start();
    let (id, key) = keyed.key(&json!({ "scopes": ["read"], "expires_in_s": 5 }));
    assert_eq!(keyed.ask(&key, "GET", PATH, &[], b"").status, 404);
    let other = if &key[40..41] == "0" { "1" } else { "0" };
    let wrong = format!("{}{other}{}", &key[..40], &key[41..]);
    for token in [wrong.as_str(), "hw_", "", "x"] {
        let refused = keyed.ask(token, "GET", PATH, &[], b"");
        assert_eq!(refused.told(), (401, "INVALID_CREDENTIAL".to_owned()), "{token:?}");
        let challenge = refused.header("www-authenticate").unwrap_or_default();
        assert!(challenge.contains("invalid_token"), "{challenge}");
    }
    keyed.fake.pass(5_000);
    assert_eq!(keyed.ask(&key, "GET", PATH, &[], b"").told(), (401, "CREDENTIAL_EXPIRED".to_owned()));
    assert_eq!(keyed.ask(&wrong, "GET", PATH, &[], b"").told(), (401, "INVALID_CREDENTIAL".to_owned()));
    let later = keyed.manage("PATCH", &format!("/v1/keys/{id}"), &json!({ "expires_ms": null }));
    assert_eq!((later.status, value(&later)["state"].clone()), (200, json!("active")));
    assert_eq!(keyed.ask(&key, "GET", PATH, &[], b"").status, 404, "in force again");
    assert_eq!(keyed.manage("DELETE", &format!("/v1/keys/{id}"), &Value::Null).status, 200);
    assert_eq!(keyed.ask(&key, "GET", PATH, &[], b"").told(), (401, "INVALID_CREDENTIAL".to_owned()));
    let revoked = keyed.manage("PATCH", &format!("/v1/keys/{id}"), &json!({ "expires_ms": null }));
    assert_eq!(revoked.told(), (409, "KEY_REVOKED".to_owned()), "for good");
}

/// A server that does not know its keys is neither open nor does it take any key for granted.
#[test]
fn while_the_keys_are_not_known_nobody_is_let_in() {
    let keyed = Keyed::start();
    keyed.fake.forget_keys();
    for key in [keyed.admin.as_str(), "none"] {
        let refused = keyed.ask(key, "GET", PATH, &[], b"");
        assert_eq!(refused.told(), (503, "AUTHENTICATION_UNAVAILABLE".to_owned()));
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert_eq!(keyed.server.ask("GET", "/healthz", &[], b"").status, 200);
}

#[test]
fn the_keys_of_an_account_reach_its_buckets_until_it_is_revoked() {
    let keyed = Keyed::start();
    assert_eq!(keyed.manage("POST", "/v1/accounts", &json!({ "name": "a", "plan": "p" })).status, 404, "no plan yet");
    assert_eq!(keyed.manage("POST", "/v1/plans", &json!({ "name": "p" })).status, 201);
    assert_eq!(keyed.manage("POST", "/v1/plans", &json!({ "name": "p" })).status, 200, "the same again");
    let account = json!({ "name": "a", "plan": "p", "buckets": ["app"] });
    assert_eq!(keyed.manage("POST", "/v1/accounts", &account).status, 201);
    let taken = keyed.manage("POST", "/v1/accounts", &json!({ "name": "b", "plan": "p", "buckets": ["app"] }));
    assert_eq!(taken.told(), (409, "BUCKET_TAKEN".to_owned()));
    let (_, key) = keyed.key(&json!({ "scopes": ["create", "append"], "account": "a" }));
    assert_eq!(keyed.ask(&key, "PUT", PATH, &[TEXT], b"x").status, 201);
    assert_eq!(keyed.ask(&key, "PUT", "/v1/stream/other/db", &[TEXT], b"x").status, 403);
    assert_eq!(keyed.ask(&key, "PUT", "/v1/stream/app", &[TEXT], b"x").status, 403, "a stream without a bucket");

    assert_eq!(keyed.manage("PATCH", "/v1/accounts/a", &json!({ "revoked": true })).status, 200);
    let writer = [TEXT, ("producer-id", "w"), ("producer-epoch", "1"), ("producer-seq", "0")];
    let refused = keyed.ask(&key, "POST", PATH, &writer, b"y");
    assert_eq!(refused.told(), (403, "ACCOUNT_REVOKED".to_owned()));
    let fences = refused.headers.iter().filter(|(name, _)| name.starts_with("producer-")).count();
    assert_eq!(fences, 0, "a refusal of this layer fences nobody");
    assert_eq!(keyed.manage("PATCH", "/v1/accounts/a", &json!({ "revoked": false })).status, 200);
    assert_eq!(keyed.ask(&key, "POST", PATH, &[TEXT], b"y").status, 204);
}

#[test]
fn an_account_that_holds_what_its_plan_allows_pays_or_deletes() {
    let keyed = Keyed::start();
    keyed.manage("POST", "/v1/plans", &json!({ "name": "small", "storage_bytes_max": 1000 }));
    keyed.manage("POST", "/v1/accounts", &json!({ "name": "a", "plan": "small", "buckets": ["app", "logs"] }));
    let (_, key) = keyed.key(&json!({ "scopes": ["create", "append", "read", "delete"], "account": "a" }));
    assert_eq!(keyed.ask(&key, "PUT", PATH, &[TEXT], b"x").status, 201);
    keyed.fake.store("app", 600);
    keyed.fake.store("logs", 300);
    keyed.fake.store("strange", 9_000);
    assert_eq!(keyed.ask(&key, "POST", PATH, &[TEXT], &[b'x'; 100]).status, 204);
    for asker in [&key, &keyed.admin] {
        let refused = keyed.ask(asker, "POST", PATH, &[TEXT], &[b'x'; 101]);
        assert_eq!(refused.told(), (402, "PAYMENT_REQUIRED".to_owned()), "whoever writes, the bucket's account pays");
    }
    keyed.fake.store("app", 700);
    assert_eq!(keyed.ask(&key, "PUT", "/v1/stream/logs/x", &[TEXT], b"x").status, 402);
    assert_eq!(keyed.ask(&key, "PUT", "/v1/stream/logs/x", &[TEXT], b"").status, 201, "an empty stream adds nothing");
    assert_eq!(keyed.ask(&key, "GET", PATH, &[], b"").status, 200);
    assert_eq!(keyed.ask(&key, "DELETE", PATH, &[], b"").status, 204);
    let told = keyed.manage("GET", "/v1/accounts/a", &Value::Null);
    assert_eq!(value(&told)["stored_bytes"], json!(1000));
    assert_eq!(keyed.manage("PATCH", "/v1/plans/small", &json!({ "storage_bytes_max": null })).status, 200);
    assert_eq!(keyed.ask(&key, "PUT", PATH, &[TEXT], b"x").status, 201, "at once");
}

#[test]
fn an_account_that_asks_faster_than_its_plan_allows_is_told_when_to_come_back() {
    let keyed = Keyed::start();
    keyed.manage("POST", "/v1/plans", &json!({ "name": "slow", "requests_per_second": 1, "requests_burst": 3 }));
    keyed.manage("POST", "/v1/accounts", &json!({ "name": "a", "plan": "slow", "buckets": ["app"] }));
    let keys: Vec<_> = (0..2).map(|_| keyed.key(&json!({ "scopes": ["read"], "account": "a" })).1).collect();
    let told: Vec<Answer> = (0..8).map(|n| keyed.ask(&keys[n % 2], "GET", PATH, &[], b"")).collect();
    let refused: Vec<&Answer> = told.iter().filter(|answer| answer.status == 429).collect();
    assert!(!refused.is_empty() && told[0].status == 404, "all keys of an account share its rate");
    for answer in &refused {
        assert_eq!(answer.code(), "RATE_LIMITED");
        let seconds = answer.header("retry-after").and_then(|text| text.parse::<u64>().ok());
        assert!(seconds.is_some_and(|seconds| (1..=2).contains(&seconds)), "{answer:?}");
    }
    assert_eq!(keyed.ask(&keyed.admin, "GET", PATH, &[], b"").status, 404, "nobody else is slowed");
}

#[test]
fn bytes_are_metered_as_they_are_read() {
    let keyed = Keyed::start();
    keyed.manage("POST", "/v1/plans", &json!({ "name": "thin", "append_bytes_per_second": 1000 }));
    keyed.manage("POST", "/v1/accounts", &json!({ "name": "a", "plan": "thin", "buckets": ["app"] }));
    let (_, key) = keyed.key(&json!({ "scopes": ["create", "append", "read"], "account": "a" }));
    assert_eq!(keyed.ask(&key, "PUT", PATH, &[TEXT], &[b'x'; 100_000]).status, 201, "a body is taken whole");
    let refused = keyed.ask(&key, "POST", PATH, &[TEXT], b"x");
    assert_eq!(refused.told(), (429, "RATE_LIMITED".to_owned()));
    let seconds: u64 = refused.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!((90..=100).contains(&seconds), "{seconds}");
    assert_eq!(keyed.ask(&key, "GET", PATH, &[], b"").status, 200, "reading is not appending");
}

#[test]
fn an_account_and_a_plan_are_deleted_when_nothing_uses_them() {
    let keyed = Keyed::start();
    keyed.manage("POST", "/v1/plans", &json!({ "name": "p" }));
    keyed.manage("POST", "/v1/accounts", &json!({ "name": "team", "plan": "p", "buckets": ["app"] }));
    let (id, _) = keyed.key(&json!({ "scopes": ["read"], "account": "team" }));
    let delete = |what: &str| keyed.manage("DELETE", what, &Value::Null);
    let in_use = |what: &str, by: &str| {
        let answer = delete(what);
        assert_eq!(answer.told(), (409, "IN_USE".to_owned()), "{what}");
        assert!(answer.text().contains(by), "{}", answer.text());
    };
    in_use("/v1/plans/p", "accounts team");
    in_use("/v1/accounts/team", "buckets app");
    keyed.manage("PATCH", "/v1/accounts/team", &json!({ "buckets": [] }));
    in_use("/v1/accounts/team", &id);
    delete(&format!("/v1/keys/{id}"));
    assert_eq!(value(&delete("/v1/accounts/team"))["state"], "deleted");
    assert_eq!(delete("/v1/accounts/team").told(), (404, "ACCOUNT_NOT_FOUND".to_owned()));
    assert_eq!(value(&delete("/v1/plans/p"))["name"], "p");
    assert_eq!(delete("/v1/plans/p").told(), (404, "PLAN_NOT_FOUND".to_owned()));
    assert_eq!(
        keyed.ask(&keyed.admin, "PUT", "/v1/accounts/team", &[], b"").header("allow"),
        Some("GET, PATCH, DELETE")
    );
}

/// Somebody who revokes a key by mistake with all of it must not find its secret in an answer or in a log.
#[test]
fn a_key_in_place_of_its_id_is_not_repeated() {
    let keyed = Keyed::start();
    let (_, key) = keyed.key(&json!({ "scopes": ["read"] }));
    for method in ["GET", "DELETE"] {
        let answer = keyed.manage(method, &format!("/v1/keys/{key}"), &Value::Null);
        assert_eq!(answer.told(), (404, "KEY_NOT_FOUND".to_owned()));
        assert!(!answer.text().contains(&key[16..]), "{}", answer.text());
    }
}

/// Some clients answer every 403 with another attempt at once, in a loop without end.
#[test]
fn whoever_asks_in_vain_again_and_again_is_answered_slowly_and_holds_nothing_up() {
    let keyed = Keyed::start();
    let start = Instant::now();
    for _ in 0..6 {
        assert_eq!(keyed.ask("wrong", "POST", PATH, &[TEXT], b"x").status, 401);
    }
    // 100, 200 and 400 ms behind the three that are free.
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    keyed.fake.seen();
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..4).map(|_| scope.spawn(|| keyed.ask("wrong", "POST", PATH, &[TEXT], b"x"))).collect();
        assert_eq!(keyed.ask(&keyed.admin, "PUT", PATH, &[TEXT], b"x").status, 201);
        assert!(slow.iter().all(|one| !one.is_finished()), "the others still wait while this one was served");
    });
}

/// A connection that is closed with bytes of the body unread looks like a reset, and a reset like an unknown outcome.
#[test]
fn a_refused_upload_is_read_away_so_that_its_sender_sees_the_refusal() {
    let keyed = Keyed::start();
    for (key, status) in [("wrong", 401), (keyed.key(&json!({ "scopes": ["read"] })).1.as_str(), 403)] {
        let answer = keyed.ask(key, "POST", PATH, &[TEXT], &vec![b'x'; 8 << 20]);
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("producer-epoch"), None);
    }
}

#[test]
fn what_needed_a_key_is_private() {
    let keyed = Keyed::start();
    keyed.ask(&keyed.admin, "PUT", PATH, &[TEXT], b"x");
    let answer = keyed.ask(&keyed.admin, "GET", &format!("{PATH}?offset=0"), &[], b"");
    let cache = answer.header("cache-control").unwrap_or_default();
    assert!(cache.starts_with("private, max-age"), "{cache}");
    assert!(answer.header("vary").is_some_and(|vary| vary.contains("authorization")));
}

#[test]
fn a_request_to_manage_says_what_is_wrong_with_it() {
    let keyed = Keyed::start();
    for (target, body) in [
        ("/v1/keys", json!({ "scopes": ["write"] })),
        ("/v1/keys", json!({ "scopes": [] })),
        ("/v1/keys", json!({ "scopes": ["read"], "prefixes": ["/app"] })),
        ("/v1/keys", json!({ "scopes": ["admin"], "prefixes": ["app"] })),
        ("/v1/keys", json!({ "scopes": ["read"], "expires": 5 })),
        ("/v1/plans", json!({ "name": "A b" })),
        ("/v1/plans", json!({ "name": "p", "storage_byte_max": 5 })),
    ] {
        assert_eq!(keyed.manage("POST", target, &body).told(), (400, "INVALID_REQUEST".to_owned()), "{target} {body}");
    }
    let huge = json!({ "scopes": ["read"], "note": "x".repeat(600 << 10) });
    assert_eq!(keyed.manage("POST", "/v1/keys", &huge).told(), (400, "INVALID_REQUEST".to_owned()));
    for (target, code) in [
        ("/v1/keys/nothing", "KEY_NOT_FOUND"),
        ("/v1/keys/000000000000", "KEY_NOT_FOUND"),
        ("/v1/accounts/a", "ACCOUNT_NOT_FOUND"),
        ("/v1/plans/a", "PLAN_NOT_FOUND"),
    ] {
        assert_eq!(keyed.manage("GET", target, &Value::Null).told(), (404, code.to_owned()), "{target}");
    }
    let wrong = keyed.manage("PUT", "/v1/accounts", &Value::Null);
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, POST")));
    let known = keyed.manage("GET", "/v1/accounts", &Value::Null);
    assert_eq!((known.status, value(&known)), (200, json!({ "accounts": [] })));
}
