//! Reading values, and refusing every encoding but the one.

use super::{DEPTH_MAX, DataError, INTEGER_MAX, Map, Value};
use crate::cid::{CID_BYTES, Cid};
use bytes::Bytes;

const LINK_TAG: u64 = 42;
const FALSE: u8 = 20;
const TRUE: u8 = 21;
const NULL: u8 = 22;

/// A type with its length or number.
#[derive(Debug, Clone, Copy)]
struct Head {
    kind: u8,
    number: u64,
}

/// Reads parts of a value from its bytes, front to back.
#[derive(Debug, Clone)]
pub struct Decoder {
    bytes: Bytes,
    at: usize,
}

/// What a value begins with: all of it, or how many parts follow of a list, or keys with their values of a map.
#[derive(Debug)]
pub(super) enum Part {
    Null,
    Bool(bool),
    Integer(i64),
    /// Text, whose bytes were not looked at.
    Text(Bytes),
    Bytes(Bytes),
    Link(Cid),
    List(u64),
    Map(u64),
}

impl Decoder {
    /// At the first byte.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes that were not read.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The end.
    /// # Errors
    /// `Trailing` if it is not.
    pub fn finish(self) -> Result<(), DataError> {
        if self.remaining() == 0 { Ok(()) } else { Err(DataError::Trailing(self.remaining())) }
    }

