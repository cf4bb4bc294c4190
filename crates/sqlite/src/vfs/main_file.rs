//! The file of a bound database, as one connection has it open.

use crate::engine::Synchronous;
use crate::ffi::{Api, code};
use crate::host::{self, upkeep};
use crate::vfs::database::Database;
use crate::vfs::failure::Failure;
use crate::vfs::file::VfsFile;
use crate::vfs::locks::{ConnectionId, Level, SLOT_WRITE, Slots};
use crate::vfs::registry::{Registry, Use};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The file of a bound database in one connection.
pub struct MainFile {
    api: Api,
    vfs_name: &'static CStr,
    registry: Arc<Registry>,
    database: Arc<Database>,
    connection: ConnectionId,
    usage: Use,
    synchronous: AtomicU8,
    /// Whether the wal-index is mapped; only then may the connection write the file, in a checkpoint.
    mapped: AtomicBool,
}

impl MainFile {
    /// A connection to a database that `registry` opened for `usage`. `name` is the pointer that `xOpen` was given,
    /// by which the connection's `-wal` finds it; it is compared, never followed.
    #[must_use]
    pub fn new(
        api: Api,
        vfs_name: &'static CStr,
        registry: Arc<Registry>,
        database: Arc<Database>,
        usage: Use,
        name: *const c_char,
    ) -> Self {
        let connection = database.connect(name as usize);
        let (synchronous, mapped) = (AtomicU8::new(Synchronous::Normal as u8), AtomicBool::new(false));
        Self { api, vfs_name, registry, database, connection, usage, synchronous, mapped }
    }

    /// SQLite writes the file of a WAL database only to copy the `-wal` into it. Anything else would be a change that
    /// the log does not have.
    fn checkpoint_only(&self, what: &str) -> Result<(), Failure> {
        self.database.usable()?;
        if self.mapped.load(Ordering::Acquire) && self.database.checkpoints(self.connection) {
            return Ok(());
        }
        let text = format!("unsupported: {what} of a bound database outside of a checkpoint; it stays in WAL mode");
        Err(Failure::new(code::IOERR_WRITE, text))
    }

    fn synchronous(&self) -> Synchronous {
        let is = |synchronous: &Synchronous| *synchronous as u8 == self.synchronous.load(Ordering::Relaxed);
        [Synchronous::Off, Synchronous::Full].into_iter().find(is).unwrap_or_default()
    }

    /// A writer left: has the upkeep look after a database that its checkpoints do not keep small.
    fn after_write(&self, slots: Slots) {
        // Without timers of our own, as in simulations, there is no thread of our own either.
        let looked_after = self.usage == Use::Application && self.database.engine.options().timer;
        if slots.has(SLOT_WRITE) && looked_after && upkeep::lags(&self.database) {
            upkeep::look_after(self.api, self.vfs_name, &self.registry, self.database.path());
        }
    }

    fn pragma(&self, name: &str, value: Option<&str>) -> Result<Option<String>, Failure> {
        let is = |text: &str| name.eq_ignore_ascii_case(text);
        let set = |text: &str| value.is_some_and(|value| value.eq_ignore_ascii_case(text));
        if is("highwater_error") {
            return Ok(Some(self.database.refusal()));
        }
        if is("highwater_status") {
            self.database.ours()?;
            return Ok(Some(host::status(self.api, &self.database.engine)));
        }
        if is("journal_mode") && value.is_some() && !set("wal") {
            let text = "journal_mode: a bound database stays in WAL mode, because other modes write past the log";
            return Err(Failure::new(code::ERROR, text));
        }
        if is("locking_mode") && set("exclusive") {
            let text = "locking_mode: EXCLUSIVE is not supported for a bound database; other processes are kept out \
                        of it anyway";
            return Err(Failure::new(code::ERROR, text));
        }
        if is("synchronous")
            && let Some(synchronous) = value.and_then(synchronous)
        {
            self.synchronous.store(synchronous as u8, Ordering::Relaxed);
        }
        Err(Failure::code(code::NOTFOUND))
    }

    /// # Safety
    /// `arguments` are the four pointers of `SQLITE_FCNTL_PRAGMA`.
    unsafe fn pragma_control(&self, arguments: *mut *mut c_char) -> Result<(), Failure> {
        // SAFETY: the caller's promise: name and value are null or end in NUL, and the first pointer takes the answer.
        let text = |at: usize| unsafe {
            let text = *arguments.add(at);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        let name = text(1).unwrap_or_default();
        let answer = match self.pragma(&name, text(2).as_deref()) {
            Ok(None) => return Ok(()),
            Ok(Some(answer)) => Ok(answer),
            Err(failure) if failure.code == code::NOTFOUND => return Err(failure),
            Err(failure) => Err(failure),
        };
        let shown = answer.as_ref().map_or_else(|failure| failure.text.as_str(), String::as_str);
        // SAFETY: as above; SQLite frees the text.
        unsafe { *arguments = self.api.allocate_text(shown) };
        answer.map(|_| ())
    }
}

/// The level that a value of `PRAGMA synchronous` means; `None` for what SQLite ignores.
fn synchronous(value: &str) -> Option<Synchronous> {
    match value.to_ascii_lowercase().as_str() {
        "off" | "0" | "false" | "no" => Some(Synchronous::Off),
        "normal" | "1" | "true" | "yes" | "on" => Some(Synchronous::Normal),
        "full" | "2" | "extra" | "3" => Some(Synchronous::Full),
        _ => None,
    }
}

fn level(level: c_int) -> Level {
    match level {
        code::LOCK_NONE => Level::None,
        code::LOCK_SHARED => Level::Shared,
        code::LOCK_RESERVED => Level::Reserved,
        code::LOCK_PENDING => Level::Pending,
        _ => Level::Exclusive,
    }
}

impl VfsFile for MainFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Failure> {
        self.database.usable()?;
        read_zero_filled(&**self.database.file(), buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        self.checkpoint_only("a write")?;
        self.database.before_backfill()?;
        let written = self.database.file().write_at(bytes, offset);
        written.map_err(|error| Failure::io(code::IOERR_WRITE, "a write to the database file", &error))
    }

