//! Giving space back.

use super::{Log, Owner};
use crate::files::Spare;
use crate::format::PAGE;
use crate::format::state::{Condition, Spot};
use crate::recovered::Verdict;
use crate::types::{ReleaseError, Released};
use highwater_base::OwnerId;

impl Log {
    /// Gives back the oldest segments that nobody needs; never the one that is being written.
    pub(super) fn reclaim(&mut self) -> Result<Released, ReleaseError> {
        let ended = self.segments.len() - usize::from(self.tail.open && !self.segments.is_empty());
        let free = self.segments[..ended].iter().take_while(|segment| self.needs(segment).next().is_none()).count();
        if free == 0 {
            return Ok(Released::default());
        }
        let first = self.segments.get(free).map_or(self.next_number, |segment| segment.number);
        self.rebase(free, first);
        let before = (self.first_segment, self.unlisted);
        self.first_segment = first;
        if let Verdict::Recovering { segment, .. } | Verdict::Damaged { segment, .. } = self.unlisted
            && segment < first
        {
            self.unlisted = Verdict::Whole;
        }
        if let Err(error) = self.record() {
            (self.first_segment, self.unlisted) = before;
            return Err(error);
        }
        let mut released = Released::default();
        for segment in self.segments.drain(..free).collect::<Vec<_>>() {
            self.reader.remove(segment.number);
            released.segments += 1;
            released.bytes += segment.bytes;
            let path = self.files.segment_path(segment.number);
            let reuse = !segment.garbage
                && segment.bytes == self.options.segment_bytes
                && self.spares.len() < self.options.spare_segments_max
                && segment.file.length().is_ok_and(|length| length == segment.bytes);
            let done = if reuse {
                self.next_spare += 1;
                let spare = self.files.path(&format!("spare-{:016x}", self.next_spare));
                let done = self.files.rename(&path, &spare);
                self.spares.push(Spare { path: spare, file: segment.file });
                done
            } else {
                self.files.remove(&path)
            };
            done.map_err(|failure| self.poison(&failure))?;
        }
        self.metrics.segments_released += released.segments;
        self.files.restore_reserve().map_err(|failure| self.poison(&failure))?;
        Ok(released)
    }

    /// Moves every owner's base to the start of segment `first`, the one behind the `free` oldest.
    fn rebase(&mut self, free: usize, first: u64) {
        let base = Spot { segment: first, offset: 0 };
        for (owner, known) in &mut self.owners {
            let kept = self.segments[free..].iter().find_map(|segment| segment.ranges.get(owner));
            if known.state.base < base {
                known.state.base = base;
                known.state.base_sequence = kept.map_or(known.next_sequence, |range| range.sequence_first);
            }
        }
    }

    /// Makes the state durable. Without space for it nothing is lost but the call.
    fn record(&mut self) -> Result<(), ReleaseError> {
        let state = self.state(Condition::Open);
        match self.files.write_state(&state) {
            Ok(()) => Ok(()),
            Err(failure) if failure.is_full() => Err(ReleaseError::Full),
            Err(failure) => Err(self.poison(&failure).into()),
        }
    }

    pub(super) fn forget_owner(&mut self, owner: OwnerId) -> Result<Released, ReleaseError> {
        // The base must lie in what is durable: a crash would set the log's end back, and later frames before the base.
        self.flush()?;
        let known = self.owners.get(&owner);
        let mut after = known.map(|known| known.state).unwrap_or_default();
        let next_sequence = known.map_or(1, |known| known.next_sequence);
        let before = known.map(|known| known.state);
        after.base = match self.segments.last() {
            Some(segment) if self.tail.open => Spot { segment: segment.number, offset: self.tail.write_pos },
            _ => Spot { segment: self.next_number, offset: PAGE },
        };
        after.base_sequence = next_sequence;
        after.first_needed = 0;
        after.mark = Verdict::Whole;
        self.owners.insert(owner, Owner { state: after, next_sequence });
        if let Err(error) = self.record() {
            match before {
                Some(state) => self.owners.insert(owner, Owner { state, next_sequence }),
                None => self.owners.remove(&owner),
            };
            return Err(error);
        }
        for segment in &mut self.segments {
            segment.ranges.remove(&owner);
        }
        self.reclaim()
    }
}
