//! Writing values.

use super::{Map, Value};
use crate::cid::{CID_BYTES, Cid};

const UNSIGNED: u8 = 0 << 5;
const NEGATIVE: u8 = 1 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const LIST: u8 = 4 << 5;
const MAP: u8 = 5 << 5;
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;
/// Tag 42, then the bytes of a link: a zero and the identifier.
const LINK: [u8; 5] = [0xd8, 42, 0x58, CID_BYTES as u8 + 1, 0];

/// Bytes that a length or a number takes with its type.
#[must_use]
pub fn head_bytes(number: u64) -> usize {
    match number {
        0..24 => 1,
        24..0x100 => 2,
        0x100..0x1_0000 => 3,
        0x1_0000..0x1_0000_0000 => 5,
        _ => 9,
    }
}

/// Writes parts of a value. Whoever writes a map's keys writes them in their order.
#[derive(Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// Nothing yet, with room for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was written.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }

    fn head(&mut self, kind: u8, number: u64) -> &mut Self {
        let bytes = number.to_be_bytes();
        match head_bytes(number) {
            1 => self.0.push(kind | bytes[7]),
            2 => self.0.extend([kind | 24, bytes[7]]),
            3 => self.0.extend([kind | 25, bytes[6], bytes[7]]),
            5 => {
                self.0.push(kind | 26);
                self.0.extend(&bytes[4..]);
            }
            _ => {
                self.0.push(kind | 27);
                self.0.extend(bytes);
            }
        }
        self
    }

    /// Null.
    pub fn null(&mut self) -> &mut Self {
        self.0.push(NULL);
        self
    }

    /// True or false.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.0.push(if value { TRUE } else { FALSE });
        self
    }

    /// A whole number.
    pub fn integer(&mut self, value: i64) -> &mut Self {
        match u64::try_from(value) {
            Ok(value) => self.head(UNSIGNED, value),
            Err(_) => self.head(NEGATIVE, value.unsigned_abs() - 1),
        }
    }

    /// Text.
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.head(TEXT, value.len() as u64).0.extend(value.as_bytes());
        self
    }

    /// Bytes.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.head(BYTES, value.len() as u64).0.extend(value);
        self
    }

    /// A link.
    pub fn link(&mut self, value: &Cid) -> &mut Self {
        self.0.extend(LINK);
        self.0.extend(value.to_bytes());
        self
    }

    /// A link, or null.
    pub fn optional_link(&mut self, value: Option<&Cid>) -> &mut Self {
        match value {
            Some(cid) => self.link(cid),
            None => self.null(),
        }
    }

    /// The beginning of a list of so many values, which follow.
    pub fn list(&mut self, count: usize) -> &mut Self {
        self.head(LIST, count as u64)
    }

    /// The beginning of a map of so many keys with their values, which follow.
    pub fn map(&mut self, count: usize) -> &mut Self {
        self.head(MAP, count as u64)
    }

    /// Any value.
    pub fn value(&mut self, value: &Value) -> &mut Self {
        match value {
            Value::Null => self.null(),
            Value::Bool(value) => self.bool(*value),
            Value::Integer(value) => self.integer(*value),
            Value::Text(value) => self.text(value),
            Value::Bytes(value) => self.bytes(value),
            Value::Link(value) => self.link(value),
            Value::List(values) => {
                self.list(values.len());
                values.iter().fold(self, |encoder, value| encoder.value(value))
            }
            Value::Map(map) => self.entries(map),
        }
    }

    fn entries(&mut self, map: &Map) -> &mut Self {
        self.map(map.len());
        map.iter().fold(self, |encoder, (key, value)| encoder.text(key).value(value))
    }
}

/// A value's bytes.
#[must_use]
pub fn encode(value: &Value) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.value(value);
    encoder.into_vec()
}
