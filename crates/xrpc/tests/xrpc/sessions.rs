//! Sessions over sockets, in virtual time.

use crate::home::{Home, PASSWORD, Session, refused};
use highwater_pds::credentials::{APP_PASSWORDS_MAX, SESSIONS_MAX};
use highwater_pds::lifecycle::{Announce, Change};
use serde_json::json;

const HOUR: u64 = 3_600;

#[test]
fn an_account_logs_in_by_its_handle_or_its_did_and_is_told_what_clients_need() {
    let home = Home::new();
    let account = home.account();
    for identifier in [account.handle.as_str(), account.did.as_str(), &account.handle.as_str().to_uppercase()] {
        let answer = home.try_login(identifier, PASSWORD);
        assert_eq!(answer.header("cache-control"), Some("no-store"), "nobody on the way keeps tokens");
        let told = answer.ok();
        assert_eq!((&told["did"], &told["handle"]), (&json!(account.did.as_str()), &json!(account.handle.as_str())));
        assert_eq!((&told["active"], told.get("status")), (&json!(true), None));
        assert_eq!(told["didDoc"]["service"][0]["id"], "#atproto_pds");
        let session = Session::of(&told);
        assert_eq!(home.post(&account, &session.access).status, 200);
        let told = home.call("com.atproto.server.getSession", &session.access, None).ok();
        assert_eq!(told["did"], account.did.as_str());
        let told = home.call("com.atproto.identity.getRecommendedDidCredentials", &session.access, None).ok();
        assert_eq!(told["verificationMethods"]["atproto"], format!("did:key:{}", account.key.public));
        assert_eq!(
            (&told["services"]["atproto_pds"]["endpoint"], told.get("rotationKeys")),
            (&json!("https://pds.test"), None)
        );
        assert_eq!(told.get("accessJwt"), None);
    }
}

