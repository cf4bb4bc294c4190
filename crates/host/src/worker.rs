//! The one writer of the log: what was handed over becomes durable in batches, then visible in order.

use crate::checkpoint::{Helper, Job};
use crate::error::Unsettled;
use crate::queue::{Mail, Told, Turn};
use crate::ring::Sent;
use crate::shared::{EVENTS, Shared, row_object, with_object};
use crate::slot::{Slot, lock};
use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_pds::state::Effect;
use highwater_pds::{AccountId, Draft, Entry, Record, Sequence};
use highwater_wal::{AppendError, Frame, Location, Log, Poisoned};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// The kind of a frame of the log: there is one.
pub(crate) const RECORD: u8 = 1;
/// Turns that a start has share one sync: enough that signing, not the disk, takes the time.
pub(crate) const BATCH_TURNS: usize = 256;
/// How often the writer looks at what is due by the clock while nothing else happens.
const IDLE: Duration = Duration::from_secs(1);

/// Bytes of the log that a lock takes, like any batch at the least: a page of its own.
const LOCK_BYTES: u64 = 4 << 10;
/// Locks for which room is kept on a full disk at the least, and the ends of two batches.
const RESERVED_LOCKS_MIN: u64 = 18;

/// Bytes of the log that everything but locks and their like leaves when the disk or the log is full: room for one lock of each account, as far as a
/// quarter of a segment goes, 4,000 of 64 MiB. Whether there is a next segment is known before less is left of this one. Nobody but the
/// operator can use them up.
fn reserved_bytes(accounts: u64, segment_bytes: u64) -> u64 {
    let most = (segment_bytes / 4).max(RESERVED_LOCKS_MIN * LOCK_BYTES);
    ((accounts + RESERVED_LOCKS_MIN) * LOCK_BYTES).min(most)
}

/// The one writer. In production [`Worker::spawn`] gives it a thread; a simulator calls [`Worker::run_once`].
pub struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Log,
    pub(crate) sequence: Sequence,
    /// The record that was applied last.
    pub(crate) lsn: u64,
    pub(crate) helper: Option<Helper>,
    pub(crate) making_spare: bool,
    /// The record that the newest checkpoint covers, and when it was made, in monotonic milliseconds.
    pub(crate) checkpointed: (u64, u64),
    /// When memory was looked at last, in monotonic milliseconds.
    pub(crate) trimmed: u64,
    /// Who waits for the next checkpoint.
    pub(crate) checkpoint_waits: Vec<Told>,
    /// Who waits for the one that runs.
    pub(crate) checkpoint_answers: Vec<Told>,
    pub(crate) checkpoint_failed: bool,
    /// Accounts whose blocks may be worth writing together.
    pub(crate) crowded: BTreeSet<AccountId>,
    /// Dropped with the writer.
    pub(crate) _end: End,
}

/// A turn that has its place in the log.
struct Placed {
    turn: Turn,
    payload: Bytes,
    location: Location,
    /// Its frames found no room.
    fell_back: bool,
}

/// A turn and its record, which is missing if there are no numbers for its frames.
type Numbered = (Turn, Option<Bytes>);

/// A batch on its way.
#[derive(Default)]
struct Course {
    placed: Vec<Placed>,
    /// Turns that only wait for the others.
    waiting: Vec<Turn>,
    refused: Vec<(Turn, Unsettled)>,
}

impl Worker {
    /// Does what there is to do now, without waiting for anything but the disk. Whether there was anything.
    pub fn run_once(&mut self) -> bool {
        let batch = self.shared.queue.take();
        let busy = !batch.turns.is_empty() || !batch.mail.is_empty();
        self.read_mail(batch.mail);
        self.commit(batch.turns);
        self.keep_house();
        busy
    }

    /// Runs until the server is stopped, then stops in order.
    pub(crate) fn run(mut self) -> Result<(), String> {
        loop {
            self.shared.queue.wait(IDLE);
            let batch = self.shared.queue.take();
            let last = batch.last;
            self.read_mail(batch.mail);
            self.commit(batch.turns);
            if last {
                return self.stop();
            }
            self.keep_house();
            if let Some(why) = self.shared.queue.ended() {
                return Err(why);
            }
        }
    }

    /// Gives it a thread, and a second one for what takes long.
    /// # Errors
    /// The system's, if there are no more threads.
    pub fn spawn(mut self) -> std::io::Result<Running> {
        self.helper = Some(Helper::spawn(&self.shared)?);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("pds-writer".into()).spawn(move || self.run())?;
        Ok(Running { shared, thread })
    }

