//! From SQLite's calls on an open file to [`VfsFile`], and errors and panics back to result codes.

use crate::ffi::{FileBase, IoMethods, code};
use crate::vfs::failure::Failure;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An open file of ours, as SQLite uses it.
///
/// What a kind of file is never asked for is refused by the default methods.
pub trait VfsFile: Send + Sync {
    /// Reads exactly `buffer.len()` bytes at `offset`.
    /// # Errors
    /// `SQLITE_IOERR_SHORT_READ` at the end of the file, the rest of the buffer filled with zeros.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Failure>;

    /// Writes all of `bytes` at `offset`.
    /// # Errors
    /// SQLite rolls the transaction back.
    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Failure>;

    /// Cuts the file.
    /// # Errors
    /// The system's.
    fn truncate(&self, length: u64) -> Result<(), Failure>;

    /// Makes durable what this kind of file makes durable.
    /// # Errors
    /// The system's.
    fn sync(&self) -> Result<(), Failure>;

    /// The file's length in bytes.
    /// # Errors
    /// The system's.
    fn size(&self) -> Result<u64, Failure>;

    /// Raises the lock to `level`, one of `ffi::code::LOCK_*`.
    /// # Errors
    /// `SQLITE_BUSY`.
    fn lock(&self, _level: c_int) -> Result<(), Failure> {
        Ok(())
    }

    /// Lowers the lock to `level`.
    fn unlock(&self, _level: c_int) {}

    /// Whether any connection holds more than a shared lock.
    /// # Errors
    /// Why the database is stopped.
    fn is_reserved(&self) -> Result<bool, Failure> {
        Ok(false)
    }

    /// A file control.
    ///
    /// # Errors
    /// `SQLITE_NOTFOUND` for one that is not handled.
    ///
    /// # Safety
    /// `argument` is what SQLite's manual says for `operation`.
    unsafe fn control(&self, _operation: c_int, _argument: *mut c_void) -> Result<(), Failure> {
        Err(Failure::code(code::NOTFOUND))
    }

    /// The address of a region of the wal-index, null if there is none and `extend` is not set.
    /// # Errors
    /// `SQLITE_IOERR_SHMMAP`.
    fn map_index(&self, _region: usize, _bytes: usize, _extend: bool) -> Result<*mut c_void, Failure> {
        Err(Failure::code(code::IOERR_SHMMAP))
    }

    /// Takes or gives back lock slots of the wal-index; `flags` are of `ffi::code::SHM_*`.
    /// # Errors
    /// `SQLITE_BUSY`; `SQLITE_FULL` where a transaction would begin while the backlog is full.
    fn lock_index(&self, _first: usize, _count: usize, _flags: c_int) -> Result<(), Failure> {
        Err(Failure::code(code::IOERR_SHMMAP))
    }

    /// Gives the wal-index up; `delete` says that it holds nothing any more.
    fn unmap_index(&self, _delete: bool) {}

    /// An error is about to be returned; remembers its text.
    fn report(&self, _failure: &Failure) {}

    /// A call panicked; the database stops.
    fn panicked(&self) {}
}

/// What SQLite allocates for an open file of ours: `szOsFile` bytes that begin like `sqlite3_file`.
#[repr(C)]
pub struct FileSlot {
    base: FileBase,
    file: *mut Box<dyn VfsFile>,
}

/// Bytes that SQLite must allocate for a file of ours.
pub const SLOT_BYTES: usize = size_of::<FileSlot>();

/// Makes `slot` an open file.
///
/// # Safety
/// `slot` is memory of at least [`SLOT_BYTES`] that SQLite passed to `xOpen`.
pub unsafe fn install(slot: *mut FileBase, file: Box<dyn VfsFile>) {
    let file = Box::into_raw(Box::new(file));
    // SAFETY: the caller's promise.
    unsafe { slot.cast::<FileSlot>().write(FileSlot { base: FileBase { methods: &raw const METHODS }, file }) }
}

/// Whether a file object of SQLite's is one of ours.
///
/// # Safety
/// `file` is null or a file object.
#[must_use]
pub unsafe fn is_ours(file: *const FileBase) -> bool {
    // SAFETY: the caller's promise.
    !file.is_null() && std::ptr::eq(unsafe { (*file).methods }, &raw const METHODS)
}

/// The file behind a file object of ours.
///
/// # Safety
/// `file` is open and one of ours ([`is_ours`]), and stays so as long as the result is used.
#[must_use]
pub unsafe fn file_of<'a>(file: *const FileBase) -> &'a dyn VfsFile {
    // SAFETY: the caller's promise; `install` put a box there.
    unsafe { (*(*file.cast::<FileSlot>()).file).as_ref() }
}

static METHODS: IoMethods = IoMethods {
    version: 3,
    close: Some(x_close),
    read: Some(x_read),
    write: Some(x_write),
    truncate: Some(x_truncate),
    sync: Some(x_sync),
    file_size: Some(x_file_size),
    lock: Some(x_lock),
    unlock: Some(x_unlock),
    check_reserved_lock: Some(x_check_reserved_lock),
    file_control: Some(x_file_control),
    sector_size: Some(x_sector_size),
    device_characteristics: Some(x_device_characteristics),
    shm_map: Some(x_shm_map),
    shm_lock: Some(x_shm_lock),
    shm_barrier: Some(x_shm_barrier),
    shm_unmap: Some(x_shm_unmap),
    fetch: Some(x_fetch),
    unfetch: Some(x_unfetch),
};