/// A thief's session began a request, the password was changed, and the end of the body made an app password all the same.
#[test]
fn a_request_whose_body_ends_after_its_session_is_refused() {
    use std::io::{Read, Write};
    let home = Home::new();
    let account = home.account();
    for method in ["com.atproto.server.createAppPassword", "com.atproto.repo.createRecord"] {
        let session = home.login(account.handle.as_str(), PASSWORD);
        let input = match method {
            "com.atproto.repo.createRecord" => {
                json!({ "repo": account.did.as_str(), "collection": "com.example.note", "record": { "text": "late" } })
            }
            _ => json!({ "name": "thief" }),
        };
        let body = input.to_string();
        let mut stream = crate::wire::connect(home.server.address);
        let head = format!(
            "POST /xrpc/{method} HTTP/1.1\r\nhost: pds.test\r\nconnection: close\r\nexpect: 100-continue\r\n\
             content-type: application/json\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
            session.access,
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("taken");
        // The server asks for the body once the method reads it, with its token judged.
        let mut asked = [0; 25];
        stream.read_exact(&mut asked).expect("an answer");
        assert!(asked.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&asked));
        let closed = home.call("com.atproto.server.deleteSession", &session.refresh, Some(json!({})));
        assert_eq!(closed.status, 200);
        stream.write_all(body.as_bytes()).expect("taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("ExpiredToken"), "{method}: {answer}");
    }
    let names = home
        .server
        .host
        .state(|state| state.named(account.did.as_str()).map(|row| row.credentials.app_passwords.len()));
    assert_eq!(names, Some(0));
}

/// Whoever changes a password because somebody knows it wants that one out, whatever time a token has left.
#[test]
fn another_password_ends_every_open_session_at_once() {
    let home = Home::new();
    let account = home.account();
    let sessions: Vec<Session> = (0..3).map(|_| home.login(account.handle.as_str(), PASSWORD)).collect();
    let input = json!({ "did": account.did.as_str(), "password": "another horse" });
    assert_eq!(home.admin("com.atproto.admin.updateAccountPassword", Some(input)).status, 200);
    for session in sessions {
        let told = home.call("com.atproto.server.getSession", &session.access, None);
        assert_eq!(told.refused(), refused(400, "ExpiredToken"));
        assert_eq!(home.try_refresh(&session.refresh).refused(), refused(400, "ExpiredToken"));
    }
    let open = home.login(account.handle.as_str(), "another horse");
    assert_eq!(home.call("com.atproto.server.getSession", &open.access, None).status, 200);
}

/// Sessions that were opened with a password while it was changed lived on.
#[test]
fn no_session_outlives_the_password_that_it_was_opened_with() {
    let home = Home::new();
    let account = home.account();
    for round in 0..3 {
        let (old, new) = (format!("horse number {round}"), format!("horse number {}", round + 1));
        let set = |password: &str| {
            let input = json!({ "did": account.did.as_str(), "password": password });
            assert_eq!(home.admin("com.atproto.admin.updateAccountPassword", Some(input)).status, 200);
        };
        set(&old);
        let opened: Vec<Session> = std::thread::scope(|scope| {
            let logins: Vec<_> = (0..8).map(|_| scope.spawn(|| home.try_login(account.did.as_str(), &old))).collect();
            set(&new);
            let answers = logins.into_iter().map(|login| login.join().expect("no panic"));
            answers.filter(|answer| answer.status == 200).map(|answer| Session::of(&answer.ok())).collect()
        });
        for session in opened {
            let told = home.call("com.atproto.server.getSession", &session.access, None);
            assert_eq!(told.refused(), refused(400, "ExpiredToken"));
        }
    }
}

#[test]
fn an_unknown_name_and_a_wrong_password_get_the_same_answer() {
    let home = Home::new();
    let account = home.account();
    let wrong = home.try_login(account.handle.as_str(), "wrong horse");
    assert_eq!(wrong.refused(), refused(401, "AuthenticationRequired"));
    let long = "x".repeat(10_000);
    let erased = home.account();
    home.change(&erased, Change::Erase);
    for (identifier, password) in [
        ("nobody.pds.test", PASSWORD),
        ("did:web:nobody.pds.test", PASSWORD),
        ("somebody@example.com", PASSWORD),
        ("", PASSWORD),
        (account.handle.as_str(), ""),
        (account.handle.as_str(), &long),
        (&long, PASSWORD),
        (account.handle.as_str(), "aaaa-aaaa-aaaa-aaaa"),
        (erased.handle.as_str(), PASSWORD),
    ] {
        assert_eq!(home.try_login(identifier, password).body, wrong.body, "{identifier:.20} {password:.20}");
    }
}

/// Where an unknown name is answered without the work of a wrong password, anybody finds out by a clock which accounts there are. That
/// the hash of nobody costs the same is held by the hashes' own tests.
#[test]
fn an_unknown_name_takes_the_work_of_a_wrong_password() {
    let home = Home::new();
    let account = home.account();
    let computed = || home.server.context.gatekeeper.auth().expect("sessions").hashes_computed();
    for (identifier, password) in [
        (account.handle.as_str(), "wrong horse"),
        ("nobody.pds.test", PASSWORD),
        ("", PASSWORD),
        (account.handle.as_str(), "aaaa-aaaa-aaaa-aaaa"),
    ] {
        let before = computed();
        assert_eq!(home.try_login(identifier, password).status, 401);
        assert_eq!(computed() - before, 1, "{identifier} {password}");
    }
}

/// The same story as in the machine's own test, as clients live it: the answer to a refresh is lost, or two threads refresh at once
/// (atproto#3637, MarshalX/atproto#158 and #514, PR#657).
#[test]
fn a_refresh_token_used_twice_gives_the_same_next_one_for_two_hours_and_a_revoked_one_none() {
    let home = Home::new();
    let account = home.account();
    let first = home.login(account.handle.as_str(), PASSWORD);
    home.clock.advance_seconds(HOUR);
    let next = Session::of(&home.try_refresh(&first.refresh).ok());
    assert_ne!(next.refresh, first.refresh);
    for seconds in [0, HOUR, HOUR - 1] {
        home.clock.advance_seconds(seconds);
        let again = Session::of(&home.try_refresh(&first.refresh).ok());
        assert_eq!(again.refresh, next.refresh, "the same next token, byte for byte");
        assert_eq!(home.post(&account, &again.access).status, 200, "with a new access token");
    }
    home.clock.advance_seconds(1);
    assert_eq!(home.try_refresh(&first.refresh).refused(), refused(400, "ExpiredToken"));
    let newest = Session::of(&home.try_refresh(&next.refresh).ok());
    assert_eq!(home.call("com.atproto.server.deleteSession", &newest.refresh, Some(json!({}))).status, 200);
    for token in [&first.refresh, &next.refresh, &newest.refresh] {
        assert_eq!(home.try_refresh(token).refused(), refused(400, "ExpiredToken"), "revoked stays revoked");
    }
    assert_eq!(home.call("com.atproto.server.deleteSession", &newest.refresh, Some(json!({}))).status, 200, "again");
    assert_eq!(home.post(&account, &newest.access).refused(), refused(400, "ExpiredToken"), "a logout bites at once");
}

#[test]
fn threads_that_refresh_at_once_get_one_token() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    let tokens: Vec<String> = std::thread::scope(|scope| {
        let refresh = || Session::of(&home.try_refresh(&session.refresh).ok()).refresh;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(refresh)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    assert_eq!(home.row(account.did.as_str()).credentials.sessions.len(), 1);
}

#[test]
fn an_access_token_lasts_two_hours_and_a_refresh_token_ninety_days() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    home.clock.advance_seconds(2 * HOUR - 1);
    assert_eq!(home.post(&account, &session.access).status, 200);
    home.clock.advance_seconds(1);
    assert_eq!(home.post(&account, &session.access).refused(), refused(400, "ExpiredToken"));
    home.clock.advance_seconds(90 * 24 * HOUR - 2 * HOUR);
    assert_eq!(home.try_refresh(&session.refresh).refused(), refused(400, "ExpiredToken"));
}

/// The operator's lock stops a bot that runs wild, and its access token is good for two more hours.
#[test]
fn a_lock_cuts_off_tokens_that_have_not_expired_and_a_lift_gives_them_back() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    for (stop, go) in [(Change::Lock, Change::Lift), (Change::TakeDown, Change::Restore)] {
        home.change(&account, stop);
        let cut_off = refused(401, "AccountTakedown");
        assert_eq!(home.post(&account, &session.access).refused(), cut_off, "{stop:?}");
        assert_eq!(home.call("com.atproto.server.getSession", &session.access, None).refused(), cut_off);
        assert_eq!(home.try_refresh(&session.refresh).refused(), cut_off);
        assert_eq!(home.try_login(account.handle.as_str(), PASSWORD).refused(), cut_off);
        let wrong = home.try_login(account.handle.as_str(), "wrong horse");
        assert_eq!(wrong.refused(), refused(401, "AuthenticationRequired"), "told only to whoever knows the password");
        let service = "com.atproto.server.getServiceAuth?aud=did:web:a.example&lxm=com.example.method";
        assert_eq!(home.call(service, &session.access, None).refused(), cut_off);
        home.change(&account, go);
        assert_eq!(home.post(&account, &session.access).status, 200, "{go:?}");
    }
    home.change(&account, Change::Erase);
    for answer in [home.post(&account, &session.access), home.try_refresh(&session.refresh)] {
        assert_eq!(answer.refused(), refused(400, "ExpiredToken"), "nothing is left of it");
    }
}

