//! The bytes of a data file (`docs/formats/store.md`): its header page and its blocks.

use highwater_base::OwnerId;
use thiserror::Error;

/// Bytes of a data file at the most.
///
/// Small enough that a file dies whole now and then, large enough that a terabyte is 16 thousand names.
pub const FILE_BYTES_MAX: u32 = 64 << 20;

/// The format version of data files.
pub const VERSION: u16 = 1;

pub(crate) const PAGE_BYTES: u32 = 4096;
pub(crate) const BLOCK_HEADER_BYTES: usize = 32;
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
/// Payload of a full block.
pub(crate) const BLOCK_PAYLOAD_BYTES: usize = BLOCK_BYTES - BLOCK_HEADER_BYTES;
const MAGIC: [u8; 8] = *b"HWDATA\0\0";
const FILE_HEADER_BYTES: usize = 28;

// Positions are 32 bits wide, and a file has room for its header page and at least one full block.
const _: () = assert!(PAGE_BYTES as usize + BLOCK_BYTES <= FILE_BYTES_MAX as usize && FILE_BYTES_MAX < u32::MAX / 2);

/// What is wrong with bytes of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DataFault {
    /// They do not begin as a data file does, or the header's checksum is wrong.
    #[error("this is not the header of a data file")]
    Header,
    /// A later program wrote the file.
    #[error("the data file has format version {0}, which this program does not know")]
    Version(u16),
    /// Another owner's file, or one with another number.
    #[error("the data file belongs to another owner or bears another number")]
    Identity,
    /// A block's checksum does not fit its bytes.
    #[error("the block's checksum is wrong")]
    Checksum,
    /// A whole block, of other bytes than those expected here.
    #[error("the block holds other bytes than the index says")]
    Misplaced,
    /// The file ends before.
    #[error("the file ends early")]
    Short,
    /// The file is not there.
    #[error("the file is missing")]
    Missing,
}

/// The header page of a data file.
pub(crate) fn encode_file_header(owner: OwnerId, file: u32) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES as usize];
    page[..8].copy_from_slice(&MAGIC);
    page[8..10].copy_from_slice(&VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&file.to_le_bytes());
    page[16..24].copy_from_slice(&owner.0.to_le_bytes());
    let sum = crc32c::crc32c(&page[..24]);
    page[24..FILE_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    page
}

/// Checks that a file begins as the data file `file` of `owner`.
pub(crate) fn check_file_header(bytes: &[u8], owner: OwnerId, file: u32) -> Result<(), DataFault> {
    let header = bytes.get(..FILE_HEADER_BYTES).ok_or(DataFault::Short)?;
    if header[..8] != MAGIC {
        return Err(DataFault::Header);
    }
    let version = u16::from_le_bytes([header[8], header[9]]);
    if version != VERSION {
        return Err(DataFault::Version(version));
    }
    if crc32c::crc32c(&header[..24]) != u32_at(header, 24) {
        return Err(DataFault::Header);
    }
    if u32_at(header, 12) != file || u64_at(header, 16) != owner.0 {
        return Err(DataFault::Identity);
    }
    Ok(())
}

