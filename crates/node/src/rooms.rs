//! The memory that answers of reads hold until their readers took them, and who has how much of it.
//!
//! Room is taken before bytes are fetched: taken afterwards it would bound nothing, because a hundred readers who ask
//! at once would each have their bytes in memory while they wait. It goes with the bytes, wherever they go, and comes
//! back when the last of them is dropped.
//!
//! Nobody gets all of it: whoever holds some already gets more only while three times as much as it would then have is left
//! for others (the dynamic thresholds of Choudhury and Hahne, with a factor of a third). So one asker holds a quarter of all
//! room at the most, the next one a quarter of what is left, and sixteen of them leave a hundredth. Whoever holds nothing
//! takes whatever there is.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Room is counted in whole kibibytes.
const UNIT_BYTES: u64 = 1 << 10;

/// Answers up to this size take no room. All connections together could hold 64 MiB of them, and most reads of a live
/// stream are smaller: for these a budget costs more than it protects.
const FREE_BYTES_MAX: u64 = 4 << 10;

/// How many times as much as it holds an asker leaves to others.
const LEFT_FACTOR: u64 = 3;

/// Whose answer takes room: whoever is told apart by a key or an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asker(u64);

impl Asker {
    /// Nobody in particular: what is read for many, and for this node itself. Has no share of its own.
    pub const NOBODY: Self = Self(0);

    /// Whoever has this number, such as a hash of what it is told apart by.
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        Self(number.max(1))
    }
}

/// The room for answers. Clones share it.
#[derive(Debug, Clone)]
pub struct Rooms {
    inner: Arc<Inner>,
    wait: Duration,
}

#[derive(Debug)]
struct Inner {
    all: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: u64,
    /// What each asker holds; absent if that is nothing.
    held: BTreeMap<Asker, u64>,
    /// Those who wait, in the order in which they came.
    queue: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    asker: Asker,
    units: u64,
    sender: oneshot::Sender<Room>,
}

/// The room of one answer, given back when dropped.
#[derive(Debug)]
pub struct Room {
    /// Absent for an answer that takes none.
    of: Option<(Arc<Inner>, Asker)>,
    units: u64,
}

impl State {
    /// Whether an asker has so much that it must leave the rest to others.
    fn has_enough(&self, asker: Asker, units: u64) -> bool {
        self.held.get(&asker).is_some_and(|held| (held + units).saturating_mul(LEFT_FACTOR) > self.free)
    }

    fn take(&mut self, asker: Asker, units: u64) {
        self.free -= units;
        if asker != Asker::NOBODY {
            *self.held.entry(asker).or_default() += units;
        }
    }

    fn give(&mut self, asker: Asker, units: u64) {
        self.free += units;
        if let Some(held) = self.held.get_mut(&asker) {
            *held -= units;
            if *held == 0 {
                self.held.remove(&asker);
            }
        }
    }

    /// Takes out those for whom there is room now. Whoever has enough is passed over; whoever only lacks space is not, or
    /// large answers would never find any.
    fn served(&mut self) -> Vec<Waiting> {
        let (mut served, mut at) = (Vec::new(), 0);
        while let Some(Waiting { asker, units, sender }) = self.queue.get(at) {
            let (asker, units) = (*asker, *units);
            if sender.is_closed() {
                self.queue.remove(at);
            } else if self.has_enough(asker, units) {
                at += 1;
            } else if units > self.free {
                break;
            } else if let Some(waiting) = self.queue.remove(at) {
                self.take(asker, units);
                served.push(waiting);
            }
        }
        served
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room behind those who wait already.
    fn queue(self: &Arc<Self>, asker: Asker, units: u64) -> oneshot::Receiver<Room> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        state.queue.push_back(Waiting { asker, units, sender });
        let served = state.served();
        drop(state);
        self.serve(served);
        receiver
    }

    /// Gives room to those who wait for it.
    fn serve(self: &Arc<Self>, served: Vec<Waiting>) {
        for Waiting { asker, units, sender } in served {
            // One that has gone meanwhile drops its room, which serves the next.
            drop(sender.send(Room { of: Some((self.clone(), asker)), units }));
        }
    }

    fn give(self: &Arc<Self>, asker: Asker, units: u64) {
        let mut state = self.state();
        state.give(asker, units);
        let served = state.served();
        drop(state);
        self.serve(served);
    }
}

impl Rooms {
    /// Room for `bytes`, for which an answer waits at most so long.
    #[must_use]
    pub fn new(bytes: u64, wait_ms_max: u64) -> Self {
        let all = bytes.div_ceil(UNIT_BYTES);
        let state = State { free: all, held: BTreeMap::new(), queue: VecDeque::new() };
        let inner = Arc::new(Inner { all, state: Mutex::new(state) });
        Self { inner, wait: Duration::from_millis(wait_ms_max) }
    }

    /// Takes room for `bytes`, or gives up after the longest wait. What is larger than all room takes all of it.
    pub async fn wait(&self, bytes: u64, asker: Asker) -> Option<Room> {
        if bytes <= FREE_BYTES_MAX {
            return Some(Room { of: None, units: 0 });
        }
        let units = bytes.div_ceil(UNIT_BYTES).min(self.inner.all);
        tokio::time::timeout(self.wait, self.inner.queue(asker, units)).await.ok()?.ok()
    }

