//! Which frames are kept, and where they lie.
//!
//! Frames lie one behind the other in one object of the store, by offset in bytes. A point every few of them lets a reader
//! start near any number.

use crate::record::Event;
use crate::sequence::Seq;
use crate::time::Micros;
use highwater_base::codec::{DecodeError, Reader, Writer};
use std::collections::VecDeque;

/// Events between two points at the most: a reader passes over fewer.
const POINT_EVENTS_MAX: u64 = 256;
/// Bytes between two points at the most, beyond one event.
const POINT_BYTES_MAX: u64 = 256 << 10;

/// Where an event lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its number.
    pub seq: Seq,
    /// When it was made.
    pub at: Micros,
    /// Its first byte, in bytes from the start of the object.
    pub offset: u64,
    /// How many events came before it, ever.
    pub ordinal: u64,
}

/// The frames that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Events {
    /// The first of them is the oldest event that is kept.
    points: VecDeque<Point>,
    /// Where the next event goes, in bytes from the start of the object.
    pub end: u64,
    /// The newest event's number.
    pub newest: Option<Seq>,
    /// How many there were, ever.
    pub count: u64,
}

impl Events {
    /// Takes note of an event; returns where it goes.
    pub fn push(&mut self, event: &Event) -> u64 {
        let (offset, ordinal) = (self.end, self.count);
        let due = self
            .points
            .back()
            .is_none_or(|last| ordinal - last.ordinal >= POINT_EVENTS_MAX || offset - last.offset >= POINT_BYTES_MAX);
        if due {
            self.points.push_back(Point { seq: event.seq, at: event.at, offset, ordinal });
        }
        self.end += u64::from(event.place.end - event.place.start);
        self.newest = Some(event.seq);
        self.count += 1;
        offset
    }

    /// The oldest event that is kept.
    #[must_use]
    pub fn oldest(&self) -> Option<Point> {
        self.points.front().copied()
    }

    /// Where to start for the events behind a number: at one that is not behind the first of them.
    #[must_use]
    pub fn start_behind(&self, seq: u64) -> Option<Point> {
        let behind = self.points.partition_point(|point| point.seq.0 <= seq);
        self.points.get(behind.saturating_sub(1)).copied()
    }

    /// Where to start for the event before which so many came: at one that is not behind it. `None` if it is not kept any more.
    #[must_use]
    pub fn start_at(&self, ordinal: u64) -> Option<Point> {
        let behind = self.points.partition_point(|point| point.ordinal <= ordinal);
        self.points.get(behind.checked_sub(1)?).copied()
    }

    /// Gives up events that are older than `before` or for which there are more than `bytes_max` bytes, point by point, but
    /// none that is not older than `keep_from`. Returns the offset below which nothing is kept, if it moved.
    pub fn expire(&mut self, before: Micros, bytes_max: u64, keep_from: Option<Micros>) -> Option<u64> {
        let mut moved = None;
        while let (Some(first), Some(second)) = (self.points.front().copied(), self.points.get(1).copied()) {
            let old = second.at <= before || self.end - first.offset > bytes_max;
            if !old || keep_from.is_some_and(|from| second.at > from) {
                break;
            }
            self.points.pop_front();
            moved = Some(second.offset);
        }
        moved
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u64(self.end).u64(self.count).option(self.newest, |out, seq| {
            out.u64(seq.0);
        });
        out.u32(self.points.len() as u32);
        for point in &self.points {
            out.u64(point.seq.0).u64(point.at.0).u64(point.offset).u64(point.ordinal);
        }
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let (end, count) = (input.u64()?, input.u64()?);
        let newest = input.option(Reader::u64)?.map(Seq);
        let mut points: VecDeque<Point> = VecDeque::new();
        for _ in 0..input.u32()? {
            let (seq, at) = (Seq(input.u64()?), Micros(input.u64()?));
            let point = Point { seq, at, offset: input.u64()?, ordinal: input.u64()? };
            let behind = points
                .back()
                .is_none_or(|last| last.seq < point.seq && last.offset < point.offset && last.ordinal < point.ordinal);
            if !behind || Some(point.seq) > newest || point.offset >= end || point.ordinal >= count {
                return Err(DecodeError::Invalid("point of the events"));
            }
            points.push_back(point);
        }
        if points.is_empty() != newest.is_none() {
            return Err(DecodeError::Invalid("points of the events"));
        }
        Ok(Self { points, end, newest, count })
    }
}
