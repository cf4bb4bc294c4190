//! The `-wal` of a bound database, as one connection has it open: unsynced scratch in the database's folder.

use crate::ffi::{Api, code};
use crate::vfs::database::Database;
use crate::vfs::failure::Failure;
use crate::vfs::file::VfsFile;
use crate::vfs::locks::ConnectionId;
use crate::vfs::main_file::read_zero_filled;
use highwater_disk::File;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The `-wal` in one connection.
pub struct WalFile {
    api: Api,
    database: Arc<Database>,
    /// The connection whose database file it belongs to.
    connection: ConnectionId,
    file: Arc<dyn File>,
}

impl WalFile {
    /// Opens the `-wal` for a connection.
    /// # Errors
    /// The system's.
    pub fn open(api: Api, database: Arc<Database>, connection: ConnectionId) -> Result<Self, Failure> {
        let file = database.open_wal()?;
        Ok(Self { api, database, connection, file })
    }
}

impl VfsFile for WalFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Failure> {
        self.database.usable()?;
        read_zero_filled(&*self.file, buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        self.database.write_wal(&self.file, self.connection, bytes, offset)
    }

    fn truncate(&self, length: u64) -> Result<(), Failure> {
        self.database.truncate_wal(&self.file, length)
    }

    fn sync(&self) -> Result<(), Failure> {
        self.database.sync_wal(self.connection)
    }

    fn size(&self) -> Result<u64, Failure> {
        self.database.usable()?;
        self.file.length().map_err(|error| Failure::io(code::IOERR_FSTAT, "the length of the -wal", &error))
    }

    unsafe fn control(&self, operation: c_int, _argument: *mut c_void) -> Result<(), Failure> {
        match operation {
            code::FCNTL_SIZE_HINT => Ok(()),
            _ => Err(Failure::code(code::NOTFOUND)),
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