/// Appends a block to `out`.
pub(crate) fn encode_block(out: &mut Vec<u8>, file: u32, object: u64, start: u64, payload: &[u8]) {
    assert!(!payload.is_empty() && payload.len() <= BLOCK_PAYLOAD_BYTES, "a block has 1 to 65,504 bytes of payload");
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&file.to_le_bytes());
    out.extend_from_slice(&object.to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
    let sum = crc32c::crc32c(&out[at + 4..]);
    out[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// The payload of a block that must be exactly `block`, `length` bytes of `object` from `start` on.
pub(crate) fn check_block(block: &[u8], file: u32, object: u64, start: u64, length: usize) -> Result<&[u8], DataFault> {
    if block.len() != BLOCK_HEADER_BYTES + length {
        return Err(DataFault::Short);
    }
    if crc32c::crc32c(&block[4..]) != u32_at(block, 0) {
        return Err(DataFault::Checksum);
    }
    let identity = (u32_at(block, 4), u64_at(block, 8), u64_at(block, 16), u32_at(block, 24) as usize);
    if identity != (file, object, start, length) {
        return Err(DataFault::Misplaced);
    }
    Ok(&block[BLOCK_HEADER_BYTES..])
}

/// Bytes from the beginning of a sound block of `file` to the next one, if `bytes` begin with one.
pub(crate) fn next_block(bytes: &[u8], file: u32) -> Option<u64> {
    let header = bytes.get(..BLOCK_HEADER_BYTES)?;
    let length = u32_at(header, 24) as usize;
    let block = bytes.get(..BLOCK_HEADER_BYTES + length).filter(|_| (1..=BLOCK_PAYLOAD_BYTES).contains(&length))?;
    let sound = u32_at(header, 4) == file && crc32c::crc32c(&block[4..]) == u32_at(block, 0);
    sound.then_some(block.len() as u64)
}

/// Whether `bytes` begin with a sound block of `file`.
pub(crate) fn is_block(bytes: &[u8], file: u32) -> bool {
    next_block(bytes, file).is_some()
}

/// Bytes in the file of a run with `payload` bytes.
pub(crate) fn run_bytes(payload: u64) -> u64 {
    payload + payload.div_ceil(BLOCK_PAYLOAD_BYTES as u64) * BLOCK_HEADER_BYTES as u64
}

/// The most payload of a run that takes no more than `space` bytes of a file.
pub(crate) fn payload_within(space: u64) -> u64 {
    let full = space / BLOCK_BYTES as u64;
    let rest = (space % BLOCK_BYTES as u64).saturating_sub(BLOCK_HEADER_BYTES as u64);
    full * BLOCK_PAYLOAD_BYTES as u64 + rest
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNER: OwnerId = OwnerId(7);

    #[test]
    fn a_data_file_of_a_later_version_is_refused() {
        let mut page = encode_file_header(OWNER, 3);
        assert_eq!(check_file_header(&page, OWNER, 3), Ok(()));
        page[8] = 2;
        assert_eq!(check_file_header(&page, OWNER, 3), Err(DataFault::Version(2)));
    }

    #[test]
    fn a_data_file_of_another_owner_is_refused() {
        let page = encode_file_header(OWNER, 3);
        assert_eq!(check_file_header(&page, OwnerId(8), 3), Err(DataFault::Identity));
        assert_eq!(check_file_header(&page, OWNER, 4), Err(DataFault::Identity));
        assert_eq!(check_file_header(&page[..20], OWNER, 3), Err(DataFault::Short));
    }

    #[test]
    fn payload_within_is_the_inverse_of_run_bytes() {
        for space in [0, 1, 32, 33, 65_535, 65_536, 65_537, 65_568, 65_569, 200_000, 64 << 20] {
            let payload = payload_within(space);
            assert!(payload == 0 || run_bytes(payload) <= space, "{space}");
            assert!(run_bytes(payload + 1) > space, "{space}");
        }
    }

    proptest! {
        #[test]
        fn every_flipped_bit_of_a_block_is_found(payload in prop::collection::vec(any::<u8>(), 1..300), bit in any::<prop::sample::Index>()) {
            let mut block = Vec::new();
            encode_block(&mut block, 1, 2, 3, &payload);
            prop_assert_eq!(check_block(&block, 1, 2, 3, payload.len()), Ok(&payload[..]));
            prop_assert_eq!(check_block(&block, 1, 2, 4, payload.len()), Err(DataFault::Misplaced));
            let bit = bit.index(block.len() * 8);
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(check_block(&block, 1, 2, 3, payload.len()).is_err());
        }

        #[test]
        fn random_bytes_are_no_block(bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0usize..200) {
            prop_assert!(check_block(&bytes, 1, 2, 3, length).is_err());
            prop_assert!(check_file_header(&bytes, OWNER, 1).is_err());
        }
    }
}
