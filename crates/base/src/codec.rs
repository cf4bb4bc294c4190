//! The one byte codec of records that are stored or sent between nodes.
//!
//! Integers are little-endian and of fixed width; byte strings carry a `u32` length. A reader never allocates more
//! than its input is long, and a record is whole only when [`Reader::finish`] says that nothing is left over.

use bytes::{Buf as _, Bytes};
use thiserror::Error;

/// Why bytes are not the record they were taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The record ends before the field does.
    #[error("the record ends early")]
    Short,
    /// Bytes follow the last field.
    #[error("{0} bytes follow the record's last field")]
    Trailing(usize),
    /// A field holds a value that its type does not have; the field's name.
    #[error("the field {0} holds a value that it cannot have")]
    Invalid(&'static str),
    /// A later program wrote this record.
    #[error("the record has format version {0}, which this program does not know")]
    Version(u16),
}

/// Appends fields to a byte vector.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty record with room for so many bytes, so that it need not grow.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// Appends a flag as one byte, 0 or 1.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends a length of four bytes and the bytes.
    ///
    /// # Panics
    /// If there are 4 GiB or more of them; every caller's limit is far below.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        let length = u32::try_from(value.len()).expect("a field is below 4 GiB");
        self.u32(length).raw(value)
    }

    /// Appends a flag, and the value behind it if there is one.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(value);
        self
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The finished record.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }
}

/// Takes fields off the front of a record.
#[derive(Debug, Clone)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// Reads `record` from its start; byte strings are slices of it, not copies.
    #[must_use]
    pub fn new(record: Bytes) -> Self {
        Self { rest: record }
    }

    /// Takes `length` bytes.
    /// # Errors
    /// `Short` if there are fewer.
    pub fn raw(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.rest.len() {
            return Err(DecodeError::Short);
        }
        Ok(self.rest.split_to(length))
    }

    /// Takes bytes into an array.
    /// # Errors
    /// `Short` if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let array = *self.rest.first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.rest.advance(N);
        Ok(array)
    }

    /// Takes one byte.
    /// # Errors
    /// `Short` at the end.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Takes a flag.
    /// # Errors
    /// `Short` at the end; `Invalid` for anything but 0 and 1.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("flag")),
        }
    }

    /// Takes two bytes.
    /// # Errors
    /// `Short` at the end.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes four bytes.
    /// # Errors
    /// `Short` at the end.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes eight bytes.
    /// # Errors
    /// `Short` at the end.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a byte string with its length.
    /// # Errors
    /// `Short` if the record is shorter than it says.
    pub fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.u32()? as usize;
        self.raw(length)
    }

    /// Takes a byte string that must be UTF-8.
    /// # Errors
    /// `Short`, or `Invalid` if it is not UTF-8.
    pub fn string(&mut self) -> Result<String, DecodeError> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| DecodeError::Invalid("text"))
    }

    /// Takes a flag, and the value behind it if it is set.
    /// # Errors
    /// `Short` or `Invalid`, from the flag or from `read`.
    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// Bytes not yet taken.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Ends the record.
    /// # Errors
    /// `Trailing` if bytes are left.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_back_in_order() {
        let mut writer = Writer::new();
        writer.u8(1).u16(2).u32(3).u64(4).bool(true).bytes(b"five");
        writer.option(Some(6u64), |w, v| {
            w.u64(v);
        });
        let mut reader = Reader::new(writer.into_vec().into());
        assert_eq!((reader.u8(), reader.u16(), reader.u32(), reader.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.bytes().as_deref(), Ok(&b"five"[..]));
        assert_eq!(reader.option(Reader::u64), Ok(Some(6)));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_length_past_the_end_allocates_nothing() {
        let mut reader = Reader::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 1]));
        assert_eq!(reader.bytes(), Err(DecodeError::Short));
    }

    #[test]
    fn left_over_bytes_are_an_error() {
        let reader = Reader::new(Bytes::from_static(&[0]));
        assert_eq!(reader.finish(), Err(DecodeError::Trailing(1)));
    }
}
