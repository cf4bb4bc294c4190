//! The data files of one store: their names, and the handles through which they are read.

use crate::cold::{self, Cold, ColdError, ColdFile, ColdStore};
use crate::data::{self, BLOCK_BYTES, BLOCK_HEADER_BYTES, BLOCK_PAYLOAD_BYTES, DataFault};
use crate::extent::FileExtent;
use highwater_base::OwnerId;
use highwater_disk::{Disk, File, OpenMode};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

const PREFIX: &str = "data-";

/// Bytes that a check of everything reads from a data file with one call, and a read from one in an object store.
const READ_BYTES: usize = 1 << 20;

/// Bytes that a read from the disk for somebody does: few enough that they are still in a processor's cache when they are verified and
/// copied.
pub(crate) const READ_STEP_BYTES: usize = 256 << 10;

// One call reads whole blocks.
const _: () = assert!(READ_BYTES.is_multiple_of(BLOCK_BYTES) && READ_STEP_BYTES.is_multiple_of(BLOCK_BYTES));

/// The path of a data file.
pub(crate) fn path(directory: &Path, file: u32) -> PathBuf {
    directory.join(format!("{PREFIX}{file:08x}"))
}

/// The number of the data file with this name, if it is one.
pub(crate) fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(PREFIX)?;
    let canonical = digits.len() == 8 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    canonical.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// Why payload could not be read from a data file.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    /// The file was deleted since the read was planned.
    #[error("the data file was deleted")]
    Deleted,
    /// What is there is not what the index says.
    #[error("{}, byte {position}: {fault}", path.display())]
    Damaged { path: PathBuf, position: u64, fault: DataFault },
    /// The file lies in the object store, which does not answer.
    #[error("{object}: {why}")]
    Unreachable { object: String, why: String },
    /// The file lies in the object store, and was asked for on the disk alone.
    #[error("the data file was moved to the object store")]
    Away,
    /// The disk's error.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Handles kept open, and the files that may be opened.
#[derive(Default)]
struct Handles {
    /// Least recently used first.
    open: Vec<(u32, Arc<dyn File>)>,
    /// Files that the store names; a missing one of them is damage, a missing other one was deleted.
    named: BTreeSet<u32>,
    /// Pins that are held.
    pins: usize,
    /// Files that are deleted once no pin is held.
    deferred: Vec<u32>,
    /// Files that have an object, or the beginning of one. Those of them that are not named have one to be deleted.
    cold: BTreeMap<u32, Cold>,
}

/// The data files of one store, shared by the store, its readers and its checkpoints.
pub(crate) struct Files {
    pub disk: Arc<dyn Disk>,
    pub directory: PathBuf,
    pub owner: OwnerId,
    handles_max: usize,
    handles: Mutex<Handles>,
    pub tier: Option<ColdStore>,
    /// Whether a file came back since compactions were last planned.
    recalled: AtomicBool,
}

impl Files {
    pub fn new(disk: Arc<dyn Disk>, directory: PathBuf, owner: OwnerId, handles_max: usize) -> Self {
        let handles = Mutex::new(Handles::default());
        let recalled = AtomicBool::new(false);
        Self { disk, directory, owner, handles_max, handles, tier: None, recalled }
    }

