//! The bytes of one simulated file: what the page cache holds, and what the platter would hold without it.

use highwater_base::Random;
use highwater_base::random::SplitMix;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// Bytes of a page, the unit in which changes are remembered.
pub(super) const PAGE: usize = 4096;
/// Bytes of a sector, the unit that is written whole or not at all.
pub(super) const SECTOR: usize = 512;

pub(super) type Page = Arc<[u8; PAGE]>;

/// The page of every hole; shared, so that a zeroed file costs no memory.
static ZEROS: LazyLock<Page> = LazyLock::new(|| Arc::new([0; PAGE]));

/// How the page cache is treated when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing that was not synced is there.
    Lost,
    /// All of it happens to be there.
    Kept,
    /// Each page, sector and name goes its own way.
    Mixed,
}

/// What a page was before the cache changed it.
#[derive(Debug, Clone)]
struct Before {
    /// As the platter has it; `None` beyond the end of the durable file.
    durable: Option<Page>,
    /// A state between the two that may have reached the platter on its own.
    between: Option<Page>,
    /// A sync that failed took this page for written: the next one will not write it.
    forgotten: bool,
}

/// A file without its names.
#[derive(Debug, Clone)]
pub(super) struct Inode {
    /// A number that no other file of this disk ever has.
    pub number: u64,
    /// The name it was given last, for faults and the trace.
    pub path: PathBuf,
    /// Names that the running system sees.
    pub links: u32,
    /// Handles of this life of the system.
    pub handles: u32,
    /// The handle that holds the lock.
    pub locked_by: Option<u64>,
    length: u64,
    pages: Vec<Option<Page>>,
    durable_length: u64,
    length_forgotten: bool,
    before: BTreeMap<usize, Before>,
    reserved_pages: usize,
    charged_pages: usize,
}

impl Inode {
    pub(super) fn new(number: u64, path: &Path) -> Self {
        Self {
            number,
            path: path.to_path_buf(),
            links: 0,
            handles: 0,
            locked_by: None,
            length: 0,
            pages: Vec::new(),
            durable_length: 0,
            length_forgotten: false,
            before: BTreeMap::new(),
            reserved_pages: 0,
            charged_pages: 0,
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes this file claims of the disk's capacity.
    pub(super) fn charged_bytes(&self) -> u64 {
        (self.charged_pages * PAGE) as u64
    }

    /// Bytes it would claim more if `bytes` of them were written at `offset`.
    pub(super) fn growth_of_write(&self, offset: u64, bytes: usize) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let first = (offset / PAGE as u64) as usize;
        let last = ((offset + bytes as u64 - 1) / PAGE as u64) as usize;
        let new = (first..=last).filter(|page| !self.is_charged(*page)).count();
        (new * PAGE) as u64
    }

    fn is_charged(&self, page: usize) -> bool {
        page < self.reserved_pages || self.pages.get(page).is_some_and(Option::is_some)
    }

    /// Pages a reservation up to `end` would add, in bytes.
    pub(super) fn growth_of_reserve(&self, end: u64) -> u64 {
        let until = end.div_ceil(PAGE as u64) as usize;
        ((self.reserved_pages..until).filter(|page| !self.is_charged(*page)).count() * PAGE) as u64
    }

    pub(super) fn reserve(&mut self, end: u64) {
        let growth = self.growth_of_reserve(end) as usize / PAGE;
        self.reserved_pages = self.reserved_pages.max(end.div_ceil(PAGE as u64) as usize);
        self.charged_pages += growth;
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let available = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < available {
            let at = offset as usize + done;
            let (page, within) = (at / PAGE, at % PAGE);
            let length = (PAGE - within).min(available - done);
            let part = &mut buffer[done..done + length];
            match self.pages.get(page) {
                Some(Some(bytes)) => part.copy_from_slice(&bytes[within..within + length]),
                _ => part.fill(0),
            }
            done += length;
        }
        available
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64, random: &mut SplitMix) {
        if bytes.is_empty() {
            return;
        }
        self.charged_pages += self.growth_of_write(offset, bytes.len()) as usize / PAGE;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset as usize + done;
            let (page, within) = (at / PAGE, at % PAGE);
            let length = (PAGE - within).min(bytes.len() - done);
            self.remember(page, random);
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            let part = &bytes[done..done + length];
            let slot = &mut self.pages[page];
            if length == PAGE {
                let mut whole = [0; PAGE];
                whole.copy_from_slice(part);
                *slot = Some(if whole == [0; PAGE] { ZEROS.clone() } else { Arc::new(whole) });
            } else {
                let target = Arc::make_mut(slot.get_or_insert_with(|| ZEROS.clone()));
                target[within..within + length].copy_from_slice(part);
            }
            done += length;
        }
        let end = offset + bytes.len() as u64;
        // As a page that is written again is dirty again, so is the length once the file's end is.
        self.length_forgotten = self.length_forgotten && end < self.length;
        self.length = self.length.max(end);
    }

