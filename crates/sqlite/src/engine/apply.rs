//! Writing records over a database file, in recovery and in a restore.

use crate::engine::PageNumber;
use crate::record::{Event, lock_page};
use highwater_disk::File;
use std::io;
use std::sync::Arc;

/// Writes the pages of records into a database file.
///
/// The file is cut to size only at the end, so that a shrink in the middle gives up no space that a later growth
/// needs: recovery works on a full disk. What a growth brings in without writing it is made zero instead.
pub struct Applier {
    file: Arc<dyn File>,
    page_size: u32,
    /// Pages of the database after the last whole record.
    pages: PageNumber,
    /// The first page of this record's growth that was not written yet.
    next: PageNumber,
    length: u64,
}

impl Applier {
    /// Applies to a file that is at a record boundary, or somewhere between that one and a later one.
    /// # Errors
    /// The system's.
    pub fn new(file: Arc<dyn File>, page_size: u32, pages: PageNumber) -> io::Result<Self> {
        let length = file.length()?;
        Ok(Self { file, page_size, pages, next: pages.saturating_add(1), length })
    }

    /// Takes the next event of a decoder.
    /// # Errors
    /// The system's.
    pub fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::Begin(_) => {
                self.next = self.pages.saturating_add(1);
                Ok(())
            }
            Event::Pages { numbers, images } => self.write(numbers, images),
            Event::Commit { header, .. } => {
                self.fill_gap(header.pages_after.saturating_add(1))?;
                self.pages = header.pages_after;
                Ok(())
            }
        }
    }

    fn write(&mut self, numbers: &[PageNumber], images: &[u8]) -> io::Result<()> {
        let page_bytes = self.page_size as usize;
        let mut at = 0;
        while at < numbers.len() {
            let run = (at + 1..numbers.len()).take_while(|i| numbers[*i] == numbers[at] + (i - at) as u32).count() + 1;
            if numbers[at] >= self.next {
                self.fill_gap(numbers[at])?;
                self.next = numbers[at] + run as u32;
            } else if numbers[at] + run as u32 > self.next {
                self.next = numbers[at] + run as u32;
            }
            let offset = self.offset(numbers[at]);
            self.file.write_at(&images[at * page_bytes..(at + run) * page_bytes], offset)?;
            self.length = self.length.max(offset + (run * page_bytes) as u64);
            at += run;
        }
        Ok(())
    }

    /// Zeroes what the file holds of the pages from `next` to before `until`.
    fn fill_gap(&mut self, until: PageNumber) -> io::Result<()> {
        while self.next < until {
            let offset = self.offset(self.next);
            if offset >= self.length {
                break;
            }
            if self.next != lock_page(self.page_size) {
                let length = u64::from(self.page_size).min(self.length - offset);
                self.file.write_at(&vec![0; length as usize], offset)?;
            }
            self.next += 1;
        }
        self.next = self.next.max(until);
        Ok(())
    }

    fn offset(&self, number: PageNumber) -> u64 {
        u64::from(number - 1) * u64::from(self.page_size)
    }

    /// Gives the file its size and syncs it.
    /// # Errors
    /// The system's.
    pub fn finish(self) -> io::Result<()> {
        let length = u64::from(self.pages) * u64::from(self.page_size);
        if self.file.length()? != length {
            self.file.set_length(length)?;
        }
        self.file.sync_all()
    }
}
