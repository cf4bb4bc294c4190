//! Frames, locations, options and errors.

use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_base::codec::{DecodeError, Reader, Writer};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What an owner appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Whose it is.
    pub owner: OwnerId,
    /// What it is, in the owner's own numbering.
    pub kind: u8,
    /// Where it stands in the owner's own order, such as a Raft index. May repeat and go back.
    pub position: u64,
    /// The owner's bytes.
    pub payload: Bytes,
}

/// Where a frame's payload lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The segment's number.
    pub segment: u64,
    /// The payload's first byte, in bytes from the start of the segment's file.
    pub offset: u64,
    /// The payload's length in bytes.
    pub length: u32,
}

impl Location {
    /// Bytes of an encoded location.
    pub const ENCODED_BYTES: usize = 20;

    /// Appends the location to a record.
    pub fn encode(&self, writer: &mut Writer) {
        writer.u64(self.segment).u64(self.offset).u32(self.length);
    }

    /// Takes a location off a record.
    /// # Errors
    /// `Short` if the record ends before.
    pub fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { segment: reader.u64()?, offset: reader.u64()?, length: reader.u32()? })
    }
}

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a segment's file, a multiple of 4 KiB.
    pub segment_bytes: u64,
    /// Bytes of all segments' files, spare ones not counted, beyond which an append is answered [`AppendError::Full`].
    pub log_bytes_max: u64,
    /// Segments that are kept for reuse when nobody needs them any more.
    pub spare_segments_max: usize,
    /// The running system's boot id, such as the kernel's; recorded, so that a restart can say whether the machine
    /// went down with the process. Up to 64 bytes.
    pub boot_id: String,
    /// The name of a log that is made now: random bits, so that no segment of another log is ever taken for one of
    /// this. A log that exists keeps its own. `None` derives it from the boot id, as tests may: all logs that are made in
    /// one boot are then one.
    pub identity_new: Option<u64>,
}

impl Default for Options {
    /// Segments of 64 MiB: 35 batches of 1 MiB a second fill one in two seconds, and zeroing one ahead takes a tenth
    /// of that.
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            log_bytes_max: 4 << 30,
            spare_segments_max: 4,
            boot_id: String::new(),
            identity_new: None,
        }
    }
}

/// The log has met an error that it cannot judge, and takes no more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the log stopped: {reason}")]
pub struct Poisoned {
    /// What failed, and the system's words.
    pub reason: String,
}

/// Why frames were not appended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AppendError {
    /// There is no space for another segment. Nothing was claimed, and a later append may succeed.
    #[error("the log is full: {bytes} bytes are in use, and no further segment can be had")]
    Full {
        /// Bytes of the segments in use.
        bytes: u64,
    },
    /// A frame does not fit into a segment. Nothing was claimed.
    #[error("a frame of {bytes} bytes does not fit into a segment, which holds {bytes_max}")]
    TooLarge {
        /// Bytes of the frame's payload.
        bytes: u64,
        /// Bytes of the largest payload that fits.
        bytes_max: u64,
    },
    /// The log has stopped; whether earlier frames that were not reported durable are durable is unknown.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Why a log was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{0} is locked: another process has this log open")]
    Locked(PathBuf),
    /// A later program wrote it.
    #[error("{path} has format version {version}, which this program does not know")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// The options contradict themselves.
    #[error("the log's options are wrong: {0}")]
    Options(&'static str),
    /// The system failed.
    #[error("{what} failed: {error}")]
    Io {
        /// What was tried, and on which file.
        what: String,
        /// The system's error.
        error: io::Error,
    },
}

/// Why a frame was not read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The segment was given back: the caller's knowledge of where the bytes lie is old.
    #[error("segment {0} was given back")]
    Reclaimed(u64),
    /// The bytes do not match their checksums, or there is no frame.
    #[error("the frame at {offset} of segment {segment} is damaged")]
    Damaged {
        /// The segment's number.
        segment: u64,
        /// The payload's place in it.
        offset: u64,
    },
    /// The system failed.
    #[error("reading segment {segment} failed: {error}")]
    Io {
        /// The segment's number.
        segment: u64,
        /// The system's error.
        error: io::Error,
    },
}

/// What a release gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// Segments that are no longer part of the log.
    pub segments: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Why space was not given back.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReleaseError {
    /// The record that justifies it found no space. Nothing is lost; a later release tries again.
    #[error("the disk is full, so that the log's state cannot be recorded")]
    Full,
    /// The log has stopped.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}
