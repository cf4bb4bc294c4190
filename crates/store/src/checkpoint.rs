//! A checkpoint: payload moves from the log into data files, and the index learns of it.

use crate::compaction::Relaid;
use crate::extent::{FileExtent, LogExtent};
use crate::files::{FileError, Files};
use crate::index::{self, AppendFault, Head, Position, Record, ScanError};
use crate::log::{LogError, LogSource};
use crate::moving::Moved;
use crate::options::Options;
use crate::runs::{Active, RunWriter, WriteFault};
use crate::sweep::Sweep;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why a checkpoint came to nothing.
#[derive(Debug, Error)]
pub enum CheckpointFault {
    /// The disk is full. What was written is taken away again; the next checkpoint may succeed.
    #[error("{}: the disk is full", path.display())]
    Full {
        /// The file that did not grow.
        path: PathBuf,
    },
    /// The disk failed. A file whose sync failed is not written again.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file of the store does not hold what it should.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it, and what.
        what: String,
    },
    /// The log did not give an object's payload.
    #[error("object {object}: {source}")]
    Log {
        /// The object's key.
        object: u64,
        /// The log's reason.
        source: LogError,
    },
}

/// A checkpoint that came to nothing; [`crate::Store::fail_checkpoint`] takes it back.
#[derive(Debug, Error)]
#[error("the checkpoint failed: {fault}")]
pub struct CheckpointError {
    /// Why.
    pub fault: CheckpointFault,
    pub(crate) after: Box<After>,
}

impl CheckpointError {
    /// Whether bytes that it needs are not what was written, so that no later attempt finds them either.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.is_log_damage() || matches!(self.fault, CheckpointFault::Damaged { .. })
    }

    /// Whether these bytes lie in the log: the object's payload is nowhere else.
    #[must_use]
    pub fn is_log_damage(&self) -> bool {
        matches!(self.fault, CheckpointFault::Log { source: LogError::Failed(_), .. })
    }

    /// Whether the disk was full, so that a later attempt needs nothing but space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.fault, CheckpointFault::Full { .. })
    }
}

/// How the store's files stand after a checkpoint, done or failed.
#[derive(Debug)]
pub(crate) struct After {
    pub index: Position,
    pub active: Option<Active>,
    pub next_file: u32,
    /// Data files that an index of an attempt may name, so that they stay until a later one is durable.
    pub orphans: Vec<u32>,
    /// Data files that were written, and their bytes now.
    pub grown: Vec<(u32, u64)>,
}

/// Where an object's payload lies now.
#[derive(Debug)]
pub(crate) struct Placed {
    pub key: u64,
    /// Not empty; what lay from the first one's start on lies here now.
    pub added: Vec<FileExtent>,
    /// What lay there before, if the checkpoint had that from the index and not from memory.
    pub replaced: Option<Vec<FileExtent>>,
}

/// A checkpoint that is durable; [`crate::Store::finish_checkpoint`] takes it in.
#[derive(Debug)]
pub struct CheckpointDone {
    pub(crate) applied: u64,
    pub(crate) placed: Vec<Placed>,
    pub(crate) after: After,
    pub(crate) copied_bytes: u64,
    /// Data files that keep an extent which could not be copied out of them.
    pub(crate) stuck: Vec<u32>,
}

impl CheckpointDone {
    /// The position up to which the log is no longer needed, once the store has taken the checkpoint in.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Bytes of payload that were copied out of mostly dead files.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }
}

/// What a checkpoint does about one object.
#[derive(Debug)]
pub(crate) enum Work {
    Remove {
        key: u64,
    },
    /// What lies below `front` was given up. Of its extents those before the ones that are `relaid` stay, and `absorbed` go into
    /// the run of what lies in the log.
    Store {
        key: u64,
        state: Option<Bytes>,
        front: u64,
        relaid: Vec<Relaid>,
        absorbed: Vec<FileExtent>,
    },
}

/// The log's part of objects.
pub(crate) type LogExtents = BTreeMap<u64, Vec<LogExtent>>;

/// A checkpoint begun: all of its I/O is still to be done, on any thread.
pub struct Checkpoint {
    pub(crate) files: Arc<Files>,
    pub(crate) options: Options,
    pub(crate) index: Position,
    pub(crate) active: Option<Active>,
    pub(crate) next_file: u32,
    pub(crate) applied: u64,
    pub(crate) meta: Bytes,
    pub(crate) work: Vec<Work>,
    /// What moves of objects that are not in memory.
    pub(crate) sweep: Option<Box<Sweep>>,
    pub(crate) moving: Arc<LogExtents>,
}

