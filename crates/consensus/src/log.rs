//! The entries that are not yet applied, in memory, as the crate `raft` reads them.

use crate::entry::{ConfState, HardState};
use raft::eraftpb::{Entry, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use std::collections::VecDeque;

/// Contiguous entries behind a base. The base's own entry is gone, its term is kept for matching.
///
/// Invariant: `entries[i].index == base_index + 1 + i`.
pub(crate) struct MemoryLog {
    base_index: u64,
    base_term: u64,
    hard_state: HardState,
    conf_state: ConfState,
    entries: VecDeque<Entry>,
}

impl MemoryLog {
    pub(crate) fn new(
        base: (u64, u64),
        hard_state: HardState,
        conf_state: ConfState,
        entries: VecDeque<Entry>,
    ) -> Self {
        let (base_index, base_term) = base;
        Self { base_index, base_term, hard_state, conf_state, entries }
    }

    /// Takes entries that follow or replace a tail: what conflicts is cut first.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let keep = first.index.saturating_sub(self.base_index + 1);
        assert!(keep <= self.entries.len() as u64, "entries {} leave a gap behind {}", first.index, self.last());
        assert!(first.index > self.base_index, "entry {} is below the base {}", first.index, self.base_index);
        self.entries.truncate(usize::try_from(keep).expect("entries in memory fit its size"));
        self.entries.extend(entries.iter().cloned());
    }

    /// Forgets the entries up to `index`, which are applied.
    pub(crate) fn compact(&mut self, index: u64) {
        while let Some(first) = self.entries.front() {
            if first.index > index {
                break;
            }
            (self.base_index, self.base_term) = (first.index, first.term);
            self.entries.pop_front();
        }
        // A log that held a burst gives its memory back.
        if self.entries.is_empty() && self.entries.capacity() > 1024 {
            self.entries = VecDeque::new();
        }
    }

    pub(crate) fn conf_state(&self) -> &ConfState {
        &self.conf_state
    }

    pub(crate) fn last(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }
}

impl Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.to_raft(), self.conf_state.to_raft()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let position = |index: u64| usize::try_from(index - self.base_index - 1).unwrap_or(usize::MAX);
        let mut left = max_size.into().unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        for entry in self.entries.range(position(low)..position(high)) {
            let bytes = entry.data.len() as u64;
            // At least one entry, whatever its size, or the log could never move on.
            if bytes > left && !entries.is_empty() {
                break;
            }
            left = left.saturating_sub(bytes);
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base_index {
            return Ok(self.base_term);
        }
        if index < self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let position = usize::try_from(index - self.base_index - 1).unwrap_or(usize::MAX);
        self.entries.get(position).map(|e| e.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        // A replica that lags behind the base needs the checkpoint's files; nothing here can send them.
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, data: vec![1; 10].into(), ..Default::default() }
    }

    fn log(base: u64, terms: &[u64]) -> MemoryLog {
        let entries = terms.iter().zip(base + 1..).map(|(&term, index)| entry(index, term)).collect();
        MemoryLog::new((base, 1), HardState::default(), ConfState::default(), entries)
    }

    #[test]
    fn a_conflicting_tail_is_cut_before_the_new_one_is_taken() {
        let mut log = log(4, &[1, 1, 1]);
        log.append(&[entry(6, 2)]);
        assert_eq!((log.last(), log.term(5), log.term(6)), (6, Ok(1), Ok(2)));
    }

    #[test]
    fn the_base_keeps_the_term_of_its_last_entry() {
        let mut log = log(4, &[1, 2, 3]);
        log.compact(6);
        assert_eq!((log.base_index, log.base_term), (6, 2));
        assert_eq!(log.term(6), Ok(2));
        assert!(matches!(log.term(5), Err(Error::Store(StorageError::Compacted))));
        assert!(matches!(log.term(8), Err(Error::Store(StorageError::Unavailable))));
        log.compact(7);
        assert_eq!((log.base_index, log.base_term, log.last()), (7, 3, 7));
    }

    #[test]
    fn a_size_limit_still_yields_one_entry() {
        let log = log(0, &[1, 1, 1]);
        let read = |max| log.entries(1, 4, max, GetEntriesContext::empty(false)).expect("in range").len();
        assert_eq!((read(Some(0)), read(Some(20)), read(None)), (1, 2, 3));
    }
}
