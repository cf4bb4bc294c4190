//! Requests and answers on their way: sent, lost, executed, answered, given up.

use crate::invariants::{Checked, Invariant, hold, violated};
use crate::message::{Ask, Party, Reply};
use crate::network::{PATIENCE_MS, Return};
use crate::trace::Trace;
use crate::wire;
use crate::world::{Call, Event, Execution, World};
use highwater_base::Random;
use highwater_client::WriteKind;
use highwater_node::shard::Answer;
use highwater_node::{Unavailable, WriteAnswer};
use highwater_store::ReadError;
use highwater_stream::{Outcome, Refusal};

/// What the node says to a keyed write's head.
type EarlyAnswer = Result<Option<WriteAnswer>, Unavailable>;

impl World {
    /// Sends a request.
    pub(crate) fn send(&mut self, from: Party, ask: Ask) {
        let now_ms = self.schedule.now_ms();
        self.next += 1;
        let call = self.next;
        let copies = self.network.request(&ask, from, now_ms, &self.swarm, &mut self.random);
        for copy in copies {
            self.schedule.after(copy.delay_ms, Event::Arrive(call, copy.returns));
        }
        self.schedule.after(PATIENCE_MS, Event::GiveUp(call));
        self.calls.insert(call, Call { from, ask });
        self.outstanding.insert(from, call);
    }

    pub(crate) fn arrive(&mut self, call: u64, returns: Return) {
        let now_ms = self.schedule.now_ms();
        let Some(Call { from, ask }) = self.calls.get(&call) else { return };
        if !self.server.is_up() {
            // A port that nobody listens on says so.
            self.schedule.after(1, Event::Answer(call, Box::new(ask.unanswered("the server is down"))));
            return;
        }
        let limit = self.swarm.request_bytes_max;
        if matches!(from, Party::Database(_)) && ask.body_bytes() > limit {
            self.trace.meet("a request was too large");
            let reply = Reply::Written(wire::too_large(ask.kind(), limit));
            let plain = returns == Return::Plain;
            let (party, kept) = (*from, if plain { reply } else { ask.unanswered("a layer timed out") });
            if let Some(delay_ms) = self.network.answer(party, now_ms, &self.swarm, &mut self.random) {
                self.schedule.after(delay_ms, Event::Answer(call, Box::new(kept)));
            }
            return;
        }
        self.next += 1;
        let token = self.next;
        let (party, ask) = (*from, ask.clone());
        let write = match &ask {
            Ask::Commit { write, .. } => {
                self.ask_snapshot(token, &ask);
                Some(*write)
            }
            Ask::Snapshot { .. } => {
                self.ask_snapshot(token, &ask);
                None
            }
            Ask::Control { operation, order } => {
                self.oracle.control.arrived(*order);
                self.server.control(token, operation.clone(), now_ms);
                None
            }
            Ask::Write { path, operation, write } => {
                let early = self.random.below(8) == 0 && self.server.early(token, path, operation);
                if !early {
                    self.oracle.arrived(*write, self.server.wall(now_ms));
                    self.server.write(token, path.clone(), operation.clone(), now_ms);
                }
                Some(*write)
            }
            Ask::Head { path } => {
                self.server.head(token, path.clone(), now_ms);
                None
            }
            Ask::Read(request) => {
                self.server.read(token, request.clone());
                None
            }
        };
        let located = None;
        self.executions.insert(token, Execution { call, party, ask, write, returns, located });
        self.plan_turn();
    }

    pub(crate) fn plan_turn(&mut self) {
        if !self.turn_due {
            self.turn_due = true;
            self.schedule.after(self.random.below(3), Event::ServerTurn);
        }
    }

