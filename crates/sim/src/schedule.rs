//! What is going to happen, in the order of virtual time.

use std::collections::BTreeMap;

/// Events by their time; those of one millisecond come in the order in which they were scheduled.
#[derive(Debug)]
pub struct Schedule<E> {
    now_ms: u64,
    next: u64,
    events: BTreeMap<(u64, u64), E>,
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self { now_ms: 0, next: 0, events: BTreeMap::new() }
    }
}

impl<E> Schedule<E> {
    /// Virtual milliseconds since the start of the run; never goes back.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Lets something happen in so many milliseconds.
    pub fn after(&mut self, delay_ms: u64, event: E) {
        self.events.insert((self.now_ms + delay_ms, self.next), event);
        self.next += 1;
    }

    /// Takes the next event out and moves time to it.
    pub fn take(&mut self) -> Option<E> {
        let ((at, _), event) = self.events.pop_first()?;
        self.now_ms = at;
        Some(event)
    }
}
