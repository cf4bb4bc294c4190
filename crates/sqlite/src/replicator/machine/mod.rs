//! The replicator as a state machine: events in, actions out; no clock, no entropy, no I/O of its own.
//!
//! One request is outstanding at the most. Nothing is appended before a claim is won, and nothing is claimed before
//! somebody writes or asks to be synced. A claim is preceded by a look at the stream: whose server answers, whose stream
//! it is, and that nothing lies behind our acknowledged end but our own work.
//!
//! ```text
//!   unclaimed -- a write, synced() --> claiming: head, opening, gap, claim --> owner: append, append, … or a proof read
//!                                        ^                                       |
//!                                        +-- expired, re-cut after an unknown ---+
//!   any of them -- fenced, history, recreated, expired, foreign_write --> stopped
//! ```

mod answers;
mod claim;
mod gap;
mod owner;
mod pace;
mod synced;
mod types;

pub use types::*;

use crate::engine::{Acknowledgement, LogPosition, StopReason};
use claim::Prepare;
use highwater_base::{Incarnation, Offset, Random};
use highwater_client::TokenId;
use owner::InFlight;
use pace::Sizing;
use synced::Waiters;

/// What a step may ask and draw.
pub struct Environment<'a> {
    /// Monotonic milliseconds.
    pub now_ms: u64,
    /// The local log.
    pub log: &'a dyn LogView,
    /// Entropy, for jitter and nonces.
    pub random: &'a mut dyn Random,
}

/// The replicator of one database.
#[derive(Debug)]
pub struct Machine {
    incarnation: Incarnation,
    cluster_id: String,
    lineage: [u8; 16],
    acknowledged: LogPosition,
    acknowledged_lsn: u64,
    stream_end: Offset,
    epoch: u64,
    next_seq: u64,
    in_flight: Option<InFlight>,
    state: State,
    /// Something was written, or is to be pushed, since the start: the stream is to be claimed.
    wanted: bool,
    /// The stream's first bytes were seen to be ours.
    opening_seen: bool,
    outstanding: Option<Request>,
    /// A look at the head that must come before anything else, and what to block with if the head explains nothing.
    probe: Option<Probe>,
    /// The number of the last request; a request with a higher number started later.
    round: u64,
    waiters: Waiters,
    sizing: Sizing,
    trouble: Trouble,
}

#[derive(Debug)]
enum State {
    Unclaimed,
    Claiming(Box<Prepare>),
    Owner,
    Stopped(StopReason),
}

/// After an answer that may mean another server or another stream, the head is asked first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    /// What to say if the head is as it should be; without it the request is simply sent again.
    verdict: Option<String>,
}

/// What keeps requests from succeeding.
#[derive(Debug, Default)]
struct Trouble {
    condition: Option<(Condition, u64)>,
    attempts: u32,
    retry_at: Option<u64>,
    last_error: String,
    redirects: u32,
    /// The token that the last answer refused.
    refused_token: Option<TokenId>,
}

impl Machine {
    /// A machine that has done nothing yet.
    #[must_use]
    pub fn new(start: Start) -> Self {
        Self {
            incarnation: start.incarnation,
            cluster_id: start.cluster_id,
            lineage: start.lineage,
            acknowledged: start.acknowledged,
            acknowledged_lsn: start.acknowledged_lsn,
            stream_end: start.stream_end,
            epoch: start.epoch,
            next_seq: 0,
            in_flight: start.in_flight.map(InFlight::of_earlier_process),
            state: State::Unclaimed,
            wanted: false,
            opening_seen: false,
            outstanding: None,
            probe: None,
            round: 0,
            waiters: Waiters::default(),
            sizing: Sizing::default(),
            trouble: Trouble::default(),
        }
    }

