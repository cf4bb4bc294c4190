//! Where the bytes of an object lie, and which of its extents the next run takes in.

use crate::data::{BLOCK_BYTES, BLOCK_PAYLOAD_BYTES};
use highwater_wal::Location;
use std::ops::Range;

/// Bytes of payload below which a trailing extent always moves into the next run.
///
/// One page: reading and writing it again costs no more than the write that happens anyway.
pub(crate) const SMALL_BYTES: u64 = 4 << 10;

/// Bytes of payload from which an extent stays where it is.
///
/// At 24 bytes in memory for each, 4 MiB cost 6 bytes for every MiB that is stored.
pub(crate) const SETTLED_BYTES: u64 = 4 << 20;

/// Trailing extents of one size class that a run of that class leaves alone.
pub(crate) const CLASS_EXTENTS_MAX: usize = 3;

/// A contiguous part of an object, laid down by one checkpoint as one run of blocks of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileExtent {
    /// Object offset of the first byte.
    pub start: u64,
    /// Bytes of payload, at least 1.
    pub length: u32,
    /// Number of the data file.
    pub file: u32,
    /// Position of the run's first block in the file, in bytes.
    pub position: u32,
}

impl FileExtent {
    /// Object offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }

    /// The rest of it when the blocks that end at or below `front`, an object offset within it, are given up.
    ///
    /// What is left begins with a whole block, so that it is read like any other extent.
    fn behind(self, front: u64) -> Self {
        let blocks = front.saturating_sub(self.start) / BLOCK_PAYLOAD_BYTES as u64;
        let bytes = blocks * BLOCK_PAYLOAD_BYTES as u64;
        Self {
            start: self.start + bytes,
            length: self.length - bytes as u32,
            position: self.position + (blocks * BLOCK_BYTES as u64) as u32,
            ..self
        }
    }
}

/// A part of an object that one frame of the log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogExtent {
    /// Object offset of the first byte.
    pub start: u64,
    /// The frame's payload.
    pub source: Location,
    /// The part of that payload, in bytes.
    pub within: Range<u32>,
}

impl LogExtent {
    /// Bytes of the object.
    pub fn length(&self) -> u64 {
        u64::from(self.within.end - self.within.start)
    }

    /// Object offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.length()
    }

    /// Takes in an extent that continues this one in the same frame; `false` if it does not.
    pub fn join(&mut self, next: &LogExtent) -> bool {
        let continues = self.end() == next.start && self.source == next.source && self.within.end == next.within.start;
        if continues {
            self.within.end = next.within.end;
        }
        continues
    }
}

/// The size class of an extent: 0 below 4 KiB, then one for each factor of four, 6 from 4 MiB on.
fn class(length: u64) -> u32 {
    match length {
        0..SMALL_BYTES => 0,
        SETTLED_BYTES.. => 6,
        _ => (length / SMALL_BYTES).ilog2() / 2 + 1,
    }
}

/// How many of an object's extents stay when `added` bytes are moved behind them; the others go into the new run.
///
/// Afterwards an object has at most [`CLASS_EXTENTS_MAX`] extents of each class between small and settled, and one small
/// one, behind its last settled extent; a byte moves at most once for each class.
pub(crate) fn kept(extents: &[FileExtent], added: u64) -> usize {
    let (mut keep, mut run) = (extents.len(), added);
    loop {
        let own = class(run);
        let trailing = extents[..keep].iter().rev().map(|extent| class(u64::from(extent.length)));
        let small = trailing.clone().take_while(|class| *class == 0).count();
        let alike = trailing.take_while(|class| *class <= own && *class < 6).count();
        let take = if own == 6 || alike >= CLASS_EXTENTS_MAX { alike } else { small };
        if take == 0 {
            return keep;
        }
        run += extents[keep - take..keep].iter().map(|extent| u64::from(extent.length)).sum::<u64>();
        keep -= take;
    }
}

/// Gives up what lies below the object offset `front`: whole extents, and of the one that `front` lies in its whole blocks.
/// `freed` is told each part that went.
///
/// The result depends on the highest `front` alone, in however many steps it was reached.
pub(crate) fn release(extents: &mut Vec<FileExtent>, front: u64, mut freed: impl FnMut(FileExtent)) {
    extents.drain(..find(extents, front, FileExtent::end)).for_each(&mut freed);
    if let Some(first) = extents.first_mut().filter(|first| first.start < front) {
        let rest = first.behind(front);
        if rest != *first {
            freed(FileExtent { length: first.length - rest.length, ..*first });
            *first = rest;
        }
    }
}

