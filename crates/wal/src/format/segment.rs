//! A segment's header and its file's names.

use super::{Place, VERSION, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"HWLOGSEG";
/// Bytes of the header that mean something.
pub(crate) const SEGMENT_HEADER: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub place: Place,
    pub bytes: u64,
    /// Where the segment before ends its last batch of frames; 0 without one.
    pub previous_end: u64,
    /// Where the segment before has its table; 0 if it has none.
    pub previous_table: u64,
}

/// What the first bytes of a segment say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFound {
    Good(SegmentHeader),
    /// A later program wrote it.
    Version(u16),
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.place.segment.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.place.identity.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous_end.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.previous_table.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> HeaderFound {
        let Some(bytes) = bytes.get(..SEGMENT_HEADER) else { return HeaderFound::Damaged };
        if bytes[..8] != MAGIC || u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return HeaderFound::Damaged;
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return HeaderFound::Version(version);
        }
        HeaderFound::Good(Self {
            place: Place { segment: u64_at(bytes, 16), identity: u64_at(bytes, 32) },
            bytes: u64_at(bytes, 24),
            previous_end: u64_at(bytes, 40),
            previous_table: u64_at(bytes, 48),
        })
    }
}

/// The name of a segment's file.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:016x}.segment")
}

/// The name of a segment that was set aside for an owner that could not be believed any more.
pub(crate) fn kept_name(number: u64) -> String {
    format!("{number:016x}.kept")
}

/// The number of the segment that has this name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".segment")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (segment_name(number) == name).then_some(number)
}
