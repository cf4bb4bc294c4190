//! The record of one producer and the key table.
//!
//! A stream remembers of each producer the epoch, the highest applied sequence number, and the receipt and digest of
//! the newest write only; that is enough because a producer has at most one write whose answer it does not know.

use crate::command::ProducerKey;
use crate::outcome::{ClosedEpoch, Outcome, Receipt, Refusal};
use highwater_base::planted::{self, Bug};
use highwater_base::{Digest, Incarnation, Millis, Offset};

/// What a stream remembers of one producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Producer {
    pub id: Box<str>,
    pub epoch: u64,
    /// The highest applied sequence number of the epoch, and so the newest write's.
    pub seq: u64,
    /// Where the newest write's bytes begin and end.
    pub start: Offset,
    pub next: Offset,
    pub had_body: bool,
    pub closed_stream: bool,
    /// The record was opened without a token, at an epoch that the floor forbids to tokened writes: the producer may
    /// have had epochs up to the floor that nobody remembers, so tokened writes must not be judged by this record.
    pub below_floor: bool,
    /// The digests that the epoch's claim and the newest write stated; the same one while the claim is the newest.
    pub claim_digest: Option<Digest>,
    pub newest_digest: Option<Digest>,
    /// The epoch that the current epoch's claim ended.
    pub closed_epoch: Option<ClosedEpoch>,
    /// The stream's history number when the epoch was claimed.
    pub history: u64,
    /// When a write of this producer last applied.
    pub last_applied: Millis,
}

impl Producer {
    fn receipt(&self, incarnation: Incarnation) -> Receipt {
        Receipt {
            epoch: self.epoch,
            seq: self.seq,
            start: self.start,
            next: self.next,
            incarnation,
            closed_epoch: if self.seq == 0 { self.closed_epoch } else { None },
            closed_stream: self.closed_stream,
            had_body: self.had_body,
        }
    }
}

/// The producers of one stream, in the order of their ids.
///
/// A sorted vector, because nearly every stream has one producer or none, and a tree's first node would make room for
/// eleven.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Producers(Vec<Producer>);

impl Producers {
    pub fn get(&self, id: &str) -> Option<&Producer> {
        self.find(id).ok().and_then(|at| self.0.get(at))
    }

    /// Puts a record in its place, over an earlier one of the same producer.
    pub fn put(&mut self, producer: Producer) {
        match self.find(&producer.id) {
            Ok(at) => self.0[at] = producer,
            Err(at) => {
                self.make_room();
                self.0.insert(at, producer);
            }
        }
    }

    /// Appends a record that was stored behind the others; `false` if its id is not above the last one's.
    pub fn push_stored(&mut self, producer: Producer) -> bool {
        let in_order = self.0.last().is_none_or(|last| last.id < producer.id);
        if in_order {
            self.make_room();
            self.0.push(producer);
        }
        in_order
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Producer> {
        self.0.iter()
    }

    /// Forgets every producer that had no write applied for `idle_ms`; the highest epoch among them.
    pub fn evict(&mut self, at: Millis, idle_ms: u64) -> Option<u64> {
        let mut highest = None;
        self.0.retain(|producer| {
            let idle = at.since(producer.last_applied) >= idle_ms;
            if idle {
                highest = highest.max(Some(producer.epoch));
            }
            !idle
        });
        highest
    }

    /// Room for one more, and an eighth: a vector left to itself starts with room for four.
    fn make_room(&mut self) {
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(1 + self.0.len() / 8);
        }
    }

    fn find(&self, id: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|producer| producer.id.as_ref().cmp(id))
    }
}

/// What a key means to a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It claims its epoch and ends another one, if the producer had one.
    Claim { closes: Option<ClosedEpoch> },
    /// It is the next write of the current epoch.
    Next,
    /// It applied already; this is the answer.
    Known(Outcome),
}

/// What the key table needs to know of the stream and of the write beside its key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// Whether the write carries the stream's token.
    pub tokened: bool,
    /// The highest epoch that the stream forgot.
    pub floor: Option<u64>,
    /// How many history events the stream went through.
    pub history: u64,
    pub incarnation: Incarnation,
}

/// The key table: the first row that matches decides. The epoch is judged before repeats are recognised, so that a
/// write of an older epoch is never answered as a repeat.
pub(crate) fn judge(
    record: Option<&Producer>,
    key: &ProducerKey,
    circumstances: Circumstances,
) -> Result<Verdict, Refusal> {
    let Circumstances { tokened, floor, history, .. } = circumstances;
    let Some(record) = record else {
        return match floor.filter(|floor| tokened && key.epoch <= *floor) {
            Some(floor) => Err(Refusal::ProducerExpired { floor }),
            None if key.seq == 0 => Ok(Verdict::Claim { closes: None }),
            None => Err(Refusal::SeqGap { expected: 0, received: key.seq }),
        };
    };
    if let Some(floor) = floor.filter(|_| tokened && record.below_floor) {
        let claims_above = key.seq == 0 && key.epoch > floor && key.epoch > record.epoch;
        if !claims_above {
            return Err(Refusal::ProducerExpired { floor });
        }
    }
    let newest = ClosedEpoch { epoch: record.epoch, last_seq: record.seq };
    if key.epoch < record.epoch {
        if planted::active(Bug::ForgetEpochCheck) {
            return Ok(Verdict::Next);
        }
        return Err(match record.closed_epoch.filter(|closed| closed.epoch == key.epoch) {
            Some(closed) => Refusal::EpochClosedByClaim { current: record.epoch, closed },
            None => Refusal::EpochStale { current: record.epoch },
        });
    }
    if key.epoch > record.epoch {
        return match key.seq {
            0 => Ok(Verdict::Claim { closes: Some(newest) }),
            _ => Err(Refusal::EpochNotClaimed),
        };
    }
    if let Some(known) = known(record, key, circumstances.incarnation) {
        return known.map(Verdict::Known);
    }
    if record.history != history {
        return Err(Refusal::EpochClosedByHistory { closed: newest });
    }
    let expected = record.seq.saturating_add(1);
    if key.seq == expected { Ok(Verdict::Next) } else { Err(Refusal::SeqGap { expected, received: key.seq }) }
}

/// The answer to a key of the current epoch at or below its newest write: all of these applied.
fn known(record: &Producer, key: &ProducerKey, incarnation: Incarnation) -> Option<Result<Outcome, Refusal>> {
    if key.seq > record.seq {
        return None;
    }
    let conflicts = (key.seq == 0 && key.digest != record.claim_digest)
        || (key.seq == record.seq && key.digest != record.newest_digest);
    Some(if conflicts {
        Err(Refusal::KeyConflict { current: record.epoch })
    } else if key.seq == record.seq {
        Ok(Outcome::Repeated(record.receipt(incarnation)))
    } else {
        let closed = record.closed_epoch.filter(|_| key.seq == 0);
        Ok(Outcome::Evicted { epoch: record.epoch, seq: record.seq, incarnation, closed })
    })
}

/// Whether a verdict can be given before the body is read: a repeat or a key conflict, which the head alone proves.
pub(crate) fn early(verdict: Result<Verdict, Refusal>) -> Option<Result<Outcome, Refusal>> {
    match verdict {
        Ok(Verdict::Known(outcome)) => Some(Ok(outcome)),
        Err(refusal @ Refusal::KeyConflict { .. }) => Some(Err(refusal)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
