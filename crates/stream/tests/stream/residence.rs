//! What is in memory and what is stored alone changes no answer: two machines, one of which keeps as little as it can.

use crate::script::token;
use bytes::Bytes;
use highwater_base::{Digest, Millis, Offset};
use highwater_stream::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers that are drawn: so few that they meet those of streams and parts that are not in memory.
const NUMBERS: u64 = 6;
const PATHS: [&str; 6] = ["a", "b", "bucket/a", "bucket/b", "bucket/c", "other/a"];

/// A machine with a store whose index answers for some keys that it does not have.
struct Partial {
    machine: Machine,
    stored: BTreeMap<u64, Bytes>,
    /// What the index said is stored, and was not found.
    absent: BTreeSet<u64>,
    loads: u64,
}

impl Partial {
    fn new() -> Self {
        Self { machine: Machine::new(options()), stored: BTreeMap::new(), absent: BTreeSet::new(), loads: 0 }
    }

    fn checkpoint(&mut self) {
        for (key, record) in self.machine.take_changed() {
            match record {
                Some(record) => self.stored.insert(key, record),
                None => self.stored.remove(&key),
            };
        }
        self.absent.clear();
    }

    fn evict(&mut self, bytes_max: u64, refuses: u64) {
        let stored = &self.stored;
        let mut asked = 0;
        self.machine.evict(bytes_max, 10_000, &mut |key| {
            asked += 1;
            stored.contains_key(&key) && !u64::is_multiple_of(asked, refuses)
        });
    }

    /// Gives back what is missing until nothing is.
    fn ready(&mut self, missing: impl Fn(&Machine, &dyn Fn(u64) -> bool) -> Vec<u64>) {
        loop {
            let (stored, absent) = (&self.stored, &self.absent);
            let says = |key: u64| (stored.contains_key(&key) || key.is_multiple_of(5)) && !absent.contains(&key);
            let keys = missing(&self.machine, &says);
            if keys.is_empty() {
                return;
            }
            self.loads += 1;
            for key in keys {
                self.admit(key);
            }
        }
    }

    /// Admits a record and what it leads to, as one trip to the disk does.
    fn admit(&mut self, key: u64) {
        let Some(record) = self.stored.get(&key).cloned() else {
            self.absent.insert(key);
            return;
        };
        let links = links(key, &record);
        self.machine.admit(key, record).expect("what was stored reads");
        links.into_iter().for_each(|key| self.admit(key));
    }

    fn apply(&mut self, command: &Command) -> Applied {
        self.ready(|machine, stored| machine.missing(command, stored));
        self.machine.apply(command)
    }

    fn due(&mut self, at: Millis) -> Vec<Due> {
        let (stored, mut missing) = (self.stored.clone(), Vec::new());
        let due = self.machine.take_due(at, 100, &|key| stored.contains_key(&key), &mut missing);
        missing.into_iter().for_each(|key| self.admit(key));
        due
    }
}

fn options() -> Options {
    Options { producers_max: 2, staged_ms_max: 5_000, ..Options::default() }
}

