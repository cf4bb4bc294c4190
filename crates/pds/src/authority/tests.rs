//! What lets requests in, and when it is good for nothing any more.

use super::*;
use crate::account::{Standing, StoredKey};
use crate::credentials::Grant;
use crate::time::Micros;
use bytes::Bytes;
use highwater_repo::key::Curve;

type Judged = Result<(), Withdrawn>;

const SESSION: SessionId = SessionId([1; 16]);

fn active() -> Account {
    let key = StoredKey { curve: Curve::K256, public: "z".into(), sealed: false, secret: Bytes::from_static(&[1; 32]) };
    let did = "did:web:7f3a9c2e11d04b58.pds.example".parse().expect("a DID");
    let handle = "brisk-otter.pds.example".parse().expect("a handle");
    let mut account = Account::new((AccountId(1), did, handle), key, Micros(1));
    account.standing.activated = true;
    account
}

fn app_password(digest: u8) -> AppPassword {
    AppPassword { salt: [0; 16], digest: [digest; 32], privileged: false, created: Micros(1) }
}

fn program() -> Grant {
    Grant::AppPassword { name: "bot".into(), privileged: false }
}

/// An account with a password, an app password, and a session of that app password.
fn logged_in() -> Account {
    let mut account = active();
    for change in [
        Change::Password("hash".into()),
        Change::AppPasswordCreated("bot".into(), app_password(7)),
        Change::SessionOpened { id: SESSION, grant: program(), at: Micros(2) },
    ] {
        account.credentials.apply(&change);
    }
    account
}

fn authorities() -> [Authority; 5] {
    [
        Authority::Server,
        Authority::Session(SESSION),
        Authority::Key,
        Authority::Password("hash".into()),
        Authority::AppPassword("bot".into(), app_password(7)),
    ]
}

/// What is done to credentials while a request is on its way, and what becomes of each authority by that, in their order.
#[test]
fn whatever_ends_a_session_or_a_password_withdraws_what_was_let_in_by_it() {
    let (ended, password) = (Err(Withdrawn::Ended), Err(Withdrawn::Password));
    let nothing = [Ok(()); 5];
    let cases: [(&str, &[Change], [Judged; 5]); 6] = [
        ("nothing", &[], nothing),
        ("a logout", &[Change::SessionClosed(SESSION)], [Ok(()), ended, Ok(()), Ok(()), Ok(())]),
        ("another password", &[Change::Password("new".into())], [Ok(()), ended, Ok(()), password, Ok(())]),
        (
            "a revoked app password",
            &[Change::AppPasswordRevoked("bot".into())],
            [Ok(()), ended, Ok(()), Ok(()), password],
        ),
        (
            "an app password of the same name",
            &[
                Change::AppPasswordRevoked("bot".into()),
                Change::AppPasswordCreated("bot".into(), app_password(8)),
                Change::SessionOpened { id: SessionId([2; 16]), grant: program(), at: Micros(3) },
            ],
            [Ok(()), ended, Ok(()), Ok(()), password],
        ),
        ("a refresh", &[Change::SessionRotated { id: SESSION, from: 1, at: Micros(3) }], nothing),
    ];
    for (name, changes, expected) in cases {
        let mut account = logged_in();
        changes.iter().for_each(|change| account.credentials.apply(change));
        assert_eq!(authorities().map(|authority| authority.judge(&account)), expected, "{name}");
    }
}

/// Where an account may stand; whether it may have sessions there, and whether it may act.
fn standings() -> [(Standing, Judged, Judged); 8] {
    let active = Standing { activated: true, ..Standing::default() };
    let stopped = |standing, why| (standing, Err(why), Err(why));
    [
        (active, Ok(()), Ok(())),
        (Standing { until_first_write: true, ..active }, Ok(()), Ok(())),
        (Standing { deactivated: true, ..active }, Ok(()), Err(Withdrawn::Deactivated)),
        stopped(Standing::default(), Withdrawn::NotActivated),
        stopped(Standing { suspended: true, deactivated: true, ..active }, Withdrawn::Locked),
        stopped(Standing { taken_down: true, suspended: true, ..active }, Withdrawn::TakenDown),
        stopped(Standing { decommissioned: true, ..active }, Withdrawn::Decommissioned),
        stopped(Standing { erased: true, taken_down: true, ..active }, Withdrawn::Erased),
    ]
}

#[test]
fn a_lock_stops_every_authority_but_the_operators() {
    for (standing, sessions, acts) in standings() {
        let account = Account { standing, ..logged_in() };
        assert_eq!((account.may_have_sessions(), account.may_act()), (sessions, acts), "{standing:?}");
        for authority in authorities() {
            let expected = if authority == Authority::Server { Ok(()) } else { sessions };
            assert_eq!(authority.judge(&account), expected, "{authority:?} at {standing:?}");
        }
    }
}

#[test]
fn facts_begin_where_they_may_and_end_anywhere() {
    let id = AccountId(1);
    let cid = highwater_repo::Cid::of(highwater_repo::Codec::Raw, b"blob");
    let uploaded = blob::Change::Uploaded { cid, bytes: 4, media_type: "text/plain".into(), at: Micros(3) };
    for (standing, sessions, acts) in standings() {
        let account = Account { standing, ..logged_in() };
        for (change, expected) in [
            (Change::SessionOpened { id: SESSION, grant: Grant::Full, at: Micros(3) }, sessions),
            (Change::SessionRotated { id: SESSION, from: 1, at: Micros(3) }, sessions),
            (Change::AppPasswordCreated("new".into(), app_password(1)), acts),
            (Change::AppPasswordRevoked("bot".into()), Ok(())),
            (Change::SessionClosed(SESSION), Ok(())),
            (Change::Password("new".into()), Ok(())),
        ] {
            assert_eq!(Fact::Credentials(id, change.clone()).judge(&account), expected, "{change:?} at {standing:?}");
        }
        assert_eq!(Fact::Blob(id, uploaded.clone()).judge(&account), acts, "{standing:?}");
        assert_eq!(Fact::Blob(id, blob::Change::Removed(cid)).judge(&account), Ok(()), "{standing:?}");
    }
}
