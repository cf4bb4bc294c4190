//! The bytes of a command (docs/formats/stream-command.md).

use super::{Append, BodyFault, Command, Create, Expiry, Operation, ProducerKey, PublishSnapshot, SnapshotSource};
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::{Digest, Incarnation, Millis, Offset};
use std::ops::Range;

/// The only version of the encoding that there is.
const VERSION: u16 = 2;

const KIND_CREATE: u8 = 1;
const KIND_APPEND: u8 = 2;
const KIND_DELETE: u8 = 3;
const KIND_TOUCH: u8 = 4;
const KIND_EXPIRE: u8 = 5;
const KIND_STAGE_PART: u8 = 6;
const KIND_DISCARD_PARTS: u8 = 7;
const KIND_PUBLISH_SNAPSHOT: u8 = 8;
const KIND_RETAIN: u8 = 9;
const KIND_HISTORY: u8 = 10;
const KIND_LEAD: u8 = 11;

const SOURCE_BODY: u8 = 1;
const SOURCE_PARTS: u8 = 2;

const EXPIRY_SLIDING: u8 = 1;
const EXPIRY_AT: u8 = 2;

impl Command {
    /// The command's bytes, as the log keeps them; the body comes last.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.encode_behind(&[])
    }

    /// As [`Command::encode`], behind a header that another record needs, so that a large body is copied once.
    #[must_use]
    pub fn encode_behind(&self, header: &[u8]) -> Vec<u8> {
        // A key, a content type and numbers usually fit into what is added.
        let mut w = Writer::with_capacity(header.len() + self.path.len() + self.body().len() + 256);
        w.raw(header).u16(VERSION).u64(self.at.0).bytes(self.path.as_bytes());
        put_operation(&mut w, &self.operation);
        w.into_vec()
    }

    /// Reads a command back; its body is a slice of `record`, not a copy.
    ///
    /// Whatever [`Command::encode`] wrote reads back, so that no command that was ordered can stop the group that
    /// applies it. The syntax of paths, ids and content types is the proposer's to check.
    /// # Errors
    /// `Version` for another program's record, otherwise whatever the codec says.
    pub fn decode(record: Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(record);
        let version = r.u16()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let (at, path) = (Millis(r.u64()?), r.string()?);
        let operation = take_operation(&mut r)?;
        r.finish()?;
        Ok(Self { at, path, operation })
    }

    /// The bytes that are to be kept; empty for what carries none.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.operation.body()
    }

    /// Where the body lies in this command's encoding, which is `encoded_bytes` long: at its very end.
    #[must_use]
    pub fn body_range(&self, encoded_bytes: u32) -> Range<u32> {
        let body_bytes = u32::try_from(self.body().len()).unwrap_or(u32::MAX);
        encoded_bytes.saturating_sub(body_bytes)..encoded_bytes
    }
}

fn put_operation(w: &mut Writer, operation: &Operation) {
    match operation {
        Operation::Create(create) => {
            w.u8(KIND_CREATE).bytes(create.content_type.as_bytes()).bool(create.closed);
            w.option(create.incarnation, put_token).u64(create.new_incarnation.get());
            w.option(create.expiry, put_expiry).bytes(&create.body);
        }
        Operation::Append(append) => {
            w.u8(KIND_APPEND).option(append.incarnation, put_token).option(append.producer.as_ref(), put_key);
            w.u8(fault_code(append.body_fault)).option(append.content_type.as_deref(), put_text);
            w.option(append.stream_seq.as_deref(), put_text).bool(append.close).bytes(&append.body);
        }
        Operation::Delete { incarnation } => {
            w.u8(KIND_DELETE).option(*incarnation, put_token);
        }
        Operation::Touch { incarnation } => {
            w.u8(KIND_TOUCH).u64(incarnation.get());
        }
        Operation::Expire { incarnation } => {
            w.u8(KIND_EXPIRE).u64(incarnation.get());
        }
        Operation::StagePart { incarnation, part, body } => {
            w.u8(KIND_STAGE_PART).option(*incarnation, put_token).u64(part.get()).bytes(body);
        }
        Operation::DiscardParts { incarnation } => {
            w.u8(KIND_DISCARD_PARTS).option(*incarnation, put_token);
        }
        Operation::PublishSnapshot(publish) => put_publish(w, publish),
        Operation::Retain { incarnation, offset } => {
            w.u8(KIND_RETAIN).option(*incarnation, put_token).u64(offset.0);
        }
        Operation::History { nonce } => {
            w.u8(KIND_HISTORY).u64(*nonce);
        }
        Operation::Lead => {
            w.u8(KIND_LEAD);
        }
    }
}

