//! The wal-index in heap memory.
//!
//! SQLite maps it in regions of 32 KiB and keeps their addresses, so a region never moves and is freed only with the
//! database. Its header is two copies of 48 bytes, followed by the checkpoint's counters.

use crate::ffi::code;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a region: the only size SQLite asks for.
const REGION_BYTES: usize = 32 << 10;
const REGION_WORDS: usize = REGION_BYTES / 4;
/// Regions of one database: 2^20 regions index 2^32 frames, more than a frame number can name.
const REGIONS_MAX: usize = 1 << 20;

/// Offsets in words of four bytes, in the first region.
mod word {
    /// One byte that is 1 once the header is valid, then flags and the page size.
    pub const INITIALISED: usize = 3;
    pub const FRAME_MAX: usize = 4;
    /// Words of one copy of the header.
    pub const HEADER: usize = 12;
    pub const BACKFILLED: usize = 24;
    pub const BACKFILL_ATTEMPTED: usize = 32;
}

/// A region as SQLite sees it: memory that several connections read and write at once, ordered by their locks.
struct Region(Box<[AtomicU32; REGION_WORDS]>);

/// All regions of one database.
#[derive(Default)]
pub struct Index {
    regions: Mutex<Vec<Region>>,
}

impl Index {
    /// The address of region `number`, made of zeros if there is none and `extend` says so; null without.
    /// # Errors
    /// `SQLITE_IOERR_SHMMAP` for a size or number SQLite never asks for.
    pub fn map(&self, number: usize, bytes: usize, extend: bool) -> Result<*mut AtomicU32, c_int> {
        if bytes != REGION_BYTES || number >= REGIONS_MAX {
            return Err(code::IOERR_SHMMAP);
        }
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if extend {
            while regions.len() <= number {
                regions.push(Region(zeros()));
            }
        }
        Ok(regions.get(number).map_or(std::ptr::null_mut(), |region| region.0.as_ptr().cast_mut()))
    }

    /// Empties the wal-index, as deleting its file would: the next connection builds it again.
    pub fn clear(&self) {
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        for word in regions.iter().flat_map(|region| region.0.iter()) {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// The last frame of the published header; `None` while no valid header is published, as before a recovery.
    /// Exact only for a caller under the writer's slot.
    #[must_use]
    pub fn frame_max(&self) -> Option<u32> {
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let words = &regions.first()?.0;
        let load = |at: usize| words.get(at).map(|word| word.load(Ordering::SeqCst));
        let initialised = load(word::INITIALISED)?.to_ne_bytes().first() == Some(&1);
        let whole = (0..word::HEADER).all(|at| load(at) == load(at + word::HEADER));
        if initialised && whole { load(word::FRAME_MAX) } else { None }
    }

    /// The frames that are in the database file, synced or not; zero without a wal-index.
    #[must_use]
    pub fn backfilled(&self) -> u32 {
        self.word(word::BACKFILLED)
    }

    /// The frames that the running checkpoint copies.
    #[must_use]
    pub fn backfill_attempted(&self) -> u32 {
        self.word(word::BACKFILL_ATTEMPTED)
    }

    fn word(&self, at: usize) -> u32 {
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.first().and_then(|region| region.0.get(at)).map_or(0, |word| word.load(Ordering::SeqCst))
    }
}

fn zeros() -> Box<[AtomicU32; REGION_WORDS]> {
    Box::new([const { AtomicU32::new(0) }; REGION_WORDS])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poke(index: &Index, at: usize, value: u32) {
        let region = index.map(0, REGION_BYTES, true).expect("region");
        // SAFETY: the region has that many words.
        unsafe { (*region.add(at)).store(value, Ordering::SeqCst) };
    }

    #[test]
    fn a_header_counts_only_when_both_copies_agree() {
        let index = Index::default();
        assert_eq!(index.frame_max(), None);
        assert!(index.map(0, REGION_BYTES, false).expect("map").is_null());
        let valid = u32::from_ne_bytes([1, 0, 0, 16]);
        poke(&index, word::INITIALISED, valid);
        poke(&index, word::FRAME_MAX, 7);
        assert_eq!(index.frame_max(), None, "one copy is written");
        poke(&index, word::HEADER + word::INITIALISED, valid);
        poke(&index, word::HEADER + word::FRAME_MAX, 7);
        assert_eq!(index.frame_max(), Some(7));
        index.clear();
        assert_eq!(index.frame_max(), None);
    }

    #[test]
    fn a_region_never_moves() {
        let index = Index::default();
        let first = index.map(0, REGION_BYTES, true).expect("map");
        index.map(300, REGION_BYTES, true).expect("map");
        assert_eq!(index.map(0, REGION_BYTES, true), Ok(first));
        assert_eq!(index.map(0, 4096, true), Err(code::IOERR_SHMMAP));
    }
}
