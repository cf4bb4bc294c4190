//! Data files that lie in an object store.
//!
//! A data file that is full and old may move to an object store, so that the disk holds what is written and read now. It
//! moves whole and keeps its number and its bytes: the index says the same as before, and a *marker* beside it says where
//! it went. What reads a block reads it from there. `docs/formats/store.md` has the bytes and the order of steps.
//!
//! A file's way out: its blocks are verified; a marker that says "under way" is synced, which fixes the object's name; the
//! object is written and read back; a marker that says "moved" is synced; the file is removed. So at every moment one whole
//! copy is known, and a name in the object store that was given once is always in a marker, until its object is deleted.
//! Nothing is ever deleted that no marker of this directory named, and nothing of another *life* of the directory: one that
//! was restored from an older copy draws a new life, and leaves what the other one wrote alone.
//!
//! No checkpoint asks the object store for anything: extents that lie there are not merged, and a file of which half is dead
//! comes back first and is emptied then. So the log is never held up by it.

mod erase;
mod file;
mod folder;
pub(crate) mod marker;
mod outward;
mod plan;
mod recall;

pub use erase::Erased;
pub use folder::Folder;
pub use outward::{MoveError, Outward};
pub use plan::{ColdCandidate, ColdPlan};

pub(crate) use file::{ColdFile, cause};

use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_disk::Disk;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// Why an object store did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ColdError {
    /// It answered that there is no such object.
    #[error("there is no such object")]
    Missing,
    /// It did not answer, answered too late, refused, or is not the one that it was. What it holds may be sound.
    #[error("{0}")]
    Unreachable(String),
    /// The bytes to be written could not be had.
    #[error("{0}")]
    Source(String),
}

/// Gives the next bytes of an object that is written; none at its end.
pub type Pieces<'a> = &'a mut dyn FnMut() -> io::Result<Bytes>;

/// An object store. Calls block; they come from threads for I/O only, never from one that applies commands, writes the log
/// or makes checkpoints.
///
/// Names consist of segments of `[a-z0-9-]` with `/` between them. Every call ends: an implementation bounds the time that it
/// waits for bytes.
pub trait ColdTier: Send + Sync + 'static {
    /// Writes an object, in place of one that had this name. On return it is durable.
    /// # Errors
    /// `Unreachable`, with nothing, a part or the whole object there; `Source` if `pieces` failed.
    fn put(&self, name: &str, bytes: u64, pieces: Pieces<'_>) -> Result<(), ColdError>;

    /// Reads up to `length` bytes of an object from `offset` on; fewer only at its end.
    /// # Errors
    /// `Missing` or `Unreachable`.
    fn read(&self, name: &str, offset: u64, length: u64) -> Result<Bytes, ColdError>;

    /// Deletes an object, and whatever a `put` that broke off left of it; one that is not there is fine.
    /// # Errors
    /// `Unreachable`.
    fn delete(&self, name: &str) -> Result<(), ColdError>;

    /// Where it is, for people; without credentials.
    fn place(&self) -> String;
}

/// The object store of a node, as an option of its stores.
#[derive(Clone)]
pub struct ColdStore(pub Arc<dyn ColdTier>);

impl fmt::Debug for ColdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ColdStore").field(&self.0.place()).finish()
    }
}

/// One life of a data directory: drawn when it first has an object store, and anew when it was restored from an older copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life(pub u64);

/// A marker's bytes, read and written again, if they are one of this file; for fuzzers.
#[doc(hidden)]
#[must_use]
pub fn marker_again(bytes: &[u8], owner: OwnerId, file: u32) -> Option<Vec<u8>> {
    let marker = marker::Marker::decode(bytes, owner, file).ok()?;
    Some(marker.encode(owner, file))
}

/// How many data files of the store in `directory` are in an object store. Reads names only.
/// # Errors
/// The disk's, but not for a folder that is not there.
pub fn moved_files(disk: &dyn Disk, directory: &Path) -> io::Result<u64> {
    let names = match disk.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        names => names?,
    };
    let here: BTreeSet<u32> = names.iter().filter_map(|name| crate::files::number(name)).collect();
    let away = names.iter().filter_map(|name| marker::number(name)).filter(|file| !here.contains(file));
    Ok(away.count() as u64)
}

/// A data file's place in the object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cold {
    /// Whose object it is.
    pub life: Life,
    /// Drawn for each object, so that no name is given twice, whatever became of the directory in between.
    pub nonce: u64,
    /// Bytes of the object; 0 while it is under way.
    pub bytes: u64,
    /// Whether the object is whole and the file is gone, or its move is under way.
    pub moved: bool,
}

impl Cold {
    /// The object's name.
    pub fn name(&self, owner: OwnerId, file: u32) -> String {
        format!("life-{:016x}/{owner}/data-{file:08x}-{:016x}", self.life.0, self.nonce)
    }
}
