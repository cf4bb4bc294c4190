//! Reading an index file: the base, record by record; then the deltas, each whole or not at all.

use super::block::{self, ALIGNMENT, BlockHeader, HEADER_BYTES, HeaderFault, Identity, Kind};
use super::record::{Head, Record};
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader};
use highwater_disk::File;
use std::io;
use thiserror::Error;

/// Why an index file cannot be read.
#[derive(Debug, Error)]
pub(crate) enum ScanError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A record contradicts those before it.
    #[error(transparent)]
    Contradiction(#[from] DecodeError),
    /// A later program wrote the file.
    #[error("format version {0}, which this program does not know")]
    Version(u16),
    /// Whoever was handed an object does not take it.
    #[error("object {key}: {what}")]
    Refused { key: u64, what: String },
    /// What is at this position is wrong.
    #[error("at byte {position}: {what}")]
    Damaged { position: u64, what: String },
}

pub(super) fn damaged<T>(position: u64, what: impl Into<String>) -> Result<T, ScanError> {
    Err(ScanError::Damaged { position, what: what.into() })
}

/// The state up to which an index file was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Number of the last whole checkpoint.
    pub checkpoint: u64,
    /// Position of its first block.
    pub start: u64,
    /// Position behind its last block.
    pub end: u64,
    pub head: Head,
}

/// What a torn or damaged delta begins with, when its blocks are read.
enum Delta {
    Whole { bodies: Vec<(u64, Bytes)>, end: u64 },
    Bad,
}

/// How far a base was read.
#[derive(Default)]
struct At {
    position: u64,
    number: u32,
    checkpoint: u64,
}

/// An open index file.
pub(crate) struct Scan<'a> {
    file: &'a dyn File,
    file_bytes: u64,
    identity: Identity,
}

impl<'a> Scan<'a> {
    /// # Errors
    /// The disk's.
    pub fn new(file: &'a dyn File, identity: Identity) -> Result<Self, ScanError> {
        Ok(Self { file, file_bytes: file.length()?, identity })
    }