    /// Takes one event and appends what is to be done to `out`. Sends are carried out after the saves before them.
    pub fn step(&mut self, event: Event, environment: &mut Environment<'_>, out: &mut Vec<Action>) {
        match event {
            Event::Wanted => self.wanted = true,
            Event::Timer => {}
            Event::Stopped(reason) => {
                self.outstanding = None;
                self.state = State::Stopped(reason);
            }
            Event::Abandoned { id } => self.waiters.remove(id),
            Event::Synced { id, target_lsn } => match &self.state {
                State::Stopped(reason) => out.push(Action::Resolve { id, result: Err(reason.clone()) }),
                _ => self.waiters.add(id, target_lsn, self.round),
            },
            Event::Answered { token, reply } => {
                if let Some(request) = self.outstanding.take() {
                    self.answered(request, token, *reply, environment, out);
                }
            }
        }
        self.settle(out);
        self.advance(environment, out);
    }

    /// When to step with [`Event::Timer`], in monotonic milliseconds.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if self.outstanding.is_some() || matches!(self.state, State::Stopped(_)) { None } else { self.trouble.retry_at }
    }

    /// Whether the machine waits for nothing: no request, no timer.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outstanding.is_none() && self.deadline().is_none()
    }

    /// What the status page shows.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (state, reason) = match &self.state {
            State::Unclaimed => ("unclaimed", None),
            State::Claiming(_) => ("claiming", None),
            State::Owner => ("owner", None),
            State::Stopped(reason) => ("stopped", Some(reason.clone())),
        };
        Snapshot {
            state,
            reason,
            condition: self.trouble.condition,
            attempts: self.trouble.attempts,
            retry_at: self.deadline(),
            last_error: self.trouble.last_error.clone(),
            epoch: self.epoch,
            incarnation: self.incarnation,
            stream_end: self.stream_end,
            acknowledged: self.acknowledged,
            acknowledged_lsn: self.acknowledged_lsn,
            batch_bytes: self.sizing.batch_bytes(),
            waiters: self.waiters.len(),
        }
    }

    /// Sends the next request, if one is due.
    fn advance(&mut self, environment: &mut Environment<'_>, out: &mut Vec<Action>) {
        if self.outstanding.is_some() {
            return;
        }
        if let Some(retry_at) = self.trouble.retry_at {
            if environment.now_ms < retry_at {
                return;
            }
            self.trouble.retry_at = None;
        }
        if matches!(self.state, State::Unclaimed) && (self.wanted || !self.waiters.is_empty()) {
            self.state = State::Claiming(Box::new(Prepare::new(self.gap())));
        }
        let request = match &mut self.state {
            State::Unclaimed | State::Stopped(_) => None,
            _ if self.probe.is_some() => Some(Request::Head),
            State::Claiming(_) => self.next_of_claim(environment),
            State::Owner => self.next_of_owner(environment),
        };
        if let Some(request) = request {
            self.round += 1;
            self.outstanding = Some(request.clone());
            out.push(Action::Send(request));
        }
    }

    /// Tells the callers of `synced()` that have what they waited for.
    fn settle(&mut self, out: &mut Vec<Action>) {
        let result = match &self.state {
            State::Stopped(reason) => Err(reason.clone()),
            _ => Ok(()),
        };
        let done = if result.is_err() { self.waiters.drain() } else { self.waiters.proven(self.acknowledged_lsn) };
        out.extend(done.into_iter().map(|id| Action::Resolve { id, result: result.clone() }));
    }

    /// The database stops; what is not acknowledged stays in the local files.
    fn stop(&mut self, reason: StopReason, out: &mut Vec<Action>) {
        self.trouble.retry_at = None;
        self.probe = None;
        self.state = State::Stopped(reason.clone());
        out.push(Action::Stop(reason));
    }

    /// Everything below `upto` is held by the stream, which ends at `stream_end`.
    fn acknowledge(&mut self, upto: LogPosition, stream_end: Offset, log: &dyn LogView, out: &mut Vec<Action>) {
        self.acknowledged = upto;
        self.stream_end = stream_end;
        self.acknowledged_lsn = log.lsn_below(upto).unwrap_or(self.acknowledged_lsn);
        self.next_seq += 1;
        self.in_flight = None;
        out.push(Action::SaveAcknowledged(Acknowledgement { upto, stream_end, next_seq: self.next_seq }));
    }

    /// An append, a claim or a proof got through.
    fn succeeded(&mut self) {
        self.trouble = Trouble::default();
    }
}

#[cfg(test)]
pub(super) mod tests;
