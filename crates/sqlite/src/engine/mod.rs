//! The engine of one bound database: what happens at a commit, at a checkpoint, at open and at close.
//!
//! The VFS calls it under SQLite's locks, the replicator from its own thread, the timer from a third. Lock order:
//! `checkpointing`, `commit`, then the log's, then `meta_file`, then `meta`; no lock is held while a hook runs, and `meta` never during
//! I/O.

pub(crate) mod apply;
mod checkpoint;
mod commit;
mod error;
pub mod layout;
pub(crate) mod open;
pub(crate) mod pages;
mod replication;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod timer;
pub mod types;

pub use error::OpenError;
pub use layout::Layout;
pub use status::{StatusRead, read_status};
pub use types::*;

use crate::guard::lock;
use crate::log::{Log, SEGMENT_BYTES};
use crate::meta::{Meta, MetaFile};
use commit::CommitState;
use highwater_disk::{Disk, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Milliseconds after which the log of a `synchronous=NORMAL` database is synced in the background.
///
/// Part of the promise: a loss of power takes at most so much of what the stream does not have.
pub const BACKGROUND_SYNC_MS: u64 = 200;

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Bytes of commits that may wait for the stream before a write is refused; 64 MiB by default.
    pub max_pending_bytes: u64,
    /// Milliseconds that `close` waits for replication.
    pub sync_close_ms: u64,
    /// Whether threads of our own sync the log, publish the status page and help with checkpoints; simulations call
    /// [`Engine::tick`] themselves.
    pub timer: bool,
    /// Bytes after which a log segment takes no further record.
    pub segment_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { max_pending_bytes: 64 << 20, sync_close_ms: 5_000, timer: true, segment_bytes: SEGMENT_BYTES }
    }
}

/// What `close` calls first: drain for at most so long, and say whether nothing is pending.
pub type Drain = Box<dyn Fn(Duration) -> bool + Send + Sync>;

/// One bound database, open. Shared; every method takes `&self` and locks what it needs.
pub struct Engine {
    disk: Arc<dyn Disk>,
    layout: Layout,
    options: OpenOptions,
    binding: Binding,
    boot_id: Option<[u8; 16]>,
    database: Arc<dyn File>,
    log: Log,
    /// Held from the first to the last step of noting a checkpoint.
    checkpointing: Mutex<()>,
    commit: Mutex<CommitState>,
    meta_file: Mutex<MetaFile>,
    meta: Mutex<Meta>,
    /// What the database file holds without being synced.
    backfilled: Mutex<LogPosition>,
    /// Held for an instant only, so that a forked child finds it free.
    locks: Mutex<Option<open::Locks>>,
    /// Whether the database was not closed yet; held while a status page is published.
    owned: Mutex<bool>,
    stopped: AtomicBool,
    stop: Mutex<Option<StopReason>>,
    synchronous: AtomicU8,
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    drain: Mutex<Option<Drain>>,
    status: Mutex<status::Publishing>,
    scheduled: AtomicBool,
    /// A commit since the last tick was promised a sync.
    sync_due: AtomicBool,
    /// The host synced the last confirmed commit, as under `synchronous=FULL`.
    commits_synced: AtomicBool,
    this: Weak<Engine>,
}

