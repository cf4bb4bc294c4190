//! A simulated disk that lets a test do something while a call is under way.

use highwater_disk::{Disk, File, OpenMode, SimDisk};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

type Hook = Box<dyn FnOnce() + Send>;

/// The calls that can be hooked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A read of a file.
    Read,
    /// A sync of a file or directory.
    Sync,
}

/// What is called once a call has been carried out and before its caller learns of it.
#[derive(Clone, Default)]
pub struct Hooks(Arc<Mutex<Vec<(Call, PathBuf, Hook)>>>);

impl Hooks {
    /// Calls `hook` at the next such call on this file or directory, once.
    pub fn at(&self, call: Call, path: &Path, hook: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((call, path.to_path_buf(), Box::new(hook)));
    }

    fn fire(&self, call: Call, path: &Path) {
        let hook = {
            let mut hooks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            hooks.iter().position(|(on, at, _)| *on == call && at == path).map(|at| hooks.remove(at).2)
        };
        if let Some(hook) = hook {
            hook();
        }
    }
}

/// A simulated disk with hooks.
pub struct HookedDisk {
    pub disk: SimDisk,
    pub hooks: Hooks,
}

struct HookedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    hooks: Hooks,
}

impl Disk for HookedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(HookedFile { file, path: path.to_path_buf(), hooks: self.hooks.clone() }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let synced = self.disk.sync_directory(path);
        self.hooks.fire(Call::Sync, path);
        synced
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

impl File for HookedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, offset);
        self.hooks.fire(Call::Read, &self.path);
        read
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.file.sync_data();
        self.hooks.fire(Call::Sync, &self.path);
        synced
    }

    fn sync_all(&self) -> io::Result<()> {
        let synced = self.file.sync_all();
        self.hooks.fire(Call::Sync, &self.path);
        synced
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