    fn truncate(&self, length: u64) -> Result<(), Failure> {
        self.checkpoint_only("a cut")?;
        let file = self.database.file();
        let cut = file.length().and_then(|before| if before == length { Ok(()) } else { file.set_length(length) });
        cut.map_err(|error| Failure::io(code::IOERR_TRUNCATE, "the database file cannot be cut", &error))
    }

    fn sync(&self) -> Result<(), Failure> {
        self.checkpoint_only("a sync")?;
        self.database.sync_checkpoint()
    }

    fn size(&self) -> Result<u64, Failure> {
        self.database.usable()?;
        let length = self.database.file().length();
        length.map_err(|error| Failure::io(code::IOERR_FSTAT, "the length of the database file", &error))
    }

    fn lock(&self, wanted: c_int) -> Result<(), Failure> {
        self.database.lock(self.connection, level(wanted))
    }

    fn unlock(&self, wanted: c_int) {
        self.database.unlock(self.connection, level(wanted));
    }

    fn is_reserved(&self) -> Result<bool, Failure> {
        self.database.usable()?;
        Ok(self.database.is_reserved())
    }

    unsafe fn control(&self, operation: c_int, argument: *mut c_void) -> Result<(), Failure> {
        // SAFETY: the caller's promise: each operation's argument is of the type its arm uses.
        unsafe {
            match operation {
                code::FCNTL_PRAGMA => return self.pragma_control(argument.cast()),
                code::FCNTL_MMAP_SIZE => *argument.cast::<i64>() = 0,
                code::FCNTL_LOCKSTATE => *argument.cast::<c_int>() = self.database.level(self.connection) as c_int,
                code::FCNTL_POWERSAFE_OVERWRITE => *argument.cast::<c_int>() = 1,
                code::FCNTL_PERSIST_WAL | code::FCNTL_HAS_MOVED | code::FCNTL_LAST_ERRNO => {
                    *argument.cast::<c_int>() = 0;
                }
                code::FCNTL_VFSNAME => {
                    *argument.cast::<*mut c_char>() = self.api.allocate_text(&self.vfs_name.to_string_lossy())
                }
                code::FCNTL_SIZE_HINT => {}
                _ => return Err(Failure::code(code::NOTFOUND)),
            }
        }
        Ok(())
    }

    fn map_index(&self, region: usize, bytes: usize, extend: bool) -> Result<*mut c_void, Failure> {
        self.database.usable()?;
        let address = self.database.index.map(region, bytes, extend).map_err(Failure::code)?;
        self.mapped.store(true, Ordering::Release);
        Ok(address.cast())
    }

    fn lock_index(&self, first: usize, count: usize, flags: c_int) -> Result<(), Failure> {
        let slots = Slots::range(first, count).ok_or_else(|| Failure::code(code::MISUSE))?;
        match flags {
            f if f & code::SHM_UNLOCK != 0 => {
                self.database.release(self.connection, slots);
                self.after_write(slots);
                Ok(())
            }
            f if f & code::SHM_EXCLUSIVE != 0 => self.database.seize(self.connection, slots, self.synchronous()),
            _ => self.database.share(self.connection, slots),
        }
    }

    fn unmap_index(&self, delete: bool) {
        self.mapped.store(false, Ordering::Release);
        // Kept otherwise, unlike a file's: what it says of the -wal stays true, and building it anew from the -wal is
        // never needed.
        if delete && self.database.is_ours() {
            self.database.index.clear();
        }
    }

    fn report(&self, failure: &Failure) {
        self.database.refused(&failure.text);
        self.api.log(failure.code, &format!("highwater: {}: {}", self.database.path().display(), failure.text));
    }

    fn panicked(&self) {
        self.database.stop("a fault in the extension; its text is on the process's standard error");
    }
}

impl Drop for MainFile {
    fn drop(&mut self) {
        // After a fork the parent's locks, threads and connections are not this process's to end.
        if self.database.is_ours() {
            self.database.disconnect(self.connection);
            self.registry.close(&self.database, self.usage);
        }
    }
}

/// Reads a file as SQLite wants it: what is past the end is zeros and a short read.
/// # Errors
/// `SQLITE_IOERR_SHORT_READ`, or the system's.
pub fn read_zero_filled(file: &dyn highwater_disk::File, buffer: &mut [u8], offset: u64) -> Result<(), Failure> {
    let read = file.read_at(buffer, offset).map_err(|error| Failure::io(code::IOERR_READ, "a read", &error))?;
    match buffer.get_mut(read..) {
        Some(rest) if !rest.is_empty() => {
            rest.fill(0);
            Err(Failure::code(code::IOERR_SHORT_READ))
        }
        _ => Ok(()),
    }
}
