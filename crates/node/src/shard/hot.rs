//! What of a group is in memory, and who waits for what is not.
//!
//! A machine and a store keep the streams that are in use; the others are in the index on disk alone. An entry is applied,
//! and a question is answered, once everything that it needs is in memory: until then it waits here, and what it lacks is
//! looked up by a thread for I/O, one trip of a group at a time. Entries keep their order, so that one that waits holds up
//! those behind it; what they lack is wanted as soon as they are proposed, while the log is synced. Nothing else about an
//! entry or an answer depends on what is in memory.

use super::group::GroupCore;
use super::input::{Answer, Now, Output};
use super::machine::GroupMachine;
use super::read::ReadAsked;
use super::wait::Waiter;
use crate::api::{ReadRequest, Unavailable};
use bytes::Bytes;
use highwater_consensus::Entry;
use highwater_store::{Found, Lookup, LookupError, Residence, Store};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Keys of one trip to the index. At a block of 32 KiB each, it reads 32 MiB at the most.
const KEYS_MAX: usize = 1_024;

/// Records that eviction looks at in one turn: they take some hundred microseconds.
const LOOKS_MAX: u64 = 1_024;

/// Trips that may fail in a row before the group stops, and milliseconds by which each is made later than the one before: a
/// read that fails once is often answered the next time, at once, and one that still fails after two seconds is not.
const FAILURES_MAX: u32 = 5;
const RETRY_MS: u64 = 200;

/// About what a record that changed takes in memory until the next base of the index.
const CHANGED_BYTES: u64 = 256;

/// What waits for its stream to be in memory.
pub(super) enum Parked<T> {
    /// A question that is confirmed.
    Asked(ReadAsked<T>),
    /// A read that needs no confirmation.
    Local(T, ReadRequest),
    Locate(T, u64, Range<u64>),
    /// A reader at a tail that may have moved.
    Woken(Waiter<T>),
    /// One whose time is over.
    Expired(Waiter<T>),
}

impl<T> Parked<T> {
    fn refuse(self, why: Unavailable) -> Output<T> {
        match self {
            Self::Asked(asked) => asked.refuse(why),
            Self::Locate(token, ..) => Output::Answer(token, Answer::Located(Err(why))),
            Self::Local(token, _) | Self::Woken(Waiter { token, .. }) | Self::Expired(Waiter { token, .. }) => {
                Output::Answer(token, Answer::Read(Err(why)))
            }
        }
    }
}

/// A trip to a group's index.
#[derive(Debug)]
pub struct Load {
    keys: Vec<u64>,
    lookup: Lookup,
}

impl Load {
    /// Finds what is wanted and what it leads to. Blocks on the disk; for any thread.
    /// # Errors
    /// The disk's, or what is wrong with the index.
    pub fn run(self) -> Result<Vec<Found>, LookupError> {
        let mut found = self.lookup.find(&self.keys)?;
        let led = |found: &Found| found.state().map(|state| highwater_stream::links(found.key(), state));
        let known: BTreeSet<u64> = self.keys.iter().copied().collect();
        let led: BTreeSet<u64> = found.iter().filter_map(led).flatten().filter(|key| !known.contains(key)).collect();
        if !led.is_empty() {
            let led: Vec<u64> = led.into_iter().collect();
            found.extend(self.lookup.find(&led)?);
        }
        Ok(found)
    }
}

/// Figures for a status page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Figures {
    /// Trips to the index.
    pub loads: u64,
    /// Microseconds that these took.
    pub loads_us: u64,
    /// Streams that left memory.
    pub evictions: u64,
}

/// What a group has waiting for memory, and how much of that it may use.
pub(super) struct Hot<T> {
    /// Bytes that streams and the places of their bytes may take, but for what changed.
    bytes_max: u64,
    /// Committed entries that are not applied.
    pub entries: VecDeque<Entry>,
    /// What came while an entry waited, until one is applied: it may need a further trip, and must find all of it then.
    held: BTreeSet<u64>,
    wanted: BTreeSet<u64>,
    loading: bool,
    parked: Vec<Parked<T>>,
    /// Those of them to look at again.
    resumed: Vec<Parked<T>>,
    /// A sweep met streams that are not in memory: it is done again once they are, before they can leave.
    pub sweep_waits: bool,
    sweep_due: bool,
    failures: u32,
    /// Monotonic milliseconds before which no trip begins.
    not_before: u64,
    /// Records looked at since one could leave memory.
    idle_looks: u64,
    /// Nothing more can leave memory before a checkpoint has ended.
    stuck: bool,
    pub figures: Figures,
}

