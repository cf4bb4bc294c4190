//! The log itself: blocking calls on a disk, without a thread or a clock.

mod append;
mod open;
mod release;
#[cfg(test)]
mod tests;

pub use append::{SpareDone, SpareJob};

use crate::files::{Failure, Files, Spare};
use crate::format::PAGE;
use crate::format::batch::{Range, Table};
use crate::format::state::{Condition, OwnerState, Spot, State};
use crate::reader::LogReader;
use crate::recovered::{Recovered, Verdict};
use crate::types::{AppendError, Frame, Location, OpenError, Options, Poisoned, ReleaseError, Released};
use crate::writer::Metrics;
use highwater_base::OwnerId;
use highwater_base::planted::{Bug, active};
use highwater_disk::{Disk, File};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The write-ahead log of one data directory.
pub struct Log {
    files: Files,
    options: Options,
    identity: u64,
    owners: BTreeMap<OwnerId, Owner>,
    /// Owners that release nothing any more in this run.
    abandoned: BTreeSet<OwnerId>,
    /// Oldest first; the last one takes frames, if `tail` says so.
    segments: Vec<Segment>,
    tail: Tail,
    /// Segments below are no part of the log.
    first_segment: u64,
    /// The mark of owners that the log never heard of, until the segment where they may be lost is given back.
    unlisted: Verdict,
    next_number: u64,
    spares: Vec<Spare>,
    next_spare: u64,
    /// The last attempt at making a file found no space on the disk.
    no_space: bool,
    /// The next attempt may be made.
    retry_space: bool,
    reader: LogReader,
    poisoned: Option<Poisoned>,
    /// Batches are laid out here, one after another in the same memory: fresh memory costs more than the copy.
    buffer: Vec<u8>,
    metrics: Metrics,
    /// Held as long as the log is open.
    _lock: Arc<dyn File>,
}

struct Owner {
    state: OwnerState,
    next_sequence: u64,
}

struct Segment {
    number: u64,
    file: Arc<dyn File>,
    bytes: u64,
    ranges: BTreeMap<OwnerId, Range>,
    /// Its file holds bytes that no life of it left whole. Behind the end of a later life they would look like a write
    /// that the disk lost.
    garbage: bool,
}

/// The end of the newest segment, in bytes of its file. `write_pos >= record_pos >= flush_pos`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tail {
    /// Where the next batch goes. After a cut it lies behind the remains, and takes nothing but the table.
    write_pos: u64,
    /// Where the last batch of frames ends.
    record_pos: u64,
    /// Below, everything is durable.
    flush_pos: u64,
    /// The segment takes more frames.
    open: bool,
    /// Where its table starts, once it has one.
    table: Option<u64>,
}

