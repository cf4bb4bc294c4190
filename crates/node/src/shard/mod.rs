//! A shard without threads: all groups of a node, their streams and their bytes.
//!
//! One turn of its loop: [`ShardCore::step`] for every input that has come, then [`ShardCore::turn`] once. What comes
//! out is for the host to do. The core opens no file, reads no clock and draws no entropy while it runs, so that a
//! simulator can drive it from one seed.

mod apply;
mod checkpoint;
mod compaction;
mod group;
mod hot;
mod input;
mod machine;
mod noted;
mod own;
mod pressure;
mod read;
mod recover;
mod scrub;
mod snapshot;
mod status;
mod wait;

pub(crate) use checkpoint::checkpoint_meta;
pub use hot::Load;
pub use input::{Answer, Input, Now, Output, Place, Proposal, ReadLocated, Token};
pub use pressure::frame_bytes_max;
pub use recover::{Recovery, bootstrap};
pub(crate) use recover::{begin_group, owner};
pub use snapshot::{ObjectLocated, SnapshotAbout, SnapshotAnswer, SnapshotQuestion};

use crate::api::{GroupState, ReadRequest, Unavailable};
use crate::restored::Mark;
use crate::route::group_of;
use group::{GroupCore, Handed, Waiting};
use highwater_base::GroupId;
use highwater_store::{Found, LookupError};
use highwater_wal::{AppendError, Frame, Location};
use noted::Noted;
use read::{Question, ReadAsked};
use std::collections::BTreeSet;

/// Ticks between two searches for waiting readers that have gone: one second.
const ABANDONED_TICKS: u64 = 10;

/// The bounds of a shard.
#[derive(Debug, Clone)]
pub struct ShardOptions {
    /// Bytes of one log segment.
    pub wal_segment_bytes: u64,
    /// Bytes of the whole log.
    pub wal_bytes_max: u64,
    /// Bytes written to the log since the last checkpoints that start the next one.
    pub checkpoint_bytes: u64,
    /// Bytes proposed and not yet applied.
    pub uncommitted_bytes_max: u64,
    /// Readers that may wait at one time.
    pub live_reads_max: usize,
    /// Bytes a second that are copied out of data files that are mostly dead; 0 copies none.
    pub compaction_bytes_per_second: u64,
}

/// One group's place in the shard.
enum Slot<T> {
    Up(Box<GroupCore<T>>),
    /// Refuses everything; its files are kept as they are.
    Down(GroupState),
}

impl<T> Slot<T> {
    fn up(&mut self) -> Option<&mut GroupCore<T>> {
        match self {
            Self::Up(group) => Some(group),
            Self::Down(_) => None,
        }
    }
}

/// Ticks that a full log keeps proposed writes waiting before they are told that their outcome is unknown: five
/// seconds, half of what a client waits without progress.
const FULL_TICKS_MAX: u64 = 50;

/// A batch of frames that the log has or gets.
#[derive(Default)]
struct Pending {
    frames: Vec<Frame>,
    handed: Vec<Handed>,
}

/// A log that found no space for the batch in flight.
#[derive(Clone, Copy)]
struct Full {
    since_tick: u64,
    /// The batch was handed over again, and the answer has not come.
    asked_again: bool,
}

/// What applying entries changed for those who wait.
#[derive(Default)]
struct Changed {
    paths: Vec<String>,
    /// Every stream has another token.
    history: bool,
}

/// All groups of a node. `T` is who waits for an answer.
pub struct ShardCore<T> {
    options: ShardOptions,
    /// Those of the streams by their number, and the control group behind them.
    slots: Vec<Slot<T>>,
    /// Groups that have something to do in this turn.
    dirty: BTreeSet<u32>,
    /// Frames for the next batch.
    next: Pending,
    /// The batch that the log has now. One at a time, so that a log that turns out to be full leaves no hole behind
    /// which a later batch became durable.
    in_flight: Option<Pending>,
    /// The batch in flight found no space. It is handed over again whenever there may be some.
    full: Option<Full>,
    /// Bytes of file that the log can still take, if the disk has no space for a further segment.
    log_room: Option<u64>,
    segment_newest: u64,
    checkpoint_running: bool,
    compaction: compaction::Pace,
    uncommitted_bytes: u64,
    noted: Noted,
    ticks: u64,
    /// Something came since the last turn that should not wait for the batch in flight.
    turn_due: bool,
    failed: Option<String>,
    /// The mark of a restored directory, until every group has recorded its new history.
    mark: Option<Mark>,
    /// It was said that the mark stays.
    mark_stays: bool,
    /// A group may take requests otherwise than it did when that was last asked.
    refusals_changed: bool,
}

