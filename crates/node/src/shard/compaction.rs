//! When a group's mostly dead files are emptied.

use super::{GroupCore, Now, ShardCore, ShardOptions, Slot};
use highwater_base::GroupId;
use highwater_store::{CheckpointDone, CheckpointError};

/// Bytes of payload that one checkpoint moves out of mostly dead files.
///
/// Other groups' checkpoints wait for it: at 100 MB/s a sixth of a second.
const STEP_BYTES: u64 = 16 << 20;

/// Milliseconds between two compactions at the least, and after one that failed.
const WAIT_MS_MIN: u64 = 100;
const RETRY_MS: u64 = 10_000;

/// How fast payload is moved.
#[derive(Default)]
pub(super) struct Pace {
    running: bool,
    /// Monotonic milliseconds before which none begins.
    not_before: u64,
}

impl Pace {
    /// One begins; the bytes that it may move.
    pub fn begun(&mut self) -> u64 {
        self.running = true;
        STEP_BYTES
    }

    /// A checkpoint ended. The next compaction waits as long as the bytes of this one may take.
    pub fn ended(&mut self, options: &ShardOptions, now: Now, result: &Result<CheckpointDone, CheckpointError>) {
        if !std::mem::take(&mut self.running) {
            return;
        }
        let wait_ms = match result {
            Ok(done) => done.copied_bytes().saturating_mul(1_000) / options.compaction_bytes_per_second.max(1),
            Err(_) => RETRY_MS,
        };
        self.not_before = now.monotonic.saturating_add(wait_ms.max(WAIT_MS_MIN));
    }
}

impl<T> ShardCore<T> {
    /// The group with the most dead bytes among those where a compaction would free something, if one may begin.
    pub(super) fn compaction_wanted(&self, now: Now) -> Option<GroupId> {
        if self.options.compaction_bytes_per_second == 0 || now.monotonic < self.compaction.not_before {
            return None;
        }
        let due = |group: &&GroupCore<T>| {
            group.goes_on() && group.checkpoint.may_begin(now.monotonic) && group.store.compaction_due()
        };
        let up = self.slots.iter().filter_map(|slot| match slot {
            Slot::Up(group) => Some(&**group),
            Slot::Down(_) => None,
        });
        up.filter(due).max_by_key(|group| group.store.status().dead_bytes).map(|group| group.id)
    }
}
