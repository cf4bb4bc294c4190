//! A client that writes under a key. Several may share one producer id: they take it from each other.

use crate::message::{Ask, Reply, WriteId};
use crate::ops::{self, Draft};
use crate::oracle::register::Key;
use highwater_base::{Incarnation, Random};
use highwater_client::{Outcome, ProducerRefusal, Written};

/// A keyed client.
#[derive(Debug)]
pub struct Producer {
    /// Its stream.
    pub path: String,
    /// Its producer id.
    pub id: String,
    token: Option<Incarnation>,
    epoch: u64,
    /// The last number that is known to have applied; none before the epoch is claimed.
    seq: Option<u64>,
    /// The write whose outcome is not known yet.
    pending: Option<(WriteId, u64)>,
    /// The stream is asked for, or made.
    looking: bool,
}

impl Producer {
    /// A producer that has done nothing.
    #[must_use]
    pub fn new(path: String, id: String) -> Self {
        Self { path, id, token: None, epoch: 0, seq: None, pending: None, looking: false }
    }

    /// Whether no write's outcome is open.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.pending.is_none()
    }

    /// The next request: the write that is not decided, or a new one.
    pub fn act(&mut self, quiet: bool, draft: &mut Draft<'_>) -> Option<Ask> {
        if !quiet && draft.random.below(60) == 0 {
            // The process dies and remembers nothing but the epochs that it has seen.
            (self.seq, self.pending) = (None, None);
        }
        if let Some((write, _)) = self.pending {
            return draft.attempt(write);
        }
        if quiet {
            return None;
        }
        let Some(token) = self.token else {
            self.looking = true;
            let makes = draft.random.below(2) == 0;
            return Some(if makes { ops::create(draft, &self.path) } else { ops::head(&self.path) });
        };
        let (epoch, seq) = match self.seq {
            Some(seq) => (self.epoch, seq + 1),
            None => (self.epoch + 1 + draft.random.below(2), 0),
        };
        self.epoch = epoch;
        let key = Key { producer: self.id.clone(), epoch, seq };
        let write = ops::keyed(draft, &self.path, token, key);
        self.pending = Some((write, seq));
        draft.attempt(write)
    }

    /// How the request ended.
    pub fn answered(&mut self, reply: &Reply) {
        match reply {
            Reply::Head(head) => {
                self.looking = false;
                if let Outcome::Done(head) = &head.answer.outcome {
                    self.token = Some(head.incarnation).filter(|_| !head.closed);
                }
            }
            Reply::Written(answer) if self.looking => {
                self.looking = false;
                if let Outcome::Done(Written::Incarnation(token)) = &answer.outcome {
                    self.token = Some(*token);
                }
            }
            Reply::Written(answer) => self.written(&answer.outcome),
            Reply::Read(_) | Reply::Told { .. } => {}
        }
    }

    fn written(&mut self, outcome: &Outcome<Written>) {
        let Some((_, seq)) = self.pending else { return };
        match outcome {
            Outcome::Done(_) => (self.seq, self.pending) = (Some(seq), None),
            Outcome::Unknown | Outcome::Redirected => {}
            Outcome::Refused(refusal) => match refusal.producer {
                Some(
                    ProducerRefusal::EpochClosed { epoch, .. }
                    | ProducerRefusal::StaleEpoch { epoch }
                    | ProducerRefusal::KeyConflict { epoch }
                    | ProducerRefusal::Expired { epoch },
                ) => {
                    self.epoch = self.epoch.max(epoch);
                    (self.seq, self.pending) = (None, None);
                }
                Some(_) => (self.seq, self.pending) = (None, None),
                // Refused for the moment: the same write again.
                None if refusal.status >= 429 || refusal.status == 408 => {}
                None => {
                    // The stream is gone, closed or another one.
                    (self.token, self.seq, self.pending) = (None, None, None);
                    self.epoch = 0;
                }
            },
        }
    }
}
