//! Who processes events: so many at once, those of one account in their order.

use super::limits::Limits;
use crate::frame::Frame;
use highwater_repo::syntax::Did;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Workers of one host.
const WORKERS: usize = 40;
/// Milliseconds between two tries at a limit.
const RETRY_MS: u64 = 100;

/// An event with its worker.
#[derive(Debug)]
pub(super) struct Work {
    pub frame: Frame,
    /// The limit at which it waits; beyond the last one it is processed.
    waits_at: usize,
    /// When it tries again; `None` while it waits for an answer of the host.
    retry_at: Option<u64>,
}

/// The workers of one connection.
#[derive(Debug)]
pub(super) struct Workers {
    slots: Vec<Option<Work>>,
    /// Events behind the one of the same account that a worker has, without bound.
    queues: BTreeMap<String, VecDeque<Frame>>,
    in_flight: BTreeSet<u64>,
    last: u64,
    /// The worker that tries first. The relay leaves it to chance; in turn is what chance comes to.
    first: usize,
}

/// Whose order an event keeps. What is about nobody keeps one of its own.
fn key(frame: &Frame) -> &str {
    frame.did().map_or("", Did::as_str)
}

impl Workers {
    pub fn new() -> Self {
        Self {
            slots: (0..WORKERS).map(|_| None).collect(),
            queues: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            last: 0,
            first: 0,
        }
    }

    /// The number behind which nothing is left to do, of those that were finished in order; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn is_idle(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Takes an event; gives it back if every worker has another account's: whoever brought it waits with it.
    pub fn add(&mut self, frame: Frame, now: u64) -> Option<Frame> {
        self.in_flight.extend(frame.sequence());
        if let Some(queue) = self.queues.get_mut(key(&frame)) {
            queue.push_back(frame);
            return None;
        }
        self.queues.insert(key(&frame).to_owned(), VecDeque::new());
        self.feed(frame, now)
    }

    /// Takes an event that was given back.
    pub fn feed(&mut self, frame: Frame, now: u64) -> Option<Frame> {
        match self.slots.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some(Work { frame, waits_at: 0, retry_at: Some(now) });
                None
            }
            None => Some(frame),
        }
    }

    /// When the next worker tries again.
    pub fn due(&self) -> Option<u64> {
        self.slots.iter().flatten().filter_map(|work| work.retry_at).min()
    }

    /// The worker, of those that try now, whose event passed every limit.
    pub fn passed(&mut self, now: u64, limits: &mut Limits) -> Option<usize> {
        for slot in (0..WORKERS).map(|step| (self.first + step) % WORKERS) {
            let work = self.slots[slot].as_mut();
            let Some(work) = work.filter(|work| work.retry_at.is_some_and(|at| at <= now)) else { continue };
            work.waits_at = limits.pass(now, work.waits_at);
            if work.waits_at == Limits::COUNT {
                work.retry_at = None;
                self.first = slot + 1;
                return Some(slot);
            }
            work.retry_at = Some(now + RETRY_MS);
        }
        None
    }

    pub fn work(&self, slot: usize) -> Option<&Frame> {
        self.slots[slot].as_ref().map(|work| &work.frame)
    }

    /// The worker that waits for the host's answer about an account.
    pub fn asking(&self, did: &Did) -> Option<usize> {
        let waits = |work: &Work| work.waits_at == Limits::COUNT && work.frame.did() == Some(did);
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(waits))
    }

    /// A worker is done; it goes on with what waits behind it.
    pub fn finish(&mut self, slot: usize, now: u64) {
        let Some(Work { frame, .. }) = self.slots[slot].take() else { return };
        let next = self.queues.get_mut(key(&frame)).and_then(VecDeque::pop_front);
        if next.is_none() {
            self.queues.remove(key(&frame));
        }
        self.slots[slot] = next.map(|frame| Work { frame, waits_at: 0, retry_at: Some(now) });
        if let Some(sequence) = frame.sequence() {
            self.in_flight.remove(&sequence);
            // What was finished before an older one is found to be done only when a later one is.
            if self.in_flight.first().is_none_or(|oldest| *oldest > sequence) {
                self.last = sequence;
            }
        }
    }
}
