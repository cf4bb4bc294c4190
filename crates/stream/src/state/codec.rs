//! The bytes in which a stream is stored (docs/formats/stream-command.md).

use super::{Lifetime, Rare, Residence, Snapshot, Staged, Stream};
use crate::command::take_token;
use crate::outcome::{ClosedEpoch, SnapshotHead, SnapshotPart};
use crate::producer::{Producer, Producers};
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::planted::{Bug, active};
use highwater_base::{Digest, Millis, Offset};
use std::collections::BTreeMap;
use std::sync::Arc;

const LIFETIME_SLIDING: u8 = 1;
const LIFETIME_AT: u8 = 2;

/// Above every offset that appends can reach, and far enough below the largest number that one more append fits.
const OFFSET_END: u64 = 1 << 63;

/// Writes a stream behind what every record begins with.
pub(crate) fn encode(w: &mut Writer, stream: &Stream) {
    w.u64(stream.incarnation.get());
    w.bytes(stream.path.as_bytes()).bytes(stream.content_type.as_bytes());
    let retained = if active(Bug::ForgetRetained) { Offset(0) } else { stream.retained };
    w.u64(stream.next.0).u64(retained.0).bool(stream.closed).u64(stream.history);
    w.option(stream.rare.as_deref(), put_rare);
    w.u32(u32::try_from(stream.producers.len()).expect("producers are capped far below 2^32"));
    for producer in stream.producers.iter() {
        encode_producer(w, producer);
    }
}

fn put_rare(w: &mut Writer, rare: &Rare) {
    w.option(rare.previous, |w, (token, inherited)| {
        w.u64(token.get()).u64(inherited.0);
    });
    w.option(rare.lifetime, |w, lifetime| {
        match lifetime {
            Lifetime::Sliding { ttl_s, deadline } => w.u8(LIFETIME_SLIDING).u64(ttl_s).u64(deadline.0),
            Lifetime::At(at) => w.u8(LIFETIME_AT).u64(at.0),
        };
    });
    w.option(rare.snapshot.as_ref(), |w, snapshot| {
        w.u64(snapshot.head.offset.0).raw(&snapshot.head.digest.0).bytes(snapshot.content_type.as_bytes());
        w.u32(u32::try_from(snapshot.parts.len()).expect("parts are capped far below 2^32"));
        for part in &snapshot.parts {
            w.u64(part.object).u64(part.length);
        }
    });
    w.u32(u32::try_from(rare.staged.len()).expect("parts are capped far below 2^32"));
    for (object, staged) in &rare.staged {
        w.u64(*object).u64(staged.length).u64(staged.at.0);
    }
    w.option(rare.stream_seq.as_deref(), |w, text| {
        w.bytes(text.as_bytes());
    });
    w.option(rare.floor, |w, floor| {
        w.u64(floor);
    });
}

fn encode_producer(w: &mut Writer, producer: &Producer) {
    w.bytes(producer.id.as_bytes()).u64(producer.epoch).u64(producer.seq);
    w.u64(producer.start.0).u64(producer.next.0);
    w.bool(producer.had_body).bool(producer.closed_stream).bool(producer.below_floor);
    for digest in [producer.claim_digest, producer.newest_digest] {
        w.option(digest, |w, digest| {
            w.raw(&digest.0);
        });
    }
    w.option(producer.closed_epoch, |w, closed| {
        w.u64(closed.epoch).u64(closed.last_seq);
    });
    w.u64(producer.history).u64(producer.last_applied.0);
}

