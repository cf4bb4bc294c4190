//! When a stream ends by itself: the syntax of `Stream-TTL` and `Stream-Expires-At`.
//!
//! Source: PROTOCOL.md section 5.1; RFC 3339 section 5.6.

use crate::answer::set;
use crate::error::{Code, Error};
use crate::fields::single;
use crate::names;
use axum::http::HeaderMap;
use highwater_base::Millis;
use highwater_base::limits::PRODUCER_NUMBER_MAX;
use highwater_stream::Expiry;

/// The longest window, in seconds: what every JSON reader keeps exact, and no clock of milliseconds overflows on.
const TTL_S_MAX: u64 = PRODUCER_NUMBER_MAX;

/// Seconds of a day.
pub(crate) const DAY_S: i64 = 86_400;

/// What a request says.
///
/// # Errors
/// `INVALID_HEADER` for both at once, or for a value that has not the syntax.
pub(crate) fn parse(headers: &HeaderMap) -> Result<Option<Expiry>, Error> {
    let invalid = |message: &'static str| Error::new(Code::InvalidHeader, message);
    let ttl = single(headers, &names::STREAM_TTL, Code::InvalidHeader)?;
    let expires_at = single(headers, &names::STREAM_EXPIRES_AT, Code::InvalidHeader)?;
    match (ttl, expires_at) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(invalid("stream-ttl and stream-expires-at do not go together")),
        (Some(ttl), None) => {
            let ttl_s = seconds(ttl).ok_or_else(|| {
                invalid("stream-ttl must be a whole number of seconds below 2^53, without a sign or a leading zero")
            })?;
            Ok(Some(Expiry::Sliding { ttl_s }))
        }
        (None, Some(at)) => {
            let at = moment(at)
                .ok_or_else(|| invalid("stream-expires-at must be an RFC 3339 time, such as 2027-01-31T18:30:00Z"))?;
            Ok(Some(Expiry::At(at)))
        }
    }
}

/// Tells it, as it was asked for; a time always in UTC.
pub(crate) fn tell(headers: &mut HeaderMap, expiry: Option<Expiry>) {
    match expiry {
        None => {}
        Some(Expiry::Sliding { ttl_s }) => set(headers, names::STREAM_TTL, ttl_s),
        Some(Expiry::At(at)) => set(headers, names::STREAM_EXPIRES_AT, render(at)),
    }
}

fn seconds(text: &str) -> Option<u64> {
    let canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    text.parse().ok().filter(|seconds| canonical && *seconds <= TTL_S_MAX)
}

/// Reads a time with any zone. What lies before 1970 counts as its beginning; digits beyond milliseconds are dropped.
fn moment(text: &str) -> Option<Millis> {
    let (date, rest) = text.split_at_checked(10)?;
    let (year, month, day) = (digits(date.get(..4)?)?, digits(date.get(5..7)?)?, digits(date.get(8..)?)?);
    let clock = rest.strip_prefix(['T', 't'])?;
    let (hour, minute, second) = (digits(clock.get(..2)?)?, digits(clock.get(3..5)?)?, digits(clock.get(6..8)?)?);
    let marks = [date.get(4..5)?, date.get(7..8)?, clock.get(2..3)?, clock.get(5..6)?];
    let in_range = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    // A leap second is the sixty-first of its minute.
    if marks != ["-", "-", ":", ":"] || !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (milliseconds, zone) = fraction(clock.get(8..)?)?;
    let offset_s = zone_s(zone)?;
    let seconds = days(year, month, day) * DAY_S + hour * 3_600 + minute * 60 + second - offset_s;
    Some(Millis(u64::try_from(seconds * 1_000 + milliseconds).unwrap_or(0)))
}

/// The milliseconds of a fraction, if there is one, and what stands behind it.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = rest.bytes().position(|byte| !byte.is_ascii_digit())?;
    let (fraction, zone) = rest.split_at(end);
    let milliseconds = format!("{fraction:0<3}");
    (end > 0).then(|| Some((digits(milliseconds.get(..3)?)?, zone))).flatten()
}

/// Seconds by which a zone is ahead.
fn zone_s(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let (sign, clock) = text.split_at_checked(1)?;
    let (hours, minutes) = clock.split_once(':')?;
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    let ahead_s = hours * 3_600 + minutes * 60;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        "+" => Some(ahead_s),
        "-" => Some(-ahead_s),
        _ => None,
    }
}

fn two_digits(text: &str) -> Option<i64> {
    if text.len() == 2 { digits(text) } else { None }
}

