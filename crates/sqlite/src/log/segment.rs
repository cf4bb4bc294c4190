//! The header of a segment.

use crate::engine::LogPosition;
use crate::record::RecordError;

/// Bytes before a segment's first record.
pub const SEGMENT_HEADER_BYTES: u64 = 64;

const MAGIC: [u8; 8] = *b"HWSEGLOG";
const VERSION: u16 = 1;

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log it belongs to.
    pub lineage: [u8; 16],
    /// The position of its first record byte.
    pub position: LogPosition,
    /// The lsn of its first record.
    pub first_lsn: u64,
}

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.lineage);
        bytes[32..40].copy_from_slice(&self.position.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_lsn.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header.
    /// # Errors
    /// `Magic`, `HeaderChecksum` or `Version`; the checksum is judged before the version.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES as usize]) -> Result<Self, RecordError> {
        if bytes[..8] != MAGIC {
            return Err(RecordError::Magic);
        }
        if bytes[60..] != crc32c::crc32c(&bytes[..60]).to_le_bytes() {
            return Err(RecordError::HeaderChecksum);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        if bytes[10..16] != [0; 6] || bytes[48..60] != [0; 12] {
            return Err(RecordError::Field("reserved"));
        }
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(field)
        };
        let mut lineage = [0; 16];
        lineage.copy_from_slice(&bytes[16..32]);
        Ok(Self { lineage, position: LogPosition(number(32)), first_lsn: number(40) })
    }
}
