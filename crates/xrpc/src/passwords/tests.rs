//! Hashes against another implementation's, and what a guess costs.

use super::*;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const BOT: Party = Party::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));
const CHEAP: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };

/// The vector is that of the reference implementation of Argon2 (`argon2-cffi` 25.1, `hash_secret`).
#[test]
fn a_hash_is_that_of_another_implementation() {
    let hash = Hash::of(
        b"correct horse battery staple",
        *b"somesaltsomesalt",
        Cost { memory_kib: 64, passes: 2, lanes: 1 },
        &mut Memory::default(),
    );
    assert_eq!(
        hash.to_string(),
        "$argon2id$v=19$m=64,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$Sr6N/nCmohWCvF7EZislLIdwA8ojCXux0K30ccqFS30"
    );
    assert_eq!(Hash::parse(&hash.to_string()), Some(hash));
}

#[test]
fn a_hash_with_parameters_that_would_cost_everything_is_none() {
    let good = Hash::of(b"password", [1; 16], CHEAP, &mut Memory::default()).to_string();
    assert!(Hash::parse(&good).is_some_and(
        |hash| hash.fits(b"password", &mut Memory::default()) && !hash.fits(b"passwore", &mut Memory::default())
    ));
    for (from, to) in [
        ("m=8", "m=4294967295"),
        ("m=8", "m=65537"),
        ("m=8", "m=1"),
        ("t=1", "t=17"),
        ("t=1", "t=0"),
        ("p=1", "p=200"),
        ("v=19", "v=16"),
        ("argon2id", "argon2i"),
        ("m=8,t=1,p=1", "m=8,t=1,p=1,data=AAAA"),
        ("m=8,t=1,p=1", "t=1,m=8,p=1"),
        ("$m", "m"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(good, bad);
        assert_eq!(Hash::parse(&bad), None, "{bad}");
    }
    assert_eq!(Hash::parse(&format!("{good}$")), None);
    assert_eq!(Hash::parse(""), None);
}

#[tokio::test]
async fn a_password_fits_its_own_hash_and_nothing_fits_none() {
    let passwords = Passwords::new(CHEAP);
    let hash = passwords.hash(BOT, "long enough", [3; 16]).await.expect("a hash");
    assert!(passwords.verify(BOT, "long enough", Some(&hash)).await.expect("checked"));
    for (password, kept) in [
        ("long enougH", Some(hash.as_str())),
        ("", Some(&hash)),
        ("long enough", None),
        ("long enough", Some("")),
        ("long enough", Some("$argon2id$v=19$m=8,t=1,p=1$$")),
        (&"x".repeat(513), Some(&hash)),
    ] {
        assert!(!passwords.verify(BOT, password, kept).await.expect("checked"), "{password} {kept:?}");
    }
    assert!(passwords.hash(BOT, "short", [3; 16]).await.is_err());
    assert!(passwords.hash(BOT, &"x".repeat(513), [3; 16]).await.is_err());
}

/// Where an unknown name was answered faster than a wrong password, anybody could list the accounts.
#[test]
fn where_there_is_no_account_the_same_work_is_done() {
    let kept = Hash::of(b"password", [1; 16], CHEAP, &mut Memory::default());
    assert_eq!(Hash::nobodys(CHEAP).cost(), kept.cost());
    assert_ne!(Hash::nobodys(CHEAP).cost(), Cost::default(), "the cost is the one that new hashes have");
    assert!(!Hash::nobodys(CHEAP).fits(b"", &mut Memory::default()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_compute_two_at_once_and_what_would_wait_too_long_is_refused() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let passwords = Passwords::new(CHEAP);
    let tasks: Vec<_> = (0..AT_ONCE + WAITING_MAX + 10)
        .map(|number| {
            let bot = Party::Address(Ipv4Addr::from(number as u32).into());
            let passwords = passwords.clone();
            tokio::spawn(async move {
                let work = |_: &mut Memory| {
                    MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    RUNNING.fetch_sub(1, Ordering::SeqCst);
                };
                passwords.run(bot, work).await.map_err(|error| error.name())
            })
        })
        .collect();
    let mut refused = 0;
    for task in tasks {
        if let Err(name) = task.await.expect("no panic") {
            assert_eq!(name, Name::NotEnoughResources);
            refused += 1;
        }
    }
    assert!((1..=10).contains(&refused), "{refused}");
    assert_eq!(MOST.load(Ordering::SeqCst), AT_ONCE);
}

/// One address held all places of those that wait, and nobody else could log in.
#[tokio::test]
async fn logins_of_one_address_leave_places_for_others() {
    let passwords = Passwords::new(CHEAP);
    let slow = |who| {
        let passwords = passwords.clone();
        async move { passwords.run(who, |_: &mut Memory| std::thread::sleep(Duration::from_millis(1))).await }
    };
    // The flood asks first: tasks of one thread run in the order in which they were made.
    let flood: Vec<_> = (0..AT_ONCE + WAITING_MAX).map(|_| tokio::spawn(slow(BOT))).collect();
    tokio::task::yield_now().await;
    let other = Party::Address(Ipv4Addr::from(7).into());
    assert!(slow(other).await.is_ok() && slow(Party::Operator).await.is_ok());
    let mut refused = Vec::new();
    for login in flood {
        refused.extend(login.await.expect("no panic").err().map(|error| error.name()));
    }
    assert!(refused.len() > WAITING_MAX / 4, "{}", refused.len());
    assert!(refused.iter().all(|name| *name == Name::RateLimitExceeded));
}

#[test]
fn an_app_password_has_eighty_bits_in_four_groups() {
    assert_eq!(app_password([0, 0]), "aaaa-aaaa-aaaa-aaaa");
    assert_eq!(app_password([u64::MAX, u64::MAX]), "7777-7777-7777-7777");
    assert_eq!(app_password([0, 1]), "baaa-aaaa-aaaa-aaaa");
    assert_eq!(app_password([1 << 15, 0]), "aaaa-aaaa-aaaa-aaaq", "the eightieth bit counts");
    assert!(is_app_password("abcd-efgh-2345-67zz"));
    for other in [
        "",
        "abcd-efgh-2345-67z",
        "abcd-efgh-2345-67zzz",
        "ABCD-efgh-2345-67zz",
        "abcd-efgh-2345-189z",
        "abcdeefgh-2345-67zz",
    ] {
        assert!(!is_app_password(other), "{other}");
    }
}

#[test]
fn what_is_kept_of_an_app_password_fits_it_alone_and_is_different_for_each_account() {
    let keep = |salt| keep_app_password("abcd-efgh-2345-67zz", [salt; 16], true, Micros(7));
    assert!(fits_app_password("abcd-efgh-2345-67zz", &keep(1)));
    assert!(!fits_app_password("abcd-efgh-2345-67zy", &keep(1)));
    assert_ne!(keep(1).digest, keep(2).digest);
    assert!(keep(1).privileged && keep(1).created == Micros(7));
}
