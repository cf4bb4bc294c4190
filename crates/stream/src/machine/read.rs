//! Questions: what a stream is at a time, and what of it may be read.

use super::Machine;
use crate::append::{check_token, circumstances};
use crate::command::ProducerKey;
use crate::outcome::{Head, Outcome, ReadFrom, ReadScope, Refusal};
use crate::producer;
use crate::state::Lifetime;
use highwater_base::{Incarnation, Millis, Offset};

impl Machine {
    /// What `HEAD` tells of the stream as it is at a time.
    /// # Errors
    /// `StreamNotFound`.
    pub fn head(&self, path: &str, at: Millis) -> Result<Head, Refusal> {
        let (_, stream) = self.find(path, at).ok_or(Refusal::StreamNotFound)?;
        let identity = stream.identity(&self.group);
        Ok(Head {
            incarnation: identity.incarnation,
            next: stream.next,
            retained: stream.retained,
            closed: stream.closed,
            content_type: stream.content_type.as_ref().to_owned(),
            previous: identity.previous,
            expiry: stream.lifetime().map(Lifetime::expiry),
            snapshot: stream.snapshot().map(|snapshot| snapshot.head),
        })
    }

    /// What a read may take at a time. The start of a stream is its first byte, so that a read from the start never
    /// passes over bytes that are gone.
    /// # Errors
    /// `StreamNotFound`, then `Gone` or `OffsetOutOfRange`, and only then `IncarnationMismatch`.
    pub fn check_read(
        &self,
        path: &str,
        at: Millis,
        incarnation: Option<Incarnation>,
        from: ReadFrom,
    ) -> Result<ReadScope, Refusal> {
        let (object, stream) = self.find(path, at).ok_or(Refusal::StreamNotFound)?;
        let current = stream.identity(&self.group).incarnation;
        let start = match from {
            ReadFrom::Start => Offset(0),
            ReadFrom::Now => stream.next,
            ReadFrom::At(offset) => offset,
        };
        if start < stream.retained {
            return Err(Refusal::Gone { retained: stream.retained, incarnation: current });
        }
        if start > stream.next {
            return Err(Refusal::OffsetOutOfRange { next: stream.next, incarnation: current });
        }
        check_token(stream, &self.group, incarnation)?;
        Ok(ReadScope {
            incarnation: current,
            object,
            start,
            retained: stream.retained,
            next: stream.next,
            closed: stream.closed,
            content_type: stream.content_type.as_ref().to_owned(),
        })
    }

    /// The answer to a tokened keyed write that its head alone proves: a repeat, or a key that holds other bytes.
    ///
    /// It is an answer about a write that applied, so that it holds however long ago that was.
    #[must_use]
    pub fn early(
        &self,
        path: &str,
        at: Millis,
        incarnation: Incarnation,
        key: &ProducerKey,
    ) -> Option<Result<Outcome, Refusal>> {
        let (_, stream) = self.find(path, at)?;
        check_token(stream, &self.group, Some(incarnation)).ok()?;
        let record = stream.producers.get(&key.id);
        producer::early(producer::judge(record, key, circumstances(stream, &self.group, true, stream.floor())))
    }
}
