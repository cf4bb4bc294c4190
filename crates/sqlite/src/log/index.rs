//! Where the records of the log are, and what the database was after each.

use crate::engine::{LogPosition, PageNumber};
use crate::meta::Checkpoint;
use std::collections::VecDeque;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its first byte.
    pub start: LogPosition,
    /// Pages of the database after it.
    pub pages_after: PageNumber,
    /// The rolling checksum after it.
    pub checksum: u64,
}

/// The confirmed records from some point on, in order. The memory is 24 bytes a record that is still needed, and the
/// backlog bounds their number.
#[derive(Debug, Clone)]
pub struct Index {
    /// Where the first record starts, and the database before it. Pages and checksum are only right where a
    /// checkpoint is; nothing asks for them elsewhere.
    base: Checkpoint,
    records: VecDeque<Entry>,
    end: LogPosition,
}

impl Index {
    /// No record after `base`.
    #[must_use]
    pub fn new(base: Checkpoint) -> Self {
        Self { end: base.position, base, records: VecDeque::new() }
    }

    /// Adds a record that ends at `end`.
    pub fn push(&mut self, entry: Entry, end: LogPosition) {
        debug_assert!(entry.start == self.end && end > self.end);
        self.records.push_back(entry);
        self.end = end;
    }

    /// The end of the last record.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// The lsn of the last record.
    #[must_use]
    pub fn last_lsn(&self) -> u64 {
        self.base.lsn + self.records.len() as u64
    }

    fn end_of(&self, index: usize) -> LogPosition {
        self.records.get(index + 1).map_or(self.end, |next| next.start)
    }

    /// How many records end at or below `position`; `None` if that was before the first one kept.
    fn ended_below(&self, position: LogPosition) -> Option<usize> {
        if position < self.base.position {
            return None;
        }
        let started = self.records.partition_point(|entry| entry.start <= position);
        Some(if position >= self.end { self.records.len() } else { started.saturating_sub(1) })
    }

    /// The first byte of the record that holds `position`; `position` itself at the end; `None` below what is kept.
    #[must_use]
    pub fn record_start(&self, position: LogPosition) -> Option<LogPosition> {
        if position > self.end {
            return None;
        }
        let below = self.ended_below(position)?;
        Some(self.records.get(below).map_or(self.end, |entry| entry.start))
    }

    /// The last commit whose record ends at or below `position`.
    #[must_use]
    pub fn lsn_below(&self, position: LogPosition) -> Option<u64> {
        self.ended_below(position).map(|count| self.base.lsn + count as u64)
    }

    /// The end of the record of `lsn`; the start of the first one kept for the commit before it.
    #[must_use]
    pub fn record_end(&self, lsn: u64) -> Option<LogPosition> {
        match lsn.checked_sub(self.base.lsn)? {
            0 => Some(self.base.position),
            count if count <= self.records.len() as u64 => Some(self.end_of(count as usize - 1)),
            _ => None,
        }
    }

    /// The database at `position`, if a record ends there.
    #[must_use]
    pub fn checkpoint_at(&self, position: LogPosition) -> Option<Checkpoint> {
        let count = self.ended_below(position)?;
        let Some(last) = count.checked_sub(1) else {
            return (position == self.base.position).then_some(self.base);
        };
        let entry = self.records[last];
        (self.end_of(last) == position).then_some(Checkpoint {
            position,
            lsn: self.base.lsn + count as u64,
            pages: entry.pages_after,
            checksum: entry.checksum,
        })
    }

    /// Forgets the records that end at or below `needed`.
    pub fn trim(&mut self, needed: LogPosition) {
        while self.records.front().is_some() && self.end_of(0) <= needed {
            if let Some(entry) = self.records.pop_front() {
                let position = self.records.front().map_or(self.end, |next| next.start);
                let lsn = self.base.lsn + 1;
                self.base = Checkpoint { position, lsn, pages: entry.pages_after, checksum: entry.checksum };
            }
        }
        if self.records.capacity() > 4 * self.records.len() + 64 {
            self.records.shrink_to(2 * self.records.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_lsns_find_each_other() {
        let base = Checkpoint { position: LogPosition(100), lsn: 4, pages: 1, checksum: 10 };
        let mut index = Index::new(base);
        assert_eq!(index.checkpoint_at(LogPosition(100)), Some(base));
        for (start, end) in [(100, 150), (150, 170), (170, 300)] {
            index.push(Entry { start: LogPosition(start), pages_after: 2, checksum: end }, LogPosition(end));
        }
        let at = |position| (index.record_start(LogPosition(position)), index.lsn_below(LogPosition(position)));
        assert_eq!(at(99), (None, None));
        assert_eq!(at(100), (Some(LogPosition(100)), Some(4)));
        assert_eq!(at(149), (Some(LogPosition(100)), Some(4)));
        assert_eq!(at(150), (Some(LogPosition(150)), Some(5)));
        assert_eq!(at(299), (Some(LogPosition(170)), Some(6)));
        assert_eq!(at(300), (Some(LogPosition(300)), Some(7)));
        assert_eq!(index.record_start(LogPosition(301)), None);
        assert_eq!(
            [3, 4, 5, 7, 8].map(|lsn| index.record_end(lsn).map(|end| end.0)),
            [None, Some(100), Some(150), Some(300), None]
        );
        let middle = index.checkpoint_at(LogPosition(170)).expect("a boundary");
        assert_eq!((middle.lsn, middle.checksum), (6, 170));
        assert_eq!(index.checkpoint_at(LogPosition(171)), None);
        index.trim(LogPosition(171));
        assert_eq!(index.checkpoint_at(LogPosition(170)), Some(middle), "the base now");
        assert_eq!(index.last_lsn(), 7);
        index.trim(LogPosition(300));
        assert_eq!((index.last_lsn(), index.end(), index.lsn_below(LogPosition(300))), (7, LogPosition(300), Some(7)));
    }
}
