//! A checkpoint: payload moves from the log into data files, and the index learns of it.

use crate::extent::{FileExtent, LogExtent};
use crate::files::{FileError, Files};
use crate::index::{self, AppendFault, Head, Position, Record, ScanError};
use crate::log::{LogError, LogSource};
use crate::options::Options;
use crate::runs::{Active, RunWriter, WriteFault};
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
}

/// Where an object's payload lies now.
#[derive(Debug)]
pub(crate) struct Placed {
    pub key: u64,
    pub kept: usize,
    pub added: Vec<FileExtent>,
}

/// A checkpoint that is durable; [`crate::Store::finish_checkpoint`] takes it in.
#[derive(Debug)]
pub struct CheckpointDone {
    pub(crate) applied: u64,
    pub(crate) placed: Vec<Placed>,
    pub(crate) after: After,
}

impl CheckpointDone {
    /// The position up to which the log is no longer needed, once the store has taken the checkpoint in.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }
}

/// What a checkpoint does about one object.
#[derive(Debug)]
pub(crate) enum Work {
    Remove { key: u64 },
    Store { key: u64, state: Option<Bytes>, kept: u32, absorbed: Vec<FileExtent> },
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
    pub(crate) moving: Arc<LogExtents>,
}

impl Checkpoint {
    /// Does it: payload into data files, these synced, their names synced, the index written and synced.
    /// # Errors
    /// What failed. The store is as before on disk, and whatever was written is taken away or never named.
    pub fn run(self, log: &dyn LogSource) -> Result<CheckpointDone, CheckpointError> {
        let mut writer = RunWriter::new(&self.files, self.options.file_bytes_max, self.active, self.next_file);
        let (records, placed) = match self.move_payload(log, &mut writer) {
            Ok(moved) => moved,
            Err((fault, sound)) => {
                let next_file = writer.next_file();
                let active = writer.undo(sound);
                let after = After { index: self.index, active, next_file, orphans: Vec::new() };
                return Err(CheckpointError { fault, after: Box::new(after) });
            }
        };
        let head = Head { applied: self.applied, meta: self.meta.clone(), file_next: writer.next_file() };
        match self.write_index(records, &head) {
            Ok(index) => {
                let (active, next_file) = (writer.active(), writer.next_file());
                let after = After { index, active, next_file, orphans: Vec::new() };
                Ok(CheckpointDone { applied: self.applied, placed, after })
            }
            Err(IndexFault { fault, index: Some(index) }) => {
                // An index on disk may name what was written: it stays, and nothing is written into those files again.
                let (orphans, next_file) = (writer.made().to_vec(), writer.next_file());
                Err(CheckpointError { fault, after: Box::new(After { index, active: None, next_file, orphans }) })
            }
            Err(IndexFault { fault, index: None }) => {
                let next_file = writer.next_file();
                let active = writer.undo(true);
                let after = After { index: self.index, active, next_file, orphans: Vec::new() };
                Err(CheckpointError { fault, after: Box::new(after) })
            }
        }
    }

    /// Copies what moves, and makes it durable. The error says whether the file that was active is sound.
    fn move_payload(
        &self,
        log: &dyn LogSource,
        writer: &mut RunWriter<'_>,
    ) -> Result<(Vec<Record>, Vec<Placed>), (CheckpointFault, bool)> {
        let (mut records, mut placed) = (Vec::with_capacity(self.work.len()), Vec::new());
        for work in &self.work {
            match work {
                Work::Remove { key } => records.push(Record::Removed { key: *key }),
                Work::Store { key, state, kept, absorbed } => {
                    let (kept, added) = self.move_object(*key, *kept, absorbed, log, writer)?;
                    if !added.is_empty() {
                        placed.push(Placed { key: *key, kept: kept as usize, added: added.clone() });
                    }
                    records.push(Record::Object { key: *key, state: state.clone(), kept, added });
                }
            }
        }
        writer.sync().map_err(write_fault)?;
        if !writer.made().is_empty() {
            let directory = &self.files.directory;
            self.files.disk.sync_directory(directory).map_err(|error| (io_fault(directory.clone(), error), true))?;
        }
        Ok((records, placed))
    }

