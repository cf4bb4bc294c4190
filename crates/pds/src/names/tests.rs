use super::*;
use highwater_base::Random as _;
use highwater_base::random::SplitMix;
use std::cell::RefCell;
use std::collections::BTreeSet;

fn zone(text: &str) -> Zone {
    text.parse().expect("a zone")
}

#[test]
fn a_zone_is_a_host_name_or_this_machine_with_a_port() {
    for text in ["pds.example", "a-b.c1.example", "localhost:2583", "x1.y2"] {
        assert_eq!(zone(text).to_string(), text);
    }
    for text in [
        "",
        "example",
        "localhost",
        "localhost:0",
        "localhost:65536",
        "localhost:",
        "pds.example:443",
        "PDS.example",
        "pds..example",
        ".example",
        "example.",
        "-a.example",
        "a-.example",
        "a_b.example",
        "pds.1",
        "127.0.0.1",
        "pds.example/",
        &format!("{}.example", "a".repeat(64)),
        &vec!["a"; 100].join("."),
    ] {
        assert!(text.parse::<Zone>().is_err(), "{text:?}");
    }
    assert_eq!(zone("pds.example").endpoint(), "https://pds.example");
    assert_eq!(zone("localhost:2583").endpoint(), "http://localhost:2583");
}

#[test]
fn a_host_names_an_account_by_its_did_or_its_handle() {
    let zone = zone("pds.example");
    let did = |host| zone.did_at(host).map(|did| did.to_string());
    assert_eq!(did("7f3a9c0011.pds.example").as_deref(), Some("did:web:7f3a9c0011.pds.example"));
    assert_eq!(did("7F3A9C0011.PDS.Example:443").as_deref(), Some("did:web:7f3a9c0011.pds.example"));
    for host in ["pds.example", "a.b.pds.example", "x.other.example", ".pds.example", "xpds.example", ""] {
        assert_eq!(zone.did_at(host), None, "{host}");
        assert_eq!(zone.handle_at(host), None, "{host}");
    }
    assert_eq!(
        zone.handle_at("amber-fox.pds.example").map(|handle| handle.to_string()).as_deref(),
        Some("amber-fox.pds.example")
    );
    // On this machine a port is part of the name, and the zone itself may be the one account that resolvers find.
    let local = self::zone("localhost:2583");
    assert_eq!(local.did_at("localhost:2583").map(|did| did.to_string()).as_deref(), Some("did:web:localhost%3A2583"));
    assert_eq!(local.did_at("localhost:2583"), local.did_alone());
    assert_eq!(
        local.did_at("abc.localhost").map(|did| did.to_string()).as_deref(),
        Some("did:web:abc.localhost%3A2583")
    );
    assert_eq!(zone.did_alone(), None);
}

#[test]
fn every_word_is_short_and_stands_once() {
    for list in [words::QUALITIES, words::THINGS] {
        assert!(list.len() >= 180);
        assert!(list.is_sorted() && list.windows(2).all(|pair| pair[0] != pair[1]), "in order, each once");
        assert!(
            list.iter().all(|word| (2..=8).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase()))
        );
    }
}

/// Names as a server gives them, and keeps for good.
struct Given(RefCell<BTreeSet<String>>);

impl Given {
    fn give(&self, zone: &Zone, handle: Option<&str>, random: impl FnMut() -> u64) -> Result<Names, NameError> {
        let names = zone.give(handle, |name| self.0.borrow().contains(name), random)?;
        for name in [names.did.as_str(), names.handle.as_str()] {
            assert!(self.0.borrow_mut().insert(name.to_owned()), "{name} was given twice");
        }
        Ok(names)
    }
}

#[test]
fn names_are_given_once() {
    let (zone, given, mut random) = (zone("pds.example"), Given(RefCell::default()), SplitMix::new(4));
    for _ in 0..2_000 {
        let names = given.give(&zone, None, || random.next_u64()).expect("there are names");
        assert_eq!(zone.did_at(names.did.as_str().trim_start_matches("did:web:")), Some(names.did.clone()));
        let label = names.handle.as_str().strip_suffix(".pds.example").expect("in the zone");
        assert!((2..=3).contains(&label.split('-').count()), "{label}");
    }
    // One that was asked for, and one that a label of somebody else has.
    given.give(&zone, Some("my-bot.pds.example"), || random.next_u64()).expect("free");
    let taken = given.give(&zone, Some("my-bot.pds.example"), || random.next_u64());
    assert_eq!(taken, Err(NameError::Taken("my-bot.pds.example".to_owned())));
    let host = given.0.borrow().iter().find_map(|name| name.strip_prefix("did:web:").map(str::to_owned)).expect("one");
    assert_eq!(given.give(&zone, Some(&host), || random.next_u64()), Err(NameError::Taken(host)));
    for handle in ["my.bot.pds.example", "bot.example", "pds.example", "-bot.pds.example", "Bot.pds.example", "bot"] {
        assert!(matches!(given.give(&zone, Some(handle), || 0), Err(NameError::Handle { .. })), "{handle}");
    }
}

/// Where chance draws what is taken, a third word is added, and in the end there is an error and no loop.
#[test]
fn a_drawn_name_that_is_taken_is_drawn_again() {
    let (zone, given) = (zone("pds.example"), Given(RefCell::default()));
    let first = given.give(&zone, None, || 7).expect("free");
    assert_eq!(given.give(&zone, None, || 7), Err(NameError::Exhausted), "its label is drawn over and over");
    let mut draws = 0u64;
    let next = given.give(&zone, None, || {
        draws += 1;
        // The handle's words stay the same; the label, drawn last, does not.
        if draws <= 2 * DRAWS_MAX as u64 + 3 { 7 } else { draws << 40 }
    });
    let next = next.expect("three words are free");
    assert_eq!(next.handle.as_str().split('-').count(), first.handle.as_str().split('-').count() + 1);
}
