//! What the operator does, over sockets.

use crate::home::{ADMIN, CHEAP, Home, PASSWORD, basic, refused};
use highwater_pds::Account;
use highwater_pds::lifecycle::Change;
use serde_json::json;

/// Any method of the administrator.
const STATUS: &str = "com.atproto.admin.getAccountInfos?dids=did:web:none.pds.test";

const METHODS: [(&str, bool); 6] = [
    ("com.atproto.admin.deleteAccount", true),
    ("com.atproto.admin.getAccountInfo", false),
    ("com.atproto.admin.getAccountInfos", false),
    ("com.atproto.admin.getSubjectStatus", false),
    ("com.atproto.admin.updateAccountPassword", true),
    ("com.atproto.admin.updateSubjectStatus", true),
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
        assert_eq!(home.admin(STATUS, None).status, 200);
    }
    let guess = || home.send(STATUS, &[("authorization", &basic("admin", "guess"))], None);
    assert_eq!([guess().status, guess().status, guess().status, guess().status], [401, 401, 401, 429]);
    assert_eq!(home.admin(STATUS, None).refused(), refused(429, "RateLimitExceeded"), "or they would go on");
    home.clock.advance_seconds(300);
    assert_eq!(home.admin(STATUS, None).status, 200);
}

/// An address had asked so often that the operator, who sat behind it as well, could not lock the account that asked.
#[test]
fn an_operator_acts_while_an_address_floods() {
    let home = Home::with(|options| (options.rates.enabled, options.rates.requests_per_5_min) = (true, 5), CHEAP);
    let account = home.account();
    let flood = || home.server.get("/xrpc/_health").status;
    while flood() != 429 {}
    let input = json!({
        "subject": { "$type": "com.atproto.admin.defs#repoRef", "did": account.did.as_str() },
        "takedown": { "applied": true },
    });
    assert_eq!(home.admin("com.atproto.admin.updateSubjectStatus", Some(input)).status, 200);
    assert_eq!(flood(), 429);
    let guess = home.send(STATUS, &[("authorization", &basic("admin", "guess"))], None);
    assert_eq!(guess.refused(), refused(429, "RateLimitExceeded"), "whoever guesses floods as well");
    assert_eq!(home.send(STATUS, &[], None).status, 429);
    let statuses: Vec<u16> = (0..5).map(|_| home.admin(STATUS, None).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429], "the operator's own requests are counted by themselves");
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
    home.change(&account, Change::Erase);
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
