//! Blocks of the index file: their headers, and the writer that lays a checkpoint's records down in them.

use super::record::Record;
use super::table::{Table, TableBuilder};
use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_base::codec::Writer;
use highwater_disk::File;
use std::io;

/// The format version of index files.
pub const VERSION: u16 = 3;

pub(crate) const HEADER_BYTES: usize = 48;
/// Deltas begin on multiples of this, so that a write never touches a page that was synced before.
pub(crate) const ALIGNMENT: u64 = 4096;
/// A body never asks for more memory than this; it is checked before anything is allocated. Sixteen times the largest
/// record that any caller makes (a stream with 4,096 producers, below 4 MiB).
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
/// Records of a delta are collected up to about this much for one write.
pub(crate) const DELTA_BODY_BYTES: usize = 1 << 20;

const MAGIC: [u8; 4] = *b"HWIX";
const LAST: u8 = 1;

/// Whether blocks belong to the base or to a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Base = 1,
    Delta = 2,
}

/// Whose index file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub owner: OwnerId,
    pub generation: u64,
}

/// The header of a block, verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub kind: Kind,
    pub last: bool,
    pub identity: Identity,
    pub checkpoint: u64,
    pub number: u32,
    pub body_bytes: u32,
    pub body_sum: u32,
}

/// Why bytes are no block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Not one, or damaged.
    Damaged,
    /// One that a later program wrote.
    Version(u16),
}

impl BlockHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Writer::new();
        out.raw(&MAGIC).u16(VERSION).u8(self.kind as u8).u8(if self.last { LAST } else { 0 });
        out.u64(self.identity.owner.0).u64(self.identity.generation).u64(self.checkpoint);
        out.u32(self.number).u32(self.body_bytes).u32(self.body_sum);
        let fields = out.into_vec();
        let mut header = [0; HEADER_BYTES];
        header[..HEADER_BYTES - 4].copy_from_slice(&fields);
        header[HEADER_BYTES - 4..].copy_from_slice(&crc32c::crc32c(&fields).to_le_bytes());
        header
    }

    /// Reads a header and verifies it.
    ///
    /// The version is looked at before the checksum, since a later version may place that elsewhere.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderFault> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[..4] != MAGIC {
            return Err(HeaderFault::Damaged);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(HeaderFault::Version(version));
        }
        let kind = match bytes[6] {
            1 => Kind::Base,
            2 => Kind::Delta,
            _ => return Err(HeaderFault::Damaged),
        };
        let sound = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]) == u32_at(HEADER_BYTES - 4);
        if !sound || bytes[7] & !LAST != 0 || u32_at(36) as usize > BODY_BYTES_MAX {
            return Err(HeaderFault::Damaged);
        }
        Ok(Self {
            kind,
            last: bytes[7] & LAST != 0,
            identity: Identity { owner: OwnerId(u64_at(8)), generation: u64_at(16) },
            checkpoint: u64_at(24),
            number: u32_at(32),
            body_bytes: u32_at(36),
            body_sum: u32_at(40),
        })
    }
}

/// Writes one checkpoint's blocks, from `position` on.
pub(crate) struct BlockWriter<'a> {
    file: &'a dyn File,
    position: u64,
    kind: Kind,
    identity: Identity,
    checkpoint: u64,
    number: u32,
    body: Writer,
    /// A body ends before it would outgrow this, unless one record does.
    body_bytes: usize,
    table: TableBuilder,
}

/// Which checkpoint's blocks are written, and how large they become.
pub(crate) struct Layout {
    pub kind: Kind,
    pub identity: Identity,
    pub checkpoint: u64,
    /// Bytes of a body, unless one record needs more.
    pub body_bytes: usize,
}

impl<'a> BlockWriter<'a> {
    pub fn new(file: &'a dyn File, position: u64, layout: Layout) -> Self {
        let Layout { kind, identity, checkpoint, body_bytes } = layout;
        let (body, table) = (Writer::new(), TableBuilder::default());
        Self { file, position, kind, identity, checkpoint, number: 0, body, body_bytes, table }
    }

    /// Adds a record.
    /// # Errors
    /// The disk's, or `InvalidInput` for a record that no block can hold.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        let length = record.encoded_bytes();
        if length > BODY_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an object's state exceeds 64 MiB"));
        }
        if !self.body.is_empty() && self.body.len() + length > self.body_bytes {
            self.flush(false)?;
        }
        record.encode(&mut self.body);
        if let (Kind::Base, Some(key)) = (self.kind, record.key()) {
            self.table.key(key);
        }
        Ok(())
    }

    /// Adds the checkpoint record and writes what is left; returns the position behind the last block, and where the
    /// objects of a base lie. Syncs nothing.
    /// # Errors
    /// As [`BlockWriter::record`].
    pub fn finish(mut self, head: &super::Head) -> io::Result<(u64, Table)> {
        self.record(&Record::Checkpoint(head.clone()))?;
        self.flush(true)?;
        Ok((self.position, self.table.finish()))
    }

    fn flush(&mut self, last: bool) -> io::Result<()> {
        let body = std::mem::take(&mut self.body).into_vec();
        let header = BlockHeader {
            kind: self.kind,
            last,
            identity: self.identity,
            checkpoint: self.checkpoint,
            number: self.number,
            body_bytes: body.len() as u32,
            body_sum: crc32c::crc32c(&body),
        };
        let mut block = Vec::with_capacity(HEADER_BYTES + body.len());
        block.extend_from_slice(&header.encode());
        block.extend_from_slice(&body);
        self.file.write_at(&block, self.position)?;
        self.table.block(self.position, block.len() as u32);
        self.position += block.len() as u64;
        self.number += 1;
        Ok(())
    }
}

/// The body of the block whose header was read at `position`, verified; `None` if it ends early or is damaged.
/// # Errors
/// The disk's.
pub(crate) fn read_body(
    file: &dyn File,
    position: u64,
    header: &BlockHeader,
    file_bytes: u64,
) -> io::Result<Option<Bytes>> {
    let start = position + HEADER_BYTES as u64;
    if start + u64::from(header.body_bytes) > file_bytes {
        return Ok(None);
    }
    let mut body = vec![0; header.body_bytes as usize];
    file.read_exact_at(&mut body, start)?;
    Ok((crc32c::crc32c(&body) == header.body_sum).then(|| body.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> BlockHeader {
        BlockHeader {
            kind: Kind::Delta,
            last: true,
            identity: Identity { owner: OwnerId(1 << 56 | 3), generation: 2 },
            checkpoint: 77,
            number: 1,
            body_bytes: 1000,
            body_sum: 12345,
        }
    }

    #[test]
    fn a_header_of_another_version_says_so() {
        let mut bytes = header().encode();
        assert_eq!(BlockHeader::decode(&bytes), Ok(header()));
        bytes[4] = 9;
        assert_eq!(BlockHeader::decode(&bytes), Err(HeaderFault::Version(9)));
    }

    #[test]
    fn a_body_of_gigabytes_is_refused_before_it_is_allocated() {
        let bytes = BlockHeader { body_bytes: BODY_BYTES_MAX as u32 + 1, ..header() }.encode();
        assert_eq!(BlockHeader::decode(&bytes), Err(HeaderFault::Damaged));
    }

    proptest! {
        #[test]
        fn every_flipped_bit_of_a_header_is_found(bit in 0usize..HEADER_BYTES * 8) {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(BlockHeader::decode(&bytes).is_err());
        }
    }
}