impl Log {
    /// Opens the log in `directory`, made if there is none, and finds out what survived. What is reported as surviving
    /// is durable.
    /// # Errors
    /// `Locked`, `Version`, `Options`, or the system's.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, options: Options) -> Result<(Self, Recovered), OpenError> {
        open::open(Files { disk, directory: directory.to_path_buf() }, options)
    }

    /// Writes frames as one batch and says where each payload lies. Durable after [`Log::sync`]. Frames that do not fit
    /// into one segment together are written as several batches.
    /// # Errors
    /// `Full` or `TooLarge`, which claim nothing, or `Poisoned`.
    pub fn append(&mut self, frames: &[Frame]) -> Result<Vec<Location>, AppendError> {
        self.alive()?;
        self.append_frames(frames)
    }

    /// Makes everything that was appended durable.
    /// # Errors
    /// `Poisoned`; nothing that was not reported durable before may be reported so now.
    pub fn sync(&mut self) -> Result<(), Poisoned> {
        self.alive()?;
        if active(Bug::AcknowledgeBeforeSync) {
            return Ok(());
        }
        self.flush()
    }

    /// A reader of this log's frames.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    /// Notes that `owner` needs nothing below `first_needed`, and gives back the oldest segments if nobody needs them.
    /// The note itself is not durable before a segment goes.
    /// # Errors
    /// `Full` if the disk has no space for the record that justifies it, or `Poisoned`.
    pub fn release(&mut self, owner: OwnerId, first_needed: u64) -> Result<Released, ReleaseError> {
        self.alive()?;
        if let Some(owner) = self.owners.get_mut(&owner) {
            owner.state.first_needed = owner.state.first_needed.max(first_needed);
        }
        self.reclaim()
    }

    /// Drops everything of `owner` so far, and its mark, durably: it starts anew, under a new identity.
    /// # Errors
    /// As [`Log::release`].
    pub fn forget(&mut self, owner: OwnerId) -> Result<Released, ReleaseError> {
        self.alive()?;
        self.forget_owner(owner)
    }

    /// Notes that `owner` will append and release nothing any more in this run. Its frames stay where they are for as long
    /// as the others have room. When the log would be full for them, the segments that it alone needs are set aside,
    /// and it is marked damaged, durably: its frames are then no part of the log any more, and their files are kept.
    pub fn abandon(&mut self, owner: OwnerId) {
        self.abandoned.insert(owner);
    }

    /// The owners that still need the oldest segment, each with its highest position there: once all of them have
    /// released past that, the segment can go. Empty while there is only the segment that is being written.
    #[must_use]
    pub fn oldest_segment_needs(&self) -> Vec<(OwnerId, u64)> {
        match self.segments.first() {
            Some(segment) if self.segments.len() > 1 || !self.tail.open => self.holds(segment).collect(),
            _ => Vec::new(),
        }
    }

    /// Bytes of the segments in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes of file that batches can still take, if there is no space on the disk for a further segment; `None` while
    /// nothing is known to be in the way of one. Batches take whole pages of 4 KiB.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        (self.no_space && self.spares.is_empty()).then(|| self.room_here())
    }

    /// The same, also while the log may not grow beyond `log_bytes_max`: bytes that batches can take before something is released.
    #[must_use]
    pub fn room_unreleased(&self) -> Option<u64> {
        let grows = self.bytes() + self.options.segment_bytes <= self.options.log_bytes_max;
        if grows { self.room() } else { Some(self.room_here()) }
    }

    /// Bytes of file that batches can still take in the newest segment.
    fn room_here(&self) -> u64 {
        self.segments.last().filter(|_| self.tail.open).map_or(0, |segment| {
            let table = Table::file_bytes(self.owners.len());
            segment.bytes.saturating_sub(self.tail.write_pos + table)
        })
    }

    /// Whether the newest segment ends soon and there is no file for the next one: whether one can be had should be known
    /// before more is taken.
    #[must_use]
    pub fn ends_soon(&self) -> bool {
        let soon = |segment: &Segment| self.tail.write_pos > segment.bytes / 4 * 3;
        self.spares.is_empty() && self.segments.last().is_some_and(soon)
    }

    /// Bytes of file that a batch can take with one write into the newest segment, so that nothing has to be made, synced
    /// or waited for besides.
    #[must_use]
    pub fn bytes_at_once(&self) -> u64 {
        let left = |segment: &Segment| {
            let table = Table::file_bytes(segment.ranges.len() + 1);
            segment.bytes.saturating_sub(self.tail.write_pos + table)
        };
        let takes = self.tail.open && !self.ends_soon();
        self.segments.last().filter(|_| takes).map_or(0, left)
    }

    /// Has the next [`Log::prepare`] look for space again, after the disk had none.
    pub fn retry_space(&mut self) {
        self.retry_space = true;
    }

    /// What was done since the log was opened.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics { log_bytes: self.bytes(), room: self.room(), ..self.metrics }
    }

    /// Syncs, and records that the log was closed.
    /// # Errors
    /// `Poisoned`.
    pub fn close(mut self) -> Result<(), Poisoned> {
        self.alive()?;
        self.flush()?;
        let state = self.state(Condition::Clean);
        self.files.write_state(&state).map_err(|failure| self.poison(&failure))
    }

    fn alive(&self) -> Result<(), Poisoned> {
        self.poisoned.clone().map_or(Ok(()), Err)
    }

    fn flush(&mut self) -> Result<(), Poisoned> {
        let Tail { write_pos, record_pos, flush_pos, .. } = self.tail;
        assert!(write_pos >= record_pos && record_pos >= flush_pos, "positions are out of order: {:?}", self.tail);
        if record_pos == flush_pos {
            return Ok(());
        }
        let Some(segment) = self.segments.last() else { return Ok(()) };
        let (file, number) = (segment.file.clone(), segment.number);
        self.check(file.sync_data(), "syncing", number)?;
        self.tail.flush_pos = record_pos;
        self.metrics.syncs += 1;
        Ok(())
    }

    /// Passes a result on, after stopping the log for good if it is an error.
    fn check<T>(&mut self, result: std::io::Result<T>, verb: &str, segment: u64) -> Result<T, Poisoned> {
        result.or_else(|error| {
            let path = self.files.segment_path(segment);
            crate::files::tried(Err(error), verb, &path).map_err(|failure| self.poison(&failure))
        })
    }

    /// Stops the log for good, and records it if the disk still takes a record.
    fn poison(&mut self, failure: &Failure) -> Poisoned {
        let poisoned = Poisoned { reason: failure.to_string() };
        self.poisoned = Some(poisoned.clone());
        let state = self.state(Condition::Poisoned(poisoned.reason.clone()));
        if let Err(second) = self.files.write_state(&state) {
            // The caller learns of the first failure; the record is a help for people, and recovery does without it.
            return Poisoned { reason: format!("{}; and recording it failed: {second}", poisoned.reason) };
        }
        poisoned
    }

    fn state(&self, condition: Condition) -> State {
        State {
            identity: self.identity,
            condition,
            boot_id: self.options.boot_id.clone(),
            first_segment: self.first_segment,
            synced: self.flushed(),
            unlisted: self.unlisted,
            owners: self.owners.iter().map(|(owner, known)| (*owner, known.state)).collect(),
        }
    }

    /// The place below which everything is durable.
    fn flushed(&self) -> Spot {
        self.segments.last().map_or(Spot { segment: self.first_segment.max(1) - 1, offset: PAGE }, |segment| Spot {
            segment: segment.number,
            offset: self.tail.flush_pos,
        })
    }

    /// The owners that need something in a segment and can still release it, each with its highest position there. One
    /// that is marked starts anew or never again: it holds nobody up, and its segments are set aside.
    fn holds(&self, segment: &Segment) -> impl Iterator<Item = (OwnerId, u64)> {
        self.needs(segment).filter(|(owner, _)| !self.is_marked(*owner))
    }

    fn is_marked(&self, owner: OwnerId) -> bool {
        self.owners.get(&owner).is_some_and(|owner| !owner.state.mark.is_whole())
    }

    /// The owners that need something in a segment, each with its highest position there.
    fn needs(&self, segment: &Segment) -> impl Iterator<Item = (OwnerId, u64)> {
        let needed = |(owner, range): (&OwnerId, &Range)| {
            let first_needed = self.owners.get(owner).map_or(0, |owner| owner.state.first_needed);
            (range.position_max >= first_needed).then_some((*owner, range.position_max))
        };
        segment.ranges.iter().filter_map(needed)
    }
}
