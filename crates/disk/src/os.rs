//! The operating system's files.

use crate::traits::{Disk, File, OpenMode};
use rustix::fs::OFlags;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// The operating system's file systems.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsDisk {
    private: bool,
    owner: Option<Owner>,
}

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    user: u32,
    group: u32,
}

impl OsDisk {
    /// The one there is. What it makes may be read by whom the process's umask lets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Self::new`], except that what it makes is its user's alone, whatever the umask says: directories 0700, files
    /// 0600.
    #[must_use]
    pub fn private() -> Self {
        Self { private: true, owner: None }
    }

    /// As [`Self::private`], for `directory` and what lies in it: where root works on another user's directory, what it
    /// makes there is that user's, who could open none of it otherwise.
    #[must_use]
    pub fn private_in(directory: &Path) -> Self {
        let found = fs::metadata(directory).ok().filter(|_| rustix::process::geteuid().is_root());
        let owner = found.map(|found| Owner { user: found.uid(), group: found.gid() });
        Self { private: true, owner: owner.filter(|owner| owner.user != 0) }
    }

    fn options(self) -> fs::OpenOptions {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        if self.private {
            options.mode(0o600);
        }
        options
    }

    /// Makes a file that is not there yet.
    fn make(self, path: &Path) -> io::Result<fs::File> {
        let file = self.options().write(true).create_new(true).open(path)?;
        self.give(&file)?;
        Ok(file)
    }

    /// Gives the owner what was just made.
    fn give(self, file: &fs::File) -> io::Result<()> {
        let Some(Owner { user, group }) = self.owner else { return Ok(()) };
        std::os::unix::fs::fchown(file, Some(user), Some(group))
    }
}

struct OsFile(fs::File);

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = match mode {
            OpenMode::Read => self.options().open(path)?,
            OpenMode::Write => self.options().write(true).open(path)?,
            OpenMode::CreateNew => self.make(path)?,
            // Only what is known to be new is given away: somebody else's directory may hold a link to anything.
            OpenMode::Create if self.owner.is_some() => match self.make(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.options().write(true).open(path)?,
                made => made?,
            },
            OpenMode::Create => self.options().write(true).create(true).truncate(false).open(path)?,
        };
        let file: Arc<dyn File> = Arc::new(OsFile(file));
        Ok(file)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        if self.private {
            builder.mode(0o700);
        }
        if self.owner.is_none() {
            return builder.recursive(true).create(path);
        }
        if path.is_dir() {
            return Ok(());
        }
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            self.create_directory(above)?;
        }
        builder.create(path)?;
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
        self.give(&fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?)
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

    /// The mode of a path, as `chmod` takes it.
    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    /// Keys are worth nothing where every user of the machine reads the files.
    #[test]
    fn what_is_made_in_private_is_its_users_alone_whatever_the_umask() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = OsDisk::private();
        let (above, below) = (folder.path().join("data"), folder.path().join("data/wal"));
        disk.create_directory(&below).expect("made");
        for name in ["new", "created"] {
            let how = if name == "new" { OpenMode::CreateNew } else { OpenMode::Create };
            disk.open(&below.join(name), how).expect("made");
            assert_eq!(mode(&below.join(name)), 0o600, "{name}");
        }
        assert_eq!((mode(&above), mode(&below)), (0o700, 0o700));
    }

    /// A key that root made in a service's directory used to keep the service from starting. Only root can try this.
    #[test]
    fn what_root_makes_in_somebodys_directory_is_theirs() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::chown(folder.path(), Some(12_345), Some(54_321)).expect("root may");
        let owner = |path: &Path| fs::metadata(path).map(|found| (found.uid(), found.gid())).expect("it is there");
        let disk = OsDisk::private_in(folder.path());
        let below = folder.path().join("store/part");
        disk.create_directory(&below).expect("made");
        disk.create_directory(&below).expect("it is there");
        let (theirs, roots) = (below.join("theirs"), folder.path().join("roots"));
        disk.open(&theirs, OpenMode::Create).expect("made");
        fs::write(&roots, b"before").expect("written");
        disk.open(&roots, OpenMode::Create).expect("it is there");
        for path in [&below, below.parent().expect("a folder"), &theirs] {
            assert_eq!(owner(path), (12_345, 54_321), "{}", path.display());
        }
        assert_eq!(owner(&roots).0, 0, "what was there before is not given away");
        assert_eq!(OsDisk::private_in(Path::new("/")).owner, None, "root's own stays root's");
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
