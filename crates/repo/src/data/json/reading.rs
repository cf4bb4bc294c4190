//! Values from JSON, of as many bytes as are permitted and no more.

use super::super::{DEPTH_MAX, INTEGER_MAX, Map, Value, head_bytes};
use super::{BASE64, BYTES, LINK};
use base64::Engine;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

const ALONE: &str = "$link and $bytes hold a text and stand alone";

/// Bytes that a link takes: its tag, its length, a zero and the identifier.
const LINK_BYTES: usize = 41;

/// The encoding of a value would have more bytes than are permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

/// Reads a value whose encoding has so many bytes at the most. The rest of a larger one is looked through and not kept, so that
/// whoever reads what stands around it learns of that, and nobody holds more values than he may have.
#[derive(Debug, Clone, Copy)]
pub struct Bounded {
    /// Bytes of the encoding.
    pub bytes_max: usize,
}

impl<'de> DeserializeSeed<'de> for Bounded {
    type Value = Result<Value, TooLarge>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let left = Cell::new(Some(self.bytes_max));
        let value = Reading { left: &left, depth: 0 }.deserialize(deserializer)?;
        Ok(left.get().map(|_| value).ok_or(TooLarge))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Bounded { bytes_max: usize::MAX }.deserialize(deserializer)?;
        read.map_err(|TooLarge| D::Error::custom("the value is too large"))
    }
}

/// Reads one value, in some list or map.
#[derive(Debug, Clone, Copy)]
struct Reading<'a> {
    /// Bytes that what follows may have; nothing once there was too much, and then whatever is read means nothing.
    left: &'a Cell<Option<usize>>,
    /// Lists and maps around it.
    depth: usize,
}

impl Reading<'_> {
    /// Spends bytes; whether they are there.
    fn spend(&self, bytes: usize) -> bool {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(bytes)));
        self.left.get().is_some()
    }

    fn is_over(&self) -> bool {
        self.left.get().is_none()
    }

    /// A value of so many bytes.
    fn of(&self, bytes: usize, value: impl FnOnce() -> Value) -> Value {
        if self.spend(bytes) { value() } else { Value::Null }
    }

    fn text(&self, text: &str) -> Option<String> {
        self.spend(head_bytes(text.len() as u64).saturating_add(text.len())).then(|| text.to_owned())
    }

    /// Into a list or a map, of which the shortest head is spent.
    fn enter<E: de::Error>(&self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom("lists and maps are nested too deeply"));
        }
        self.spend(1);
        Ok(Self { left: self.left, depth: self.depth + 1 })
    }

    /// Out of one that has so many parts.
    fn leave(&self, count: usize) {
        self.spend(head_bytes(count as u64) - 1);
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.is_over() {
            return IgnoredAny::deserialize(deserializer).map(|_| Value::Null);
        }
        deserializer.deserialize_any(self)
    }
}

/// Most lists and maps that are nested on purpose have one part, and the usual room is for four.
fn push<T>(parts: &mut Vec<T>, part: T) {
    if parts.is_empty() {
        parts.reserve_exact(1);
    }
    parts.push(part);
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the data model")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(self.of(1, || Value::Null))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(self.of(1, || Value::Bool(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() > INTEGER_MAX as u64 {
            return Err(E::custom("a number is beyond 2^53 - 1"));
        }
        let number = if value < 0 { value.unsigned_abs() - 1 } else { value.unsigned_abs() };
        Ok(self.of(head_bytes(number), || Value::Integer(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// JSON has one kind of number: `123.0` is a whole one.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        if value.fract() == 0.0 && value.abs() <= INTEGER_MAX as f64 {
            return self.visit_i64(value as i64);
        }
        Err(E::custom("floats are no data"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(self.text(value).map_or(Value::Null, Value::Text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let (inside, mut values) = (self.enter()?, Vec::new());
        while !self.is_over() {
            let Some(value) = access.next_element_seed(inside)? else {
                self.leave(values.len());
                return Ok(Value::List(values));
            };
            push(&mut values, value);
        }
        drop(values);
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let (inside, mut entries) = (self.enter()?, Vec::new());
        while !self.is_over() {
            match access.next_key_seed(Keys(self))? {
                None => {
                    self.leave(entries.len());
                    return Map::from_entries(entries)
                        .map(Value::Map)
                        .ok_or_else(|| A::Error::custom("a key stands twice"));
                }
                Some(Key::Name(name)) => push(&mut entries, (name, access.next_value_seed(inside)?)),
                Some(Key::Wraps(what)) if entries.is_empty() => {
                    let value = access.next_value_seed(Wrapped { what, reading: self })?;
                    let alone = access.next_key::<IgnoredAny>()?.is_none();
                    return if alone { value.map_err(A::Error::custom) } else { Err(A::Error::custom(ALONE)) };
                }
                Some(Key::Wraps(_)) => return Err(A::Error::custom(ALONE)),
            }
        }
        drop(entries);
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }
}

/// What a map's key says of it.
enum Key {
    Name(String),
    Wraps(Kind),
}

/// What an object of one key may stand for.
#[derive(Clone, Copy)]
enum Kind {
    Link,
    Bytes,
}

struct Keys<'a>(Reading<'a>);

impl<'de> DeserializeSeed<'de> for Keys<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Keys<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Key, E> {
        Ok(match key {
            LINK => Key::Wraps(Kind::Link),
            BYTES => Key::Wraps(Kind::Bytes),
            _ => Key::Name(self.0.text(key).unwrap_or_default()),
        })
    }
}

/// Reads what stands under `$link` or `$bytes`; what is wrong with it matters only if it stands alone.
struct Wrapped<'a> {
    what: Kind,
    /// The reading of the object around it, for whose head one byte is spent.
    reading: Reading<'a>,
}

impl<'de> DeserializeSeed<'de> for Wrapped<'_> {
    type Value = Result<Value, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Wrapped<'_> {
    type Value = Result<Value, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text: ")?;
        f.write_str(ALONE)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let reading = self.reading;
        if let Kind::Link = self.what {
            let link = text.parse().map(Value::Link).map_err(|error: crate::cid::CidError| error.to_string());
            return Ok(link.map(|link| reading.of(LINK_BYTES - 1, || link)));
        }
        // Four characters make three bytes: what is too large is not even decoded.
        if reading.left.get().is_none_or(|left| text.len() / 4 * 3 > left.saturating_add(3)) {
            reading.left.set(None);
            return Ok(Ok(Value::Null));
        }
        let bytes = BASE64.decode(text).map_err(|error| error.to_string());
        Ok(bytes.map(|bytes| {
            let taken = head_bytes(bytes.len() as u64) + bytes.len();
            reading.of(taken - 1, || Value::Bytes(bytes.into()))
        }))
    }
}