    pub(crate) fn take_answers(&mut self, answers: Vec<(u64, Answer)>) -> Checked {
        let now_ms = self.schedule.now_ms();
        self.take_in(&answers)?;
        // The streams are looked at before the answers leave: what they promise must be there already.
        self.oracle.look(&mut self.server, now_ms)?;
        if self.oracle.take_ended() {
            self.trace.meet("a stream was over");
        }
        if let Some(death) = self.server.must_die() {
            return self.server_dies(death, "its disk or its log failed");
        }
        for (token, answer) in answers {
            let Some(execution) = self.executions.get(&token) else { continue };
            let reply = match answer {
                Answer::Write(answer) => {
                    if let (Some(write), Ok(WriteAnswer { result: Ok(outcome), .. })) = (execution.write, &answer) {
                        self.oracle.acknowledged(write, outcome)?;
                    }
                    if execution.ask.is_told() {
                        let ask = execution.ask.clone();
                        self.told_write(&ask, &answer)?
                    } else {
                        Reply::Written(wire::written(execution.ask.kind(), &answer))
                    }
                }
                Answer::Control(answer) => {
                    let ask = execution.ask.clone();
                    self.control_answered(&ask, &answer)?
                }
                Answer::Snapshot(answer) => match self.snapshot_answered(token, answer)? {
                    Some(reply) => reply,
                    None => continue,
                },
                Answer::Head(answer) => {
                    let limit = self.swarm.request_bytes_max;
                    Reply::Head(wire::head(self.server.cluster_id(), limit, answer))
                }
                Answer::Read(Ok(Ok(located))) => {
                    if let Ask::Read(request) = &execution.ask {
                        self.server.keep(token, request.clone(), located);
                        // A thread that waits for the disk may find that a checkpoint came before it.
                        let most_ms = if self.random.below(4) == 0 { 400 } else { 10 };
                        self.schedule.after(self.random.below(most_ms), Event::ServerFetch(token));
                    }
                    continue;
                }
                Answer::Read(Ok(Err(refusal))) => Reply::Read(wire::piece(Ok(Err(refusal)))),
                Answer::Read(Err(unavailable)) => Reply::Read(wire::piece(Err(unavailable))),
                // Nobody here copies a checkpoint, and parts are located by the oracle alone.
                Answer::Pin(_) | Answer::Located(_) => continue,
                Answer::Early(answer) => match self.early(token, answer)? {
                    Some(reply) => reply,
                    None => continue,
                },
            };
            self.leave(token, reply);
        }
        self.oracle.check_usage(&self.server)
    }

    /// The answer from a write's head alone; nothing if the write itself must be done.
    fn early(&mut self, token: u64, answer: EarlyAnswer) -> Checked<Option<Reply>> {
        let now_ms = self.schedule.now_ms();
        let Some(Execution { ask: Ask::Write { path, operation, write }, .. }) = self.executions.get(&token) else {
            return Ok(None);
        };
        let (write, kind) = (*write, WriteKind::Keyed);
        match answer {
            Ok(None) => {
                self.oracle.arrived(write, self.server.wall(now_ms));
                self.server.write(token, path.clone(), operation.clone(), now_ms);
                self.plan_turn();
                Ok(None)
            }
            Ok(Some(earlier)) => {
                self.trace.meet("a write was answered early");
                if let Ok(outcome) = &earlier.result {
                    let there = self.oracle.register.get(write).is_some_and(|fact| fact.place.is_some());
                    hold(Invariant::RepeatHasTheReceipt, there, || {
                        format!("write {} was answered early with {outcome:?} and never applied", write.0)
                    })?;
                    self.oracle.acknowledged(write, outcome)?;
                }
                Ok(Some(Reply::Written(wire::written(kind, &Ok(earlier)))))
            }
            Err(unavailable) => Ok(Some(Reply::Written(wire::written(kind, &Err(unavailable))))),
        }
    }

