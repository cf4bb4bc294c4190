//! What happens to an account between the moment in which a request is judged and the turn in which it is done.

use crate::home::{Home, PASSWORD, Session, refused};
use crate::server::COLLECTION;
use crate::wire::{self, Answer};
use axum::http::request::Parts;
use highwater_host::{Change, Host};
use highwater_pds::{Account, Fact, credentials};
use highwater_xrpc::{Access, Auth, Context, Error, Gatekeeper};
use serde_json::json;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Something that is done as soon as a request was let in, before it knows.
type Meanwhile = Arc<Mutex<Option<Box<dyn FnOnce(&Host) + Send>>>>;

struct Guard {
    auth: Auth,
    host: Host,
    meanwhile: Meanwhile,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Gatekeeper for Guard {
    fn access(&self, context: &Context, head: &Parts) -> Result<Access, Error> {
        let access = self.auth.access(context, head);
        if let Some(meanwhile) = self.meanwhile.lock().expect("no panic").take() {
            meanwhile(&self.host);
        }
        access
    }

    fn auth(&self) -> Option<&Auth> {
        Some(&self.auth)
    }
}

fn credentials(change: impl Fn(&Account) -> credentials::Change + Send + 'static) -> Withdrawing {
    Box::new(move |account| {
        let (id, change) = (account.id, change(account));
        Box::new(move |host| host.fact(id, Fact::Credentials(id, change)).wait().expect("done"))
    })
}

fn standing(change: Change) -> Withdrawing {
    Box::new(move |account| {
        let id = account.id;
        Box::new(move |host| {
            host.change(id, change).wait().expect("done");
        })
    })
}

/// What is done to an account as it is then.
type Withdrawing = Box<dyn Fn(&Account) -> Box<dyn FnOnce(&Host) + Send>>;

fn withdrawals() -> Vec<(&'static str, Withdrawing, (u16, String))> {
    let newest = |account: &Account| *account.credentials.sessions.keys().next().expect("a session");
    vec![
        (
            "a logout",
            credentials(move |row| credentials::Change::SessionClosed(newest(row))),
            refused(400, "ExpiredToken"),
        ),
        (
            "another password",
            credentials(|_| credentials::Change::Password("another".into())),
            refused(400, "ExpiredToken"),
        ),
        ("a lock", standing(Change::Lock), refused(401, "AccountTakedown")),
        ("a takedown", standing(Change::TakeDown), refused(401, "AccountTakedown")),
        ("retirement", standing(Change::Decommission), refused(401, "AccountDeactivated")),
        ("an erasure", standing(Change::Erase), refused(400, "ExpiredToken")),
    ]
}

/// Everything that a session has done to its account.
const METHODS: [&str; 9] = [
    "repo.createRecord",
    "repo.putRecord",
    "repo.deleteRecord",
    "repo.applyWrites",
    "repo.uploadBlob",
    "server.createAppPassword",
    "server.revokeAppPassword",
    "server.deactivateAccount",
    "server.activateAccount",
];

fn ask(home: &Home, account: &Account, session: &Session, method: &str) -> Answer {
    let record = json!({ "$type": COLLECTION, "text": "late" });
    let repo = account.did.as_str();
    let one = json!({ "repo": repo, "collection": COLLECTION, "rkey": "one", "record": record });
    let input = match method {
        "repo.uploadBlob" => {
            let authorization = format!("Bearer {}", session.access);
            let headers = [("authorization", authorization.as_str()), ("content-type", "text/plain")];
            let path = format!("/xrpc/com.atproto.{method}");
            return wire::ask(home.server.address, "POST", &path, &headers, Some(b"late"));
        }
        "repo.createRecord" => json!({ "repo": repo, "collection": COLLECTION, "record": record }),
        "repo.putRecord" | "repo.deleteRecord" => one,
        "repo.applyWrites" => json!({ "repo": repo, "writes": [
            { "$type": "com.atproto.repo.applyWrites#create", "collection": COLLECTION, "value": record },
        ] }),
        "server.createAppPassword" => json!({ "name": "late" }),
        "server.revokeAppPassword" => json!({ "name": "bot" }),
        _ => json!({}),
    };
    home.call(&format!("com.atproto.{method}"), &session.access, Some(input))
}

/// An account that has a record, an app password and a session.
fn account(home: &Home) -> (Account, Session) {
    let account = home.account();
    let session = home.login(account.did.as_str(), PASSWORD);
    ask(home, &account, &session, "repo.putRecord").ok();
    let bot = json!({ "name": "bot" });
    assert_eq!(home.call("com.atproto.server.createAppPassword", &session.access, Some(bot)).status, 200);
    (home.row(account.did.as_str()), session)
}

/// Between the judgement of a token and the account's turn lay a moment in which a logout or a lock did not stop what had been let
/// in: a thief's session deactivated the account, or finished its upload, after the password had been changed.
#[test]
fn whatever_is_withdrawn_before_the_turn_comes_is_refused_in_it() {
    let meanwhile = Meanwhile::default();
    let guard = |host: &Host, auth| Guard { auth, host: host.clone(), meanwhile: Arc::clone(&meanwhile) };
    let home = Home::guarded(guard);
    for (name, withdrawing, expected) in withdrawals() {
        for method in METHODS {
            let (before, session) = account(&home);
            *meanwhile.lock().expect("no panic") = Some(withdrawing(&before));
            let answer = ask(&home, &before, &session, method);
            assert_eq!(answer.refused(), expected, "{method} after {name}");
            let after = home.row(before.did.as_str());
            assert_eq!(after.standing.deactivated, before.standing.deactivated, "{method} after {name}");
            let names = |row: &Account| row.credentials.app_passwords.keys().cloned().collect::<Vec<_>>();
            assert!(after.standing.erased || names(&after) == names(&before), "{method} after {name}");
            assert_eq!(after.head.map(|head| head.data), before.head.map(|head| head.data), "{method} after {name}");
            let blobs = home.server.host.state(|state| state.blobs.get(&before.id).map_or(0, |blobs| blobs.0.len()));
            assert_eq!(blobs, 0, "{method} after {name}");
            let files = std::fs::read_dir(home.server.host.paths().blobs_of(before.id)).map_or(0, Iterator::count);
            assert_eq!(files, 0, "{method} after {name}");
        }
    }
}

/// The same for a program's session, whose password is revoked: the owner's sessions stay.
#[test]
fn a_revoked_app_password_stops_what_it_had_begun_and_nothing_else() {
    let meanwhile = Meanwhile::default();
    let guard = |host: &Host, auth| Guard { auth, host: host.clone(), meanwhile: Arc::clone(&meanwhile) };
    let home = Home::guarded(guard);
    for method in ["repo.createRecord", "repo.applyWrites", "repo.uploadBlob"] {
        let account = home.account();
        let owner = home.login(account.did.as_str(), PASSWORD);
        let made =
            home.call("com.atproto.server.createAppPassword", &owner.access, Some(json!({ "name": "bot" }))).ok();
        let bot = home.login(account.did.as_str(), made["password"].as_str().expect("a password"));
        let revoke = credentials(|_| credentials::Change::AppPasswordRevoked("bot".into()));
        *meanwhile.lock().expect("no panic") = Some(revoke(&account));
        assert_eq!(ask(&home, &account, &bot, method).refused(), refused(400, "ExpiredToken"), "{method}");
        assert_eq!(ask(&home, &account, &owner, method).status, 200, "{method}");
    }
}
