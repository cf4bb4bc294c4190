//! One history of one stream: every byte that was ever seen in it, and the writes that they are.

use super::batches::{Batches, Databases};
use super::lifetime::Lifetime;
use super::register::{Deed, Key, Place, Register, body_head};
use super::snapshots::Snapshots;
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::message::WriteId;
use highwater_base::{Digest, Incarnation, Offset};
use std::collections::BTreeMap;

/// What a stream's bytes are.
#[derive(Debug, Clone)]
pub enum Content {
    /// Bodies of raw writes.
    Raw,
    /// Batches of databases.
    Batches(Box<Batches>),
}

/// One stream from its creation on, through the history events that restores of the server's files bring.
#[derive(Debug, Clone)]
pub struct History {
    token: Incarnation,
    /// Tokens that it had before, each with its end when the next one came.
    names: Vec<(Incarnation, Offset)>,
    /// The restores of the server's files that it was told of.
    restores: u64,
    seen: Vec<u8>,
    /// Bytes of `seen` that are whole writes.
    parsed: usize,
    closed: bool,
    /// The newest write of each producer: epoch, number, and where it begins.
    keys: BTreeMap<String, (u64, u64, Offset)>,
    content: Content,
    /// Its snapshots.
    pub snapshots: Snapshots,
    /// When it ends by itself.
    pub lifetime: Option<Lifetime>,
}

impl History {
    /// A history of which nothing was seen.
    #[must_use]
    pub fn new(token: Incarnation, restores: u64, content: Content, lifetime: Option<Lifetime>) -> Self {
        Self {
            token,
            names: Vec::new(),
            restores,
            seen: Vec::new(),
            parsed: 0,
            closed: false,
            keys: BTreeMap::new(),
            content,
            snapshots: Snapshots::default(),
            lifetime,
        }
    }

    /// Its token.
    #[must_use]
    pub fn token(&self) -> Incarnation {
        self.token
    }

    /// Restores of the server's files that it was told of.
    #[must_use]
    pub fn restores(&self) -> u64 {
        self.restores
    }

    /// Whether it has this token, or had it.
    #[must_use]
    pub fn is_named(&self, token: Incarnation) -> bool {
        self.token == token || self.names.iter().any(|(name, _)| *name == token)
    }

    /// The server's files were restored: the stream is told so, by another token.
    /// # Errors
    /// `RestoreIsTold` if it is said to share other bytes with the history before than it does.
    pub fn renew(&mut self, path: &str, token: Incarnation, before: (Incarnation, Offset), restores: u64) -> Checked {
        let (named, inherited) = before;
        let end = self.end();
        // Writes whose outcome nobody told may be there, too.
        let shares = match self.names.iter().find(|(name, _)| *name == named) {
            Some((_, ended)) => inherited == *ended,
            None => named == self.token && inherited >= end,
        };
        hold(Invariant::RestoreIsTold, shares && restores > self.restores, || {
            format!("{path} has the token {token}, and shares {inherited} bytes with {named}, which ends at {end}")
        })?;
        self.names.push((self.token, inherited));
        (self.token, self.restores) = (token, restores);
        Ok(())
    }

    /// The token under which the bytes at an offset were written, and whether that is the present one.
    fn token_at(&self, start: Offset) -> Incarnation {
        match self.names.last() {
            Some((name, end)) if start < *end => *name,
            _ => self.token,
        }
    }

