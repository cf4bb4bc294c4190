//! One group of a shard: its replica, its streams, their bytes, and everyone who waits for it.

use super::checkpoint::CheckpointState;
use super::hot::Hot;
use super::input::{Answer, Output};
use super::machine::GroupMachine;
use super::own::Own;
use super::read::{ReadAsked, Reads};
use super::wait::Waiters;
use crate::api::{GroupState, GroupStatus, HotStatus, StorageBytes, Unavailable};
use highwater_base::{GroupId, OwnerId};
use highwater_consensus::{Batch, Group, Role};
use highwater_store::Store;
use highwater_wal::{Frame, Location};
use std::collections::{BTreeMap, VecDeque};

/// Kinds of a group's frames in the log; part of the format (`docs/formats/raft.md`).
pub(super) const FRAME_BASE: u8 = 1;
pub(super) const FRAME_ENTRY: u8 = 2;
pub(super) const FRAME_HARD_STATE: u8 = 3;

/// A proposal that is not yet applied.
pub(super) struct Waiting<T> {
    /// Who waits for it, if somebody still does.
    pub token: Option<T>,
    pub bytes: u64,
}

/// Frames of one group that become durable together, and the name under which its replica knows them.
pub(super) struct Handed {
    pub group: u32,
    pub number: u64,
    /// Indexes of the entries among the frames, in the order of the frames; the others are not entries.
    pub entries: Vec<Option<u64>>,
}

pub(super) struct GroupCore<T> {
    pub id: GroupId,
    pub owner: OwnerId,
    pub raft: Group,
    pub machine: GroupMachine,
    pub store: Store,
    pub state: GroupState,
    /// Whether the control plane's state moved since it was last published.
    pub unpublished: bool,
    /// What was proposed here and is not yet applied, by entry.
    pub proposals: BTreeMap<u64, Waiting<T>>,
    /// Where the stored entries that are not yet applied lie in the log, in order.
    pub located: VecDeque<(u64, Location)>,
    pub reads: Reads<T>,
    pub waiters: Waiters<T>,
    pub checkpoint: CheckpointState,
    /// Who waits for a checkpoint that is kept while they copy it.
    pub pins: Vec<T>,
    /// Those of them for whom the checkpoint under way was begun.
    pub pins_running: Vec<T>,
    /// Bytes copied out of mostly dead files since the start.
    pub compacted_bytes: u64,
    pub own: Own,
    pub hot: Hot<T>,
    /// Whether it led when that was last looked at.
    pub led: bool,
}

impl<T> GroupCore<T> {
    /// Why this group takes no request now, if it does not.
    pub fn refusal(&self) -> Option<Unavailable> {
        match self.state {
            GroupState::Serving => None,
            GroupState::Starting => Some(Unavailable::GroupRestarting),
            GroupState::HistoryPending => Some(Unavailable::HistoryPending),
            GroupState::Damaged(_) | GroupState::Stopped(_) => Some(Unavailable::ApplyStopped),
        }
    }

    /// Whether it goes on: its checkpoints release what it has in the log. What a stopped one has applied in part must
    /// never become its checkpoint.
    pub fn goes_on(&self) -> bool {
        matches!(self.state, GroupState::Starting | GroupState::HistoryPending | GroupState::Serving)
    }

    /// The frames of a batch, each with its place in the group's order.
    ///
    /// Hard state comes first, for what a torn batch leaves, and stands at the last entry of the log, so that it goes
    /// with it: a checkpoint at that entry holds a
    /// hard state at least as new, or releases nothing.
    pub fn frames(&self, batch: Batch, frames: &mut Vec<Frame>) -> Handed {
        let mut handed = Handed { group: self.id.0, number: batch.number, entries: Vec::new() };
        if let Some(state) = batch.hard_state {
            handed.entries.push(None);
            let position = self.raft.standing().last;
            frames.push(Frame { owner: self.owner, kind: FRAME_HARD_STATE, position, payload: state.encode() });
        }
        for entry in batch.entries {
            handed.entries.push(Some(entry.index));
            frames.push(Frame { owner: self.owner, kind: FRAME_ENTRY, position: entry.index, payload: entry.record });
        }
        handed
    }