/// One session made more events in six seconds than a relay takes of a host in an hour.
#[test]
fn an_account_that_goes_and_comes_again_and_again_spends_points_like_one_that_writes() {
    let home =
        Home::with(|options| (options.rates.enabled, options.rates.points_per_hour) = (true, 10), super::home::CHEAP);
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    let stand = |what: &str| home.call(&format!("com.atproto.server.{what}"), &session.access, Some(json!({})));
    assert_eq!((stand("deactivateAccount").status, stand("activateAccount").status), (200, 200));
    let before = home.server.host.status().seq;
    assert_eq!(stand("deactivateAccount").refused(), refused(429, "RateLimitExceeded"));
    assert_eq!(home.server.host.status().seq, before, "nobody is told");
    home.clock.advance_seconds(3_600);
    assert_eq!(stand("deactivateAccount").status, 200);
}

#[test]
fn a_deactivated_account_logs_in_to_come_back_and_does_nothing_else() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    assert_eq!(home.call("com.atproto.server.deactivateAccount", &session.access, Some(json!({}))).status, 200);
    let told = home.try_login(account.handle.as_str(), PASSWORD).ok();
    assert_eq!((&told["active"], &told["status"]), (&json!(false), &json!("deactivated")));
    assert_eq!(home.post(&account, &session.access).refused(), refused(400, "RepoDeactivated"));
    let deactivated = refused(401, "AccountDeactivated");
    let create = json!({ "name": "bot" });
    assert_eq!(home.call("com.atproto.server.createAppPassword", &session.access, Some(create)).refused(), deactivated);
    let service = "com.atproto.server.getServiceAuth?aud=did:web:a.example&lxm=com.example.method";
    assert_eq!(home.call(service, &session.access, None).refused(), deactivated);
    let status = home.call("com.atproto.server.checkAccountStatus", &session.access, None).ok();
    assert_eq!(status["activated"], false);
    assert_eq!(home.call("com.atproto.server.activateAccount", &session.access, Some(json!({}))).status, 200);
    assert_eq!(home.post(&account, &session.access).status, 200);
    let status = home.call("com.atproto.server.checkAccountStatus", &session.access, None).ok();
    assert_eq!((&status["activated"], &status["indexedRecords"]), (&json!(true), &json!(1)));
}