    /// Bytes that it holds, parts apart.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.end().since(self.snapshots.retained()) + self.snapshots.latest_bytes()
    }

    /// The end of what was seen.
    #[must_use]
    pub fn end(&self) -> Offset {
        Offset(self.seen.len() as u64)
    }

    /// The bytes that were seen.
    #[must_use]
    pub fn seen(&self) -> &[u8] {
        &self.seen
    }

    /// The batches of a database's stream.
    #[must_use]
    pub fn batches(&self) -> Option<&Batches> {
        match &self.content {
            Content::Raw => None,
            Content::Batches(batches) => Some(batches),
        }
    }

    /// Holds the head of the stream against what was seen.
    /// # Errors
    /// `AcknowledgedIsThere` if bytes are gone; `DeletedStaysDeleted` if a closed stream opened or grew.
    pub fn check_head(&mut self, path: &str, next: Offset, closed: bool) -> Checked {
        hold(Invariant::AcknowledgedIsThere, next >= self.end(), || {
            format!("{path} ended at {} and ends at {next} now", self.end())
        })?;
        let grew = next > self.end();
        hold(Invariant::DeletedStaysDeleted, !self.closed || (closed && !grew), || {
            format!("{path} was closed at {} and ends at {next}, closed: {closed}", self.end())
        })
    }

    /// The stream was closed when its end was what was seen so far.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether it was seen closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Holds bytes that were read against what was seen.
    /// # Errors
    /// `AcknowledgedIsThere`.
    pub fn check_bytes(&self, path: &str, start: Offset, bytes: &[u8]) -> Checked {
        let start_index = start.0 as usize;
        let seen = self.seen.get(start_index..start_index + bytes.len());
        hold(Invariant::AcknowledgedIsThere, seen == Some(bytes), || {
            let differs = seen.map(|seen| seen.iter().zip(bytes).take_while(|(a, b)| a == b).count());
            format!(
                "{path}: {} bytes read at {start} are not those of before (they differ from {differs:?} on)",
                bytes.len()
            )
        })
    }

    /// Takes the next bytes of the stream.
    /// # Errors
    /// Whatever is wrong with them.
    pub fn push(&mut self, path: &str, bytes: &[u8], register: &mut Register, databases: &mut Databases) -> Checked {
        self.seen.extend_from_slice(bytes);
        while let Some(length) = self.whole(path)? {
            let start = self.parsed;
            let write = self.identify(path, start..start + length, register)?;
            let (start_offset, end) = (Offset(start as u64), Offset((start + length) as u64));
            let place = Place { token: self.token_at(start_offset), start: start_offset, end };
            register.found(write, place)?;
            if let Some(Deed::Keyed(key)) = register.get(write).map(|fact| fact.deed.clone()) {
                self.key(path, &key, start_offset)?;
            }
            if let Content::Batches(batches) = &mut self.content {
                batches.push(start as u64, &self.seen[start..start + length], databases)?;
            }
            self.parsed += length;
        }
        hold(Invariant::OffsetsContiguous, self.parsed == self.seen.len(), || {
            format!("{path} ends in the middle of a write: {} of {}", self.parsed, self.seen.len())
        })
    }

    /// The length of the write that lies whole at the end of what is parsed.
    fn whole(&self, path: &str) -> Checked<Option<usize>> {
        let rest = &self.seen[self.parsed..];
        let length = match &self.content {
            Content::Raw => body_head(rest).map(|(_, length)| length.max(1)),
            Content::Batches(_) => match Batches::length(rest) {
                Ok(length) => length,
                Err(fault) => {
                    return violated(Invariant::NothingUnwritten, format!("{path} at {}: {fault}", self.parsed));
                }
            },
        };
        Ok(length.filter(|length| *length <= rest.len()))
    }

    fn identify(&self, path: &str, at: std::ops::Range<usize>, register: &Register) -> Checked<WriteId> {
        let bytes = &self.seen[at.clone()];
        let write = match &self.content {
            Content::Raw => body_head(bytes).map(|(id, _)| id),
            Content::Batches(_) => register.by_digest(path, Digest::of(bytes)),
        };
        let fact = write.and_then(|id| register.get(id)).filter(|fact| fact.path == path && fact.body == bytes);
        match write.filter(|_| fact.is_some()) {
            Some(write) => Ok(write),
            None => violated(
                Invariant::NothingUnwritten,
                format!("{path} at {}: nobody wrote these {} bytes", at.start, bytes.len()),
            ),
        }
    }

    fn key(&mut self, path: &str, key: &Key, start: Offset) -> Checked {
        let before = self.keys.insert(key.producer.clone(), (key.epoch, key.seq, start));
        let in_order = match before {
            // A history event closes every epoch.
            Some((epoch, seq, at)) if key.epoch == epoch => {
                key.seq == seq + 1 && self.token_at(at) == self.token_at(start)
            }
            Some((epoch, _, _)) => key.epoch > epoch && key.seq == 0,
            None => key.seq == 0,
        };
        hold(Invariant::EpochsInOrder, in_order, || format!("{path}: {key:?} applied after {before:?}"))
    }
}