impl<T: Token> ShardCore<T> {
    /// Starts every group: a lone voter leads as soon as its first entry is durable.
    pub fn start(&mut self, now: Now, out: &mut Vec<Output<T>>) {
        let mut abandoned = Vec::new();
        for (number, slot) in (0..).zip(&mut self.slots) {
            if let Some(group) = slot.up() {
                if group.raft.voters().len() == 1 {
                    group.raft.campaign();
                }
                self.dirty.insert(number);
            } else {
                abandoned.push(number);
            }
        }
        out.extend(abandoned.into_iter().map(|number| Output::Abandon(recover::owner(number, self.groups()))));
        self.turn(now, out);
    }

    /// Takes one input. What it leads to may come out now or from [`Self::turn`].
    pub fn step(&mut self, now: Now, input: Input<T>, out: &mut Vec<Output<T>>) {
        self.turn_due |= !matches!(input, Input::Write { .. } | Input::LogRoom(_));
        if matches!(input, Input::Checkpointed { .. } | Input::Pin { .. } | Input::Failed(_) | Input::Tick) {
            self.noted.forget();
        }
        match input {
            Input::Write { token, proposal } => self.propose(token, proposal, out),
            Input::Head { token, path, at } => {
                self.ask(ReadAsked { token, question: Question::Head { path, at } }, out)
            }
            Input::Read { token, request } => self.read(token, request, now, out),
            Input::Early { token, path, incarnation, key } => {
                self.ask(ReadAsked { token, question: Question::Early { path, incarnation, key } }, out);
            }
            Input::Snapshot { token, question } => {
                self.ask(ReadAsked { token, question: Question::Snapshot(question) }, out);
            }
            Input::Locate { token, path, object, range } => {
                let id = group_of(&path, self.groups());
                match self.serving(id.0) {
                    Ok(group) => {
                        group.locate_object(token, object, range, out);
                        if group.hot.is_due(now.monotonic) {
                            self.dirty.insert(id.0);
                        }
                    }
                    Err(why) => out.push(Output::Answer(token, Answer::Located(Err(why)))),
                }
            }
            Input::Appended(result) => self.appended(result, now, out),
            Input::Checkpointed { group, result } => {
                self.checkpoint_running = false;
                self.compaction.ended(&self.options, now, &result);
                // What it stored may leave memory.
                self.dirty.insert(group.0);
                if let Some(group) = self.slots.get_mut(group.0 as usize).and_then(Slot::up) {
                    group.end_checkpoint(result, now.monotonic, out);
                }
                self.stop_doomed(group.0, out);
                self.retry(out);
            }
            Input::Loaded { group, result, took_us } => self.loaded(group, result, took_us, now, out),
            Input::Pin { token, group } => self.want_pin(token, group, out),
            Input::LogRoom(room) => {
                if room.is_some() {
                    self.noted.forget();
                }
                self.log_room = room;
            }
            Input::Failed(reason) => self.fail(reason, out),
            Input::Tick => self.tick(now, out),
        }
    }

    /// Does what the inputs led to: confirms reads, hands frames to the log, applies, answers, begins a checkpoint.
    pub fn turn(&mut self, now: Now, out: &mut Vec<Output<T>>) {
        self.turn_due = false;
        self.turn_groups(now, out);
        self.note();
        if self.deadline().is_some_and(|deadline| deadline <= now.monotonic) {
            for slot in &mut self.slots {
                if let Some(group) = slot.up() {
                    group.expire(now, out);
                    group.begin_load(now, out);
                }
            }
            self.noted.changed();
        }
        self.settle_history(out);
        self.submit(out);
        if self.noted.take_checkpoint_due() {
            self.begin_checkpoint(now, out);
        }
        self.note();
    }

    /// Whether a turn may wait for the batch that the log has: nothing has come since the last one but writes, which
    /// become the next batch together.
    #[must_use]
    pub fn turn_may_wait(&self) -> bool {
        self.in_flight.is_some() && !self.turn_due
    }

    fn turn_groups(&mut self, now: Now, out: &mut Vec<Output<T>>) {
        self.note();
        let mut room = self.options.live_reads_max.saturating_sub(self.live_reads());
        while let Some(number) = self.dirty.pop_first() {
            self.turn_group(number, now, &mut room, out);
        }
    }

