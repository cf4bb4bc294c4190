//! Tokens that must not be taken, and those for other services.

use crate::home::{ADMIN, CHEAP, Home, PASSWORD, audience, auth, refused};
use highwater_pds::Account;
use highwater_pds::lifecycle::Change;
use highwater_repo::key::{Curve, PublicKey, SigningKey};
use highwater_xrpc::jose::{
    ServiceClaims, ServiceExpected, SessionClaims, SessionKey, TokenScope, mint_service, parse_service,
};
use highwater_xrpc::{Auth, AuthError, AuthOptions, Gatekeeper};
use serde_json::json;

#[test]
fn a_request_without_a_token_or_with_another_servers_is_refused_by_name() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    let method = "com.atproto.server.getSession";
    let missing = refused(401, "AuthMissing");
    assert_eq!(home.send(method, &[], None).refused(), missing);
    for value in ["", "Bearer", "Basic YTpi", &session.access, &format!("DPoP {}", session.access)] {
        assert_eq!(home.send(method, &[("authorization", value)], None).refused(), missing, "{value:.10}");
    }
    let (header, rest) = session.access.split_once('.').expect("three parts");
    let (payload, signature) = rest.split_once('.').expect("three parts");
    let none = "eyJ0eXAiOiJhdCtqd3QiLCJhbGciOiJub25lIn0";
    let foreign = SessionKey::new([1; 32]).mint(
        &SessionClaims {
            scope: TokenScope::Access,
            subject: account.did.to_string(),
            session: *home.row(account.did.as_str()).credentials.sessions.keys().next().expect("one"),
            generation: 1,
            issued: home.clock.seconds(),
        },
        &audience(),
    );
    for bad in [
        "x".to_owned(),
        "..".to_owned(),
        format!("{none}.{payload}."),
        format!("{none}.{payload}.{signature}"),
        format!("{header}.{payload}."),
        format!("{header}.{payload}.{}", signature.to_lowercase()),
        format!("{}.{payload}.{signature}", "a".repeat(9_000)),
        foreign,
    ] {
        assert_eq!(home.call(method, &bad, None).refused(), refused(400, "InvalidToken"), "{bad:.60}");
    }
}

#[test]
fn a_token_of_one_kind_is_not_taken_for_the_other() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    let bad = refused(400, "InvalidToken");
    for method in ["com.atproto.server.getSession", "com.atproto.server.checkAccountStatus"] {
        assert_eq!(home.call(method, &session.refresh, None).refused(), bad, "{method}");
    }
    assert_eq!(home.post(&account, &session.refresh).refused(), bad);
    for method in ["com.atproto.server.refreshSession", "com.atproto.server.deleteSession"] {
        assert_eq!(home.call(method, &session.access, Some(json!({}))).refused(), bad, "{method}");
    }
    for method in ["com.atproto.admin.getAccountInfo?did=did:web:a.example", "com.atproto.admin.getSubjectStatus?did=x"]
    {
        assert_eq!(home.call(method, &session.access, None).refused(), refused(401, "AuthMissing"), "{method}");
    }
}

#[test]
fn tokens_are_good_after_a_restart_because_their_secret_is_kept() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    let again = auth(&home.server.host, CHEAP);
    let (mut head, ()) = axum::http::Request::new(()).into_parts();
    let value = format!("Bearer {}", session.access).parse().expect("a header");
    head.headers.insert("authorization", value);
    let access = again.access(&home.server.context, &head).expect("taken");
    assert_eq!(access.account, account.id);
    assert!(!format!("{again:?}").contains(ADMIN), "nothing of it is written into a log");
}

#[test]
fn a_server_whose_secret_does_not_open_says_so_and_opens_no_session() {
    let home = Home::new();
    let secret = highwater_pds::Fact::SessionSecret { sealed: true, secret: vec![1; 73].into() };
    home.server.host.note(secret).wait().expect("noted");
    let opened = Auth::open(&home.server.host, AuthOptions::default());
    assert!(matches!(opened, Err(AuthError::Secret)), "{opened:?}");
}

fn service_auth(home: &Home, token: &str, query: &str) -> crate::wire::Answer {
    home.call(&format!("com.atproto.server.getServiceAuth?{query}"), token, None)
}

