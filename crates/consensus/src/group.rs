//! One replica of one Raft group.

use crate::entry::{Base, ConfState, ENTRY_HEADER_BYTES, Entry, EntryKind, HardState};
use crate::log::MemoryLog;
use crate::message::{Message, StepError};
use crate::recovery::{RecoveredLog, RecoveryError};
use bytes::Bytes;
use highwater_base::NodeId;
use highwater_base::Random;
use highwater_base::random::SplitMix;
use raft::eraftpb::{self, MessageType};
use raft::{RawNode, StateRole};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thiserror::Error;

/// How a group keeps time, in ticks of its host.
#[derive(Debug, Clone, Copy)]
pub struct GroupOptions {
    /// Ticks without a leader before an election, at the least; a replica waits up to twice as long.
    pub election_ticks_min: usize,
    /// Ticks between two heartbeats.
    pub heartbeat_ticks: usize,
}

impl Default for GroupOptions {
    /// An election after one to two seconds and a heartbeat every 300 ms, at a tick of 100 ms.
    fn default() -> Self {
        Self { election_ticks_min: 10, heartbeat_ticks: 3 }
    }
}

/// Nothing was proposed or asked: this replica does not lead, or has not yet committed an entry of its own term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this replica does not lead its group")]
pub struct NotLeader;

/// What a replica is in its term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Takes entries from a leader.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Appends entries.
    Leader,
}

/// Where a replica stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What it is.
    pub role: Role,
    /// Whom it takes for the leader.
    pub leader: Option<NodeId>,
    /// Its term.
    pub term: u64,
    /// The highest index known to be committed.
    pub commit: u64,
    /// The highest index that the host has applied.
    pub applied: u64,
    /// The last entry of its log, stored or not.
    pub last: u64,
}

/// A read that may be answered from a state that has applied `index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadConfirmed {
    /// What [`Group::read_index`] was given.
    pub context: u64,
    /// The state must have applied this entry.
    pub index: u64,
}

/// What the host has to do. Everything but `messages_persisted` may be done at once.
#[derive(Debug, Default)]
pub struct Ready {
    /// What must become durable, if anything must.
    pub batch: Option<Batch>,
    /// Entries to apply: committed, and stored here.
    pub committed: Vec<Entry>,
    /// Messages that may leave before the batch is durable.
    pub messages: Vec<Message>,
    /// Messages that promise this batch, or an earlier one where there is none: they leave when the latest batch that
    /// was handed out is durable.
    pub messages_persisted: Vec<Message>,
    /// Reads confirmed since the last time.
    pub reads: Vec<ReadConfirmed>,
    /// Contexts of reads that nobody will confirm any more.
    pub reads_lost: Vec<u64>,
    /// Indexes of proposals whose outcome cannot be learnt here any more; they may still be committed.
    pub proposals_lost: Vec<u64>,
}

/// What must become durable as one: all of it, then [`Group::persisted`] with its number. In the order in which
/// batches were handed out.
#[derive(Debug)]
pub struct Batch {
    /// Names it.
    pub number: u64,
    /// Hard state, to be stored in front of the entries: a crash may keep a prefix, and a term must not be behind the
    /// log's.
    pub hard_state: Option<HardState>,
    /// Entries to store; the first may replace a stored tail.
    pub entries: Vec<Entry>,
}

/// One replica of one Raft group.
pub struct Group {
    node: NodeId,
    raw: RawNode<MemoryLog>,
    seed: u64,
    election_ticks_min: usize,
    /// Proposals of this replica's own leadership that are not yet committed: index to term.
    proposals: BTreeMap<u64, u64>,
    reads_pending: BTreeSet<u64>,
    reads_lost: Vec<u64>,
    proposals_lost: Vec<u64>,
    /// The leadership that proposals and reads rest on: the term in which this replica leads.
    leads: Option<u64>,
    /// The hard state of the latest [`Ready`] that held one, and whether it is still to be handed out.
    hard_state: HardState,
    hard_state_owed: bool,
    /// Numbers of the batches that were handed out and are not yet durable, oldest first.
    batches: VecDeque<u64>,
    /// The number of the latest batch, durable or not, empty or not.
    batch_latest: u64,
}

impl Group {
    /// Makes a replica of what was found on disk. `random` seeds its election timeouts.
    ///
    /// Every entry up to the log's base counts as applied; the first [`Ready`]s bring the others.
    /// # Errors
    /// [`RecoveryError`] for a state that no replica can have written.
    pub fn open(
        node: NodeId,
        log: RecoveredLog,
        options: GroupOptions,
        random: &mut dyn Random,
    ) -> Result<Self, RecoveryError> {
        let (base, entries) = log.validate(node)?;
        let entries = entries.iter().map(Entry::to_raft).collect();
        let storage = MemoryLog::new((base.index, base.term), base.hard_state, base.conf_state, entries);
        let config = raft::Config {
            id: node.0,
            applied: base.index,
            election_tick: options.election_ticks_min,
            heartbeat_tick: options.heartbeat_ticks,
            max_size_per_msg: 1 << 20,
            check_quorum: true,
            pre_vote: true,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, storage, &logger)
            .map_err(|_| RecoveryError::Membership("the consensus library refuses it"))?;
        let mut group = Self {
            node,
            raw,
            seed: random.next_u64(),
            election_ticks_min: options.election_ticks_min,
            proposals: BTreeMap::new(),
            reads_pending: BTreeSet::new(),
            reads_lost: Vec::new(),
            proposals_lost: Vec::new(),
            leads: None,
            hard_state: base.hard_state,
            hard_state_owed: false,
            batches: VecDeque::new(),
            batch_latest: 0,
        };
        group.settle();
        Ok(group)
    }

