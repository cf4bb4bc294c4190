//! The events that readers of one stream have yet to take, each encoded once.
//!
//! A line begins where its first reader stands and goes on with whatever is appended. It counts who stands in front of
//! each event, so that an event is dropped as soon as nobody is left who will take it, and it is bounded: readers who
//! fall too far behind lose their place, and read on their own until they have caught up.

use super::encode::{Encoder, control};
use bytes::Bytes;
use highwater_base::Offset;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

/// Bytes of events that wait for the slowest of their readers. Two of the largest pieces: one that is being sent while
/// the other is made. A reader further behind reads on its own, in fewer and larger pieces.
const BYTES_MAX: usize = 2 << 20;

/// Events that do. Small ones come faster than any reader needs them one by one.
const EVENTS_MAX: usize = 64;

/// One read of a stream as every reader that stands at its start is told it.
#[derive(Debug)]
pub(crate) struct Event {
    /// Where its bytes begin.
    pub start: Offset,
    /// What the encoder held in front of them.
    pub before: Encoder,
    /// Where they end.
    pub next: Offset,
    /// What the encoder holds behind them.
    pub after: Encoder,
    /// The data event, if there is something to show, and the control event behind it; empty if nothing is told.
    pub bytes: Bytes,
    /// Bytes of the data event.
    pub data: usize,
    /// The cursor that the control event states.
    pub cursor: u64,
    /// Whether `next` is the stream's end.
    pub up_to_date: bool,
    /// Whether it is that of a closed stream.
    pub closed: bool,
}

impl Event {
    /// The control event for a reader who was given a greater cursor before.
    pub(crate) fn control(&self, cursor: u64) -> Bytes {
        let mut own = Vec::new();
        let shown = Offset(self.next.0.saturating_sub(self.after.held()));
        control(shown, (!self.closed).then_some(cursor), self.up_to_date, self.closed, &mut own);
        own.into()
    }
}

/// Where a reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// In front of the event of this number.
    Before(u64),
    /// Behind everything that the line knows: its own read saw more.
    Ahead,
}

/// What a reader finds in front of it.
#[derive(Debug)]
pub(crate) enum Found {
    /// This event; it stands behind it now.
    Event(Arc<Event>),
    /// Nothing yet.
    Nothing,
    /// The line has dropped what it stood in front of.
    Lost,
}

struct Entry {
    event: Arc<Event>,
    /// Readers who will take it next.
    standing: usize,
}

/// The events of one stream between its slowest reader and its end.
pub(crate) struct Line {
    /// The number of the first event in `events`.
    first: u64,
    events: VecDeque<Entry>,
    bytes: usize,
    /// Readers who took everything.
    at_end: usize,
    /// Readers who saw more than the line knows.
    ahead: usize,
    /// Where the next event begins, and what the encoder holds there.
    end: Offset,
    state: Encoder,
    /// Nothing will be added.
    ended: bool,
    /// Whom to wake when something changes.
    wakers: BTreeMap<u64, Waker>,
}

impl Line {
    /// A line that begins at `end`, where an encoder holds what `state` does.
    pub(crate) fn new(end: Offset, state: Encoder) -> Self {
        let (events, wakers) = (VecDeque::new(), BTreeMap::new());
        Self { first: 0, events, bytes: 0, at_end: 0, ahead: 0, end, state, ended: false, wakers }
    }

    /// Whether somebody waits for more than there is.
    pub(crate) fn is_wanted(&self) -> bool {
        self.at_end + self.ahead > 0
    }

    /// Whether nothing will be added.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Gives a place to a reader who has read up to `position` and whose encoder is in this state; none if it must read
    /// on its own.
    pub(crate) fn stand(&mut self, position: Offset, state: &Encoder) -> Option<Standing> {
        if position > self.end {
            self.ahead += 1;
            return Some(Standing::Ahead);
        }
        if position == self.end {
            let same = *state == self.state;
            self.at_end += usize::from(same);
            return same.then(|| Standing::Before(self.first + self.events.len() as u64));
        }
        let fits = |entry: &Entry| entry.event.start == position && entry.event.before == *state;
        let at = self.events.iter().position(fits)?;
        self.events[at].standing += 1;
        Some(Standing::Before(self.first + at as u64))
    }

    /// Whether the line has come to `position`, so that a reader who was ahead may look for a place.
    pub(crate) fn has_reached(&self, position: Offset) -> bool {
        self.end >= position
    }

    /// Takes a place back.
    pub(crate) fn leave(&mut self, standing: Standing) {
        let number = match standing {
            Standing::Ahead => {
                self.ahead -= 1;
                return;
            }
            Standing::Before(number) => number,
        };
        // Those who lost their place are not counted any more.
        let Some(at) = number.checked_sub(self.first) else { return };
        match usize::try_from(at).ok().and_then(|at| self.events.get_mut(at)) {
            Some(entry) => entry.standing -= 1,
            None => self.at_end -= 1,
        }
        self.trim();
    }

    /// Gives the event of this number to a reader who stands in front of it.
    pub(crate) fn take(&mut self, number: u64) -> Found {
        let Some(at) = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) else {
            return Found::Lost;
        };
        let Some(entry) = self.events.get_mut(at) else { return Found::Nothing };
        entry.standing -= 1;
        let event = Arc::clone(&entry.event);
        match self.events.get_mut(at + 1) {
            Some(next) => next.standing += 1,
            None => self.at_end += 1,
        }
        self.trim();
        Found::Event(event)
    }

    /// Adds what follows, and gives those who are to be woken.
    pub(crate) fn push(&mut self, event: Event) -> BTreeMap<u64, Waker> {
        (self.end, self.state) = (event.next, event.after.clone());
        self.bytes += event.bytes.len();
        self.events.push_back(Entry { event: Arc::new(event), standing: std::mem::take(&mut self.at_end) });
        self.trim();
        std::mem::take(&mut self.wakers)
    }

    /// Nothing follows; gives those who are to be woken.
    pub(crate) fn end(&mut self) -> BTreeMap<u64, Waker> {
        self.ended = true;
        std::mem::take(&mut self.wakers)
    }

    /// Remembers to wake a reader at the next change.
    pub(crate) fn wait(&mut self, reader: u64, waker: &Waker) {
        match self.wakers.get_mut(&reader) {
            Some(known) => known.clone_from(waker),
            None => drop(self.wakers.insert(reader, waker.clone())),
        }
    }

    /// Forgets a reader.
    pub(crate) fn forget(&mut self, reader: u64) {
        self.wakers.remove(&reader);
    }

    /// Drops what everybody took, and what nobody may wait for any longer. The latest event stays: its readers are on
    /// their way.
    fn trim(&mut self) {
        while let Some(front) = self.events.front() {
            let over = self.events.len() > 1 && (self.bytes > BYTES_MAX || self.events.len() > EVENTS_MAX);
            if front.standing > 0 && !over {
                break;
            }
            self.bytes -= front.event.bytes.len();
            self.first += 1;
            self.events.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