    /// Takes room for `bytes` if there is some now and nobody waits for it.
    pub fn take_now(&self, bytes: u64, asker: Asker) -> Option<Room> {
        if bytes <= FREE_BYTES_MAX {
            return Some(Room { of: None, units: 0 });
        }
        let units = bytes.div_ceil(UNIT_BYTES).min(self.inner.all);
        let mut state = self.inner.state();
        state.queue.retain(|waiting| !waiting.sender.is_closed());
        if !state.queue.is_empty() || units > state.free || state.has_enough(asker, units) {
            return None;
        }
        state.take(asker, units);
        Some(Room { of: Some((self.inner.clone(), asker)), units })
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> u64 {
        (self.inner.all - self.inner.state().free) * UNIT_BYTES
    }
}

impl Room {
    /// The bytes, which hold the room from now on; what fetching took beyond them is given back.
    #[must_use]
    pub fn around(mut self, bytes: Bytes) -> Bytes {
        let Some((inner, asker)) = &self.of else { return bytes };
        let kept = (bytes.len() as u64).div_ceil(UNIT_BYTES).min(self.units);
        let more = self.units - kept;
        if more > 0 {
            self.units = kept;
            inner.give(*asker, more);
        }
        if kept == 0 { bytes } else { Bytes::from_owner(Roomed { bytes, _room: self }) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some((inner, asker)) = self.of.take().filter(|_| self.units > 0) {
            inner.give(asker, self.units);
        }
    }
}

/// Bytes with their room.
struct Roomed {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    const ONE: Asker = Asker(1);
    const TWO: Asker = Asker(2);

    #[tokio::test]
    async fn room_is_held_by_the_bytes_and_by_every_part_of_them() {
        let rooms = Rooms::new(100 << 10, 20);
        let room = rooms.wait(80 << 10, Asker::NOBODY).await.expect("room");
        assert_eq!(rooms.held(), 80 << 10, "taken before anything is fetched");
        assert!(rooms.wait(21 << 10, Asker::NOBODY).await.is_none(), "no room for another");
        assert!(rooms.wait(FREE_BYTES_MAX, Asker::NOBODY).await.is_some(), "small answers need none");
        let bytes = room.around(Bytes::from(vec![7; 50 << 10]));
        assert_eq!(rooms.held(), 50 << 10, "what only fetching took is given back");
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(rooms.held(), 50 << 10, "a part keeps all of it in memory");
        drop(part);
        assert_eq!(rooms.held(), 0);
        let all = rooms.wait(1 << 30, ONE).await.expect("what is larger than all room takes all of it");
        assert_eq!(rooms.held(), 100 << 10);
        drop(all.around(Bytes::new()));
        assert_eq!(rooms.held(), 0);
    }

    /// Thirty-two readers of one client at the floor of 8 KiB/s once held all room, and everybody else was refused.
    #[tokio::test]
    async fn however_many_one_asker_wants_the_next_one_finds_some() {
        let rooms = Rooms::new(64 << 20, 1);
        let mut held = Vec::new();
        for number in 1..=20 {
            let asker = Asker(number);
            let mut own = 0;
            while let Some(room) = rooms.take_now(8 << 10, asker) {
                held.push(room);
                own += 8 << 10;
            }
            assert!(own > 0, "asker {number} finds some");
            assert!(rooms.wait(8 << 10, asker).await.is_none(), "and waits in vain for more");
            if number == 1 {
                assert_eq!(own, 16 << 20, "the only one holds a quarter");
            }
        }
        assert!(rooms.take_now(8 << 10, Asker::NOBODY).is_some(), "what many read has no share of its own");
        drop(held);
        assert_eq!(rooms.held(), 0);
        assert!(rooms.inner.state().held.is_empty());
    }

    #[tokio::test]
    async fn whoever_waits_is_served_in_turn_and_those_who_have_enough_are_passed_over() {
        let rooms = Rooms::new(100 << 10, 60_000);
        let own = rooms.take_now(40 << 10, ONE).expect("room");
        let rest = rooms.take_now(20 << 10, Asker::NOBODY).expect("room");
        let mut greedy = pin!(rooms.wait(30 << 10, ONE));
        let mut large = pin!(rooms.wait(45 << 10, TWO));
        let mut small = pin!(rooms.wait(5 << 10, Asker(3)));
        let first = poll_fn(|cx| {
            assert!(greedy.as_mut().poll(cx).is_pending(), "it has as much as is left");
            assert!(large.as_mut().poll(cx).is_pending(), "there are 40");
            assert!(small.as_mut().poll(cx).is_pending(), "it came behind the large one");
            Poll::Ready(())
        });
        first.await;
        drop(rest);
        let large = large.await.expect("room");
        let small = small.await.expect("room");
        assert!(poll_fn(|cx| Poll::Ready(greedy.as_mut().poll(cx).is_pending())).await);
        drop((own, large, small));
        drop(greedy.await.expect("room"));
        assert_eq!(rooms.held(), 0);
    }

    #[tokio::test]
    async fn room_for_one_that_went_away_comes_back() {
        let rooms = Rooms::new(100 << 10, 1);
        let all = rooms.take_now(100 << 10, Asker::NOBODY).expect("room");
        assert!(rooms.wait(50 << 10, ONE).await.is_none(), "it went away");
        drop(all);
        assert_eq!(rooms.held(), 0);
    }
}
