//! Giving space back.

use super::{Log, Owner, Segment};
use crate::files::{Failure, Spare};
use crate::format::PAGE;
use crate::format::state::{Condition, Spot};
use crate::recovered::Verdict;
use crate::types::{ReleaseError, Released};
use highwater_base::OwnerId;

impl Log {
    /// Gives back the oldest segments that nobody needs, and sets aside those that only marked owners do; never the one
    /// that is being written.
    pub(super) fn reclaim(&mut self) -> Result<Released, ReleaseError> {
        let free = self.free(|log, segment| log.holds(segment).next().is_none());
        self.take_out(free, &[])
    }

    /// Sets aside the oldest segments that only abandoned owners need, and marks these: the log would be full for the
    /// others.
    pub(super) fn make_room(&mut self) -> Result<Released, ReleaseError> {
        let free = self.free(|log, segment| log.holds(segment).all(|(owner, _)| log.abandoned.contains(&owner)));
        let segments = &self.segments[..free];
        let lost = segments.iter().flat_map(|segment| self.holds(segment).map(|(owner, _)| (owner, segment.number)));
        let lost: Vec<_> = lost.collect();
        self.take_out(free, &lost)
    }

    /// How many of the oldest ended segments are `free`.
    fn free(&self, free: impl Fn(&Self, &Segment) -> bool) -> usize {
        let ended = self.segments.len() - usize::from(self.tail.open && !self.segments.is_empty());
        self.segments[..ended].iter().take_while(|segment| free(self, segment)).count()
    }

    /// Takes the `free` oldest segments out of the log, and marks the owners that `lost` names, each with a segment.
    fn take_out(&mut self, free: usize, lost: &[(OwnerId, u64)]) -> Result<Released, ReleaseError> {
        if free == 0 {
            return Ok(Released::default());
        }
        let before: Vec<_> = self.owners.iter().map(|(owner, known)| (*owner, known.state)).collect();
        let (first_segment, unlisted) = (self.first_segment, self.unlisted);
        let first = self.segments.get(free).map_or(self.next_number, |segment| segment.number);
        self.rebase(free, first);
        self.first_segment = first;
        for (owner, segment) in lost {
            if let Some(known) = self.owners.get_mut(owner).filter(|known| known.state.mark.is_whole()) {
                known.state.mark = Verdict::Damaged { segment: *segment, offset: 0 };
            }
        }
        if let Verdict::Recovering { segment, .. } | Verdict::Damaged { segment, .. } = self.unlisted
            && segment < first
        {
            self.unlisted = Verdict::Whole;
        }
        if let Err(error) = self.record() {
            (self.first_segment, self.unlisted) = (first_segment, unlisted);
            for (owner, state) in before {
                self.owners.entry(owner).and_modify(|known| known.state = state);
            }
            return Err(error);
        }
        let mut released = Released::default();
        for segment in self.segments.drain(..free).collect::<Vec<_>>() {
            released.segments += 1;
            released.bytes += segment.bytes;
            self.put_away(segment).map_err(|failure| self.poison(&failure))?;
        }
        self.metrics.segments_released += released.segments;
        self.retry_space = true;
        self.files.restore_reserve().map_err(|failure| self.poison(&failure))?;
        Ok(released)
    }

    /// Does with the file of a segment that is no part of the log any more what is due: keeps it for an owner that still
    /// needed it, or uses it again, or removes it.
    fn put_away(&mut self, segment: Segment) -> Result<(), Failure> {
        self.reader.remove(segment.number);
        if self.needs(&segment).next().is_some() {
            self.metrics.segments_kept += 1;
            return self.files.set_aside(segment.number);
        }
        let path = self.files.segment_path(segment.number);
        let reuse = !segment.garbage
            && segment.bytes == self.options.segment_bytes
            && self.spares.len() < self.options.spare_segments_max
            && segment.file.length().is_ok_and(|length| length == segment.bytes);
        if !reuse {
            return self.files.remove(&path);
        }
        self.next_spare += 1;
        let spare = self.files.path(&format!("spare-{:016x}", self.next_spare));
        self.files.rename(&path, &spare)?;
        self.spares.push(Spare { path: spare, file: segment.file });
        Ok(())
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
