//! Sessions in virtual time.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;

const HOUR: u64 = 3_600;
const FIRST: SessionId = SessionId([1; 16]);

fn at(seconds: u64) -> Micros {
    Micros(1_700_000_000_000_000).plus_seconds(seconds)
}

fn opened(seconds: u64) -> Credentials {
    let mut credentials = Credentials::default();
    credentials.apply(&Change::SessionOpened { id: FIRST, grant: Grant::Full, at: at(seconds) });
    credentials
}

/// What a server does with a refresh token: the next generation, or its refusal.
fn refresh(credentials: &mut Credentials, generation: u32, seconds: u64) -> Result<Issued, GraceOver> {
    match credentials.refresh(FIRST, generation, at(seconds))? {
        Refresh::Gave(issued) => Ok(issued),
        Refresh::Rotates => {
            credentials.apply(&Change::SessionRotated { id: FIRST, from: generation, at: at(seconds) });
            credentials.sessions[&FIRST].after(generation).ok_or(GraceOver)
        }
    }
}

/// Clients lost the answer to a refresh, or two of their threads refreshed at once. Where the old token was then refused, the
/// account was logged out for good (atproto#3637, MarshalX/atproto#158 and #514); where it gave another new token each time, one
/// login became many; and where a token was taken after the session had been ended, the logout undid itself (PR#657). Here a token
/// that was used gives the same next one for two hours, then none, and a session that was ended stays so.
#[test]
fn a_refresh_token_used_twice_gives_the_same_next_one_for_two_hours_and_a_revoked_one_none() {
    let mut credentials = opened(0);
    let next = refresh(&mut credentials, 1, HOUR).expect("the first use rotates");
    assert_eq!(next, Issued { generation: 2, at: at(HOUR) });
    for seconds in [HOUR, HOUR + 1, 3 * HOUR - 1] {
        assert_eq!(refresh(&mut credentials, 1, seconds), Ok(next), "the same token again");
    }
    assert_eq!(credentials.sessions[&FIRST].newest(), next, "reuse opened nothing");
    // The next one was used meanwhile: that ends nobody's grace.
    let third = refresh(&mut credentials, 2, 2 * HOUR).expect("the newest rotates");
    assert_eq!(refresh(&mut credentials, 1, 3 * HOUR - 1), Ok(next));
    assert_eq!(refresh(&mut credentials, 1, 3 * HOUR), Err(GraceOver), "two hours are over");
    assert_eq!(refresh(&mut credentials, 2, 4 * HOUR - 1), Ok(third));
    assert_eq!(refresh(&mut credentials, 2, 4 * HOUR), Err(GraceOver));
    refresh(&mut credentials, 3, 5 * HOUR).expect("the newest is good for ninety days");
    credentials.apply(&Change::SessionClosed(FIRST));
    for generation in 0..6 {
        assert_eq!(refresh(&mut credentials, generation, 5 * HOUR), Err(GraceOver), "revoked stays revoked");
    }
    credentials.apply(&Change::SessionRotated { id: FIRST, from: 4, at: at(5 * HOUR) });
    assert_eq!(credentials.sessions.len(), 0, "a rotation that was under way opens no session");
}

#[test]
fn two_refreshes_at_once_rotate_once() {
    let mut credentials = opened(0);
    for seconds in [10, 11] {
        credentials.apply(&Change::SessionRotated { id: FIRST, from: 1, at: at(seconds) });
    }
    assert_eq!(credentials.sessions[&FIRST].newest(), Issued { generation: 2, at: at(10) });
}

#[test]
fn a_session_ends_ninety_days_after_its_last_refresh_and_the_next_change_forgets_it() {
    let mut credentials = opened(0);
    let next = refresh(&mut credentials, 1, HOUR).expect("good").generation;
    let end = HOUR + REFRESH_SECONDS;
    assert_eq!(credentials.refresh(FIRST, next, at(end - 1)), Ok(Refresh::Rotates));
    assert_eq!(credentials.refresh(FIRST, next, at(end)), Err(GraceOver));
    credentials.apply(&Change::SessionOpened { id: SessionId([2; 16]), grant: Grant::Full, at: at(end) });
    assert_eq!(credentials.sessions.keys().collect::<Vec<_>>(), [&SessionId([2; 16])]);
}

#[test]
fn one_session_too_many_ends_the_one_that_was_refreshed_longest_ago() {
    let mut credentials = opened(0);
    for other in 1..SESSIONS_MAX as u128 {
        let id = SessionId((1 << 64 | other).to_be_bytes());
        credentials.apply(&Change::SessionOpened { id, grant: Grant::Full, at: at(other as u64) });
    }
    refresh(&mut credentials, 1, 1_000).expect("good");
    let id = SessionId([9; 16]);
    credentials.apply(&Change::SessionOpened { id, grant: Grant::Full, at: at(1_001) });
    assert_eq!(credentials.sessions.len(), SESSIONS_MAX);
    assert!(credentials.sessions.contains_key(&FIRST), "it was opened first, and refreshed since");
    assert!(!credentials.sessions.contains_key(&SessionId((1u128 << 64 | 1).to_be_bytes())));
}