    pub(crate) fn read_mail(&mut self, mail: Vec<Mail>) {
        for mail in mail {
            match mail {
                Mail::Spare(done) => self.take_spare(done),
                Mail::Checkpointed(result) => self.end_checkpoint(result),
                Mail::Checkpoint(done) => self.checkpoint_waits.push(done),
            }
        }
    }

    /// The log or the disk failed, or the state contradicts itself: nothing is shown any more.
    pub(crate) fn fail(&self, why: &str) {
        tracing::error!(
            event = "pds_stopped",
            why,
            "nothing is written or acknowledged any more; what was acknowledged is in the log. Restart the server to recover"
        );
        self.shared.queue.end(why);
        self.shared.ring.close(why);
    }

    /// Makes turns durable, then visible, in order.
    pub(crate) fn commit(&mut self, turns: Vec<Turn>) {
        if turns.is_empty() {
            return;
        }
        if let Some(why) = self.shared.queue.ended() {
            turns.into_iter().for_each(|turn| (turn.done)(Err(Unsettled::Stopped(why.clone()))));
            return;
        }
        let mut course = Course::default();
        let placed = self.place(turns, &mut course);
        if let Err(poisoned) = placed.and_then(|()| self.log.sync()) {
            self.fail(&poisoned.reason);
            let stopped = || Err(Unsettled::Stopped(poisoned.reason.clone()));
            course.placed.into_iter().for_each(|placed| (placed.turn.done)(stopped()));
            course.waiting.into_iter().for_each(|turn| (turn.done)(stopped()));
            course.refused.into_iter().for_each(|(turn, why)| (turn.done)(Err(why)));
            return;
        }
        self.show(course);
    }

    /// Appends turns in their order: together, or one by one if they do not fit together.
    fn place(&mut self, turns: Vec<Turn>, course: &mut Course) -> Result<(), Poisoned> {
        // Where not all of them can have what they want, each is judged by what those before it left.
        if self.lacks_room(turns.iter().map(|turn| turn.bytes() as u64 + LOCK_BYTES).sum()) {
            return turns.into_iter().try_for_each(|turn| match self.number(turn, course) {
                Some((turn, payload)) => self.place_alone(turn, payload, course),
                None => Ok(()),
            });
        }
        let numbered = turns.into_iter().filter_map(|turn| self.number(turn, course)).collect();
        if let Some(numbered) = self.place_together(numbered, course)? {
            for (turn, payload) in numbered {
                self.place_alone(turn, payload, course)?;
            }
        }
        Ok(())
    }

    /// Numbers the frames of a turn that can be appended; another is refused, or waits.
    fn number(&mut self, turn: Turn, course: &mut Course) -> Option<Numbered> {
        if is_overtaken(&turn) {
            course.refused.push((turn, Unsettled::Overtaken));
        } else if turn.draft.parts.is_empty() {
            course.waiting.push(turn);
        } else if self.is_reserved(&turn) {
            refuse_later(&turn);
            course.refused.push((turn, Unsettled::Full));
        } else {
            // Numbers end only where the stream does: nothing behind such a turn has one either.
            let payload = turn.draft.number(&mut self.sequence).map_err(|exhausted| {
                tracing::error!(event = "numbers_exhausted", %exhausted, "no frame can be numbered any more");
            });
            return Some((turn, payload.ok()));
        }
        None
    }

    /// Appends them at once. Gives them back if they have to be tried one by one: one that does not fit must not take the others
    /// with it.
    fn place_together(
        &mut self,
        numbered: Vec<Numbered>,
        course: &mut Course,
    ) -> Result<Option<Vec<Numbered>>, Poisoned> {
        let payloads: Option<Vec<&Bytes>> = numbered.iter().map(|(_, payload)| payload.as_ref()).collect();
        let Some(payloads) = payloads else { return Ok(Some(numbered)) };
        let frames = payloads.into_iter().enumerate().map(|(ahead, payload)| self.frame(payload.clone(), ahead));
        let frames: Vec<Frame> = frames.collect();
        match self.log.append(&frames) {
            Ok(locations) => {
                self.lsn += frames.len() as u64;
                let placed = numbered.into_iter().zip(locations).filter_map(|((turn, payload), location)| {
                    Some(Placed { turn, payload: payload?, location, fell_back: false })
                });
                course.placed.extend(placed);
                Ok(None)
            }
            Err(AppendError::Poisoned(poisoned)) => {
                let stopped = |(turn, _)| (turn, Unsettled::Stopped(poisoned.reason.clone()));
                course.refused.extend(numbered.into_iter().map(stopped));
                Err(poisoned)
            }
            Err(AppendError::Full { .. } | AppendError::TooLarge { .. }) => Ok(Some(numbered)),
        }
    }

