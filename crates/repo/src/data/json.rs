//! Values as JSON: links are `{"$link": …}`, bytes are `{"$bytes": …}`.
//!
//! Source: atproto data model specification, "JSON Representation".

use super::{INTEGER_MAX, Map, Value};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

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

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the data model")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        match value.unsigned_abs() <= INTEGER_MAX as u64 {
            true => Ok(Value::Integer(value)),
            false => Err(E::custom("a number is beyond 2^53 - 1")),
        }
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// JSON has one kind of number: `123.0` is a whole one.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        if value.fract() == 0.0 && value.abs() <= INTEGER_MAX as f64 {
            return Ok(Value::Integer(value as i64));
        }
        Err(E::custom("floats are no data"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = access.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, value)) = access.next_entry::<String, Value>()? {
            if map.insert(key, value).is_some() {
                return Err(de::Error::custom("a key stands twice"));
            }
        }
        match (map.get(LINK), map.get(BYTES)) {
            (None, None) => Ok(Value::Map(map)),
            (Some(Value::Text(text)), None) if map.len() == 1 => {
                text.parse().map(Value::Link).map_err(de::Error::custom)
            }
            (None, Some(Value::Text(text))) if map.len() == 1 => {
                BASE64.decode(text).map(|bytes| Value::Bytes(bytes.into())).map_err(de::Error::custom)
            }
            _ => Err(de::Error::custom("$link and $bytes hold a text and stand alone")),
        }
    }
}
