//! Three replicas over a network that only delivers: the path on which one node grows, and the duties of a host.

use highwater_base::NodeId;
use highwater_base::random::SplitMix;
use highwater_consensus::entry::ENTRY_HEADER_BYTES;
use highwater_consensus::{
    Base, ConfState, Entry, EntryKind, Group, GroupOptions, HardState, Message, RecoveredLog, Role, StepError,
};
use std::collections::BTreeMap;

struct Node {
    group: Group,
    applied: Vec<Entry>,
    lost: Vec<u64>,
    reads: Vec<u64>,
    reads_lost: Vec<u64>,
}

struct Cluster {
    nodes: BTreeMap<u64, Node>,
    cut: Vec<u64>,
}

impl Cluster {
    fn new() -> Self {
        let conf_state = ConfState { voters: [1, 2, 3].map(NodeId).to_vec(), ..ConfState::default() };
        let open = |id: u64| {
            let log = RecoveredLog::new(Base { conf_state: conf_state.clone(), ..Base::bootstrap(NodeId(id)) });
            let group = Group::open(NodeId(id), log, GroupOptions::default(), &mut SplitMix::new(id)).expect("valid");
            (id, Node { group, applied: vec![], lost: vec![], reads: vec![], reads_lost: vec![] })
        };
        Self { nodes: (1..=3).map(open).collect(), cut: vec![] }
    }

    fn group(&mut self, id: u64) -> &mut Group {
        &mut self.nodes.get_mut(&id).expect("a node").group
    }

    /// Lets every node do what is ready and delivers what it sends, until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut sent = Vec::new();
            for node in self.nodes.values_mut() {
                while node.group.has_ready() {
                    let ready = node.group.ready();
                    sent.extend(ready.messages);
                    if let Some(batch) = ready.batch {
                        node.group.persisted(batch.number);
                    }
                    sent.extend(ready.messages_persisted);
                    if let Some(last) = ready.committed.last() {
                        node.group.applied(last.index);
                    }
                    node.applied.extend(ready.committed);
                    node.lost.extend(ready.proposals_lost);
                    node.reads.extend(ready.reads.iter().map(|r| r.context));
                    node.reads_lost.extend(ready.reads_lost);
                }
            }
            if sent.is_empty() {
                return;
            }
            for message in sent {
                self.deliver(&message);
            }
        }
    }

    fn deliver(&mut self, message: &Message) {
        let (from, to) = (message.from().0, message.to().0);
        if self.cut.contains(&from) || self.cut.contains(&to) {
            return;
        }
        // Through the codec, as on a wire.
        let bytes = message.encode().expect("a message that travels");
        let message = Message::decode(bytes.into()).expect("what was encoded");
        self.group(to).step(message).expect("an honest message");
    }

    fn tick_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..200 {
            if done(self) {
                return;
            }
            for node in self.nodes.values_mut() {
                node.group.tick();
            }
            self.settle();
        }
        panic!("it did not come to pass within 200 ticks");
    }

    fn leader(&self) -> Option<u64> {
        let leads = |(id, node): (&u64, &Node)| {
            (!self.cut.contains(id) && node.group.standing().role == Role::Leader).then_some(*id)
        };
        self.nodes.iter().find_map(leads)
    }
}

fn command(text: &[u8]) -> Vec<u8> {
    [&[0; ENTRY_HEADER_BYTES], text].concat()
}

#[test]
fn three_replicas_elect_replicate_and_apply_the_same_log() {
    let mut cluster = Cluster::new();
    cluster.tick_until(|c| c.leader().is_some());
    let leader = cluster.leader().expect("elected");
    let (_, index) = cluster.group(leader).propose(command(b"a")).expect("leads");
    cluster.settle();
    assert_eq!(cluster.group(leader).voters_persisted(index), 3);
    cluster.tick_until(|c| c.nodes.values().all(|n| n.applied.len() == 2));
    let logs: Vec<_> = cluster.nodes.values().map(|n| n.applied.clone()).collect();
    assert!(logs.iter().all(|l| *l == logs[0] && l[1].data() == b"a"[..]));
}

#[test]
fn a_follower_refuses_a_proposal_instead_of_passing_it_on() {
    let mut cluster = Cluster::new();
    cluster.tick_until(|c| c.leader().is_some());
    let follower = (1..=3).find(|id| Some(*id) != cluster.leader()).expect("a follower");
    cluster.group(follower).propose(command(b"a")).expect_err("does not lead");
    assert!(!cluster.group(follower).has_ready());
}

