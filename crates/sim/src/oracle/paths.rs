//! What is known of every path: the history that lives there, and those that are gone.

use super::batches::{Batches, Databases};
use super::control::Control;
use super::history::{Content, History};
use super::lifetime::Lifetime;
use super::register::{Deed, Register};
use super::snapshots::Place;
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::message::WriteId;
use crate::server::Server;
use highwater_base::{Incarnation, Millis, Offset};
use highwater_node::{ReadAnswer, Unavailable, WriteAnswer};
use highwater_store::ReadError;
use highwater_stream::{Outcome, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// One path.
#[derive(Debug, Clone, Default)]
pub(super) struct Path {
    /// Whether databases write there.
    batches: bool,
    pub(super) current: Option<History>,
    token: Option<Incarnation>,
    /// A history whose time is over. A clock that goes back may bring it back, as long as it is not removed.
    pub(super) over: Option<History>,
    gone: BTreeSet<Incarnation>,
    /// Histories that deletes took away.
    deleted: u64,
    /// Deletes that happened or may have.
    deletes: u64,
}

/// What the oracle knew when a copy of the server's files was taken.
#[derive(Debug, Clone)]
pub struct Memory {
    register: Register,
    paths: BTreeMap<String, Path>,
    control: Control,
}

/// The oracle of the streams.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Every write.
    pub register: Register,
    /// What the databases' processes committed.
    pub databases: Databases,
    /// Keys, accounts and plans.
    pub control: Control,
    pub(super) paths: BTreeMap<String, Path>,
    /// Lives of the server.
    life: u64,
    /// Times that older files were put in the place of the server's.
    restores: u64,
    /// Streams that were over, to be told once.
    ended: u64,
    /// Bytes compared a second time after restarts.
    pub verified_bytes: u64,
}

impl Oracle {
    /// Watches a path; `batches` if databases write there.
    pub fn watch(&mut self, path: &str, batches: bool) {
        self.paths.insert(path.to_owned(), Path { batches, ..Path::default() });
    }