    fn turn_group(&mut self, number: u32, now: Now, room: &mut usize, out: &mut Vec<Output<T>>) {
        let (touches_allowed, sweeps_allowed) = (self.touches_allowed(), self.sweeps_allowed());
        let Some(group) = self.slots[number as usize].up() else { return };
        if matches!(group.state, GroupState::Stopped(_)) {
            return;
        }
        let waiting = (group.waiters.len(), group.waiters.deadline());
        group.resume_parked(now, room, out);
        if group.hot.take_sweep_due() && sweeps_allowed {
            group.sweep(now, &mut self.uncommitted_bytes);
        }
        group.confirm_asked(out);
        let (mut changed, state) = (Changed::default(), group.state.clone());
        // Once more than there is something new: entries may have waited for what is in memory now.
        let mut waited = !group.hot.entries.is_empty();
        while group.raft.has_ready() || std::mem::take(&mut waited) {
            let ready = group.raft.ready();
            if let Some(batch) = ready.batch {
                let handed = group.frames(batch, &mut self.next.frames);
                self.next.handed.push(handed);
            }
            if !ready.proposals_lost.is_empty() {
                group.forget_touches();
            }
            for index in ready.proposals_lost {
                let Some(waiting) = group.proposals.remove(&index) else { continue };
                self.uncommitted_bytes = self.uncommitted_bytes.saturating_sub(waiting.bytes);
                let lost = Unavailable::OutcomeUnknown { leadership_lost: true };
                out.extend(waiting.token.map(|token| group.unanswered(token, lost)));
            }
            group.note_confirmations(&ready.reads, &ready.reads_lost, out);
            if let Err(reason) = group.apply(ready.committed, &mut self.uncommitted_bytes, &mut changed, out) {
                self.uncommitted_bytes = self.uncommitted_bytes.saturating_sub(group.uncommitted_bytes());
                group.stop(reason, out);
                self.refusals_changed = true;
                self.noted.forget();
                return;
            }
        }
        let mut proposed = group.note_standing(now, &mut self.uncommitted_bytes);
        group.publish(out);
        if changed.history {
            group.wake_all(now.wall, out);
        }
        for path in changed.paths {
            group.wake(&path, now.wall, out);
        }
        group.answer_confirmed(now, room, out);
        proposed |= group.touch_reached(now, touches_allowed, &mut self.uncommitted_bytes);
        group.begin_load(now, out);
        group.evict();
        if group.state != state || waiting != (group.waiters.len(), group.waiters.deadline()) {
            self.noted.changed();
        }
        self.refusals_changed |= group.state != state || group.note_role();
        if proposed {
            self.dirty.insert(number);
        }
    }

    fn propose(&mut self, token: T, proposal: Proposal, out: &mut Vec<Output<T>>) {
        let bytes = proposal.record.len() as u64;
        let id = match &proposal.place {
            Place::Stream(path) => group_of(path, self.groups()),
            Place::Control => GroupId(self.groups()),
        };
        if let Some(why) = self.pressure(bytes, proposal.makes_room) {
            out.push(Proposal::refuse(&proposal.place, token, why));
            return;
        }
        let proposed = self.serving(id.0).and_then(|group| match group.raft.propose(proposal.record) {
            Ok((_, index)) => Ok((group, index)),
            Err(_) => Err(group.no_leader()),
        });
        match proposed {
            Ok((group, index)) => {
                group.proposals.insert(index, Waiting { token: Some(token), bytes });
                if let Place::Stream(path) = &proposal.place {
                    // What it lacks is on its way while the log is synced.
                    group.lacks(path);
                }
                self.uncommitted_bytes += bytes;
                self.dirty.insert(id.0);
            }
            Err(why) => out.push(Proposal::refuse(&proposal.place, token, why)),
        }
    }

    fn read(&mut self, token: T, request: ReadRequest, now: Now, out: &mut Vec<Output<T>>) {
        if read::is_local(&request) {
            let id = group_of(&request.path, self.groups());
            match self.serving(id.0) {
                Ok(group) => {
                    group.answer_local(token, request, now, out);
                    if group.has_reached() || !group.reads.asked.is_empty() || group.hot.is_due(now.monotonic) {
                        self.dirty.insert(id.0);
                    }
                }
                Err(why) => out.push(Output::Answer(token, Answer::Read(Err(why)))),
            }
            return;
        }
        self.ask(ReadAsked { token, question: Question::Read(request) }, out);
    }

    fn ask(&mut self, asked: ReadAsked<T>, out: &mut Vec<Output<T>>) {
        let id = group_of(asked.question.path(), self.groups());
        match self.serving(id.0) {
            Ok(group) => {
                group.ask(asked);
                self.dirty.insert(id.0);
            }
            Err(why) => out.push(asked.refuse(why)),
        }
    }