    /// Whether what room there is, is kept for locks and their like.
    fn is_reserved(&self, turn: &Turn) -> bool {
        !turn.urgent && self.lacks_room(turn.bytes() as u64)
    }

    /// Whether so many bytes would take of what is kept for locks and their like.
    fn lacks_room(&self, bytes: u64) -> bool {
        let reserved = || {
            let accounts = self.shared.state().accounts.len() as u64;
            reserved_bytes(accounts, self.shared.options.log.segment_bytes)
        };
        // A page holds a little less than its bytes.
        let taken = bytes + bytes / 64 + LOCK_BYTES;
        self.log.room_unreleased().is_some_and(|room| room < taken + reserved())
    }

    fn frame(&self, payload: Bytes, ahead: usize) -> Frame {
        Frame { owner: OwnerId::PDS, kind: RECORD, position: self.lsn + 1 + ahead as u64, payload }
    }

    fn place_alone(&mut self, turn: Turn, payload: Option<Bytes>, course: &mut Course) -> Result<(), Poisoned> {
        if is_overtaken(&turn) {
            course.refused.push((turn, Unsettled::Overtaken));
            return Ok(());
        }
        if self.is_reserved(&turn) {
            refuse_later(&turn);
            course.refused.push((turn, Unsettled::Full));
            return Ok(());
        }
        let fallback = turn.fallback.as_ref().and_then(|fallback| fallback.number(&mut self.sequence).ok());
        let why = if payload.is_none() { Unsettled::Numbers } else { Unsettled::Full };
        for (payload, fell_back) in [(payload, false), (fallback, true)] {
            let Some(payload) = payload else { continue };
            match self.log.append(&[self.frame(payload.clone(), 0)]) {
                Ok(locations) => {
                    self.lsn += 1;
                    if fell_back {
                        refuse_later(&turn);
                    }
                    if let Some(location) = locations.first().copied() {
                        course.placed.push(Placed { turn, payload, location, fell_back });
                    }
                    return Ok(());
                }
                Err(AppendError::Poisoned(poisoned)) => {
                    course.refused.push((turn, Unsettled::Stopped(poisoned.reason.clone())));
                    return Err(poisoned);
                }
                Err(AppendError::Full { .. } | AppendError::TooLarge { .. }) => {}
            }
        }
        refuse_later(&turn);
        course.refused.push((turn, why));
        Ok(())
    }

    /// Shows what is durable, then answers.
    fn show(&mut self, course: Course) {
        let first = self.lsn + 1 - course.placed.len() as u64;
        let mut raised: Vec<Arc<Slot>> = course.refused.iter().filter_map(|(turn, _)| slot_of(turn)).collect();
        let mut placed = (first..).zip(course.placed);
        while let Some((lsn, Placed { turn, payload, location, fell_back })) = placed.next() {
            if let Err(why) = self.apply(&turn, &payload, location, fell_back) {
                let why = format!("record {lsn} of the log: {why}");
                self.fail(&why);
                (turn.done)(Err(Unsettled::Stopped(why.clone())));
                placed.for_each(|(_, placed)| (placed.turn.done)(Err(Unsettled::Stopped(why.clone()))));
                return;
            }
            if fell_back {
                raised.extend(slot_of(&turn));
            }
            self.shared.witnesses.write_first(&self.shared);
            settled(&turn);
            (turn.done)(Ok(()));
        }
        for turn in course.waiting {
            settled(&turn);
            // What it was judged by may have been refused in this very batch.
            let judged = if is_overtaken(&turn) { Err(Unsettled::Overtaken) } else { Ok(()) };
            (turn.done)(judged);
        }
        // From here on turns are built on what is durable.
        for slot in raised {
            slot.generation.store(slot.refused_below.load(Ordering::Relaxed), Ordering::Release);
        }
        let refused = course.refused.len() as u64;
        for (turn, why) in course.refused {
            settled(&turn);
            (turn.done)(Err(why));
        }
        let mut figures = lock(&self.shared.figures);
        figures.turns_refused += refused;
        (figures.lsn, figures.log) = (self.lsn, self.log.metrics());
    }