    /// The watched paths.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.paths.keys().cloned().collect()
    }

    /// The history that lives at a path, as far as it was seen.
    #[must_use]
    pub fn history(&self, path: &str) -> Option<&History> {
        self.paths.get(path)?.current.as_ref()
    }

    /// What lives at a path, to be told something.
    pub(super) fn history_mut(&mut self, path: &str) -> Option<&mut History> {
        self.paths.get_mut(path)?.current.as_mut()
    }

    /// The token of the history that lives at a path, as far as it was seen; nothing between a restore of the server's
    /// files and the token that follows from it.
    #[must_use]
    pub fn token(&self, path: &str) -> Option<Incarnation> {
        let known = self.paths.get(path)?;
        known.token.filter(|_| known.current.as_ref().is_some_and(|history| history.restores() == self.restores))
    }

    /// Whether every stream was told of every restore: what is known now is all there is.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let told = |history: &History| history.restores() == self.restores;
        self.paths.values().all(|known| known.current.as_ref().is_none_or(told))
    }

    /// What is known, to go with a copy of the server's files.
    #[must_use]
    pub fn remember(&self) -> Memory {
        Memory { register: self.register.clone(), paths: self.paths.clone(), control: self.control.clone() }
    }

    /// Whether a stream was over since this was last asked.
    pub fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended) > 0
    }

    /// The server's files become those that `memory` was taken with; what came later never happened.
    pub fn rewind(&mut self, memory: &Memory) {
        self.restores += 1;
        self.register.rewind(&memory.register);
        self.control.rewind(&memory.control);
        for (path, known) in &mut self.paths {
            let Some(earlier) = memory.paths.get(path) else { continue };
            let named = |known: &Path| known.current.iter().chain(&known.over).map(History::token).collect::<Vec<_>>();
            // No token of the time before the restore names anything any more.
            let mut gone: BTreeSet<_> = known.gone.union(&earlier.gone).copied().collect();
            gone.extend(named(known).into_iter().chain(named(earlier)));
            *known = Path { gone, ..earlier.clone() };
            // Time went on since the copy was taken.
            known.current.iter_mut().for_each(|history| history.snapshots.age());
        }
        self.server_died();
    }

    /// The server is down: what it had not answered may have been done.
    pub fn server_died(&mut self) {
        self.life += 1;
        self.control.server_died();
        for (path, known) in &mut self.paths {
            let Some(history) = &mut known.current else { continue };
            for fact in self.register.of_path(path).filter(|fact| fact.undecided > 0) {
                match &fact.deed {
                    Deed::Discard => history.snapshots.doubt(None),
                    Deed::Publish { parts, .. } => history.snapshots.doubt(Some(parts)),
                    _ => {}
                }
            }
        }
    }

    /// The wall clock moved, and parts may have become too old.
    pub fn clock_jumped(&mut self) {
        self.paths.values_mut().filter_map(|known| known.current.as_mut()).for_each(|h| h.snapshots.age());
    }

    /// A request with a write reached the server.
    pub fn arrived(&mut self, write: WriteId, wall: Millis) {
        self.register.arrived(write, wall, self.life);
        if let Some(fact) = self.register.get(write)
            && fact.deed == Deed::Delete
            && let Some(path) = self.paths.get_mut(&fact.path)
        {
            path.deletes += 1;
        }
    }

    /// The server answered a write; [`Oracle::acknowledged`] follows once the streams were looked at.
    /// # Errors
    /// What is wrong with the answer by itself.
    pub fn answered(&mut self, write: WriteId, answer: &Result<WriteAnswer, Unavailable>) -> Checked {
        self.register.answered(write, answer)?;
        let refused = match answer {
            Ok(WriteAnswer { result, durability }) => {
                hold(Invariant::AcknowledgedIsThere, durability.synced == 1 && durability.of == 1, || {
                    format!("write {} was answered with {durability:?} by a lone voter", write.0)
                })?;
                result.is_err()
            }
            Err(unavailable) => !matches!(unavailable, Unavailable::OutcomeUnknown { .. } | Unavailable::Internal(_)),
        };
        if let (true, Some(fact)) = (refused, self.register.get(write))
            && fact.deed == Deed::Delete
            && let Some(path) = self.paths.get_mut(&fact.path)
        {
            path.deletes -= 1;
        }
        Ok(())
    }

    /// Holds a success that the server just sent against the streams as they are.
    /// # Errors
    /// `AcknowledgedIsThere`, `RepeatHasTheReceipt`.
    pub fn acknowledged(&mut self, write: WriteId, outcome: &Outcome) -> Checked {
        self.keep_alive(write, outcome);
        let Some(fact) = self.register.get(write) else { return Ok(()) };
        let there = |token: Incarnation, start: Offset, end: Offset| {
            // A delete of the same turn may have taken it away again.
            let Some(history) = self.history(&fact.path).filter(|_| self.token(&fact.path) == Some(token)) else {
                return Ok(());
            };
            hold(Invariant::AcknowledgedIsThere, end.since(start) == fact.body.len() as u64, || {
                format!("write {} of {} bytes was acknowledged as {start}..{end}", write.0, fact.body.len())
            })?;
            history.check_bytes(&fact.path, start, &fact.body)
        };
        match outcome {
            Outcome::Applied(receipt) | Outcome::Repeated(receipt) => {
                self.register.receipt(write, receipt)?;
                there(receipt.incarnation, receipt.start, receipt.next)
            }
            Outcome::Appended { start, incarnation, .. } if !fact.body.is_empty() => {
                there(*incarnation, *start, Offset(start.0 + fact.body.len() as u64))
            }
            Outcome::Created(created) => there(created.incarnation, Offset(0), Offset(fact.body.len() as u64)),
            _ => self.kept(write, outcome),
        }
    }

    /// A write that succeeded reached its stream, whose window begins anew.
    fn keep_alive(&mut self, write: WriteId, outcome: &Outcome) {
        let token = match outcome {
            Outcome::Applied(receipt) | Outcome::Repeated(receipt) => receipt.incarnation,
            Outcome::Appended { incarnation, .. } => *incarnation,
            _ => return,
        };
        let Some((path, Some(at))) = self.register.get(write).map(|fact| (&fact.path, fact.at)) else { return };
        let Some(known) = self.paths.get_mut(path).filter(|known| known.token == Some(token)) else { return };
        if let Some(lifetime) = known.current.as_mut().and_then(|history| history.lifetime.as_mut()) {
            lifetime.reached(at);
        }
    }

    /// Holds what a reader was given against what was seen.
    /// # Errors
    /// `AcknowledgedIsThere` for other bytes; `DeletedStaysDeleted` for those of a history that is gone.
    pub fn read(&self, path: &str, answer: &ReadAnswer) -> Checked {
        let Some(known) = self.paths.get(path) else { return Ok(()) };
        if known.token != Some(answer.incarnation) {
            // The read was located before the stream was deleted; its bytes were checked when they were written.
            let over = known.over.as_ref().is_some_and(|history| history.is_named(answer.incarnation));
            return hold(Invariant::DeletedStaysDeleted, over || known.gone.contains(&answer.incarnation), || {
                format!("{path} was read in the history {}, which nobody saw", answer.incarnation)
            });
        }
        match self.history(path) {
            Some(history) => history.check_bytes(path, answer.start, &answer.body),
            None => Ok(()),
        }
    }

    /// Looks at every stream; nothing happens while the server cannot tell.
    /// # Errors
    /// Whatever promise is broken.
    pub fn look(&mut self, server: &mut Server, now_ms: u64) -> Checked {
        for path in self.paths() {
            self.look_at(&path, server, now_ms)?;
        }
        self.control.look(server.view(), server.wall(now_ms))
    }

    fn look_at(&mut self, path: &str, server: &mut Server, now_ms: u64) -> Checked {
        let wall = server.wall(now_ms);
        let Some(head) = server.probe_head(path, now_ms) else { return Ok(()) };
        let (restores, known) = (self.restores, self.paths.entry(path.to_owned()).or_default());
        let head = match head {
            Ok(head) => head,
            Err(Refusal::StreamNotFound) => {
                known.vanish(path, None, wall)?;
                self.ended += u64::from(known.token.is_none() && known.over.is_some());
                return Ok(());
            }
            Err(refusal) => {
                return violated(Invariant::AcknowledgedIsThere, format!("{path}: its head says {refusal}"));
            }
        };
        if known.token != Some(head.incarnation) {
            let before = head.previous.filter(|_| known.awaits(restores));
            match before {
                Some(before) => known.renew(path, head.incarnation, before, (wall, restores), &self.register)?,
                None => known.appear(path, head.incarnation, (wall, restores), &self.register)?,
            }
        }
        let Some(history) = &mut known.current else { return Ok(()) };
        hold(Invariant::RestoreIsTold, history.restores() == restores, || {
            format!("{path} has the token {} still, after a restore of the server's files", head.incarnation)
        })?;
        let over = history.lifetime.is_some_and(|lifetime| lifetime.must_be_over(wall));
        hold(Invariant::TimeIsKept, !over, || format!("{path} is there at {wall:?}, and was to end before"))?;
        history.check_head(path, head.next, head.closed)?;
        while history.end() < head.next {
            let answer = match server.probe_read(path, head.incarnation, history.end()) {
                Some(Ok(answer)) => answer,
                Some(Err(ReadError::Damaged { path: file, position, fault })) => {
                    let seen = format!("{path}: {} is damaged at {position}: {fault}", file.display());
                    return violated(Invariant::AcknowledgedIsThere, seen);
                }
                Some(Err(_)) | None => return Ok(()),
            };
            hold(Invariant::AcknowledgedIsThere, !answer.body.is_empty() && answer.start == history.end(), || {
                format!("{path} ends at {}, and a read at {} gave nothing", head.next, history.end())
            })?;
            history.push(path, &answer.body, &mut self.register, &mut self.databases)?;
        }
        if head.closed && !history.is_closed() {
            let asked = self.register.of_path(path).any(|fact| fact.closes && fact.possible());
            hold(Invariant::DeletedStaysDeleted, asked, || format!("{path} was closed unasked"))?;
            history.close();
        }
        let place = Place { path, token: head.incarnation };
        history.snapshots.look(place, &head, &self.register, server)
    }

    /// Reads everything that was ever seen once more; `false` if the server cannot tell now.
    /// # Errors
    /// `AcknowledgedIsThere`.
    pub fn verify(&mut self, server: &mut Server, now_ms: u64) -> Checked<bool> {
        self.look(server, now_ms)?;
        for (path, known) in &mut self.paths {
            let (Some(history), Some(token)) = (&mut known.current, known.token) else { continue };
            let place = Place { path, token };
            let told = history.snapshots.verify_latest(place, server)?
                && history.snapshots.verify_parts(place, &self.register, server)?;
            if !told {
                return Ok(false);
            }
            self.register.settle_snapshots(path, self.life);
            let mut at = history.snapshots.retained();
            while at < history.end() {
                let answer = match server.probe_read(path, token, at) {
                    Some(Ok(answer)) => answer,
                    Some(Err(ReadError::Damaged { path: file, position, fault })) => {
                        let seen = format!("{path}: {} is damaged at {position}: {fault}", file.display());
                        return violated(Invariant::AcknowledgedIsThere, seen);
                    }
                    Some(Err(_)) | None => return Ok(false),
                };
                hold(Invariant::AcknowledgedIsThere, !answer.body.is_empty(), || {
                    format!("{path}: nothing at {at}, and {} was seen", history.end())
                })?;
                history.check_bytes(path, at, &answer.body)?;
                at = answer.next;
                self.verified_bytes += answer.body.len() as u64;
            }
        }
        Ok(true)
    }
}