fn digits(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that the day that some
/// of them have more is the last of theirs.
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // Five months from March on have 153 days together, as have the next five.
    year * 365 + leaps + (153 * month + 2) / 5 + day - 1 - EPOCH_DAYS
}

/// Days from the first of March of the year 0 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// As a clock in UTC shows it, to the millisecond.
pub(crate) fn render(at: Millis) -> String {
    let milliseconds = i64::try_from(at.0).unwrap_or(i64::MAX);
    let (seconds, milliseconds) = (milliseconds / 1_000, milliseconds % 1_000);
    let (day, second) = (seconds / DAY_S, seconds % DAY_S);
    // A first guess of the year is late by one at the most.
    let mut year = 1970 + day / 365;
    while days(year, 1, 1) > day {
        year -= 1;
    }
    let mut left = day - days(year, 1, 1);
    let mut month = 1;
    while left >= days_of(year, month) {
        left -= days_of(year, month);
        month += 1;
    }
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    fn asked(name: &'static str, value: &str) -> Result<Option<Expiry>, Code> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::try_from(value).expect("a value"));
        parse(&headers).map_err(|error| error.code())
    }

    #[test]
    fn a_window_is_a_canonical_number_of_seconds() {
        for (text, ttl_s) in [("0", 0), ("1", 1), (" 3600 ", 3_600), ("9007199254740991", TTL_S_MAX)] {
            assert_eq!(asked("stream-ttl", text), Ok(Some(Expiry::Sliding { ttl_s })), "{text}");
        }
        for text in ["", "00", "01", "+1", "-1", "1.5", "1e3", "1s", "0x1", "9007199254740992", "99999999999999999999"]
        {
            assert_eq!(asked("stream-ttl", text), Err(Code::InvalidHeader), "{text}");
        }
    }

    #[test]
    fn a_time_may_have_any_zone() {
        for (text, milliseconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:30:45.678Z", 951_827_445_678),
            ("2000-02-29t12:30:45.6z", 951_827_445_600),
            ("2000-02-29T12:30:45.678999999+00:00", 951_827_445_678),
            ("2000-02-29T14:00:45.678+01:30", 951_827_445_678),
            ("2000-02-28T23:30:45.678-13:00", 951_827_445_678),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
            ("1969-12-31T23:59:59Z", 0),
            ("0000-01-01T00:00:00Z", 0),
        ] {
            assert_eq!(asked("stream-expires-at", text), Ok(Some(Expiry::At(Millis(milliseconds)))), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "not-a-timestamp",
            "2027",
            "2027-01-31",
            "2027-01-31T18:30:00",
            "2027-01-31 18:30:00Z",
            "2027-1-31T18:30:00Z",
            "2027-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2027-13-01T00:00:00Z",
            "2027-00-01T00:00:00Z",
            "2027-04-31T00:00:00Z",
            "2027-01-00T00:00:00Z",
            "2027-01-31T24:00:00Z",
            "2027-01-31T18:60:00Z",
            "2027-01-31T18:30:61Z",
            "2027-01-31T18:30:00.Z",
            "2027-01-31T18:30:00.5",
            "2027-01-31T18:30:00+1:00",
            "2027-01-31T18:30:00+0100",
            "2027-01-31T18:30:00+24:00",
            "2027-01-31T18:30:00+00:60",
            "2027-01-31T18:30:00*00:00",
            "2027-01-31T18:30:00Zz",
            "+027-01-31T18:30:00Z",
            "2027-01-31T18:+3:00Z",
            "1798741800",
            "Sun, 31 Jan 2027 18:30:00 GMT",
        ] {
            assert_eq!(asked("stream-expires-at", text), Err(Code::InvalidHeader), "{text}");
        }
    }

    #[test]
    fn only_one_of_them_may_come_and_only_once() {
        let mut headers = HeaderMap::new();
        assert!(parse(&headers).is_ok_and(|expiry| expiry.is_none()));
        headers.insert("stream-ttl", HeaderValue::from_static("1"));
        headers.insert("stream-expires-at", HeaderValue::from_static("2027-01-31T18:30:00Z"));
        assert!(parse(&headers).is_err());
        headers.remove("stream-expires-at");
        headers.append("stream-ttl", HeaderValue::from_static("1"));
        assert!(parse(&headers).is_err());
    }

    proptest! {
        #[test]
        fn every_time_reads_back_as_it_is_told(at in 0..=253_402_300_799_999u64) {
            let text = render(Millis(at));
            prop_assert_eq!(moment(&text), Some(Millis(at)), "{}", text);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9TZtz:.+ -]{0,30}|\\PC{0,30}") {
            let _read = moment(&text);
        }
    }
}