    /// Applies a record: rows, the store, the tree and the index of its account, then the ring.
    fn apply(&mut self, turn: &Turn, payload: &Bytes, location: Location, fell_back: bool) -> Result<(), String> {
        let record = Record::decode(payload.clone()).map_err(|error| error.to_string())?;
        let mut removed = Vec::new();
        let mut sections = Vec::new();
        {
            let mut state = self.shared.state_mut();
            let effects = state.apply(&record).map_err(|error| error.to_string())?;
            let mut store = lock(&self.shared.store);
            for effect in effects {
                match effect {
                    Effect::EventKept { offset, place } => {
                        with_object(&mut store, EVENTS).append(EVENTS, offset, location, place)
                    }
                    Effect::BlocksKept { account, offset, place } => {
                        let object = row_object(account);
                        with_object(&mut store, object).append(object, offset, location, place.clone());
                        sections.push((account, offset, payload.slice(place.start as usize..place.end as usize)));
                        let written = turn.chain.is_none();
                        let row = state.accounts.get(&account);
                        if written && row.is_some_and(|row| is_crowded(&row.blocks)) {
                            self.crowded.insert(account);
                        }
                    }
                    Effect::BlocksReleased { account, front } => {
                        let object = row_object(account);
                        with_object(&mut store, object).release_front(object, front);
                    }
                    Effect::BlobRemoved(account, cid) => removed.push((account, cid)),
                }
            }
            if let (Some((slot, _)), Some(tree), false) = (&turn.slot, &turn.tree, fell_back) {
                *lock(&slot.tree) = Some(tree.clone());
            }
        }
        for (account, offset, sections) in sections {
            self.shared.slots.note_blocks(account, offset, &sections);
        }
        let sent = record.entries.into_iter().filter_map(|entry| match entry {
            Entry::Event(event) => {
                Some(Sent { seq: event.seq, account: event.account, kind: event.kind, frame: event.frame })
            }
            _ => None,
        });
        self.shared.ring.push(sent.collect());
        for (account, cid) in removed {
            self.give(Job::RemoveBlob(account, cid));
        }
        Ok(())
    }

    /// Has drafts stand in the log and be seen, at a start, when nobody else hands over anything.
    pub(crate) fn settle(&mut self, drafts: Vec<Draft>) -> Result<(), Unsettled> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let turns = drafts.into_iter().map(|draft| {
            let sender = sender.clone();
            let done = Box::new(move |result| drop(sender.send(result)));
            // What a start owes is not held up by what is kept for locks.
            Turn { slot: None, chain: None, draft, fallback: None, urgent: true, tree: None, done }
        });
        self.commit(turns.collect());
        drop(sender);
        receiver.into_iter().collect()
    }
}

fn slot_of(turn: &Turn) -> Option<Arc<Slot>> {
    turn.slot.as_ref().map(|(slot, _)| Arc::clone(slot))
}

/// Whether a turn was built on one that was refused.
fn is_overtaken(turn: &Turn) -> bool {
    let broken = turn.chain.as_ref().is_some_and(|chain| chain.load(Ordering::Relaxed));
    broken
        || turn.slot.as_ref().is_some_and(|(slot, generation)| *generation < slot.refused_below.load(Ordering::Relaxed))
}

/// What was built on this turn is to be refused.
fn refuse_later(turn: &Turn) {
    if let Some(chain) = &turn.chain {
        chain.store(true, Ordering::Relaxed);
    }
    if let Some((slot, generation)) = &turn.slot {
        slot.refused_below.fetch_max(generation + 1, Ordering::Relaxed);
    }
}

fn settled(turn: &Turn) {
    if let Some((slot, _)) = &turn.slot {
        slot.settled.fetch_add(1, Ordering::Release);
    }
}

/// Bytes of an account's blocks beyond twice what they were when they were last written together, before that is done again.
const CROWDED_BYTES: u64 = 1 << 20;

pub(crate) fn is_crowded(blocks: &highwater_pds::account::Extent) -> bool {
    blocks.end - blocks.front > 2 * blocks.compacted_bytes + CROWDED_BYTES
}

/// Whatever ends the writer, a panic included: nobody may wait in vain.
pub(crate) struct End(pub Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        let why = "the server's writer ended";
        self.0.queue.end(why);
        self.0.ring.close(why);
    }
}

/// A server whose writer has its thread.
pub struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<(), String>>,
}

impl Running {
    /// Stops in order: what was handed over is done, a checkpoint is made, the log is closed.
    /// # Errors
    /// Why it did not stop in order; what was acknowledged is safe.
    pub fn stop(self) -> Result<(), String> {
        self.shared.queue.stop();
        self.thread.join().unwrap_or_else(|_| Err("the server's writer panicked".into()))
    }

    /// Whether the writer ended, by itself or because it was told.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}