impl Engine {
    /// Opens a bound database; when it returns, the database file holds every whole record of the log, synced, and
    /// SQLite's `-wal` is gone.
    /// # Errors
    /// See [`OpenError`]; refused databases are left as they were found.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, options: OpenOptions) -> Result<Arc<Self>, OpenError> {
        let opened = open::open(&disk, path)?;
        let io_error = OpenError::io(&opened.layout);
        let commit = CommitState::new(opened.table, opened.database.length().map_err(io_error)?);
        let log = opened.log.with_segment_bytes(options.segment_bytes);
        Ok(Arc::new_cyclic(|this| Self {
            disk,
            layout: opened.layout,
            options,
            binding: opened.meta.binding.clone(),
            boot_id: opened.boot_id,
            database: opened.database,
            log,
            checkpointing: Mutex::new(()),
            commit: Mutex::new(commit),
            meta_file: Mutex::new(opened.meta_file),
            meta: Mutex::new(opened.meta),
            backfilled: Mutex::new(LogPosition::default()),
            locks: Mutex::new(Some(opened.locks)),
            owned: Mutex::new(true),
            stopped: AtomicBool::new(false),
            stop: Mutex::new(None),
            synchronous: AtomicU8::new(Synchronous::default() as u8),
            wake: Mutex::new(None),
            drain: Mutex::new(None),
            status: Mutex::new(status::Publishing::default()),
            scheduled: AtomicBool::new(false),
            sync_due: AtomicBool::new(false),
            commits_synced: AtomicBool::new(false),
            this: this.clone(),
        }))
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
        &self.layout
    }

    /// The handle of the database file, for the VFS to share.
    #[must_use]
    pub fn database(&self) -> Arc<dyn File> {
        self.database.clone()
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.binding.page_size
    }

    /// How it was opened.
    #[must_use]
    pub fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// Why the database serves nothing any more, if so.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        if self.stopped.load(Ordering::Acquire) { lock(&self.stop).clone() } else { None }
    }

    /// Stops the database; the first reason stays. A reset is noted in `meta` and refuses a later open too.
    pub fn stop(&self, reason: StopReason) {
        {
            let mut stop = lock(&self.stop);
            if stop.is_some() {
                return;
            }
            *stop = Some(reason.clone());
            self.stopped.store(true, Ordering::Release);
        }
        if reason.code.is_reset() {
            // Where this fails the next open claims again and meets the same reset.
            drop(self.update_meta(true, |meta| meta.stop = Some(reason)));
        }
        self.status_changed();
    }

    /// Stops with `log_failed` and hands the error on: after a failed write or sync nobody knows what is on the disk.
    fn fail(&self, what: &str, error: io::Error) -> io::Error {
        let text = format!("{what}: {error}; close the database and open it again, which recovers what is on the disk");
        self.stop(StopReason::new(StopCode::LogFailed, text));
        error
    }

    /// Changes `meta`, and makes the change durable if `sync` says so.
    fn update_meta(&self, sync: bool, change: impl FnOnce(&mut Meta)) -> io::Result<()> {
        let mut file = lock(&self.meta_file);
        self.writable()?;
        let mut next = lock(&self.meta).clone();
        change(&mut next);
        let saved = file.save(&next, sync);
        match saved {
            Ok(()) => {
                *lock(&self.meta) = next;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(error),
            // Still under the lock: nobody writes between the failure and the stop.
            Err(error) => Err(self.fail("meta cannot be written", error)),
        }
    }

    fn sync_meta(&self) -> io::Result<()> {
        let mut file = lock(&self.meta_file);
        self.writable()?;
        file.sync().map_err(|error| self.fail("meta cannot be synced", error))
    }

    /// A failed write or sync is never tried again, for a second one would lie about the first. A reset leaves the files
    /// in order.
    fn writable(&self) -> io::Result<()> {
        match self.stop_reason() {
            Some(reason) if !reason.code.is_reset() => Err(io::Error::other(reason.to_string())),
            _ => Ok(()),
        }
    }

    /// Makes every logged record durable; free if all are.
    /// # Errors
    /// The system's; the database is stopped then.
    pub fn sync_log(&self) -> io::Result<()> {
        self.writable()?;
        self.log.sync().map_err(|error| self.fail("the log cannot be synced", error))
    }

    /// As [`Engine::sync_log`], asked for by the host for the unconfirmed record: its commits are `synchronous=FULL`,
    /// whether or not a `PRAGMA` said so.
    /// # Errors
    /// As [`Engine::sync_log`].
    pub fn sync_commit(&self) -> io::Result<()> {
        self.sync_log()?;
        lock(&self.commit).synced_by_host = true;
        Ok(())
    }

    /// Sets what is called after each confirmed commit, outside of every lock.
    pub fn on_confirmed(&self, wake: Wake) {
        *lock(&self.wake) = Some(Arc::from(wake));
    }

    /// Sets what `close` calls first.
    pub fn on_close(&self, drain: Drain) {
        *lock(&self.drain) = Some(drain);
    }

    /// Tells how `PRAGMA synchronous` stands; the strongest of several connections is what counts to a caller that
    /// tells it for each.
    /// # Errors
    /// The system's, when `Off` cannot be noted in `meta`.
    pub fn set_synchronous(&self, synchronous: Synchronous) -> io::Result<()> {
        let before = self.synchronous.swap(synchronous as u8, Ordering::AcqRel);
        if synchronous == Synchronous::Off && before != Synchronous::Off as u8 {
            let boot_id = self.boot_id;
            self.update_meta(true, |meta| (meta.unsynced, meta.boot_id) = (true, boot_id))?;
        }
        Ok(())
    }

    /// How `PRAGMA synchronous` stands, as last told.
    #[must_use]
    pub fn synchronous(&self) -> Synchronous {
        match self.synchronous.load(Ordering::Acquire) {
            0 => Synchronous::Off,
            1 => Synchronous::Normal,
            _ => Synchronous::Full,
        }
    }

    /// Has the timer call [`Engine::tick`] within [`BACKGROUND_SYNC_MS`]; `false` if the system has no thread for it.
    fn schedule(&self) -> bool {
        if self.options.timer && !self.scheduled.swap(true, Ordering::AcqRel) {
            let at = Instant::now() + Duration::from_millis(BACKGROUND_SYNC_MS);
            if !timer::schedule(self.this.clone(), at) {
                self.scheduled.store(false, Ordering::Release);
                return false;
            }
        }
        true
    }

    /// Has what was just committed under another level than `Off` synced within [`BACKGROUND_SYNC_MS`].
    fn schedule_sync(&self) {
        self.sync_due.store(true, Ordering::Release);
        if !self.schedule() {
            // Without a timer the commit pays for its sync. A failure has stopped the database with its reason.
            drop(self.sync_log());
        }
    }

    /// What the timer does: syncs a log that waits for it and publishes the status page.
    pub fn tick(&self) {
        self.scheduled.store(false, Ordering::Release);
        // What is due does not depend on how the writers after it want their own commits.
        if self.sync_due.swap(false, Ordering::AcqRel) && self.stop_reason().is_none() && self.log.needs_sync() {
            // A failure has stopped the database with its reason.
            drop(self.sync_log());
        }
        if self.options.timer {
            self.publish_if_changed();
        }
    }

    /// In a forked child: gives up the descriptors of the parent's locks. They are the parent's as long as it has them
    /// open itself, and otherwise nobody's.
    pub(crate) fn disown(&self) {
        // Were a thread of the parent closing the database right now, it would have them in hand, and they stay open.
        if let Ok(mut locks) = self.locks.try_lock() {
            drop(locks.take());
        }
    }

    /// What `meta` says now.
    #[cfg(test)]
    pub(crate) fn meta_for_test(&self) -> Meta {
        lock(&self.meta).clone()
    }
}
