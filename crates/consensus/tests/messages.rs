//! Whatever arrives under a member's name, a replica takes it or refuses it, and never panics.

use highwater_base::NodeId;
use highwater_base::codec::Writer;
use highwater_base::random::SplitMix;
use highwater_consensus::entry::ENTRY_HEADER_BYTES;
use highwater_consensus::{Base, ConfState, Entry, EntryKind, Group, GroupOptions, Message, RecoveredLog};
use proptest::prelude::*;

/// What a test does to a replica.
#[derive(Debug, Clone)]
enum Act {
    Tick(u8),
    Propose,
    Campaign,
    Receive(Wire),
}

/// A message's fields, as `docs/formats/raft.md` lays them out.
#[derive(Debug, Clone)]
struct Wire {
    kind: u8,
    from: u64,
    numbers: [u64; 6],
    reject: bool,
    reject_hint: u64,
    snapshot: bool,
    entries: Vec<(u64, u64)>,
}

impl Wire {
    fn encode(&self) -> Vec<u8> {
        let [term, log_term, index, commit, commit_term, request_snapshot] = self.numbers;
        let mut w = Writer::new();
        w.u8(1).u8(self.kind).u64(1).u64(self.from).u64(term).u64(log_term).u64(index).u64(commit).u64(commit_term);
        w.u64(request_snapshot).bool(self.reject).u64(self.reject_hint).u64(0).bytes(b"");
        w.option(self.snapshot.then_some(()), |w, ()| {
            w.u64(index).u64(log_term).u32(1).u64(1).u32(0).u32(0).u32(0).bool(false).bytes(b"");
        });
        w.u32(u32::try_from(self.entries.len()).expect("few"));
        for (index, term) in &self.entries {
            w.u64(*index).bytes(&Entry::record(EntryKind::Command, *term, b"x"));
        }
        w.into_vec()
    }
}

/// Mostly small numbers, so that they mean something, and now and then the ends of the range.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0u64..8, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1)]
}

fn wire() -> impl Strategy<Value = Wire> {
    // Entries mostly follow their message's index, as honest ones do.
    let entries = proptest::collection::vec((0u64..2, 1u64..6), 0..4);
    let numbers = [(); 6].map(|()| number());
    let from = prop_oneof![4 => 2u64..4, 1 => 0u64..5];
    let rest = (any::<bool>(), number(), proptest::bool::weighted(0.1), entries);
    let kind = (1u8..12).prop_filter("8 is no kind", |kind| *kind != 8);
    (kind, from, numbers, rest).prop_map(|(kind, from, numbers, (reject, reject_hint, snapshot, steps))| {
        let mut index = numbers[2];
        let follow = |(skip, term): (u64, u64)| {
            index = index.wrapping_add(if skip == 0 { 1 } else { 2 - u64::from(term % 5 != 0) });
            (index, term)
        };
        let entries = steps.into_iter().map(follow).collect();
        Wire { kind, from, numbers, reject, reject_hint, snapshot, entries }
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (1u8..25).prop_map(Act::Tick),
        1 => Just(Act::Propose),
        1 => Just(Act::Campaign),
        8 => wire().prop_map(Act::Receive),
    ]
}

fn settle(group: &mut Group) {
    while group.has_ready() {
        let ready = group.ready();
        if let Some(batch) = ready.batch {
            group.persisted(batch.number);
        }
        if let Some(last) = ready.committed.last() {
            group.applied(last.index);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_message_makes_a_replica_panic(acts in proptest::collection::vec(act(), 1..30)) {
        let conf_state = ConfState { voters: [1, 2, 3].map(NodeId).to_vec(), ..ConfState::default() };
        let log = RecoveredLog::new(Base { conf_state, ..Base::bootstrap(NodeId(1)) });
        let opened = Group::open(NodeId(1), log, GroupOptions::default(), &mut SplitMix::new(1));
        let mut group = opened.expect("valid");
        for act in acts {
            match act {
                Act::Tick(times) => (0..times).for_each(|_| group.tick()),
                Act::Campaign => group.campaign(),
                Act::Propose => drop(group.propose(vec![0; ENTRY_HEADER_BYTES])),
                Act::Receive(wire) => {
                    let message = Message::decode(wire.encode().into()).expect("well formed");
                    // Taken or refused: either is an answer.
                    let _taken = group.step(message).is_ok();
                }
            }
            settle(&mut group);
        }
    }
}
