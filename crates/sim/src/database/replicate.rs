//! The replicator's machine, driven by the world instead of threads; what is done for each of its actions is what the
//! production driver does.

use super::{Context, Database, RestoredFrom};
use crate::invariants::{Checked, Invariant, hold};
use crate::message::{Ask, Reply as Arrived};
use crate::oracle::Oracle;
use crate::oracle::batches::{Claimed, Lineage};
use crate::oracle::register::{Deed, Key};
use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Incarnation, Offset};
use highwater_client::TokenId;
use highwater_node::ReadRequest;
use highwater_sqlite::batch::{CONTENT_TYPE, PRODUCER_ID, encode_claim};
use highwater_sqlite::engine::{Engine, Seal, StopReason};
use highwater_sqlite::replicator::batch_bytes;
use highwater_sqlite::replicator::machine::{Action, Environment, Event, Machine, Reply, Request, Sealed, WaiterId};
use highwater_stream::{Append, Operation, ProducerKey, ReadFrom};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

/// Milliseconds after which a failed write of the local files is tried again, as in production.
const LOCAL_RETRY_MS: u64 = 1_000;
/// Bytes asked for to see whose stream it is, as in production.
const OPENING_BYTES: u64 = 4 << 10;

/// A caller of `synced()`.
#[derive(Debug, Clone, Copy)]
struct Promise {
    target_lsn: u64,
    /// Claims that the stream had at the call.
    claims: usize,
}

/// A request that is out.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    body_bytes: u64,
    digest: Option<Digest>,
    at_ms: u64,
}

/// One database's replicator.
#[derive(Debug)]
pub struct Replicator {
    machine: Machine,
    random: SplitMix,
    todo: VecDeque<Action>,
    blocked_until_ms: Option<u64>,
    promises: BTreeMap<WaiterId, Promise>,
    next_waiter: u64,
    sent: Sent,
    stop_told: bool,
}

impl Replicator {
    /// A replicator that has done nothing yet.
    #[must_use]
    pub fn new(machine: Machine, seed: u64) -> Self {
        Self {
            machine,
            random: SplitMix::new(seed),
            todo: VecDeque::new(),
            blocked_until_ms: None,
            promises: BTreeMap::new(),
            next_waiter: 0,
            sent: Sent::default(),
            stop_told: false,
        }
    }

    /// Callers that wait in `synced()`.
    #[must_use]
    pub fn promises(&self) -> usize {
        self.promises.len()
    }

    /// When it is to be looked at again, in virtual milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.blocked_until_ms.or_else(|| self.machine.deadline())
    }

    /// One line about it.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{:?}, {} to do", self.machine.snapshot(), self.todo.len())
    }
}

/// A request's body and what is noted about it.
struct Prepared {
    ask: Ask,
    sent: Sent,
}

impl Database {
    /// `synced()` is called.
    pub fn synced(&mut self, context: &mut Context<'_>) {
        let (Some(engine), Some(replicator)) = (&self.engine, &mut self.replicator) else { return };
        if replicator.promises.len() >= 8 {
            return;
        }
        replicator.next_waiter += 1;
        let (id, target_lsn) = (WaiterId(replicator.next_waiter), engine.progress().last_lsn);
        let claims = context.oracle.batches(&self.stream).map_or(0, |batches| batches.claims().len());
        replicator.promises.insert(id, Promise { target_lsn, claims });
        context.trace.note(context.now_ms, format_args!("{} synced() {} for {target_lsn}", self.name(), id.0));
        self.step(Event::Synced { id, target_lsn }, context);
    }

    /// Tells the machine of an event, and keeps what it wants done.
    pub fn step(&mut self, event: Event, context: &mut Context<'_>) {
        let (Some(engine), Some(replicator)) = (&self.engine, &mut self.replicator) else { return };
        step(replicator, engine, event, context.now_ms);
    }

