//! Reading a body field by field, so that an error can name the field.

use super::{Fault, FrameError, SEQUENCE_MAX};
use bytes::Bytes;
use highwater_repo::data::{DataError, Decoder};
use highwater_repo::syntax::is_datetime;
use highwater_repo::{Cid, Value};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A map of known keys, front to back.
pub(super) struct Fields {
    kind: &'static str,
    data: Decoder,
}

impl Fields {
    /// At the first of so many keys; returns how many there are.
    pub fn begin(kind: &'static str, data: Decoder, counts: RangeInclusive<u64>) -> Result<(Self, u64), FrameError> {
        let mut fields = Self { kind, data };
        let keys = fields.keys(kind, counts)?;
        Ok((fields, keys))
    }

    /// The beginning of a map of so many keys, which is called `kind` if it has others.
    pub fn keys(&mut self, kind: &'static str, counts: RangeInclusive<u64>) -> Result<u64, FrameError> {
        let keys = self.data.map().map_err(|error| FrameError::Body { kind, error })?;
        if counts.contains(&keys) { Ok(keys) } else { Err(FrameError::Keys { kind, keys }) }
    }

    pub fn fail(&self, field: &'static str, fault: impl Into<Fault>) -> FrameError {
        FrameError::Field { kind: self.kind, field, fault: fault.into() }
    }

    /// A field, read as `read` does.
    pub fn read<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Decoder) -> Result<T, DataError>,
    ) -> Result<T, FrameError> {
        let value = self.data.key(field).and_then(|()| read(&mut self.data));
        value.map_err(|error| self.fail(field, error))
    }

    pub fn text(&mut self, field: &'static str) -> Result<String, FrameError> {
        self.read(field, Decoder::text)
    }

    pub fn link(&mut self, field: &'static str) -> Result<Cid, FrameError> {
        self.read(field, Decoder::link)
    }

    pub fn bool(&mut self, field: &'static str) -> Result<bool, FrameError> {
        self.read(field, |data| match data.value()? {
            Value::Bool(value) => Ok(value),
            _ => Err(DataError::Expected("true or false")),
        })
    }

    fn parse<T: FromStr>(&self, field: &'static str, expected: &'static str, text: String) -> Result<T, FrameError> {
        text.parse().map_err(|_| self.fail(field, Fault::Syntax { expected, text }))
    }

    /// Text that follows a syntax.
    pub fn parsed<T: FromStr>(&mut self, field: &'static str, expected: &'static str) -> Result<T, FrameError> {
        let text = self.text(field)?;
        self.parse(field, expected, text)
    }

    /// Text that follows a syntax, or null.
    pub fn parsed_or_null<T: FromStr>(
        &mut self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, FrameError> {
        let text = self.read(field, |data| match data.value()? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            _ => Err(DataError::Expected("text or null")),
        })?;
        text.map(|text| self.parse(field, expected, text)).transpose()
    }

    pub fn sequence(&mut self) -> Result<u64, FrameError> {
        let sequence = self.read("seq", Decoder::unsigned)?;
        // The decoder refuses what is beyond the end; the beginning is this stream's.
        const { assert!(SEQUENCE_MAX == (1 << 53) - 1) };
        if sequence == 0 { Err(self.fail("seq", Fault::Rule("numbers begin with 1"))) } else { Ok(sequence) }
    }

    pub fn time(&mut self) -> Result<String, FrameError> {
        let text = self.text("time")?;
        if is_datetime(&text) { Ok(text) } else { Err(self.fail("time", Fault::Syntax { expected: "datetime", text })) }
    }

    /// Bytes of an archive, some and at most so many.
    pub fn blocks(&mut self, bytes_max: usize) -> Result<Bytes, FrameError> {
        let blocks = self.read("blocks", Decoder::bytes)?;
        match blocks.len() {
            0 => Err(self.fail("blocks", Fault::Rule("there are no blocks"))),
            found if found > bytes_max => {
                Err(self.fail("blocks", Fault::TooMuch { found: found as u64, most: bytes_max as u64 }))
            }
            _ => Ok(blocks),
        }
    }

    /// The end of the message.
    pub fn finish(self) -> Result<(), FrameError> {
        let kind = self.kind;
        self.data.finish().map_err(|error| FrameError::Body { kind, error })
    }
}
