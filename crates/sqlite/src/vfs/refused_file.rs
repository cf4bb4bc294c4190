//! A database that could not be opened, as SQLite meets it.
//!
//! An error of `xOpen` reaches the application as "unable to open database file" and nothing else. So the open
//! succeeds, and the extension's entry point for new connections, which SQLite runs before `sqlite3_open_v2` returns,
//! fails with the reason. An attached database fails at its first lock, with the result code alone.

use crate::ffi::{Api, code};
use crate::vfs::failure::Failure;
use crate::vfs::file::VfsFile;
use std::ffi::{c_char, c_int, c_void};

/// `xFileControl` of our own: stores a pointer to the file's [`Failure`].
pub const FCNTL_REASON: c_int = 0x4857_0001;

/// The file of a database that was refused.
pub struct RefusedFile {
    api: Api,
    failure: Failure,
}

impl RefusedFile {
    /// A file that fails with this.
    #[must_use]
    pub fn new(api: Api, failure: Failure) -> Self {
        api.log(failure.code, &format!("highwater: {}", failure.text));
        Self { api, failure }
    }

    fn fail<T>(&self) -> Result<T, Failure> {
        Err(self.failure.clone())
    }
}

impl VfsFile for RefusedFile {
    fn read(&self, buffer: &mut [u8], _offset: u64) -> Result<(), Failure> {
        // SQLite reads the header before it locks, and takes an empty one for a new file.
        buffer.fill(0);
        Err(Failure::code(code::IOERR_SHORT_READ))
    }

    fn write(&self, _bytes: &[u8], _offset: u64) -> Result<(), Failure> {
        self.fail()
    }

    fn truncate(&self, _length: u64) -> Result<(), Failure> {
        self.fail()
    }

    fn sync(&self) -> Result<(), Failure> {
        self.fail()
    }

    fn size(&self) -> Result<u64, Failure> {
        self.fail()
    }

    fn lock(&self, _level: c_int) -> Result<(), Failure> {
        self.fail()
    }

    unsafe fn control(&self, operation: c_int, argument: *mut c_void) -> Result<(), Failure> {
        match operation {
            FCNTL_REASON => {
                // SAFETY: only our own entry point sends this, with a place for one pointer.
                unsafe { *argument.cast::<*const Failure>() = &raw const self.failure };
                Ok(())
            }
            code::FCNTL_PRAGMA => {
                // SAFETY: SQLite passes four pointers, the first for the answer.
                unsafe { *argument.cast::<*mut c_char>() = self.api.allocate_text(&self.failure.text) };
                self.fail()
            }
            _ => Err(Failure::code(code::NOTFOUND)),
        }
    }
}
