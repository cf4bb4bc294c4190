//! A log that cannot have been written is an error with a name, never a panic.

use bytes::Bytes;
use highwater_base::NodeId;
use highwater_base::random::SplitMix;
use highwater_consensus::{
    Base, ConfState, Entry, EntryKind, Group, GroupOptions, HardState, RecoveredLog, RecoveryError,
};
use proptest::prelude::*;

const US: NodeId = NodeId(1);

fn entry(index: u64, term: u64) -> Entry {
    Entry::decode(index, Entry::record(EntryKind::Command, term, b"x")).expect("an entry")
}

fn open(log: RecoveredLog) -> Result<Group, RecoveryError> {
    Group::open(US, log, GroupOptions::default(), &mut SplitMix::new(1))
}

fn with_conf(conf_state: ConfState) -> Result<Group, RecoveryError> {
    open(RecoveredLog::new(Base { conf_state, ..Base::bootstrap(US) }))
}

#[test]
fn a_hole_in_the_log_is_named() {
    let mut log = RecoveredLog::new(Base::bootstrap(US));
    log.entry(entry(2, 1)).expect("follows");
    assert_eq!(log.entry(entry(4, 1)), Err(RecoveryError::Gap { expected: 3, found: 4 }));
}

#[test]
fn a_commit_index_beyond_the_log_means_that_acknowledged_entries_are_gone() {
    // The library panics here: "hs.commit is out of range".
    let mut log = RecoveredLog::new(Base::bootstrap(US));
    log.hard_state(HardState { term: 1, vote: 1, commit: 9 });
    assert_eq!(open(log).err(), Some(RecoveryError::CommitBeyondLog { commit: 9, last: 1 }));
}

#[test]
fn a_number_beyond_every_log_is_refused() {
    for hard_state in
        [HardState { term: u64::MAX, vote: 1, commit: 1 }, HardState { term: 1, vote: 1, commit: u64::MAX }]
    {
        let log = RecoveredLog::new(Base { hard_state, ..Base::bootstrap(US) });
        assert_eq!(open(log).err(), Some(RecoveryError::Range));
    }
}

#[test]
fn terms_never_fall_along_a_log() {
    let mut log = RecoveredLog::new(Base::bootstrap(US));
    log.entry(entry(2, 5)).expect("follows");
    assert_eq!(log.entry(entry(3, 4)), Err(RecoveryError::TermFell { index: 3, term: 4, previous: 5 }));
}

#[test]
fn a_replica_is_never_behind_its_own_log() {
    let mut log = RecoveredLog::new(Base::bootstrap(US));
    log.entry(entry(2, 5)).expect("follows");
    assert_eq!(open(log).err(), Some(RecoveryError::TermBehindLog { term: 1, log_term: 5 }));
}

#[test]
fn a_replaced_tail_is_cut_and_a_committed_entry_is_never_replaced() {
    let mut log = RecoveredLog::new(Base::bootstrap(US));
    for index in 2..=5 {
        log.entry(entry(index, 1)).expect("follows");
    }
    log.hard_state(HardState { term: 2, vote: 0, commit: 3 });
    log.entry(entry(4, 2)).expect("replaces an uncommitted tail");
    assert_eq!(log.last(), 4);
    assert_eq!(log.entry(entry(3, 2)), Err(RecoveryError::CommittedReplaced { index: 3, commit: 3 }));
}

