//! An answer's header fields, read strictly.

use highwater_base::{Incarnation, Offset, limits};
use thiserror::Error;

/// Why a header field does not hold what the contract says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeaderFault {
    /// The field arrived more than once.
    #[error("the header {0} arrived more than once")]
    Repeated(&'static str),
    /// The field's value is not of its form.
    #[error("the header {0} has a value that it cannot have")]
    Malformed(&'static str),
    /// The answer lacks a field that it must have.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// The answer has a field that it cannot have.
    #[error("the header {0} does not belong to this answer")]
    Stray(&'static str),
}

/// Header fields in the order of their arrival; names compare without regard to case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// Collects fields.
    pub fn new<N: Into<String>, V: Into<Vec<u8>>>(fields: impl IntoIterator<Item = (N, V)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// The only field of this name, without outer blanks.
    /// # Errors
    /// `Repeated`; `Malformed` if the value is not text.
    pub fn text(&self, name: &'static str) -> Result<Option<&str>, HeaderFault> {
        let mut values = self.0.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(HeaderFault::Repeated(name));
        }
        let text = std::str::from_utf8(value).map_err(|_| HeaderFault::Malformed(name))?;
        Ok(Some(text.trim_matches([' ', '\t'])))
    }

    /// Whether a field of this name arrived, however often.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }

    /// The field's value through `parse`.
    /// # Errors
    /// As [`Headers::text`]; `Malformed` if `parse` does not take the value.
    pub fn parsed<T>(&self, name: &'static str, parse: fn(&str) -> Option<T>) -> Result<Option<T>, HeaderFault> {
        self.text(name)?.map(|text| parse(text).ok_or(HeaderFault::Malformed(name))).transpose()
    }

    /// As [`Headers::parsed`], for a field that must be there.
    /// # Errors
    /// `Missing` besides.
    pub fn required<T>(&self, name: &'static str, parse: fn(&str) -> Option<T>) -> Result<T, HeaderFault> {
        self.parsed(name, parse)?.ok_or(HeaderFault::Missing(name))
    }

    /// A flag: exactly `true`, or absent.
    /// # Errors
    /// `Malformed` for any other value.
    pub fn flag(&self, name: &'static str) -> Result<bool, HeaderFault> {
        self.parsed(name, |text| (text == "true").then_some(())).map(|set| set.is_some())
    }

    /// An offset in its 20-digit spelling.
    /// # Errors
    /// As [`Headers::parsed`].
    pub fn offset(&self, name: &'static str) -> Result<Option<Offset>, HeaderFault> {
        self.parsed(name, Offset::parse_padded)
    }

    /// An incarnation token.
    /// # Errors
    /// As [`Headers::parsed`].
    pub fn incarnation(&self, name: &'static str) -> Result<Option<Incarnation>, HeaderFault> {
        self.parsed(name, Incarnation::parse)
    }
}

/// Canonical decimal: digits only, no leading zero.
#[must_use]
pub fn canonical_decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    canonical.then(|| text.parse().ok()).flatten()
}

/// A producer's epoch or sequence number: canonical decimal up to 2^53 - 1.
#[must_use]
pub fn producer_number(text: &str) -> Option<u64> {
    canonical_decimal(text).filter(|&number| number <= limits::PRODUCER_NUMBER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_field_is_an_error_and_blanks_are_not() {
        let headers = Headers::new([("Stream-Closed", "\t true "), ("a", "1"), ("A", "1")]);
        assert_eq!(headers.flag("stream-closed"), Ok(true));
        assert_eq!(headers.text("a"), Err(HeaderFault::Repeated("a")));
        assert_eq!(headers.flag("stream-open"), Ok(false));
    }

    #[test]
    fn numbers_have_one_spelling() {
        for bad in ["", "00", "01", "+1", "-1", "1 ", "9007199254740992", "18446744073709551616"] {
            assert_eq!(producer_number(bad), None, "{bad:?}");
        }
        assert_eq!(producer_number("9007199254740991"), Some(limits::PRODUCER_NUMBER_MAX));
        assert_eq!(producer_number("0"), Some(0));
    }
}
