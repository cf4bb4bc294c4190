//! `Retry-After`: seconds, or a date against the answer's own `Date`.

use crate::headers::Headers;

/// Milliseconds that an answer asks to wait; `None` if it asks for nothing that can be understood.
///
/// A date counts from the `Date` of the same answer, so that the clocks of two hosts are never compared; without that
/// field it is not understood. The caller caps the wait.
#[must_use]
pub fn retry_after_ms(headers: &Headers) -> Option<u64> {
    let value = headers.text("retry-after").ok()??;
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        return Some(value.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000));
    }
    let sent = date_seconds(headers.text("date").ok()??)?;
    Some(date_seconds(value)?.saturating_sub(sent).saturating_mul(1000))
}

/// Seconds since the start of 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
///
/// Source: RFC 9110 section 5.6.7, the preferred form; the two obsolete ones are not understood.
fn date_seconds(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, rest) = text.split_once(", ")?;
    let mut fields = rest.split(' ');
    let number = |text: &str, digits: usize| {
        (text.len() == digits && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse::<u64>().ok()).flatten()
    };
    let day = number(fields.next()?, 2).filter(|day| (1..=31).contains(day))?;
    let name = fields.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let year = number(fields.next()?, 4).filter(|&year| year >= 1970)?;
    let mut clock = fields.next()?.split(':');
    let hour = number(clock.next()?, 2).filter(|&hour| hour < 24)?;
    let minute = number(clock.next()?, 2).filter(|&minute| minute < 60)?;
    let second = number(clock.next()?, 2).filter(|&second| second <= 60)?;
    if fields.next()? != "GMT" || fields.next().is_some() || clock.next().is_some() {
        return None;
    }
    Some(days_before(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a date; the year is counted from March, so that a leap day ends it.
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(retry_after: &str) -> Option<u64> {
        retry_after_ms(&Headers::new([("Retry-After", retry_after), ("Date", "Thu, 29 Feb 2024 23:59:30 GMT")]))
    }

    #[test]
    fn seconds_dates_and_garbage() {
        assert_eq!(wait("0"), Some(0));
        assert_eq!(wait("60"), Some(60_000));
        assert_eq!(wait("3600"), Some(3_600_000));
        assert_eq!(wait("99999999999999999999"), Some(u64::MAX));
        assert_eq!(wait("Fri, 01 Mar 2024 00:00:15 GMT"), Some(45_000));
        assert_eq!(wait("Thu, 29 Feb 2024 00:00:00 GMT"), Some(0), "a date that is past asks for no wait");
        for garbage in ["", "-1", "1.5", "soon", "Fri, 1 Mar 2024 00:00:15 GMT", "Fri, 01 Mar 2024 00:00:15 CET"] {
            assert_eq!(wait(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_date_without_the_answers_own_date_is_not_understood() {
        assert_eq!(retry_after_ms(&Headers::new([("Retry-After", "Fri, 01 Mar 2024 00:00:15 GMT")])), None);
    }

    #[test]
    fn days_count_from_1970() {
        assert_eq!(days_before(1970, 1, 1), 0);
        assert_eq!(days_before(2000, 3, 1), 11_017);
        assert_eq!(date_seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
    }
}