impl<T> Hot<T> {
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            entries: VecDeque::new(),
            held: BTreeSet::new(),
            wanted: BTreeSet::new(),
            loading: false,
            parked: Vec::new(),
            resumed: Vec::new(),
            sweep_waits: false,
            sweep_due: false,
            failures: 0,
            not_before: 0,
            idle_looks: 0,
            stuck: false,
            figures: Figures::default(),
        }
    }

    /// Wants something in memory.
    pub fn want(&mut self, keys: impl IntoIterator<Item = u64>) {
        self.wanted.extend(keys);
    }

    /// The first entry is applied: nothing needs to stay for its sake.
    pub fn note_applied(&mut self) {
        self.entries.pop_front();
        if !self.held.is_empty() {
            self.held.clear();
        }
    }

    /// Whether something can go on, or a trip to the index may begin.
    pub fn is_due(&self, monotonic: u64) -> bool {
        !self.resumed.is_empty() || (!self.loading && !self.wanted.is_empty() && monotonic >= self.not_before)
    }

    pub fn park(&mut self, parked: Parked<T>) {
        self.parked.push(parked);
    }

    /// Whether a sweep is due because what it met is in memory now.
    pub fn take_sweep_due(&mut self) -> bool {
        std::mem::take(&mut self.sweep_due)
    }

    pub fn take_resumed(&mut self) -> Vec<Parked<T>> {
        std::mem::take(&mut self.resumed)
    }

    /// Everyone who waits.
    pub fn abandon(&mut self, why: &Unavailable, out: &mut Vec<Output<T>>) {
        self.entries.clear();
        self.wanted.clear();
        let all = self.resumed.drain(..).chain(self.parked.drain(..));
        out.extend(all.map(|parked| parked.refuse(why.clone())));
    }
}

/// Whether a store has an object on disk alone.
pub(super) fn is_stored(store: &Store, key: u64) -> bool {
    store.residence(key) == Residence::Stored
}

/// Gives what a trip found to the machine and the store.
/// # Errors
/// What is wrong with a record.
pub(super) fn admit(machine: &mut GroupMachine, store: &mut Store, found: Vec<Found>) -> Result<(), String> {
    let Some(streams) = machine.streams_mut() else { return Ok(()) };
    for found in found.iter().filter(|found| store.admit(found)) {
        let Some(state) = found.state() else { continue };
        // A slice of a block, which would stay for as long as the longest-lived of its records.
        let admitted = streams.admit(found.key(), Bytes::copy_from_slice(state));
        admitted.map_err(|error| format!("its index holds a record that does not read: {error}"))?;
    }
    Ok(())
}

/// Looks up what is missing, here and now; for a start.
/// # Errors
/// What is wrong with the index, or the disk.
pub(super) fn load_now(machine: &mut GroupMachine, store: &mut Store, keys: Vec<u64>) -> Result<(), String> {
    let load = Load { keys, lookup: store.lookup() };
    let found = load.run().map_err(|error| format!("its index does not read: {error}"))?;
    admit(machine, store, found)
}

/// Lets streams leave memory until they take at most `bytes_max` with the places of their bytes, as far as a look at
/// [`LOOKS_MAX`] records leads. What is `held` stays.
fn evict(
    machine: &mut GroupMachine,
    store: &mut Store,
    bytes_max: u64,
    held: &BTreeSet<u64>,
) -> highwater_stream::Swept {
    let Some(streams) = machine.streams_mut() else { return Default::default() };
    let (of_machine, of_store) = (streams.resident().bytes, store.resident().1);
    // Both shrink alike; an eighth of room, so that not every admission evicts.
    let share =
        u128::from(bytes_max - bytes_max / 8) * u128::from(of_machine) / u128::from(of_machine + of_store).max(1);
    streams
        .evict(u64::try_from(share).unwrap_or(u64::MAX), LOOKS_MAX, &mut |key| !held.contains(&key) && store.evict(key))
}

/// The same, only if there are too many.
pub(super) fn relieve(machine: &mut GroupMachine, store: &mut Store, bytes_max: u64) {
    if resident_bytes(machine, store) > bytes_max {
        evict(machine, store, bytes_max, &BTreeSet::new());
    }
}

/// Bytes that streams and the places of their bytes take, about.
fn resident_bytes(machine: &GroupMachine, store: &Store) -> u64 {
    machine.streams().map_or(0, |streams| streams.resident().bytes + store.resident().1)
}

impl<T> GroupCore<T> {
    /// Wants what a question about a path needs; whether it must wait for that.
    pub fn lacks(&mut self, path: &str) -> bool {
        let Some(streams) = self.machine.streams().filter(|streams| !streams.is_whole()) else { return false };
        let store = &self.store;
        let missing = streams.missing_at(path, &|key| is_stored(store, key));
        let lacks = !missing.is_empty();
        self.hot.want(missing);
        lacks
    }

