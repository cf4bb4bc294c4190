//! What lets go of the log: checkpoints and close.

use super::{Engine, LogPosition, StopCode, StopReason, lock};
use crate::engine::open::{self, fingerprint};
use crate::record::is_zero;
use std::io;
use std::time::Duration;

/// Bytes of log kept for a database file that is never synced (`synchronous=OFF`), before the engine syncs it itself.
///
/// As much as a backlog may hold by default; without a bound the log would grow as long as the process runs.
const UNSYNCED_LOG_BYTES_MAX: u64 = 64 << 20;

impl Engine {
    /// The database file was synced and holds every record below `upto`, the end of a confirmed record. No one may be
    /// writing to it. The log is released up to there, as far as the stream has it.
    /// # Errors
    /// `InvalidInput` if no record ends there; the system's. The log is kept then.
    pub fn checkpointed(&self, upto: LogPosition) -> io::Result<()> {
        // A connection's own checkpoint and the upkeep's end at different places, and the later one must stand.
        let _one = lock(&self.checkpointing);
        if lock(&self.meta).checkpoint.position >= upto {
            return Ok(());
        }
        let checkpoint = self.log.with_index(|index| index.checkpoint_at(upto)).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("no record that is kept ends at {upto}"))
        })?;
        // A loss of power must not leave the file ahead of the log.
        self.sync_log()?;
        if !self.zero_gaps(upto)? {
            return Ok(());
        }
        let fingerprint = fingerprint(&*self.database)?;
        lock(&self.commit).reserved_end = fingerprint.length;
        self.update_meta(false, |meta| {
            meta.checkpoint = checkpoint;
            meta.fingerprint = Some(fingerprint);
        })?;
        self.release()?;
        self.status_changed();
        Ok(())
    }

    /// The database file holds every record below `upto` but was not synced (`synchronous=OFF`): the engine syncs it
    /// before it gives up the log, at the latest at close.
    /// # Errors
    /// As [`Engine::checkpointed`].
    pub fn backfilled(&self, upto: LogPosition) -> io::Result<()> {
        {
            let mut backfilled = lock(&self.backfilled);
            *backfilled = (*backfilled).max(upto);
        }
        // SQLite cut the file to size.
        lock(&self.commit).reserved_end = self.database.length()?;
        if upto.since(lock(&self.meta).checkpoint.position) < UNSYNCED_LOG_BYTES_MAX {
            return Ok(());
        }
        self.sync_backfilled()
    }

    fn sync_backfilled(&self) -> io::Result<()> {
        let upto = *lock(&self.backfilled);
        if upto <= lock(&self.meta).checkpoint.position {
            return Ok(());
        }
        self.sync_log()?;
        self.database.sync_all().map_err(|error| self.fail("the database file cannot be synced", error))?;
        self.checkpointed(upto)
    }

    /// Zeroes pages that came in unwritten before `upto` and that an earlier shrink may have left something in. `false`
    /// if the unconfirmed record writes one of them: whether a checkpoint copied that page already is not known here, so
    /// it is left alone, and the log is kept until a later checkpoint.
    fn zero_gaps(&self, upto: LogPosition) -> io::Result<bool> {
        let mut state = lock(&self.commit);
        if state.gaps.is_empty() {
            return Ok(true);
        }
        if state.staged_writes_gap() {
            return Ok(false);
        }
        let page_size = u64::from(self.binding.page_size);
        let mut page = vec![0; page_size as usize];
        let mut changed = false;
        for number in state.gaps.iter().filter(|(_, end)| **end <= upto).map(|(number, _)| *number) {
            let offset = u64::from(number - 1) * page_size;
            let read = self.database.read_at(&mut page, offset)?;
            if !is_zero(&page[..read]) {
                page[..read].fill(0);
                self.database.write_at(&page[..read], offset)?;
                changed = true;
            }
        }
        if changed {
            self.database.sync_all().map_err(|error| self.fail("the database file cannot be synced", error))?;
        }
        state.gaps.retain(|_, end| *end > upto);
        Ok(true)
    }

    /// Releases the log that neither recovery nor the stream needs.
    pub(super) fn release(&self) -> io::Result<()> {
        let needed = {
            let meta = lock(&self.meta);
            meta.checkpoint.position.min(meta.acknowledged_record)
        };
        if self.log.can_release(needed) {
            // What says that a segment is not needed, and the segment after it, must be durable before it goes.
            self.sync_meta()?;
            self.sync_log()?;
        }
        self.log.release(needed)
    }

    /// Drains for at most `sync_close_ms` through the hook, syncs, notes how the file was left, and unlocks. What is
    /// pending stays in the log. A second call does nothing.
    pub fn close(&self) {
        let drain = lock(&self.drain).take();
        if let Some(drain) = drain {
            // A stopped database sends nothing more, but its replicator still has to end.
            let stopped = self.stop_reason().is_some();
            drain(Duration::from_millis(if stopped { 0 } else { self.options.sync_close_ms }));
        }
        *lock(&self.owned) = false;
        let Some(locks) = lock(&self.locks).take() else { return };
        let reset = self.stop_reason().is_some_and(|reason| reason.code.is_reset());
        if reset || self.stop_reason().is_none() {
            // A failure leaves work to the next open's recovery, nothing more.
            drop(self.leave());
        }
        self.stop(StopReason::new(StopCode::Closed, "the database was closed"));
        if self.options.timer {
            self.publish_now();
        }
        // The hooks belong to a replicator that holds this engine.
        *lock(&self.wake) = None;
        self.forget_status_source();
        drop(locks);
        if reset {
            // SQLite's checkpoints ended with the stop. Recovery lays the rest of the log into the file, and then
            // refuses to open it, as it should.
            drop(open::open(&self.disk, &self.layout.database));
        }
    }

    fn leave(&self) -> io::Result<()> {
        self.cut()?;
        self.sync_log()?;
        self.sync_backfilled()?;
        let fingerprint = fingerprint(&*self.database)?;
        let checkpoint = lock(&self.meta).checkpoint.position;
        let unsynced = *lock(&self.backfilled) > checkpoint;
        let same = {
            let meta = lock(&self.meta);
            meta.fingerprint == Some(fingerprint) && meta.unsynced == unsynced
        };
        if !same {
            self.update_meta(false, |meta| (meta.fingerprint, meta.unsynced) = (Some(fingerprint), unsynced))?;
        }
        self.sync_meta()
    }
}
