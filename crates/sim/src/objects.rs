//! Snapshots and changes of the control plane on their way through the server.

use crate::exchange::meet;
use crate::invariants::{Checked, Invariant, violated};
use crate::message::{Ask, Reply};
use crate::world::{Event, Execution, World};
use highwater_base::Random;
use highwater_node::shard::{SnapshotAbout, SnapshotAnswer, SnapshotQuestion};
use highwater_node::{ControlAnswer, SnapshotHasher, Unavailable, WriteAnswer};
use highwater_store::ReadError;
use highwater_stream::{Operation, PublishSnapshot, Refusal, SnapshotPart};

/// What became of the bytes of parts.
enum Fetched {
    Bytes(Vec<u8>),
    /// One of them is gone.
    Gone,
    /// The server or its disk cannot tell now.
    Unknown,
}

impl World {
    /// A question about a snapshot, or about the parts of one, reaches the server.
    pub(crate) fn ask_snapshot(&mut self, token: u64, ask: &Ask) {
        let question = match ask {
            Ask::Commit { path, publish, parts, .. } => SnapshotQuestion {
                path: path.clone(),
                incarnation: publish.incarnation,
                about: SnapshotAbout::Parts(parts.clone()),
            },
            Ask::Snapshot { path, incarnation, offset } => SnapshotQuestion {
                path: path.clone(),
                incarnation: *incarnation,
                about: SnapshotAbout::Latest(*offset),
            },
            _ => return,
        };
        self.server.snapshot(token, question);
    }

    /// The server says which parts a snapshot has; nothing to answer yet if their bytes are to be read.
    pub(crate) fn snapshot_answered(
        &mut self,
        token: u64,
        answer: Result<Result<SnapshotAnswer, Refusal>, Unavailable>,
    ) -> Checked<Option<Reply>> {
        let Some(execution) = self.executions.get_mut(&token) else { return Ok(None) };
        Ok(match answer {
            Ok(Ok(located)) => {
                execution.located = Some(located);
                // Reading takes a while, and the parts may be gone before it is over.
                let delay_ms = self.random.below(40);
                self.schedule.after(delay_ms, Event::ServerFetch(token));
                None
            }
            Ok(Err(refusal)) => {
                if let Ask::Commit { path, parts, .. } = &execution.ask {
                    self.oracle.refused_parts(path, parts, &refusal)?;
                }
                if matches!(refusal, Refusal::UnknownPart { .. }) {
                    self.trace.meet("a part was gone when a snapshot was made of it");
                }
                Some(told(false, refusal))
            }
            Err(unavailable) => Some(told(false, unavailable)),
        })
    }

    /// Reads the parts of a snapshot: to hand them out, or to compare their digest before they are published.
    pub(crate) fn fetch_objects(&mut self, token: u64) -> Checked<Option<Reply>> {
        let Some(Execution { ask, located, .. }) = self.executions.get(&token) else { return Ok(None) };
        match (ask.clone(), located.clone()) {
            (Ask::Snapshot { path, .. }, Some(SnapshotAnswer::Latest(scope))) => {
                self.trace.meet("a snapshot was read");
                match self.fetch_parts(&path, &scope.parts)? {
                    Fetched::Unknown => Ok(Some(told(false, "the bytes could not be read"))),
                    Fetched::Gone => {
                        self.oracle.snapshot_read(&path, &scope, None)?;
                        Ok(Some(told(false, "cut off")))
                    }
                    Fetched::Bytes(bytes) => {
                        self.oracle.snapshot_read(&path, &scope, Some(&bytes))?;
                        Ok(Some(told(true, "the snapshot")))
                    }
                }
            }
            (Ask::Commit { path, publish, write, .. }, Some(SnapshotAnswer::Parts(parts))) => {
                let digest_matches = match self.fetch_parts(&path, &parts)? {
                    Fetched::Unknown => return Ok(Some(told(false, "the bytes could not be read"))),
                    Fetched::Gone => false,
                    Fetched::Bytes(bytes) => {
                        let mut hasher = SnapshotHasher::new(&publish.content_type);
                        hasher.update(&bytes);
                        hasher.finish() == publish.digest
                    }
                };
                let operation = Operation::PublishSnapshot(PublishSnapshot { digest_matches, ..publish });
                let now_ms = self.schedule.now_ms();
                self.oracle.arrived(write, self.server.wall(now_ms));
                self.server.write(token, path, operation, now_ms);
                self.plan_turn();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn fetch_parts(&mut self, path: &str, parts: &[SnapshotPart]) -> Checked<Fetched> {
        let mut bytes = Vec::new();
        for part in parts.iter().filter(|part| part.length > 0) {
            match self.server.probe_object(path, part.object, part.length) {
                Some(Ok(Some(piece))) => bytes.extend_from_slice(&piece),
                Some(Ok(None)) => return Ok(Fetched::Gone),
                Some(Err(error @ ReadError::Damaged { .. })) => {
                    return violated(Invariant::SnapshotIsWhole, error.to_string());
                }
                Some(Err(_)) | None => return Ok(Fetched::Unknown),
            }
        }
        Ok(Fetched::Bytes(bytes))
    }

    /// The words for a write that the extension's client does not know.
    pub(crate) fn told_write(&mut self, ask: &Ask, answer: &Result<WriteAnswer, Unavailable>) -> Checked<Reply> {
        if let (Ask::Commit { path, parts, .. }, Ok(WriteAnswer { result: Err(refusal), .. })) = (ask, answer) {
            self.oracle.refused_parts(path, parts, refusal)?;
        }
        Ok(match answer {
            Ok(WriteAnswer { result: Ok(outcome), .. }) => told(true, format_args!("{outcome:?}")),
            Ok(WriteAnswer { result: Err(refusal), .. }) => told(false, refusal),
            Err(unavailable) => told(false, unavailable),
        })
    }

    /// The control plane answered.
    pub(crate) fn control_answered(
        &mut self,
        ask: &Ask,
        answer: &Result<ControlAnswer, Unavailable>,
    ) -> Checked<Reply> {
        if let (Ask::Control { order, operation }, Ok(ControlAnswer { result: Ok(_), .. })) = (ask, answer) {
            if matches!(operation, highwater_control::Operation::RevokeKey { .. }) {
                self.trace.meet("a key was revoked");
            }
            self.oracle.control.acknowledged(*order)?;
        }
        Ok(match answer {
            Ok(ControlAnswer { result: Ok(_), .. }) => told(true, "done"),
            Ok(ControlAnswer { result: Err(refusal), .. }) => told(false, refusal),
            Err(unavailable) => told(false, unavailable),
        })
    }

    /// Counts what the answers of one step show, and hands them to the oracle, before anything is looked at.
    pub(crate) fn take_in(&mut self, answers: &[(u64, highwater_node::shard::Answer)]) -> Checked {
        use highwater_node::shard::Answer;
        for (token, answer) in answers {
            let Some(Execution { write, ask, .. }) = self.executions.get(token) else { continue };
            match (answer, ask) {
                (Answer::Write(answer), _) => {
                    let Some(write) = *write else { continue };
                    meet(&mut self.trace, answer);
                    self.oracle.answered(write, answer)?;
                }
                (Answer::Control(answer), Ask::Control { order, .. }) => self.oracle.control.answered(*order, answer),
                _ => {}
            }
        }
        Ok(())
    }
}

fn told(done: bool, words: impl ToString) -> Reply {
    Reply::Told { done, words: words.to_string() }
}
