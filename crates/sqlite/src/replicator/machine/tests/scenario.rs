//! One owner, one server, and a script of what happens to each request: for tables and stories.

use super::model::{CLUSTER, ModelLog, Raw, Server, incarnation};
use crate::batch::encode_claim;
use crate::engine::{LogPosition, Seal, StopCode, StopReason};
use crate::replicator::machine::*;
use crate::replicator::perform::batch_bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Offset, Random};
use highwater_client::{Answer, HeadAnswer, TokenId};
use std::collections::BTreeMap;

pub(super) const LINEAGE: [u8; 16] = [1; 16];

/// What happens to the next request of a kind.
pub(super) enum Fate {
    /// The server gets it, and this answer comes back instead of its own.
    Applied(Raw),
    /// The server never gets it; this answer comes back.
    Refused(Raw),
}

/// Entropy whose every jitter is the longest, so that a wait is a wait.
pub(super) struct LongestWait(SplitMix);

impl Random for LongestWait {
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, bound: u64) -> u64 {
        bound.saturating_sub(1)
    }
}

/// A database whose machine is stepped until it has nothing to do but wait.
pub(super) struct Owner {
    pub(super) machine: Machine,
    pub(super) log: ModelLog,
    pub(super) server: Server,
    pub(super) random: LongestWait,
    pub(super) now: u64,
    pub(super) token: TokenId,
    /// Every request that was sent, with the time, and for writes the key and the digest.
    pub(super) sent: Vec<(u64, Sent)>,
    pub(super) resolved: BTreeMap<WaiterId, Result<(), StopReason>>,
    pub(super) stopped: Option<StopReason>,
    pub(super) saved: Saved,
    /// Bytes per second of the link; 0 for a link without delay.
    pub(super) bytes_per_s: u64,
    fates: Vec<Fate>,
    head_fates: Vec<HeadAnswer>,
}

/// What the files hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Saved {
    pub(super) acknowledged: LogPosition,
    pub(super) stream_end: Offset,
    pub(super) epoch: u64,
    pub(super) in_flight: Option<Seal>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sent {
    Head,
    Opening,
    Tail(Offset),
    Write { epoch: u64, seq: u64, digest: Digest, bytes: u64 },
}

impl Owner {
    pub(super) fn new(server: Server, saved: Saved, log: ModelLog, seed: u64) -> Self {
        let start = Start {
            incarnation: incarnation(),
            cluster_id: CLUSTER.to_owned(),
            lineage: LINEAGE,
            acknowledged: saved.acknowledged,
            acknowledged_lsn: log.lsn_below(saved.acknowledged).expect("in the log"),
            stream_end: saved.stream_end,
            epoch: saved.epoch,
            in_flight: saved.in_flight,
        };
        Self {
            machine: Machine::new(start),
            log,
            server,
            random: LongestWait(SplitMix::new(seed)),
            now: 1_000,
            token: TokenId(7),
            sent: Vec::new(),
            resolved: BTreeMap::new(),
            stopped: None,
            saved,
            bytes_per_s: 0,
            fates: Vec::new(),
            head_fates: Vec::new(),
        }
    }

    pub(super) fn fresh() -> Self {
        Self::new(Server::default(), Saved::default(), ModelLog::default(), 1)
    }

    /// An owner that won its claim and has one commit acknowledged.
    pub(super) fn settled() -> Self {
        let mut owner = Self::fresh();
        owner.commit(1);
        assert_eq!(owner.machine.snapshot().acknowledged_lsn, 1);
        owner.sent.clear();
        owner
    }

    /// The same database after its process died.
    pub(super) fn restarted(self) -> Self {
        Self { now: self.now, ..Self::new(self.server, self.saved, self.log, 2) }
    }

    /// The next writes meet these fates, in order; later ones are answered by the server.
    pub(super) fn writes_meet(&mut self, fates: impl IntoIterator<Item = Fate>) {
        self.fates = fates.into_iter().collect();
        self.fates.reverse();
    }

    pub(super) fn heads_answer(&mut self, heads: impl IntoIterator<Item = HeadAnswer>) {
        self.head_fates = heads.into_iter().collect();
        self.head_fates.reverse();
    }

    pub(super) fn commit(&mut self, pages: u32) -> u64 {
        let lsn = self.log.commit(pages, &mut self.random);
        self.step(Event::Wanted);
        lsn
    }

    pub(super) fn synced(&mut self, id: u64) {
        let target_lsn = self.log.last_lsn();
        self.step(Event::Synced { id: WaiterId(id), target_lsn });
    }

