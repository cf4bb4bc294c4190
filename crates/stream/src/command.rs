//! What can be asked of a stream.

use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::{Digest, Incarnation, Millis};
use std::ops::Range;

/// One write, as it is proposed, ordered and applied. The time and every random choice were made by the proposer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The leader's wall clock when it proposed this.
    pub at: Millis,
    /// Which stream: a clean path of at most `PATH_BYTES_MAX` bytes, without a leading slash.
    pub path: String,
    /// What to do with it.
    pub operation: Operation,
}

/// What a write does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Makes a stream, or finds one with the same settings.
    Create(Create),
    /// Appends bytes, claims an epoch, closes, or several of these at once.
    Append(Append),
    /// Removes the stream and its bytes.
    Delete {
        /// Only if this is the stream's token.
        incarnation: Option<Incarnation>,
    },
}

/// The settings of a new stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// Normalised: each `;`-separated part trimmed and in lower case, joined with `; `.
    pub content_type: String,
    /// Created closed.
    pub closed: bool,
    /// Only if this is the token of an existing stream; on a missing one it refuses.
    pub incarnation: Option<Incarnation>,
    /// The token that the stream gets if it is new.
    pub new_incarnation: Incarnation,
    /// The first bytes; may be empty.
    pub body: Bytes,
}

/// An append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Only if this is the stream's token. A write that carries it is *tokened*.
    pub incarnation: Option<Incarnation>,
    /// Who writes, if they want repeats recognised.
    pub producer: Option<ProducerKey>,
    /// Whether the body has the digest that the key states; `true` where it states none.
    pub digest_matches: bool,
    /// Normalised like [`Create::content_type`]; absent if the request had none.
    pub content_type: Option<String>,
    /// Compare-and-set for writers: must be greater, as bytes, than the last one.
    pub stream_seq: Option<String>,
    /// Close the stream with this append.
    pub close: bool,
    /// The bytes; empty only for a close.
    pub body: Bytes,
}

/// The key of a producer's write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerKey {
    /// 1 to 256 visible ASCII bytes, inner spaces and tabs allowed.
    pub id: String,
    /// The owner's epoch, below 2^53.
    pub epoch: u64,
    /// Counts writes within the epoch; 0 claims it.
    pub seq: u64,
    /// BLAKE3-256 of the body, as the request stated it.
    pub digest: Option<Digest>,
}

/// The only version of the encoding that there is (docs/formats/stream-command.md).
const VERSION: u16 = 1;

const KIND_CREATE: u8 = 1;
const KIND_APPEND: u8 = 2;
const KIND_DELETE: u8 = 3;

impl Command {
    /// The command's bytes, as the log keeps them; the body comes last.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.encode_behind(&[])
    }

    /// As [`Command::encode`], behind a header that another record needs, so that a large body is copied once.
    #[must_use]
    pub fn encode_behind(&self, header: &[u8]) -> Vec<u8> {
        let mut w = Writer::new();
        w.raw(header).u16(VERSION).u64(self.at.0).bytes(self.path.as_bytes());
        match &self.operation {
            Operation::Create(create) => {
                w.u8(KIND_CREATE).bytes(create.content_type.as_bytes()).bool(create.closed);
                w.option(create.incarnation, put_token).u64(create.new_incarnation.get()).bytes(&create.body);
            }
            Operation::Append(append) => {
                w.u8(KIND_APPEND).option(append.incarnation, put_token).option(append.producer.as_ref(), put_key);
                w.bool(append.digest_matches).option(append.content_type.as_deref(), put_text);
                w.option(append.stream_seq.as_deref(), put_text).bool(append.close).bytes(&append.body);
            }
            Operation::Delete { incarnation } => {
                w.u8(KIND_DELETE).option(*incarnation, put_token);
            }
        }
        w.into_vec()
    }

    /// Reads a command back; its body is a slice of `record`, not a copy.
    ///
    /// Whatever [`Command::encode`] wrote reads back, so that no command that was ordered can stop the group that
    /// applies it. The syntax of paths, ids and content types is the proposer's to check.
    /// # Errors
    /// `Version` for a later program's record, otherwise whatever the codec says.
    pub fn decode(record: Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(record);
        let version = r.u16()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let at = Millis(r.u64()?);
        let path = r.string()?;
        let operation = match r.u8()? {
            KIND_CREATE => Operation::Create(Create {
                content_type: r.string()?,
                closed: r.bool()?,
                incarnation: r.option(take_token)?,
                new_incarnation: take_token(&mut r)?,
                body: r.bytes()?,
            }),
            KIND_APPEND => Operation::Append(Append {
                incarnation: r.option(take_token)?,
                producer: r.option(take_key)?,
                digest_matches: r.bool()?,
                content_type: r.option(Reader::string)?,
                stream_seq: r.option(Reader::string)?,
                close: r.bool()?,
                body: r.bytes()?,
            }),
            KIND_DELETE => Operation::Delete { incarnation: r.option(take_token)? },
            _ => return Err(DecodeError::Invalid("operation")),
        };
        r.finish()?;
        Ok(Self { at, path, operation })
    }

    /// The bytes that the stream gets; empty for a delete or a close alone.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        match &self.operation {
            Operation::Create(create) => &create.body,
            Operation::Append(append) => &append.body,
            Operation::Delete { .. } => &[],
        }
    }

    /// Where the body lies in this command's encoding, which is `encoded_bytes` long: at its very end.
    #[must_use]
    pub fn body_range(&self, encoded_bytes: u32) -> Range<u32> {
        let body_bytes = u32::try_from(self.body().len()).unwrap_or(u32::MAX);
        encoded_bytes.saturating_sub(body_bytes)..encoded_bytes
    }
}

fn put_token(w: &mut Writer, token: Incarnation) {
    w.u64(token.get());
}

fn take_token(r: &mut Reader) -> Result<Incarnation, DecodeError> {
    Incarnation::new(r.u64()?).ok_or(DecodeError::Invalid("token"))
}

fn put_text(w: &mut Writer, text: &str) {
    w.bytes(text.as_bytes());
}

fn put_key(w: &mut Writer, key: &ProducerKey) {
    w.bytes(key.id.as_bytes()).u64(key.epoch).u64(key.seq).option(key.digest, |w, digest| {
        w.raw(&digest.0);
    });
}

fn take_key(r: &mut Reader) -> Result<ProducerKey, DecodeError> {
    Ok(ProducerKey { id: r.string()?, epoch: r.u64()?, seq: r.u64()?, digest: r.option(|r| Ok(Digest(r.array()?)))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_in_front_changes_nothing_behind_it() {
        let command =
            Command { at: Millis(1), path: "s".to_owned(), operation: Operation::Delete { incarnation: None } };
        let encoded = command.encode_behind(b"header");
        assert_eq!((&encoded[..6], &encoded[6..]), (&b"header"[..], &command.encode()[..]));
    }
}
