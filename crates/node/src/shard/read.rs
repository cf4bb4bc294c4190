//! Reads, confirmed where they must be.
//!
//! A read that must be current is answered from a state that has applied every entry committed before the read was
//! asked, and only after a majority confirmed the leadership (ReadIndex, Raft thesis 6.4). All reads of a turn share
//! one confirmation. A lone voter's majority is itself, so that its reads are confirmed in the same turn.

use super::group::GroupCore;
use super::hot::Parked;
use super::input::{Answer, Now, Output, ReadLocated};
use super::snapshot::SnapshotQuestion;
use super::wait::Waiter;
use crate::api::{Durability, ReadRequest, Unavailable, WriteAnswer};
use crate::json;
use highwater_base::{Incarnation, Millis, Offset, limits};
use highwater_consensus::ReadConfirmed;
use highwater_stream::{ProducerKey, ReadFrom, ReadScope, Refusal};
use std::collections::BTreeMap;

/// What a reader asks.
pub(super) enum Question {
    Head { path: String, at: Millis },
    Read(ReadRequest),
    Early { path: String, incarnation: Incarnation, key: ProducerKey },
    Snapshot(SnapshotQuestion),
}

impl Question {
    /// The stream that it is about.
    pub fn path(&self) -> &str {
        match self {
            Self::Head { path, .. } | Self::Early { path, .. } => path,
            Self::Read(request) => &request.path,
            Self::Snapshot(question) => &question.path,
        }
    }
}

/// A question and who waits for its answer.
pub(super) struct ReadAsked<T> {
    pub token: T,
    pub question: Question,
}

impl<T> ReadAsked<T> {
    pub fn refuse(self, why: Unavailable) -> Output<T> {
        let answer = match self.question {
            Question::Head { .. } => Answer::Head(Err(why)),
            Question::Read(_) => Answer::Read(Err(why)),
            Question::Early { .. } => Answer::Early(Err(why)),
            Question::Snapshot(_) => Answer::Snapshot(Err(why)),
        };
        Output::Answer(self.token, answer)
    }
}

/// The reads of a group that are not yet answered.
pub(super) struct Reads<T> {
    /// Asked since the last turn.
    pub asked: Vec<ReadAsked<T>>,
    /// Waiting for their confirmation, by its context.
    confirming: BTreeMap<u64, Vec<ReadAsked<T>>>,
    /// Confirmed, and waiting for an entry to be applied.
    confirmed: Vec<(u64, Vec<ReadAsked<T>>)>,
    context: u64,
}

impl<T> Reads<T> {
    pub fn new() -> Self {
        Self { asked: Vec::new(), confirming: BTreeMap::new(), confirmed: Vec::new(), context: 0 }
    }

    pub fn take_all(&mut self) -> Vec<ReadAsked<T>> {
        let mut all = std::mem::take(&mut self.asked);
        all.extend(std::mem::take(&mut self.confirming).into_values().flatten());
        all.extend(std::mem::take(&mut self.confirmed).into_iter().flat_map(|(_, reads)| reads));
        all
    }
}

/// What became of a read that was evaluated.
pub(super) enum Evaluated {
    Answer(Answer),
    Wait(ReadRequest, u64),
}

impl<T> GroupCore<T> {
    /// Asks for one confirmation for everything that was asked since the last turn.
    pub fn confirm_asked(&mut self, out: &mut Vec<Output<T>>) {
        if self.reads.asked.is_empty() {
            return;
        }
        let asked = std::mem::take(&mut self.reads.asked);
        self.reads.context += 1;
        match self.raft.read_index(self.reads.context) {
            Ok(()) => {
                self.reads.confirming.insert(self.reads.context, asked);
            }
            Err(_) => {
                let why = self.no_leader();
                out.extend(asked.into_iter().map(|read| read.refuse(why.clone())));
            }
        }
    }

