//! What a node tells of its object store.

use highwater_store::Life;
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The object store, for the status page.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ColdStatus {
    /// Where it is, without credentials.
    pub place: String,
    /// This life of the directory, as the names of its objects have it.
    pub life: String,
    /// Bytes of data files that stay on the disk.
    pub local_bytes_max: u64,
    /// Bytes of data files that are on the disk, as of the last look.
    pub local_bytes: u64,
    /// Files in the object store, as of the last look.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that moved there since the start.
    pub moved_files: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Files that came back since the start, to be emptied.
    pub recalled_files: u64,
    /// Objects that were deleted since the start.
    pub erased_objects: u64,
    /// Reads of the object store that were refused because it did not answer, since the start.
    pub reads_failed: u64,
    /// Moves, recalls and deletions that failed, since the start.
    pub moves_failed: u64,
    /// Milliseconds since the Unix epoch when moving began to fail; absent if it does not.
    pub failing_since_ms: Option<u64>,
    /// What failed last, if something did since the start.
    pub last_error: Option<String>,
    /// Files that should move and cannot, because they are damaged.
    pub files_kept: u64,
    /// Whether objects that nothing needs stay because the directory looks like a copy.
    pub erasures_held: bool,
    /// Whether a scrub reads what is there. It does not: reading all of it would cost more than it keeps safe, and what is
    /// read is verified as ever.
    pub scrubbed: bool,
}

/// The same, while it changes.
#[derive(Debug)]
pub(crate) struct Standing(Mutex<ColdStatus>);

impl Standing {
    pub fn new(place: String, life: Life, local_bytes_max: u64) -> Self {
        let life = format!("life-{:016x}", life.0);
        Self(Mutex::new(ColdStatus { place, life, local_bytes_max, ..ColdStatus::default() }))
    }

    pub fn lock(&self) -> MutexGuard<'_, ColdStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn status(&self) -> ColdStatus {
        self.lock().clone()
    }

    /// A look at all files ended, and did all that it wanted to; whether something had failed before.
    pub fn succeeded(&self) -> bool {
        self.lock().failing_since_ms.take().is_some()
    }

    /// Something failed; whether nothing had before.
    pub fn failed(&self, wall_ms: u64, error: &str) -> bool {
        let mut status = self.lock();
        status.moves_failed += 1;
        status.last_error = Some(error.to_owned());
        let first = status.failing_since_ms.is_none();
        status.failing_since_ms.get_or_insert(wall_ms);
        first
    }

    /// A read of it failed.
    pub fn read_failed(&self, error: &str) {
        let mut status = self.lock();
        status.reads_failed += 1;
        status.last_error = Some(error.to_owned());
    }
}
