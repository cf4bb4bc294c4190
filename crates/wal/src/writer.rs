//! The one thread that appends in production.

use crate::log::Log;
use crate::types::{AppendError, Frame, Location};
use highwater_base::OwnerId;
use std::sync::{Arc, Mutex};

/// What is called once frames are durable, or are not.
pub type Done = Box<dyn FnOnce(Result<Vec<Location>, AppendError>) + Send>;

/// What the writer has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    /// `fdatasync` calls for batches.
    pub syncs: u64,
    /// Batches written.
    pub batches: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes of payload written.
    pub bytes: u64,
    /// Submissions refused because the log was full.
    pub refused: u64,
    /// Bytes of the segments in use.
    pub log_bytes: u64,
}

/// The writer's thread.
pub struct Writer {
    handle: WriterHandle,
}

/// Gives work to the writer; any number of clones.
#[derive(Clone)]
pub struct WriterHandle {
    metrics: Arc<Mutex<Metrics>>,
}

impl Writer {
    /// Starts the thread.
    #[must_use]
    pub fn spawn(_log: Log) -> Self {
        Self { handle: WriterHandle { metrics: Arc::default() } }
    }

    /// A handle.
    #[must_use]
    pub fn handle(&self) -> WriterHandle {
        self.handle.clone()
    }

    /// Finishes what was submitted, closes the log and ends the thread.
    pub fn stop(self) {}
}

impl WriterHandle {
    /// Hands frames over. `done` runs on the writer's thread once they are durable, or never will be; it must not wait.
    pub fn submit(&self, _frames: Vec<Frame>, done: Done) {
        done(Err(AppendError::Full { bytes: 0 }));
    }

    /// As [`Log::release`], in the background.
    pub fn release(&self, _owner: OwnerId, _first_needed: u64) {}

    /// As [`Log::oldest_segment_needs`], as it was after the last batch.
    #[must_use]
    pub fn oldest_segment_needs(&self) -> Vec<(OwnerId, u64)> {
        Vec::new()
    }

    /// What was done so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.lock().map(|metrics| *metrics).unwrap_or_default()
    }
}
