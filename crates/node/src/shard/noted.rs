//! What the shard knows of all its groups together, so that a turn that concerns one of them looks at no other.
//!
//! There are few groups, but each lies somewhere else in memory, and after a sync nothing of it is in the processor's
//! caches: to ask every group in every turn cost a lone write more than its own group did.

use super::{ShardCore, Slot, Token};
use crate::api::GroupState;

/// Of all groups together, as long as nothing is stale.
pub(super) struct Noted {
    /// What follows may have changed: it is looked up anew.
    stale: bool,
    /// Readers that wait, and when the first of them gives up.
    waiting: usize,
    deadline: Option<u64>,
    /// Groups that do not serve yet.
    starting: usize,
    /// The oldest segment that holds something that is still needed.
    segment_oldest: Option<u64>,
    /// A checkpoint may be due.
    checkpoint_due: bool,
    /// Bytes of frames since that was last looked at.
    logged_bytes: u64,
}

/// A shard looks for a checkpoint at every tick, and whenever this share of the bytes that start one was written.
const LOOKS: u64 = 16;

impl Default for Noted {
    fn default() -> Self {
        Self {
            stale: true,
            waiting: 0,
            deadline: None,
            starting: 0,
            segment_oldest: None,
            checkpoint_due: true,
            logged_bytes: 0,
        }
    }
}

impl Noted {
    /// Something other than a write or a read of one group came.
    pub fn forget(&mut self) {
        (self.stale, self.checkpoint_due) = (true, true);
    }

    /// A group's readers, or its state, are not what they were.
    pub fn changed(&mut self) {
        self.stale = true;
    }

    /// Frames came to lie in the log; `rolled` says whether a segment began with them.
    pub fn logged(&mut self, segment_first: Option<u64>, bytes: u64, rolled: bool, checkpoint_bytes: u64) {
        self.segment_oldest = self.segment_oldest.or(segment_first);
        self.logged_bytes += bytes;
        if rolled || self.logged_bytes >= checkpoint_bytes / LOOKS {
            (self.logged_bytes, self.checkpoint_due) = (0, true);
        }
    }

    /// Whether a checkpoint may be due; until something changes, it is looked for once.
    pub fn take_checkpoint_due(&mut self) -> bool {
        std::mem::take(&mut self.checkpoint_due)
    }
}

impl<T: Token> ShardCore<T> {
    /// Looks up what is stale.
    pub(super) fn note(&mut self) {
        if self.noted.stale {
            let (waiting, deadline) = (self.count_live_reads(), self.find_deadline());
            let (starting, segment_oldest) = (self.count_starting(), self.find_segment_oldest());
            self.noted = Noted { stale: false, waiting, deadline, starting, segment_oldest, ..self.noted };
        }
    }

    /// Readers that wait.
    #[must_use]
    pub fn live_reads(&self) -> usize {
        if self.noted.stale { self.count_live_reads() } else { self.noted.waiting }
    }

    /// Monotonic milliseconds at which a turn is due even if nothing comes.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if self.noted.stale { self.find_deadline() } else { self.noted.deadline }
    }

    /// Whether every group that can serve does.
    #[must_use]
    pub fn ready(&self) -> bool {
        let starting = if self.noted.stale { self.count_starting() } else { self.noted.starting };
        self.failed.is_none() && starting == 0
    }

    /// The oldest segment that holds something that is still needed.
    pub(super) fn segment_oldest(&self) -> Option<u64> {
        if self.noted.stale { self.find_segment_oldest() } else { self.noted.segment_oldest }
    }

    fn count_live_reads(&self) -> usize {
        let waiting = |slot: &Slot<T>| match slot {
            Slot::Up(group) => group.waiters.len(),
            Slot::Down(_) => 0,
        };
        self.slots.iter().map(waiting).sum()
    }

    fn find_deadline(&self) -> Option<u64> {
        let deadline = |slot: &Slot<T>| match slot {
            Slot::Up(group) => group.waiters.deadline(),
            Slot::Down(_) => None,
        };
        self.slots.iter().filter_map(deadline).min()
    }

    fn count_starting(&self) -> usize {
        let starts = |slot: &&Slot<T>| matches!(slot, Slot::Up(group) if matches!(group.state, GroupState::Starting | GroupState::HistoryPending));
        self.slots.iter().filter(starts).count()
    }

    fn find_segment_oldest(&self) -> Option<u64> {
        // The others' segments are set aside when they are in the way.
        self.going_on().filter_map(|group| group.checkpoint.segment_oldest()).min()
    }
}