    fn loaded(
        &mut self,
        id: GroupId,
        result: Result<Vec<Found>, LookupError>,
        took_us: u64,
        now: Now,
        out: &mut Vec<Output<T>>,
    ) {
        let Some(group) = self.slots.get_mut(id.0 as usize).and_then(Slot::up) else { return };
        if matches!(group.state, GroupState::Stopped(_)) {
            return;
        }
        self.dirty.insert(id.0);
        if let Err(reason) = group.end_load(result, took_us, now.monotonic) {
            self.uncommitted_bytes = self.uncommitted_bytes.saturating_sub(group.uncommitted_bytes());
            group.stop(reason, out);
            self.refusals_changed = true;
            self.noted.forget();
        }
    }

    fn serving(&mut self, number: u32) -> Result<&mut GroupCore<T>, Unavailable> {
        if self.failed.is_some() {
            return Err(Unavailable::ApplyStopped);
        }
        match &mut self.slots[number as usize] {
            Slot::Down(_) => Err(Unavailable::ApplyStopped),
            Slot::Up(group) => match group.refusal() {
                Some(why) => Err(why),
                None => Ok(group),
            },
        }
    }

    fn submit(&mut self, out: &mut Vec<Output<T>>) {
        if self.in_flight.is_none() && self.failed.is_none() && !self.next.frames.is_empty() {
            let batch = std::mem::take(&mut self.next);
            out.push(Output::Append(batch.frames.clone()));
            self.in_flight = Some(batch);
        }
    }

    fn appended(&mut self, result: Result<Vec<Location>, AppendError>, now: Now, out: &mut Vec<Output<T>>) {
        match result {
            Ok(locations) => {
                // The next batch first: the disk works while this one is applied and answered.
                self.turn_groups(now, out);
                let Some(batch) = self.in_flight.take() else { return };
                self.full = None;
                self.submit(out);
                self.persisted(&batch, &locations);
            }
            Err(AppendError::Full { bytes }) => {
                self.noted.forget();
                if self.full.is_none() {
                    tracing::warn!(
                        event = "log_full",
                        bytes,
                        "the log is full; writes are refused until a checkpoint makes room"
                    );
                }
                let since_tick = self.full.map_or(self.ticks, |full| full.since_tick);
                self.full = Some(Full { since_tick, asked_again: false });
            }
            Err(error @ (AppendError::TooLarge { .. } | AppendError::Poisoned(_))) => self.fail(error.to_string(), out),
        }
    }

    fn persisted(&mut self, batch: &Pending, locations: &[Location]) {
        let segment = locations.last().map_or(self.segment_newest, |l| l.segment.max(self.segment_newest));
        let rolled = std::mem::replace(&mut self.segment_newest, segment) != segment;
        let (first, bytes) =
            (locations.first().map(|l| l.segment), locations.iter().map(|l| u64::from(l.length)).sum());
        self.noted.logged(first, bytes, rolled, self.options.checkpoint_bytes);
        let mut rest = locations;
        for handed in &batch.handed {
            let (own, others) = rest.split_at(handed.entries.len().min(rest.len()));
            rest = others;
            if let Some(group) = self.slots[handed.group as usize].up() {
                group.locate(&handed.entries, own);
                group.raft.persisted(handed.number);
                self.dirty.insert(handed.group);
            }
        }
    }

    /// The log cannot be believed any more, or nobody is there to do its work: what is in flight may or may not be
    /// durable.
    fn fail(&mut self, reason: String, out: &mut Vec<Output<T>>) {
        if self.failed.is_some() {
            return;
        }
        tracing::error!(event = "node_failed", reason, "the node failed and stops");
        for slot in &mut self.slots {
            if let Some(group) = slot.up() {
                group.abandon(&Unavailable::ApplyStopped, out);
            }
        }
        (self.in_flight, self.next, self.uncommitted_bytes) = (None, Pending::default(), 0);
        self.failed = Some(reason.clone());
        self.noted.forget();
        out.push(Output::Failed(reason));
    }

    /// Hands a batch over again that had found no space; once at a time, or a later batch would be taken for it.
    fn retry(&mut self, out: &mut Vec<Output<T>>) {
        if let (Some(full), Some(batch)) = (&mut self.full, &self.in_flight)
            && !std::mem::replace(&mut full.asked_again, true)
        {
            out.push(Output::Append(batch.frames.clone()));
        }
    }

