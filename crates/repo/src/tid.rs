//! Timestamp identifiers: revisions and the usual keys of records.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

const ALPHABET: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";
const DIGITS: usize = 13;
const CLOCK_ID_BITS: u32 = 10;

/// Microseconds since 1970 in 53 bits, and 10 bits that tell clocks apart. Its text sorts as it does.
///
/// Source: atproto TID specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(u64);

/// Text that is no timestamp identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a TID has 13 digits of 234567abcdefghijklmnopqrstuvwxyz, the first below k")]
pub struct TidError;

impl Tid {
    /// The first one that there is.
    pub const MIN: Self = Self(0);

    /// Of a time in microseconds since 1970, of which 53 bits count, and of a clock's number, of which 10 do.
    #[must_use]
    pub fn new(micros: u64, clock_id: u16) -> Self {
        let time = micros & ((1 << 53) - 1);
        Self(time << CLOCK_ID_BITS | u64::from(clock_id) & ((1 << CLOCK_ID_BITS) - 1))
    }

    /// Its time in microseconds since 1970.
    #[must_use]
    pub fn micros(self) -> u64 {
        self.0 >> CLOCK_ID_BITS
    }

    /// As a number of 63 bits, for records that are stored.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The one that such a number is; `None` for a number of 64 bits.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits >> 63 == 0).then_some(Self(bits))
    }

    /// The identifier of a time, or the first one behind `last` with the same clock if that is later: what a clock that is
    /// set back must not undo.
    #[must_use]
    pub fn after(last: Option<Self>, micros: u64, clock_id: u16) -> Self {
        let wanted = Self::new(micros, clock_id);
        match last {
            Some(last) if wanted <= last => Self::new(last.micros() + 1, clock_id),
            _ => wanted,
        }
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |place: usize| char::from(ALPHABET[(self.0 >> (5 * (DIGITS - 1 - place)) & 31) as usize]);
        f.write_str(&(0..DIGITS).map(digit).collect::<String>())
    }
}

impl FromStr for Tid {
    type Err = TidError;

    fn from_str(text: &str) -> Result<Self, TidError> {
        if text.len() != DIGITS {
            return Err(TidError);
        }
        let digit = |byte: u8| ALPHABET.iter().position(|digit| *digit == byte);
        let number = text.bytes().try_fold(0u128, |number, byte| Some(number << 5 | digit(byte)? as u128));
        // 65 bits are written; the first two are zero.
        number.and_then(|number| u64::try_from(number).ok()).filter(|n| n >> 63 == 0).map(Self).ok_or(TidError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_text_sorts_as_its_time_and_reads_back() {
        let tids = [Tid::MIN, Tid::new(1, 0), Tid::new(1, 1023), Tid::new(2, 0), Tid::new((1 << 53) - 1, 1023)];
        for pair in tids.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].to_string() < pair[1].to_string(), "{pair:?}");
        }
        for tid in tids {
            assert_eq!(tid.to_string().parse(), Ok(tid));
            assert_eq!(tid.to_string().len(), 13);
        }
        assert_eq!("3jzfcijpj2z2a".parse::<Tid>().map(Tid::micros), Ok(1_688_137_381_887_007));
    }

    #[test]
    fn a_clock_that_is_set_back_never_goes_back() {
        let last = Tid::new(1_000, 7);
        assert_eq!(Tid::after(Some(last), 2_000, 3), Tid::new(2_000, 3));
        assert_eq!(Tid::after(Some(last), 500, 3), Tid::new(1_001, 3));
        assert_eq!(Tid::after(Some(last), 1_000, 7), Tid::new(1_001, 7));
        assert_eq!(Tid::after(Some(last), 1_000, 8), Tid::new(1_000, 8));
        assert_eq!(Tid::after(None, 500, 3), Tid::new(500, 3));
    }
}
