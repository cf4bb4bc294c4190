//! What binding, restoring and verifying ask of a stream, by name and with patience.

use super::errors::StreamError;
use crate::batch::{CONTENT_TYPE, Opening, opening};
use crate::bind::BoundStream;
use highwater_base::{Incarnation, Offset, Random};
use highwater_client::{
    Answer, Client, From, Head, Identity, Options, Outcome, PROTOCOL, Piece, Read, Refusal, Stream, StreamUrl,
};
use highwater_disk::SystemRandom;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Attempts of one request before a command gives up. With waits that double from 100 ms to 2 s this rides out a
/// leader's change, and tells within half a minute that a server is down.
const ATTEMPTS_MAX: u32 = 12;

/// A stream that a command talks to.
pub(crate) struct Remote {
    pub(crate) stream: Stream,
    attempts_max: u32,
    /// When patience ends before the attempts do.
    deadline: Option<Instant>,
}

/// A stream's head, and who answered.
pub(crate) struct Found {
    pub(crate) identity: Identity,
    pub(crate) head: Head,
}

impl Remote {
    pub(crate) fn new(url: &str, client: Options) -> Result<Self, StreamError> {
        let url = StreamUrl::parse(url)?;
        Ok(Self {
            stream: Stream::new(Arc::new(Client::new(client)?), url),
            attempts_max: ATTEMPTS_MAX,
            deadline: None,
        })
    }

    /// The same, which does not try again after a time.
    pub(crate) fn until(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    fn url(&self) -> String {
        self.stream.url().to_string()
    }

    /// The stream's head; `None` if our server answers that there is no such stream.
    pub(crate) fn look(&self) -> Result<Option<Found>, StreamError> {
        let mut identity = None;
        let answer = self.patiently(|| {
            let (_, answer) = self.stream.head();
            identity = answer.identity;
            answer.answer
        })?;
        let missing = matches!(&answer.outcome, Outcome::Refused(refusal) if refusal.status == 404);
        if !missing && !matches!(answer.outcome, Outcome::Done(_)) {
            return Err(self.refusal(&answer));
        }
        let Some(identity) = identity else {
            return Err(StreamError::NoServerIdentity { url: self.url(), found: answer.describe() });
        };
        if identity.protocol != PROTOCOL {
            let found = identity.protocol;
            return Err(StreamError::ProtocolMismatch { url: self.url(), found, expected: PROTOCOL });
        }
        Ok(answer.done().map(|head| Found { identity, head }))
    }

    /// The stream's head, the stream being made if there is none.
    pub(crate) fn look_or_create(&self) -> Result<Found, StreamError> {
        if let Some(found) = self.look()? {
            return Ok(found);
        }
        let answer = self.patiently(|| self.stream.create(CONTENT_TYPE, None, false).1)?;
        if !matches!(answer.outcome, Outcome::Done(_)) {
            return Err(self.refusal(&answer));
        }
        self.look()?.ok_or_else(|| StreamError::NotFound { url: self.url() })
    }

    /// Whether a database of ours lies in the stream; an error if anything else does.
    pub(crate) fn holds_database(&self, head: &Head) -> Result<bool, StreamError> {
        if !head.content_type.is_empty() && head.content_type != CONTENT_TYPE {
            let found = format!("a stream of the content type {}", head.content_type);
            return Err(StreamError::Foreign { url: self.url(), found });
        }
        if head.retained > Offset(0) {
            return Err(StreamError::Retained { url: self.url(), retained: head.retained.0 });
        }
        if head.next == Offset(0) {
            return Ok(false);
        }
        let piece = self.read(Offset(0), 4 << 10, head.incarnation)?;
        match opening(&piece.body) {
            Opening::Ours(_) => Ok(true),
            Opening::Empty => Ok(false),
            Opening::Foreign(fault) => {
                let found = format!("something that is not a database of this format ({fault})");
                Err(StreamError::Foreign { url: self.url(), found })
            }
        }
    }

    /// The bytes from `at` on, as the leader has them.
    pub(crate) fn read(&self, at: Offset, bytes_max: u64, incarnation: Incarnation) -> Result<Piece, StreamError> {
        let (from, bytes_max) = (From::At(at), Some(bytes_max));
        let request = Read { from, bytes_max, leader: true, incarnation: Some(incarnation), wait_ms: None };
        let answer = self.patiently(|| self.stream.read(&request).1)?;
        match &answer.outcome {
            Outcome::Done(piece) if piece.incarnation == incarnation => Ok(piece.clone()),
            Outcome::Done(_) => Err(StreamError::Replaced { url: self.url() }),
            Outcome::Refused(refusal) if refusal.status == 412 => Err(StreamError::Replaced { url: self.url() }),
            Outcome::Refused(Refusal { status: 410, next, .. }) => {
                Err(StreamError::Retained { url: self.url(), retained: next.map_or(0, |next| next.0) })
            }
            _ => Err(self.refusal(&answer)),
        }
    }

    /// What a database that is bound here remembers.
    pub(crate) fn bound(&self, found: &Found, end: Offset) -> BoundStream {
        BoundStream {
            url: self.url(),
            incarnation: found.head.incarnation,
            cluster_id: found.identity.cluster_id.clone(),
            protocol: found.identity.protocol,
            end,
        }
    }

    /// Repeats a request that changes nothing when it is repeated, as long as its answer says that waiting may help.
    fn patiently<T>(&self, mut attempt: impl FnMut() -> Answer<T>) -> Result<Answer<T>, StreamError> {
        let mut random = SystemRandom;
        for attempts in 1.. {
            let answer = attempt();
            let may_pass = match &answer.outcome {
                Outcome::Unknown => true,
                Outcome::Refused(refusal) => matches!(refusal.status, 408 | 429 | 500..=599),
                _ => false,
            };
            if !may_pass {
                return Ok(answer);
            }
            let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if late || attempts >= self.attempts_max {
                return Err(match answer.status {
                    0 => StreamError::Unreachable { url: self.url(), found: answer.describe() },
                    _ => self.refusal(&answer),
                });
            }
            let bound = (100u64 << attempts.min(5)).min(2_000);
            let asked = answer.retry_after_ms.unwrap_or(0).min(10_000);
            thread::sleep(Duration::from_millis((bound / 2 + random.below(bound / 2)).max(asked)));
        }
        Err(StreamError::Unreachable { url: self.url(), found: String::new() })
    }

    fn refusal<T>(&self, answer: &Answer<T>) -> StreamError {
        let code = match (&answer.outcome, answer.status) {
            (Outcome::Redirected, _) | (Outcome::Unknown, 301..=303) => "redirected",
            (_, 401) => "unauthorized",
            (_, 402) => "payment_required",
            (_, 403) => "forbidden",
            (_, 404) => return StreamError::NotFound { url: self.url() },
            (_, 408 | 429 | 500..=599) => "unavailable",
            _ => "rejected",
        };
        StreamError::Refused { code, url: self.url(), found: answer.describe() }
    }
}
