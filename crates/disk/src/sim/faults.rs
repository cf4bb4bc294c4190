//! What goes wrong, and when.

use std::io;
use std::path::Path;

/// What is asked of a disk, as a pattern for faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `Disk::open`; a mutating operation only if it made a file.
    Open,
    /// `File::read_at`.
    Read,
    /// `File::write_at`.
    Write,
    /// `File::sync_data` and `File::sync_all`.
    Sync,
    /// `File::set_length`.
    SetLength,
    /// `File::reserve`.
    Reserve,
    /// `Disk::create_directory`.
    CreateDirectory,
    /// `Disk::sync_directory`.
    SyncDirectory,
    /// `Disk::rename`; matched by either name.
    Rename,
    /// `Disk::remove`.
    Remove,
}

impl Operation {
    /// Whether it can change what a disk holds, and so counts.
    #[must_use]
    pub fn mutates(self) -> bool {
        self != Self::Read
    }
}

/// An error that waits for its operation.
#[derive(Debug, Clone)]
struct Fault {
    operation: Operation,
    /// Part of the path; empty for any.
    path: String,
    /// Matching operations that still succeed.
    after: u64,
    /// Matching operations that fail then.
    times: u64,
    error: i32,
}

/// The faults of one disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    waiting: Vec<Fault>,
    /// The number of the mutating operation at which the machine dies.
    pub stop_at: Option<u64>,
    pub stopped: bool,
}

/// The device reported a failure.
pub const EIO: i32 = 5;
/// The device is full.
pub const ENOSPC: i32 = 28;

impl Faults {
    pub(super) fn add(&mut self, operation: Operation, path: &str, after: u64, times: u64, error: i32) {
        self.waiting.push(Fault { operation, path: path.to_owned(), after, times, error });
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The error that this operation meets, if one waits for it.
    pub(super) fn meet(&mut self, operation: Operation, paths: &[&Path]) -> io::Result<()> {
        let mut met = None;
        for fault in self.waiting.iter_mut().filter(|fault| fault.operation == operation) {
            let matches = paths.iter().any(|path| path.to_string_lossy().contains(&fault.path));
            if !matches {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
            } else if met.is_none() && fault.times > 0 {
                fault.times -= 1;
                met = Some(fault.error);
            }
        }
        self.waiting.retain(|fault| fault.times > 0);
        met.map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(error)))
    }
}

/// What every call says once the machine has died.
pub(super) fn dead() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the machine is down")
}
