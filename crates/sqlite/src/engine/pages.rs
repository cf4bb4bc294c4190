//! The hashes of a database's pages, as far as they are known, and its rolling checksum.

use crate::engine::PageNumber;
use crate::record::{lock_page, page_hash};
use highwater_disk::File;
use std::collections::BTreeMap;
use std::io;

/// Bytes read at a time when a database is hashed.
const BLOCK_BYTES: usize = 256 << 10;

/// What is known of the pages' hashes.
///
/// A page that is in the table has that hash. One that is not is zero if it lies past `base_pages`, the smallest size
/// the database had since the table began; otherwise it is as the database file has it, for only what a record
/// changed since is ever written there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageTable {
    page_size: u32,
    pages: PageNumber,
    base_pages: PageNumber,
    checksum: u64,
    hashes: BTreeMap<PageNumber, u64>,
}

/// What a commit does to the table, computed before it and applied when it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Pages of the database afterwards.
    pub pages_after: PageNumber,
    /// The rolling checksum afterwards.
    pub checksum: u64,
    /// New hashes.
    pub hashes: Vec<(PageNumber, u64)>,
}

impl PageTable {
    /// A database whose file holds all of its pages.
    #[must_use]
    pub fn new(page_size: u32, pages: PageNumber, checksum: u64) -> Self {
        Self { page_size, pages, base_pages: pages, checksum, hashes: BTreeMap::new() }
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Pages of the database.
    #[must_use]
    pub fn pages(&self) -> PageNumber {
        self.pages
    }

    /// The rolling checksum.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    /// The change that a commit with these new hashes makes; hashes the table does not have are read from `file`.
    /// # Errors
    /// The system's.
    pub fn change(
        &self,
        pages_after: PageNumber,
        hashes: Vec<(PageNumber, u64)>,
        file: &dyn File,
    ) -> io::Result<Change> {
        let mut checksum = self.checksum;
        for (number, hash) in &hashes {
            checksum ^= hash ^ self.hash_of(*number, file)?;
        }
        for number in pages_after.saturating_add(1)..=self.pages {
            checksum ^= self.hash_of(number, file)?;
        }
        Ok(Change { pages_after, checksum, hashes })
    }

    fn hash_of(&self, number: PageNumber, file: &dyn File) -> io::Result<u64> {
        if number > self.pages || number == lock_page(self.page_size) {
            return Ok(0);
        }
        if let Some(hash) = self.hashes.get(&number) {
            return Ok(*hash);
        }
        if number > self.base_pages {
            return Ok(0);
        }
        let mut page = vec![0; self.page_size as usize];
        file.read_at(&mut page, u64::from(number - 1) * u64::from(self.page_size))?;
        Ok(page_hash(number, &page))
    }

    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        if change.pages_after < self.pages {
            drop(self.hashes.split_off(&(change.pages_after + 1)));
            self.base_pages = self.base_pages.min(change.pages_after);
        }
        self.pages = change.pages_after;
        self.checksum = change.checksum;
        self.hashes.extend(change.hashes);
    }

    /// The rolling checksum computed anew: known hashes from the table, the others from the file.
    /// # Errors
    /// The system's.
    pub fn compute(&self, file: &dyn File) -> io::Result<u64> {
        let page_bytes = self.page_size as usize;
        let block_pages = (BLOCK_BYTES / page_bytes).max(1) as u32;
        let mut block = vec![0; block_pages as usize * page_bytes];
        let mut checksum = self.hashes.values().fold(0, |all, hash| all ^ hash);
        let last = self.base_pages.min(self.pages);
        let mut first = 1;
        while first <= last {
            let read = file.read_at(&mut block, u64::from(first - 1) * u64::from(self.page_size))?;
            block[read..].fill(0);
            for (number, page) in (first..=last).zip(block.chunks_exact(page_bytes)) {
                if number != lock_page(self.page_size) && !self.hashes.contains_key(&number) {
                    checksum ^= page_hash(number, page);
                }
            }
            first = first.saturating_add(block_pages);
        }
        Ok(checksum)
    }
}
