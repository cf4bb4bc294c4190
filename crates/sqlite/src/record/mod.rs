//! The record of one commit: its bytes, its checksums, and the database checksum that it carries along.
//!
//! The bytes are described in `docs/formats/commit-log.md`. They are made once, at commit, by [`Encoder`], and read by
//! [`Decoder`] in the log, in a restore and in a verification alike. Both hold one chunk of pages at a time, whatever
//! the commit's size.

mod checksum;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use checksum::{is_zero, lock_page, page_hash};
pub use decode::{Decoder, Event, RecordError};
pub use encode::{Encoder, Sink};

use crate::engine::PageNumber;
use crate::record::decode::field_u32 as u32_at;
use crate::record::decode::field_u64 as u64_at;

/// The version this program writes and the only one it reads.
pub const VERSION: u16 = 1;
/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 48;
/// Bytes of a record's trailer.
pub const TRAILER_BYTES: usize = 24;
/// Bytes before a chunk's page numbers.
const CHUNK_HEAD_BYTES: usize = 8;
/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 4;
/// Pages of one chunk.
pub const CHUNK_PAGES_MAX: usize = 64;
/// Bytes of page images in one chunk, uncompressed.
///
/// Compression gains nothing from more, and an encoder and a decoder hold a small multiple of it.
pub const CHUNK_BYTES_MAX: usize = 256 << 10;
/// zstd's level: of those that keep a commit of 7 pages near 0.1 ms, the one with the best ratio.
const COMPRESSION_LEVEL: i32 = 1;

const MAGIC: [u8; 4] = *b"HWCR";
const TRAILER_MAGIC: [u8; 4] = *b"HWCE";

// A chunk takes at least one page of any size.
const _: () = assert!(CHUNK_BYTES_MAX >= 65_536);

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The commit's number.
    pub lsn: u64,
    /// Every log byte below this position was synced when the record was begun.
    pub synced: u64,
    /// Bytes of a page.
    pub page_size: u32,
    /// Pages of the database after the commit.
    pub pages_after: PageNumber,
    /// Pages in the record.
    pub page_count: u32,
}

impl Header {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.synced.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.page_size.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.pages_after.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.page_count.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header.
    /// # Errors
    /// `Magic`, `HeaderChecksum`, `Version` or `Field`; the checksum is judged before the version.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, RecordError> {
        if bytes[..4] != MAGIC {
            return Err(RecordError::Magic);
        }
        if u32_at(bytes, 44) != crc32c::crc32c(&bytes[..44]) {
            return Err(RecordError::HeaderChecksum);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let header = Self {
            lsn: u64_at(bytes, 8),
            synced: u64_at(bytes, 16),
            page_size: u32_at(bytes, 24),
            pages_after: u32_at(bytes, 28),
            page_count: u32_at(bytes, 32),
        };
        if bytes[6..8] != [0; 2] {
            return Err(RecordError::Field("flags"));
        }
        if bytes[36..44] != [0; 8] {
            return Err(RecordError::Field("reserved"));
        }
        if !is_page_size(header.page_size) {
            return Err(RecordError::Field("page size"));
        }
        if header.pages_after == 0 {
            return Err(RecordError::Field("pages after"));
        }
        if header.page_count > header.pages_after {
            return Err(RecordError::Field("page count"));
        }
        Ok(header)
    }

    /// Pages that fit into one chunk.
    fn chunk_pages(&self) -> usize {
        (CHUNK_BYTES_MAX / self.page_size as usize).clamp(1, CHUNK_PAGES_MAX)
    }
}

/// Whether SQLite has pages of this size.
#[must_use]
pub fn is_page_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (512..=65_536).contains(&bytes)
}
