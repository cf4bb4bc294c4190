//! The engine of one bound database: what happens at a commit, at a checkpoint, at open and at close.

pub mod layout;
pub mod types;

pub use layout::Layout;
pub use types::*;

use highwater_disk::{Disk, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Bytes of commits that may wait for the stream before a write is refused; 64 MiB by default.
    pub max_pending_bytes: u64,
    /// Milliseconds that `close` waits for replication.
    pub sync_close_ms: u64,
    /// Whether the process's timer thread syncs the log and publishes the status page; simulations call
    /// [`Engine::tick`] themselves.
    pub timer: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { max_pending_bytes: 64 << 20, sync_close_ms: 5_000, timer: true }
    }
}

/// Why a database does not open. The message says what to do.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no binding.
    #[error("not_bound: {path} is not bound to a stream; bind it with `highwater db bind FILE URL`")]
    NotBound {
        /// The database's path.
        path: String,
    },
    /// Another process has it open.
    #[error("busy: {path} is open in the process {pid}; one process owns a bound database at a time")]
    Busy {
        /// The database's path.
        path: String,
        /// The owner's process id, 0 if it cannot be told.
        pid: u32,
    },
    /// The system's.
    #[error("{path} cannot be opened: {error}")]
    Io {
        /// What was being done.
        path: String,
        /// The system's error.
        error: io::Error,
    },
}

impl OpenError {
    /// The code an application can switch on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotBound { .. } => "not_bound",
            Self::Busy { .. } => "busy",
            Self::Io { .. } => "io",
        }
    }
}

/// One bound database, open. Shared; every method takes `&self` and locks what it needs.
pub struct Engine {
    disk: Arc<dyn Disk>,
}

