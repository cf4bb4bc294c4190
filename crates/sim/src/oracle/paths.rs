//! What is known of every path: the history that lives there, and those that are gone.

use super::batches::{Batches, Databases};
use super::history::{Content, History};
use super::register::{Deed, Register};
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::message::WriteId;
use crate::server::Server;
use highwater_base::{Incarnation, Offset};
use highwater_node::{ReadAnswer, Unavailable, WriteAnswer};
use highwater_store::ReadError;
use highwater_stream::{Outcome, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// One path.
#[derive(Debug, Default)]
struct Path {
    /// Whether databases write there.
    batches: bool,
    current: Option<History>,
    token: Option<Incarnation>,
    gone: BTreeSet<Incarnation>,
    /// Deletes that happened or may have.
    deletes: u64,
}

/// The oracle of the streams.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Every write.
    pub register: Register,
    /// What the databases' processes committed.
    pub databases: Databases,
    paths: BTreeMap<String, Path>,
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

    /// The token of the history that lives at a path, as far as it was seen.
    #[must_use]
    pub fn token(&self, path: &str) -> Option<Incarnation> {
        self.paths.get(path)?.token
    }

    /// A request with a write reached the server.
    pub fn arrived(&mut self, write: WriteId) {
        self.register.arrived(write);
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
    pub fn acknowledged(&self, write: WriteId, outcome: &Outcome) -> Checked {
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
            _ => Ok(()),
        }
    }

    /// Holds what a reader was given against what was seen.
    /// # Errors
    /// `AcknowledgedIsThere` for other bytes; `DeletedStaysDeleted` for those of a history that is gone.
    pub fn read(&self, path: &str, answer: &ReadAnswer) -> Checked {
        let Some(known) = self.paths.get(path) else { return Ok(()) };
        if known.token != Some(answer.incarnation) {
            // The read was located before the stream was deleted; its bytes were checked when they were written.
            return hold(Invariant::DeletedStaysDeleted, known.gone.contains(&answer.incarnation), || {
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
        Ok(())
    }

    fn look_at(&mut self, path: &str, server: &mut Server, now_ms: u64) -> Checked {
        let Some(head) = server.probe_head(path, now_ms) else { return Ok(()) };
        let known = self.paths.entry(path.to_owned()).or_default();
        let head = match head {
            Ok(head) => head,
            Err(Refusal::StreamNotFound) => return known.vanish(path, None),
            Err(refusal) => {
                return violated(Invariant::AcknowledgedIsThere, format!("{path}: its head says {refusal}"));
            }
        };
        if known.token != Some(head.incarnation) {
            known.appear(path, head.incarnation, &self.register)?;
        }
        let Some(history) = &mut known.current else { return Ok(()) };
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
        Ok(())
    }

    /// Reads everything that was ever seen once more; `false` if the server cannot tell now.
    /// # Errors
    /// `AcknowledgedIsThere`.
    pub fn verify(&mut self, server: &mut Server, now_ms: u64) -> Checked<bool> {
        self.look(server, now_ms)?;
        for (path, known) in &self.paths {
            let (Some(history), Some(token)) = (&known.current, known.token) else { continue };
            let mut at = Offset(0);
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
    /// The history that was known is there no more.
    fn vanish(&mut self, path: &str, successor: Option<Incarnation>) -> Checked {
        let Some(token) = self.token.take() else { return Ok(()) };
        self.current = None;
        self.gone.insert(token);
        hold(Invariant::AcknowledgedIsThere, self.gone.len() as u64 <= self.deletes, || {
            format!("{path}: the history {token} vanished without a delete, after it comes {successor:?}")
        })
    }

    fn appear(&mut self, path: &str, token: Incarnation, register: &Register) -> Checked {
        self.vanish(path, Some(token))?;
        hold(Invariant::DeletedStaysDeleted, !self.gone.contains(&token), || {
            format!("{path}: the deleted history {token} is back")
        })?;
        let asked = register.of_path(path).any(|fact| fact.deed == Deed::Create(token) && fact.possible());
        hold(Invariant::NothingUnwritten, asked, || format!("{path}: nobody made the history {token}"))?;
        self.token = Some(token);
        let content = if self.batches { Content::Batches(Box::default()) } else { Content::Raw };
        self.current = Some(History::new(token, content));
        Ok(())
    }
}

impl Oracle {
    /// The batches of a database's stream, as far as they were seen.
    #[must_use]
    pub fn batches(&self, path: &str) -> Option<&Batches> {
        self.history(path)?.batches()
    }
}
