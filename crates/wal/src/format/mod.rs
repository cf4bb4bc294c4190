//! The bytes of a log, as `docs/formats/wal.md` lays them down: encoding and decoding, no I/O.

pub(crate) mod batch;
pub(crate) mod sector;
pub(crate) mod segment;
pub(crate) mod state;

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
