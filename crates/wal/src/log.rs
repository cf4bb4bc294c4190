//! The log itself: blocking calls on a disk, without a thread or a clock.

use crate::reader::LogReader;
use crate::recovered::Recovered;
use crate::types::{AppendError, Frame, Location, OpenError, Options, Poisoned, ReleaseError, Released};
use highwater_base::OwnerId;
use highwater_disk::Disk;
use std::path::Path;
use std::sync::Arc;

/// The write-ahead log of one data directory.
pub struct Log {
    reader: LogReader,
}

impl Log {
    /// Opens the log in `directory`, made if there is none, and finds out what survived.
    /// # Errors
    /// `Locked`, `Version`, `Options`, or the system's.
    pub fn open(_disk: Arc<dyn Disk>, _directory: &Path, _options: Options) -> Result<(Self, Recovered), OpenError> {
        Err(OpenError::Options("the log is being written"))
    }

    /// Writes frames as one batch and says where each payload lies. Durable after [`Log::sync`].
    /// # Errors
    /// `Full` or `TooLarge`, which claim nothing, or `Poisoned`.
    pub fn append(&mut self, _frames: &[Frame]) -> Result<Vec<Location>, AppendError> {
        Err(AppendError::Full { bytes: 0 })
    }

    /// Makes everything that was appended durable.
    /// # Errors
    /// `Poisoned`; nothing that was not reported durable before may be reported so now.
    pub fn sync(&mut self) -> Result<(), Poisoned> {
        Ok(())
    }

    /// A reader of this log's frames.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    /// Notes that `owner` needs nothing below `first_needed`, and gives back the oldest segments if nobody needs them.
    /// # Errors
    /// `Full` if the disk has no space for the record that justifies it, or `Poisoned`.
    pub fn release(&mut self, _owner: OwnerId, _first_needed: u64) -> Result<Released, ReleaseError> {
        Ok(Released::default())
    }

    /// Drops everything of `owner` so far, and its mark: it starts anew, under a new identity.
    /// # Errors
    /// As [`Log::release`].
    pub fn forget(&mut self, _owner: OwnerId) -> Result<Released, ReleaseError> {
        Ok(Released::default())
    }

    /// The owners that still need the oldest segment, each with its highest position there: once all of them have
    /// released past that, the segment can go.
    #[must_use]
    pub fn oldest_segment_needs(&self) -> Vec<(OwnerId, u64)> {
        Vec::new()
    }

    /// Bytes of the segments in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        0
    }

    /// Syncs, and records that the log was closed.
    /// # Errors
    /// `Poisoned`.
    pub fn close(self) -> Result<(), Poisoned> {
        Ok(())
    }
}
