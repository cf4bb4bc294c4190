//! Every write that anyone ever sent.

use crate::invariants::{Checked, Invariant, hold, violated};
use crate::message::WriteId;
use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Incarnation, Millis, Offset, Random};
use highwater_node::{Unavailable, WriteAnswer};
use highwater_stream::{Expiry, Outcome, Receipt, SnapshotHead};
use std::collections::BTreeMap;

/// Bytes before the filler of a raw write's body: its number and its length, so that a stream tells what it is made of.
pub const BODY_HEAD_BYTES: usize = 12;

/// A producer's key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The producer.
    pub producer: String,
    /// Its epoch.
    pub epoch: u64,
    /// The number in the epoch.
    pub seq: u64,
}

/// What a write would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Make a stream with this token, which may end by itself.
    Create(Incarnation, Option<Expiry>),
    /// Append under a key.
    Keyed(Key),
    /// Append.
    Keyless,
    /// Delete the stream.
    Delete,
    /// Keep a part, under this number if it is free.
    Stage(Incarnation),
    /// Forget all parts that no snapshot took.
    Discard,
    /// Publish a snapshot.
    Publish {
        /// What names it.
        head: SnapshotHead,
        /// Whether its bytes have the digest that names it.
        honest: bool,
        /// The parts that it is made of, if they were staged.
        parts: Vec<Incarnation>,
    },
    /// Give up what is below an offset.
    Retain(Offset),
}

impl Deed {
    /// Whether its bytes are appended to the stream.
    #[must_use]
    pub fn appends(&self) -> bool {
        matches!(self, Self::Create(..) | Self::Keyed(_) | Self::Keyless)
    }
}

/// Where a write's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The history.
    pub token: Incarnation,
    /// The first byte.
    pub start: Offset,
    /// The end.
    pub end: Offset,
}

/// One write.
#[derive(Debug, Clone)]
pub struct Fact {
    /// The stream.
    pub path: String,
    /// What it would do.
    pub deed: Deed,
    /// Only in this history.
    pub token: Option<Incarnation>,
    /// Whether it closes the stream.
    pub closes: bool,
    /// Its bytes.
    pub body: Bytes,
    /// Whether some answer said that it applied.
    pub applied: bool,
    /// Executions whose outcome nobody told.
    pub undecided: u32,
    /// Where it was found.
    pub place: Option<Place>,
    /// The wall clock when it first reached the server.
    pub at: Option<Millis>,
    /// The life of the server in which it last reached it.
    pub life: u64,
}

impl Fact {
    /// Whether it can have happened.
    #[must_use]
    pub fn possible(&self) -> bool {
        self.applied || self.undecided > 0
    }
}

/// All writes.
#[derive(Debug, Clone, Default)]
pub struct Register {
    facts: Vec<Fact>,
    by_digest: BTreeMap<(String, Digest), WriteId>,
}

impl Register {
    /// The number that the next write gets, for its body.
    #[must_use]
    pub fn next(&self) -> WriteId {
        WriteId(self.facts.len())
    }

    /// Adds a write that may be sent.
    pub fn add(&mut self, path: &str, deed: Deed, token: Option<Incarnation>, closes: bool, body: Bytes) -> WriteId {
        let id = self.next();
        self.by_digest.insert((path.to_owned(), Digest::of(&body)), id);
        let path = path.to_owned();
        let (applied, undecided, place, at, life) = (false, 0, None, None, 0);
        self.facts.push(Fact { path, deed, token, closes, body, applied, undecided, place, at, life });
        id
    }

    /// The write with this number.
    #[must_use]
    pub fn get(&self, id: WriteId) -> Option<&Fact> {
        self.facts.get(id.0)
    }

    /// The last write to a path with a body of this digest.
    #[must_use]
    pub fn by_digest(&self, path: &str, digest: Digest) -> Option<WriteId> {
        self.by_digest.get(&(path.to_owned(), digest)).copied()
    }

    /// All writes to a path.
    pub fn of_path<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Fact> {
        self.facts.iter().filter(move |fact| fact.path == path)
    }

    /// A request with this write reached the server.
    pub fn arrived(&mut self, id: WriteId, wall: Millis, life: u64) {
        let fact = &mut self.facts[id.0];
        fact.undecided += 1;
        fact.at.get_or_insert(wall);
        fact.life = life;
    }