    /// Takes an event and everything that follows without waiting.
    pub(super) fn step(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut out = Vec::new();
            let mut environment = Environment { now_ms: self.now, log: &self.log, random: &mut self.random };
            self.machine.step(event, &mut environment, &mut out);
            for action in out {
                if let Some((token, reply)) = self.carry_out(action) {
                    events.push(Event::Answered { token, reply: Box::new(reply) });
                }
            }
        }
    }

    /// Takes one event and carries out everything but the request, which is answered.
    pub(super) fn step_once(&mut self, event: Event) -> Option<Request> {
        let mut out = Vec::new();
        let mut environment = Environment { now_ms: self.now, log: &self.log, random: &mut self.random };
        self.machine.step(event, &mut environment, &mut out);
        let mut sent = None;
        for action in out {
            match action {
                Action::Send(request) => sent = Some(request),
                action => drop(self.carry_out(action)),
            }
        }
        sent
    }

    /// The answer to a request that [`Owner::step_once`] wanted sent.
    pub(super) fn answer(&mut self, request: &Request) -> Event {
        Event::Answered { token: self.token, reply: Box::new(self.send(request)) }
    }

    /// Lets time pass up to `ms` later, firing timers when they are due.
    pub(super) fn wait(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(at) = self.machine.deadline().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.step(Event::Timer);
        }
        self.now = self.now.max(until);
    }

    /// The bytes of a sealed batch.
    pub(super) fn batch_of(&self, seal: &Seal) -> Vec<u8> {
        let Seal { epoch, seq, from, to, stream_offset, digest, .. } = *seal;
        let sealed = Sealed { epoch, seq, from, to, stream_offset, digest: Some(digest) };
        let read = |from, length, into: &mut Vec<u8>| self.log.read(from, length, into);
        batch_bytes(&sealed, &self.log, read).expect("the bytes that were sealed").0
    }

    pub(super) fn condition(&self) -> Option<&'static str> {
        self.machine.snapshot().condition.map(|(condition, _)| condition.as_str())
    }

    pub(super) fn stop_code(&self) -> Option<StopCode> {
        self.stopped.as_ref().map(|reason| reason.code)
    }

    /// Milliseconds until the next attempt.
    pub(super) fn retry_in(&self) -> u64 {
        self.machine.deadline().expect("a retry") - self.now
    }

    pub(super) fn writes(&self) -> Vec<(u64, u64, Digest)> {
        let keys = self.sent.iter().filter_map(|(_, sent)| match sent {
            Sent::Write { epoch, seq, digest, .. } => Some((*epoch, *seq, *digest)),
            _ => None,
        });
        keys.collect()
    }

    pub(super) fn tails(&self) -> usize {
        self.sent.iter().filter(|(_, sent)| matches!(sent, Sent::Tail(_))).count()
    }

    fn carry_out(&mut self, action: Action) -> Option<(TokenId, Reply)> {
        match action {
            Action::Send(request) => return Some((self.token, self.send(&request))),
            Action::SaveClaim(claim) => {
                self.saved.epoch = claim.epoch;
                self.saved.stream_end = claim.stream_end;
                self.saved.acknowledged = claim.resume;
                self.saved.in_flight = None;
            }
            Action::SaveAcknowledged(acknowledged) => {
                self.saved.acknowledged = acknowledged.upto;
                self.saved.stream_end = acknowledged.stream_end;
                self.saved.in_flight = None;
            }
            Action::Resolve { id, result } => {
                assert!(self.resolved.insert(id, result).is_none(), "{id:?} was told twice");
            }
            Action::Stop(reason) => self.stopped = Some(reason),
            Action::RereadToken => {}
        }
        None
    }

    fn send(&mut self, request: &Request) -> Reply {
        let (epoch, seq, body) = match request {
            Request::Head => {
                self.sent.push((self.now, Sent::Head));
                return Reply::Head(self.head_fates.pop().unwrap_or_else(|| self.server.head()));
            }
            Request::Opening => {
                self.sent.push((self.now, Sent::Opening));
                return Reply::Read(self.server.read(Offset(0), 4096));
            }
            Request::Tail { at, bytes_max } => {
                self.sent.push((self.now, Sent::Tail(*at)));
                return Reply::Read(self.server.read(*at, *bytes_max));
            }
            Request::Claim(claim) => (claim.epoch, 0, encode_claim(claim)),
            Request::Append(sealed) => {
                let read = |from, length, into: &mut Vec<u8>| self.log.read(from, length, into);
                let (body, digest) = batch_bytes(sealed, &self.log, read).expect("the bytes that were sealed");
                if sealed.digest.is_none() {
                    let Sealed { epoch, seq, from, to, stream_offset, .. } = *sealed;
                    let incarnation = incarnation();
                    self.saved.in_flight = Some(Seal { incarnation, epoch, seq, from, to, digest, stream_offset });
                }
                (sealed.epoch, sealed.seq, body)
            }
        };
        let (digest, bytes) = (Digest::of(&body), body.len() as u64);
        self.sent.push((self.now, Sent::Write { epoch, seq, digest, bytes }));
        let took_ms = (bytes * 1_000).checked_div(self.bytes_per_s).unwrap_or(1);
        self.now += took_ms;
        let answer: Answer<_> = match self.fates.pop() {
            None => self.server.append(epoch, seq, &body).written(),
            Some(Fate::Refused(raw)) => raw.written(),
            Some(Fate::Applied(raw)) => {
                self.server.append(epoch, seq, &body);
                raw.written()
            }
        };
        Reply::Written { answer, body_bytes: bytes, digest, took_ms }
    }
}
