//! The part of a checkpoint that writes payload: what lies in the log, what joins it, and what leaves mostly dead files.

use crate::checkpoint::{Checkpoint, CheckpointFault, Placed, Work, file_fault, io_fault, write_fault};
use crate::compaction::Relaid;
use crate::data::BLOCK_PAYLOAD_BYTES;
use crate::extent::FileExtent;
use crate::files::FileError;
use crate::index::Record;
use crate::log::{LogError, LogSource};
use crate::runs::RunWriter;

/// Bytes of payload that are copied at a time: whole blocks, about a mebibyte.
const COPY_BYTES: u64 = 16 * BLOCK_PAYLOAD_BYTES as u64;

/// What failed, and whether the file that was active is sound.
pub(crate) type Failure = (CheckpointFault, bool);

/// How an extent was found.
enum Condition {
    Sound,
    Damaged,
    /// It moved to the object store since this was planned.
    Away,
}

/// What moving payload came to.
#[derive(Default)]
pub(crate) struct Moved {
    pub records: Vec<Record>,
    pub placed: Vec<Placed>,
    /// Bytes of payload copied out of mostly dead files.
    pub copied_bytes: u64,
    /// Files with an extent that could not be copied.
    pub stuck: Vec<u32>,
    /// Whether something moved of objects that are not in memory.
    pub swept: bool,
}

impl Checkpoint {
    /// Copies what moves, and makes it durable.
    pub(crate) fn move_payload(&self, log: &dyn LogSource, writer: &mut RunWriter<'_>) -> Result<Moved, Failure> {
        let mut moved = Moved::default();
        for work in &self.work {
            match work {
                Work::Remove { key } => moved.records.push(Record::Removed { key: *key }),
                Work::Store { key, state, front, relaid, absorbed } => {
                    let mut added = self.relay(*key, relaid, writer, &mut moved)?;
                    let (joined, run) = self.move_object(*key, absorbed, log, writer)?;
                    // Behind extents that lie elsewhere now, those that stay are named again.
                    if !joined && !relaid.is_empty() {
                        added.extend_from_slice(absorbed);
                    }
                    added.extend(run);
                    if !added.is_empty() {
                        moved.placed.push(Placed { key: *key, added: added.clone(), replaced: None });
                    }
                    moved.records.push(Record::Object { key: *key, state: state.clone(), front: *front, added });
                }
            }
        }
        self.sweep(writer, &mut moved)?;
        writer.sync().map_err(write_fault)?;
        if !writer.made().is_empty() {
            let directory = &self.files.directory;
            self.files.disk.sync_directory(directory).map_err(|error| (io_fault(directory.clone(), error), true))?;
        }
        Ok(moved)
    }

    /// Copies extents out of mostly dead files; neighbours become one run. Returns where all of `relaid` lie then.
    ///
    /// A damaged extent stays where it is, and its file with it: copied, its blocks would bear good checksums.
    pub(crate) fn relay(
        &self,
        key: u64,
        relaid: &[Relaid],
        writer: &mut RunWriter<'_>,
        moved: &mut Moved,
    ) -> Result<Vec<FileExtent>, Failure> {
        let mut extents = Vec::with_capacity(relaid.len());
        let mut run: Vec<FileExtent> = Vec::new();
        for relaid in relaid {
            let extent = match relaid {
                Relaid::Copy(extent) => match self.condition(key, extent)? {
                    Condition::Sound => {
                        run.push(*extent);
                        continue;
                    }
                    Condition::Damaged => {
                        moved.stuck.push(extent.file);
                        extent
                    }
                    Condition::Away => extent,
                },
                Relaid::Stay(extent) => extent,
            };
            self.copy_run(key, &mut run, writer, moved, &mut extents)?;
            extents.push(*extent);
        }
        self.copy_run(key, &mut run, writer, moved, &mut extents)?;
        Ok(extents)
    }

    /// Whether every block of an extent is what it should be.
    fn condition(&self, key: u64, extent: &FileExtent) -> Result<Condition, Failure> {
        let mut buffer = Vec::new();
        let mut from = extent.start;
        while from < extent.end() {
            let to = extent.end().min(from + COPY_BYTES);
            buffer.clear();
            match self.files.read_local(key, extent, from..to, &mut buffer) {
                Ok(()) => from = to,
                Err(FileError::Damaged { .. }) => return Ok(Condition::Damaged),
                Err(FileError::Away) => return Ok(Condition::Away),
                Err(error) => return Err((file_fault(error), true)),
            }
        }
        Ok(Condition::Sound)
    }

    /// Copies extents that follow each other in their object, and empties the list.
    fn copy_run(
        &self,
        key: u64,
        run: &mut Vec<FileExtent>,
        writer: &mut RunWriter<'_>,
        moved: &mut Moved,
        extents: &mut Vec<FileExtent>,
    ) -> Result<(), Failure> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
        writer.begin(key, first.start, last.end());
        moved.copied_bytes += last.end() - first.start;
        let mut buffer = Vec::new();
        for extent in run.drain(..) {
            let mut from = extent.start;
            while from < extent.end() {
                let to = extent.end().min(from + COPY_BYTES);
                buffer.clear();
                let read = self.files.read_local(key, &extent, from..to, &mut buffer);
                read.map_err(|error| (file_fault(error), true))?;
                writer.push(&buffer).map_err(write_fault)?;
                from = to;
            }
        }
        extents.extend(writer.end());
        Ok(())
    }

    /// Writes one object's run: the extents that it takes in, then what lies in the log. Returns whether it took them in,
    /// and where it lies.
    fn move_object(
        &self,
        key: u64,
        absorbed: &[FileExtent],
        log: &dyn LogSource,
        writer: &mut RunWriter<'_>,
    ) -> Result<(bool, Vec<FileExtent>), Failure> {
        let moving = self.moving.get(&key).map_or(&[][..], Vec::as_slice);
        let (Some(first), Some(last)) = (moving.first(), moving.last()) else { return Ok((true, Vec::new())) };
        let taken_in = self.take_in(key, absorbed)?;
        let joined = taken_in.is_some();
        let taken_in = taken_in.unwrap_or_default();
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
        Ok((joined, writer.end()))
    }

    /// The bytes of the extents that a run takes in. They are at most three unsettled ones of each size class, so that
    /// this is a buffer of at most 20 MiB.
    ///
    /// If one is damaged, all stay where they are: whoever reads them hears of it, and the log is not held up. So they do if
    /// one has moved to the object store since.
    fn take_in(&self, key: u64, absorbed: &[FileExtent]) -> Result<Option<Vec<u8>>, Failure> {
        let mut bytes = Vec::new();
        for extent in absorbed {
            match self.files.read_local(key, extent, extent.start..extent.end(), &mut bytes) {
                Ok(()) => {}
                Err(FileError::Damaged { .. } | FileError::Away) => return Ok(None),
                Err(error) => return Err((file_fault(error), true)),
            }
        }
        Ok(Some(bytes))
    }
}