    /// Everything of an earlier life of the server that has to do with snapshots is decided: what of it applied was
    /// looked for. What appends is decided by where it is found.
    pub fn settle_snapshots(&mut self, path: &str, life: u64) {
        let settles = |fact: &Fact| {
            let snapshots =
                matches!(fact.deed, Deed::Stage(_) | Deed::Discard | Deed::Publish { .. } | Deed::Retain(_));
            snapshots && fact.path == path && fact.life < life
        };
        self.facts.iter_mut().filter(|fact| settles(fact)).for_each(|fact| fact.undecided = 0);
    }

    /// The server became what it was when `earlier` was taken. What was sent since then may still arrive.
    pub fn rewind(&mut self, earlier: &Self) {
        for (index, fact) in self.facts.iter_mut().enumerate() {
            match earlier.facts.get(index) {
                Some(earlier) => *fact = earlier.clone(),
                None => (fact.applied, fact.undecided, fact.place) = (false, 0, None),
            }
        }
    }

    /// The server answered one such request.
    /// # Errors
    /// `RepeatHasTheReceipt` if it says that it applied a write for a second time.
    pub fn answered(&mut self, id: WriteId, answer: &Result<WriteAnswer, Unavailable>) -> Checked {
        let fact = &mut self.facts[id.0];
        let decided = match answer {
            Ok(WriteAnswer { result: Ok(outcome), .. }) => {
                let anew = matches!(outcome, Outcome::Applied(_));
                hold(Invariant::RepeatHasTheReceipt, !(anew && fact.applied), || {
                    format!("{:?} on {} applied twice", fact.deed, fact.path)
                })?;
                fact.applied = true;
                true
            }
            Ok(WriteAnswer { result: Err(_), .. }) => true,
            Err(Unavailable::OutcomeUnknown { .. } | Unavailable::Internal(_)) => false,
            Err(_) => true,
        };
        fact.undecided -= u32::from(decided);
        Ok(())
    }

    /// A write was found in a stream.
    /// # Errors
    /// `NothingUnwritten` if it cannot have been applied; `RepeatHasTheReceipt` if it is there twice;
    /// `DeletedStaysDeleted` if it was meant for another history.
    pub fn found(&mut self, id: WriteId, place: Place) -> Checked {
        let fact = &mut self.facts[id.0];
        let what = || format!("write {} ({:?}) at {} of {}", id.0, fact.deed, place.start, fact.path);
        let appended = fact.possible() && fact.deed.appends();
        hold(Invariant::NothingUnwritten, appended, || format!("{} was refused, or never sent", what()))?;
        hold(Invariant::DeletedStaysDeleted, fact.token.is_none_or(|token| token == place.token), || {
            format!("{} was meant for the history {:?} and is in {}", what(), fact.token, place.token)
        })?;
        if let Some(before) = fact.place {
            return violated(Invariant::RepeatHasTheReceipt, format!("{} is also at {}", what(), before.start));
        }
        fact.place = Some(place);
        Ok(())
    }

    /// Holds a receipt against where the write was found.
    /// # Errors
    /// `RepeatHasTheReceipt` if it names another range than the write has.
    pub fn receipt(&self, id: WriteId, receipt: &Receipt) -> Checked {
        let fact = &self.facts[id.0];
        let Some(place) = fact.place.filter(|place| place.token == receipt.incarnation) else { return Ok(()) };
        hold(Invariant::RepeatHasTheReceipt, (place.start, place.end) == (receipt.start, receipt.next), || {
            format!(
                "write {} lies at {}..{}, its receipt says {}..{}",
                id.0, place.start, place.end, receipt.start, receipt.next
            )
        })
    }
}

/// The body of a raw write: its number, its length and a filler that follows from both.
#[must_use]
pub fn body(id: WriteId, bytes: usize) -> Bytes {
    let length = bytes.max(BODY_HEAD_BYTES);
    let mut body = Vec::with_capacity(length);
    body.extend_from_slice(&(id.0 as u64).to_le_bytes());
    body.extend_from_slice(&(length as u32).to_le_bytes());
    let mut random = SplitMix::new(id.0 as u64);
    while body.len() < length {
        let word = random.next_u64().to_le_bytes();
        body.extend_from_slice(&word[..word.len().min(length - body.len())]);
    }
    body.into()
}

/// The number and length that a raw write's first bytes state.
#[must_use]
pub fn body_head(bytes: &[u8]) -> Option<(WriteId, usize)> {
    let head = bytes.first_chunk::<BODY_HEAD_BYTES>()?;
    let (mut id, mut length) = ([0; 8], [0; 4]);
    id.copy_from_slice(&head[..8]);
    length.copy_from_slice(&head[8..]);
    Some((WriteId(usize::try_from(u64::from_le_bytes(id)).ok()?), u32::from_le_bytes(length) as usize))
}
