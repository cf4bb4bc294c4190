//! A group of one voter: the same path as a large one, without anyone to wait for.

use highwater_base::NodeId;
use highwater_base::random::SplitMix;
use highwater_consensus::entry::ENTRY_HEADER_BYTES;
use highwater_consensus::{
    Base, Entry, EntryKind, Group, GroupOptions, HardState, NotLeader, Ready, RecoveredLog, RecoveryError, Role,
};

const US: NodeId = NodeId(1);

fn open(log: RecoveredLog) -> Result<Group, RecoveryError> {
    Group::open(US, log, GroupOptions::default(), &mut SplitMix::new(7))
}

fn fresh() -> Group {
    open(RecoveredLog::new(Base::bootstrap(US))).expect("a bootstrap is valid")
}

fn command(text: &[u8]) -> Vec<u8> {
    let mut record = vec![0; ENTRY_HEADER_BYTES];
    record.extend_from_slice(text);
    record
}

/// Takes everything that is ready without making it durable.
fn drain(group: &mut Group) -> Vec<Ready> {
    let mut all = Vec::new();
    while group.has_ready() {
        all.push(group.ready());
    }
    all
}

/// Makes everything durable and applies it; returns what was committed.
fn settle(group: &mut Group) -> Vec<Entry> {
    let mut committed = Vec::new();
    while group.has_ready() {
        let ready = group.ready();
        if let Some(batch) = ready.batch {
            group.persisted(batch.number);
        }
        if let Some(last) = ready.committed.last() {
            group.applied(last.index);
        }
        committed.extend(ready.committed);
    }
    committed
}

fn leading() -> Group {
    let mut group = fresh();
    group.campaign();
    let committed = settle(&mut group);
    assert_eq!(committed.iter().map(|e| e.kind).collect::<Vec<_>>(), [EntryKind::Noop]);
    group
}

#[test]
fn a_lone_voter_leads_at_once_and_its_first_entry_is_a_noop() {
    let mut group = fresh();
    group.campaign();
    assert_eq!(group.standing().role, Role::Leader);
    let ready = drain(&mut group);
    let batch = ready[0].batch.as_ref().expect("vote and noop are stored together");
    assert_eq!(batch.entries.len(), 1);
    assert_eq!((batch.entries[0].index, batch.entries[0].term, batch.entries[0].kind), (2, 2, EntryKind::Noop));
    assert_eq!(batch.hard_state, Some(HardState { term: 2, vote: 1, commit: 1 }));
}

#[test]
fn nothing_is_committed_before_it_is_durable() {
    let mut group = leading();
    let (term, index) = group.propose(command(b"a")).expect("leads");
    let ready = drain(&mut group);
    assert!(ready.iter().all(|r| r.committed.is_empty()), "committed before its batch was durable");
    let batch = ready.into_iter().find_map(|r| r.batch).expect("the entry must be stored");
    assert_eq!(batch.entries[0].data(), &b"a"[..]);
    group.persisted(batch.number);
    let committed = settle(&mut group);
    assert_eq!((committed[0].term, committed[0].index, committed[0].data().as_ref()), (term, index, &b"a"[..]));
    assert_eq!(group.voters_persisted(index), 1);
}

#[test]
fn batches_become_durable_in_their_order_while_later_ones_are_on_their_way() {
    let mut group = leading();
    let mut numbers = Vec::new();
    for text in [b"a", b"b", b"c"] {
        group.propose(command(text)).expect("leads");
        numbers.extend(drain(&mut group).into_iter().filter_map(|r| r.batch.map(|b| b.number)));
    }
    let before = group.standing().commit;
    group.persisted(numbers[0]);
    assert_eq!(group.standing().commit, before + 1);
    // The commit index moved, which is ready and needs no sync; it must not vouch for the batches under way.
    drain(&mut group);
    assert_eq!(group.standing().commit, before + 1);
    group.persisted(numbers[2]);
    assert_eq!(group.standing().commit, before + 3);
}

#[test]
fn a_proposal_without_a_leader_is_refused_and_nothing_is_proposed() {
    let mut group = fresh();
    assert_eq!(group.propose(command(b"a")), Err(NotLeader));
    assert!(!group.has_ready());
}

#[test]
fn a_read_is_refused_until_an_entry_of_the_leaders_own_term_is_committed() {
    // Raft thesis, section 6.4, step 1: a new leader does not yet know what is committed.
    let mut group = fresh();
    group.campaign();
    assert_eq!(group.read_index(1), Err(NotLeader));
    settle(&mut group);
    group.read_index(2).expect("the noop is committed");
    let reads: Vec<_> = drain(&mut group).into_iter().flat_map(|r| r.reads).collect();
    assert_eq!((reads[0].context, reads[0].index), (2, group.standing().commit));
}

#[test]
fn applied_entries_leave_memory_and_the_base_moves_with_them() {
    let mut group = leading();
    for _ in 0..100 {
        group.propose(command(&[7; 1000])).expect("leads");
    }
    settle(&mut group);
    let base = group.base();
    assert_eq!((base.index, base.term), (102, 2));
    assert_eq!(base.hard_state, HardState { term: 2, vote: 1, commit: 102 });
}

#[test]
fn a_restart_keeps_what_was_stored_and_leads_in_a_later_term() {
    let mut group = leading();
    group.propose(command(b"kept")).expect("leads");
    let batch = drain(&mut group).into_iter().find_map(|r| r.batch).expect("stored");
    // Stored, and the process dies before anything is known to be committed.
    let mut log = RecoveredLog::new(Base::bootstrap(US));
    log.entry(Entry::decode(2, Entry::record(EntryKind::Noop, 2, &[])).expect("noop")).expect("follows");
    log.hard_state(HardState { term: 2, vote: 1, commit: 1 });
    for entry in batch.entries {
        log.entry(entry).expect("follows");
    }
    let mut group = open(log).expect("valid");
    group.campaign();
    let committed = settle(&mut group);
    let kinds: Vec<_> = committed.iter().map(|e| (e.index, e.term, e.kind)).collect();
    assert_eq!(kinds, [(2, 2, EntryKind::Noop), (3, 2, EntryKind::Command), (4, 3, EntryKind::Noop)]);
    assert_eq!(committed[1].data(), &b"kept"[..]);
}

#[test]
fn election_timeouts_follow_from_the_seed() {
    let ticks_to_lead = |seed| {
        let log = RecoveredLog::new(Base::bootstrap(US));
        let mut group = Group::open(US, log, GroupOptions::default(), &mut SplitMix::new(seed)).expect("valid");
        (1..).find(|_| {
            group.tick();
            group.standing().role == Role::Leader
        })
    };
    let first: Vec<_> = (0..32).map(ticks_to_lead).collect();
    assert_eq!(first, (0..32).map(ticks_to_lead).collect::<Vec<_>>());
    assert!(first.iter().any(|t| *t != first[0]), "every seed gives the same timeout");
    assert!(first.iter().all(|t| (10..20).contains(&t.expect("leads"))));
}
