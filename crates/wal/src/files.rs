//! The files of a log's directory.

use crate::format::segment::{kept_name, segment_name, segment_number};
use crate::format::state::State;
use crate::types::OpenError;
use highwater_base::planted::{Bug, active};
use highwater_disk::{Disk, File, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RESERVE_BYTES: usize = 64 << 10;
/// Bytes of one write while a file is zeroed: large enough to be cheap, small enough for a buffer.
const ZEROS_BYTES: u64 = 1 << 20;
/// Bytes of zeros that are synced at once: about four milliseconds of a disk that syncs of batches share.
const ZEROS_SYNCED_BYTES: u64 = 8 << 20;

/// What failed, and how.
#[derive(Debug)]
pub(crate) struct Failure {
    pub what: String,
    pub error: io::Error,
    /// What the disk holds now is unknown, whatever the system's words.
    pub unsettled: bool,
}

impl Failure {
    /// The disk has no space, and holds what it held before.
    pub(crate) fn is_full(&self) -> bool {
        !self.unsettled && matches!(self.error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    fn unsettled(self) -> Self {
        Self { unsettled: true, ..self }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl From<Failure> for OpenError {
    fn from(Failure { what, error, .. }: Failure) -> Self {
        Self::Io { what, error }
    }
}

/// Says what was tried when it failed.
pub(crate) fn tried<T>(result: io::Result<T>, verb: &str, path: &Path) -> Result<T, Failure> {
    result.map_err(|error| Failure { what: format!("{verb} {}", path.display()), error, unsettled: false })
}

/// A file that waits to become a segment.
pub(crate) struct Spare {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
}

/// The directory of a log.
#[derive(Clone)]
pub(crate) struct Files {
    pub disk: Arc<dyn Disk>,
    pub directory: PathBuf,
}

/// What a directory holds.
#[derive(Default)]
pub(crate) struct Listing {
    /// Segments' numbers, ascending.
    pub segments: Vec<u64>,
    pub spares: Vec<String>,
    /// Files that were being written.
    pub unfinished: Vec<String>,
    pub has_state: bool,
    pub has_reserve: bool,
}

impl Files {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        self.path(&segment_name(number))
    }

    pub(crate) fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, Failure> {
        tried(self.disk.open(path, mode), "opening", path)
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<(), Failure> {
        tried(self.disk.remove(path), "removing", path)
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        tried(self.disk.rename(from, to), "renaming", from)
    }

    /// Gives a segment's file the name under which nobody touches it any more.
    pub(crate) fn set_aside(&self, number: u64) -> Result<(), Failure> {
        self.rename(&self.segment_path(number), &self.path(&kept_name(number)))
    }

    pub(crate) fn sync_directory(&self) -> Result<(), Failure> {
        tried(self.disk.sync_directory(&self.directory), "syncing", &self.directory)
    }

    pub(crate) fn list(&self) -> Result<Listing, Failure> {
        let mut listing = Listing::default();
        for name in tried(self.disk.list(&self.directory), "listing", &self.directory)? {
            match name.as_str() {
                "state" => listing.has_state = true,
                "state.reserve" => listing.has_reserve = true,
                "state.new" => listing.unfinished.push(name),
                _ if name.starts_with("spare-") && name.ends_with(".new") => listing.unfinished.push(name),
                _ if name.starts_with("spare-") => listing.spares.push(name),
                _ => listing.segments.extend(segment_number(&name)),
            }
        }
        listing.segments.sort_unstable();
        Ok(listing)
    }

    pub(crate) fn read_state(&self) -> Result<Vec<u8>, Failure> {
        let path = self.path("state");
        let file = self.open(&path, OpenMode::Read)?;
        let mut bytes = vec![0; tried(file.length(), "reading", &path)? as usize];
        tried(file.read_exact_at(&mut bytes, 0), "reading", &path)?;
        Ok(bytes)
    }

    /// Replaces the state file, durably. On a full disk the reserve makes room for it, once.
    ///
    /// The failure is a full disk only if the file is certainly the one of before: from the rename on the new one may be
    /// found after a crash, and a failed sync says nothing of what is durable.
    pub(crate) fn write_state(&self, state: &State) -> Result<(), Failure> {
        let bytes = state.encode();
        match self.write_new_state(&bytes) {
            Err(failure) if failure.is_full() && self.disk.exists(&self.path("state.reserve")).unwrap_or(false) => {
                self.remove(&self.path("state.reserve"))?;
                self.sync_directory().map_err(Failure::unsettled)?;
                self.write_new_state(&bytes)?;
            }
            other => other?,
        }
        let renamed = self.rename(&self.path("state.new"), &self.path("state"));
        renamed.and_then(|()| self.sync_directory()).map_err(Failure::unsettled)
    }

    fn write_new_state(&self, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.path("state.new");
        let file = self.open(&path, OpenMode::Create)?;
        tried(file.set_length(0), "cutting", &path)?;
        tried(file.write_at(bytes, 0), "writing", &path)?;
        tried(file.sync_all(), "syncing", &path).map_err(Failure::unsettled)
    }

    /// Lays the reserve down again; a disk without room for it does without.
    pub(crate) fn restore_reserve(&self) -> Result<(), Failure> {
        let path = self.path("state.reserve");
        if self.disk.exists(&path).unwrap_or(true) {
            return Ok(());
        }
        let written = self.open(&path, OpenMode::Create).and_then(|file| {
            tried(file.write_at(&[0; RESERVE_BYTES], 0), "writing", &path)?;
            tried(file.sync_all(), "syncing", &path)
        });
        match written {
            Err(failure) if failure.is_full() => self.remove(&path),
            other => other,
        }
    }

    /// Makes a file of zeros, all of it written and synced, so that no later write needs space.
    pub(crate) fn make_spare(&self, name: &str, bytes: u64) -> Result<Spare, Failure> {
        let unfinished = self.path(&format!("{name}.new"));
        let made = self.open(&unfinished, OpenMode::Create).and_then(|file| {
            tried(file.reserve(0, bytes), "reserving", &unfinished)?;
            let zeros = vec![0; ZEROS_BYTES.min(bytes) as usize];
            let mut offset = 0;
            while offset < bytes {
                let length = ZEROS_BYTES.min(bytes - offset);
                tried(file.write_at(&zeros[..length as usize], offset), "zeroing", &unfinished)?;
                offset += length;
                // In pieces, so that no batch's sync waits for the whole of it.
                if offset.is_multiple_of(ZEROS_SYNCED_BYTES) {
                    tried(file.sync_data(), "syncing", &unfinished)?;
                }
            }
            tried(file.sync_all(), "syncing", &unfinished)?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                let path = self.path(name);
                self.rename(&unfinished, &path)?;
                Ok(Spare { path, file })
            }
            Err(failure) => {
                // What was made of it is in the way of whoever makes room.
                if failure.is_full() {
                    self.remove(&unfinished)?;
                }
                Err(failure)
            }
        }
    }

    /// Gives a spare the name of a segment whose header it has, durably.
    pub(crate) fn name_segment(&self, spare: &Path, number: u64) -> Result<(), Failure> {
        self.rename(spare, &self.segment_path(number))?;
        if active(Bug::SkipDirectorySync) {
            return Ok(());
        }
        self.sync_directory()
    }
}
