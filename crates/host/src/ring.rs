//! The newest frames in memory, shared by everybody who follows the stream.

use crate::slot::lock;
use crate::status::InMemory;
use bytes::Bytes;
use highwater_pds::frame::Kind;
use highwater_pds::{AccountId, Seq};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::task::Waker;

/// Frames in the ring at the most, and live frames that a subscriber may leave behind before it is too slow.
///
/// Source: docs/reference/pds-conformance.md, amendment b.
pub const RING_FRAMES_MAX: u64 = 4_096;
/// Bytes of them at the most. Whoever is further behind reads from the disk.
pub const RING_BYTES_MAX: usize = 64 << 20;

/// A frame as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub seq: Seq,
    pub account: AccountId,
    pub kind: Kind,
    pub frame: Bytes,
}

/// How far a subscriber is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Events before what it takes next.
    pub next: u64,
    /// The number of the last one that it took or passed over.
    pub seq: u64,
    /// Whether it reads from memory, not what is kept on disk.
    pub live: bool,
}

#[derive(Debug, Default)]
struct Inner {
    frames: VecDeque<Sent>,
    bytes: usize,
    /// How many events there were before the first of them, ever.
    first: u64,
    /// Of those who wait, by the subscriber.
    wakers: BTreeMap<u64, Waker>,
    /// Nothing comes any more, and why.
    ended: Option<String>,
    /// How far each subscriber is.
    subscribers: BTreeMap<u64, Reached>,
    next_subscriber: u64,
    /// Frames that were put in since the start.
    pushed: u64,
}

impl Inner {
    fn end(&self) -> u64 {
        self.first + self.frames.len() as u64
    }
}

/// The ring.
#[derive(Debug, Default)]
pub(crate) struct Ring(Mutex<Inner>);

/// What a subscriber finds in the ring.
pub(crate) enum Found {
    /// These frames, and how many events there were before the ring's end.
    Frames(Vec<Sent>, u64),
    /// What comes next lies on the disk.
    Before,
    /// Nothing yet.
    Nothing,
    Ended(String),
}

impl Ring {
    /// An empty one, behind so many events.
    pub fn new(first: u64) -> Self {
        Self(Mutex::new(Inner { first, ..Inner::default() }))
    }

    /// Puts frames in and wakes whoever waits.
    pub fn push(&self, frames: Vec<Sent>) {
        if frames.is_empty() {
            return;
        }
        let mut inner = lock(&self.0);
        for sent in frames {
            inner.bytes += sent.frame.len();
            inner.pushed += 1;
            inner.frames.push_back(sent);
            while inner.frames.len() as u64 > RING_FRAMES_MAX || inner.bytes > RING_BYTES_MAX {
                let Some(oldest) = inner.frames.pop_front() else { break };
                inner.bytes -= oldest.frame.len();
                inner.first += 1;
            }
        }
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_values().for_each(Waker::wake);
    }

    /// What follows so many events, up to so many bytes and one frame.
    pub fn behind(&self, next: u64, bytes_max: usize) -> Found {
        let inner = lock(&self.0);
        if next < inner.first {
            return Found::Before;
        }
        if next >= inner.end() {
            return inner.ended.clone().map_or(Found::Nothing, Found::Ended);
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        for sent in inner.frames.range((next - inner.first) as usize..) {
            if bytes >= bytes_max {
                break;
            }
            bytes += sent.frame.len();
            found.push(sent.clone());
        }
        Found::Frames(found, inner.end())
    }

    /// How many events there were up to its end, ever.
    pub fn end_ordinal(&self) -> u64 {
        lock(&self.0).end()
    }

    /// Has a task woken when something follows so many events; `false` if something does already.
    pub fn wake_behind(&self, subscriber: u64, next: u64, waker: &Waker) -> bool {
        let mut inner = lock(&self.0);
        if next < inner.end() || inner.ended.is_some() {
            return false;
        }
        inner.wakers.insert(subscriber, waker.clone());
        true
    }

    /// Nothing comes any more.
    pub fn close(&self, why: &str) {
        let mut inner = lock(&self.0);
        inner.ended.get_or_insert_with(|| why.to_owned());
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_values().for_each(Waker::wake);
    }

    pub fn ended(&self) -> Option<String> {
        lock(&self.0).ended.clone()
    }

    /// A new subscriber.
    pub fn join(&self, reached: Reached) -> u64 {
        let mut inner = lock(&self.0);
        inner.next_subscriber += 1;
        let id = inner.next_subscriber;
        inner.subscribers.insert(id, reached);
        id
    }

    /// A subscriber is so far now; `None` if it left.
    pub fn moved(&self, subscriber: u64, reached: Option<Reached>) {
        let mut inner = lock(&self.0);
        match reached {
            Some(reached) => drop(inner.subscribers.insert(subscriber, reached)),
            None => {
                inner.subscribers.remove(&subscriber);
                inner.wakers.remove(&subscriber);
            }
        }
    }

    /// Each subscriber, how far it is, and how many events it has yet to take.
    pub fn subscribers(&self) -> Vec<(u64, Reached, u64)> {
        let inner = lock(&self.0);
        let end = inner.end();
        inner.subscribers.iter().map(|(id, reached)| (*id, *reached, end.saturating_sub(reached.next))).collect()
    }

    /// Frames and bytes in it, and frames that were put in since the start.
    pub fn figures(&self) -> (InMemory, u64) {
        let inner = lock(&self.0);
        (InMemory { frames: inner.frames.len() as u64, bytes: inner.bytes as u64 }, inner.pushed)
    }
}