    fn take(&mut self, count: u64) -> Result<Bytes, DataError> {
        if count > self.remaining() as u64 {
            return Err(DataError::Short);
        }
        let end = self.at + count as usize;
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    fn head(&mut self) -> Result<Head, DataError> {
        let first = *self.bytes.get(self.at).ok_or(DataError::Short)?;
        let (kind, short) = (first >> 5, first & 31);
        let width = match short {
            0..24 => 0,
            24..28 => 1 << (short - 24),
            _ => return Err(DataError::NotMinimal),
        };
        let end = self.at + 1 + width;
        let long = self.bytes.get(self.at + 1..end).ok_or(DataError::Short)?;
        let number = long.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let number = if width == 0 { u64::from(short) } else { number };
        // Simple values and floats have no number whose form could be shorter.
        if kind != 7 && super::head_bytes(number) != width + 1 {
            return Err(DataError::NotMinimal);
        }
        if kind == 7 && width > 0 {
            return Err(DataError::Unsupported);
        }
        self.at = end;
        Ok(Head { kind, number })
    }

    fn expect(&mut self, kind: u8, what: &'static str) -> Result<u64, DataError> {
        let head = self.head()?;
        if head.kind == kind { Ok(head.number) } else { Err(DataError::Expected(what)) }
    }

    /// The keys of a map: how many there are.
    /// # Errors
    /// What is wrong with the bytes, here and below.
    pub fn map(&mut self) -> Result<u64, DataError> {
        self.expect(5, "a map")
    }

    /// How many values a list has.
    /// # Errors
    /// As above.
    pub fn list(&mut self) -> Result<u64, DataError> {
        self.expect(4, "a list")
    }

    /// A key of a map that has known keys.
    /// # Errors
    /// `Expected` if it is another one.
    pub fn key(&mut self, key: &'static str) -> Result<(), DataError> {
        let length = self.expect(3, "a key")?;
        if self.take(length)? == key.as_bytes() { Ok(()) } else { Err(DataError::Expected(key)) }
    }

    /// Text.
    /// # Errors
    /// As above.
    pub fn text(&mut self) -> Result<String, DataError> {
        let length = self.expect(3, "text")?;
        text(&self.take(length)?)
    }

    /// Bytes.
    /// # Errors
    /// As above.
    pub fn bytes(&mut self) -> Result<Bytes, DataError> {
        let length = self.expect(2, "bytes")?;
        self.take(length)
    }

    /// A whole number that is not negative.
    /// # Errors
    /// As above.
    pub fn unsigned(&mut self) -> Result<u64, DataError> {
        let number = self.expect(0, "a number")?;
        if number > INTEGER_MAX as u64 { Err(DataError::Range) } else { Ok(number) }
    }

    /// A link.
    /// # Errors
    /// As above.
    pub fn link(&mut self) -> Result<Cid, DataError> {
        if self.expect(6, "a link")? != LINK_TAG {
            return Err(DataError::Unsupported);
        }
        self.link_of()
    }

    fn link_of(&mut self) -> Result<Cid, DataError> {
        let bytes = self.bytes()?;
        match bytes.split_first() {
            Some((0, cid)) if cid.len() == CID_BYTES => Ok(Cid::from_bytes(cid)?),
            _ => Err(DataError::Link(crate::cid::CidError::Length)),
        }
    }

    /// A link, or `None` for null.
    /// # Errors
    /// As above.
    pub fn optional_link(&mut self) -> Result<Option<Cid>, DataError> {
        if self.bytes.get(self.at) == Some(&(7 << 5 | NULL)) {
            self.at += 1;
            return Ok(None);
        }
        self.link().map(Some)
    }

    /// Any value.
    /// # Errors
    /// As above.
    pub fn value(&mut self) -> Result<Value, DataError> {
        self.nested(0)
    }

    /// What stands next.
    pub(super) fn part(&mut self) -> Result<Part, DataError> {
        let Head { kind, number } = self.head()?;
        match kind {
            0 | 1 if number > INTEGER_MAX as u64 - u64::from(kind) => Err(DataError::Range),
            0 => Ok(Part::Integer(number as i64)),
            1 => Ok(Part::Integer(-1 - number as i64)),
            2 => self.take(number).map(Part::Bytes),
            3 => self.take(number).map(Part::Text),
            4 => Ok(Part::List(number)),
            5 => Ok(Part::Map(number)),
            6 if number == LINK_TAG => self.link_of().map(Part::Link),
            7 if number == u64::from(FALSE) => Ok(Part::Bool(false)),
            7 if number == u64::from(TRUE) => Ok(Part::Bool(true)),
            7 if number == u64::from(NULL) => Ok(Part::Null),
            _ => Err(DataError::Unsupported),
        }
    }

    fn nested(&mut self, depth: usize) -> Result<Value, DataError> {
        match self.part()? {
            Part::Null => Ok(Value::Null),
            Part::Bool(value) => Ok(Value::Bool(value)),
            Part::Integer(value) => Ok(Value::Integer(value)),
            Part::Text(bytes) => text(&bytes).map(Value::Text),
            Part::Bytes(bytes) => Ok(Value::Bytes(bytes)),
            Part::Link(cid) => Ok(Value::Link(cid)),
            Part::List(_) | Part::Map(_) if depth == DEPTH_MAX => Err(DataError::Depth),
            Part::List(count) => self.values(count, depth + 1),
            Part::Map(count) => self.entries(count, depth + 1),
        }
    }

    /// Room is asked for by what is there, never by what a length claims.
    fn room(&self, count: u64) -> usize {
        count.min(self.remaining() as u64) as usize
    }

    fn values(&mut self, count: u64, depth: usize) -> Result<Value, DataError> {
        let mut values = Vec::with_capacity(self.room(count).min(64));
        for _ in 0..count {
            values.push(self.nested(depth)?);
        }
        Ok(Value::List(values))
    }

    fn entries(&mut self, count: u64, depth: usize) -> Result<Value, DataError> {
        let mut map = Map::new();
        for _ in 0..count {
            let head = self.head()?;
            if head.kind != 3 {
                return Err(DataError::Keys);
            }
            let key = text(&self.take(head.number)?)?;
            let value = self.nested(depth)?;
            if !map.push(key, value) {
                return Err(DataError::Keys);
            }
        }
        Ok(Value::Map(map))
    }
}

fn text(bytes: &[u8]) -> Result<String, DataError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DataError::Utf8)
}

/// The value that these bytes encode, all of them.
/// # Errors
/// What is wrong with them first.
pub fn decode(bytes: Bytes) -> Result<Value, DataError> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.value()?;
    decoder.finish()?;
    Ok(value)
}
