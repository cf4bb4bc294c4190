//! The clock's readings, and how the protocol writes them.

use std::fmt;

/// Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// So many seconds later.
    #[must_use]
    pub fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }

    /// How many seconds lie between an earlier reading and this one; none if it is not earlier.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }
}

/// As the protocol's datetime: `2026-01-31T12:00:00.000Z`, in milliseconds.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0 / 1_000;
        let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
        let (year, month, day) = civil(days);
        let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
        let (second, milli) = (rest / 1_000 % 60, rest % 1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

/// Year, month and day of a day counted from 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let (mut year, mut rest) = (1970 + days / DAYS_OF_400_YEARS * 400, days % DAYS_OF_400_YEARS);
    while rest >= days_of(year) {
        rest -= days_of(year);
        year += 1;
    }
    let february = if days_of(year) == 366 { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while rest >= months[month] {
        rest -= months[month];
        month += 1;
    }
    (year, month as u64 + 1, rest + 1)
}

fn days_of(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    if leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_written_as_the_protocol_has_it() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999_000, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_123_456, "2024-03-01T00:00:00.123Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
            (1_764_547_199_000_000, "2025-11-30T23:59:59.000Z"),
        ] {
            assert_eq!(Micros(micros).to_string(), text);
        }
    }
}
