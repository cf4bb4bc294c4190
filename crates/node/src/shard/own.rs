//! Commands that a group proposes itself: what must come before it serves, and what keeps expiry.

use super::group::{GroupCore, Waiting};
use super::hot::Parked;
use super::input::{Now, Output};
use super::wait::Waiter;
use super::{Answer, ShardCore, Slot, Token};
use crate::api::{GroupState, Unavailable};
use crate::restored::Mark;
use highwater_base::{Millis, limits};
use highwater_consensus::Role;
use highwater_consensus::entry::ENTRY_HEADER_BYTES;
use highwater_store::Residence;
use highwater_stream::{Applied, Command, Due, Operation, Outcome, Refusal};
use std::collections::BTreeSet;

/// Streams of one group that one sweep looks at; the rest is a tenth of a second later.
const SWEEP_STREAMS_MAX: usize = 256;

/// Bytes of the largest of these commands: a path, and numbers.
const OWN_BYTES_MAX: u64 = limits::PATH_BYTES_MAX as u64 + 128;

/// What a group owes before it serves, and what it is about.
#[derive(Default)]
pub(super) struct Own {
    /// The mark of a restored directory, whose history event comes before everything else.
    mark: Option<Mark>,
    /// The term in which what must come first was proposed, and the entry of the last of it.
    asked: Option<(u64, u64)>,
    /// The term for which the group was opened.
    opened: Option<u64>,
    /// Streams that were reached by a reader or a writer, and may have to be told so.
    reached: BTreeSet<String>,
    /// Those whose touch is proposed.
    touching: BTreeSet<String>,
    /// Streams with a sliding expiry that somebody waits for.
    waited_for: BTreeSet<String>,
}

impl Own {
    pub fn new(mark: Option<Mark>) -> Self {
        Self { mark, ..Self::default() }
    }
}

impl<T> GroupCore<T> {
    /// Orders a command of the group's own; nobody waits for its answer.
    fn propose_own(&mut self, path: String, operation: Operation, at: Millis, uncommitted: &mut u64) -> Option<u64> {
        let record = Command { at, path, operation }.encode_behind(&[0; ENTRY_HEADER_BYTES]);
        let bytes = record.len() as u64;
        let (_, index) = self.raft.propose(record).ok()?;
        self.proposals.insert(index, Waiting { token: None, bytes });
        *uncommitted += bytes;
        Some(index)
    }

    /// A group serves once it leads and has applied an entry of its own term, so that its state is current, and the
    /// commands that a beginning leader owes: the history event of a restored directory, and the grace of expiries that
    /// slide. Whether it proposed something.
    pub fn note_standing(&mut self, now: Now, uncommitted: &mut u64) -> bool {
        let standing = self.raft.standing();
        let leads = standing.role == Role::Leader && self.raft.reads_possible();
        let waits = matches!(self.state, GroupState::Starting | GroupState::HistoryPending);
        let may_open = waits || self.state == GroupState::Serving;
        if !leads || !may_open || self.own.opened == Some(standing.term) {
            return false;
        }
        match self.own.asked {
            Some((term, index)) if term == standing.term => {
                if standing.applied >= index {
                    self.open(standing.term);
                }
                false
            }
            _ => self.ask_first(standing.term, now, uncommitted),
        }
    }

    fn ask_first(&mut self, term: u64, now: Now, uncommitted: &mut u64) -> bool {
        let streams = self.machine.streams();
        let recorded = streams.and_then(highwater_stream::Machine::history_nonce);
        let event = self.own.mark.filter(|mark| streams.is_some() && recorded != Some(mark.nonce));
        let event = event.map(|Mark { nonce }| Operation::History { nonce });
        let grace = streams.is_some_and(|streams| streams.streams_sliding() > 0).then_some(Operation::Lead);
        let mut last = None;
        for operation in event.into_iter().chain(grace) {
            self.state = if self.history_recorded() { GroupState::Starting } else { GroupState::HistoryPending };
            last = self.propose_own(String::new(), operation, now.wall, uncommitted);
            if last.is_none() {
                // The leadership is gone again.
                return false;
            }
        }
        match last {
            Some(index) => self.own.asked = Some((term, index)),
            None => self.open(term),
        }
        last.is_some()
    }

    fn open(&mut self, term: u64) {
        let applied = self.raft.standing().applied;
        self.own.opened = Some(term);
        self.state = GroupState::Serving;
        tracing::debug!(group = %self.owner, term, applied, "a group serves");
    }

