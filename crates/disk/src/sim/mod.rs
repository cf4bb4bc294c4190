//! A disk in memory that keeps only what it promised.
//!
//! # How it differs from a disk that is kind
//! After [`SimDisk::power_loss`] a file holds what was synced, and of the rest whatever the seed says: nothing,
//! everything, or each page new, old, as it was in between, or torn at 512 bytes; lengths go their own way. A name
//! exists as its directory was last synced, and every later change of names may or may not have happened, in any order.
//! A failed sync takes its pages for written, so that the next sync succeeds and they are lost all the same.

mod faults;
mod inode;
mod names;
mod operations;
#[cfg(test)]
mod tests;

pub use faults::{EIO, ENOSPC, Operation};

use faults::{Faults, dead};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use inode::{Fate, Inode};
use names::{Entry, Names, Shared, normal};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is free on a disk without a capacity, in bytes.
const ENDLESS: u64 = 1 << 50;

/// The simulated disk. A clone is the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    random: SplitMix,
    names: Names,
    faults: Faults,
    /// One more after every crash; a handle of an earlier life is dead.
    life: u64,
    next_number: u64,
    operations: u64,
    trace: u64,
    capacity: Option<u64>,
    used: u64,
}

/// A lock whose holder panicked protects plain data that is still the truth about the disk.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What becomes of a mutating operation.
enum Course {
    /// It happens.
    Done,
    /// It fails with this error, and happens in part or not at all.
    Failed(io::Error),
    /// The machine dies in the middle of it: it has happened, or not.
    Died { happened: bool },
}

impl State {
    fn alive(&self, life: u64) -> io::Result<()> {
        if self.faults.stopped || self.life != life { Err(dead()) } else { Ok(()) }
    }

    /// Counts a mutating operation, adds it to the trace, and says how it goes.
    fn begin(&mut self, operation: Operation, paths: &[&Path], numbers: [u64; 3]) -> io::Result<Course> {
        if self.faults.stopped {
            return Err(dead());
        }
        self.operations += 1;
        self.note(operation as u64);
        numbers.into_iter().for_each(|number| self.note(number));
        paths.iter().for_each(|path| self.note_bytes(path.as_os_str().as_encoded_bytes()));
        if self.faults.stop_at.is_some_and(|stop| self.operations >= stop) {
            self.faults.stopped = true;
            self.note(u64::MAX);
            return Ok(Course::Died { happened: self.random.below(2) == 0 });
        }
        Ok(match self.faults.meet(operation, paths) {
            Ok(()) => Course::Done,
            Err(error) => {
                self.note(u64::MAX - 1);
                Course::Failed(error)
            }
        })
    }

