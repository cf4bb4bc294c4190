//! A disk that counts its syncs, and panics on request.

use highwater_disk::{Disk, File, OpenMode, SimDisk};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A simulated disk, and how many syncs of files it was asked for.
#[derive(Clone)]
pub struct CountingDisk {
    pub disk: SimDisk,
    pub syncs: Arc<AtomicU64>,
    /// Whether the next write panics, as a fault in the extension would.
    pub panics: Arc<AtomicBool>,
}

struct CountingFile {
    file: Arc<dyn File>,
    syncs: Arc<AtomicU64>,
    panics: Arc<AtomicBool>,
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(CountingFile { file, syncs: self.syncs.clone(), panics: self.panics.clone() }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
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

impl File for CountingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "a planted fault");
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_all()
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
}
