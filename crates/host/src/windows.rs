//! Parts of an object that were read lately, for whoever goes through most of its blocks: those that were written together lie
//! together.

use crate::shared::{Fault, Shared};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a window: a read of that many costs little more than one of a block.
const WINDOW_BYTES: u64 = 128 << 10;
/// Bytes behind a window that are read with it, so that few blocks are cut.
const OVERLAP_BYTES: u64 = 8 << 10;
/// Windows that are kept, the last used ones: four mebibytes.
const WINDOWS_MAX: usize = 32;

/// The windows of one object.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// By their number: bytes, and when they were used last.
    kept: BTreeMap<u64, (Bytes, u64)>,
    uses: u64,
}

impl Windows {
    /// A range of the object.
    pub fn read(&mut self, shared: &Shared, object: u64, range: Range<u64>) -> Result<Bytes, Fault> {
        let number = range.start / WINDOW_BYTES;
        let start = number * WINDOW_BYTES;
        if range.end > start + WINDOW_BYTES + OVERLAP_BYTES {
            return shared.read(object, range);
        }
        self.uses += 1;
        let slice = |bytes: &Bytes, start: u64| {
            let within = (range.start - start) as usize..(range.end - start) as usize;
            (within.end <= bytes.len()).then(|| bytes.slice(within))
        };
        if let Some((bytes, used)) = self.kept.get_mut(&number)
            && let Some(found) = slice(bytes, start)
        {
            *used = self.uses;
            return Ok(found);
        }
        // The front of an object lies within a window.
        let bytes = match shared.read_some(object, start, WINDOW_BYTES + OVERLAP_BYTES)? {
            bytes if bytes.is_empty() => return shared.read(object, range),
            bytes => bytes,
        };
        let found = slice(&bytes, start);
        self.kept.insert(number, (bytes, self.uses));
        if self.kept.len() > WINDOWS_MAX
            && let Some(oldest) = self.kept.iter().min_by_key(|(_, (_, used))| *used).map(|(number, _)| *number)
        {
            self.kept.remove(&oldest);
        }
        found.map_or_else(|| shared.read(object, range), Ok)
    }
}