#[test]
fn an_account_that_is_not_active_yet_or_went_elsewhere_has_no_sessions() {
    let home = Home::new();
    let account = home.new_account(false);
    let handle = account.handle.as_str();
    assert_eq!(home.try_login(handle, PASSWORD).refused(), refused(401, "AccountDeactivated"));
    home.change(&account, Change::Activate(Announce::OnActivation));
    let session = home.login(handle, PASSWORD);
    home.change(&account, Change::Decommission);
    assert_eq!(home.post(&account, &session.access).refused(), refused(401, "AccountDeactivated"));
    assert_eq!(home.try_login(handle, PASSWORD).refused(), refused(401, "AccountDeactivated"));
}

#[test]
fn an_app_password_is_shown_once_logs_in_and_manages_nothing() {
    let home = Home::new();
    let account = home.account();
    let owner = home.login(account.handle.as_str(), PASSWORD);
    let create = |token: &str, name: &str| {
        home.call("com.atproto.server.createAppPassword", token, Some(json!({ "name": name })))
    };
    let made = create(&owner.access, "bot").ok();
    let password = made["password"].as_str().expect("a password");
    assert!(password.len() == 19 && made["privileged"] == false, "{made}");
    assert_eq!(create(&owner.access, "bot").refused(), refused(400, "InvalidRequest"), "names are unique");
    for name in ["", "a\nb", &"x".repeat(65)] {
        assert_eq!(create(&owner.access, name).refused().0, 400);
    }
    let listed = home.call("com.atproto.server.listAppPasswords", &owner.access, None);
    assert_eq!(listed.ok()["passwords"][0]["name"], "bot");
    assert!(!String::from_utf8_lossy(&listed.body).contains(password), "shown once");
    let bot = home.login(account.did.as_str(), password);
    assert_eq!(home.post(&account, &bot.access).status, 200);
    let bad = refused(400, "InvalidToken");
    assert_eq!(create(&bot.access, "another").refused(), bad);
    for method in ["deactivateAccount", "activateAccount", "revokeAppPassword"] {
        let input = json!({ "name": "bot" });
        let answer = home.call(&format!("com.atproto.server.{method}"), &bot.access, Some(input));
        assert_eq!(answer.refused(), bad, "{method}");
    }
    assert_eq!(home.call("com.atproto.server.listAppPasswords", &bot.access, None).refused(), bad);
    // Refreshing makes no more of it.
    let bot = Session::of(&home.try_refresh(&bot.refresh).ok());
    assert_eq!(create(&bot.access, "another").refused(), bad);
    home.call("com.atproto.server.revokeAppPassword", &owner.access, Some(json!({ "name": "bot" })));
    assert_eq!(home.post(&account, &bot.access).refused(), refused(400, "ExpiredToken"));
    assert_eq!(home.try_refresh(&bot.refresh).refused(), refused(400, "ExpiredToken"));
    assert_eq!(home.try_login(account.did.as_str(), password).refused(), refused(401, "AuthenticationRequired"));
    assert_eq!(home.post(&account, &owner.access).status, 200, "the owner's session stays");
}