    /// Notes what a page was before it is changed.
    fn remember(&mut self, page: usize, random: &mut SplitMix) {
        let now = self.pages.get(page).cloned().flatten();
        match self.before.get_mut(&page) {
            None => {
                self.before.insert(page, Before { durable: now, between: None, forgotten: false });
            }
            Some(before) => {
                if before.forgotten {
                    before.forgotten = false;
                    before.between = now;
                } else if random.below(8) == 0 {
                    before.between = now;
                }
            }
        }
    }

    pub(super) fn set_length(&mut self, length: u64, random: &mut SplitMix) {
        if length < self.length {
            let keep = length.div_ceil(PAGE as u64) as usize;
            for page in keep..self.pages.len() {
                self.remember(page, random);
            }
            let cut = length as usize % PAGE;
            if cut != 0 && self.pages.get(keep - 1).is_some_and(Option::is_some) {
                self.remember(keep - 1, random);
                if let Some(Some(page)) = self.pages.get_mut(keep - 1) {
                    Arc::make_mut(page)[cut..].fill(0);
                }
            }
            self.pages.truncate(keep);
            self.reserved_pages = self.reserved_pages.min(keep);
            self.recount();
        }
        self.length_forgotten = self.length_forgotten && length == self.length;
        self.length = length;
    }

    fn recount(&mut self) {
        let written = self.pages.iter().skip(self.reserved_pages).filter(|page| page.is_some()).count();
        self.charged_pages = self.reserved_pages + written;
    }

    /// All that the cache holds is on the platter now, but what an earlier failed sync forgot.
    pub(super) fn sync(&mut self) {
        self.before.retain(|_, before| before.forgotten);
        if !self.length_forgotten {
            self.durable_length = self.length;
        }
        self.length_forgotten = self.length_forgotten && self.durable_length != self.length;
    }

    /// A sync failed: the cache takes its pages for written, and the platter may not have them.
    ///
    /// Source: Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020.
    pub(super) fn sync_failed(&mut self) {
        self.before.values_mut().for_each(|before| before.forgotten = true);
        self.length_forgotten = self.durable_length != self.length;
    }

    /// The page cache goes away; what of it reached the platter, `fate` and `random` decide.
    pub(super) fn lose_power(&mut self, fate: Fate, random: &mut SplitMix) {
        let length = self.length_after(fate, random);
        let cached = std::mem::take(&mut self.before);
        for (page, before) in cached {
            let now = self.pages.get(page).cloned().flatten();
            let survivor = match fate {
                Fate::Lost => before.durable,
                Fate::Kept => now,
                Fate::Mixed => mixed(before, now, random),
            };
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            self.pages[page] = survivor;
        }
        self.length = length;
        self.durable_length = length;
        self.length_forgotten = false;
        self.pages.truncate(length.div_ceil(PAGE as u64) as usize);
        let cut = length as usize % PAGE;
        if cut != 0
            && let Some(Some(page)) = self.pages.get_mut(length as usize / PAGE)
        {
            Arc::make_mut(page)[cut..].fill(0);
        }
        self.reserved_pages = self.reserved_pages.min(self.pages.len());
        self.restart();
        self.recount();
    }

    fn length_after(&self, fate: Fate, random: &mut SplitMix) -> u64 {
        let (low, high) = (self.durable_length.min(self.length), self.durable_length.max(self.length));
        match fate {
            Fate::Lost => self.durable_length,
            Fate::Kept => self.length,
            Fate::Mixed => match random.below(4) {
                0 => self.durable_length,
                1 if self.length > self.durable_length => low + random.below(high - low + 1),
                _ => self.length,
            },
        }
    }

    /// No handle and no lock outlives the process that had it.
    pub(super) fn restart(&mut self) {
        self.handles = 0;
        self.locked_by = None;
    }

    /// Turns one bit over, on the platter and in the cache; `false` beyond the end.
    pub(super) fn flip(&mut self, offset: u64, bit: u32) -> bool {
        if offset >= self.length {
            return false;
        }
        let (page, within) = (offset as usize / PAGE, offset as usize % PAGE);
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        Arc::make_mut(self.pages[page].get_or_insert_with(|| ZEROS.clone()))[within] ^= 1 << bit;
        if let Some(Before { durable: Some(durable), .. }) = self.before.get_mut(&page) {
            Arc::make_mut(durable)[within] ^= 1 << bit;
        }
        true
    }
}

/// Which of its states a page is found in, sector by sector where it tore.
fn mixed(before: Before, now: Option<Page>, random: &mut SplitMix) -> Option<Page> {
    match random.below(8) {
        0..=2 => before.durable,
        3..=4 => now,
        5 if before.between.is_some() => before.between,
        _ => {
            let newer = if random.below(4) == 0 { before.between.or(now) } else { now };
            let mut torn = *before.durable.unwrap_or_else(|| ZEROS.clone());
            let newer = newer.unwrap_or_else(|| ZEROS.clone());
            let which = random.next_u64();
            for sector in (0..PAGE / SECTOR).filter(|sector| which >> sector & 1 == 1) {
                let range = sector * SECTOR..(sector + 1) * SECTOR;
                torn[range.clone()].copy_from_slice(&newer[range]);
            }
            Some(Arc::new(torn))
        }
    }
}