    /// Writes one object's run: the extents that it takes in, then what lies in the log. Returns how many extents stay
    /// before it, and where it lies.
    fn move_object(
        &self,
        key: u64,
        kept: u32,
        absorbed: &[FileExtent],
        log: &dyn LogSource,
        writer: &mut RunWriter<'_>,
    ) -> Result<(u32, Vec<FileExtent>), (CheckpointFault, bool)> {
        let moving = self.moving.get(&key).map_or(&[][..], Vec::as_slice);
        let (Some(first), Some(last)) = (moving.first(), moving.last()) else { return Ok((kept, Vec::new())) };
        let (kept, taken_in) = self.take_in(key, kept, absorbed)?;
        writer.begin(key, first.start - taken_in.len() as u64, last.end());
        writer.push(&taken_in).map_err(write_fault)?;
        for extent in moving {
            let payload =
                log.read(extent.source).map_err(|source| (CheckpointFault::Log { object: key, source }, true))?;
            let Some(part) = payload.get(extent.within.start as usize..extent.within.end as usize) else {
                let source = LogError::Failed("the frame is shorter than the part that it should hold".into());
                return Err((CheckpointFault::Log { object: key, source }, true));
            };
            writer.push(part).map_err(write_fault)?;
        }
        Ok((kept, writer.end()))
    }

    /// The bytes of the extents that a run takes in, and how many extents stay then. They are at most three unsettled ones
    /// of each size class, so that this is a buffer of at most 20 MiB.
    ///
    /// If one is damaged, all stay where they are: whoever reads them hears of it, and the log is not held up.
    fn take_in(&self, key: u64, kept: u32, absorbed: &[FileExtent]) -> Result<(u32, Vec<u8>), (CheckpointFault, bool)> {
        let mut bytes = Vec::new();
        for extent in absorbed {
            match self.files.read(key, extent, extent.start..extent.end(), &mut bytes) {
                Ok(()) => {}
                Err(FileError::Damaged { .. }) => return Ok((kept + absorbed.len() as u32, Vec::new())),
                Err(error) => return Err((file_fault(error), true)),
            }
        }
        Ok((kept, bytes))
    }

    /// Appends a delta, or writes a new base when the deltas would outgrow the old one.
    fn write_index(&self, records: Vec<Record>, head: &Head) -> Result<Position, IndexFault> {
        let added: usize = records.iter().map(Record::encoded_bytes).sum();
        let bounds = (self.options.index_delta_bytes_min, self.options.index_delta_bytes_max);
        let allowed = (self.index.base_bytes / 2).clamp(bounds.0, bounds.1);
        if self.index.appendable && self.index.delta_bytes(added as u64) <= allowed {
            self.append(&records, head)
        } else {
            self.fold(records, head)
        }
    }

    fn append(&self, records: &[Record], head: &Head) -> Result<Position, IndexFault> {
        let files = &self.files;
        let result = index::append_delta(&*files.disk, &files.directory, files.owner, &self.index, records, head);
        let path = || index::path(&files.directory, self.index.generation);
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
        let newest = self.index.stale.iter().copied().max().unwrap_or(0).max(self.index.generation);
        let generation = newest + 1;
        let temporary = index::temporary_path(directory, generation);
        let written = index::fold(disk, directory, self.files.owner, &self.index, generation, records, head);
        let base_bytes = written.map_err(|error| {
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
        stale.push(self.index.generation);
        stale.retain(|old| match disk.remove(&index::path(directory, *old)) {
            Ok(()) => false,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        });
        let checkpoint = self.index.checkpoint + 1;
        Ok(Position {
            generation,
            checkpoint,
            base_bytes,
            base_checkpoint: checkpoint,
            end: base_bytes,
            appendable: true,
            stale,
        })
    }
}

/// Why the index was not written; with a position if it may have been written all the same.
struct IndexFault {
    fault: CheckpointFault,
    index: Option<Position>,
}

fn io_fault(path: PathBuf, source: io::Error) -> CheckpointFault {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CheckpointFault::Full { path },
        _ => CheckpointFault::Io { path, source },
    }
}

/// A full disk leaves a file sound, whose end can be cut off; any other failure does not, nor does any failed sync.
fn write_fault(fault: WriteFault) -> (CheckpointFault, bool) {
    let synced = !fault.sync;
    let fault = io_fault(fault.path, fault.source);
    let sound = synced && matches!(fault, CheckpointFault::Full { .. });
    (fault, sound)
}

fn file_fault(error: FileError) -> CheckpointFault {
    match error {
        FileError::Io { path, source } => io_fault(path, source),
        FileError::Damaged { path, position, fault } => {
            CheckpointFault::Damaged { path, what: format!("byte {position}: {fault}") }
        }
        FileError::Deleted => CheckpointFault::Damaged { path: PathBuf::new(), what: error.to_string() },
    }
}

fn scan_fault(path: PathBuf, error: ScanError) -> CheckpointFault {
    match error {
        ScanError::Io(source) => io_fault(path, source),
        other => CheckpointFault::Damaged { path, what: other.to_string() },
    }
}