fn take_operation(r: &mut Reader) -> Result<Operation, DecodeError> {
    Ok(match r.u8()? {
        KIND_CREATE => Operation::Create(Create {
            content_type: r.string()?,
            closed: r.bool()?,
            incarnation: r.option(take_token)?,
            new_incarnation: take_token(r)?,
            expiry: r.option(take_expiry)?,
            body: r.bytes()?,
        }),
        KIND_APPEND => Operation::Append(Append {
            incarnation: r.option(take_token)?,
            producer: r.option(take_key)?,
            body_fault: take_fault(r)?,
            content_type: r.option(Reader::string)?,
            stream_seq: r.option(Reader::string)?,
            close: r.bool()?,
            body: r.bytes()?,
        }),
        KIND_DELETE => Operation::Delete { incarnation: r.option(take_token)? },
        KIND_TOUCH => Operation::Touch { incarnation: take_token(r)? },
        KIND_EXPIRE => Operation::Expire { incarnation: take_token(r)? },
        KIND_STAGE_PART => {
            Operation::StagePart { incarnation: r.option(take_token)?, part: take_token(r)?, body: r.bytes()? }
        }
        KIND_DISCARD_PARTS => Operation::DiscardParts { incarnation: r.option(take_token)? },
        KIND_PUBLISH_SNAPSHOT => Operation::PublishSnapshot(take_publish(r)?),
        KIND_RETAIN => Operation::Retain { incarnation: r.option(take_token)?, offset: Offset(r.u64()?) },
        KIND_HISTORY => Operation::History { nonce: r.u64()? },
        KIND_LEAD => Operation::Lead,
        _ => return Err(DecodeError::Invalid("operation")),
    })
}

fn put_publish(w: &mut Writer, publish: &PublishSnapshot) {
    w.u8(KIND_PUBLISH_SNAPSHOT).option(publish.incarnation, put_token).u64(publish.offset.0);
    w.raw(&publish.digest.0).bool(publish.digest_matches).bytes(publish.content_type.as_bytes());
    match &publish.source {
        SnapshotSource::Body { part, body } => {
            w.u8(SOURCE_BODY).u64(part.get()).bytes(body);
        }
        SnapshotSource::Parts(parts) => {
            w.u8(SOURCE_PARTS).u32(u32::try_from(parts.len()).expect("parts are capped far below 2^32"));
            for part in parts {
                w.u64(part.get());
            }
        }
    }
}

fn take_publish(r: &mut Reader) -> Result<PublishSnapshot, DecodeError> {
    Ok(PublishSnapshot {
        incarnation: r.option(take_token)?,
        offset: Offset(r.u64()?),
        digest: Digest(r.array()?),
        digest_matches: r.bool()?,
        content_type: r.string()?,
        source: match r.u8()? {
            SOURCE_BODY => SnapshotSource::Body { part: take_token(r)?, body: r.bytes()? },
            SOURCE_PARTS => {
                // As many as the record has room for, however many it claims.
                let mut parts = Vec::new();
                for _ in 0..r.u32()? {
                    parts.push(take_token(r)?);
                }
                SnapshotSource::Parts(parts)
            }
            _ => return Err(DecodeError::Invalid("source")),
        },
    })
}

pub(crate) fn put_token(w: &mut Writer, token: Incarnation) {
    w.u64(token.get());
}

pub(crate) fn take_token(r: &mut Reader) -> Result<Incarnation, DecodeError> {
    Incarnation::new(r.u64()?).ok_or(DecodeError::Invalid("token"))
}

fn put_text(w: &mut Writer, text: &str) {
    w.bytes(text.as_bytes());
}

fn put_expiry(w: &mut Writer, expiry: Expiry) {
    match expiry {
        Expiry::Sliding { ttl_s } => w.u8(EXPIRY_SLIDING).u64(ttl_s),
        Expiry::At(at) => w.u8(EXPIRY_AT).u64(at.0),
    };
}

fn take_expiry(r: &mut Reader) -> Result<Expiry, DecodeError> {
    match r.u8()? {
        EXPIRY_SLIDING => Ok(Expiry::Sliding { ttl_s: r.u64()? }),
        EXPIRY_AT => Ok(Expiry::At(Millis(r.u64()?))),
        _ => Err(DecodeError::Invalid("expiry")),
    }
}

fn fault_code(fault: Option<BodyFault>) -> u8 {
    match fault {
        None => 0,
        Some(BodyFault::DigestMismatch) => 1,
        Some(BodyFault::InvalidJson) => 2,
        Some(BodyFault::EmptyArray) => 3,
    }
}

fn take_fault(r: &mut Reader) -> Result<Option<BodyFault>, DecodeError> {
    Ok(match r.u8()? {
        0 => None,
        1 => Some(BodyFault::DigestMismatch),
        2 => Some(BodyFault::InvalidJson),
        3 => Some(BodyFault::EmptyArray),
        _ => return Err(DecodeError::Invalid("body fault")),
    })
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
