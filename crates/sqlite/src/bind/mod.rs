//! Binding: how a file becomes a bound database, and how a restored one is laid down.
//!
//! A database is bound once `meta` has its name. Everything before that step leaves the file unbound and usable as it
//! was; everything after it is finished by the next open. A new or restored database file gets its own name last.

mod existing;
mod fresh;
mod laydown;
mod restored;
#[cfg(test)]
mod tests;

pub use restored::Restoring;

use crate::engine::open::{lock_database, lock_process};
use crate::engine::{Binding, Layout, OpenError};
use crate::meta::{CLUSTER_ID_BYTES_MAX, MetaFile, URL_BYTES_MAX};
use highwater_base::{Incarnation, Offset};
use highwater_disk::{Disk, OpenMode};
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

/// Names a local log: 128 random bits, drawn when it is made.
pub type Lineage = [u8; 16];

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

/// Why a file is not bound or restored, and as it was. The message says what to do.
#[derive(Debug, Error)]
pub enum BindError {
    /// It is open elsewhere, or its binding cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is bound to another stream.
    #[error(
        "bound_elsewhere: {path} is bound to {url}; to change that, copy it with `VACUUM INTO` and bind the copy to \
         the new stream"
    )]
    Elsewhere {
        /// The database's path.
        path: String,
        /// The URL it is bound to.
        url: String,
    },
    /// Something is where a restored database should go.
    #[error("exists: {path} exists already; restore under a name that is free")]
    Exists {
        /// The path.
        path: String,
    },
    /// It is no database.
    #[error("not_a_database: {path} is not an SQLite database ({why}); nothing was changed")]
    NotADatabase {
        /// The path.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A transaction of stock SQLite waits in a journal beside it.
    #[error(
        "hot_journal: {journal} holds a transaction that is not in the database yet; open and close the database once \
         with sqlite3, then bind it"
    )]
    HotJournal {
        /// The journal or `-wal`.
        journal: String,
    },
    /// An option has a value it cannot have.
    #[error("invalid_option: {0}")]
    Option(&'static str),
    /// The stream has no commit to restore.
    #[error("empty_stream: the stream holds no whole commit; there is nothing to restore")]
    Empty,
    /// The system's.
    #[error("io: {0}")]
    Io(#[from] io::Error),
}

impl BindError {
    /// The code an application can switch on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Open(error) => error.code(),
            Self::Elsewhere { .. } => "bound_elsewhere",
            Self::Exists { .. } => "exists",
            Self::NotADatabase { .. } => "not_a_database",
            Self::HotJournal { .. } => "hot_journal",
            Self::Option(_) => "invalid_option",
            Self::Empty => "empty_stream",
            Self::Io(_) => "io",
        }
    }

    fn io(layout: &Layout) -> impl Fn(io::Error) -> Self + use<> {
        let path = layout.database.display().to_string();
        move |error| Self::Io(io::Error::new(error.kind(), format!("{path}: {error}")))
    }
}

/// Binds the database at `path` to `stream`, making it if it does not exist or is empty.
///
/// An existing one is logged whole as the first commit, with `progress` told now and then; its header says WAL
/// afterwards, which stock SQLite reads as well. A crash leaves it either unbound and usable, or bound and whole.
/// # Errors
/// See [`BindError`].
pub fn bind(
    disk: &Arc<dyn Disk>,
    path: &Path,
    options: BindOptions,
    stream: &BoundStream,
    progress: BindProgress<'_>,
) -> Result<Bound, BindError> {
    bind_as(disk, path, options, stream, laydown::fresh_lineage()?, progress)
}

/// As [`bind`], with the name that the new log gets; for simulations, which draw everything from one seed.
/// # Errors
/// As [`bind`].
pub fn bind_as(
    disk: &Arc<dyn Disk>,
    path: &Path,
    options: BindOptions,
    stream: &BoundStream,
    lineage: Lineage,
    progress: BindProgress<'_>,
) -> Result<Bound, BindError> {
    let layout = Layout::of(path);
    let io_error = BindError::io(&layout);
    check_stream(stream)?;
    if let Some(bound) = already_bound(&**disk, &layout, stream)? {
        return Ok(bound);
    }
    disk.create_directory(&layout.log).map_err(&io_error)?;
    let _process = lock_process(&**disk, &layout)?;
    // The process that held the lock until now may have bound it.
    if let Some(bound) = already_bound(&**disk, &layout, stream)? {
        return Ok(bound);
    }
    laydown::clear(&**disk, &layout).map_err(&io_error)?;
    let exists = disk.exists(&layout.database).map_err(&io_error)?;
    let guard = exists.then(|| lock_database(&**disk, &layout)).transpose()?;
    let populated = match &guard {
        Some(file) => file.length().map_err(&io_error)? > 0,
        None => false,
    };
    existing::refuse_journals(&**disk, &layout)?;
    match guard {
        Some(file) if populated => existing::bind(disk, &layout, &*file, stream, lineage, progress),
        _ => fresh::bind(disk, &layout, options, stream, lineage),
    }
}

/// The stream that the database at `path` is bound to, `None` if it is not bound.
/// # Errors
/// See [`BindError`].
pub fn bound_to(disk: &dyn Disk, path: &Path) -> Result<Option<Binding>, BindError> {
    binding(disk, &Layout::of(path))
}

fn binding(disk: &dyn Disk, layout: &Layout) -> Result<Option<Binding>, BindError> {
    if !disk.exists(&layout.meta).map_err(BindError::io(layout))? {
        return Ok(None);
    }
    let file = disk.open(&layout.meta, OpenMode::Read).map_err(BindError::io(layout))?;
    let (_, meta) =
        MetaFile::open(file).map_err(|error| OpenError::Meta { path: layout.meta.display().to_string(), error })?;
    Ok(Some(meta.binding))
}

fn already_bound(disk: &dyn Disk, layout: &Layout, stream: &BoundStream) -> Result<Option<Bound>, BindError> {
    match binding(disk, layout)? {
        Some(binding) if binding.url == stream.url => Ok(Some(Bound::Already)),
        Some(Binding { url, .. }) => Err(BindError::Elsewhere { path: layout.database.display().to_string(), url }),
        None => Ok(None),
    }
}

fn check_stream(stream: &BoundStream) -> Result<(), BindError> {
    if stream.url.is_empty() || stream.url.len() > URL_BYTES_MAX {
        return Err(BindError::Option("the stream's URL has 1 to 2,048 bytes"));
    }
    if stream.cluster_id.len() > CLUSTER_ID_BYTES_MAX {
        return Err(BindError::Option("a cluster id has at most 64 bytes"));
    }
    Ok(())
}
