//! When a group's state and bytes move from the log into its own files.

use super::group::GroupCore;
use super::input::Output;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_consensus::HardState;
use highwater_store::{CheckpointDone, CheckpointError};
use highwater_wal::Location;

/// Milliseconds before a checkpoint that failed is tried again: long enough not to burn a full disk's time, short
/// enough that a disk with space again is used at once.
const RETRY_MS: u64 = 1_000;

/// What a checkpoint under way covers.
struct Running {
    applied: u64,
    /// Bytes of frames that it was begun for; they count again if it fails.
    logged_bytes: u64,
    hard_state: HardState,
}

/// What a group has in the log that a checkpoint would release.
#[derive(Default)]
pub(super) struct CheckpointState {
    running: Option<Running>,
    /// Bytes of frames since the last checkpoint began.
    pub logged_bytes: u64,
    /// Segment of the first frame that only a finished checkpoint makes superfluous.
    segment_oldest: Option<u64>,
    /// The same for frames since the running checkpoint began, which it does not cover.
    segment_oldest_next: Option<u64>,
    /// Monotonic milliseconds before which no checkpoint begins.
    not_before: u64,
    /// Whether the last one failed, to say it once.
    failing: bool,
    /// What the last ones met that no later one will find otherwise.
    damage: Option<Damage>,
}

/// Damage that keeps a group from making a checkpoint.
struct Damage {
    /// Attempts in a row that met it.
    attempts: u32,
    /// Whether it is the log's.
    of_log: bool,
    reason: String,
}

/// Attempts that must meet damage in the log before it is believed: a read may also fail once.
const DAMAGED_ATTEMPTS: u32 = 2;

impl CheckpointState {
    /// Notes a frame of the group in the log.
    pub fn logged(&mut self, location: Location) {
        self.logged_bytes += u64::from(location.length);
        let oldest = if self.running.is_some() { &mut self.segment_oldest_next } else { &mut self.segment_oldest };
        oldest.get_or_insert(location.segment);
    }

    /// The oldest segment that holds frames which are still needed.
    pub fn segment_oldest(&self) -> Option<u64> {
        self.segment_oldest.or(self.segment_oldest_next)
    }

    pub fn may_begin(&self, monotonic: u64) -> bool {
        self.running.is_none() && monotonic >= self.not_before
    }

    /// Why the group must stop, if it must. `behind` says whether its part of the log is in the way of others.
    ///
    /// What the log alone holds and does not give back is lost to this node: a group that went on would acknowledge writes
    /// that no restart finds, since none believes such a log. One whose files are damaged goes on until the log is needed,
    /// so that its streams can be copied.
    pub fn doom(&self, behind: bool) -> Option<String> {
        let Damage { attempts, of_log, reason } = self.damage.as_ref()?;
        (behind || *of_log && *attempts >= DAMAGED_ATTEMPTS).then(|| reason.clone())
    }
}

/// What a checkpoint says of the group beside its streams: the replica's base, and the machine's own bytes.
pub(crate) fn checkpoint_meta(meta: Bytes) -> Result<(Bytes, Bytes), DecodeError> {
    let mut reader = Reader::new(meta);
    let parts = (reader.bytes()?, reader.bytes()?);
    reader.finish()?;
    Ok(parts)
}

impl<T> GroupCore<T> {
    /// Begins a checkpoint of everything applied, which moves `compaction_bytes_max` bytes out of mostly dead files.
    pub fn begin_checkpoint(&mut self, compaction_bytes_max: u64) -> Output<T> {
        self.pins_running.append(&mut self.pins);
        let base = self.raft.base();
        let changed = self.machine.take_changed();
        let state = &mut self.checkpoint;
        let logged_bytes = std::mem::take(&mut state.logged_bytes);
        state.running = Some(Running { applied: base.index, logged_bytes, hard_state: base.hard_state });
        let mut meta = Writer::new();
        meta.bytes(&base.encode()).bytes(&self.machine.meta());
        let checkpoint = self.store.begin_compaction(base.index, meta.into_vec().into(), changed, compaction_bytes_max);
        Output::Checkpoint(self.id, checkpoint)
    }

    /// Takes a checkpoint's end; on success, the log may give back what it covers.
    pub fn end_checkpoint(
        &mut self,
        result: Result<CheckpointDone, CheckpointError>,
        monotonic: u64,
        out: &mut Vec<Output<T>>,
    ) {
        let Some(Running { applied, logged_bytes, hard_state }) = self.checkpoint.running.take() else { return };
        let done = match result {
            Ok(done) => done,
            Err(error) => {
                self.refuse_pins(&error, out);
                self.checkpoint.logged_bytes += logged_bytes;
                self.checkpoint_failed(error, monotonic);
                return;
            }
        };
        self.compacted_bytes += done.copied_bytes();
        let reclaim = self.store.finish_checkpoint(done);
        self.note_stored();
        self.answer_pins(out);
        out.push(Output::Reclaim(reclaim));
        let state = &mut self.checkpoint;
        (state.failing, state.damage) = (false, None);
        tracing::debug!(event = "checkpoint_ended", group = %self.owner, applied, log_bytes = logged_bytes, "a checkpoint ended");
        // A vote that was stored since lies in the log at a position that the checkpoint covers, and is not in it.
        let now = self.raft.base().hard_state;
        if (now.term, now.vote) != (hard_state.term, hard_state.vote) {
            state.logged_bytes = state.logged_bytes.max(1);
            state.segment_oldest = state.segment_oldest.or(state.segment_oldest_next);
            state.segment_oldest_next = None;
            return;
        }
        state.segment_oldest = state.segment_oldest_next.take();
        out.push(Output::Release(self.owner, applied + 1));
    }

    fn checkpoint_failed(&mut self, error: CheckpointError, monotonic: u64) {
        let state = &mut self.checkpoint;
        state.damage = error.is_damage().then(|| Damage {
            attempts: state.damage.as_ref().map_or(0, |damage| damage.attempts) + 1,
            of_log: error.is_log_damage(),
            reason: error.fault.to_string(),
        });
        if !state.failing {
            tracing::warn!(event = "checkpoint_failed", group = %self.owner, error = %error, "a checkpoint failed and will be tried again");
        }
        state.failing = true;
        state.not_before = monotonic.saturating_add(RETRY_MS);
        state.segment_oldest = state.segment_oldest.or(state.segment_oldest_next);
        state.segment_oldest_next = None;
        self.store.fail_checkpoint(error);
    }
}