#[test]
fn a_session_that_is_refreshed_without_end_takes_no_more_room() {
    let mut credentials = opened(0);
    for second in 1..=1_000 {
        refresh(&mut credentials, second, u64::from(second)).expect("good");
    }
    let mut out = Writer::new();
    credentials.encode(&mut out);
    assert!(out.len() < 256, "{} bytes", out.len());
    assert_eq!(refresh(&mut credentials, 1_000, 1_001).map(|issued| issued.generation), Ok(1_001));
    assert_eq!(refresh(&mut credentials, 900, 1_001), Err(GraceOver));
}

#[test]
fn a_clock_that_is_set_back_makes_no_older_token() {
    let mut credentials = opened(HOUR);
    let next = refresh(&mut credentials, 1, 0).expect("good");
    assert_eq!(next.at, at(HOUR));
}

#[test]
fn another_password_ends_every_session_and_a_revoked_app_password_its_own() {
    let mut credentials = opened(0);
    let password = AppPassword { salt: [1; 16], digest: [2; 32], privileged: false, created: at(0) };
    credentials.apply(&Change::AppPasswordCreated("bot".into(), password.clone()));
    credentials.apply(&Change::AppPasswordCreated("feed".into(), password));
    for (number, name) in [(2, "bot"), (3, "feed")] {
        let grant = Grant::AppPassword { name: name.into(), privileged: false };
        credentials.apply(&Change::SessionOpened { id: SessionId([number; 16]), grant, at: at(1) });
    }
    credentials.apply(&Change::AppPasswordRevoked("bot".into()));
    assert_eq!(credentials.sessions.keys().collect::<Vec<_>>(), [&FIRST, &SessionId([3; 16])]);
    assert_eq!(credentials.app_passwords.keys().collect::<Vec<_>>(), ["feed"]);
    credentials.apply(&Change::Password("another".into()));
    assert!(credentials.sessions.is_empty());
}

#[test]
fn an_app_password_keeps_its_name_and_there_are_only_so_many() {
    let mut credentials = Credentials::default();
    let password = |digest| AppPassword { salt: [1; 16], digest: [digest; 32], privileged: false, created: at(0) };
    for digest in [1, 2] {
        credentials.apply(&Change::AppPasswordCreated("bot".into(), password(digest)));
    }
    assert_eq!(credentials.app_passwords["bot"].digest, [1; 32], "the first one stays");
    for number in 0..100 {
        credentials.apply(&Change::AppPasswordCreated(format!("bot {number}"), password(3)));
    }
    assert_eq!(credentials.app_passwords.len(), APP_PASSWORDS_MAX);
}

#[test]
fn a_session_number_is_read_as_it_is_written_and_no_other_way() {
    let id = SessionId([0xab; 16]);
    assert_eq!(SessionId::parse(&id.to_string()), Some(id));
    for text in ["", "ab", &id.to_string().to_uppercase(), &format!("+{}", &id.to_string()[1..]), &format!("{id}0")] {
        assert_eq!(SessionId::parse(text), None, "{text}");
    }
}

fn change() -> impl Strategy<Value = Change> {
    let name = "[a-d]{1}";
    let session = (0u8..6).prop_map(|number| SessionId([number; 16]));
    let grant = prop_oneof![
        Just(Grant::Full),
        (name, any::<bool>()).prop_map(|(name, privileged)| Grant::AppPassword { name, privileged }),
    ];
    let password = (any::<[u8; 16]>(), any::<[u8; 32]>(), any::<bool>(), 0u64..1_000).prop_map(
        |(salt, digest, privileged, created)| AppPassword { salt, digest, privileged, created: Micros(created) },
    );
    let time = (0u64..40).prop_map(|steps| at(steps * 1_800));
    prop_oneof![
        1 => "[a-z]{0,8}".prop_map(Change::Password),
        2 => (name, password).prop_map(|(name, password)| Change::AppPasswordCreated(name, password)),
        1 => name.prop_map(Change::AppPasswordRevoked),
        4 => (session.clone(), grant, time.clone()).prop_map(|(id, grant, at)| Change::SessionOpened { id, grant, at }),
        8 => (session.clone(), 1u32..5, time).prop_map(|(id, from, at)| Change::SessionRotated { id, from, at }),
        1 => session.prop_map(Change::SessionClosed),
    ]
}

proptest! {
    #[test]
    fn credentials_and_their_changes_read_back(changes in prop::collection::vec(change(), 0..40)) {
        let mut credentials = Credentials::default();
        for change in &changes {
            let mut out = Writer::new();
            change.encode(&mut out);
            let mut input = Reader::new(Bytes::from(out.into_vec()));
            prop_assert_eq!(&Change::decode(&mut input).expect("a change"), change);
            prop_assert_eq!(input.finish(), Ok(()));
            credentials.apply(change);
            prop_assert!(credentials.sessions.len() <= SESSIONS_MAX);
        }
        let mut out = Writer::new();
        credentials.encode(&mut out);
        let mut input = Reader::new(Bytes::from(out.into_vec()));
        prop_assert_eq!(Credentials::decode(&mut input).expect("credentials"), credentials);
        prop_assert_eq!(input.finish(), Ok(()));
    }
}
