//! The token of one history of a stream.

use crate::random::Random;
use std::fmt;

/// Names one history of a stream: it changes when the stream is deleted and created again, and at a history event.
///
/// Canonical decimal in `1..2^53`; tokens issued here are at least 2^52, so that they never meet small numbers that
/// a person might type. Compared for equality only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// One more than the largest token.
    pub const END: u64 = 1 << 53;

    /// The smallest token, which is never issued.
    pub const MIN: Self = Self(1);

    /// A fresh token.
    pub fn issue(random: &mut dyn Random) -> Self {
        Self((1 << 52) | (random.next_u64() >> 12))
    }

    /// The token with this number, if it is in range.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        (1..Self::END).contains(&number).then_some(Self(number))
    }

    /// The token's number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// Reads canonical decimal: no sign, no leading zero.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let canonical = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        canonical.then(|| text.parse().ok().and_then(Self::new)).flatten()
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;

    #[test]
    fn issued_tokens_are_in_the_upper_half() {
        let mut random = SplitMix::new(1);
        for _ in 0..1000 {
            let token = Incarnation::issue(&mut random);
            assert!((1 << 52..Incarnation::END).contains(&token.get()));
            assert_eq!(Incarnation::parse(&token.to_string()), Some(token));
        }
    }

    #[test]
    fn only_canonical_decimal_is_a_token() {
        for bad in ["", "0", "01", "-1", "+1", "9007199254740992", "1 "] {
            assert_eq!(Incarnation::parse(bad), None, "{bad:?}");
        }
        assert!(Incarnation::parse("9007199254740991").is_some());
    }
}
