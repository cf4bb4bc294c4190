//! Positions in a stream.

use std::fmt;

/// A byte position in a stream, counted from its first byte.
///
/// Answers spell it with exactly 20 digits, so that offsets compare as strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub u64);

impl Offset {
    /// Reads the 20-digit spelling of headers and immutable paths.
    #[must_use]
    pub fn parse_padded(text: &str) -> Option<Self> {
        (text.len() == 20).then(|| Self::parse_decimal(text)).flatten()
    }

    /// Reads a decimal number with or without leading zeros, as paths and queries may carry it (at most 20 digits).
    #[must_use]
    pub fn parse_decimal(text: &str) -> Option<Self> {
        let digits = !text.is_empty() && text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok().map(Self)).flatten()
    }

    /// The position `length` bytes later, or `None` past the largest offset.
    #[must_use]
    pub fn checked_add(self, length: u64) -> Option<Self> {
        self.0.checked_add(length).map(Self)
    }

    /// Bytes from `earlier` to `self`, zero if `earlier` lies behind.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_order_as_strings() {
        assert!(Offset(9).to_string() < Offset(10).to_string());
        assert_eq!(Offset(u64::MAX).to_string().len(), 20);
    }

    #[test]
    fn only_plain_digits_are_offsets() {
        assert_eq!(Offset::parse_padded("00000000000000000042"), Some(Offset(42)));
        assert_eq!(Offset::parse_padded("42"), None);
        assert_eq!(Offset::parse_decimal("42"), Some(Offset(42)));
        for bad in ["", "-1", "+1", " 1", "1 ", "0x1", "99999999999999999999", "000000000000000000001"] {
            assert_eq!(Offset::parse_decimal(bad), None, "{bad:?}");
        }
    }
}
