//! What the operator does, over sockets.

use crate::home::{ADMIN, CHEAP, Home, PASSWORD, basic, refused};
use highwater_pds::Account;
use serde_json::json;

const METHODS: [(&str, bool); 13] = [
    ("com.atproto.admin.deleteAccount", true),
    ("com.atproto.admin.getAccountInfo", false),
    ("com.atproto.admin.getAccountInfos", false),
    ("com.atproto.admin.getSubjectStatus", false),
    ("com.atproto.admin.updateAccountPassword", true),
    ("com.atproto.admin.updateSubjectStatus", true),
    ("highwater.pds.announce", true),
    ("highwater.pds.backup", true),
    ("highwater.pds.changeAccount", true),
    ("highwater.pds.createAccount", true),
    ("highwater.pds.getAccount", false),
    ("highwater.pds.listAccounts", false),
    ("highwater.pds.status", false),
];

#[test]
fn nobody_but_the_administrator_calls_the_operators_methods() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    for (method, procedure) in METHODS {
        let input = procedure.then(|| json!({}));
        assert_eq!(home.send(method, &[], input.clone()).refused(), refused(401, "AuthMissing"), "{method}");
        assert_eq!(
            home.call(method, &session.access, input.clone()).refused(),
            refused(401, "AuthMissing"),
            "{method}"
        );
        for (user, password) in
            [("admin", "wrong"), ("admin", ""), ("root", ADMIN), ("", ADMIN), (account.handle.as_str(), PASSWORD)]
        {
            let answer = home.send(method, &[("authorization", &basic(user, password))], input.clone());
            assert_eq!(answer.refused(), refused(401, "AuthenticationRequired"), "{method} {user} {password}");
        }
        let garbage = home.send(method, &[("authorization", "Basic ////")], input);
        assert_eq!(garbage.refused(), refused(401, "AuthenticationRequired"), "{method}");
    }
}

#[test]
fn wrong_passwords_of_the_administrator_are_counted_by_address_and_right_ones_are_not() {
    let home = Home::with(|options| (options.rates.enabled, options.rates.sessions_per_5_min) = (true, 3), CHEAP);
    for _ in 0..5 {
        assert_eq!(home.admin("highwater.pds.status", None).status, 200);
    }
    let guess = || home.send("highwater.pds.status", &[("authorization", &basic("admin", "guess"))], None);
    assert_eq!([guess().status, guess().status, guess().status, guess().status], [401, 401, 401, 429]);
    assert_eq!(
        home.admin("highwater.pds.status", None).refused(),
        refused(429, "RateLimitExceeded"),
        "or they would go on"
    );
    home.clock.advance_seconds(300);
    assert_eq!(home.admin("highwater.pds.status", None).status, 200);
}

#[test]
fn nobody_signs_up_and_the_operator_makes_accounts_that_are_logged_in() {
    let home = Home::new();
    let method = "com.atproto.server.createAccount";
    let input = json!({ "handle": "new-bot.pds.test", "password": PASSWORD });
    let answer = home.send(method, &[], Some(input.clone()));
    assert_eq!(answer.refused(), refused(403, "Forbidden"));
    assert!(String::from_utf8_lossy(&answer.body).contains("operator"), "it says who makes accounts");
    let told = home.admin(method, Some(input.clone())).ok();
    assert_eq!(told["handle"], "new-bot.pds.test");
    let account = home.row(told["did"].as_str().expect("a DID"));
    assert_eq!(home.post(&account, told["accessJwt"].as_str().expect("a token")).status, 200);
    assert_eq!(home.admin(method, Some(input)).refused(), refused(400, "HandleNotAvailable"));
    for (input, name) in [
        (json!({ "handle": "no handle", "password": PASSWORD }), "InvalidHandle"),
        (json!({ "handle": "bot.elsewhere.example", "password": PASSWORD }), "UnsupportedDomain"),
        (json!({ "handle": "a.b.pds.test", "password": PASSWORD }), "UnsupportedDomain"),
        (json!({ "handle": "other.pds.test", "password": "short" }), "InvalidPassword"),
        (json!({ "handle": "other.pds.test" }), "InvalidPassword"),
        (json!({ "handle": "other.pds.test", "password": PASSWORD, "did": "did:web:a.example" }), "IncompatibleDidDoc"),
        (json!({ "password": PASSWORD }), "InvalidRequest"),
    ] {
        assert_eq!(home.admin(method, Some(input.clone())).refused(), refused(400, name), "{input}");
    }
    // A name is never given twice, not even after an erasure.
    home.change(&account, "erase");
    let again = json!({ "handle": "new-bot.pds.test", "password": PASSWORD });
    assert_eq!(home.admin(method, Some(again)).refused(), refused(400, "HandleNotAvailable"));
}

fn subject(account: &Account) -> serde_json::Value {
    json!({ "$type": "com.atproto.admin.defs#repoRef", "did": account.did.as_str() })
}

