//! Parts of an object that were read lately, for whoever goes through most of its blocks: those that were written together lie
//! together.

use crate::shared::{Fault, Shared};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes behind a window that are read with it, so that few blocks are cut.
const OVERLAP_BYTES: u64 = 8 << 10;
/// Bytes of an object of which all is kept once it was read: of most repositories, so that nothing of them is read twice, in
/// whatever order it lies there. With eight exports that is 192 MiB at the most.
const WHOLE_BYTES_MAX: u64 = 24 << 20;

/// The windows of one object.
#[derive(Debug)]
pub(crate) struct Windows {
    /// By their number: bytes, and when they were used last.
    kept: BTreeMap<u64, (Bytes, u64)>,
    uses: u64,
    /// Nothing lies below.
    front: u64,
    window_bytes: u64,
    windows_max: usize,
}

impl Windows {
    /// For an object of which these bytes are in use.
    pub fn new(used: Range<u64>) -> Self {
        // Of the log whole frames are read, so that large windows cost little more; of a large object small ones are kept, since
        // its parts are needed in any order.
        let whole = used.end - used.start <= WHOLE_BYTES_MAX;
        let (window_bytes, windows_max) = if whole { (1 << 20, 26) } else { (128 << 10, 64) };
        Self { kept: BTreeMap::new(), uses: 0, front: used.start, window_bytes, windows_max }
    }

    /// A range of the object.
    pub fn read(&mut self, shared: &Shared, object: u64, range: Range<u64>) -> Result<Bytes, Fault> {
        let number = range.start / self.window_bytes;
        let (start, end) = (number * self.window_bytes, (number + 1) * self.window_bytes + OVERLAP_BYTES);
        let start = start.max(self.front);
        if range.start < start || range.end > end {
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
        let bytes = shared.read_some(object, start, end - start)?;
        let found = slice(&bytes, start);
        self.kept.insert(number, (bytes, self.uses));
        if self.kept.len() > self.windows_max
            && let Some(oldest) = self.kept.iter().min_by_key(|(_, (_, used))| *used).map(|(number, _)| *number)
        {
            self.kept.remove(&oldest);
        }
        found.map_or_else(|| shared.read(object, range), Ok)
    }
}