    /// Tells those who have waited long enough for a full log that they may not learn the outcome here. Their entries
    /// stay proposed, and are applied once there is space.
    fn give_up_waiting(&mut self, out: &mut Vec<Output<T>>) {
        if self.full.is_none_or(|full| self.ticks - full.since_tick < FULL_TICKS_MAX) {
            return;
        }
        for slot in &mut self.slots {
            let Some(group) = slot.up() else { continue };
            let waiting: Vec<T> = group.proposals.values_mut().filter_map(|waiting| waiting.token.take()).collect();
            let unknown = Unavailable::OutcomeUnknown { leadership_lost: false };
            out.extend(waiting.into_iter().map(|token| group.unanswered(token, unknown.clone())));
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output<T>>) {
        self.ticks += 1;
        self.sweep(now);
        for (number, slot) in (0..).zip(&mut self.slots) {
            let Some(group) = slot.up() else { continue };
            group.raft.tick();
            if self.ticks.is_multiple_of(ABANDONED_TICKS) {
                group.waiters.drop_where(T::abandoned);
            }
            if group.raft.has_ready() {
                self.dirty.insert(number);
            }
        }
        self.retry(out);
        self.give_up_waiting(out);
    }

    /// Begins at most one checkpoint: of the group that pins the oldest segment if the log has moved two segments on
    /// or is half full, else of the one with most in the log once all have enough.
    fn begin_checkpoint(&mut self, now: Now, out: &mut Vec<Output<T>>) {
        if self.checkpoint_running || self.failed.is_some() {
            return;
        }
        let ready = || self.going_on().filter(|g| g.checkpoint.may_begin(now.monotonic));
        let pinning = ready().filter_map(|g| g.checkpoint.segment_oldest().map(|s| (s, g.id))).min();
        let pinning = pinning.filter(|(segment, _)| {
            if self.log_room.is_some() {
                return false;
            }
            let span = self.segment_newest.saturating_sub(*segment);
            span >= 2 || self.full.is_some() || span * self.options.wal_segment_bytes > self.options.wal_bytes_max / 2
        });
        // Only of those that may begin: one whose checkpoint just failed does not make the others hurry.
        let logged: u64 = ready().map(|g| g.checkpoint.logged_bytes).sum();
        let largest = ready().filter(|g| g.checkpoint.logged_bytes > 0).max_by_key(|g| g.checkpoint.logged_bytes);
        let due = if logged >= self.options.checkpoint_bytes { largest.map(|g| g.id) } else { None };
        // A full disk has room for the smallest one first: what was deleted is given back by it.
        let smallest = ready().filter(|g| g.checkpoint.logged_bytes > 0).min_by_key(|g| g.store.unmoved_bytes());
        let due = if self.log_room.is_some() { smallest.map(|g| g.id) } else { due };
        let pressed = || ready().find(|g| g.is_pressed()).map(|g| g.id);
        let urgent = self.pin_wanted(now).or(pinning.map(|(_, id)| id)).or(due).or_else(pressed);
        // Only when nothing else is due: what it gives back waits better than the log does.
        let compacting = if urgent.is_none() { self.compaction_wanted(now) } else { None };
        let Some(id) = urgent.or(compacting) else { return };
        let bytes_max = if compacting.is_some() { self.compaction.begun() } else { 0 };
        if let Some(group) = self.slots[id.0 as usize].up() {
            out.push(group.begin_checkpoint(bytes_max));
            self.checkpoint_running = true;
        }
    }

    /// Stops a group that damage keeps from ever making a checkpoint again, before the log fills up behind it.
    fn stop_doomed(&mut self, number: u32, out: &mut Vec<Output<T>>) {
        let (newest, options) = (self.segment_newest, &self.options);
        let Some(group) = self.slots.get_mut(number as usize).and_then(Slot::up) else { return };
        let pinned = group.checkpoint.segment_oldest().map_or(0, |oldest| newest.saturating_sub(oldest));
        let behind = pinned.saturating_mul(options.wal_segment_bytes) > options.wal_bytes_max / 2;
        let Some(reason) = group.checkpoint.doom(behind).filter(|_| group.goes_on()) else { return };
        self.uncommitted_bytes = self.uncommitted_bytes.saturating_sub(group.uncommitted_bytes());
        group.stop(reason, out);
        self.refusals_changed = true;
    }

    fn going_on(&self) -> impl Iterator<Item = &GroupCore<T>> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Up(group) if group.goes_on() => Some(&**group),
            Slot::Up(_) | Slot::Down(_) => None,
        })
    }

    /// How many groups the streams have.
    fn groups(&self) -> u32 {
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    /// Answers everyone who still waits: the node goes away.
    pub fn close(&mut self, out: &mut Vec<Output<T>>) {
        for slot in &mut self.slots {
            if let Some(group) = slot.up() {
                group.abandon(&Unavailable::GroupRestarting, out);
            }
        }
        self.noted.forget();
    }
}