/// The same for what lies in the log, to the byte; returns how many bytes went.
pub(crate) fn release_logged(extents: &mut Vec<LogExtent>, front: u64) -> u64 {
    let mut bytes: u64 = extents.drain(..find(extents, front, LogExtent::end)).map(|gone| gone.length()).sum();
    if let Some(first) = extents.first_mut().filter(|first| first.start < front) {
        let part = front - first.start;
        first.within.start += part as u32;
        first.start = front;
        bytes += part;
    }
    bytes
}

/// Forgets the extents that a run from object offset `from` on took in or took the place of.
pub(crate) fn truncate(extents: &mut Vec<FileExtent>, from: u64) {
    extents.truncate(extents.partition_point(|extent| extent.end() <= from));
}

/// The extent that holds the byte at object offset `at`, as an index.
pub(crate) fn find<T>(extents: &[T], at: u64, end: impl Fn(&T) -> u64) -> usize {
    extents.partition_point(|extent| end(extent) <= at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_base::Random;
    use highwater_base::random::SplitMix;

    fn extent(start: u64, length: u64) -> FileExtent {
        FileExtent { start, length: length as u32, file: 1, position: 4096 }
    }

    /// Adds runs of the lengths that `draw` gives; returns the largest number of unsettled extents behind the last settled
    /// one, and how often the average byte was written.
    fn grow(runs: usize, mut draw: impl FnMut() -> u64) -> (usize, f64) {
        let (mut extents, mut end, mut written, mut worst) = (Vec::new(), 0, 0, 0);
        for _ in 0..runs {
            let added = draw();
            extents.truncate(kept(&extents, added));
            let start = extents.last().map_or(0, FileExtent::end);
            end += added;
            written += end - start;
            extents.push(extent(start, end - start));
            let open = extents.iter().rev().take_while(|extent| class(u64::from(extent.length)) < 6).count();
            worst = worst.max(open);
        }
        assert!(extents.len() as u64 <= end / SETTLED_BYTES + 16, "{} extents of {end} bytes", extents.len());
        (worst, written as f64 / end as f64)
    }

    #[test]
    fn a_stream_fed_by_trickles_keeps_few_extents_and_is_seldom_rewritten() {
        for added in [4096, 5000, 16_384, 65_536, 100_000, 1 << 20] {
            let (worst, written) = grow(3000, || added);
            assert!(worst <= 16 && written <= 7.0, "{added}: {worst} extents, each byte written {written} times");
        }
        let (worst, _) = grow(30_000, || 100);
        assert!(worst <= 16, "{worst}");
    }

    #[test]
    fn random_sizes_keep_few_extents() {
        let mut random = SplitMix::new(3);
        let (worst, written) = grow(3000, || 1 + random.next_u64() % (1 << (random.next_u64() % 24)));
        assert!(worst <= 16 && written < 7.0, "{worst} {written}");
    }

    #[test]
    fn releasing_in_steps_or_at_once_leaves_the_same_extents_and_frees_the_same_bytes() {
        let extents = [extent(0, 100), extent(100, 300_000), extent(300_100, 5)];
        for last in [0, 1, 99, 100, 65_604, 65_605, 131_107, 131_108, 300_000, 300_100, 300_104, 300_105] {
            let (mut stepwise, mut stepped) = (extents.to_vec(), 0);
            for front in (0..last).step_by(7919).chain([last]) {
                release(&mut stepwise, front, |gone| stepped += u64::from(gone.length));
            }
            let (mut at_once, mut freed) = (extents.to_vec(), 0);
            release(&mut at_once, last, |gone| freed += u64::from(gone.length));
            assert_eq!((&stepwise, stepped), (&at_once, freed), "{last}");
            let left: u64 = at_once.iter().map(|extent| u64::from(extent.length)).sum();
            assert_eq!(left + freed, 300_105, "{last}");
            assert!(at_once.first().is_none_or(|first| first.end() > last && last < first.start + 65_504), "{last}");
        }
    }

    #[test]
    fn one_extent_in_memory_is_24_bytes() {
        assert_eq!(size_of::<FileExtent>(), 24);
    }
}