    /// The same file, as if it ended at `end`.
    /// # Errors
    /// `Damaged` if it ends before.
    pub fn up_to(self, end: u64) -> Result<Self, ScanError> {
        if self.file_bytes < end {
            return damaged(self.file_bytes, "the index file ends early");
        }
        Ok(Self { file_bytes: end, ..self })
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Finds the end of the base, and reads what its last block says; the other blocks' bodies are passed over.
    /// # Errors
    /// As [`Scan::base`].
    pub fn base_end(&self) -> Result<Reached, ScanError> {
        let mut at = At::default();
        loop {
            let header = self.base_header(&mut at)?;
            let (position, end) = (at.position, at.position + HEADER_BYTES as u64 + u64::from(header.body_bytes));
            if header.last {
                let head = deliver(self.base_body(position, &header)?, position, true, &mut |_| Ok(()))?;
                let head = head.expect("the last block has one, or it is refused");
                return Ok(Reached { checkpoint: at.checkpoint, start: 0, end, head });
            }
            (at.position, at.number) = (end, at.number + 1);
        }
    }

    /// Reads the base, and hands over its records but the last, and behind each block's where that lies and its bytes.
    /// # Errors
    /// Any fault of the base, each of which is damage; or what `each` returns, with the record's block as its place.
    pub fn base(
        &self,
        each: &mut dyn FnMut(Record) -> Result<(), ScanError>,
        block: &mut dyn FnMut(u64, u32),
    ) -> Result<Reached, ScanError> {
        let mut at = At::default();
        loop {
            let header = self.base_header(&mut at)?;
            let head = deliver(self.base_body(at.position, &header)?, at.position, header.last, each)?;
            let length = HEADER_BYTES as u32 + header.body_bytes;
            block(at.position, length);
            (at.position, at.number) = (at.position + u64::from(length), at.number + 1);
            if let Some(head) = head {
                return Ok(Reached { checkpoint: at.checkpoint, start: 0, end: at.position, head });
            }
        }
    }

    /// The header of the base's next block, verified.
    fn base_header(&self, at: &mut At) -> Result<BlockHeader, ScanError> {
        let position = at.position;
        let header = match self.header(position)? {
            Ok(header) => header,
            Err(HeaderFault::Version(version)) if position == 0 => return Err(ScanError::Version(version)),
            Err(_) => return damaged(position, "the base's block has no sound header"),
        };
        if header.identity != self.identity {
            return damaged(position, "the block belongs to another index");
        }
        if at.number == 0 {
            at.checkpoint = header.checkpoint;
        }
        if (header.kind, header.number, header.checkpoint) != (Kind::Base, at.number, at.checkpoint) {
            return damaged(position, "the base's blocks are out of order");
        }
        Ok(header)
    }

    fn base_body(&self, position: u64, header: &BlockHeader) -> Result<Bytes, ScanError> {
        match block::read_body(self.file, position, header, self.file_bytes)? {
            Some(body) => Ok(body),
            None => damaged(position, "the base's block ends early or its checksum is wrong"),
        }
    }

    /// Reads the deltas behind `reached`, and hands over the records of every whole one but their last.
    ///
    /// What follows the last whole delta is a torn tail, unless a block of a later checkpoint stands behind it: that one
    /// was begun after the bad one was synced.
    /// # Errors
    /// Damage before the tail; the disk's; or what `each` returns.
    pub fn deltas(
        &self,
        mut reached: Reached,
        each: &mut dyn FnMut(Record) -> Result<(), ScanError>,
    ) -> Result<Reached, ScanError> {
        loop {
            let position = reached.end.next_multiple_of(ALIGNMENT);
            if position >= self.file_bytes {
                return Ok(reached);
            }
            match self.delta(position, reached.checkpoint + 1)? {
                Delta::Whole { bodies, end } => {
                    let blocks = bodies.len();
                    for (index, (at, body)) in bodies.into_iter().enumerate() {
                        if let Some(head) = deliver(body, at, index + 1 == blocks, each)? {
                            reached.head = head;
                        }
                    }
                    (reached.checkpoint, reached.start, reached.end) = (reached.checkpoint + 1, position, end);
                }
                Delta::Bad if self.later_block(position, reached.checkpoint + 1)? => {
                    return damaged(position, "a delta is bad, and a later checkpoint stands behind it");
                }
                Delta::Bad => return Ok(reached),
            }
        }
    }

    /// The blocks of the delta at `position`, which must be of this checkpoint.
    fn delta(&self, mut position: u64, checkpoint: u64) -> Result<Delta, ScanError> {
        let mut bodies = Vec::new();
        loop {
            let Ok(header) = self.header(position)? else { return Ok(Delta::Bad) };
            let expected = (Kind::Delta, self.identity, checkpoint, bodies.len() as u32);
            if (header.kind, header.identity, header.checkpoint, header.number) != expected {
                return Ok(Delta::Bad);
            }
            let Some(body) = block::read_body(self.file, position, &header, self.file_bytes)? else {
                return Ok(Delta::Bad);
            };
            bodies.push((position, body));
            position += HEADER_BYTES as u64 + u64::from(header.body_bytes);
            if header.last {
                return Ok(Delta::Whole { bodies, end: position });
            }
        }
    }

    /// Whether a delta of a checkpoint behind this one begins at `position` or after it.
    fn later_block(&self, position: u64, checkpoint: u64) -> Result<bool, ScanError> {
        let mut at = position;
        while at < self.file_bytes {
            let later = |header: &BlockHeader| header.identity == self.identity && header.checkpoint > checkpoint;
            if self.header(at)?.is_ok_and(|header| later(&header)) {
                return Ok(true);
            }
            at += ALIGNMENT;
        }
        Ok(false)
    }

    fn header(&self, position: u64) -> Result<Result<BlockHeader, HeaderFault>, ScanError> {
        let mut bytes = [0; HEADER_BYTES];
        if self.file.read_at(&mut bytes, position)? < HEADER_BYTES {
            return Ok(Err(HeaderFault::Damaged));
        }
        Ok(BlockHeader::decode(&bytes))
    }
}

/// Hands over the records of a verified block; the last block ends in the checkpoint record, and no other has one.
pub(super) fn deliver(
    body: Bytes,
    position: u64,
    last: bool,
    each: &mut dyn FnMut(Record) -> Result<(), ScanError>,
) -> Result<Option<Head>, ScanError> {
    let mut reader = Reader::new(body);
    let fault = |error: DecodeError| ScanError::Damaged { position, what: error.to_string() };
    while reader.remaining() > 0 {
        match Record::decode(&mut reader).map_err(fault)? {
            Record::Checkpoint(head) if last => {
                return reader.finish().map(|()| Some(head)).map_err(fault);
            }
            Record::Checkpoint(_) => return damaged(position, "a checkpoint ends before its last block"),
            record => match each(record) {
                Err(ScanError::Contradiction(error)) => return Err(fault(error)),
                result => result?,
            },
        }
    }
    if last { damaged(position, "a checkpoint has no end") } else { Ok(None) }
}
