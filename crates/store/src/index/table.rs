//! Where the blocks of a base lie, and which keys may be in them: what memory holds of everything that is not resident.
//!
//! A block takes 24 bytes, and each key in it 10 bits of the block's filter: an object of which a block holds 160 takes
//! about one and a half bytes. Measured with states of 200 bytes: 1.47 bytes of table for each of 20,000 objects.

use std::ops::Range;

/// Bits of a filter for each key, of which a key sets [`HASHES`]: of keys that are not there it lets one in 120 pass.
const BITS_PER_KEY: usize = 10;
const HASHES: u64 = 7;
const WORD_BITS: usize = u64::BITS as usize;

/// A block that holds objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The first key in it.
    first: u64,
    /// Its position in the file.
    position: u64,
    /// Its bytes, with the header.
    length: u32,
    /// Index of the first word of its filter, which ends where the next one's begins.
    filter: u32,
}

/// The blocks of a base that hold objects, in order; an entry's index is its block's number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    filters: Vec<u64>,
}

/// The bits of a key in a filter of so many words.
fn bits(key: u64, words: usize) -> impl Iterator<Item = usize> {
    // Keys are random or hashes in life; tests count them from 0, so they are mixed (SplitMix64's finalizer).
    let mut mixed = key;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let (first, step) = (mixed & 0xffff_ffff, mixed >> 32 | 1);
    let bits = (words * WORD_BITS) as u64;
    (0..HASHES).map(move |number| ((first + number * step) % bits) as usize)
}

impl Table {
    /// Number of blocks that hold objects.
    pub fn blocks(&self) -> usize {
        self.entries.len()
    }

    /// Position and bytes of a block.
    pub fn place(&self, number: usize) -> (u64, u32) {
        let entry = &self.entries[number];
        (entry.position, entry.length)
    }

    /// The first key of a block.
    pub fn first(&self, number: usize) -> u64 {
        self.entries[number].first
    }

    /// The blocks that hold all keys from this one on begin here.
    pub fn start(&self, key: u64) -> usize {
        // An object may begin at the end of the block before the first one that begins with it.
        self.entries.partition_point(|entry| entry.first < key).saturating_sub(1)
    }

    /// The blocks in which a key may be, in order: none if it is certainly nowhere.
    pub fn candidates(&self, key: u64) -> impl Iterator<Item = usize> {
        let end = self.entries.partition_point(|entry| entry.first <= key);
        (self.start(key).min(end)..end).filter(move |number| self.passes(*number, key))
    }

    fn passes(&self, number: usize, key: u64) -> bool {
        let filter = &self.filters[self.words(number)];
        bits(key, filter.len()).all(|bit| filter[bit / WORD_BITS] >> (bit % WORD_BITS) & 1 == 1)
    }

    fn words(&self, number: usize) -> Range<usize> {
        let end = self.entries.get(number + 1).map_or(self.filters.len(), |next| next.filter as usize);
        self.entries[number].filter as usize..end
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry>() + self.filters.capacity() * size_of::<u64>()) as u64
    }
}

/// Learns of a base's blocks as they are written or read.
#[derive(Debug, Default)]
pub(crate) struct TableBuilder {
    table: Table,
    /// Keys of the block under way, each once.
    keys: Vec<u64>,
}

impl TableBuilder {
    /// The block under way holds a record of this key.
    pub fn key(&mut self, key: u64) {
        if self.keys.last() != Some(&key) {
            self.keys.push(key);
        }
    }

    /// The block is complete. The last one of a base may hold no object; it is not listed.
    pub fn block(&mut self, position: u64, length: u32) {
        let Some(first) = self.keys.first().copied() else { return };
        let filter = self.table.filters.len();
        let words = (self.keys.len() * BITS_PER_KEY).div_ceil(WORD_BITS);
        self.table.filters.resize(filter + words, 0);
        for key in self.keys.drain(..) {
            for bit in bits(key, words) {
                self.table.filters[filter + bit / WORD_BITS] |= 1 << (bit % WORD_BITS);
            }
        }
        self.table.entries.push(Entry { first, position, length, filter: filter as u32 });
    }

    /// What was learnt.
    pub fn finish(mut self) -> Table {
        self.table.entries.shrink_to_fit();
        self.table.filters.shrink_to_fit();
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of `keys` keys each, every third number.
    fn table(blocks: u64, keys: u64) -> Table {
        let mut builder = TableBuilder::default();
        for block in 0..blocks {
            (0..keys).for_each(|key| builder.key((block * keys + key) * 3));
            builder.block(block * 1000, 1000);
        }
        builder.finish()
    }

    #[test]
    fn every_key_is_found_in_its_block_and_nearly_no_other_is_looked_for() {
        let (blocks, keys) = (50, 160);
        let table = table(blocks, keys);
        let mut passed = 0;
        for key in 0..blocks * keys * 3 {
            let found: Vec<_> = table.candidates(key).collect();
            if key % 3 == 0 {
                assert!(found.contains(&((key / 3 / keys) as usize)), "{key}");
            } else {
                passed += found.len() as u64;
            }
        }
        assert!(passed * 50 < blocks * keys * 2, "{passed} of {} absent keys passed", blocks * keys * 2);
        assert!(table.bytes() < blocks * keys * 2, "{} bytes for {} keys", table.bytes(), blocks * keys);
        assert_eq!(Table::default().candidates(5).count(), 0);
    }

    #[test]
    fn an_object_of_several_blocks_is_looked_for_in_all_of_them() {
        let mut builder = TableBuilder::default();
        for (number, keys) in [&[1, 5][..], &[5], &[5, 9], &[9, 12]].into_iter().enumerate() {
            keys.iter().for_each(|key| builder.key(*key));
            builder.block(number as u64 * 100, 100);
        }
        // Its end holds no object.
        builder.block(400, 100);
        let table = builder.finish();
        assert_eq!(table.blocks(), 4);
        assert_eq!(table.candidates(5).collect::<Vec<_>>(), [0, 1, 2]);
        assert!([2, 3].iter().all(|number| table.candidates(9).any(|found| found == *number)));
        assert_eq!((table.start(0), table.start(1), table.start(5), table.start(6), table.start(99)), (0, 0, 0, 2, 3));
    }
}