    /// The same, of which some lie in an object store.
    pub fn with_cold(mut self, tier: Option<ColdStore>, cold: BTreeMap<u32, Cold>) -> Self {
        self.tier = tier;
        self.handles().cold = cold;
        self
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        // Nothing panics while it holds the lock, and the state is whole between any two statements.
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a data file.
    pub fn path(&self, file: u32) -> PathBuf {
        path(&self.directory, file)
    }

    /// The store names this file from now on.
    pub fn name(&self, file: u32) {
        self.handles().named.insert(file);
    }

    /// The store names this file no more; its handle is closed, so that its space is freed with its name.
    pub fn forget(&self, file: u32) {
        let mut handles = self.handles();
        handles.named.remove(&file);
        handles.open.retain(|(open, _)| *open != file);
    }

    /// Deletes files, or puts that off while a pin is held.
    pub fn delete(&self, mut numbers: Vec<u32>) {
        let mut handles = self.handles();
        if handles.pins > 0 {
            handles.deferred.append(&mut numbers);
        }
        drop(handles);
        for number in numbers {
            // A file that cannot be deleted now is an orphan like any other.
            drop(self.disk.remove(&self.path(number)));
        }
    }

    pub fn pin(&self) {
        self.handles().pins += 1;
    }

    pub fn unpin(&self) {
        let mut handles = self.handles();
        handles.pins -= 1;
        let deferred = if handles.pins == 0 { std::mem::take(&mut handles.deferred) } else { Vec::new() };
        drop(handles);
        self.delete(deferred);
    }

    /// Whether nothing may be deleted.
    pub fn pinned(&self) -> bool {
        self.handles().pins > 0
    }

    fn damaged(&self, file: u32, position: u64, fault: DataFault) -> FileError {
        let away = self.cold(file).filter(|cold| cold.moved);
        let path = away.map_or_else(|| self.path(file), |cold| self.object_place(file, &cold).into());
        FileError::Damaged { path, position, fault }
    }

    fn io(&self, file: u32, source: io::Error) -> FileError {
        match cold::cause(&source) {
            None => FileError::Io { path: self.path(file), source },
            // It came back, or died, while it was read.
            Some(ColdError::Missing) if !self.is_away(file) => FileError::Deleted,
            Some(ColdError::Missing) if !self.is_named(file) => FileError::Deleted,
            Some(ColdError::Missing) => self.damaged(file, 0, DataFault::Missing),
            Some(ColdError::Unreachable(why) | ColdError::Source(why)) => {
                let object = self.cold(file).map_or_else(String::new, |cold| self.object_place(file, &cold));
                FileError::Unreachable { object, why: why.clone() }
            }
        }
    }

    /// A handle of the file, whose header was verified when it was opened.
    fn open(&self, file: u32) -> Result<Arc<dyn File>, FileError> {
        if let Some(handle) = self.kept(file) {
            return Ok(handle);
        }
        let handle = match self.disk.open(&self.path(file), OpenMode::Read) {
            Ok(handle) => handle,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.open_elsewhere(file),
            Err(error) => return Err(self.io(file, error)),
        };
        self.checked(file, handle)
    }

    /// The same of a file on the disk, and of no other.
    fn open_local(&self, file: u32) -> Result<Arc<dyn File>, FileError> {
        if self.is_away(file) { Err(FileError::Away) } else { self.open(file) }
    }

    /// A handle of a file that was not found.
    fn open_elsewhere(&self, file: u32) -> Result<Arc<dyn File>, FileError> {
        if let Some(object) = self.object_of(file) {
            return Ok(object);
        }
        // It may have come back in between.
        match self.disk.open(&self.path(file), OpenMode::Read) {
            Ok(handle) => self.checked(file, handle),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io(file, error)),
            Err(_) if self.is_named(file) => Err(self.damaged(file, 0, DataFault::Missing)),
            Err(_) => Err(FileError::Deleted),
        }
    }

    fn checked(&self, file: u32, handle: Arc<dyn File>) -> Result<Arc<dyn File>, FileError> {
        let mut header = [0; BLOCK_HEADER_BYTES];
        let length = handle.read_at(&mut header, 0).map_err(|error| self.io(file, error))?;
        data::check_file_header(&header[..length], self.owner, file).map_err(|fault| self.damaged(file, 0, fault))?;
        self.keep(file, &handle);
        Ok(handle)
    }

    fn kept(&self, file: u32) -> Option<Arc<dyn File>> {
        let open = &mut self.handles().open;
        let index = open.iter().position(|(number, _)| *number == file)?;
        let entry = open.remove(index);
        let handle = entry.1.clone();
        open.push(entry);
        Some(handle)
    }

    fn keep(&self, file: u32, handle: &Arc<dyn File>) {
        let mut handles = self.handles();
        let known = handles.open.iter().any(|(number, _)| *number == file);
        if known || !handles.named.contains(&file) || self.handles_max == 0 {
            return;
        }
        if handles.open.len() >= self.handles_max {
            handles.open.remove(0);
        }
        handles.open.push((file, handle.clone()));
    }

    /// Appends to `out` the bytes of `object` at the object offsets `range`, which lie in `extent`. `scratch` is memory that
    /// is used again from one call to the next.
    ///
    /// Reads and verifies the blocks that hold them, and no other.
    pub fn read(
        &self,
        object: u64,
        extent: &FileExtent,
        range: Range<u64>,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        assert!(
            extent.start <= range.start && range.start < range.end && range.end <= extent.end(),
            "within the extent"
        );
        let handle = self.open(extent.file)?;
        self.read_from(&*handle, object, extent, range, out, scratch)
    }

    /// The same from the disk alone: a checkpoint never waits for an object store.
    pub fn read_local(
        &self,
        object: u64,
        extent: &FileExtent,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        let handle = self.open_local(extent.file)?;
        self.read_from(&*handle, object, extent, range, out, &mut Vec::new())
    }

