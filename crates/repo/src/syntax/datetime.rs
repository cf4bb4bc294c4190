//! Points in time, as records write them.

/// Digits of a fraction of a second at the most.
const FRACTION_DIGITS_MAX: usize = 20;

/// A time's parts, as they are written.
struct Parts {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    /// Minutes that the place is ahead of universal time.
    ahead_minutes: i32,
}

/// A number of so many digits, and what follows it.
fn number(text: &str, digits: usize) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    Some((number.parse().ok()?, rest))
}

fn zone(text: &str) -> Option<i32> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, rest) = number(rest, 2)?;
    let (minutes, rest) = number(rest.strip_prefix(':')?, 2)?;
    // "-00:00" would say that the place is unknown.
    let known = sign > 0 || hours > 0 || minutes > 0;
    (rest.is_empty() && known && hours < 30 && minutes < 60).then_some(sign * (hours * 60 + minutes) as i32)
}

fn parts(text: &str) -> Option<Parts> {
    let (year, rest) = number(text, 4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (hour, rest) = number(rest.strip_prefix('T')?, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = number(rest.strip_prefix(':')?, 2)?;
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            (1..=FRACTION_DIGITS_MAX).contains(&digits).then_some(())?;
            &fraction[digits..]
        }
        None => rest,
    };
    Some(Parts { year, month, day, hour, minute, second, ahead_minutes: zone(rest)? })
}

/// Whether text is written like a time: RFC 3339 with capital letters, a zone, and no unknown place.
#[must_use]
pub fn is_datetime_text(text: &str) -> bool {
    text.len() <= 64 && parts(text).is_some()
}

/// Whether text is a time that there is, from the year 0 on.
#[must_use]
pub fn is_datetime(text: &str) -> bool {
    let Some(parts) = parts(text).filter(|_| text.len() <= 64) else { return false };
    let leap = parts.year % 4 == 0 && (parts.year % 100 != 0 || parts.year % 400 == 0);
    let days = match parts.month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return false,
    };
    let first_minutes = ((parts.day.saturating_sub(1) * 24 + parts.hour) * 60 + parts.minute) as i32;
    let before_year_zero = parts.year == 0 && parts.month == 1 && first_minutes < parts.ahead_minutes;
    (1..=days).contains(&parts.day)
        && parts.hour < 24
        && parts.minute < 60
        && parts.second <= 60
        && parts.ahead_minutes.abs() < 24 * 60
        && !before_year_zero
}