    /// Takes the replica's word on confirmations.
    pub fn note_confirmations(&mut self, confirmed: &[ReadConfirmed], lost: &[u64], out: &mut Vec<Output<T>>) {
        for ReadConfirmed { context, index } in confirmed {
            if let Some(reads) = self.reads.confirming.remove(context) {
                self.reads.confirmed.push((*index, reads));
            }
        }
        let why = self.no_leader();
        for context in lost {
            let reads = self.reads.confirming.remove(context).unwrap_or_default();
            out.extend(reads.into_iter().map(|read| read.refuse(why.clone())));
        }
    }

    /// Answers what is confirmed and applied. `room` is how many readers may still begin to wait.
    pub fn answer_confirmed(&mut self, now: Now, room: &mut usize, out: &mut Vec<Output<T>>) {
        let applied = self.raft.standing().applied;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.reads.confirmed).into_iter().partition(|(index, _)| *index <= applied);
        self.reads.confirmed = later;
        for asked in due.into_iter().flat_map(|(_, reads)| reads) {
            self.answer(asked, now, room, out);
        }
    }

    /// Answers a question from the state as it is, or parks it until its stream is in memory.
    pub(super) fn answer(&mut self, asked: ReadAsked<T>, now: Now, room: &mut usize, out: &mut Vec<Output<T>>) {
        if self.lacks(asked.question.path()) {
            return self.hot.park(Parked::Asked(asked));
        }
        let ReadAsked { token, question } = asked;
        let answer = match question {
            Question::Read(request) => return self.answer_read(token, request, now, room, out),
            Question::Snapshot(question) => Answer::Snapshot(Ok(self.snapshot(&question, now.wall))),
            Question::Head { path, at } => {
                let Some(streams) = self.machine.streams() else { return };
                Answer::Head(Ok(streams.head(&path, at)))
            }
            Question::Early { path, incarnation, key } => self.answer_early(&path, incarnation, &key, now),
        };
        out.push(Output::Answer(token, answer));
    }

    /// An early answer is about a write that applied; how many have it on disk is told as it is now.
    fn answer_early(&mut self, path: &str, incarnation: Incarnation, key: &ProducerKey, now: Now) -> Answer {
        let result = self.machine.streams().and_then(|streams| streams.early(path, now.wall, incarnation, key));
        if result.is_some() {
            self.reached(path);
        }
        let of = u32::try_from(self.raft.voters().len()).unwrap_or(u32::MAX);
        let durability = Durability { synced: self.raft.voters_persisted(self.raft.standing().applied), of };
        Answer::Early(Ok(result.map(|result| WriteAnswer { result, durability })))
    }

    fn answer_read(&mut self, token: T, request: ReadRequest, now: Now, room: &mut usize, out: &mut Vec<Output<T>>) {
        let path = request.path.clone();
        match self.evaluate(request, now.wall) {
            Evaluated::Answer(answer) => {
                self.note_read(&path, &answer, now.wall);
                out.push(Output::Answer(token, answer));
            }
            Evaluated::Wait(_, _) if *room == 0 => {
                out.push(Output::Answer(token, Answer::Read(Err(Unavailable::LiveReadsExhausted))));
            }
            Evaluated::Wait(request, wait_ms) => {
                *room -= 1;
                if self.machine.streams().is_some_and(|streams| streams.slides(&path)) {
                    self.reached(&path);
                    self.waited_for(&path);
                }
                self.waiters.add(Waiter { token, request, deadline: now.monotonic.saturating_add(wait_ms) });
            }
        }
    }

    /// Looks at a stream that changed on behalf of those who wait for it.
    pub fn wake(&mut self, path: &str, at: Millis, out: &mut Vec<Output<T>>) {
        for waiter in self.waiters.take_path(path) {
            self.wake_one(waiter, at, out);
        }
    }

    /// Sends those away whose time is over.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output<T>>) {
        for waiter in self.waiters.take_due(now.monotonic) {
            self.expire_one(waiter, now.wall, out);
        }
    }

    /// Sends one away whose time is over: at the tail, with nothing.
    pub(super) fn expire_one(&mut self, waiter: Waiter<T>, at: Millis, out: &mut Vec<Output<T>>) {
        if self.lacks(&waiter.request.path) {
            return self.hot.park(Parked::Expired(waiter));
        }
        let request = ReadRequest { wait_ms: None, ..waiter.request };
        let answer = match self.evaluate(request, at) {
            Evaluated::Answer(Answer::Read(Ok(Ok(located)))) => {
                let timed_out = located.plan.is_none() && !located.closed;
                Answer::Read(Ok(Ok(ReadLocated { timed_out, ..located })))
            }
            Evaluated::Answer(answer) => answer,
            Evaluated::Wait(_, _) => return,
        };
        out.push(Output::Answer(waiter.token, answer));
    }

    pub(super) fn evaluate(&self, request: ReadRequest, at: Millis) -> Evaluated {
        let Some(streams) = self.machine.streams() else {
            return Evaluated::Answer(Answer::Read(Ok(Err(Refusal::StreamNotFound))));
        };
        let scope = match streams.check_read(&request.path, at, request.incarnation, request.from) {
            Ok(scope) => scope,
            Err(refusal) => return Evaluated::Answer(Answer::Read(Ok(Err(refusal)))),
        };
        match request.wait_ms {
            Some(wait_ms) if scope.start == scope.next && !scope.closed => {
                // From now on it waits for this history from this offset, whatever it asked for at first.
                let wait_ms = wait_ms.clamp(1, limits::LONG_POLL_MS_MAX);
                let (incarnation, from) = (Some(scope.incarnation), ReadFrom::At(scope.start));
                Evaluated::Wait(ReadRequest { incarnation, from, ..request }, wait_ms)
            }
            _ => Evaluated::Answer(Answer::Read(Ok(Ok(self.located(scope, request.length_max))))),
        }
    }

    fn located(&self, scope: ReadScope, length_max: u64) -> ReadLocated {
        let length = scope.next.since(scope.start).min(length_max).min(limits::READ_BYTES_MAX);
        // The first byte of a stream, and the first that retention left, have none in front of them.
        let led = length > 0 && scope.start > scope.retained && json::is_json(&scope.content_type);
        let (from, length) = if led { (scope.start.0 - 1, length + 1) } else { (scope.start.0, length) };
        let plan = (length > 0).then(|| self.store.plan_read(scope.object, from, length));
        // A plan of very many small pieces ends early.
        let next = plan.as_ref().map_or(scope.start, |plan| Offset(plan.end()));
        let up_to_date = next == scope.next;
        ReadLocated {
            group: self.id,
            plan,
            start: scope.start,
            next,
            incarnation: scope.incarnation,
            content_type: scope.content_type,
            up_to_date,
            closed: scope.closed && up_to_date,
            timed_out: false,
            led,
        }
    }
}

