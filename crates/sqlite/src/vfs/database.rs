//! One bound database that is open in this process, shared by all its connections.

use crate::engine::{
    AppendFailed, CommitShape, Engine, LogPosition, PageNumber, Refused, StopCode, StopReason, Synchronous,
};
use crate::ffi::code;
use crate::host::fork;
use crate::vfs::capture::{Capture, Commit, FRAME_HEADER_BYTES, Logged, Piece, Unexpected};
use crate::vfs::failure::Failure;
use crate::vfs::index::Index;
use crate::vfs::locks::{ConnectionId, Level, LockTable, SLOT_CHECKPOINT, SLOT_WRITE, Slots};
use highwater_disk::{Disk, File, OpenMode};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a writer waits while a checkpoint catches up with a `-wal` that grew past all bounds.
const HOLD: Duration = Duration::from_secs(2);

/// What a child is told about the databases that its parent had open.
const FORKED: &str = "forked: this process inherited the open database from its parent, which still owns it; open it in \
                      one process only, after the fork";

/// One bound database.
///
/// The capture is locked before the lock table. `engine` has locks of its own, taken last.
pub struct Database {
    /// The engine behind it.
    pub engine: Arc<Engine>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    wal_path: PathBuf,
    file: Arc<dyn File>,
    /// The `-wal`, while any connection has it open. One handle serves all.
    wal: Mutex<Option<Arc<dyn File>>>,
    /// The wal-index.
    pub index: Index,
    capture: Mutex<Capture>,
    locks: Mutex<LockTable>,
    /// Signalled when the writer's slot is given back or writers are let go on.
    writer_left: Condvar,
    /// Writers wait at their slot, so that a checkpoint reaches the end of the `-wal`.
    held: AtomicBool,
    /// The log below was given up, or may be: the database file holds it, synced.
    durable: AtomicU64,
    next_connection: AtomicU64,
    /// The address of each open connection's file name, by which its `-wal` finds it.
    names: Mutex<BTreeMap<ConnectionId, usize>>,
    /// The writer's `PRAGMA synchronous`, as the engine was told last.
    synchronous: Mutex<Synchronous>,
    generation: u64,
    refusal: Mutex<String>,
}

