//! All short runs of writes over a small alphabet.
//!
//! A write that changes nothing leads back to where it was asked, so only those that apply are followed; that, too,
//! is checked.

use crate::script::token;
use bytes::Bytes;
use highwater_base::planted::{Bug, plant};
use highwater_base::{Digest, Millis, limits};
use highwater_stream::*;
use std::collections::{BTreeMap, BTreeSet};

/// One thing that may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letter {
    Write { producer: &'static str, epoch: u64, seq: u64, body: &'static str, tokened: bool },
    Wait(u64),
}

/// (producer, epoch, seq)
type Key = (&'static str, u64, u64);

/// What was acknowledged on the way here.
#[derive(Debug, Clone, Default)]
struct Past {
    /// The body under which a key applied last.
    applied: BTreeMap<Key, &'static str>,
    /// The highest epoch that each producer claimed.
    epochs: BTreeMap<&'static str, u64>,
    /// A record was forgotten, or may have been.
    waited: bool,
    /// A write without the token applied. Once a record was forgotten, such writes may take an epoch anew, and what is
    /// said of that epoch then is said of its second life.
    plain: bool,
}

struct Search {
    letters: Vec<Letter>,
    visited: u64,
}

impl Search {
    /// Tries every letter here, and every run of at most `depth` letters behind those that apply.
    fn explore(&mut self, machine: &Machine, at: Millis, past: &Past, depth: u32) -> Result<(), String> {
        if depth == 0 {
            return Ok(());
        }
        let before = machine.fingerprint();
        for letter in self.letters.clone() {
            self.visited += 1;
            let mut past = past.clone();
            match letter {
                Letter::Wait(ms) => {
                    past.waited = true;
                    self.explore(machine, at.plus(ms), &past, depth - 1)?;
                }
                Letter::Write { .. } => {
                    let mut machine = machine.clone();
                    let applied = machine.apply(&command(at, letter));
                    check(letter, &applied.result, &mut past).map_err(|what| {
                        format!("{what}: {letter:?} was answered {:?} after {past:?}", applied.result)
                    })?;
                    if !applied.effects.is_empty() {
                        self.explore(&machine, at, &past, depth - 1)?;
                    } else if machine.fingerprint() != before {
                        return Err(format!("{letter:?} changed the state, and told nobody"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Holds one answer against everything that was answered before.
fn check(letter: Letter, result: &Result<Outcome, Refusal>, past: &mut Past) -> Result<(), &'static str> {
    let Letter::Write { producer, epoch, seq, body, tokened } = letter else { return Ok(()) };
    let key = (producer, epoch, seq);
    let current = past.epochs.get(producer).copied();
    // While nothing can be forgotten, plain writes are held to the same as tokened ones.
    let strict = tokened || !past.waited;
    match result {
        Ok(Outcome::Applied(receipt)) => {
            if strict && current.is_some_and(|current| epoch < current) {
                return Err("an older epoch wrote");
            }
            if strict && past.applied.contains_key(&key) {
                return Err("a write applied twice");
            }
            if seq > 0 && !past.applied.contains_key(&(producer, epoch, seq - 1)) {
                return Err("a write applied before the one in front of it");
            }
            if receipt.next.since(receipt.start) != body.len() as u64 {
                return Err("a receipt names other bytes");
            }
            past.plain |= !tokened;
            past.applied.insert(key, body);
            past.epochs.insert(producer, epoch);
        }
        Ok(Outcome::Repeated(_)) => {
            if past.applied.get(&key) != Some(&body) {
                return Err("two bodies were acknowledged under one key");
            }
            if current != Some(epoch) {
                return Err("an older epoch was answered as a repeat");
            }
        }
        Ok(Outcome::Evicted { .. }) => {
            if !past.applied.contains_key(&key) || current != Some(epoch) {
                return Err("a write that never applied was called applied");
            }
            if seq == 0 && past.applied.get(&key) != Some(&body) {
                return Err("two bodies claimed one epoch");
            }
        }
        Ok(_) => return Err("a keyed write got another write's answer"),
        Err(Refusal::EpochClosedByClaim { current: named, closed }) => {
            if current != Some(*named) || closed.epoch != epoch || current <= Some(epoch) {
                return Err("a fence names the wrong epoch");
            }
            let above = |(p, e, s): &Key| (*p, *e) == (producer, epoch) && *s > closed.last_seq;
            if !(past.waited && past.plain) && past.applied.keys().any(above) {
                return Err("a closed epoch has a write above its last");
            }
            if !past.applied.contains_key(&(producer, epoch, closed.last_seq)) {
                return Err("a closed epoch's last write never applied");
            }
        }
        Err(_) if !past.waited && past.applied.get(&key) == Some(&body) && current == Some(epoch) => {
            return Err("a write that applied was refused when it was repeated");
        }
        Err(_) => {}
    }
    Ok(())
}

fn command(at: Millis, letter: Letter) -> Command {
    let Letter::Write { producer, epoch, seq, body, tokened } = letter else { unreachable!("only writes are sent") };
    let append = Append {
        incarnation: tokened.then_some(token(1)),
        producer: Some(ProducerKey { id: producer.to_owned(), epoch, seq, digest: Some(Digest::of(body.as_bytes())) }),
        body_fault: None,
        content_type: Some("text/plain".to_owned()),
        stream_seq: None,
        close: false,
        body: Bytes::from_static(body.as_bytes()),
    };
    Command { at, path: "s".to_owned(), operation: Operation::Append(append) }
}

fn explore(producers_max: usize, letters: Vec<Letter>, depth: u32) -> Result<u64, String> {
    let mut machine = Machine::new(Options { producers_max, ..Options::default() });
    let create = Create::plain("text/plain", token(1), Bytes::new());
    let created = machine.apply(&Command { at: Millis(1), path: "s".to_owned(), operation: Operation::Create(create) });
    assert!(created.result.is_ok());
    let mut search = Search { letters, visited: 0 };
    search.explore(&machine, Millis(1), &Past::default(), depth)?;
    Ok(search.visited)
}

fn writes(producers: &[&'static str], seqs: u64, bodies: &[&'static str], tokened: &[bool]) -> Vec<Letter> {
    let mut letters = Vec::new();
    for &producer in producers {
        for epoch in 0..3 {
            for seq in 0..seqs {
                for &body in bodies {
                    letters.extend(tokened.iter().map(|&tokened| Letter::Write {
                        producer,
                        epoch,
                        seq,
                        body,
                        tokened,
                    }));
                }
            }
        }
    }
    letters
}

fn two_producers() -> Vec<Letter> {
    writes(&["p", "q"], 3, &["a", "bb"], &[true])
}

#[test]
fn two_producers_never_share_a_key_and_never_rise_from_an_older_epoch() {
    let visited = explore(4_096, two_producers(), 5).unwrap_or_else(|what| panic!("{what}"));
    assert!(visited > 300_000, "the alphabet was cut down: {visited}");
}

/// Whatever idleness makes the stream forget, and whoever writes without a token between: a tokened write applies at
/// most once. This is what the epoch floor is for.
#[test]
fn a_tokened_write_applies_once_even_when_its_producer_was_forgotten() {
    for tokened in [&[true][..], &[true, false]] {
        let mut letters = writes(&["p"], 2, &["a"], tokened);
        letters.push(Letter::Wait(limits::PRODUCER_IDLE_MS_MAX));
        explore(4_096, letters, 6).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// The same where a newcomer takes the place of a producer that was idle for an hour.
#[test]
fn a_tokened_write_applies_once_even_when_its_producer_was_evicted() {
    for tokened in [&[true][..], &[true, false]] {
        let mut letters = writes(&["p", "q"], 2, &["a"], tokened);
        letters.push(Letter::Wait(limits::PRODUCER_EVICTABLE_MS_MIN));
        explore(1, letters, 6).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// The checks above can fail: a machine that forgets to compare epochs is found.
#[test]
fn a_forgotten_epoch_check_is_found() {
    plant(Some(Bug::ForgetEpochCheck));
    let found = explore(4_096, two_producers(), 3);
    plant(None);
    let what = found.expect_err("the fault is seen");
    assert!(what.starts_with("an older epoch wrote"), "{what}");
}

#[test]
fn the_alphabet_has_no_letter_twice() {
    let letters: BTreeSet<String> = two_producers().iter().map(|letter| format!("{letter:?}")).collect();
    assert_eq!(letters.len(), 36);
}
