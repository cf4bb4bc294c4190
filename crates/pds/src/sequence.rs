//! The numbers of the stream: each is used once, and a restore leaves room above those of the lost run.
//!
//! A frame is seen after it is durable, so the next number follows from the newest durable one; nothing is reserved ahead.

use highwater_base::codec::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// A frame's number, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The largest number: what every consumer's integers hold.
pub const SEQ_MAX: u64 = (1 << 53) - 1;
/// By how much a restore raises the floor: more than a server hands out in the thirty days for which a copy is kept, at
/// 385,000 a second.
pub const RESTORE_RAISE: u64 = 1_000_000_000_000;
/// Microseconds since a copy was made that count in a raise, three years of them: a hundredth of all numbers. A clock that is decades
/// ahead does not use them up.
pub const PASSED_MICROS_MAX: u64 = 3 * 365 * 86_400 * SECOND_MICROS;

const SECOND_MICROS: u64 = 1_000_000;

/// There is no number any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the stream's numbers end at 2^53 - 1, and the next one would be {0}")]
pub struct Exhausted(pub u64);

/// What was handed out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    /// Every later number is above it.
    pub floor: u64,
    /// The newest number that is durable.
    pub durable: u64,
    /// The highest number that was handed to the log in this run; it may not have arrived.
    handed: u64,
    /// Ranges that no frame has a number in, each from behind its first to its second number: what a raise of the floor left.
    gaps: BTreeMap<u64, u64>,
}

impl Sequence {
    /// The next number, handed out.
    /// # Errors
    /// [`Exhausted`].
    pub fn take(&mut self) -> Result<Seq, Exhausted> {
        let next = self.newest() + 1;
        if next > SEQ_MAX {
            return Err(Exhausted(next));
        }
        self.handed = next;
        Ok(Seq(next))
    }

    /// Takes note that numbers up to this one are not to be handed out any more.
    pub(crate) fn pass(&mut self, seq: u64) {
        self.handed = self.handed.max(seq);
    }

    fn newest(&self) -> u64 {
        self.floor.max(self.durable).max(self.handed)
    }

    /// The highest number that could have been handed out to somebody who saw it.
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        self.floor.max(self.durable)
    }

    /// Where a restore's raise leads: above everything that is known to have been handed out, here or by a lost run of which something
    /// outside tells (`known`, 0 without it), so many microseconds after the newest record of what was restored.
    ///
    /// One copy may be put back twice, and nothing in it tells of the run that began with the first time: its numbers began
    /// [`RESTORE_RAISE`] above the copy, too. What passed since the copy was made, in microseconds, is more numbers than that run can
    /// have handed out. Whole seconds of it count: it is the margin, and no clock. That covers the run that was copied and
    /// those that began with this copy; of one that began with another copy, or above a number that was known, only what is known tells.
    /// # Errors
    /// [`Exhausted`] if no number would be left.
    pub fn raised(&self, known: u64, micros_since: u64) -> Result<u64, Exhausted> {
        let passed = micros_since / SECOND_MICROS * SECOND_MICROS;
        let floor = self.newest().max(known).saturating_add(RESTORE_RAISE).saturating_add(passed);
        if floor < SEQ_MAX { Ok(floor) } else { Err(Exhausted(floor)) }
    }

    /// Takes note that a frame is durable.
    pub fn note(&mut self, seq: Seq) {
        self.durable = self.durable.max(seq.0);
    }

    /// Raises the floor. What lies between is a gap.
    pub fn raise(&mut self, floor: u64) {
        let below = self.ceiling();
        if floor > below {
            self.gaps.insert(below, floor);
            self.floor = floor;
        }
    }

    /// The end of the gap that a cursor lies in, if it lies in one: above the last number before it, and below or at its end.
    #[must_use]
    pub fn gap(&self, cursor: u64) -> Option<u64> {
        let (below, end) = self.gaps.range(..cursor).next_back()?;
        (cursor > *below && cursor <= *end).then_some(*end)
    }

    /// Ranges that no frame has a number in, in order: each lies above its first number, and reaches up to its second.
    pub fn gaps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.gaps.iter().map(|(below, end)| (*below, *end))
    }

    /// Forgets gaps that end below the oldest number that is kept.
    pub fn forget_gaps(&mut self, oldest: u64) {
        self.gaps.retain(|_, end| *end >= oldest);
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u64(self.floor).u64(self.durable).u32(self.gaps.len() as u32);
        for (below, end) in &self.gaps {
            out.u64(*below).u64(*end);
        }
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let (floor, durable) = (input.u64()?, input.u64()?);
        if floor.max(durable) > SEQ_MAX {
            return Err(DecodeError::Invalid("number of the stream"));
        }
        let (mut gaps, mut last) = (BTreeMap::new(), 0);
        for _ in 0..input.u32()? {
            let (below, end) = (input.u64()?, input.u64()?);
            // In order and apart, though one may begin where another ends; none reaches above the floor that left it.
            if below < last || below >= end || end > floor {
                return Err(DecodeError::Invalid("gap"));
            }
            gaps.insert(below, end);
            last = end;
        }
        Ok(Self { floor, durable, handed: 0, gaps })
    }
}