#[test]
fn a_leader_that_is_cut_off_gives_up_its_proposals_and_its_reads() {
    // Raft thesis, section 6.2: a leader steps down when it hears from no majority for an election timeout.
    let mut cluster = Cluster::new();
    cluster.tick_until(|c| c.leader().is_some());
    let old = cluster.leader().expect("elected");
    cluster.cut.push(old);
    let (_, index) = cluster.group(old).propose(command(b"lost")).expect("still believes that it leads");
    cluster.group(old).read_index(77).expect("still believes that it leads");
    cluster.tick_until(|c| c.leader().is_some_and(|l| l != old) && c.group(old).standing().role != Role::Leader);
    assert_eq!((&cluster.nodes[&old].lost, &cluster.nodes[&old].reads_lost), (&vec![index], &vec![77]));
    assert!(cluster.nodes[&old].reads.is_empty(), "a read was confirmed without a majority");
    // The new leader's log replaces the lost entry everywhere.
    let new = cluster.leader().expect("elected");
    cluster.group(new).propose(command(b"kept")).expect("leads");
    cluster.settle();
    cluster.cut.clear();
    let kept = |n: &Node| n.applied.iter().any(|e| e.data() == b"kept"[..]);
    cluster.tick_until(|c| c.nodes.values().all(kept));
    assert!(cluster.nodes.values().all(|n| n.applied.iter().all(|e| e.data() != b"lost"[..])));
}

#[test]
fn a_vote_leaves_only_after_it_is_durable() {
    // Raft paper, section 5: a server answers an RPC after it updated its stable storage.
    let mut cluster = Cluster::new();
    for _ in 0..19 {
        cluster.group(1).tick();
    }
    let mut inbox = Vec::new();
    while cluster.group(1).has_ready() {
        let ready = cluster.group(1).ready();
        inbox.extend(ready.messages.into_iter().chain(ready.messages_persisted));
    }
    // Pre-votes first; nothing of them is stored. Let them pass, and bring the votes that follow.
    for message in inbox {
        cluster.deliver(&message);
    }
    let promise = |group: &mut Group| {
        let mut messages = (Vec::new(), Vec::new());
        while group.has_ready() {
            let ready = group.ready();
            messages.0.extend(ready.messages);
            let stored = ready.batch.is_some();
            assert!(stored || ready.messages_persisted.is_empty());
            messages.1.extend(ready.messages_persisted);
        }
        messages
    };
    let (at_once, _) = promise(cluster.group(2));
    for message in &at_once {
        cluster.deliver(message);
    }
    let (early, votes) = promise(cluster.group(1));
    assert!(early.is_empty(), "a vote request left before the candidate stored its own vote");
    assert!(!votes.is_empty());
    for message in &votes {
        cluster.deliver(message);
    }
    let (early, grants) = promise(cluster.group(2));
    assert!(early.is_empty(), "a vote left before it was durable");
    assert_eq!(grants.len(), 1);
}

#[test]
fn a_heartbeat_that_counts_on_a_lost_log_is_refused_instead_of_panicking() {
    // Curvine's report: "to_commit is out of range" takes the process down.
    let mut cluster = Cluster::new();
    cluster.tick_until(|c| c.leader().is_some());
    let leader = cluster.leader().expect("elected");
    for _ in 0..5 {
        cluster.group(leader).propose(command(b"a")).expect("leads");
        cluster.settle();
    }
    let follower = (1..=3).find(|id| *id != leader).expect("a follower");
    // The follower comes back under its old id with an empty log.
    let conf_state = ConfState { voters: [1, 2, 3].map(NodeId).to_vec(), ..ConfState::default() };
    let base = Base { conf_state, hard_state: HardState { term: 2, vote: 0, commit: 1 }, ..Base::bootstrap(NodeId(1)) };
    let log = RecoveredLog::new(base);
    let empty = Group::open(NodeId(follower), log, GroupOptions::default(), &mut SplitMix::new(9)).expect("valid");
    cluster.nodes.get_mut(&follower).expect("a node").group = empty;
    let mut refused = None;
    for _ in 0..10 {
        cluster.group(leader).tick();
        while cluster.group(leader).has_ready() {
            let ready = cluster.group(leader).ready();
            for message in ready.messages.into_iter().filter(|m| m.to().0 == follower) {
                refused = refused.or(cluster.group(follower).step(message).err());
            }
        }
    }
    assert!(matches!(refused, Some(StepError::CommitBeyondLog { last: 1, .. })), "{refused:?}");
}

#[test]
fn a_message_of_a_stranger_or_for_another_node_is_refused() {
    let mut cluster = Cluster::new();
    cluster.tick_until(|c| c.leader().is_some());
    let leader = cluster.leader().expect("elected");
    cluster.group(leader).propose(command(b"a")).expect("leads");
    let ready = cluster.group(leader).ready();
    let message = ready.messages.into_iter().next().expect("an append");
    let other = (1..=3).find(|id| NodeId(*id) != message.to()).expect("another");
    assert_eq!(cluster.group(other).step(message.clone()), Err(StepError::NotForUs(message.to().0)));
}

#[test]
fn a_noop_keeps_its_kind_on_the_wire() {
    let record = Entry::record(EntryKind::Noop, 3, &[]);
    assert_eq!(Entry::decode(9, record).map(|e| e.kind), Ok(EntryKind::Noop));
    assert!(Entry::decode(9, Entry::record(EntryKind::Noop, 3, b"x")).is_err());
}