    /// Stands for election now. A lone voter leads at once; others ask for votes first (pre-vote, Raft thesis 9.6).
    pub fn campaign(&mut self) {
        // The library reports only a local message that came from outside, which this is not.
        let asked = self.raw.campaign();
        debug_assert!(asked.is_ok());
        self.settle();
    }

    /// Lets one tick pass.
    pub fn tick(&mut self) {
        self.raw.tick();
        self.settle();
    }

    /// Takes a message of another replica.
    /// # Errors
    /// [`StepError`] for one that cannot be true here; nothing changed.
    pub fn step(&mut self, message: Message) -> Result<(), StepError> {
        let log = &self.raw.raft.raft_log;
        let message = message.admit(self.node, log.committed, log.last_index(), |index| log.term(index).ok())?;
        let from = message.from;
        self.raw.step(message).map_err(|_| StepError::Stranger(from))?;
        self.settle();
        Ok(())
    }

    /// Proposes a command; returns the (term, index) under which it will be committed, if it is.
    ///
    /// `record` begins with [`ENTRY_HEADER_BYTES`] bytes of any value, which become the entry's header; the command
    /// follows. So a body is encoded once and never copied again.
    /// # Errors
    /// [`NotLeader`]: nothing was proposed.
    pub fn propose(&mut self, mut record: Vec<u8>) -> Result<(u64, u64), NotLeader> {
        assert!(record.len() >= ENTRY_HEADER_BYTES, "a command's record has room for the header");
        let term = self.leads.ok_or(NotLeader)?;
        record[..ENTRY_HEADER_BYTES].copy_from_slice(&Entry::record(EntryKind::Command, term, &[]));
        let mut message = eraftpb::Message { from: self.node.0, ..Default::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.entries.push(eraftpb::Entry { data: Bytes::from(record), ..Default::default() });
        self.raw.step(message).map_err(|_| NotLeader)?;
        let index = self.raw.raft.raft_log.last_index();
        debug_assert_eq!(self.raw.raft.term, term);
        self.proposals.insert(index, term);
        Ok((term, index))
    }

    /// Asks for a confirmation that this replica still leads (ReadIndex, Raft thesis 6.4). `context` comes back in a
    /// [`Ready`], in `reads` or in `reads_lost`.
    /// # Errors
    /// [`NotLeader`], also while no entry of the leader's own term is committed.
    pub fn read_index(&mut self, context: u64) -> Result<(), NotLeader> {
        if !self.reads_possible() {
            return Err(NotLeader);
        }
        self.reads_pending.insert(context);
        self.raw.read_index(context.to_le_bytes().to_vec());
        Ok(())
    }

    /// Whether this replica leads and has committed an entry of its own term: from then on it can confirm reads.
    #[must_use]
    pub fn reads_possible(&self) -> bool {
        self.leads.is_some() && self.raw.raft.commit_to_current_term()
    }

    /// Whether [`Self::ready`] has anything.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.raw.has_ready() || !self.reads_lost.is_empty() || !self.proposals_lost.is_empty()
    }

    /// Takes what the host has to do. Call it until [`Self::has_ready`] is false.
    pub fn ready(&mut self) -> Ready {
        let mut ready = Ready {
            reads_lost: std::mem::take(&mut self.reads_lost),
            proposals_lost: std::mem::take(&mut self.proposals_lost),
            ..Ready::default()
        };
        if !self.raw.has_ready() {
            return ready;
        }
        let mut raw = self.raw.ready();
        self.batch_latest = raw.number();
        if let Some(state) = raw.hs() {
            (self.hard_state, self.hard_state_owed) = (HardState::from_raft(state), true);
        }
        // The library reads entries back from the log before they are durable, so they go there first.
        self.raw.mut_store().append(raw.entries());
        ready.committed = raw.take_committed_entries().into_iter().map(Entry::from_raft).collect();
        ready.messages = raw.take_messages().into_iter().map(Message::from_raft).collect();
        ready.messages_persisted = raw.take_persisted_messages().into_iter().map(Message::from_raft).collect();
        for state in raw.take_read_states() {
            let context = <[u8; 8]>::try_from(&state.request_ctx[..]).map(u64::from_le_bytes);
            let Ok(context) = context else { continue };
            if self.reads_pending.remove(&context) {
                ready.reads.push(ReadConfirmed { context, index: state.index });
            }
        }
        if raw.must_sync() {
            let entries: Vec<_> = raw.take_entries().into_iter().map(Entry::from_raft).collect();
            // A commit index alone is not worth a write: it goes with the next batch. There it stays below the batch's
            // own entries, which a crash may tear off behind it.
            let owed = std::mem::take(&mut self.hard_state_owed);
            let commit_max = entries.first().map_or(u64::MAX, |first| first.index - 1);
            let commit = self.hard_state.commit.min(commit_max);
            let hard_state = owed.then_some(HardState { commit, ..self.hard_state });
            ready.batch = Some(Batch { number: self.batch_latest, hard_state, entries });
            self.batches.push_back(self.batch_latest);
        }
        self.raw.advance_append_async(raw);
        if self.batches.is_empty() {
            // Nothing to wait for, neither here nor before.
            ready.messages.append(&mut ready.messages_persisted);
            self.raw.on_persist_ready(self.batch_latest);
        }
        for entry in &ready.committed {
            match self.proposals.remove(&entry.index) {
                Some(term) if term != entry.term => ready.proposals_lost.push(entry.index),
                _ => {}
            }
        }
        ready
    }