    fn read_from(
        &self,
        handle: &dyn File,
        object: u64,
        extent: &FileExtent,
        range: Range<u64>,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        let payload = BLOCK_PAYLOAD_BYTES as u64;
        let run = u64::from(extent.length);
        let (from, to) = (range.start - extent.start, range.end - extent.start);
        let step = if self.is_away(extent.file) { READ_BYTES } else { READ_STEP_BYTES };
        let mut block = from / payload;
        while block * payload < to {
            let blocks = (to.div_ceil(payload) - block).min((step / BLOCK_BYTES) as u64);
            let bytes = data::run_bytes((run - block * payload).min(blocks * payload)) as usize;
            let position = u64::from(extent.position) + block * BLOCK_BYTES as u64;
            if scratch.len() < bytes {
                scratch.resize(bytes, 0);
            }
            let buffer = &mut scratch[..bytes];
            let length = handle.read_at(buffer, position).map_err(|error| self.io(extent.file, error))?;
            for (index, bytes) in buffer[..length].chunks(BLOCK_BYTES).enumerate() {
                let first = (block + index as u64) * payload;
                let expected = (run - first).min(payload) as usize;
                let place = position + (index * BLOCK_BYTES) as u64;
                let bytes = data::check_block(bytes, extent.file, object, extent.start + first, expected)
                    .map_err(|fault| self.damaged(extent.file, place, fault))?;
                let (low, high) = (from.max(first) - first, to.min(first + expected as u64) - first);
                out.extend_from_slice(&bytes[low as usize..high as usize]);
            }
            if length < buffer.len() {
                return Err(self.damaged(extent.file, position + length as u64, DataFault::Short));
            }
            block += blocks;
        }
        Ok(())
    }
}

impl Files {
    /// Verifies every block of an extent, as the disk has it and not as the page cache does, and goes on behind a bad one;
    /// nothing of a file in an object store, which would be fetched for it:
    /// each is reported with its position, the object's offsets that it holds, and what is wrong.
    ///
    /// Returns the bytes read; `None` if `pace` said to stop. A file that was deleted meanwhile has no fault.
    pub fn check(
        &self,
        object: u64,
        extent: &FileExtent,
        pace: &mut dyn FnMut(u64) -> bool,
        report: &mut dyn FnMut(u64, Range<u64>, String),
    ) -> Option<u64> {
        let whole = extent.start..extent.end();
        let handle = match self.open_local(extent.file) {
            Ok(handle) => handle,
            Err(FileError::Deleted | FileError::Away | FileError::Unreachable { .. }) => return Some(0),
            Err(FileError::Damaged { position, fault, .. }) => {
                report(position, whole, fault.to_string());
                return Some(0);
            }
            Err(FileError::Io { source, .. }) => {
                report(u64::from(extent.position), whole, source.to_string());
                return Some(0);
            }
        };
        let payload = BLOCK_PAYLOAD_BYTES as u64;
        let step = (READ_BYTES / BLOCK_BYTES) as u64 * payload;
        let (mut from, mut bytes) = (extent.start, 0);
        let mut buffer = Vec::new();
        while from < extent.end() {
            let to = extent.end().min(from + step);
            let position = u64::from(extent.position) + (from - extent.start) / payload * BLOCK_BYTES as u64;
            let length = data::run_bytes(to - from);
            if !pace(length) {
                return None;
            }
            // Advice only: a disk that cannot follow it is read as it is.
            drop(handle.forget_cached(position, length));
            buffer.resize(length as usize, 0);
            match handle.read_at(&mut buffer, position) {
                Ok(read) => self.check_blocks(object, extent, from..to, &buffer[..read], position, report),
                Err(_) => self.check_singly(&*handle, object, extent, from..to, position, report),
            }
            drop(handle.forget_cached(position, length));
            (from, bytes) = (to, bytes + length);
        }
        Some(bytes)
    }

    /// Checks the blocks of `range`, whose bytes were read at `position`.
    fn check_blocks(
        &self,
        object: u64,
        extent: &FileExtent,
        range: Range<u64>,
        bytes: &[u8],
        position: u64,
        report: &mut dyn FnMut(u64, Range<u64>, String),
    ) {
        let (mut from, mut at) = (range.start, 0);
        while from < range.end {
            let to = range.end.min(from + BLOCK_PAYLOAD_BYTES as u64);
            let end = bytes.len().min(at + BLOCK_BYTES);
            let block = bytes.get(at..end).unwrap_or_default();
            if let Err(fault) = data::check_block(block, extent.file, object, from, (to - from) as usize) {
                report(position + at as u64, from..to, fault.to_string());
            }
            (from, at) = (to, at + BLOCK_BYTES);
        }
    }