#[test]
fn a_token_for_another_service_says_who_for_whom_for_what_and_for_how_long() {
    let home = Home::new();
    let account = home.account();
    let session = home.login(account.handle.as_str(), PASSWORD);
    let now = home.clock.seconds();
    let query = "aud=did:web:video.example%23video&lxm=app.bsky.video.uploadVideo";
    let told = service_auth(&home, &session.access, query).ok();
    let token = parse_service(told["token"].as_str().expect("a token")).expect("a token");
    assert_eq!(token.issuer(), account.did.as_str());
    let expected = ServiceExpected { audience: "did:web:video.example", method: "app.bsky.video.uploadVideo", now };
    let key = PublicKey::parse(&account.key.public).expect("a key");
    let claims = token.judge(&key, &expected).expect("it stands");
    assert_eq!((claims.aud.as_str(), claims.exp), ("did:web:video.example#video", now + 60));
    for (exp, good) in
        [(now, false), (now + 1, true), (now + 60, true), (now + 61, false), (now + 1_800, false), (0, false)]
    {
        let answer = service_auth(&home, &session.access, &format!("{query}&exp={exp}"));
        match good {
            true => assert_eq!(answer.status, 200, "{exp}"),
            false => assert_eq!(answer.refused(), refused(400, "BadExpiration"), "{exp}"),
        }
    }
    for bad in [
        "",
        "aud=video.example",
        "aud=did:web:a.example%23",
        "aud=did:web:a.example%23a%23b",
        "aud=did:web:a.example&lxm=x",
    ] {
        assert_eq!(service_auth(&home, &session.access, bad).refused(), refused(400, "InvalidRequest"), "{bad}");
    }
}

#[test]
fn no_token_is_minted_for_what_a_session_may_not_do_itself() {
    let home = Home::new();
    let account = home.account();
    let owner = home.login(account.handle.as_str(), PASSWORD);
    let app = |name: &str, privileged: bool| {
        let input = json!({ "name": name, "privileged": privileged });
        let made = home.call("com.atproto.server.createAppPassword", &owner.access, Some(input)).ok();
        home.login(account.handle.as_str(), made["password"].as_str().expect("a password"))
    };
    let (plain, privileged) = (app("plain", false), app("privileged", true));
    let status = |session: &crate::home::Session, lxm: &str| {
        let method = if lxm.is_empty() { String::new() } else { format!("&lxm={lxm}") };
        service_auth(&home, &session.access, &format!("aud=did:web:a.example{method}")).status
    };
    for (lxm, statuses) in [
        ("app.bsky.feed.getTimeline", [200, 200, 200]),
        ("chat.bsky.convo.listConvos", [200, 200, 400]),
        ("com.atproto.server.createAccount", [200, 400, 400]),
        ("com.atproto.server.createAppPassword", [400, 400, 400]),
        ("com.atproto.server.deactivateAccount", [400, 400, 400]),
        ("com.atproto.admin.deleteAccount", [400, 400, 400]),
        ("com.atproto.identity.signPlcOperation", [400, 400, 400]),
        ("", [200, 400, 400]),
    ] {
        assert_eq!([&owner, &privileged, &plain].map(|session| status(session, lxm)), statuses, "{lxm}");
    }
}

fn key(home: &Home, account: &Account) -> SigningKey {
    let secret = home.server.host.unseal(account.key.sealed, &account.key.secret).expect("it opens");
    SigningKey::from_secret(account.key.curve, &secret.try_into().expect("32 bytes")).expect("a key")
}

/// A service that works for an account, such as one that converts videos, uploads what it made with a token of the account.
#[test]
fn a_service_uploads_for_an_account_with_a_token_for_just_that() {
    let home = Home::new();
    let account = home.account();
    let now = home.clock.seconds();
    let good = ServiceClaims {
        iat: now,
        iss: account.did.to_string(),
        aud: audience(),
        exp: now + 60,
        lxm: Some("com.atproto.repo.uploadBlob".into()),
        jti: "1".into(),
    };
    let upload = |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str()), ("content-type", "text/plain")];
        crate::wire::ask(home.server.address, "POST", "/xrpc/com.atproto.repo.uploadBlob", &headers, Some(b"made"))
    };
    let own = key(&home, &account);
    assert_eq!(upload(&mint_service(&own, &good)).status, 200);
    let other = SigningKey::from_secret(Curve::K256, &[3; 32]).expect("a key");
    let bad = |change: &dyn Fn(&mut ServiceClaims)| {
        let mut claims = good.clone();
        change(&mut claims);
        mint_service(&own, &claims)
    };
    for (token, name) in [
        (mint_service(&other, &good), "InvalidToken"),
        (bad(&|claims| claims.aud = "did:web:other.example".into()), "InvalidToken"),
        (bad(&|claims| claims.lxm = Some("com.atproto.repo.createRecord".into())), "InvalidToken"),
        (bad(&|claims| claims.lxm = None), "InvalidToken"),
        (bad(&|claims| claims.exp = now + 3_600), "InvalidToken"),
        (bad(&|claims| claims.iss = "did:web:other.example".into()), "InvalidToken"),
        (bad(&|claims| claims.exp = now), "ExpiredToken"),
    ] {
        assert_eq!(upload(&token).refused(), refused(400, name), "{token}");
    }
    assert_eq!(home.post(&account, &mint_service(&own, &good)).refused(), refused(400, "InvalidToken"), "nowhere else");
    home.change(&account, Change::Lock);
    assert_eq!(upload(&mint_service(&own, &good)).refused(), refused(401, "AccountTakedown"));
    home.change(&account, Change::Lift);
    assert_eq!(upload(&mint_service(&own, &good)).status, 200);
}