impl Path {
    /// Whether a stream here is still to be told of a restore.
    fn awaits(&self, restores: u64) -> bool {
        self.current.as_ref().or(self.over.as_ref()).is_none_or(|history| history.restores() < restores)
    }

    /// The history that was known is there no more.
    fn vanish(&mut self, path: &str, successor: Option<Incarnation>, wall: Millis) -> Checked {
        let (Some(token), Some(history)) = (self.token.take(), self.current.take()) else { return Ok(()) };
        if history.lifetime.is_some_and(|lifetime| lifetime.may_be_over(wall)) {
            self.over = Some(history);
            return Ok(());
        }
        self.gone.insert(token);
        self.deleted += 1;
        hold(Invariant::AcknowledgedIsThere, self.deleted <= self.deletes, || {
            format!(
                "{path}: the history {token} ({:?}) vanished at {wall:?} without a delete, after it comes {successor:?}",
                history.lifetime
            )
        })
    }

    fn appear(
        &mut self,
        path: &str,
        token: Incarnation,
        (wall, restores): (Millis, u64),
        register: &Register,
    ) -> Checked {
        if self.over.as_ref().is_some_and(|history| history.token() == token) {
            (self.token, self.current) = (Some(token), self.over.take());
            return Ok(());
        }
        self.vanish(path, Some(token), wall)?;
        self.gone.extend(self.over.take().map(|history| history.token()));
        hold(Invariant::DeletedStaysDeleted, !self.gone.contains(&token), || {
            format!("{path}: the deleted history {token} is back")
        })?;
        let made = register.of_path(path).find_map(|fact| match fact.deed {
            Deed::Create(drawn, expiry) if drawn == token && fact.possible() => Some((expiry, fact.at)),
            _ => None,
        });
        let Some((expiry, at)) = made else {
            return violated(Invariant::NothingUnwritten, format!("{path}: nobody made the history {token}"));
        };
        self.token = Some(token);
        let content = if self.batches { Content::Batches(Box::default()) } else { Content::Raw };
        let lifetime = expiry.zip(at).map(|(expiry, at)| Lifetime::begun(expiry, at));
        self.current = Some(History::new(token, restores, content, lifetime));
        Ok(())
    }

    /// The server's files were restored, and a stream that was there before says so.
    fn renew(
        &mut self,
        path: &str,
        token: Incarnation,
        before: (Incarnation, Offset),
        (wall, restores): (Millis, u64),
        register: &Register,
    ) -> Checked {
        if self.over.as_ref().is_some_and(|history| history.is_named(before.0)) {
            (self.token, self.current) = (Some(before.0), self.over.take());
        } else if !self.current.as_ref().is_some_and(|history| history.is_named(before.0)) {
            // Made by a write whose outcome nobody told before the copy was taken.
            self.gone.remove(&before.0);
            self.appear(path, before.0, (wall, restores - 1), register)?;
        }
        let known_token = self.current.as_ref().map(History::token);
        self.gone.extend(known_token);
        hold(Invariant::RestoreIsTold, !self.gone.contains(&token), || {
            format!("{path}: the token {token} is one of before the restore")
        })?;
        self.token = Some(token);
        match &mut self.current {
            Some(history) => history.renew(path, token, before, restores),
            None => Ok(()),
        }
    }
}

impl Oracle {
    /// The batches of a database's stream, as far as they were seen.
    #[must_use]
    pub fn batches(&self, path: &str) -> Option<&Batches> {
        self.history(path)?.batches()
    }
}
