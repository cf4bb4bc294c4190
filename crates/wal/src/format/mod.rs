//! The bytes of a log, as `docs/formats/wal.md` lays them down: encoding and decoding, no I/O.

pub(crate) mod batch;
pub(crate) mod sector;
pub(crate) mod segment;
pub(crate) mod state;
#[cfg(test)]
mod tests;

/// The format version that this program writes and reads.
pub(crate) const VERSION: u16 = 1;

/// Bytes of a page: batches start on its multiples.
pub(crate) const PAGE: u64 = 4096;

/// Which segment of which log: what every checksum in it is seeded with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The log's identity.
    pub identity: u64,
    /// The segment's number.
    pub segment: u64,
}

impl Place {
    /// The CRC of bytes that belong at this file offset of this segment and nowhere else.
    pub(crate) fn crc(self, offset: u64, bytes: &[u8]) -> u32 {
        let mut seed = [0; 24];
        seed[..8].copy_from_slice(&self.identity.to_le_bytes());
        seed[8..16].copy_from_slice(&self.segment.to_le_bytes());
        seed[16..].copy_from_slice(&offset.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c(&seed), bytes)
    }
}

/// Four bytes at `at`; the caller has checked the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// Eight bytes at `at`; the caller has checked the length.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// Hands bytes to every decoder, and says how many take them for something.
pub(crate) fn decode_anything(bytes: &[u8], offset: u64) -> usize {
    let place = Place { identity: u64::from(crc32c::crc32c(bytes)), segment: offset % 9 };
    let header = batch::BatchHeader::decode(bytes, place, offset);
    let made_up = batch::BatchHeader {
        kind: batch::BatchKind::Table,
        count: bytes.first().map_or(u32::MAX, |byte| u32::from(*byte)),
        length: bytes.len() as u64,
        synced: offset,
    };
    let table = batch::Table::decode(&header.unwrap_or(made_up), bytes, place, offset);
    let frame = batch::FrameHeader::decode(bytes, place, offset);
    let attributed = batch::FrameHeader::attribute(bytes, place, offset);
    let segment = segment::SegmentHeader::decode(bytes);
    let state = state::State::decode(bytes.to_vec());
    let mut reader = highwater_base::codec::Reader::new(bytes.to_vec().into());
    let location = crate::Location::decode(&mut reader);
    let whole = [header.is_some(), table.is_some(), frame.is_some(), attributed.is_some(), state.is_ok()];
    let segment = segment != segment::HeaderFound::Damaged;
    whole.into_iter().chain([segment, location.is_ok()]).filter(|whole| *whole).count()
}