#[test]
fn committed_entries_can_be_taken_out_as_they_are_read() {
    let mut log = RecoveredLog::new(Base::bootstrap(US));
    for index in 2..=5 {
        log.entry(entry(index, 1)).expect("follows");
    }
    assert!(log.take_committed().is_empty());
    log.hard_state(HardState { term: 1, vote: 1, commit: 4 });
    assert_eq!(log.take_committed().iter().map(|e| e.index).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!((log.base().index, log.last()), (4, 5));
    // What the checkpoint or the replay already covers is passed over.
    log.entry(entry(3, 1)).expect("covered");
    let group = open(log).expect("valid");
    assert_eq!((group.standing().applied, group.standing().last), (4, 5));
}

#[test]
fn an_older_hard_state_does_not_undo_a_later_vote() {
    let mut log =
        RecoveredLog::new(Base { hard_state: HardState { term: 7, vote: 3, commit: 1 }, ..Base::bootstrap(US) });
    log.hard_state(HardState { term: 6, vote: 2, commit: 1 });
    assert_eq!(log.base().hard_state, HardState { term: 7, vote: 3, commit: 1 });
}

#[test]
fn a_membership_that_contradicts_itself_is_refused() {
    let n = |ids: &[u64]| ids.iter().copied().map(NodeId).collect::<Vec<_>>();
    let conf = |voters: &[u64], learners: &[u64], outgoing: &[u64], next: &[u64], auto_leave| ConfState {
        voters: n(voters),
        learners: n(learners),
        voters_outgoing: n(outgoing),
        learners_next: n(next),
        auto_leave,
    };
    for bad in [
        conf(&[], &[], &[], &[], false),
        conf(&[1, 1], &[], &[], &[], false),
        conf(&[0, 1], &[], &[], &[], false),
        conf(&[1], &[1], &[], &[], false),
        conf(&[1], &[], &[], &[2], false),
        conf(&[1], &[], &[], &[], true),
    ] {
        let refused = with_conf(bad.clone()).err();
        assert!(matches!(refused, Some(RecoveryError::Membership(_))), "{bad:?}: {refused:?}");
    }
    assert_eq!(with_conf(conf(&[2, 3], &[], &[], &[], false)).err(), Some(RecoveryError::NotAMember(US)));
    with_conf(conf(&[1, 2], &[4], &[1, 3], &[3], true)).expect("a joint change is valid");
}

fn frames() -> impl Strategy<Value = Vec<(u8, u64, u64, u64)>> {
    proptest::collection::vec((0u8..2, 0u64..9, 0u64..4, 0u64..9), 0..20)
}

fn conf() -> impl Strategy<Value = ConfState> {
    let list = || proptest::collection::vec((0u64..4).prop_map(NodeId), 0..3);
    (list(), list(), list(), list(), any::<bool>()).prop_map(
        |(voters, learners, voters_outgoing, learners_next, auto_leave)| ConfState {
            voters,
            learners,
            voters_outgoing,
            learners_next,
            auto_leave,
        },
    )
}

proptest! {
    #[test]
    fn no_stored_state_makes_a_replica_panic(
        base in (0u64..6, 0u64..4, 0u64..4, 0u64..3, 0u64..6),
        conf_state in conf(),
        frames in frames(),
    ) {
        let (index, term, hard_term, vote, commit) = base;
        let hard_state = HardState { term: hard_term, vote, commit };
        let mut log = RecoveredLog::new(Base { index, term, hard_state, conf_state });
        let mut whole = true;
        for (kind, index, term, commit) in frames {
            if kind == 0 {
                whole &= log.entry(entry(index, term.max(1))).is_ok();
            } else {
                log.hard_state(HardState { term, vote: 1, commit });
                log.take_committed();
            }
        }
        if whole && let Ok(mut group) = open(log) {
            group.campaign();
            for _ in 0..50 {
                while group.has_ready() {
                    let ready = group.ready();
                    if let Some(batch) = ready.batch {
                        group.persisted(batch.number);
                    }
                    if let Some(last) = ready.committed.last() {
                        group.applied(last.index);
                    }
                }
                group.tick();
            }
        }
    }

    #[test]
    fn stored_records_read_back_and_nothing_else_does(
        index in 1u64..99, term in 1u64..99, data in proptest::collection::vec(any::<u8>(), 0..64),
        conf_state in conf(), vote in any::<u64>(), cut in 0usize..64,
    ) {
        let record = Entry::record(EntryKind::Command, term, &data);
        let entry = Entry::decode(index, record).expect("what was encoded");
        prop_assert_eq!((entry.index, entry.term, entry.kind), (index, term, EntryKind::Command));
        prop_assert_eq!(entry.data(), &data[..]);
        let hard_state = HardState { term, vote, commit: index };
        prop_assert_eq!(HardState::decode(hard_state.encode()), Ok(hard_state));
        let base = Base { index, term, hard_state, conf_state };
        let bytes = base.encode();
        prop_assert_eq!(Base::decode(bytes.clone()), Ok(base));
        if cut < bytes.len() {
            prop_assert!(Base::decode(bytes.slice(..cut)).is_err());
        }
    }

    #[test]
    fn decoders_take_any_bytes_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let _ = (Entry::decode(1, bytes.clone()).is_ok(), HardState::decode(bytes.clone()).is_ok());
        let _ = (Base::decode(bytes.clone()).is_ok(), highwater_consensus::Message::decode(bytes).is_ok());
    }
}

#[test]
fn a_later_format_is_refused() {
    let mut bytes = Base::bootstrap(US).encode().to_vec();
    bytes[0] = 2;
    assert!(Base::decode(bytes.into()).is_err());
}

#[test]
fn the_bytes_of_version_1_are_those_of_its_golden_files() {
    let conf_state = ConfState {
        voters: vec![NodeId(1), NodeId(2)],
        learners: vec![NodeId(4)],
        voters_outgoing: vec![NodeId(1), NodeId(3)],
        learners_next: vec![NodeId(3)],
        auto_leave: true,
    };
    let hard_state = HardState { term: 7, vote: 2, commit: 40 };
    let base = Base { index: 41, term: 6, hard_state, conf_state };
    let golden = |bytes: &'static [u8]| Bytes::from_static(bytes);
    assert_eq!(base.encode(), golden(include_bytes!("../golden/base-1.bin")));
    assert_eq!(Base::decode(base.encode()), Ok(base));
    assert_eq!(hard_state.encode(), golden(include_bytes!("../golden/hard-state-1.bin")));
    assert_eq!(Entry::record(EntryKind::Command, 7, b"command"), golden(include_bytes!("../golden/entry-1.bin")));
}