impl Checkpoint {
    /// Does it: payload into data files, these synced, their names synced, the index written and synced.
    /// # Errors
    /// What failed. The store is as before on disk, and whatever was written is taken away or never named.
    pub fn run(self, log: &dyn LogSource) -> Result<CheckpointDone, CheckpointError> {
        let mut writer = RunWriter::new(&self.files, self.options.file_bytes_max, self.active, self.next_file);
        let Moved { records, placed, copied_bytes, stuck, swept } = match self.move_payload(log, &mut writer) {
            Ok(moved) => moved,
            Err((fault, sound)) => {
                let next_file = writer.next_file();
                let active = writer.undo(sound);
                let after = After { index: self.index, active, next_file, orphans: Vec::new(), grown: Vec::new() };
                return Err(CheckpointError { fault, after: Box::new(after) });
            }
        };
        let head = Head { applied: self.applied, meta: self.meta.clone(), file_next: writer.next_file() };
        match self.write_index(records, &head, swept) {
            Ok(index) => {
                let (active, next_file, grown) = (writer.active(), writer.next_file(), writer.grown());
                let after = After { index, active, next_file, orphans: Vec::new(), grown };
                Ok(CheckpointDone { applied: self.applied, placed, after, copied_bytes, stuck })
            }
            Err(IndexFault { fault, index: Some(index) }) => {
                // An index on disk may name what was written: it stays, and nothing is written into those files again.
                let (orphans, next_file, grown) = (writer.made().to_vec(), writer.next_file(), writer.grown());
                let after = After { index, active: None, next_file, orphans, grown };
                Err(CheckpointError { fault, after: Box::new(after) })
            }
            Err(IndexFault { fault, index: None }) => {
                let next_file = writer.next_file();
                let active = writer.undo(true);
                let after = After { index: self.index, active, next_file, orphans: Vec::new(), grown: Vec::new() };
                Err(CheckpointError { fault, after: Box::new(after) })
            }
        }
    }

    /// Appends a delta, or writes a new base when the deltas would outgrow the old one.
    ///
    /// What was `swept` always needs a new base: of objects that are not in memory, the base says the newest.
    fn write_index(&self, records: Vec<Record>, head: &Head, swept: bool) -> Result<Position, IndexFault> {
        let added: usize = records.iter().map(Record::encoded_bytes).sum();
        let bounds = (self.options.index_delta_bytes_min, self.options.index_delta_bytes_max);
        let allowed = (self.index.base.bytes / 2).clamp(bounds.0, bounds.1);
        if !swept && self.index.appendable && self.index.delta_bytes(added as u64) <= allowed {
            self.append(&records, head)
        } else {
            self.fold(records, head)
        }
    }

    fn append(&self, records: &[Record], head: &Head) -> Result<Position, IndexFault> {
        let files = &self.files;
        let result = index::append_delta(&*files.disk, &files.directory, &self.index, records, head);
        let path = || index::path(&files.directory, self.index.generation());
        match result {
            Ok(end) => Ok(Position { checkpoint: self.index.checkpoint + 1, end, ..self.index.clone() }),
            Err(AppendFault::Clean(error)) => Err(IndexFault { fault: io_fault(path(), error), index: None }),
            Err(AppendFault::Unknown(error)) => {
                let index = Position { appendable: false, ..self.index.clone() };
                Err(IndexFault { fault: io_fault(path(), error), index: Some(index) })
            }
        }
    }

    fn fold(&self, records: Vec<Record>, head: &Head) -> Result<Position, IndexFault> {
        let (disk, directory) = (&*self.files.disk, &self.files.directory);
        let newest = self.index.stale.iter().copied().max().unwrap_or(0).max(self.index.generation());
        let generation = newest + 1;
        let temporary = index::temporary_path(directory, generation);
        let target = (generation, self.options.index_block_bytes as usize);
        let written = index::fold(disk, directory, self.files.owner, &self.index, target, records, head);
        let base = written.map_err(|error| {
            // What stays of it, the next open removes.
            drop(disk.remove(&temporary));
            IndexFault { fault: scan_fault(directory.clone(), error), index: None }
        })?;
        let path = index::path(directory, generation);
        let mut stale = self.index.stale.clone();
        let named = disk.rename(&temporary, &path).and_then(|()| disk.sync_directory(directory));
        if let Err(error) = named {
            stale.push(generation);
            let index = Position { appendable: false, stale, ..self.index.clone() };
            return Err(IndexFault { fault: io_fault(path, error), index: Some(index) });
        }
        stale.push(self.index.generation());
        // One that is pinned is copied by somebody; a later base takes its place all the same.
        if !self.files.pinned() {
            stale.retain(|old| match disk.remove(&index::path(directory, *old)) {
                Ok(()) => false,
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            });
        }
        Ok(Position::of(Arc::new(base), stale))
    }
}

/// Why the index was not written; with a position if it may have been written all the same.
struct IndexFault {
    fault: CheckpointFault,
    index: Option<Position>,
}

pub(crate) fn io_fault(path: PathBuf, source: io::Error) -> CheckpointFault {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CheckpointFault::Full { path },
        _ => CheckpointFault::Io { path, source },
    }
}

/// A full disk leaves a file sound, whose end can be cut off; any other failure does not, nor does any failed sync.
pub(crate) fn write_fault(fault: WriteFault) -> (CheckpointFault, bool) {
    let synced = !fault.sync;
    let fault = io_fault(fault.path, fault.source);
    let sound = synced && matches!(fault, CheckpointFault::Full { .. });
    (fault, sound)
}

pub(crate) fn file_fault(error: FileError) -> CheckpointFault {
    match error {
        FileError::Io { path, source } => io_fault(path, source),
        FileError::Damaged { path, position, fault } => {
            CheckpointFault::Damaged { path, what: format!("byte {position}: {fault}") }
        }
        FileError::Deleted | FileError::Away | FileError::Unreachable { .. } => {
            CheckpointFault::Damaged { path: PathBuf::new(), what: error.to_string() }
        }
    }
}

pub(crate) fn scan_fault(path: PathBuf, error: ScanError) -> CheckpointFault {
    match error {
        ScanError::Io(source) => io_fault(path, source),
        other => CheckpointFault::Damaged { path, what: other.to_string() },
    }
}
