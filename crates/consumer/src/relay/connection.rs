//! One socket: its reader, its pings, and the workers behind it.

use super::accounts::{Accounts, Next};
use super::limits::Limits;
use super::workers::Workers;
use super::{Output, Verdict};
use crate::frame::{Frame, Position};
use bytes::Bytes;
use highwater_repo::syntax::Did;
use std::collections::VecDeque;

/// Milliseconds between two pings.
const PING_MS: u64 = 30_000;
/// Milliseconds behind a pong within which the reader must have come back to the socket.
const DEADLINE_MS: u64 = 60_000;

/// What lies in the socket.
#[derive(Debug)]
pub(super) enum Incoming {
    Message(Bytes),
    Pong,
    End,
}

/// A socket that is open.
#[derive(Debug)]
pub(super) struct Connection {
    /// What came and was not read.
    inbox: VecDeque<Incoming>,
    /// What the reader has in its hands while every worker is busy. It reads nothing then, pongs neither.
    blocked: Option<Frame>,
    /// When a read fails. There is none before the first pong.
    deadline: Option<u64>,
    ping_at: u64,
    /// The number of the last event that was read.
    last: u64,
    workers: Workers,
    /// Whether reading is over; the socket is closed once the workers are done.
    over: bool,
    /// Whether the host answered `FutureCursor`.
    cancelled: bool,
}

impl Connection {
    pub fn new(now: u64) -> Self {
        Self {
            inbox: VecDeque::new(),
            blocked: None,
            deadline: None,
            ping_at: now + PING_MS,
            last: 0,
            workers: Workers::new(),
            over: false,
            cancelled: false,
        }
    }

    pub fn push(&mut self, incoming: Incoming) {
        self.inbox.push_back(incoming);
    }

    pub fn reads(&self) -> bool {
        !self.over && self.blocked.is_none()
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    pub fn processed(&self) -> u64 {
        self.workers.last()
    }

    /// When there is something to do.
    pub fn due(&self, now: u64) -> u64 {
        let reader = match self.deadline {
            _ if !self.reads() => u64::MAX,
            _ if !self.inbox.is_empty() => now,
            deadline => deadline.unwrap_or(u64::MAX),
        };
        let end = if self.over && self.workers.is_idle() { now } else { u64::MAX };
        self.workers.due().unwrap_or(u64::MAX).min(reader).min(end).min(self.ping_at)
    }

    /// Does what is due; returns whether the connection ended.
    pub fn turn(&mut self, now: u64, limits: &mut Limits, accounts: &mut Accounts, out: &mut Vec<Output>) -> bool {
        if self.ping_at <= now {
            self.ping_at = now + PING_MS;
            out.push(Output::Ping);
        }
        while let Some(slot) = self.workers.passed(now, limits) {
            self.process(now, slot, None, accounts, out);
        }
        if self.reads() && (!self.inbox.is_empty() || self.deadline.is_some_and(|deadline| deadline <= now)) {
            self.read(now);
        }
        self.over && self.workers.is_idle()
    }

    fn read(&mut self, now: u64) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.over = true;
            return;
        }
        match self.inbox.pop_front() {
            Some(Incoming::Message(message)) => match Frame::decode(message) {
                Ok(frame) => self.take(now, frame),
                Err(_) => self.over = true,
            },
            Some(Incoming::Pong) => self.deadline = Some(now + DEADLINE_MS),
            Some(Incoming::End) => self.over = true,
            None => {}
        }
    }

    fn take(&mut self, now: u64, frame: Frame) {
        if let Some(sequence) = frame.sequence() {
            if sequence <= self.last {
                return;
            }
            self.last = sequence;
        }
        self.blocked = self.workers.add(frame, now);
    }

    fn process(
        &mut self,
        now: u64,
        slot: usize,
        answer: Option<Option<Position>>,
        accounts: &mut Accounts,
        out: &mut Vec<Output>,
    ) {
        let Some(frame) = self.workers.work(slot) else { return };
        match accounts.process(now, frame, answer) {
            Next::Ask(did) => return out.push(Output::GetRepoStatus { did }),
            Next::Done(verdict) => {
                if let (Some(sequence), Some(did)) = (frame.sequence(), frame.did().cloned()) {
                    out.push(Output::Processed { sequence, did, verdict });
                }
                if verdict == Verdict::Cancelled {
                    (self.cancelled, self.over) = (true, true);
                }
            }
        }
        self.workers.finish(slot, now);
        self.blocked = self.blocked.take().and_then(|frame| self.workers.feed(frame, now));
    }

    pub fn answered(
        &mut self,
        now: u64,
        did: &Did,
        position: Option<Position>,
        accounts: &mut Accounts,
        out: &mut Vec<Output>,
    ) {
        if let Some(slot) = self.workers.asking(did) {
            self.process(now, slot, Some(position), accounts, out);
        }
    }
}