/// Reads a stored stream back. What the machine relies on is checked: the order of producers, that offsets leave
/// room for appends, and that ends lie behind starts.
pub(crate) fn decode(r: &mut Reader) -> Result<Stream, DecodeError> {
    let incarnation = take_token(r)?;
    let path = r.string()?.into_boxed_str();
    let content_type = Arc::from(r.string()?);
    let (next, retained) = (take_offset(r)?, take_offset(r)?);
    let closed = r.bool()?;
    let history = r.u64()?;
    let rare = r.option(take_rare)?.map(Box::new);
    let mut producers = Producers::default();
    for _ in 0..r.u32()? {
        let producer = decode_producer(r)?;
        if !producers.push_stored(producer) {
            return Err(DecodeError::Invalid("producer order"));
        }
    }
    if retained > next {
        return Err(DecodeError::Invalid("retained offset"));
    }
    let snapshot = rare.as_deref().and_then(|rare| rare.snapshot.as_ref()).map(|snapshot| snapshot.head.offset);
    if snapshot.is_some_and(|offset| offset > next)
        || (retained > Offset(0) && snapshot.is_none_or(|offset| offset < retained))
    {
        return Err(DecodeError::Invalid("snapshot offset"));
    }
    let residence = Residence::default();
    Ok(Stream { path, incarnation, content_type, next, retained, closed, history, rare, producers, residence })
}

fn take_rare(r: &mut Reader) -> Result<Rare, DecodeError> {
    let previous = r.option(|r| Ok((take_token(r)?, take_offset(r)?)))?;
    let lifetime = r.option(|r| match r.u8()? {
        LIFETIME_SLIDING => Ok(Lifetime::Sliding { ttl_s: r.u64()?, deadline: Millis(r.u64()?) }),
        LIFETIME_AT => Ok(Lifetime::At(Millis(r.u64()?))),
        _ => Err(DecodeError::Invalid("expiry")),
    })?;
    let snapshot = r.option(|r| {
        let head = SnapshotHead { offset: take_offset(r)?, digest: Digest(r.array()?) };
        let content_type = r.string()?.into_boxed_str();
        let mut parts = Vec::new();
        for _ in 0..r.u32()? {
            parts.push(SnapshotPart { object: r.u64()?, length: take_length(r)? });
        }
        Ok(Snapshot { head, content_type, parts: parts.into() })
    })?;
    let mut staged = BTreeMap::new();
    for _ in 0..r.u32()? {
        let object = r.u64()?;
        let in_order = staged.last_key_value().is_none_or(|(last, _)| *last < object);
        staged.insert(object, Staged { length: take_length(r)?, at: Millis(r.u64()?) });
        if !in_order {
            return Err(DecodeError::Invalid("part order"));
        }
    }
    let stream_seq = r.option(Reader::string)?.map(String::into_boxed_str);
    let floor = r.option(Reader::u64)?;
    let rare = Rare { previous, lifetime, snapshot, staged, stream_seq, floor };
    // One stream has one spelling.
    if rare == Rare::default() { Err(DecodeError::Invalid("flag")) } else { Ok(rare) }
}

fn decode_producer(r: &mut Reader) -> Result<Producer, DecodeError> {
    let take_digest = |r: &mut Reader| Ok(Digest(r.array()?));
    let producer = Producer {
        id: r.string()?.into_boxed_str(),
        epoch: r.u64()?,
        seq: r.u64()?,
        start: take_offset(r)?,
        next: take_offset(r)?,
        had_body: r.bool()?,
        closed_stream: r.bool()?,
        below_floor: r.bool()?,
        claim_digest: r.option(take_digest)?,
        newest_digest: r.option(take_digest)?,
        closed_epoch: r.option(|r| Ok(ClosedEpoch { epoch: r.u64()?, last_seq: r.u64()? }))?,
        history: r.u64()?,
        last_applied: Millis(r.u64()?),
    };
    if producer.start > producer.next {
        return Err(DecodeError::Invalid("receipt range"));
    }
    if producer.seq == 0 && producer.claim_digest != producer.newest_digest {
        return Err(DecodeError::Invalid("digest of the claim"));
    }
    Ok(producer)
}

fn take_offset(r: &mut Reader) -> Result<Offset, DecodeError> {
    let offset = r.u64()?;
    if offset < OFFSET_END { Ok(Offset(offset)) } else { Err(DecodeError::Invalid("offset")) }
}

/// The length of a part: sums of as many as a stream may have stay far from the largest number.
fn take_length(r: &mut Reader) -> Result<u64, DecodeError> {
    let length = r.u64()?;
    if length <= u64::from(u32::MAX) { Ok(length) } else { Err(DecodeError::Invalid("part length")) }
}

#[cfg(test)]
mod tests;