/// Calls a file and turns its answer into a result code; a panic stops the database and is `SQLITE_IOERR`.
///
/// # Safety
/// `file` is open and one of ours.
unsafe fn call(file: *mut FileBase, body: impl FnOnce(&dyn VfsFile) -> Result<(), Failure>) -> c_int {
    // SAFETY: the caller's promise.
    let file = unsafe { file_of(file) };
    let answer = catch_unwind(AssertUnwindSafe(|| match body(file) {
        Ok(()) => code::OK,
        Err(failure) => {
            if !failure.text.is_empty() {
                file.report(&failure);
            }
            failure.code
        }
    }));
    answer.unwrap_or_else(|_| {
        // Telling it may panic for the same reason; the host goes on either way.
        drop(catch_unwind(AssertUnwindSafe(|| file.panicked())));
        code::IOERR
    })
}

fn unsigned(value: i64) -> Result<u64, Failure> {
    u64::try_from(value).map_err(|_| Failure::code(code::MISUSE))
}

fn length(value: c_int) -> usize {
    usize::try_from(value).unwrap_or(0)
}

// SAFETY of all below: SQLite calls them with a file that `install` opened and pointers valid for the sizes given.

unsafe extern "C" fn x_close(file: *mut FileBase) -> c_int {
    unsafe {
        let slot = file.cast::<FileSlot>();
        let boxed = Box::from_raw((*slot).file);
        (*slot).base.methods = std::ptr::null();
        (*slot).file = std::ptr::null_mut();
        // A close that panics leaves its database open in the registry, which the next open meets as it is.
        drop(catch_unwind(AssertUnwindSafe(|| drop(boxed))));
    }
    code::OK
}

unsafe extern "C" fn x_read(file: *mut FileBase, buffer: *mut c_void, amount: c_int, offset: i64) -> c_int {
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length(amount)) };
    unsafe { call(file, |file| file.read(buffer, unsigned(offset)?)) }
}

unsafe extern "C" fn x_write(file: *mut FileBase, bytes: *const c_void, amount: c_int, offset: i64) -> c_int {
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length(amount)) };
    unsafe { call(file, |file| file.write(bytes, unsigned(offset)?)) }
}

unsafe extern "C" fn x_truncate(file: *mut FileBase, length: i64) -> c_int {
    unsafe { call(file, |file| file.truncate(unsigned(length)?)) }
}

unsafe extern "C" fn x_sync(file: *mut FileBase, _flags: c_int) -> c_int {
    unsafe { call(file, |file| file.sync()) }
}

unsafe extern "C" fn x_file_size(file: *mut FileBase, size: *mut i64) -> c_int {
    unsafe {
        call(file, |file| {
            *size = i64::try_from(file.size()?).unwrap_or(i64::MAX);
            Ok(())
        })
    }
}

unsafe extern "C" fn x_lock(file: *mut FileBase, level: c_int) -> c_int {
    unsafe { call(file, |file| file.lock(level)) }
}

unsafe extern "C" fn x_unlock(file: *mut FileBase, level: c_int) -> c_int {
    unsafe {
        call(file, |file| {
            file.unlock(level);
            Ok(())
        })
    }
}

unsafe extern "C" fn x_check_reserved_lock(file: *mut FileBase, reserved: *mut c_int) -> c_int {
    unsafe {
        call(file, |file| {
            *reserved = c_int::from(file.is_reserved()?);
            Ok(())
        })
    }
}

unsafe extern "C" fn x_file_control(file: *mut FileBase, operation: c_int, argument: *mut c_void) -> c_int {
    unsafe { call(file, |file| file.control(operation, argument)) }
}

unsafe extern "C" fn x_sector_size(_file: *mut FileBase) -> c_int {
    // As the unix VFS answers, so that new files get the same page size under either.
    4_096
}

unsafe extern "C" fn x_device_characteristics(_file: *mut FileBase) -> c_int {
    code::IOCAP_POWERSAFE_OVERWRITE | code::IOCAP_UNDELETABLE_WHEN_OPEN
}

unsafe extern "C" fn x_shm_map(
    file: *mut FileBase,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    address: *mut *mut c_void,
) -> c_int {
    unsafe {
        *address = std::ptr::null_mut();
        call(file, |file| {
            *address = file.map_index(length(region), length(bytes), extend != 0)?;
            Ok(())
        })
    }
}

unsafe extern "C" fn x_shm_lock(file: *mut FileBase, first: c_int, count: c_int, flags: c_int) -> c_int {
    unsafe { call(file, |file| file.lock_index(length(first), length(count), flags)) }
}

unsafe extern "C" fn x_shm_barrier(_file: *mut FileBase) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn x_shm_unmap(file: *mut FileBase, delete: c_int) -> c_int {
    unsafe {
        call(file, |file| {
            file.unmap_index(delete != 0);
            Ok(())
        })
    }
}

unsafe extern "C" fn x_fetch(_file: *mut FileBase, _offset: i64, _bytes: c_int, page: *mut *mut c_void) -> c_int {
    // No page is ever mapped: a mapped page would be read past the -wal and past the check of a stopped database.
    unsafe { *page = std::ptr::null_mut() };
    code::OK
}

unsafe extern "C" fn x_unfetch(_file: *mut FileBase, _offset: i64, _page: *mut c_void) -> c_int {
    code::OK
}
