//! What is stored under a key: a stream, a part of a snapshot, or a name (docs/formats/stream-command.md).
//!
//! A stream lies under its object, which a path does not tell. A *name* is the way from one to the other: it lies under
//! a key that follows from the path, and lists the streams whose paths have that key: normally one.

use crate::state::{self, Stream};
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};

/// The only version of the encoding that there is.
const VERSION: u16 = 3;

const KIND_STREAM: u8 = 1;
const KIND_PART: u8 = 2;
const KIND_NAME: u8 = 3;

/// The bit that a name's key has and no object's.
const NAME: u64 = 1 << 63;

/// A stored record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Stream(Box<Stream>),
    /// A part, staged or of a snapshot, and the object of the stream whose it is.
    Part(u64),
    /// The objects of the streams with one name's key, in rising order.
    Name(Vec<u64>),
}

/// The key of the name of a path: of its BLAKE3 hash other bytes than those that choose the group.
pub(crate) fn name_key(path: &str) -> u64 {
    let hash = blake3::hash(path.as_bytes());
    let second = hash.as_bytes()[8..16].try_into().expect("a hash has 32 bytes");
    NAME | u64::from_le_bytes(second)
}

/// Whether a key is a name's.
pub(crate) fn is_name(key: u64) -> bool {
    key & NAME != 0
}

/// The keys to which a stored record leads, so that one trip to the disk finds a stream by its name. Empty for what is no
/// name.
#[must_use]
pub fn links(key: u64, record: &Bytes) -> Vec<u64> {
    match Record::decode(key, record.clone()) {
        Ok(Record::Name(objects)) if is_name(key) => objects,
        _ => Vec::new(),
    }
}

fn begun(kind: u8) -> Writer {
    let mut w = Writer::new();
    w.u16(VERSION).u8(kind);
    w
}

pub(crate) fn encode_stream(stream: &Stream) -> Bytes {
    let mut w = begun(KIND_STREAM);
    state::encode(&mut w, stream);
    w.into_vec().into()
}

pub(crate) fn encode_part(stream: u64) -> Bytes {
    let mut w = begun(KIND_PART);
    w.u64(stream);
    w.into_vec().into()
}

pub(crate) fn encode_name(objects: &[u64]) -> Bytes {
    let mut w = begun(KIND_NAME);
    w.u32(u32::try_from(objects.len()).expect("streams of one name are far below 2^32"));
    for object in objects {
        w.u64(*object);
    }
    w.into_vec().into()
}

impl Record {
    /// Reads back what lies under a key.
    pub fn decode(key: u64, record: Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(record);
        let version = r.u16()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let kind = r.u8()?;
        let decoded = match kind {
            KIND_STREAM => Self::Stream(Box::new(state::decode(&mut r)?)),
            KIND_PART => Self::Part(r.u64()?),
            KIND_NAME => Self::Name(take_objects(&mut r)?),
            _ => return Err(DecodeError::Invalid("record kind")),
        };
        r.finish()?;
        if is_name(key) == (kind == KIND_NAME) { Ok(decoded) } else { Err(DecodeError::Invalid("key")) }
    }
}

fn take_objects(r: &mut Reader) -> Result<Vec<u64>, DecodeError> {
    let mut objects = Vec::new();
    for _ in 0..r.u32()? {
        let object = r.u64()?;
        if objects.last().is_some_and(|last| *last >= object) {
            return Err(DecodeError::Invalid("object order"));
        }
        objects.push(object);
    }
    if objects.is_empty() { Err(DecodeError::Invalid("name")) } else { Ok(objects) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_key_for_ever() {
        // Part of the data's meaning: another function would look for every stream in the wrong place.
        assert_eq!(["a", "bucket/stream"].map(name_key), [11_740_536_209_257_356_690, 12_338_929_528_840_676_090]);
    }

    #[test]
    fn the_golden_records_are_read_and_written_as_ever() {
        let (name, part): (&[u8], &[u8]) =
            (include_bytes!("../golden/name-v3.bin"), include_bytes!("../golden/part-v3.bin"));
        assert_eq!(Record::decode(NAME | 5, Bytes::from_static(name)), Ok(Record::Name(vec![3, 7])));
        assert_eq!(Record::decode(5, Bytes::from_static(part)), Ok(Record::Part(9)));
        assert_eq!((encode_name(&[3, 7]), encode_part(9)), (Bytes::from_static(name), Bytes::from_static(part)));
    }

    #[test]
    fn a_record_under_a_key_of_another_kind_is_refused() {
        let (name, part) = (encode_name(&[3, 7]), encode_part(9));
        assert_eq!(Record::decode(NAME | 5, name.clone()), Ok(Record::Name(vec![3, 7])));
        assert_eq!(Record::decode(5, part.clone()), Ok(Record::Part(9)));
        assert_eq!(Record::decode(5, name.clone()), Err(DecodeError::Invalid("key")));
        assert_eq!(Record::decode(NAME | 5, part), Err(DecodeError::Invalid("key")));
        assert_eq!((links(NAME | 5, &name), links(5, &encode_part(9))), (vec![3, 7], vec![]));
    }

    #[test]
    fn a_name_lists_at_least_one_stream_and_each_once() {
        for objects in [&[][..], &[7, 7], &[7, 3]] {
            assert!(Record::decode(NAME, encode_name(objects)).is_err(), "{objects:?}");
        }
        let name = encode_name(&[3, 7]);
        for cut in 0..name.len() {
            assert!(Record::decode(NAME, name.slice(..cut)).is_err(), "whole at {cut}");
        }
    }
}
