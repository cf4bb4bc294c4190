//! One stream, and the bytes in which it is stored (docs/formats/stream-command.md).

use crate::outcome::ClosedEpoch;
use crate::producer::{Producer, Producers};
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::{Digest, Incarnation, Millis, Offset};
use std::sync::Arc;

/// Everything a stream is, but its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Shared with the index of paths.
    pub path: Arc<str>,
    pub incarnation: Incarnation,
    /// Shared among the streams of this type.
    pub content_type: Arc<str>,
    pub next: Offset,
    pub retained: Offset,
    pub closed: bool,
    pub stream_seq: Option<Box<str>>,
    /// The highest epoch among the producers that were forgotten.
    pub floor: Option<u64>,
    /// How many history events the stream went through.
    pub history: u64,
    /// The token before the last history event, and the offset below which the bytes are the same under both.
    pub previous: Option<Box<(Incarnation, Offset)>>,
    pub producers: Producers,
}

impl Stream {
    /// Whether `asked` names this stream's content type: as a whole, or by type and subtype only.
    ///
    /// Browsers add a charset to what they send as text, so a plain request is held to the type and subtype. Both
    /// values are normalised.
    pub fn content_type_is(&self, asked: &str, whole: bool) -> bool {
        let essence = |value: &'_ str| value.split(';').next().unwrap_or_default().trim().to_owned();
        if whole { *self.content_type == *asked } else { essence(&self.content_type) == essence(asked) }
    }
}

/// The only version of the encoding that there is.
const VERSION: u16 = 1;

/// Above every offset that appends can reach, and far enough below the largest number that one more append fits.
const OFFSET_END: u64 = 1 << 63;

/// The bytes in which a stream is stored.
pub(crate) fn encode(stream: &Stream) -> Vec<u8> {
    let mut w = Writer::new();
    w.u16(VERSION).u64(stream.incarnation.get());
    w.bytes(stream.path.as_bytes()).bytes(stream.content_type.as_bytes());
    w.u64(stream.next.0).u64(stream.retained.0).bool(stream.closed);
    w.option(stream.stream_seq.as_deref(), |w, text| {
        w.bytes(text.as_bytes());
    });
    w.option(stream.floor, |w, floor| {
        w.u64(floor);
    });
    w.u64(stream.history);
    w.option(stream.previous.as_deref(), |w, (token, inherited)| {
        w.u64(token.get()).u64(inherited.0);
    });
    w.u32(u32::try_from(stream.producers.len()).expect("producers are capped far below 2^32"));
    for producer in stream.producers.iter() {
        encode_producer(&mut w, producer);
    }
    w.into_vec()
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
pub(crate) fn decode(record: Bytes) -> Result<Stream, DecodeError> {
    let mut r = Reader::new(record);
    let version = r.u16()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let incarnation = take_token(&mut r)?;
    let path = Arc::from(r.string()?);
    let content_type = Arc::from(r.string()?);
    let (next, retained) = (take_offset(&mut r)?, take_offset(&mut r)?);
    let closed = r.bool()?;
    let stream_seq = r.option(Reader::string)?.map(String::into_boxed_str);
    let floor = r.option(Reader::u64)?;
    let history = r.u64()?;
    let previous = r.option(|r| Ok((take_token(r)?, take_offset(r)?)))?.map(Box::new);
    let mut producers = Producers::default();
    for _ in 0..r.u32()? {
        let producer = decode_producer(&mut r)?;
        if !producers.push_stored(producer) {
            return Err(DecodeError::Invalid("producer order"));
        }
    }
    r.finish()?;
    if retained > next {
        return Err(DecodeError::Invalid("retained offset"));
    }
    Ok(Stream {
        path,
        incarnation,
        content_type,
        next,
        retained,
        closed,
        stream_seq,
        floor,
        history,
        previous,
        producers,
    })
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

fn take_token(r: &mut Reader) -> Result<Incarnation, DecodeError> {
    Incarnation::new(r.u64()?).ok_or(DecodeError::Invalid("token"))
}

fn take_offset(r: &mut Reader) -> Result<Offset, DecodeError> {
    let offset = r.u64()?;
    if offset < OFFSET_END { Ok(Offset(offset)) } else { Err(DecodeError::Invalid("offset")) }
}

#[cfg(test)]
mod tests;
