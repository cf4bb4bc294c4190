//! The hash of a page, of which the database checksum is made.

use crate::engine::PageNumber;

/// The byte of a database file at which SQLite locks; the page around it is never written.
const LOCK_BYTE: u32 = 0x4000_0000;

/// The page that is never stored, never sent, and zero.
#[must_use]
pub fn lock_page(page_size: u32) -> PageNumber {
    LOCK_BYTE / page_size + 1
}

/// Whether a page is all zeros.
#[must_use]
pub fn is_zero(page: &[u8]) -> bool {
    // Most pages differ at once; the rest is compared in pieces that the compiler vectorises.
    page.chunks(64).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

/// The hash of one page: 0 if it is all zeros, otherwise the first eight bytes of BLAKE3(number ‖ image).
///
/// A zero page hashes to 0 so that a page that does not exist, one that was never written and one that was written as
/// zeros agree, on the primary, in a restore and in a verification.
#[must_use]
pub fn page_hash(number: PageNumber, page: &[u8]) -> u64 {
    if is_zero(page) {
        return 0;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(page);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}