#[test]
fn an_account_has_so_many_app_passwords_and_sessions_and_no_more() {
    let home = Home::new();
    let account = home.account();
    let owner = home.login(account.handle.as_str(), PASSWORD);
    let mut last = String::new();
    for number in 0..=APP_PASSWORDS_MAX {
        let input = json!({ "name": format!("bot {number}") });
        let made = home.call("com.atproto.server.createAppPassword", &owner.access, Some(input));
        assert_eq!(made.status, if number < APP_PASSWORDS_MAX { 200 } else { 400 });
        last = made.json()["password"].as_str().map_or(last, str::to_owned);
    }
    home.clock.advance_seconds(1);
    let owner = Session::of(&home.try_refresh(&owner.refresh).ok());
    home.clock.advance_seconds(1);
    for _ in 0..SESSIONS_MAX {
        home.login(account.handle.as_str(), &last);
    }
    assert_eq!(home.row(account.did.as_str()).credentials.sessions.len(), SESSIONS_MAX);
    assert_eq!(home.post(&account, &owner.access).refused(), refused(400, "ExpiredToken"), "refreshed longest ago");
}

#[test]
fn logins_of_an_address_are_counted_by_name() {
    let home =
        Home::with(|options| (options.rates.enabled, options.rates.sessions_per_5_min) = (true, 3), super::home::CHEAP);
    let account = home.account();
    for _ in 0..3 {
        assert_eq!(home.try_login(account.handle.as_str(), "wrong horse").status, 401);
    }
    let answer = home.try_login(account.handle.as_str(), PASSWORD);
    assert_eq!(answer.refused(), refused(429, "RateLimitExceeded"));
    assert_eq!(home.try_login("nobody.pds.test", PASSWORD).status, 401, "another name");
    home.clock.advance_seconds(300);
    assert_eq!(home.try_login(account.handle.as_str(), PASSWORD).status, 200);
}

/// Whoever wrote the name a little differently each time guessed as often as it liked.
#[test]
fn logins_are_counted_by_account_however_its_name_is_spelled() {
    let limited = |options: &mut highwater_xrpc::Options| {
        (options.rates.enabled, options.rates.sessions_per_5_min) = (true, 4);
    };
    let home = Home::with(limited, super::home::CHEAP);
    let (account, other) = (home.account(), home.account());
    let handle = account.handle.as_str();
    for name in [handle, &handle.to_uppercase(), &format!("@{handle}"), account.did.as_str()] {
        assert_eq!(home.try_login(name, "wrong horse").status, 401, "{name}");
    }
    for name in [handle, &format!("@@{}", handle.to_uppercase()), account.did.as_str()] {
        assert_eq!(home.try_login(name, PASSWORD).refused(), refused(429, "RateLimitExceeded"), "{name}");
    }
    for name in ["nobody.pds.test", "@nobody.pds.test", "NOBODY.pds.test", "@@nobody.PDS.test"] {
        assert_eq!(home.try_login(name, PASSWORD).status, 401, "{name}");
    }
    assert_eq!(home.try_login("nobody.pds.test", PASSWORD).status, 429, "or an answer would tell who is here");
    assert_eq!(home.try_login(other.handle.as_str(), PASSWORD).status, 200, "another account");
}

/// Each name had its own count, so that an address with many names kept the processors busy with their hashes.
#[test]
fn logins_of_an_address_are_counted_over_all_names_too() {
    let limited = |options: &mut highwater_xrpc::Options| {
        (options.rates.enabled, options.rates.sessions_per_5_min) = (true, 2);
    };
    let home = Home::with(limited, super::home::CHEAP);
    let account = home.account();
    for number in 0..20 {
        assert_eq!(home.try_login(&format!("nobody{number}.pds.test"), PASSWORD).status, 401);
    }
    assert_eq!(home.try_login(account.handle.as_str(), PASSWORD).refused(), refused(429, "RateLimitExceeded"));
    home.clock.advance_seconds(300);
    assert_eq!(home.try_login(account.handle.as_str(), PASSWORD).status, 200);
}
