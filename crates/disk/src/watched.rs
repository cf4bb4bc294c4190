//! Another disk, and somebody who watches what is asked of it: for tests that count, that panic, or that do something
//! while a call is under way.

use crate::traits::{Disk, File, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Disk::open`].
    Open,
    /// [`File::read_at`].
    Read,
    /// [`File::write_at`].
    Write,
    /// [`File::sync_data`] and [`File::sync_all`].
    Sync,
    /// [`Disk::sync_directory`].
    SyncDirectory,
}

/// Who watches. Both calls are made by the thread that asks, and may block or panic as a disk does.
pub trait Watcher: Send + Sync + 'static {
    /// A call is about to be carried out; `bytes` are those to be read or written.
    fn before(&self, _call: Call, _path: &Path, _bytes: u64) {}

    /// A call was carried out, whether it succeeded or not, and its caller does not know yet; `bytes` are those that
    /// were read or written.
    fn after(&self, _call: Call, _path: &Path, _bytes: u64) {}
}

/// The watched disk.
pub struct WatchedDisk {
    disk: Arc<dyn Disk>,
    watcher: Arc<dyn Watcher>,
}

impl WatchedDisk {
    /// `disk`, watched by `watcher`.
    #[must_use]
    pub fn new(disk: impl Disk, watcher: Arc<dyn Watcher>) -> Self {
        Self { disk: Arc::new(disk), watcher }
    }
}

struct WatchedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    watcher: Arc<dyn Watcher>,
}

impl WatchedFile {
    fn sync(&self, sync: impl FnOnce(&dyn File) -> io::Result<()>) -> io::Result<()> {
        self.watcher.before(Call::Sync, &self.path, 0);
        let synced = sync(self.file.as_ref());
        self.watcher.after(Call::Sync, &self.path, 0);
        synced
    }
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.watcher.before(Call::Open, path, 0);
        let opened = self.disk.open(path, mode);
        self.watcher.after(Call::Open, path, 0);
        Ok(Arc::new(WatchedFile { file: opened?, path: path.to_owned(), watcher: Arc::clone(&self.watcher) }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.watcher.before(Call::SyncDirectory, path, 0);
        let synced = self.disk.sync_directory(path);
        self.watcher.after(Call::SyncDirectory, path, 0);
        synced
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

impl File for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.watcher.before(Call::Read, &self.path, buffer.len() as u64);
        let read = self.file.read_at(buffer, offset);
        self.watcher.after(Call::Read, &self.path, read.as_ref().map_or(0, |length| *length as u64));
        read
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.watcher.before(Call::Write, &self.path, bytes.len() as u64);
        let written = self.file.write_at(bytes, offset);
        self.watcher.after(Call::Write, &self.path, if written.is_ok() { bytes.len() as u64 } else { 0 });
        written
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(|file| file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(|file| file.sync_all())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.reserve(offset, length)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }

    fn try_lock_range(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.file.try_lock_range(offset, length)
    }

    fn modified_ns(&self) -> io::Result<Option<u64>> {
        self.file.modified_ns()
    }

    fn identity(&self) -> io::Result<Option<u64>> {
        self.file.identity()
    }

    fn forget_cached(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.forget_cached(offset, length)
    }
}