#[test]
fn an_account_is_taken_down_given_back_and_erased_by_the_protocols_own_methods() {
    let home = Home::new();
    let account = home.account();
    let did = account.did.as_str();
    let info = home.admin(&format!("com.atproto.admin.getAccountInfo?did={did}"), None).ok();
    assert_eq!((&info["did"], &info["handle"]), (&json!(did), &json!(account.handle.as_str())));
    let infos =
        home.admin(&format!("com.atproto.admin.getAccountInfos?dids={did}&dids=did:web:none.pds.test"), None).ok();
    assert_eq!(infos["infos"].as_array().map(Vec::len), Some(1));
    let update = |takedown: bool| {
        let input = json!({ "subject": subject(&account), "takedown": { "applied": takedown, "ref": "1" } });
        home.admin("com.atproto.admin.updateSubjectStatus", Some(input)).ok()
    };
    let status = || home.admin(&format!("com.atproto.admin.getSubjectStatus?did={did}"), None).ok();
    let repo = || home.server.query("com.atproto.sync.getRepoStatus", &format!("did={did}")).ok();
    assert_eq!(update(true), status());
    assert_eq!((&status()["takedown"]["applied"], &repo()["status"]), (&json!(true), &json!("takendown")));
    update(false);
    assert_eq!((&status()["takedown"]["applied"], repo()["active"].as_bool()), (&json!(false), Some(true)));
    let record = json!({ "subject": { "$type": "com.atproto.repo.strongRef", "uri": "at://x/y/z", "cid": "x" }, "takedown": { "applied": true } });
    assert_eq!(home.admin("com.atproto.admin.updateSubjectStatus", Some(record)).refused().0, 400);
    let session = home.login(account.handle.as_str(), PASSWORD);
    let input = json!({ "did": did, "password": "another horse" });
    assert_eq!(home.admin("com.atproto.admin.updateAccountPassword", Some(input)).status, 200);
    assert_eq!(home.post(&account, &session.access).refused(), refused(400, "ExpiredToken"), "sessions end with it");
    assert_eq!(home.try_login(account.handle.as_str(), PASSWORD).status, 401);
    home.login(account.handle.as_str(), "another horse");
    assert_eq!(home.admin("com.atproto.admin.deleteAccount", Some(json!({ "did": did }))).status, 200);
    assert_eq!(repo()["status"], "deleted");
    let unknown = json!({ "did": "did:web:none.pds.test" });
    assert_eq!(home.admin("com.atproto.admin.deleteAccount", Some(unknown)).refused(), refused(400, "RepoNotFound"));
}

#[test]
fn the_operator_sees_where_each_account_stands_beside_what_relays_were_told() {
    let home = Home::new();
    let drawn = home.admin("highwater.pds.createAccount", Some(json!({ "curve": "p256" }))).ok();
    let password = drawn["password"].as_str().expect("it is shown this once");
    home.login(drawn["handle"].as_str().expect("a handle"), password);
    let account = home.account();
    home.post(&account, &home.login(account.handle.as_str(), PASSWORD).access).ok();
    let locked = home.change(&account, "lock");
    assert_eq!(
        [&locked["position"], &locked["announced"], &locked["locked"], &locked["changed"], &locked["relaysKnow"]],
        [&json!("suspended"), &json!("suspended"), &json!(true), &json!(true), &json!(true)]
    );
    assert_eq!(home.change(&account, "lock")["changed"], false);
    let seen = home.admin(&format!("highwater.pds.getAccount?account={}", account.handle), None).ok();
    assert_eq!((&seen["did"], &seen["sessions"]), (&json!(account.did.as_str()), &json!(1)));
    assert_eq!(seen.get("password"), None);
    let first = home.admin("highwater.pds.listAccounts?limit=1", None).ok();
    assert_eq!(first["accounts"][0]["did"], drawn["did"]);
    let cursor = first["cursor"].as_str().expect("there are more");
    let second = home.admin(&format!("highwater.pds.listAccounts?limit=5&cursor={cursor}"), None).ok();
    assert_eq!((&second["accounts"][0]["did"], second.get("cursor")), (&json!(account.did.as_str()), None));
    let status = home.admin("highwater.pds.status", None).ok();
    assert_eq!(status["accounts"], json!({ "active": 1, "suspended": 1 }));
    assert!(status["stream"]["seq"].as_u64() > Some(0));
    for unknown in ["nobody.pds.test", "did:web:nobody.pds.test"] {
        let input = json!({ "account": unknown, "change": "lock" });
        assert_eq!(home.admin("highwater.pds.changeAccount", Some(input)).refused(), refused(400, "RepoNotFound"));
    }
    let input = json!({ "account": account.did.as_str(), "change": "explode" });
    assert_eq!(home.admin("highwater.pds.changeAccount", Some(input)).refused(), refused(400, "InvalidRequest"));
}

#[test]
fn relays_are_told_once_more_after_the_operator_heard_how_many_frames_that_is() {
    let home = Home::new();
    let (first, second) = (home.account(), home.account());
    home.change(&second, "lock");
    let seq = || home.admin("highwater.pds.status", None).ok()["stream"]["seq"].as_u64().expect("a number");
    let before = seq();
    let announce = |input| home.admin("highwater.pds.announce", Some(input)).ok();
    assert_eq!(announce(json!({ "dryRun": true })), json!({ "accounts": 1, "frames": 2, "sent": false }));
    assert_eq!(seq(), before);
    assert_eq!(announce(json!({})), json!({ "accounts": 1, "frames": 2, "sent": true }));
    assert_eq!(seq(), before + 2);
    assert_eq!(announce(json!({ "account": first.handle.as_str() }))["accounts"], 1);
    assert_eq!(announce(json!({ "account": second.handle.as_str() }))["accounts"], 0, "it is locked");
}

#[test]
fn a_copy_is_made_while_the_server_runs() {
    let home = Home::new();
    home.account();
    let directory = tempfile::tempdir().expect("a directory");
    let to = directory.path().join("copy");
    let made = home.admin("highwater.pds.backup", Some(json!({ "directory": to }))).ok();
    assert!(made["files"].as_u64() > Some(1) && to.join("pds.layout").exists(), "{made}");
    let relative = json!({ "directory": "copy" });
    assert_eq!(home.admin("highwater.pds.backup", Some(relative)).refused(), refused(400, "InvalidRequest"));
}