    /// Notes where a batch's frames came to lie.
    pub fn locate(&mut self, entries: &[Option<u64>], locations: &[Location]) {
        for (index, location) in entries.iter().zip(locations) {
            self.checkpoint.logged(*location);
            let Some(index) = index else { continue };
            // A leader's entries may replace a tail that was stored before.
            while self.located.back().is_some_and(|(last, _)| last >= index) {
                self.located.pop_back();
            }
            self.located.push_back((*index, *location));
        }
    }

    /// Stops for good: everyone who waits is told, and nothing is applied any more. What is on disk stays.
    pub fn stop(&mut self, reason: String, out: &mut Vec<Output<T>>) {
        tracing::error!(event = "group_stopped", group = %self.owner, reason, "a group stopped");
        self.state = GroupState::Stopped(reason);
        out.push(Output::Abandon(self.owner));
        self.abandon(&Unavailable::ApplyStopped, out);
    }

    /// Answers everyone: writes that were proposed with an unknown outcome, the others with `reads`.
    pub fn abandon(&mut self, reads: &Unavailable, out: &mut Vec<Output<T>>) {
        for (_, waiting) in std::mem::take(&mut self.proposals) {
            let unknown = Unavailable::OutcomeUnknown { leadership_lost: false };
            out.extend(waiting.token.map(|token| self.unanswered(token, unknown)));
        }
        for token in self.take_pins() {
            out.push(Output::Answer(token, Answer::Pin(Err(reads.clone()))));
        }
        for asked in self.reads.take_all() {
            out.push(asked.refuse(reads.clone()));
        }
        for waiter in self.waiters.take_all() {
            out.push(Output::Answer(waiter.token, Answer::Read(Err(reads.clone()))));
        }
        self.hot.abandon(reads, out);
    }

    /// The answer to a proposal of this group's kind that has no other.
    pub fn unanswered(&self, token: T, why: Unavailable) -> Output<T> {
        let answer = match self.machine {
            GroupMachine::Streams(_) => Answer::Write(Err(why)),
            GroupMachine::Control(_) => Answer::Control(Err(why)),
        };
        Output::Answer(token, answer)
    }

    /// Publishes what the control group knows, once it is current: never the state of a group that has yet to apply
    /// what was acknowledged, or a key that was revoked would be taken for a moment.
    pub fn publish(&mut self, out: &mut Vec<Output<T>>) {
        if self.state == GroupState::Serving
            && let Some(view) = self.machine.view().filter(|_| self.unpublished)
        {
            self.unpublished = false;
            out.push(Output::Publish(view));
        }
    }

    /// Bytes that are proposed and not yet applied.
    pub fn uncommitted_bytes(&self) -> u64 {
        self.proposals.values().map(|w| w.bytes).sum()
    }

    pub fn ask(&mut self, asked: ReadAsked<T>) {
        self.reads.asked.push(asked);
    }

    pub fn no_leader(&self) -> Unavailable {
        Unavailable::NoLeader { group: self.id.0 }
    }

    pub fn status(&self) -> GroupStatus {
        let standing = self.raft.standing();
        let store = self.store.status();
        GroupStatus {
            id: self.id.0,
            leader: standing.leader.map(|n| n.0),
            term: standing.term,
            commit: standing.commit,
            applied: standing.applied,
            voters: self.raft.voters().iter().map(|n| n.0).collect(),
            streams: self.machine.streams().map_or(0, highwater_stream::Machine::streams),
            store_bytes: store.stored_bytes,
            unmoved_bytes: store.unmoved_bytes,
            storage: StorageBytes {
                files: store.file_bytes,
                live: store.stored_bytes,
                dead: store.dead_bytes,
                cold: self.store.cold_bytes(),
                index: store.index_bytes,
                log: self.checkpoint.logged_bytes,
                compacted: self.compacted_bytes,
            },
            hot: HotStatus {
                streams: self.machine.streams().map_or(0, |streams| streams.resident().streams),
                bytes: self.resident_bytes(),
                loads: self.hot.figures.loads,
                loads_us: self.hot.figures.loads_us,
                evictions: self.hot.figures.evictions,
            },
            history_events: self.machine.streams().map_or(0, highwater_stream::Machine::history_events),
            state: self.state.clone(),
        }
    }

    /// Whether it began or ceased to lead since this was last asked.
    pub fn note_role(&mut self) -> bool {
        let leads = self.raft.standing().role == Role::Leader;
        std::mem::replace(&mut self.led, leads) != leads
    }
}