/// Whether a read needs no confirmation: it asks for what was there, from wherever it is answered.
pub(super) fn is_local(request: &ReadRequest) -> bool {
    !request.leader && request.wait_ms.is_none() && request.from != ReadFrom::Now
}

impl<T> GroupCore<T> {
    /// Answers a read that needs no confirmation, parks it until its stream is in memory, or asks for a confirmation because
    /// the answer needs one.
    pub fn answer_local(&mut self, token: T, request: ReadRequest, now: Now, out: &mut Vec<Output<T>>) {
        if self.lacks(&request.path) {
            return self.hot.park(Parked::Local(token, request));
        }
        match self.read_local(&request, now.wall) {
            Some(answer) => {
                self.note_read(&request.path, &answer, now.wall);
                out.push(Output::Answer(token, answer));
            }
            None => self.ask(ReadAsked { token, question: Question::Read(request) }),
        }
    }

    /// Answers a read from the state as it is, unless the answer would be one that needs confirmation: that a stream is
    /// not there, or is another one.
    fn read_local(&self, request: &ReadRequest, at: Millis) -> Option<Answer> {
        match self.machine.streams()?.check_read(&request.path, at, request.incarnation, request.from) {
            Err(Refusal::StreamNotFound | Refusal::IncarnationMismatch { .. } | Refusal::OffsetOutOfRange { .. }) => {
                None
            }
            Err(refusal) => Some(Answer::Read(Ok(Err(refusal)))),
            Ok(scope) => Some(Answer::Read(Ok(Ok(self.located(scope, request.length_max))))),
        }
    }
}
