//! The operating system's files.

use crate::traits::{Disk, File, OpenMode};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The operating system's file systems.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsDisk;

impl OsDisk {
    /// The one there is.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

struct OsFile(fs::File);

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::Create => options.write(true).create(true).truncate(false),
            OpenMode::CreateNew => options.write(true).create_new(true),
        };
        let file: Arc<dyn File> = Arc::new(OsFile(options.open(path)?));
        Ok(file)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        // A relative name alone has an empty parent, which means the process's directory.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        fs::File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name().into_string();
            names.push(name.map_err(|name| io::Error::other(format!("the name {name:?} is not UTF-8")))?);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let space = rustix::fs::statvfs(path)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

impl File for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// The inode's number and, where the file system tells it, when it was made: numbers are given again, and a copy that
    /// is laid over a file keeps its number. Not the device's: that one changes with the order in which a machine finds
    /// its disks.
    fn identity(&self) -> io::Result<Option<u64>> {
        use std::os::unix::fs::MetadataExt;
        let metadata = self.0.metadata()?;
        let made = metadata.created().ok().and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
        let made_ns = made.map_or(0, |made| u64::try_from(made.as_nanos()).unwrap_or(u64::MAX));
        // An odd factor spreads the number over all bits, so that the two do not cancel each other out.
        Ok(Some(metadata.ino().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ made_ns))
    }

    #[cfg(target_os = "linux")]
    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        if length == 0 {
            return Ok(());
        }
        loop {
            match fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, length) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                other => return other.map_err(io::Error::from),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn reserve(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        use rustix::fs::{FlockOperation, flock};
        use rustix::io::Errno;
        // The lock belongs to the open file description, so two handles of one process exclude each other too.
        match flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(target_os = "linux")]
    fn try_lock_range(&self, offset: u64, length: u64) -> io::Result<bool> {
        use std::os::fd::AsRawFd;
        // SAFETY: `flock` is plain data, for which all zeros is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = offset as libc::off_t;
        lock.l_len = length as libc::off_t;
        // SAFETY: the descriptor is open and `lock` outlives the call.
        if unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            error => Err(error),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn try_lock_range(&self, _offset: u64, _length: u64) -> io::Result<bool> {
        Ok(true)
    }

    #[cfg(target_os = "linux")]
    fn forget_cached(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = std::num::NonZeroU64::new(length);
        Ok(rustix::fs::fadvise(&self.0, offset, length, rustix::fs::Advice::DontNeed)?)
    }

    fn modified_ns(&self) -> io::Result<Option<u64>> {
        use std::os::unix::fs::MetadataExt;
        let metadata = self.0.metadata()?;
        let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
        Ok(Some(seconds.saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec() as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_back_and_a_hole_reads_as_zeros() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = OsDisk::new();
        let path = folder.path().join("a");
        assert_eq!(disk.open(&path, OpenMode::Read).err().map(|e| e.kind()), Some(io::ErrorKind::NotFound));
        let file = disk.open(&path, OpenMode::CreateNew).expect("new");
        assert_eq!(disk.open(&path, OpenMode::CreateNew).err().map(|e| e.kind()), Some(io::ErrorKind::AlreadyExists));
        file.reserve(0, 1 << 16).expect("reserve");
        assert_eq!(file.length().expect("length"), 0);
        file.write_at(b"water", 10).expect("write");
        file.sync_data().expect("sync");
        disk.sync_directory(folder.path()).expect("sync directory");
        let mut buffer = [1; 32];
        let read = disk.open(&path, OpenMode::Read).expect("open").read_at(&mut buffer, 5).expect("read");
        assert_eq!(&buffer[..read], b"\0\0\0\0\0water");
        assert_eq!(disk.list(folder.path()).expect("list"), ["a"]);
        assert!(disk.free_bytes(&path).expect("space") > 0);
    }

    #[test]
    fn a_lock_excludes_a_second_handle_until_the_first_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let disk = OsDisk::new();
        let first = disk.open(&path, OpenMode::Create).expect("open");
        let second = disk.open(&path, OpenMode::Create).expect("open");
        assert!(first.try_lock().expect("lock"));
        assert!(!second.try_lock().expect("lock"));
        drop(first);
        assert!(second.try_lock().expect("lock"));
    }

    #[test]
    fn a_range_lock_excludes_other_handles_and_record_locks() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("database");
        let disk = OsDisk::new();
        let first = disk.open(&path, OpenMode::Create).expect("open");
        let second = disk.open(&path, OpenMode::Create).expect("open");
        assert!(first.try_lock_range(1 << 30, 512).expect("lock"));
        assert!(!second.try_lock_range((1 << 30) + 511, 1).expect("lock"));
        assert!(second.try_lock_range(0, 1).expect("lock"), "another range");
        drop(first);
        let plain = fs::OpenOptions::new().write(true).open(&path).expect("open");
        // SAFETY: plain data, and an open descriptor.
        let locked = unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            (lock.l_type, lock.l_start, lock.l_len) = (libc::F_WRLCK as libc::c_short, (1 << 30) + 2, 510);
            libc::fcntl(plain.as_raw_fd(), libc::F_SETLK, &lock)
        };
        assert_eq!(locked, 0);
        assert!(!second.try_lock_range(1 << 30, 512).expect("lock"), "a record lock, as stock SQLite takes it");
    }
}
