//! How a store is kept.

use crate::cold::ColdStore;
use crate::data::FILE_BYTES_MAX;

/// Sizes and bounds of one store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a data file, from 128 KiB to 64 MiB. Smaller files are for tests.
    pub file_bytes_max: u32,
    /// Bytes of deltas that never cause a new base of the index.
    pub index_delta_bytes_min: u64,
    /// Bytes of deltas that always do: what has records in a delta stays in memory, and all of a delta is there while a new
    /// base is written. With the 17 groups of a node, 2 MiB of each are half of the 64 MiB that hot metadata may take.
    pub index_delta_bytes_max: u64,
    /// Bytes of a block of the index's base: what is read to find one object that is not in memory. Smaller ones are for
    /// tests.
    pub index_block_bytes: u32,
    /// Data files that are kept open for reads. With 16 groups on a node, 16 each are 256 of the 1,024 descriptors that a
    /// process may have by default.
    pub handles_max: usize,
    /// Where data files may go that the disk is not to keep.
    pub cold: Option<ColdStore>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file_bytes_max: FILE_BYTES_MAX,
            index_delta_bytes_min: 1 << 20,
            index_delta_bytes_max: 2 << 20,
            index_block_bytes: 32 << 10,
            handles_max: 16,
            cold: None,
        }
    }
}