impl Database {
    /// Wraps an engine that has just recovered the database file.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, engine: Arc<Engine>) -> Self {
        let file = engine.database();
        let end = engine.confirmed_end();
        let layout = engine.layout();
        Self {
            path: layout.database.clone(),
            wal_path: layout.wal.clone(),
            disk,
            file,
            wal: Mutex::new(None),
            index: Index::default(),
            capture: Mutex::new(Capture::new(engine.page_size(), end)),
            locks: Mutex::new(LockTable::default()),
            writer_left: Condvar::new(),
            held: AtomicBool::new(false),
            durable: AtomicU64::new(end.0),
            next_connection: AtomicU64::new(0),
            names: Mutex::default(),
            synchronous: Mutex::default(),
            generation: fork::generation(),
            refusal: Mutex::new(String::new()),
            engine,
        }
    }

    /// The real path of the database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database file.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// A number for one more connection, which SQLite opened under the name at this address.
    #[must_use]
    pub fn connect(&self, name: usize) -> ConnectionId {
        let connection = ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed));
        self.names().insert(connection, name);
        connection
    }

    /// The open connection that SQLite opened under the name at this address.
    #[must_use]
    pub fn connection_of(&self, name: usize) -> Option<ConnectionId> {
        self.names().iter().find(|(_, known)| **known == name).map(|(connection, _)| *connection)
    }

    /// Forgets a connection with its locks.
    pub fn disconnect(&self, connection: ConnectionId) {
        if self.locks().holds(connection, SLOT_WRITE) {
            self.end_write();
        }
        self.locks().forget(connection);
        self.names().remove(&connection);
        self.writer_left.notify_all();
    }

    /// Whether this process opened it, or only inherited it from the process that did.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Asked before the engine is, whose locks nobody may be left to release in a child.
    /// # Errors
    /// `SQLITE_IOERR` in a process that only inherited the database.
    pub fn ours(&self) -> Result<(), Failure> {
        if self.is_ours() { Ok(()) } else { Err(Failure::new(code::IOERR, FORKED)) }
    }

    /// Asked before every read, write and lock.
    /// # Errors
    /// `SQLITE_IOERR` with the reason for which the database serves nothing any more.
    pub fn usable(&self) -> Result<(), Failure> {
        self.ours()?;
        match self.engine.stop_reason() {
            None => Ok(()),
            Some(reason) => Err(Failure::new(code::IOERR, reason.to_string())),
        }
    }

    /// Stops the database for good after a fault of our own.
    pub fn stop(&self, text: impl Into<String>) {
        self.engine.stop(StopReason::new(StopCode::LogFailed, text));
    }

    /// Remembers why something was refused, for `PRAGMA highwater_error`.
    pub fn refused(&self, text: &str) {
        // In a forked child nobody may be left who gives the lock back; there the reason is always the fork.
        if self.is_ours() {
            text.clone_into(&mut self.refusal.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Why something was refused last; empty if nothing was.
    #[must_use]
    pub fn refusal(&self) -> String {
        if !self.is_ours() {
            return FORKED.to_owned();
        }
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the engine how the writer whose transaction begins wants its commits.
    fn tell_synchronous(&self, wanted: Synchronous) -> Result<(), Failure> {
        let mut told = self.synchronous.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != wanted {
            let noted = self.engine.set_synchronous(wanted);
            noted.map_err(|error| Failure::io(code::IOERR, "noting PRAGMA synchronous", &error))?;
            *told = wanted;
        }
        Ok(())
    }

    /// Before a page is copied into the database file: the log must have it durably, or a loss of power leaves the
    /// file ahead of the log. Under `synchronous=OFF` it may, which the engine's notes then say.
    /// # Errors
    /// The system's.
    pub fn before_backfill(&self) -> Result<(), Failure> {
        if *self.synchronous.lock().unwrap_or_else(PoisonError::into_inner) == Synchronous::Off {
            return Ok(());
        }
        self.engine.sync_log().map_err(|error| Failure::io(code::IOERR_WRITE, "the sync of the log", &error))
    }

    // The database file. SQLite writes it only in checkpoints.

    /// Whether this connection is in a checkpoint: it holds the slot, or as the last one it holds the whole file.
    #[must_use]
    pub fn checkpoints(&self, connection: ConnectionId) -> bool {
        let locks = self.locks();
        locks.holds(connection, SLOT_CHECKPOINT) || locks.level(connection) == Level::Exclusive
    }

    /// Ends a checkpoint that reached the end of the `-wal`: syncs the database file, and lets the log go up to there.
    /// # Errors
    /// The system's; the log is kept.
    pub fn sync_checkpoint(&self) -> Result<(), Failure> {
        // The log position is read before the sync: what commits meanwhile is not yet in the file.
        let end = self.capture().backfill(self.index.backfill_attempted());
        self.sync_file(end)
    }

    /// Makes what is backfilled durable and lets the log go up to there, whether or not the `-wal` was copied whole.
    /// # Errors
    /// The system's; the log is kept.
    pub fn sync_backfilled(&self) -> Result<(), Failure> {
        // Both are read under the capture's lock: a restart of the -wal, which counts frames anew, passes through it.
        let mut capture = self.capture();
        let end = capture.backfill(self.index.backfilled());
        drop(capture);
        if end.0 > self.durable.load(Ordering::Acquire) { self.sync_file(end) } else { Ok(()) }
    }

    fn sync_file(&self, end: LogPosition) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::io(code::IOERR_FSYNC, "the sync of the database file", &error);
        if let Err(error) = self.file.sync_data() {
            // What is on the disk is unknown now, and a second sync would not tell: recovery writes it anew.
            self.stop(format!("the database file cannot be synced: {error}; close the database and open it again"));
            return Err(failed(error));
        }
        self.engine.checkpointed(end).map_err(failed)?;
        self.durable.fetch_max(end.0, Ordering::AcqRel);
        Ok(())
    }

    /// Log bytes that the database file is not known to hold durably.
    #[must_use]
    pub fn undurable_bytes(&self) -> u64 {
        self.engine.confirmed_end().0.saturating_sub(self.durable.load(Ordering::Acquire))
    }

    /// Bytes of the `-wal` that no checkpoint has copied yet.
    #[must_use]
    pub fn unbackfilled_bytes(&self) -> u64 {
        let capture = self.capture();
        let frames = capture.frames().saturating_sub(self.index.backfilled());
        u64::from(frames) * (FRAME_HEADER_BYTES + u64::from(capture.page_size()))
    }

    /// Bytes of the `-wal`.
    #[must_use]
    pub fn wal_bytes(&self) -> u64 {
        let capture = self.capture();
        capture.frame_offset(capture.frames().saturating_add(1))
    }

    // The -wal.

    /// Opens the `-wal`.
    /// # Errors
    /// The system's.
    pub fn open_wal(&self) -> Result<Arc<dyn File>, Failure> {
        self.usable()?;
        let mut wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wal) = &*wal {
            return Ok(wal.clone());
        }
        let opened = self.disk.open(&self.wal_path, OpenMode::Create);
        let opened = opened.map_err(|error| Failure::io(code::CANTOPEN, "the -wal cannot be opened", &error))?;
        Ok(wal.insert(opened).clone())
    }

    /// Whether there is a `-wal` with something in it.
    #[must_use]
    pub fn has_wal(&self) -> bool {
        if !self.is_ours() {
            return false;
        }
        let wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        wal.as_ref().is_some_and(|wal| wal.length().is_ok_and(|length| length > 0))
    }

    /// Deletes the `-wal`; all of it is in the database file.
    /// # Errors
    /// The system's.
    pub fn delete_wal(&self) -> Result<(), Failure> {
        let end = self.engine.confirmed_end();
        let removed = match self.wal.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(_) => self.disk.remove(&self.wal_path),
            None => Ok(()),
        };
        self.capture().deleted(end);
        let removed = removed.and_then(|()| self.engine.backfilled(end));
        removed.map_err(|error| Failure::io(code::IOERR_DELETE, "the -wal cannot be deleted", &error))
    }

    /// Cuts the `-wal`.
    /// # Errors
    /// The system's.
    pub fn truncate_wal(&self, wal: &Arc<dyn File>, length: u64) -> Result<(), Failure> {
        self.usable()?;
        let mut capture = self.capture();
        let cut = wal.set_length(length);
        cut.map_err(|error| Failure::io(code::IOERR_TRUNCATE, "the -wal cannot be cut", &error))?;
        capture.cut(length);
        Ok(())
    }

    /// Writes to the `-wal`; the page that completes a commit is logged right after it.
    /// # Errors
    /// `SQLITE_FULL` or `SQLITE_IOERR_WRITE`; a commit is then not in the log, and SQLite rolls it back.
    pub fn write_wal(
        &self,
        wal: &Arc<dyn File>,
        connection: ConnectionId,
        bytes: &[u8],
        offset: u64,
    ) -> Result<(), Failure> {
        self.usable()?;
        let mut capture = self.capture();
        let piece = capture.write(connection, bytes, offset).map_err(unexpected)?;
        wal.write_at(bytes, offset).map_err(|error| Failure::io(code::IOERR_WRITE, "a write to the -wal", &error))?;
        match piece {
            Piece::Plain => Ok(()),
            Piece::CommitPage(commit) => self.log_commit(&mut capture, wal, commit),
        }
    }

    fn log_commit(&self, capture: &mut Capture, wal: &Arc<dyn File>, commit: Commit) -> Result<(), Failure> {
        let images = capture.images(commit);
        let pages: Vec<PageNumber> = images.iter().map(|(page, _)| *page).collect();
        let shape = CommitShape { page_size: capture.page_size(), pages_after: commit.pages_after, pages: &pages };
        let mut read_page = |at: usize, image: &mut [u8]| {
            let (_, frame) = images.get(at).ok_or(io::ErrorKind::InvalidInput)?;
            wal.read_exact_at(image, capture.frame_offset(*frame) + FRAME_HEADER_BYTES)
        };
        match self.engine.append_commit(shape, &mut read_page) {
            Ok(end) => {
                capture.logged(Logged { commit, end });
                Ok(())
            }
            Err(error) => {
                self.void_frame(capture, wal, commit.frame);
                Err(append_failure(&error))
            }
        }
    }

    /// Spoils the header of a commit frame whose record is not in the log, so that no recovery of the wal-index can
    /// bring the commit back.
    fn void_frame(&self, capture: &Capture, wal: &Arc<dyn File>, frame: u32) {
        let zeros = [0; FRAME_HEADER_BYTES as usize];
        if let Err(error) = wal.write_at(&zeros, capture.frame_offset(frame)) {
            self.stop(format!("a commit that failed could not be taken out of the -wal: {error}"));
        }
    }

    /// What SQLite's sync of the `-wal` means here: the log's, after a commit (`synchronous=FULL`) and before a
    /// checkpoint; nothing otherwise.
    /// # Errors
    /// The system's; the commit is rolled back.
    pub fn sync_wal(&self, connection: ConnectionId) -> Result<(), Failure> {
        self.usable()?;
        let commits = self.locks().holds(connection, SLOT_WRITE) && self.capture().record().is_some();
        if commits || self.checkpoints(connection) {
            let synced = if commits { self.engine.sync_commit() } else { self.engine.sync_log() };
            synced.map_err(|error| Failure::io(code::IOERR_FSYNC, "the sync of the log", &error))?;
        }
        Ok(())
    }

    // Locks.

    /// Raises the lock on the database file.
    /// # Errors
    /// `SQLITE_BUSY`, or why the database is stopped.
    pub fn lock(&self, connection: ConnectionId, level: Level) -> Result<(), Failure> {
        self.usable()?;
        self.locks().lock(connection, level).map_err(|_| Failure::code(code::BUSY))
    }

    /// Lowers the lock on the database file.
    pub fn unlock(&self, connection: ConnectionId, level: Level) {
        if !self.is_ours() {
            return;
        }
        self.locks().unlock(connection, level);
    }

    /// The lock of a connection on the database file.
    #[must_use]
    pub fn level(&self, connection: ConnectionId) -> Level {
        if !self.is_ours() {
            return Level::None;
        }
        self.locks().level(connection)
    }

    /// Whether a connection is about to write without the `-wal`.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.locks().is_reserved()
    }

    /// Takes slots of the wal-index for reading.
    /// # Errors
    /// `SQLITE_BUSY`, or why the database is stopped.
    pub fn share(&self, connection: ConnectionId, slots: Slots) -> Result<(), Failure> {
        self.usable()?;
        self.locks().share(connection, slots).map_err(|_| Failure::code(code::BUSY))
    }

    /// Takes slots of the wal-index for itself; with the writer's slot a transaction begins.
    /// # Errors
    /// `SQLITE_BUSY`; `SQLITE_FULL` while the backlog is full; why the database is stopped.
    pub fn seize(&self, connection: ConnectionId, slots: Slots, synchronous: Synchronous) -> Result<(), Failure> {
        self.usable()?;
        let mut locks = self.locks();
        if slots.has(SLOT_WRITE) && self.held.load(Ordering::Acquire) {
            let held = |_: &mut LockTable| self.held.load(Ordering::Acquire);
            let waited = self.writer_left.wait_timeout_while(locks, HOLD, held);
            locks = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let checkpoints = locks.holds(connection, SLOT_CHECKPOINT);
        locks.seize(connection, slots).map_err(|_| Failure::code(code::BUSY))?;
        drop(locks);
        if !slots.has(SLOT_WRITE) {
            return Ok(());
        }
        // Without a published header this is SQLite's recovery of the wal-index, which writes no frame.
        let Some(published) = self.index.frame_max() else { return Ok(()) };
        // A checkpoint takes the slot to keep writers out, not to write.
        let admitted =
            if checkpoints { Ok(()) } else { self.engine.admit_write().map_err(|refused| refusal(&refused)) };
        let begun = admitted
            .and_then(|()| self.tell_synchronous(synchronous))
            .and_then(|()| self.capture().begin(connection, published).map_err(unexpected));
        if begun.is_err() {
            self.locks().release(connection, slots);
            self.writer_left.notify_all();
        }
        begun
    }

    /// Gives slots of the wal-index back; with the writer's slot its transaction is decided.
    pub fn release(&self, connection: ConnectionId, slots: Slots) {
        if !self.is_ours() {
            return;
        }
        let writes = slots.has(SLOT_WRITE) && self.locks().holds(connection, SLOT_WRITE);
        if writes {
            self.end_write();
        }
        self.locks().release(connection, slots);
        if writes {
            self.writer_left.notify_all();
        }
    }

    /// Decides the transaction whose writer leaves: its record stands if the published wal-index covers its commit.
    fn end_write(&self) {
        let mut capture = self.capture();
        let Some(logged) = capture.record() else {
            capture.abandon();
            return;
        };
        if self.index.frame_max().is_some_and(|published| published >= logged.commit.frame) {
            // The engine first: a checkpoint takes the log's position from the capture, and it must be confirmed.
            self.engine.confirm();
            capture.confirm(logged, self.index.backfilled());
            return;
        }
        let wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(wal) = wal {
            self.void_frame(&capture, &wal, logged.commit.frame);
        }
        capture.abandon();
        // On failure the engine stops the database itself; SQLite has reported the commit's error already.
        if let Err(error) = self.engine.cut() {
            self.refused(&format!("io: a failed commit could not be cut off the log: {error}"));
        }
    }

    /// Runs `body` while no writer is in its slot and none enters; not at all if one does not leave in time.
    pub fn without_writers(&self, body: impl FnOnce()) {
        self.held.store(true, Ordering::Release);
        let locks = self.locks();
        let waited = self.writer_left.wait_timeout_while(locks, HOLD, |locks| locks.is_slot_taken(SLOT_WRITE));
        let (locks, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(locks);
        if !timeout.timed_out() {
            body();
        }
        self.held.store(false, Ordering::Release);
        // The lock is taken so that no writer tests the flag before and waits after this.
        drop(self.locks());
        self.writer_left.notify_all();
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, usize>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn capture(&self) -> MutexGuard<'_, Capture> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> MutexGuard<'_, LockTable> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unexpected(unexpected: Unexpected) -> Failure {
    Failure::new(code::IOERR_WRITE, format!("unsupported: {unexpected}"))
}

fn refusal(refused: &Refused) -> Failure {
    let result = match refused {
        Refused::BacklogFull { .. } => code::FULL,
        Refused::Stopped(_) => code::IOERR,
    };
    Failure::new(result, refused.to_string())
}

fn append_failure(error: &AppendFailed) -> Failure {
    let result = match error {
        AppendFailed::Full => code::FULL,
        AppendFailed::Io(error) if error.kind() == io::ErrorKind::StorageFull => code::FULL,
        AppendFailed::Stopped(_) => code::IOERR,
        _ => code::IOERR_WRITE,
    };
    Failure::new(result, error.to_string())
}
