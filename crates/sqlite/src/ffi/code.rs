//! Numbers of SQLite's interface: result codes, flags of `xOpen`, locks and file controls.

use std::ffi::c_int;

/// Success.
pub const OK: c_int = 0;
/// A generic error.
pub const ERROR: c_int = 1;
/// A lock is held by someone else.
pub const BUSY: c_int = 5;
/// Memory ran out.
pub const NOMEM: c_int = 7;
/// A write to what may only be read.
pub const READONLY: c_int = 8;
/// An I/O error; the reason is in the status.
pub const IOERR: c_int = 10;
/// A file control, name or operation is not known.
pub const NOTFOUND: c_int = 12;
/// The disk, or the backlog, is full.
pub const FULL: c_int = 13;
/// A file cannot be opened.
pub const CANTOPEN: c_int = 14;
/// The library is used in a way it does not support.
pub const MISUSE: c_int = 21;
/// `SQLITE_OK_LOAD_PERMANENTLY`: success, and the library stays mapped.
pub const OK_LOAD_PERMANENTLY: c_int = 256;

/// A read failed.
pub const IOERR_READ: c_int = IOERR | (1 << 8);
/// A read met the end of the file; the rest of the buffer is zeros.
pub const IOERR_SHORT_READ: c_int = IOERR | (2 << 8);
/// A write failed.
pub const IOERR_WRITE: c_int = IOERR | (3 << 8);
/// A sync failed.
pub const IOERR_FSYNC: c_int = IOERR | (4 << 8);
/// A file could not be cut.
pub const IOERR_TRUNCATE: c_int = IOERR | (6 << 8);
/// A file's length could not be read.
pub const IOERR_FSTAT: c_int = IOERR | (7 << 8);
/// A file could not be deleted.
pub const IOERR_DELETE: c_int = IOERR | (10 << 8);
/// The wal-index could not be mapped.
pub const IOERR_SHMMAP: c_int = IOERR | (21 << 8);

/// `xOpen`: open for reading only.
pub const OPEN_READONLY: c_int = 0x0000_0001;
/// `xOpen`: open for reading and writing.
pub const OPEN_READWRITE: c_int = 0x0000_0002;
/// `xOpen`: make the file if there is none.
pub const OPEN_CREATE: c_int = 0x0000_0004;
/// `sqlite3_open_v2`: the name may be a URI.
pub const OPEN_URI: c_int = 0x0000_0040;
/// `xOpen`: a main database file.
pub const OPEN_MAIN_DB: c_int = 0x0000_0100;
/// `xOpen`: a rollback journal of a main database.
pub const OPEN_MAIN_JOURNAL: c_int = 0x0000_0800;
/// `sqlite3_open_v2`: shares no page cache.
pub const OPEN_PRIVATE_CACHE: c_int = 0x0004_0000;
/// `xOpen`: a write-ahead log.
pub const OPEN_WAL: c_int = 0x0008_0000;

/// `xLock`: no lock.
pub const LOCK_NONE: c_int = 0;
/// `xLock`: shared.
pub const LOCK_SHARED: c_int = 1;
/// `xLock`: reserved.
pub const LOCK_RESERVED: c_int = 2;
/// `xLock`: pending; held on the way to exclusive.
pub const LOCK_PENDING: c_int = 3;
/// `xLock`: exclusive.
pub const LOCK_EXCLUSIVE: c_int = 4;

/// `xShmLock`: release.
pub const SHM_UNLOCK: c_int = 1;
/// `xShmLock`: acquire.
pub const SHM_LOCK: c_int = 2;
/// `xShmLock`: shared.
pub const SHM_SHARED: c_int = 4;
/// `xShmLock`: exclusive.
pub const SHM_EXCLUSIVE: c_int = 8;
/// The number of lock slots of a wal-index.
pub const SHM_SLOTS: usize = 8;

/// `xDeviceCharacteristics`: a file cannot be deleted while it is open.
pub const IOCAP_UNDELETABLE_WHEN_OPEN: c_int = 0x0000_0800;
/// `xDeviceCharacteristics`: a write changes no byte outside its range, whatever happens.
pub const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x0000_1000;

/// `xFileControl`: the lock level.
pub const FCNTL_LOCKSTATE: c_int = 1;
/// `xFileControl`: the last operating-system error number.
pub const FCNTL_LAST_ERRNO: c_int = 4;
/// `xFileControl`: how large the file will be.
pub const FCNTL_SIZE_HINT: c_int = 5;
/// `sqlite3_file_control`: the `sqlite3_file` itself; answered by SQLite's core.
pub const FCNTL_FILE_POINTER: c_int = 7;
/// `xFileControl`: whether the `-wal` outlives the last connection.
pub const FCNTL_PERSIST_WAL: c_int = 10;
/// `xFileControl`: the name of the VFS.
pub const FCNTL_VFSNAME: c_int = 12;
/// `xFileControl`: whether a write may touch bytes around it at power loss.
pub const FCNTL_POWERSAFE_OVERWRITE: c_int = 13;
/// `xFileControl`: a PRAGMA, before SQLite looks at it.
pub const FCNTL_PRAGMA: c_int = 14;
/// `xFileControl`: how much of the file may be mapped.
pub const FCNTL_MMAP_SIZE: c_int = 18;
/// `xFileControl`: whether the file was moved or deleted under SQLite.
pub const FCNTL_HAS_MOVED: c_int = 20;

/// `sqlite3_create_function_v2`: UTF-8, and not to be called from schemas.
pub const UTF8_DIRECTONLY: c_int = 1 | 0x0008_0000;
/// `sqlite3_value_type`: NULL.
pub const TYPE_NULL: c_int = 5;
/// `sqlite3_wal_checkpoint_v2`: as much as possible without waiting.
pub const CHECKPOINT_PASSIVE: c_int = 0;
/// `sqlite3_wal_checkpoint_v2`: wait for readers, so that the next writer starts the `-wal` again.
pub const CHECKPOINT_RESTART: c_int = 2;
