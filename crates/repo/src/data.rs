//! Values of the data model, in the one encoding that they have.
//!
//! Source: atproto data model specification; its encoding is DRISL, a strict subset of CBOR.

mod decode;
mod encode;
mod json;

pub use decode::{Decoder, decode};
pub use encode::{Encoder, encode, head_bytes};
pub use json::{Bounded, Encoded, TooLarge};

use crate::cid::{Cid, CidError};
use bytes::Bytes;
use std::cmp::Ordering;
use thiserror::Error;

/// Largest magnitude of an integer: what every client can hold exactly.
pub const INTEGER_MAX: i64 = (1 << 53) - 1;

/// Lists and maps inside one another at the most.
///
/// Records of the network stay below ten; the bound keeps a hostile one from using up a stack.
pub const DEPTH_MAX: usize = 128;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing, said explicitly.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number of at most 53 bits and a sign.
    Integer(i64),
    /// Text in UTF-8.
    Text(String),
    /// Any bytes.
    Bytes(Bytes),
    /// Values in order.
    List(Vec<Value>),
    /// Values by name.
    Map(Map),
    /// The name of another block.
    Link(Cid),
}

/// Why bytes are no value in its one encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DataError {
    /// They end early.
    #[error("the value ends early")]
    Short,
    /// Something follows the value.
    #[error("{0} bytes follow the value")]
    Trailing(usize),
    /// A length or number in more bytes than it needs, or of indefinite length.
    #[error("a length or number is not in its shortest form")]
    NotMinimal,
    /// A float, an undefined value, another tag, or a reserved type.
    #[error("floats, undefined values and tags but that of links are no data")]
    Unsupported,
    /// A whole number beyond 53 bits.
    #[error("a number is beyond 2^53 - 1")]
    Range,
    /// Text that is no UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// Keys that are no text, stand in another order, or stand twice.
    #[error("the keys of a map are not text in order, each once")]
    Keys,
    /// A link that is none.
    #[error("a link does not hold a CID: {0}")]
    Link(#[from] CidError),
    /// Lists and maps inside one another beyond [`DEPTH_MAX`].
    #[error("lists and maps are nested too deeply")]
    Depth,
    /// It is another value than the one that belongs here.
    #[error("expected {0}")]
    Expected(&'static str),
}

/// Order of a map's keys: shorter ones first, then by their bytes. It is that of their encodings.
pub(crate) fn compare_keys(one: &str, other: &str) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.as_bytes().cmp(other.as_bytes()))
}

/// Values by name, in the order in which they are encoded; no name stands twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map(Vec<(String, Value)>);

impl Map {
    /// Without a value.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Values by name in whatever order they came, put in order at once: to insert each would move all that came before it.
    /// `None` if a name stands twice.
    pub(crate) fn from_entries(mut entries: Vec<(String, Value)>) -> Option<Self> {
        entries.sort_unstable_by(|(one, _), (other, _)| compare_keys(one, other));
        let twice = entries.windows(2).any(|pair| pair[0].0 == pair[1].0);
        (!twice).then_some(Self(entries))
    }

    /// Puts one value under a name; returns the one that was there. Whoever has many collects them.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> Option<Value> {
        let key = key.into();
        match self.0.binary_search_by(|(other, _)| compare_keys(other, &key)) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// The value under a name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let found = self.0.binary_search_by(|(other, _)| compare_keys(other, key));
        found.ok().map(|at| &self.0[at].1)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a value behind all others; `false`, and nothing changed, if the name does not belong there.
    pub(crate) fn push(&mut self, key: String, value: Value) -> bool {
        let ordered = self.0.last().is_none_or(|(last, _)| compare_keys(last, &key).is_lt());
        if ordered {
            self.0.push((key, value));
        }
        ordered
    }
}

impl FromIterator<(String, Value)> for Map {
    /// Of several values of one name, the last one counts.
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(values: I) -> Self {
        let mut entries: Vec<(String, Value)> = values.into_iter().collect();
        entries.sort_by(|(one, _), (other, _)| compare_keys(one, other));
        entries.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Self(entries)
    }
}

#[cfg(test)]
mod tests;