    /// Does what the machine wants done, up to and including one request.
    /// # Errors
    /// `SyncedIsOwned` and `StopHasACause`.
    pub fn carry_out(&mut self, context: &mut Context<'_>) -> Checked {
        let (Some(engine), Some(replicator)) = (self.engine.clone(), &mut self.replicator) else { return Ok(()) };
        if let Some(reason) = engine.stop_reason()
            && !replicator.stop_told
        {
            replicator.stop_told = true;
            step(replicator, &engine, Event::Stopped(reason), context.now_ms);
        }
        if replicator.machine.deadline().is_some_and(|at| at <= context.now_ms) {
            step(replicator, &engine, Event::Timer, context.now_ms);
        }
        if replicator.blocked_until_ms.is_some_and(|until| until > context.now_ms) {
            return Ok(());
        }
        replicator.blocked_until_ms = None;
        while let Some(action) = self.replicator.as_mut().and_then(|replicator| replicator.todo.pop_front()) {
            if let Action::Send(request) = &action {
                self.send(request, &engine, context);
                continue;
            }
            if let Err(error) = self.write_down(&action, &engine, context)? {
                context.trace.note(context.now_ms, format_args!("{} cannot note {action:?}: {error}", self.name()));
                if let Some(replicator) = &mut self.replicator {
                    replicator.todo.push_front(action);
                    replicator.blocked_until_ms = Some(context.now_ms + LOCAL_RETRY_MS);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    fn write_down(
        &mut self,
        action: &Action,
        engine: &Arc<Engine>,
        context: &mut Context<'_>,
    ) -> Checked<io::Result<()>> {
        Ok(match action {
            Action::SaveClaim(claim) => {
                context.trace.note(context.now_ms, format_args!("{} owns epoch {}", self.name(), claim.epoch));
                engine.save_epoch(*claim)
            }
            Action::SaveAcknowledged(acknowledged) => engine.save_acknowledged(*acknowledged),
            Action::Resolve { id, result } => {
                self.resolved(*id, result, context)?;
                Ok(())
            }
            Action::Stop(reason) => {
                context.trace.note(context.now_ms, format_args!("{} stops: {reason}", self.name()));
                context.trace.meet("a database was fenced");
                self.check_cause(reason, context.oracle)?;
                engine.stop(reason.clone());
                Ok(())
            }
            Action::RereadToken | Action::Send(_) => Ok(()),
        })
    }

    fn resolved(&mut self, id: WaiterId, result: &Result<(), StopReason>, context: &mut Context<'_>) -> Checked {
        let Some(promise) = self.replicator.as_mut().and_then(|replicator| replicator.promises.remove(&id)) else {
            return Ok(());
        };
        context
            .trace
            .note(context.now_ms, format_args!("{} synced() {} is over: {}", self.name(), id.0, result.is_ok()));
        if result.is_err() {
            context.trace.meet("synced() was refused");
            return Ok(());
        }
        context.trace.meet("synced() answered");
        if self.is_renamed(context.oracle) {
            // The server's files were restored, and this owner has not heard of it yet.
            return Ok(());
        }
        let Some(batches) = context.oracle.batches(&self.stream) else { return Ok(()) };
        let target = promise.target_lsn;
        hold(Invariant::SyncedIsOwned, target <= batches.lsn(), || {
            format!("{}: synced() answered for {target}, the stream has {}", self.name(), batches.lsn())
        })?;
        let ours = |lineage: Option<Lineage>| lineage == Some(self.lineage);
        let model = context.oracle.databases.get(&self.lineage);
        let of_this_log = model.is_some_and(|model| target <= model.base || ours(batches.owner_of(target)));
        hold(Invariant::SyncedIsOwned, of_this_log, || {
            format!("{}: synced() answered for {target}, which another owner wrote", self.name())
        })?;
        let claims = batches.claims();
        let owned = claims[promise.claims.saturating_sub(1)..].iter().any(|claim| claim.lineage == self.lineage);
        hold(Invariant::SyncedIsOwned, owned, || {
            format!(
                "{}: synced() answered for {target}, and it was not the owner from the call on: {claims:?}",
                self.name()
            )
        })
    }

    /// A database is stopped only by another owner's claim or commits after its own, or because its files are old.
    fn check_cause(&self, reason: &StopReason, oracle: &Oracle) -> Checked {
        let claims = oracle.batches(&self.stream).map(|batches| batches.claims().to_vec()).unwrap_or_default();
        let foreign = |claim: &Claimed| claim.lineage != self.lineage;
        let RestoredFrom { claims: known, end } = self.restored_from;
        let claimed = claims.iter().skip(known).any(foreign);
        // The old owner may have written on between the restore and this log's first claim.
        let first = claims.iter().skip(known).find(|claim| !foreign(claim)).map(|claim| claim.offset);
        let reached = first.or_else(|| oracle.history(&self.stream).map(|history| history.end().0));
        let written = reached.is_some_and(|reached| reached > end);
        let rewound = oracle.databases.get(&self.lineage).is_some_and(|model| model.rewound);
        let rewound = rewound || self.is_renamed(oracle);
        hold(Invariant::StopHasACause, claimed || written || rewound, || {
            format!("{} stopped: {reason}; claims: {claims:?}", self.name())
        })
    }

    /// Whether the stream has another token than the one that this database is bound to.
    fn is_renamed(&self, oracle: &Oracle) -> bool {
        let bound = self.engine.as_ref().map(|engine| engine.binding().incarnation);
        bound != oracle.token(&self.stream)
    }

    /// Sends a request once everything that must be in the files before it is.
    fn send(&mut self, request: &Request, engine: &Arc<Engine>, context: &mut Context<'_>) {
        let prepared = self.prepare(request, engine, context);
        let Some(replicator) = &mut self.replicator else { return };
        match prepared {
            Ok(Prepared { ask, sent }) => {
                replicator.sent = Sent { at_ms: context.now_ms, ..sent };
                context.trace.note(context.now_ms, format_args!("database {} sends {request:?}", self.index));
                context.asks.push(ask);
            }
            Err(error) => {
                context
                    .trace
                    .note(context.now_ms, format_args!("database {} cannot send {request:?}: {error}", self.index));
                let reply = Box::new(Reply::Local(error.to_string()));
                step(replicator, engine, Event::Answered { token: TokenId::default(), reply }, context.now_ms);
            }
        }
    }

    fn prepare(&mut self, request: &Request, engine: &Arc<Engine>, context: &mut Context<'_>) -> io::Result<Prepared> {
        let incarnation = engine.binding().incarnation;
        let read = |at: Offset, bytes_max: u64| {
            Ask::Read(ReadRequest {
                path: self.stream.clone(),
                incarnation: Some(incarnation),
                from: ReadFrom::At(at),
                length_max: bytes_max,
                leader: true,
                wait_ms: None,
            })
        };
        let ask = match request {
            Request::Head => Ask::Head { path: self.stream.clone() },
            Request::Opening => read(Offset(0), OPENING_BYTES),
            Request::Tail { at, bytes_max } => read(*at, *bytes_max),
            Request::Claim(claim) => {
                let body = encode_claim(claim);
                return Ok(self.append(incarnation, (claim.epoch, 0), body, context));
            }
            Request::Append(sealed) => {
                let read = |from, length, into: &mut Vec<u8>| engine.read_log(from, length, into);
                let (body, digest) = batch_bytes(sealed, &**engine, read)?;
                self.write_seal(sealed, digest, incarnation, engine, context)?;
                return Ok(self.append(incarnation, (sealed.epoch, sealed.seq), body, context));
            }
        };
        Ok(Prepared { ask, sent: Sent::default() })
    }

    fn write_seal(
        &mut self,
        sealed: &Sealed,
        digest: Digest,
        incarnation: Incarnation,
        engine: &Arc<Engine>,
        context: &mut Context<'_>,
    ) -> io::Result<()> {
        let Sealed { epoch, seq, from, to, stream_offset, .. } = *sealed;
        if sealed.digest.is_none() {
            engine.save_seal(Seal { incarnation, epoch, seq, from, to, digest, stream_offset })?;
        }
        // Every record that has a byte in the batch must now survive whatever happens.
        let below = engine.lsn_below(to).unwrap_or(0);
        let inside = engine.record_start(to).is_some_and(|start| start < to);
        if inside {
            context.trace.meet("a commit went over in parts");
        }
        let model = self.model(context.oracle);
        model.durable = model.durable.max(below + u64::from(inside));
        Ok(())
    }

    fn append(
        &self,
        incarnation: Incarnation,
        (epoch, seq): (u64, u64),
        body: Vec<u8>,
        context: &mut Context<'_>,
    ) -> Prepared {
        let (digest, body) = (Digest::of(&body), Bytes::from(body));
        let key = Key { producer: PRODUCER_ID.to_owned(), epoch, seq };
        let register = &mut context.oracle.register;
        // The same bytes under the same key are the same write, whichever process sends them.
        let deed = Deed::Keyed(key);
        let known = register
            .by_digest(&self.stream, digest)
            .filter(|id| register.get(*id).is_some_and(|fact| fact.deed == deed));
        let write = known.unwrap_or_else(|| register.add(&self.stream, deed, Some(incarnation), false, body.clone()));
        let sent = Sent { body_bytes: body.len() as u64, digest: Some(digest), at_ms: 0 };
        let operation = Operation::Append(Append {
            incarnation: Some(incarnation),
            producer: Some(ProducerKey { id: PRODUCER_ID.to_owned(), epoch, seq, digest: Some(digest) }),
            body_fault: None,
            content_type: Some(CONTENT_TYPE.to_owned()),
            stream_seq: None,
            close: false,
            body,
        });
        Prepared { ask: Ask::Write { path: self.stream.clone(), operation, write }, sent }
    }

    /// The outstanding request ended.
    pub fn answered(&mut self, arrived: Arrived, context: &mut Context<'_>) {
        let (Some(engine), Some(replicator)) = (&self.engine, &mut self.replicator) else { return };
        let Sent { body_bytes, digest, at_ms } = replicator.sent;
        let reply = match arrived {
            Arrived::Head(head) => Reply::Head(head),
            Arrived::Read(answer) => Reply::Read(answer),
            Arrived::Told { .. } => return,
            Arrived::Written(answer) => Reply::Written {
                answer,
                body_bytes,
                digest: digest.unwrap_or_else(|| Digest::of(b"")),
                took_ms: context.now_ms.saturating_sub(at_ms),
            },
        };
        step(replicator, engine, Event::Answered { token: TokenId::default(), reply: Box::new(reply) }, context.now_ms);
    }

    /// When the replicator is to be looked at again.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.replicator.as_ref()?.deadline_ms()
    }
}

fn step(replicator: &mut Replicator, engine: &Arc<Engine>, event: Event, now_ms: u64) {
    let mut out = Vec::new();
    let mut environment = Environment { now_ms, log: &**engine, random: &mut replicator.random };
    replicator.machine.step(event, &mut environment, &mut out);
    replicator.todo.extend(out);
}
