//! Binding: how a file becomes a bound database, and how a restored one is laid down.

use crate::engine::OpenError;
use highwater_base::{Incarnation, Offset};
use highwater_disk::Disk;
use std::io;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// The stream that a database is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundStream {
    /// Its URL.
    pub url: String,
    /// Its history.
    pub incarnation: Incarnation,
    /// The deployment's identity.
    pub cluster_id: String,
    /// The deployment's release line.
    pub protocol: u32,
    /// Where it ends.
    pub end: Offset,
}

/// How a new file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindOptions {
    /// Bytes of a page of a new database; an existing one keeps its own.
    pub page_size: u32,
    /// 0 none, 1 full, 2 incremental; for a new database.
    pub auto_vacuum: u8,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self { page_size: 4096, auto_vacuum: 0 }
    }
}

/// Pages done, pages in all.
pub type BindProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// What binding did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// It was bound to this URL before; nothing changed.
    Already,
    /// A new database.
    Created,
    /// An existing database, logged whole as the first commit.
    Existing {
        /// Its pages.
        pages: u32,
    },
}

/// Why a file is not bound, and as it was. The message says what to do.
#[derive(Debug, Error)]
pub enum BindError {
    /// It is open elsewhere, or the system's error.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is bound to another stream.
    #[error("bound_elsewhere: {path} is bound to {url}")]
    Elsewhere {
        /// The database's path.
        path: String,
        /// The URL it is bound to.
        url: String,
    },
    /// The system's.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Binds the database at `path` to `stream`, making it if it does not exist.
/// # Errors
/// See [`BindError`]; the file is then as it was.
pub fn bind(
    _disk: &Arc<dyn Disk>,
    _path: &Path,
    _options: BindOptions,
    _stream: &BoundStream,
    _progress: BindProgress<'_>,
) -> Result<Bound, BindError> {
    Err(io::Error::from(io::ErrorKind::Unsupported).into())
}

/// A database that is being restored from its stream: nothing lies at its path until [`Restoring::finish`].
pub struct Restoring {}

impl Restoring {
    /// Starts: refuses a path that holds something, and clears what an earlier attempt left.
    /// # Errors
    /// See [`BindError`].
    pub fn begin(_disk: &Arc<dyn Disk>, _path: &Path) -> Result<Self, BindError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Takes record bytes, in any pieces; each record is checked, and applied as it becomes whole.
    ///
    /// A run that is voided by a claim is forgotten with [`Restoring::void`].
    /// # Errors
    /// `InvalidData` naming the commit, or the system's.
    pub fn push(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Forgets the bytes of an incomplete record: a claim voided its run.
    pub fn void(&mut self) {}

    /// Commits applied so far, and the last one's number.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        0
    }

    /// Syncs, and gives the database its name and its binding; the last step makes both appear.
    /// # Errors
    /// See [`BindError`].
    pub fn finish(self, _stream: &BoundStream) -> Result<(), BindError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }
}