fn unsupported() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl Engine {
    /// Opens a bound database; when it returns, the database file holds every whole record of the log, synced.
    /// # Errors
    /// See [`OpenError`].
    pub fn open(disk: Arc<dyn Disk>, path: &Path, _options: OpenOptions) -> Result<Arc<Self>, OpenError> {
        let engine = Self { disk };
        let _ = &engine.disk;
        Err(OpenError::Io { path: path.display().to_string(), error: unsupported() })
    }

    /// Whether the database at `path` is bound.
    /// # Errors
    /// The system's.
    pub fn is_bound(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
        disk.exists(&Layout::of(path).meta)
    }

    /// The paths of this database; SQLite's `-wal` goes to `layout().wal`.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        unreachable!("open fails")
    }

    /// The handle of the database file, for the VFS to share.
    #[must_use]
    pub fn database(&self) -> Arc<dyn File> {
        unreachable!("open fails")
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        unreachable!("open fails")
    }

    /// Asked at the first write of a transaction.
    /// # Errors
    /// `BacklogFull`, or `Stopped`.
    pub fn admit_write(&self) -> Result<(), Refused> {
        Ok(())
    }

    /// Logs a commit, unconfirmed and unsynced. `read_page(i, buffer)` fills in the image of `commit.pages[i]`.
    /// # Errors
    /// See [`AppendFailed`]; the log is cut back.
    pub fn append_commit(
        &self,
        _commit: CommitShape<'_>,
        _read_page: &mut dyn FnMut(usize, &mut [u8]) -> io::Result<()>,
    ) -> Result<LogPosition, AppendFailed> {
        Err(unsupported().into())
    }

    /// The unconfirmed record stands; nothing happens if there is none.
    pub fn confirm(&self) {}

    /// The unconfirmed record does not stand: cuts it off and syncs the cut; nothing happens if there is none.
    /// # Errors
    /// The system's; the database is stopped then.
    pub fn cut(&self) -> io::Result<()> {
        Err(unsupported())
    }

    /// Makes every logged record durable; free if all are.
    /// # Errors
    /// The system's; the database is stopped then.
    pub fn sync_log(&self) -> io::Result<()> {
        Err(unsupported())
    }

    /// The database file was synced and holds every record below `upto`.
    /// # Errors
    /// The system's; the log is kept then.
    pub fn checkpointed(&self, _upto: LogPosition) -> io::Result<()> {
        Err(unsupported())
    }

    /// The database file holds every record below `upto` but was not synced (`synchronous=OFF`): the engine syncs it
    /// before it gives up the log, at the latest at close.
    /// # Errors
    /// The system's; the log is kept then.
    pub fn backfilled(&self, _upto: LogPosition) -> io::Result<()> {
        Err(unsupported())
    }

    /// The end of the last confirmed record.
    #[must_use]
    pub fn confirmed_end(&self) -> LogPosition {
        LogPosition::default()
    }

    /// Bytes of commits that wait for the stream.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        0
    }

    /// Tells how `PRAGMA synchronous` stands.
    /// # Errors
    /// The system's, when `Off` cannot be noted in `meta`.
    pub fn set_synchronous(&self, _synchronous: Synchronous) -> io::Result<()> {
        Err(unsupported())
    }

    /// Why the database serves nothing any more, if so.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        None
    }

    /// Stops the database; the first reason stays. A reset is noted in `meta` and refuses a later open too.
    pub fn stop(&self, _reason: StopReason) {}

    /// Drains for at most `sync_close_ms` through the hook, syncs, notes how the file was left, and unlocks.
    pub fn close(&self) {}

    /// Whose stream it is.
    #[must_use]
    pub fn binding(&self) -> Binding {
        unreachable!("open fails")
    }

    /// How far the log and the stream are.
    #[must_use]
    pub fn progress(&self) -> Progress {
        unreachable!("open fails")
    }

    /// Appends exactly `length` confirmed log bytes from `from` on to `into`.
    /// # Errors
    /// `InvalidInput` for a range that is not in the log (any more); the system's.
    pub fn read_log(&self, _from: LogPosition, _length: usize, _into: &mut Vec<u8>) -> io::Result<()> {
        Err(unsupported())
    }

    /// The first byte of the record that holds the byte at `position`; `position` itself at the end of the log.
    /// `None` below what is kept.
    #[must_use]
    pub fn record_start(&self, _position: LogPosition) -> Option<LogPosition> {
        None
    }

    /// The last commit whose record ends at or below `position`; `None` below what is kept.
    #[must_use]
    pub fn lsn_below(&self, _position: LogPosition) -> Option<u64> {
        None
    }

    /// The end of the record of commit `lsn`; `None` if it is not in the log.
    #[must_use]
    pub fn record_end(&self, _lsn: u64) -> Option<LogPosition> {
        None
    }

    /// Writes down a sealed batch before its first byte leaves: the log is synced up to `seal.to`, then `meta`.
    /// # Errors
    /// The system's.
    pub fn save_seal(&self, _seal: Seal) -> io::Result<()> {
        Err(unsupported())
    }

    /// Moves the acknowledged position and forgets the seal. Not synced by itself: after a loss of power the next
    /// claim finds out again.
    /// # Errors
    /// The system's.
    pub fn save_acknowledged(&self, _acknowledged: Acknowledgement) -> io::Result<()> {
        Err(unsupported())
    }

    /// Notes a won claim, synced, and forgets the seal.
    /// # Errors
    /// The system's.
    pub fn save_epoch(&self, _claim: ClaimWon) -> io::Result<()> {
        Err(unsupported())
    }

    /// Sets what is called after each confirmed commit, outside of every lock.
    pub fn on_confirmed(&self, _wake: Wake) {}

    /// Sets what `close` calls first: drain for at most so long, and say whether nothing is pending.
    pub fn on_close(&self, _drain: Box<dyn Fn(Duration) -> bool + Send + Sync>) {}

    /// Sets where the replicator's part of the status page comes from.
    pub fn set_status_source(&self, _source: StatusSource) {}

    /// The status page.
    #[must_use]
    pub fn status(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Something worth showing changed: the status page is published soon.
    pub fn status_changed(&self) {}

    /// What the timer does: syncs a log that waits for it and publishes the status page.
    pub fn tick(&self) {}
}