    /// Whether the history event of the directory's mark is behind this group; true where there is no mark.
    pub fn history_recorded(&self) -> bool {
        let recorded = self.machine.streams().map(highwater_stream::Machine::history_nonce);
        self.own.mark.is_none_or(|mark| recorded.is_none_or(|recorded| recorded == Some(mark.nonce)))
    }

    /// Notes that a request reached a stream, so that one whose expiry slides lives on.
    pub fn reached(&mut self, path: &str) {
        if !self.own.touching.contains(path) {
            self.own.reached.insert(path.to_owned());
        }
    }

    /// Whether there is a stream to be told that it was reached.
    pub fn has_reached(&self) -> bool {
        !self.own.reached.is_empty()
    }

    /// Notes that somebody begins to wait for a stream whose expiry slides.
    pub fn waited_for(&mut self, path: &str) {
        self.own.waited_for.insert(path.to_owned());
    }

    /// Proposes the touches of streams that were reached, as far as they are worth it; whether there were some.
    pub fn touch_reached(&mut self, now: Now, may: bool, uncommitted: &mut u64) -> bool {
        let reached = std::mem::take(&mut self.own.reached);
        let mut proposed = false;
        for path in reached.into_iter().filter(|_| may) {
            if self.lacks(&path) {
                // It left memory while somebody waits for it, and lives on all the same.
                self.own.reached.insert(path);
                continue;
            }
            let token = self.machine.streams().and_then(|streams| streams.touch_due(&path, now.wall));
            let Some(incarnation) = token.filter(|_| !self.own.touching.contains(&path)) else { continue };
            if self.propose_own(path.clone(), Operation::Touch { incarnation }, now.wall, uncommitted).is_some() {
                self.own.touching.insert(path);
                proposed = true;
            }
        }
        proposed
    }

    /// Proposes what expiry asks for: touches for those who wait, and the end of what is over.
    pub fn sweep(&mut self, now: Now, uncommitted: &mut u64) {
        if self.state != GroupState::Serving || self.raft.standing().role != Role::Leader {
            return;
        }
        let waiters = &self.waiters;
        self.own.waited_for.retain(|path| waiters.any(path));
        self.own.reached.extend(self.own.waited_for.iter().cloned());
        let stored = |object| self.store.residence(object) == Residence::Stored;
        let mut missing = Vec::new();
        let due = self.machine.streams_mut();
        let due = due.map(|streams| streams.take_due(now.wall, SWEEP_STREAMS_MAX, &stored, &mut missing));
        self.hot.sweep_waits |= !missing.is_empty();
        self.hot.want(missing);
        for Due { path, incarnation } in due.unwrap_or_default() {
            self.propose_own(path, Operation::Expire { incarnation }, now.wall, uncommitted);
        }
    }

    /// Notes what an applied command means for expiry.
    pub fn note_applied(&mut self, path: &str, applied: &Applied) {
        self.own.touching.remove(path);
        if reached_only(applied) {
            self.reached(path);
        }
        if matches!(applied.result, Ok(Outcome::Expired { stream: true })) {
            tracing::debug!(group = %self.owner, path, "a stream was over and is gone");
        }
    }

    /// The proposals of this leadership may be lost: touches are asked for anew.
    pub fn forget_touches(&mut self) {
        self.own.touching.clear();
    }

    /// Looks at every stream on behalf of those who wait: the group has a new history, which none of them asked for.
    pub fn wake_all(&mut self, at: Millis, out: &mut Vec<Output<T>>) {
        tracing::warn!(group = %self.owner, "a group begins a new history: every stream has another token");
        for Waiter { token, request, deadline } in self.waiters.take_all() {
            self.wake_one(Waiter { token, request, deadline }, at, out);
        }
    }
}

/// Whether an append changed nothing and yet reached its stream: then its window begins anew all the same.
fn reached_only(applied: &Applied) -> bool {
    applied.effects.is_empty()
        && match &applied.result {
            Ok(outcome) => {
                matches!(outcome, Outcome::Appended { .. } | Outcome::Repeated(_) | Outcome::Evicted { .. })
            }
            Err(refusal) => !matches!(
                refusal,
                Refusal::StreamNotFound | Refusal::AlreadyExists | Refusal::IncarnationMismatch { .. }
            ),
        }
}

