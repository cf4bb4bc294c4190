//! Reading payload by plan.

use crate::buffers;
use crate::data::{BLOCK_BYTES, DataFault};
use crate::files::{FileError, Files, READ_STEP_BYTES};
use crate::log::{LogError, LogSource};
use crate::plan::{Piece, ReadPlan};
use bytes::Bytes;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why a read has no answer.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The bytes were moved since the plan was made: plan again.
    #[error("the bytes were moved since the read was planned")]
    Moved,
    /// The data file does not hold what the index says.
    #[error("{}, byte {position}: {fault}", path.display())]
    Damaged {
        /// The data file.
        path: PathBuf,
        /// Position of the block in it, in bytes.
        position: u64,
        /// What is wrong.
        fault: DataFault,
    },
    /// The bytes lie in the object store, which does not answer. They are safe, as far as is known: try again.
    #[error("{object}: {why}")]
    Unreachable {
        /// The object, with the place of its store.
        object: String,
        /// What was said, or not.
        why: String,
    },
    /// The log holds other bytes than it was given, or cannot be read there; it says where.
    #[error("{0}")]
    LogDamaged(String),
    /// The log could not give the bytes; it says why.
    #[error("{0}")]
    Log(String),
    /// The disk's error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The data file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl From<FileError> for ReadError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Deleted | FileError::Away => Self::Moved,
            FileError::Unreachable { object, why } => Self::Unreachable { object, why },
            FileError::Damaged { path, position, fault } => Self::Damaged { path, position, fault },
            FileError::Io { path, source } => Self::Io { path, source },
        }
    }
}

impl From<LogError> for ReadError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Reclaimed => Self::Moved,
            LogError::Failed(why) => Self::LogDamaged(why),
        }
    }
}

/// Reads the payload of one store's objects; for any thread.
#[derive(Clone)]
pub struct StoreReader {
    pub(crate) files: Arc<Files>,
    pub(crate) log: Arc<dyn LogSource>,
}

impl StoreReader {
    /// Whether a read of this plan asks an object store, so that it may take long.
    #[must_use]
    pub fn reaches_out(&self, plan: &ReadPlan) -> bool {
        plan.pieces.iter().any(|piece| match piece {
            Piece::File { extent, .. } => self.files.is_away(extent.file),
            Piece::Log { .. } => false,
        })
    }

    /// The bytes of a plan, all of them, verified.
    /// # Errors
    /// `Moved` if the plan is too old; otherwise what is wrong, and where.
    pub fn read(&self, plan: &ReadPlan) -> Result<Bytes, ReadError> {
        let small = plan.length() <= KEPT_BYTES_MAX as u64;
        if let ([Piece::Log { source, within }], true) = (&plan.pieces[..], small) {
            return read_log(&*self.log, *source, within.clone());
        }
        let buffers = buffers::shared();
        let mut bytes = buffers.empty(room_bytes(plan));
        let mut scratch = buffers.filled(plan.pieces.iter().map(scratch_bytes).max().unwrap_or(0));
        for piece in &plan.pieces {
            match piece {
                Piece::File { extent, range } => {
                    self.files.read(plan.object, extent, range.clone(), &mut bytes, &mut scratch)?;
                }
                Piece::Log { source, within } => {
                    append_log(&*self.log, *source, within.clone(), &mut bytes, &mut scratch)?;
                }
            }
        }
        buffers.give(scratch);
        assert_eq!(bytes.len() as u64, plan.length(), "the pieces of a plan make up its length");
        Ok(buffers.lend(bytes))
    }
}

/// Bytes of a frame that an answer may keep in memory besides its own, to spare a copy.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Bytes that a plan's answer takes while it is put together: of a frame of the log all is read, and what is not asked for is cut
/// off. A buffer that had to grow would be copied, and would come back larger than what it is asked for the next time.
fn room_bytes(plan: &ReadPlan) -> usize {
    let (mut at, mut room) = (0, 0);
    for piece in &plan.pieces {
        let (bytes, read) = match piece {
            Piece::File { range, .. } => (range.end - range.start, range.end - range.start),
            Piece::Log { source, within } => (u64::from(within.end - within.start), u64::from(source.length)),
        };
        room = room.max(at + read);
        at += bytes;
    }
    room as usize
}

/// Bytes of a file that are read at once for a piece.
fn scratch_bytes(piece: &Piece) -> usize {
    match piece {
        Piece::File { range, .. } => READ_STEP_BYTES.min((range.end - range.start) as usize + 2 * BLOCK_BYTES),
        // Its marks, and the header in front of it, are less than a fortieth of a frame and a page.
        Piece::Log { source, .. } => source.length as usize / 40 * 41 + (4 << 10),
    }
}

/// Appends a part of a frame's payload.
fn append_log(
    log: &dyn LogSource,
    source: highwater_wal::Location,
    within: std::ops::Range<u32>,
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let (at, within) = (out.len(), within.start as usize..within.end as usize);
    log.read_into(source, out, scratch)?;
    if at + within.end > out.len() {
        return Err(short());
    }
    out.truncate(at + within.end);
    if within.start > 0 {
        out.copy_within(at + within.start.., at);
        out.truncate(at + within.len());
    }
    Ok(())
}

fn short() -> ReadError {
    ReadError::Log("the frame is shorter than the part that it should hold".into())
}

fn read_log(
    log: &dyn LogSource,
    source: highwater_wal::Location,
    within: std::ops::Range<u32>,
) -> Result<Bytes, ReadError> {
    let payload = log.read(source)?;
    let range = within.start as usize..within.end as usize;
    if range.end > payload.len() {
        return Err(short());
    }
    if payload.len() - range.len() > KEPT_BYTES_MAX {
        return Ok(Bytes::copy_from_slice(&payload[range]));
    }
    Ok(payload.slice(range))
}