    /// Wants what the bytes of an object need; whether whoever asks must wait for that.
    pub fn lacks_object(&mut self, object: u64) -> bool {
        let store = &self.store;
        let stored = |key| is_stored(store, key);
        let lacks = self.machine.streams().is_some_and(|streams| streams.misses_object(object, &stored));
        self.hot.want(lacks.then_some(object));
        lacks
    }

    /// Begins a trip to the index for what is wanted, if none is under way.
    pub fn begin_load(&mut self, now: Now, out: &mut Vec<Output<T>>) {
        if self.hot.loading || self.hot.wanted.is_empty() || now.monotonic < self.hot.not_before {
            return;
        }
        let mut keys: Vec<u64> = Vec::new();
        while keys.len() < KEYS_MAX
            && let Some(key) = self.hot.wanted.pop_first()
        {
            if is_stored(&self.store, key) {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            // What was wanted has come meanwhile.
            self.resume();
            return;
        }
        self.hot.loading = true;
        out.push(Output::Load(self.id, Load { keys, lookup: self.store.lookup() }));
    }

    fn resume(&mut self) {
        self.hot.resumed.append(&mut self.hot.parked);
    }

    /// Takes what a trip to the index found. An error says why the group must stop.
    pub fn end_load(
        &mut self,
        result: Result<Vec<Found>, LookupError>,
        took_us: u64,
        monotonic: u64,
    ) -> Result<(), String> {
        self.hot.loading = false;
        self.hot.figures.loads += 1;
        self.hot.figures.loads_us += took_us;
        // Whoever lacks something still wants it again.
        self.resume();
        self.hot.sweep_due |= std::mem::take(&mut self.hot.sweep_waits) && result.is_ok();
        match result {
            Ok(found) => {
                self.hot.failures = 0;
                if !self.hot.entries.is_empty() {
                    self.hot.held.extend(found.iter().map(Found::key));
                }
                admit(&mut self.machine, &mut self.store, found)
            }
            Err(LookupError::Io { path, source }) if self.hot.failures < FAILURES_MAX => {
                if self.hot.failures == 0 {
                    let path = path.display();
                    tracing::warn!(event = "index_read_failed", group = %self.owner, %path, error = %source, "an index could not be read and is tried again");
                }
                self.hot.not_before = monotonic.saturating_add(RETRY_MS * u64::from(self.hot.failures));
                self.hot.failures += 1;
                Ok(())
            }
            Err(error) => Err(format!("its index does not read, and what it holds is not all in memory: {error}")),
        }
    }

    /// Goes on with those who waited for what has come.
    pub fn resume_parked(&mut self, now: Now, room: &mut usize, out: &mut Vec<Output<T>>) {
        for parked in self.hot.take_resumed() {
            match parked {
                Parked::Asked(asked) => self.answer(asked, now, room, out),
                Parked::Local(token, request) => self.answer_local(token, request, now, out),
                Parked::Locate(token, object, range) => self.locate_object(token, object, range, out),
                Parked::Woken(waiter) => self.wake_one(waiter, now.wall, out),
                Parked::Expired(waiter) => self.expire_one(waiter, now.wall, out),
            }
        }
    }

    /// Lets streams leave memory if there are too many.
    pub fn evict(&mut self) {
        if self.hot.stuck || self.resident_bytes() <= self.hot.bytes_max {
            return;
        }
        let swept = evict(&mut self.machine, &mut self.store, self.hot.bytes_max, &self.hot.held);
        self.hot.figures.evictions += swept.streams;
        self.hot.idle_looks = if swept.records > 0 { 0 } else { self.hot.idle_looks + swept.looked_at };
        let records = self.machine.streams().map_or(0, |streams| streams.resident().records);
        self.hot.stuck = self.hot.idle_looks > 2 * (records + 1);
    }

    /// A checkpoint has ended: what it stored may leave memory.
    pub fn note_stored(&mut self) {
        (self.hot.stuck, self.hot.idle_looks) = (false, 0);
    }

    /// Whether only a checkpoint lets more streams leave memory, and it would.
    pub fn is_pressed(&self) -> bool {
        let changed = self.machine.streams().map_or(0, highwater_stream::Machine::changed_records);
        self.hot.stuck && changed * CHANGED_BYTES > self.hot.bytes_max / 8
    }

    /// Bytes that streams and the places of their bytes take, about.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(&self.machine, &self.store)
    }
}