    /// Notes that the batch `number`, and every one before it, is durable.
    pub fn persisted(&mut self, number: u64) {
        while self.batches.front().is_some_and(|&n| n <= number) {
            self.batches.pop_front();
        }
        // What had nothing to store is durable with the batch before it. The library takes a number as a promise for
        // all below it, so one behind a batch under way must not be named.
        self.raw.on_persist_ready(self.batches.front().map_or(self.batch_latest, |next| next - 1));
        self.settle();
    }

    /// Notes that the host has applied every entry up to `index`, and releases their memory.
    pub fn applied(&mut self, index: u64) {
        self.raw.advance_apply_to(index);
        // A leader keeps what a follower still lacks; alone, nobody lacks anything.
        let progress = self.raw.raft.prs().iter();
        let needed = progress.filter(|(id, _)| **id != self.node.0).map(|(_, p)| p.matched).min();
        let needed = if self.leads.is_some() { needed.unwrap_or(index) } else { index };
        self.raw.mut_store().compact(needed.min(index));
    }

    /// Where the replica stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let raft = &self.raw.raft;
        Standing {
            role: match raft.state {
                StateRole::Leader => Role::Leader,
                StateRole::Follower => Role::Follower,
                StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            },
            leader: (raft.leader_id != 0).then_some(NodeId(raft.leader_id)),
            term: raft.term,
            commit: raft.raft_log.committed,
            applied: raft.raft_log.applied,
            last: raft.raft_log.last_index(),
        }
    }

    /// Members that vote, and that therefore count for an acknowledgement.
    #[must_use]
    pub fn voters(&self) -> &[NodeId] {
        &self.conf_state().voters
    }

    /// Voters known to have the entry at `index` on disk.
    #[must_use]
    pub fn voters_persisted(&self, index: u64) -> u32 {
        let tracker = self.raw.raft.prs();
        let holds = |voter: &&NodeId| match voter {
            voter if **voter == self.node => self.raw.raft.raft_log.persisted >= index,
            voter => tracker.get(voter.0).is_some_and(|p| p.matched >= index),
        };
        u32::try_from(self.voters().iter().filter(holds).count()).unwrap_or(u32::MAX)
    }

    /// The record that a checkpoint of the state at the last applied entry must hold.
    #[must_use]
    pub fn base(&self) -> Base {
        let log = &self.raw.raft.raft_log;
        let index = log.applied;
        let term = log.term(index).unwrap_or_default();
        debug_assert_ne!(term, 0, "the applied entry's term is kept");
        let mut hard_state = HardState::from_raft(&self.raw.raft.hard_state());
        hard_state.commit = hard_state.commit.min(log.persisted);
        Base { index, term, hard_state, conf_state: self.conf_state().clone() }
    }

    fn conf_state(&self) -> &ConfState {
        self.raw.store().conf_state()
    }

    /// After anything that may have changed the replica's role: the timeout is ours, and what rested on a lost
    /// leadership is given up.
    fn settle(&mut self) {
        let raft = &mut self.raw.raft;
        // A function of the seed, the term and the role, because the library draws anew at every change of them and
        // the host cannot see whether it just did. A new term gives a new timeout, which is what ends a split vote.
        let mut draw = SplitMix::new(self.seed ^ raft.term.rotate_left(8) ^ raft.state as u64);
        let spread = draw.below(self.election_ticks_min as u64);
        let spread = usize::try_from(spread).expect("below a usize");
        raft.set_randomized_election_timeout(self.election_ticks_min + spread);
        let leads = (raft.state == StateRole::Leader).then_some(raft.term);
        if leads != self.leads {
            self.proposals_lost.extend(std::mem::take(&mut self.proposals).into_keys());
            self.reads_lost.extend(std::mem::take(&mut self.reads_pending));
            self.leads = leads;
        }
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("node", &self.node).field("standing", &self.standing()).finish_non_exhaustive()
    }
}
