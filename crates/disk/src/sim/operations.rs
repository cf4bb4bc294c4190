//! The simulated disk's calls.

use super::faults::{Operation, dead};
use super::inode::{Inode, SECTOR};
use super::names::{Entry, Shared, normal};
use super::{Course, ENDLESS, SimDisk, State, lock};
use crate::traits::{Disk, File, OpenMode};
use highwater_base::Random;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

struct SimFile {
    state: Arc<Mutex<State>>,
    inode: Shared,
    number: u64,
    life: u64,
    writable: bool,
}

impl SimDisk {
    fn handle(&self, state: &mut State, file: Shared, mode: OpenMode) -> Arc<dyn File> {
        state.next_number += 1;
        lock(&file).handles += 1;
        Arc::new(SimFile {
            state: self.state.clone(),
            inode: file,
            number: state.next_number,
            life: state.life,
            writable: mode != OpenMode::Read,
        })
    }

    fn create(&self, state: &mut State, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if !state.names.has_parent(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let course = state.begin(Operation::Open, &[path], [0; 3])?;
        if let Course::Failed(error) = course {
            return Err(error);
        }
        if !matches!(course, Course::Died { happened: false }) {
            state.next_number += 1;
            let mut inode = Inode::new(state.next_number, path);
            inode.links = 1;
            state.names.add(path, Entry::File(Arc::new(Mutex::new(inode))));
        }
        if let Course::Died { .. } = course {
            return Err(dead());
        }
        let file = state.file(path)?;
        Ok(self.handle(state, file, mode))
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let path = normal(path);
        let mut state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        match (state.names.get(&path), mode) {
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Entry::Directory), _) => Err(io::ErrorKind::IsADirectory.into()),
            (Some(Entry::File(file)), _) => {
                state.faults.meet(Operation::Open, &[&path])?;
                Ok(self.handle(&mut state, file, mode))
            }
            (None, OpenMode::Create | OpenMode::CreateNew) => self.create(&mut state, &path, mode),
            (None, OpenMode::Read | OpenMode::Write) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        let mut missing: Vec<_> = path.ancestors().filter(|path| state.names.get(path).is_none()).collect();
        missing.reverse();
        if missing.is_empty() && !state.names.is_directory(&path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        for directory in missing {
            if !state.names.has_parent(directory) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            let course = state.begin(Operation::CreateDirectory, &[directory], [0; 3])?;
            match course {
                Course::Failed(error) => return Err(error),
                Course::Died { happened } => {
                    if happened {
                        state.names.add(directory, Entry::Directory);
                    }
                    return Err(dead());
                }
                Course::Done => state.names.add(directory, Entry::Directory),
            }
        }
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        if !state.names.is_directory(&path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match state.begin(Operation::SyncDirectory, &[&path], [0; 3])? {
            Course::Failed(error) => Err(error),
            Course::Died { happened } => {
                if happened {
                    state.names.sync(&path);
                }
                Err(dead())
            }
            Course::Done => {
                state.names.sync(&path);
                Ok(())
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from), normal(to));
        let mut state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        let file = state.file(&from)?;
        if !state.names.has_parent(&to) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.names.is_directory(&to) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let course = state.begin(Operation::Rename, &[&from, &to], [0; 3])?;
        let (happens, result) = outcome(course);
        if happens && from != to {
            if let Ok(replaced) = state.file(&to) {
                state.unlink(&replaced);
            }
            lock(&file).path.clone_from(&to);
            state.names.rename(&from, &to);
        }
        result
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        let file = state.file(&path)?;
        let course = state.begin(Operation::Remove, &[&path], [0; 3])?;
        let (happens, result) = outcome(course);
        if happens {
            state.names.remove(&path);
            state.unlink(&file);
        }
        result
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        if !state.names.is_directory(&path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !state.names.list(&path).is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let course = state.begin(Operation::Remove, &[&path], [0; 3])?;
        let (happens, result) = outcome(course);
        if happens {
            state.names.remove(&path);
        }
        result
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let path = normal(path);
        let state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        if !state.names.is_directory(&path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(state.names.list(&path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        Ok(state.names.get(&normal(path)).is_some())
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let state = lock(&self.state);
        if state.faults.stopped {
            return Err(dead());
        }
        state.names.get(&normal(path)).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.capacity.map_or(ENDLESS, |capacity| capacity.saturating_sub(state.used)))
    }
}

/// Whether an operation without parts happens, and what its caller hears.
fn outcome(course: Course) -> (bool, io::Result<()>) {
    match course {
        Course::Done => (true, Ok(())),
        Course::Failed(error) => (false, Err(error)),
        Course::Died { happened } => (happened, Err(dead())),
    }
}

/// Bytes that a write leaves which the machine's death cut short: it ends with a sector, or wholly.
fn torn_length(offset: u64, bytes: usize, random: &mut impl Random) -> usize {
    let length = random.below(bytes as u64 + 1);
    if length == bytes as u64 {
        return bytes;
    }
    let end = offset + length;
    (end - end % SECTOR as u64).saturating_sub(offset) as usize
}

impl SimFile {
    fn writable(&self) -> io::Result<()> {
        // EBADF, as for a descriptor opened for reading.
        if self.writable { Ok(()) } else { Err(io::Error::from_raw_os_error(9)) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.alive(self.life)?;
        let mut inode = lock(&self.inode);
        match state.begin(Operation::Sync, &[&inode.path], [inode.number, 0, 0])? {
            Course::Done => {
                inode.sync();
                Ok(())
            }
            Course::Failed(error) => {
                inode.sync_failed();
                Err(error)
            }
            Course::Died { happened } => {
                if happened {
                    inode.sync();
                }
                Err(dead())
            }
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = lock(&self.state);
        state.alive(self.life)?;
        let inode = lock(&self.inode);
        state.faults.meet(Operation::Read, &[&inode.path])?;
        Ok(inode.read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.alive(self.life)?;
        let mut inode = lock(&self.inode);
        let course = state.begin(Operation::Write, &[&inode.path], [inode.number, offset, bytes.len() as u64])?;
        state.note_bytes(bytes);
        let (length, result) = match course {
            Course::Done => (bytes.len(), Ok(())),
            Course::Failed(error) => (state.random.below(bytes.len() as u64 + 1) as usize, Err(error)),
            Course::Died { happened: true } => (bytes.len(), Err(dead())),
            Course::Died { happened: false } => (torn_length(offset, bytes.len(), &mut state.random), Err(dead())),
        };
        if let Err(full) = state.claim(inode.growth_of_write(offset, length)) {
            let part = state.random.below(length as u64) as usize;
            if state.claim(inode.growth_of_write(offset, part)).is_ok() {
                inode.write(&bytes[..part], offset, &mut state.random);
            }
            return Err(full);
        }
        inode.write(&bytes[..length], offset, &mut state.random);
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.writable()?;
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.alive(self.life)?;
        let mut inode = lock(&self.inode);
        let course = state.begin(Operation::SetLength, &[&inode.path], [inode.number, length, 0])?;
        let (happens, result) = outcome(course);
        if happens {
            let before = inode.charged_bytes();
            inode.set_length(length, &mut state.random);
            state.used = state.used.saturating_sub(before - inode.charged_bytes());
        }
        result
    }

    fn length(&self) -> io::Result<u64> {
        lock(&self.state).alive(self.life)?;
        Ok(lock(&self.inode).length())
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        self.writable()?;
        let mut state = lock(&self.state);
        state.alive(self.life)?;
        let mut inode = lock(&self.inode);
        let course = state.begin(Operation::Reserve, &[&inode.path], [inode.number, offset, length])?;
        let (happens, result) = outcome(course);
        if happens {
            state.claim(inode.growth_of_reserve(offset + length))?;
            inode.reserve(offset + length);
        }
        result
    }

    fn try_lock(&self) -> io::Result<bool> {
        lock(&self.state).alive(self.life)?;
        let mut inode = lock(&self.inode);
        let holder = *inode.locked_by.get_or_insert(self.number);
        Ok(holder == self.number)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.life != self.life {
            return;
        }
        let mut inode = lock(&self.inode);
        inode.handles = inode.handles.saturating_sub(1);
        if inode.locked_by == Some(self.number) {
            inode.locked_by = None;
        }
        state.free_if_gone(&inode);
    }
}
