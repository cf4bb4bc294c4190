//! What the tests count of a disk, and a panic that they plant in it.

use highwater_disk::watched::{Call, Watcher};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many syncs of files a disk was asked for.
#[derive(Default)]
pub struct Counts {
    pub syncs: AtomicU64,
    /// Whether the next write panics, as a fault in the extension would.
    pub panics: AtomicBool,
}

impl Watcher for Counts {
    fn before(&self, call: Call, _path: &Path, _bytes: u64) {
        match call {
            Call::Sync => drop(self.syncs.fetch_add(1, Ordering::Relaxed)),
            Call::Write => assert!(!self.panics.swap(false, Ordering::Relaxed), "a planted fault"),
            Call::Open | Call::Read | Call::SyncDirectory => {}
        }
    }
}