    /// The same where the disk refuses to read them all: a bad sector is one block's.
    fn check_singly(
        &self,
        handle: &dyn File,
        object: u64,
        extent: &FileExtent,
        range: Range<u64>,
        position: u64,
        report: &mut dyn FnMut(u64, Range<u64>, String),
    ) {
        let (mut from, mut at) = (range.start, position);
        while from < range.end {
            let to = range.end.min(from + BLOCK_PAYLOAD_BYTES as u64);
            let mut block = vec![0; BLOCK_HEADER_BYTES + (to - from) as usize];
            match handle.read_at(&mut block, at) {
                Ok(read) => self.check_blocks(object, extent, from..to, &block[..read], at, report),
                Err(error) => report(at, from..to, error.to_string()),
            }
            (from, at) = (to, at + BLOCK_BYTES as u64);
        }
    }
}

/// What lies in an object store.
impl Files {
    pub fn cold(&self, file: u32) -> Option<Cold> {
        self.handles().cold.get(&file).copied()
    }

    pub fn is_named(&self, file: u32) -> bool {
        self.handles().named.contains(&file)
    }

    /// Whether a file lies in the object store and not on the disk.
    pub fn is_away(&self, file: u32) -> bool {
        self.cold(file).is_some_and(|cold| cold.moved)
    }

    /// The files that do.
    pub fn away(&self) -> BTreeSet<u32> {
        self.handles().cold.iter().filter(|(_, cold)| cold.moved).map(|(file, _)| *file).collect()
    }

    /// Whether something of a file is or was on its way to the object store.
    pub fn has_marker(&self, file: u32) -> bool {
        self.handles().cold.contains_key(&file)
    }

    /// Notes where a file is; a handle of the one on disk is closed.
    pub fn set_cold(&self, file: u32, cold: Cold) {
        let mut handles = self.handles();
        handles.cold.insert(file, cold);
        handles.open.retain(|(open, _)| *open != file);
    }

    pub fn forget_cold(&self, file: u32) {
        self.handles().cold.remove(&file);
    }

    /// Whether a file may move now: what is known of an earlier attempt, if it may.
    pub fn may_leave(&self, file: u32) -> Option<Option<Cold>> {
        let handles = self.handles();
        let cold = handles.cold.get(&file).copied();
        let may = handles.pins == 0 && handles.named.contains(&file) && !cold.is_some_and(|cold| cold.moved);
        may.then_some(cold)
    }

    /// Whether nothing needs a file any more that has an object.
    pub fn may_be_erased(&self, file: u32) -> bool {
        let handles = self.handles();
        handles.pins == 0 && !handles.named.contains(&file)
    }

    /// The files of which that is so.
    pub fn erasable(&self) -> Vec<u32> {
        let handles = self.handles();
        if handles.pins > 0 {
            return Vec::new();
        }
        handles.cold.keys().filter(|file| !handles.named.contains(file)).copied().collect()
    }

    /// Where a file's object is, for people.
    pub fn object_place(&self, file: u32, cold: &Cold) -> String {
        let place = self.tier.as_ref().map_or_else(String::new, |tier| tier.0.place());
        format!("{}/{}", place.trim_end_matches('/'), cold.name(self.owner, file))
    }

    fn object_of(&self, file: u32) -> Option<Arc<dyn File>> {
        let cold = self.cold(file).filter(|cold| cold.moved)?;
        let tier = self.tier.as_ref()?.0.clone();
        Some(Arc::new(ColdFile { tier, name: cold.name(self.owner, file), bytes: cold.bytes }))
    }

    /// A handle of any file of the folder by its name, unverified.
    pub fn open_named(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let path = self.directory.join(name);
        match self.disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                number(name).and_then(|file| self.object_of(file)).ok_or(error)
            }
            opened => opened,
        }
    }

    /// A file came back: what is dead in it can be given back.
    pub fn note_recalled(&self) {
        self.recalled.store(true, Ordering::Relaxed);
    }

    pub fn recalled(&self) -> bool {
        self.recalled.load(Ordering::Relaxed)
    }

    /// The same, and not any more.
    pub fn take_recalled(&self) -> bool {
        self.recalled.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_data_files_are_taken_for_them() {
        assert_eq!(number("data-0000001f"), Some(31));
        for other in ["data-1f", "data-0000001F", "data-+000001f", "index-0000001f", "data-0000001f.tmp"] {
            assert_eq!(number(other), None, "{other}");
        }
        assert_eq!(path(Path::new("/s"), 31), Path::new("/s/data-0000001f"));
    }
}
