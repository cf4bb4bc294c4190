//! What the replicator asks and tells.

use super::{Acknowledgement, Binding, ClaimWon, Engine, LogPosition, Progress, Seal, lock};
use std::io;

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Engine {
    /// Whose stream it is.
    #[must_use]
    pub fn binding(&self) -> Binding {
        self.binding.clone()
    }

    /// How far the log and the stream are.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut progress = {
            let meta = lock(&self.meta);
            Progress {
                acknowledged: meta.acknowledged,
                acknowledged_lsn: meta.acknowledged_lsn,
                stream_end: meta.stream_end,
                epoch: meta.epoch,
                next_seq: meta.next_seq,
                in_flight: meta.in_flight,
                last_lsn: 0,
                confirmed_end: LogPosition(0),
            }
        };
        // After `meta`: what is acknowledged is never ahead of what is logged.
        (progress.last_lsn, progress.confirmed_end) = self.log.with_index(|index| (index.last_lsn(), index.end()));
        progress
    }

    /// Appends exactly `length` confirmed log bytes from `from` on to `into`.
    /// # Errors
    /// `InvalidInput` for a range that is not in the log (any more); the system's.
    pub fn read_log(&self, from: LogPosition, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
        self.log.read(from, length, into)
    }

    /// The first byte of the record that holds the byte at `position`; `position` itself at the end of the log.
    /// `None` below what is kept.
    #[must_use]
    pub fn record_start(&self, position: LogPosition) -> Option<LogPosition> {
        self.log.with_index(|index| index.record_start(position))
    }

    /// The last commit whose record ends at or below `position`; `None` below what is kept.
    #[must_use]
    pub fn lsn_below(&self, position: LogPosition) -> Option<u64> {
        self.log.with_index(|index| index.lsn_below(position))
    }

    /// The end of the record of commit `lsn`; `None` if it is not in the log.
    #[must_use]
    pub fn record_end(&self, lsn: u64) -> Option<LogPosition> {
        self.log.with_index(|index| index.record_end(lsn))
    }

    /// Writes down a sealed batch before its first byte leaves: the log is synced up to `seal.to`, then `meta`.
    /// # Errors
    /// `InvalidInput` for a range that is not confirmed or does not follow what is acknowledged; the system's.
    pub fn save_seal(&self, seal: Seal) -> io::Result<()> {
        let end = self.confirmed_end();
        if seal.from != lock(&self.meta).acknowledged || seal.to < seal.from || seal.to > end {
            return Err(invalid(format!("{}..{} cannot be sealed, {end} is confirmed", seal.from, seal.to)));
        }
        if self.log.synced() < seal.to {
            self.sync_log()?;
        }
        self.update_meta(true, |meta| meta.in_flight = Some(seal))
    }

    /// Moves the acknowledged position and forgets the seal. Not synced by itself: after a loss of power the next
    /// claim finds out again.
    /// # Errors
    /// `InvalidInput` for a position that is not confirmed or lies behind; the system's.
    pub fn save_acknowledged(&self, acknowledged: Acknowledgement) -> io::Result<()> {
        let Acknowledgement { upto, stream_end, next_seq } = acknowledged;
        if upto < lock(&self.meta).acknowledged {
            return Err(invalid(format!("{upto} lies behind what is acknowledged")));
        }
        let (record, lsn) = self.record_at(upto)?;
        self.update_meta(false, |meta| {
            (meta.acknowledged, meta.acknowledged_record, meta.acknowledged_lsn) = (upto, record, lsn);
            (meta.stream_end, meta.next_seq, meta.in_flight) = (stream_end, next_seq, None);
        })?;
        self.release()?;
        self.status_changed();
        Ok(())
    }

    /// Notes a won claim, synced, and forgets the seal.
    /// # Errors
    /// `InvalidInput` if `resume` is not in the log; the system's.
    pub fn save_epoch(&self, claim: ClaimWon) -> io::Result<()> {
        let (record, lsn) = self.record_at(claim.resume)?;
        self.update_meta(true, |meta| {
            (meta.epoch, meta.next_seq, meta.stream_end) = (claim.epoch, claim.next_seq, claim.stream_end);
            (meta.acknowledged, meta.acknowledged_record, meta.acknowledged_lsn) = (claim.resume, record, lsn);
            meta.in_flight = None;
        })?;
        self.status_changed();
        Ok(())
    }

    /// The start of the record that holds `position`, and the lsn before it.
    fn record_at(&self, position: LogPosition) -> io::Result<(LogPosition, u64)> {
        let found = self.log.with_index(|index| index.record_start(position).zip(index.lsn_below(position)));
        found.ok_or_else(|| invalid(format!("{position} is not in the log")))
    }
}