/// What happens beside commands.
#[derive(Debug, Clone)]
enum Step {
    Apply(Command),
    Checkpoint,
    Evict { bytes_max: u64, refuses: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let number = || (0..NUMBERS).prop_map(token);
    let expiry = prop_oneof![
        3 => Just(None),
        1 => (1..4u64).prop_map(|ttl_s| Some(Expiry::Sliding { ttl_s })),
        1 => (0..20_000u64).prop_map(|at| Some(Expiry::At(Millis(at))))
    ];
    let create = (number(), expiry, any::<bool>()).prop_map(|(new_incarnation, expiry, text)| {
        let content_type = if text { "text/plain" } else { "application/json" }.to_owned();
        let body = Bytes::from_static(b"first");
        Operation::Create(Create { content_type, closed: false, incarnation: None, new_incarnation, expiry, body })
    });
    let append = (0..3u64, 0..3u64, 0..3u64, prop::option::weighted(0.2, 0..4u64)).prop_map(
        |(producer, epoch, seq, stream_seq)| {
            let body = Bytes::from_static(b"more");
            let digest = Some(Digest::of(&body));
            Operation::Append(Append {
                incarnation: None,
                producer: Some(ProducerKey { id: format!("p{producer}"), epoch, seq, digest }),
                body_fault: None,
                content_type: Some("text/plain".to_owned()),
                stream_seq: stream_seq.map(|seq| seq.to_string()),
                close: false,
                body,
            })
        },
    );
    // A part may have no bytes: then nothing but its record says that its number is in use.
    let stage = (number(), 0..3usize).prop_map(|(part, length)| Operation::StagePart {
        incarnation: None,
        part,
        body: Bytes::from(vec![7; length]),
    });
    let source = prop_oneof![
        number().prop_map(|part| SnapshotSource::Body { part, body: Bytes::from_static(b"snapshot") }),
        prop::collection::vec(number(), 1..3).prop_map(SnapshotSource::Parts)
    ];
    let publish = (0..12u64, source).prop_map(|(offset, source)| {
        Operation::PublishSnapshot(PublishSnapshot {
            incarnation: None,
            offset: Offset(offset),
            digest: Digest::of(&offset.to_le_bytes()),
            digest_matches: true,
            content_type: "text/plain".to_owned(),
            source,
        })
    });
    let retain = (0..12u64).prop_map(|offset| Operation::Retain { incarnation: None, offset: Offset(offset) });
    prop_oneof![
        4 => create,
        8 => append,
        3 => stage,
        3 => publish,
        1 => retain,
        2 => Just(Operation::Delete { incarnation: None }),
        1 => Just(Operation::DiscardParts { incarnation: None }),
        2 => number().prop_map(|incarnation| Operation::Touch { incarnation }),
        2 => number().prop_map(|incarnation| Operation::Expire { incarnation }),
        1 => (0..3u64).prop_map(|nonce| Operation::History { nonce }),
        1 => Just(Operation::Lead),
    ]
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let apply = (0..400u64, 0..PATHS.len(), operation());
    let apply = apply.prop_map(|(wait_ms, path, operation)| {
        let whole = matches!(operation, Operation::History { .. } | Operation::Lead);
        let path = if whole { String::new() } else { PATHS[path].to_owned() };
        Step::Apply(Command { at: Millis(wait_ms), path, operation })
    });
    let evict = (0..1_500u64, 1..5u64).prop_map(|(bytes_max, refuses)| Step::Evict { bytes_max, refuses: refuses + 1 });
    prop::collection::vec(prop_oneof![6 => apply, 1 => Just(Step::Checkpoint), 3 => evict], count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_in_memory_changes_no_answer(steps in steps(100)) {
        let mut whole = Machine::new(options());
        let mut partial = Partial::new();
        let mut at = Millis(0);
        for step in steps {
            match step {
                Step::Checkpoint => partial.checkpoint(),
                Step::Evict { bytes_max, refuses } => partial.evict(bytes_max, refuses),
                Step::Apply(command) => {
                    at = at.plus(command.at.0);
                    let command = Command { at, ..command };
                    prop_assert_eq!(partial.apply(&command), whole.apply(&command), "{:?}", command);
                    partial.ready(|machine, stored| machine.missing_at(&command.path, stored));
                    let head = whole.head(&command.path, at);
                    prop_assert_eq!(partial.machine.head(&command.path, at), head);
                }
            }
            prop_assert!(partial.machine.usages().eq(whole.usages()));
            let totals = |machine: &Machine| (machine.streams(), machine.streams_sliding());
            prop_assert_eq!(totals(&partial.machine), totals(&whole));
            prop_assert_eq!(partial.machine.fingerprint_over(&partial.stored), whole.fingerprint());
        }
        // Everything that ends by itself is named sooner or later, in memory or not.
        let late = at.plus(1_000_000);
        let paths = |due: Vec<Due>| due.into_iter().map(|due| due.path).collect::<BTreeSet<_>>();
        partial.evict(0, 2);
        let mut named = paths(partial.due(late));
        named.extend(paths(partial.due(late.plus(200))));
        prop_assert_eq!(named, paths(whole.take_due(late, 100, &|_| false, &mut Vec::new())));
        // What was stored loads, whatever of it is kept.
        partial.checkpoint();
        let mut loading = Loading::new(options());
        for (number, (key, record)) in partial.stored.iter().enumerate() {
            prop_assert_eq!(loading.take(*key, record.clone(), number % 3 == 0), Ok(()));
        }
        let loaded = loading.finish(partial.machine.meta());
        prop_assert!(loaded.is_ok(), "{:?}", loaded.err());
        let loaded = loaded.expect("judged above");
        prop_assert_eq!(loaded.fingerprint_over(&partial.stored), whole.fingerprint());
        prop_assert!(loaded.usages().eq(whole.usages()));
    }
}

fn create(path: &str, n: u64) -> Command {
    let create = Create::plain("text/plain", token(n), Bytes::new());
    Command { at: Millis(n), path: path.to_owned(), operation: Operation::Create(create) }
}

/// A stream that somebody uses outlives those that nobody does, however often eviction comes by.
#[test]
fn a_stream_in_use_stays_in_memory() {
    let mut partial = Partial::new();
    for n in 0..100 {
        assert!(partial.apply(&create(&format!("bucket/{n}"), n)).result.is_ok());
    }
    partial.checkpoint();
    let all = partial.machine.resident().bytes;
    for round in 0..50 {
        partial.ready(|machine, stored| machine.missing_at("bucket/7", stored));
        assert!(partial.machine.head("bucket/7", Millis(100)).is_ok());
        let others = format!("bucket/{}", 10 + round);
        partial.ready(|machine, stored| machine.missing_at(&others, stored));
        partial.evict(all / 10, u64::MAX);
        assert!(partial.machine.resident().bytes <= all / 10);
    }
    let loads = partial.loads;
    partial.ready(|machine, stored| machine.missing_at("bucket/7", stored));
    assert_eq!(partial.loads, loads, "it is in memory");
    assert!(loads >= 40, "the others were not: {loads}");
}

/// A command is never applied over a hole: what changed since it was stored does not leave, and is not taken back.
#[test]
fn what_changed_since_it_was_stored_stays() {
    let mut partial = Partial::new();
    assert!(partial.apply(&create("a", 1)).result.is_ok());
    partial.checkpoint();
    let before = partial.stored.clone();
    let delete = Command { at: Millis(2), path: "a".to_owned(), operation: Operation::Delete { incarnation: None } };
    assert!(partial.apply(&delete).result.is_ok());
    assert_eq!(partial.machine.missing_at("a", &|_| true), [], "gone is known, whatever the index says");
    for (key, record) in before {
        assert_eq!(partial.machine.admit(key, record), Ok(()));
    }
    assert_eq!(partial.machine.head("a", Millis(2)), Err(Refusal::StreamNotFound));
}