    fn note(&mut self, value: u64) {
        let mixed = (self.trace ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.trace = mixed ^ (mixed >> 29);
    }

    fn note_bytes(&mut self, bytes: &[u8]) {
        self.note(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.note(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.note(u64::from(*byte)));
    }

    fn claim(&mut self, bytes: u64) -> io::Result<()> {
        if self.capacity.is_some_and(|capacity| bytes > 0 && self.used + bytes > capacity) {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.used += bytes;
        Ok(())
    }

    /// Gives a file's space back once no name and no handle is left.
    fn free_if_gone(&mut self, inode: &Inode) {
        if inode.links == 0 && inode.handles == 0 {
            self.used = self.used.saturating_sub(inode.charged_bytes());
        }
    }

    /// Drops handles and locks, and counts names and space anew.
    fn restart(&mut self) {
        self.life += 1;
        self.faults.stopped = false;
        self.faults.stop_at = None;
        self.used = 0;
        for (file, links) in self.names.files().into_values() {
            let mut inode = lock(&file);
            inode.restart();
            inode.links = links;
            self.used += inode.charged_bytes();
        }
    }

    fn file(&self, path: &Path) -> io::Result<Shared> {
        match self.names.get(path) {
            Some(Entry::File(file)) => Ok(file),
            Some(Entry::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Takes one name from a file.
    fn unlink(&mut self, file: &Shared) {
        let mut inode = lock(file);
        inode.links = inode.links.saturating_sub(1);
        self.free_if_gone(&inode);
    }
}

impl SimDisk {
    /// An empty disk; all that chance decides follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            random: SplitMix::new(seed),
            names: Names::default(),
            faults: Faults::default(),
            life: 0,
            next_number: 1,
            operations: 0,
            trace: 0,
            capacity: None,
            used: 0,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Another disk that holds what this one holds, synced or not, without its handles, faults and stop; its chances
    /// follow from `seed`. Pages are shared until one of the two changes them.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let state = lock(&self.state);
        let mut forked = State {
            random: SplitMix::new(seed),
            names: state.names.fork(),
            faults: Faults::default(),
            life: state.life,
            next_number: state.next_number,
            operations: state.operations,
            trace: state.trace,
            capacity: state.capacity,
            used: 0,
        };
        forked.restart();
        Self { state: Arc::new(Mutex::new(forked)) }
    }

    /// The power fails and comes back: what was not synced is lost, kept, torn or reordered as the seed says. Every
    /// handle and lock is gone, and a stop is over; faults that wait remain.
    pub fn power_loss(&self) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let fate = match state.random.below(8) {
            0..=1 => Fate::Lost,
            2 => Fate::Kept,
            _ => Fate::Mixed,
        };
        state.names.lose_power(fate, &mut state.random);
        for (file, _) in state.names.files().into_values() {
            lock(&file).lose_power(fate, &mut state.random);
        }
        state.restart();
    }

    /// The process dies and the machine does not: all that was written is there, handles and locks are gone, and a
    /// stop is over.
    pub fn crash_process(&self) {
        lock(&self.state).restart();
    }

    /// Bounds the bytes that the disk holds; `None` takes the bound away. A page counts as soon as it is written or
    /// reserved, and no longer once its file has neither a name nor a handle.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        lock(&self.state).capacity = bytes;
    }

    /// Bytes that the disk holds, in whole pages.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        lock(&self.state).used
    }

    /// The next such operation on a path that contains `path` fails with EIO.
    pub fn fail_next(&self, operation: Operation, path: &str) {
        self.fail(operation, path, 0, 1, EIO);
    }

    /// Such operations on any path succeed `after` times more, and then one fails with EIO.
    pub fn fail_after(&self, after: u64, operation: Operation) {
        self.fail(operation, "", after, 1, EIO);
    }

    /// Such operations on a path that contains `path` succeed `after` times more, then fail `times` times with the
    /// operating system's `error` ([`EIO`], [`ENOSPC`]).
    pub fn fail(&self, operation: Operation, path: &str, after: u64, times: u64, error: i32) {
        lock(&self.state).faults.add(operation, path, after, times, error);
    }

    /// Takes away all faults that wait, and a stop.
    pub fn clear_faults(&self) {
        lock(&self.state).faults.clear();
    }

    /// The machine dies during the mutating operation number `operation`, counted from 1 as [`SimDisk::operations`]
    /// counts: that one happens wholly, in whole sectors or not at all, and fails, as does every later call of any kind until
    /// [`SimDisk::power_loss`] or [`SimDisk::crash_process`].
    pub fn stop_at(&self, operation: u64) {
        lock(&self.state).faults.stop_at = Some(operation);
    }

    /// Whether the machine died at the operation of [`SimDisk::stop_at`].
    #[must_use]
    pub fn stopped(&self) -> bool {
        lock(&self.state).faults.stopped
    }

    /// Turns one bit of the byte at `offset` over, durably.
    /// # Errors
    /// `NotFound` without such a file, `UnexpectedEof` if it ends before.
    pub fn flip_bit(&self, path: &Path, offset: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let file = state.file(&normal(path))?;
        let bit = state.random.below(8) as u32;
        let flipped = lock(&file).flip(offset, bit);
        if flipped { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Mutating operations asked for so far, opens that made a file among them.
    #[must_use]
    pub fn operations(&self) -> u64 {
        lock(&self.state).operations
    }

    /// A number that two runs share only if they asked for the same mutating operations with the same bytes in the
    /// same order and met the same faults.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        lock(&self.state).trace
    }

    /// All files with their contents as the running system sees them, by path.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = lock(&self.state);
        let read = |file: Shared| {
            let inode = lock(&file);
            let mut bytes = vec![0; inode.length() as usize];
            inode.read(&mut bytes, 0);
            bytes
        };
        state.names.all_files().into_iter().map(|(path, file)| (path, read(file))).collect()
    }
}