impl<T: Token> ShardCore<T> {
    /// Looks for streams that are over and for streams that somebody waits for.
    pub(super) fn sweep(&mut self, now: Now) {
        let may = self.sweeps_allowed();
        for (number, slot) in (0..).zip(&mut self.slots) {
            let Some(group) = slot.up().filter(|_| may) else { continue };
            group.sweep(now, &mut self.uncommitted_bytes);
            if group.raft.has_ready() || !group.own.reached.is_empty() || group.hot.is_due(now.monotonic) {
                self.dirty.insert(number);
            }
        }
    }

    /// Whether the end of what is over may be proposed now.
    pub(super) fn sweeps_allowed(&self) -> bool {
        self.pressure(OWN_BYTES_MAX, true).is_none()
    }

    /// Whether the touches of readers may be proposed now.
    pub(super) fn touches_allowed(&self) -> bool {
        self.pressure(OWN_BYTES_MAX, false).is_none()
    }

    /// Lets the directory's mark be removed once every group has recorded its history. It stays as long as a group
    /// cannot: what is left of that group would otherwise go on in the old history.
    pub(super) fn settle_history(&mut self, out: &mut Vec<Output<T>>) {
        let Some(mark) = self.mark else { return };
        let mut refuses = None;
        for (number, slot) in self.slots.iter().enumerate() {
            match slot {
                Slot::Up(group) if matches!(group.state, GroupState::Stopped(_)) => refuses = Some(number),
                Slot::Up(group) if !group.history_recorded() || group.own.opened.is_none() => return,
                // The control group has no streams.
                Slot::Down(_) if number + 1 < self.slots.len() => refuses = Some(number),
                Slot::Up(_) | Slot::Down(_) => {}
            }
        }
        let Mark { nonce } = mark;
        match refuses {
            None => {
                tracing::info!(nonce, "every group has begun a new history after the restore; the mark is removed");
                self.mark = None;
                out.push(Output::HistoryRecorded);
            }
            Some(group) if !self.mark_stays => {
                self.mark_stays = true;
                tracing::warn!(
                    group,
                    nonce,
                    "the mark of the restore stays, because this group cannot record its new history; the others have"
                );
            }
            Some(_) => {}
        }
    }

    /// Whether the directory's mark still waits for a group's history event.
    #[must_use]
    pub fn history_pending(&self) -> bool {
        self.mark.is_some()
    }

    /// Why each group of the streams takes no request now, if it does not.
    #[must_use]
    pub fn refusals(&self) -> Vec<Option<Unavailable>> {
        let refusal = |slot: &Slot<T>| match slot {
            Slot::Down(_) => Some(Unavailable::ApplyStopped),
            Slot::Up(group) => group.refusal().or_else(|| {
                let leads = group.raft.standing().role == Role::Leader;
                (!leads).then(|| group.no_leader())
            }),
        };
        self.slots.iter().take(self.groups() as usize).map(refusal).collect()
    }

    /// Whether [`Self::refusals`] may have changed since this was last asked.
    pub fn take_refusals_changed(&mut self) -> bool {
        std::mem::take(&mut self.refusals_changed)
    }
}

impl<T> GroupCore<T> {
    /// Answers one who waits, or lets them wait on.
    pub(super) fn wake_one(&mut self, waiter: Waiter<T>, at: Millis, out: &mut Vec<Output<T>>) {
        if self.lacks(&waiter.request.path) {
            return self.hot.park(Parked::Woken(waiter));
        }
        let Waiter { token, request, deadline } = waiter;
        match self.evaluate(request, at) {
            super::read::Evaluated::Answer(answer) => out.push(Output::Answer(token, answer)),
            super::read::Evaluated::Wait(request, _) => self.waiters.add(Waiter { token, request, deadline }),
        }
    }

    /// Whether an answer to a read means that the read reached its stream.
    pub(super) fn note_read(&mut self, path: &str, answer: &Answer, at: Millis) {
        let found =
            matches!(answer, Answer::Read(Ok(Ok(_) | Err(Refusal::Gone { .. } | Refusal::OffsetOutOfRange { .. }))));
        if found && self.machine.streams().is_some_and(|streams| streams.streams_sliding() > 0) {
            let due = self.machine.streams().is_some_and(|streams| streams.touch_due(path, at).is_some());
            if due {
                self.reached(path);
            }
        }
    }
}
