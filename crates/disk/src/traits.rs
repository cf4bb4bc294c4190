//! What a disk promises.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading. `NotFound` if there is none.
    Read,
    /// An existing file, for reading and writing. `NotFound` if there is none.
    Write,
    /// A file for reading and writing, made empty if there is none.
    Create,
    /// A new file for reading and writing. `AlreadyExists` if there is one.
    CreateNew,
}

/// A directory tree of files.
///
/// Paths are used as given; a relative one is relative to the process's directory. Every error is the operating
/// system's: `StorageFull` for a full disk, `NotFound` for a missing name.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file.
    /// # Errors
    /// As [`OpenMode`] says, or the system's.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Makes a directory and those above it; one that exists is fine. Durable after `sync_directory` of its parent.
    /// # Errors
    /// The system's.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes every name made, removed or renamed in this directory before the call durable.
    /// # Errors
    /// The system's; what is durable is then unknown.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Gives `from` the name `to`, in place of a file that had it. Atomic; durable after `sync_directory`.
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must be free. Durable after `sync_directory` of the new name's directory.
    /// # Errors
    /// `Unsupported` where files have one name, `CrossesDevices` for another file system, or the system's.
    fn link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file's name. Durable after `sync_directory`.
    /// # Errors
    /// The system's.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory. Durable after `sync_directory` of its parent.
    /// # Errors
    /// `DirectoryNotEmpty` if it holds a name, `NotFound` if there is none; `Unsupported` on a disk that never does it.
    fn remove_directory(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The names in a directory, sorted; `NotFound` if there is no such directory.
    /// # Errors
    /// The system's.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Whether a file or directory has this name.
    /// # Errors
    /// The system's.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Bytes that may still be written on the disk that holds `path`, which exists.
    /// # Errors
    /// The system's.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// Makes a directory and those above it, durably: a crash afterwards finds all of them.
///
/// Directories above are synced even if they existed, since whoever made them may have died before syncing; one that
/// may not be opened is somebody else's and was there before.
/// # Errors
/// The system's.
pub fn create_directory_durably(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.create_directory(path)?;
    for above in path.ancestors().skip(1) {
        match disk.sync_directory(above) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            other => other?,
        }
    }
    Ok(())
}

/// An open file. Reads and writes name their position; a handle has none of its own.
pub trait File: Send + Sync + 'static {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    /// # Errors
    /// The system's.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, growing the file; a hole before them reads as zeros.
    /// # Errors
    /// The system's; any part of the range may then have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the file's bytes, and the length needed to read them, durable (`fdatasync`).
    /// # Errors
    /// The system's; what is durable is then unknown, and a second call would lie about the first.
    fn sync_data(&self) -> io::Result<()>;

    /// As `sync_data`, and all other metadata (`fsync`).
    /// # Errors
    /// As `sync_data`.
    fn sync_all(&self) -> io::Result<()>;

    /// Cuts the file, or grows it with zeros, to `length` bytes.
    /// # Errors
    /// The system's.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// The file's length in bytes.
    /// # Errors
    /// The system's.
    fn length(&self) -> io::Result<u64>;

    /// Claims space for `offset..offset + length` without changing the file's length or contents.
    /// # Errors
    /// `StorageFull` if there is none. A file system that cannot reserve succeeds without a promise.
    fn reserve(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Takes the exclusive lock on this file, held until the last handle of this `open` is dropped; `false` if
    /// another handle, of this process or another, holds it.
    /// # Errors
    /// The system's.
    fn try_lock(&self) -> io::Result<bool>;

    /// As `try_lock`, of a range of bytes, and against the record locks (`fcntl`) with which other programs guard
    /// the same file, SQLite among them. A disk that only has `try_lock` takes that.
    /// # Errors
    /// The system's.
    fn try_lock_range(&self, _offset: u64, _length: u64) -> io::Result<bool> {
        self.try_lock()
    }

    /// When the file's bytes were last changed, in nanoseconds since the Unix epoch; `None` on a disk without clock.
    ///
    /// Good for telling that a file was changed, not for telling that it was not after a loss of power.
    /// # Errors
    /// The system's.
    fn modified_ns(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// A number that this file keeps for its whole life and that a copy of it does not have; `None` on a disk that knows
    /// no such number.
    /// # Errors
    /// The system's.
    fn identity(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Asks the system to drop what it keeps of a range in memory, so that the next read of it comes from the device.
    /// Bytes that are not written back yet stay.
    /// # Errors
    /// The system's; a disk without a cache has none.
    fn forget_cached(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    /// Reads exactly `buffer.len()` bytes at `offset`.
    /// # Errors
    /// `UnexpectedEof` if the file ends before, or the system's.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(buffer, offset)? {
            n if n == buffer.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
