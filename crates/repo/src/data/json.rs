//! Values as JSON: links are `{"$link": …}`, bytes are `{"$bytes": …}`.
//!
//! Source: atproto data model specification, "JSON Representation".

mod reading;

pub use reading::{Bounded, TooLarge};

use super::decode::Part;
use super::{DEPTH_MAX, DataError, Decoder, Value};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::ser::{Error, Serialize, SerializeMap, SerializeSeq, Serializer};
use std::cell::RefCell;

const LINK: &str = "$link";
const BYTES: &str = "$bytes";

/// Written without padding; read with or without, and whatever the bits say that belong to no byte, as the published vectors are.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(values) => serializer.collect_seq(values),
            Self::Map(map) => serializer.collect_map(map.iter()),
            Self::Bytes(value) => wrapped(serializer, BYTES, &BASE64.encode(value)),
            Self::Link(value) => wrapped(serializer, LINK, &value.to_string()),
        }
    }
}

fn wrapped<S: Serializer>(serializer: S, key: &str, text: &str) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(key, text)?;
    map.end()
}

/// A value in its encoding, which becomes JSON without being built: a megabyte of small values would take fifty in memory.
#[derive(Debug, Clone)]
pub struct Encoded(pub Bytes);

impl Serialize for Encoded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let decoder = RefCell::new(Decoder::new(self.0.clone()));
        let told = Next { decoder: &decoder, depth: 0 }.serialize(serializer)?;
        decoder.into_inner().finish().map_err(S::Error::custom)?;
        Ok(told)
    }
}

/// The value that stands next.
struct Next<'a> {
    decoder: &'a RefCell<Decoder>,
    /// Lists and maps around it.
    depth: usize,
}

impl Next<'_> {
    fn inside<E: Error>(&self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(DataError::Depth));
        }
        Ok(Self { decoder: self.decoder, depth: self.depth + 1 })
    }
}

impl Serialize for Next<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = self.decoder.borrow_mut().part().map_err(S::Error::custom)?;
        match part {
            Part::Null => serializer.serialize_unit(),
            Part::Bool(value) => serializer.serialize_bool(value),
            Part::Integer(value) => serializer.serialize_i64(value),
            Part::Text(bytes) => serializer.serialize_str(text(&bytes)?),
            Part::Bytes(bytes) => wrapped(serializer, BYTES, &BASE64.encode(bytes)),
            Part::Link(cid) => wrapped(serializer, LINK, &cid.to_string()),
            Part::List(count) => {
                let (inside, mut list) = (self.inside()?, serializer.serialize_seq(None)?);
                (0..count).try_for_each(|_| list.serialize_element(&inside))?;
                list.end()
            }
            Part::Map(count) => {
                let (inside, mut map) = (self.inside()?, serializer.serialize_map(None)?);
                for _ in 0..count {
                    let key = self.decoder.borrow_mut().part().map_err(S::Error::custom)?;
                    let Part::Text(key) = key else { return Err(S::Error::custom(DataError::Keys)) };
                    map.serialize_entry(text(&key)?, &inside)?;
                }
                map.end()
            }
        }
    }
}

fn text<E: Error>(bytes: &[u8]) -> Result<&str, E> {
    std::str::from_utf8(bytes).map_err(|_| E::custom(DataError::Utf8))
}