    pub(crate) fn fetch(&mut self, token: u64) -> Checked {
        let request = match self.executions.get(&token).map(|execution| &execution.ask) {
            Some(Ask::Read(request)) => request.clone(),
            Some(Ask::Commit { .. } | Ask::Snapshot { .. }) => {
                if let Some(reply) = self.fetch_objects(token)? {
                    self.leave(token, reply);
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        match self.server.fetch(token) {
            None => {}
            Some(Ok(answer)) => {
                self.oracle.read(&request.path, &answer)?;
                self.leave(token, Reply::Read(wire::piece(Ok(Ok(answer)))));
            }
            Some(Err(ReadError::Moved)) => {
                self.trace.meet("a read's bytes had moved");
                self.plan_turn();
            }
            Some(Err(error @ ReadError::Damaged { .. })) => {
                return violated(Invariant::AcknowledgedIsThere, error.to_string());
            }
            Some(Err(error)) => {
                self.leave(token, Reply::Read(wire::piece(Err(Unavailable::Internal(error.to_string())))));
            }
        }
        Ok(())
    }

    /// An answer leaves the server.
    fn leave(&mut self, token: u64, reply: Reply) {
        let now_ms = self.schedule.now_ms();
        let Some(Execution { call, party, ask, returns, .. }) = self.executions.remove(&token) else { return };
        self.trace.note(now_ms, format_args!("{party:?} call {call} is answered: {}", reply.describe()));
        let reply = match returns {
            Return::Plain => reply,
            Return::Never => return,
            Return::SuccessOnly if reply.succeeded() => reply,
            Return::SuccessOnly => ask.unanswered("a layer timed out"),
        };
        if let Some(delay_ms) = self.network.answer(party, now_ms, &self.swarm, &mut self.random) {
            self.schedule.after(delay_ms, Event::Answer(call, Box::new(reply)));
        }
    }

    pub(crate) fn give_up(&mut self, call: u64) -> Checked {
        let Some(Call { from, ask }) = self.calls.get(&call) else { return Ok(()) };
        let waits = self.outstanding.get(from) == Some(&call);
        if !waits {
            // Answered or abandoned; late copies may still arrive for a while.
            self.calls.remove(&call);
            return Ok(());
        }
        let reply = ask.unanswered("no answer in time");
        self.answer(call, &reply)?;
        self.schedule.after(3 * PATIENCE_MS, Event::GiveUp(call));
        Ok(())
    }

    pub(crate) fn answer(&mut self, call: u64, reply: &Reply) -> Checked {
        let Some(Call { from, .. }) = self.calls.get(&call) else { return Ok(()) };
        let from = *from;
        if self.outstanding.get(&from) != Some(&call) {
            return Ok(());
        }
        self.outstanding.remove(&from);
        match from {
            Party::Client(index) => self.clients[index].answered(reply),
            Party::Database(index) => {
                self.with_database(index, |database, context| {
                    database.answered(reply.clone(), context);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

/// Counts what an answer shows.
pub(crate) fn meet(trace: &mut Trace, answer: &Result<WriteAnswer, Unavailable>) {
    let what = match answer {
        Ok(WriteAnswer { result: Ok(outcome), .. }) => match outcome {
            Outcome::Repeated(_) => "a write was repeated",
            Outcome::Deleted => "a raw stream was deleted",
            Outcome::Appended { closed: true, .. } => "a raw stream was closed",
            Outcome::Applied(receipt) if receipt.closed_epoch.is_some() => "a claim closed an epoch",
            Outcome::PartStaged { .. } => "a part was staged",
            Outcome::PartsDiscarded { .. } => "parts were discarded",
            Outcome::Published { .. } => "a snapshot was published",
            Outcome::Retained { .. } => "a stream's front was given up",
            _ => return,
        },
        Ok(WriteAnswer { result: Err(refusal), .. }) => match refusal {
            Refusal::EpochClosedByClaim { .. } | Refusal::EpochStale { .. } => "a raw producer was fenced",
            Refusal::ProducerExpired { .. } => "a raw producer was forgotten",
            Refusal::SnapshotDigestMismatch => "a snapshot had another digest",
            Refusal::UnknownPart { .. } => "a part was gone when a snapshot was made of it",
            _ => return,
        },
        Err(Unavailable::WalDiskPressure) => "the server's log had no space",
        Err(_) => return,
    };
    trace.meet(what);
}
