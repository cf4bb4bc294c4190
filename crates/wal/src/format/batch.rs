//! Batches, their frames, and the table that ends a segment.

use super::sector::SectorWriter;
use super::{PAGE, Place, u32_at, u64_at};
use highwater_base::OwnerId;
use std::collections::BTreeMap;

const MAGIC: [u8; 4] = *b"HWB1";
/// Bytes of a batch's header.
pub(crate) const BATCH_HEADER: u64 = 32;
/// Bytes of a frame's header.
pub(crate) const FRAME_HEADER: u64 = 40;
const TABLE_ENTRY: u64 = 40;

/// What a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchKind {
    Frames,
    Table,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub kind: BatchKind,
    /// Frames, or entries.
    pub count: u32,
    /// Bytes of data, this header included.
    pub length: u64,
    /// File offset below which everything was synced when the batch was written.
    pub synced: u64,
}

impl BatchHeader {
    pub(crate) fn encode(&self, place: Place, offset: u64) -> [u8; BATCH_HEADER as usize] {
        let mut bytes = [0; BATCH_HEADER as usize];
        bytes[4..8].copy_from_slice(&MAGIC);
        bytes[8] = match self.kind {
            BatchKind::Frames => 0,
            BatchKind::Table => 1,
        };
        bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..].copy_from_slice(&self.synced.to_le_bytes());
        let crc = place.crc(offset, &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a batch at the file offset `offset`; `None` if there is none.
    pub(crate) fn decode(bytes: &[u8], place: Place, offset: u64) -> Option<Self> {
        let bytes = bytes.get(..BATCH_HEADER as usize)?;
        if bytes[4..8] != MAGIC || u32_at(bytes, 0) != place.crc(offset, &bytes[4..]) {
            return None;
        }
        let kind = match bytes[8..12] {
            [0, 0, 0, 0] => BatchKind::Frames,
            [1, 0, 0, 0] => BatchKind::Table,
            _ => return None,
        };
        let header = Self { kind, count: u32_at(bytes, 12), length: u64_at(bytes, 16), synced: u64_at(bytes, 24) };
        (header.length >= BATCH_HEADER).then_some(header)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub payload_crc: u32,
    pub length: u32,
    pub kind: u8,
    pub owner: OwnerId,
    pub position: u64,
    pub sequence: u64,
}

impl FrameHeader {
    pub(crate) fn encode(&self, place: Place, offset: u64) -> [u8; FRAME_HEADER as usize] {
        let mut bytes = [0; FRAME_HEADER as usize];
        bytes[4..8].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12] = self.kind;
        bytes[16..24].copy_from_slice(&self.owner.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.position.to_le_bytes());
        bytes[32..].copy_from_slice(&self.sequence.to_le_bytes());
        let crc = place.crc(offset, &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a frame at the file offset `offset`; `None` if there is none.
    pub(crate) fn decode(bytes: &[u8], place: Place, offset: u64) -> Option<Self> {
        let bytes = bytes.get(..FRAME_HEADER as usize)?;
        if bytes[13..16] != [0; 3] || u32_at(bytes, 0) != place.crc(offset, &bytes[4..]) {
            return None;
        }
        Some(Self {
            payload_crc: u32_at(bytes, 4),
            length: u32_at(bytes, 8),
            kind: bytes[12],
            owner: OwnerId(u64_at(bytes, 16)),
            position: u64_at(bytes, 24),
            sequence: u64_at(bytes, 32),
        })
    }

    /// Reads a header that one turned bit has spoilt, to know whose it was.
    ///
    /// Over so few bytes any two valid CRC-32C codewords differ in more than four bits, so the answer is the only one.
    /// Source: Koopman, "32-Bit Cyclic Redundancy Codes for Internet Applications", DSN 2002.
    pub(crate) fn attribute(bytes: &[u8], place: Place, offset: u64) -> Option<Self> {
        let mut bytes: [u8; FRAME_HEADER as usize] = bytes.get(..FRAME_HEADER as usize)?.try_into().ok()?;
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Some(header) = Self::decode(&bytes, place, offset) {
                return Some(header);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }
}

/// An owner's part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub position_min: u64,
    pub position_max: u64,
    pub sequence_first: u64,
    pub sequence_last: u64,
}

impl Range {
    /// The range of one frame.
    pub(crate) fn of(position: u64, sequence: u64) -> Self {
        Self { position_min: position, position_max: position, sequence_first: sequence, sequence_last: sequence }
    }

    pub(crate) fn extend(&mut self, position: u64, sequence: u64) {
        self.position_min = self.position_min.min(position);
        self.position_max = self.position_max.max(position);
        self.sequence_last = sequence;
    }
}

/// What a segment held when it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Table {
    /// File offset where the last batch of frames ends.
    pub frames_end: u64,
    pub owners: BTreeMap<OwnerId, Range>,
}

impl Table {
    /// Bytes of the file that the table of so many owners takes.
    pub(crate) fn file_bytes(owners: usize) -> u64 {
        file_bytes(BATCH_HEADER + 8 + TABLE_ENTRY * owners as u64 + 4)
    }

    /// Lays the table out for the file offset `offset`.
    pub(crate) fn encode(&self, place: Place, offset: u64, bytes: &mut Vec<u8>) {
        let mut body = self.frames_end.to_le_bytes().to_vec();
        for (owner, range) in &self.owners {
            let Range { position_min, position_max, sequence_first, sequence_last } = *range;
            for field in [owner.0, position_min, position_max, sequence_first, sequence_last] {
                body.extend_from_slice(&field.to_le_bytes());
            }
        }
        body.extend_from_slice(&place.crc(offset, &body).to_le_bytes());
        let header = BatchHeader {
            kind: BatchKind::Table,
            count: self.owners.len() as u32,
            length: BATCH_HEADER + body.len() as u64,
            synced: self.frames_end,
        };
        let mut writer = SectorWriter::new(place, offset, bytes);
        writer.write(&header.encode(place, offset));
        writer.write(&body);
        writer.finish();
    }

    /// Reads the table whose batch has these data bytes, header included; `None` if it is not whole.
    pub(crate) fn decode(header: &BatchHeader, data: &[u8], place: Place, offset: u64) -> Option<Self> {
        let length = BATCH_HEADER.checked_add(8 + 4)?.checked_add(TABLE_ENTRY.checked_mul(u64::from(header.count))?)?;
        if header.length != length || (data.len() as u64) < length {
            return None;
        }
        let body = &data[BATCH_HEADER as usize..length as usize - 4];
        if u32_at(data, length as usize - 4) != place.crc(offset, body) {
            return None;
        }
        let mut table = Self { frames_end: u64_at(body, 0), owners: BTreeMap::new() };
        for entry in body[8..].chunks_exact(TABLE_ENTRY as usize) {
            let range = Range {
                position_min: u64_at(entry, 8),
                position_max: u64_at(entry, 16),
                sequence_first: u64_at(entry, 24),
                sequence_last: u64_at(entry, 32),
            };
            table.owners.insert(OwnerId(u64_at(entry, 0)), range);
        }
        Some(table)
    }
}

/// Bytes of the file that so many bytes of a batch's data take.
pub(crate) fn file_bytes(data: u64) -> u64 {
    data.div_ceil(super::sector::PAGE_DATA) * PAGE
}
