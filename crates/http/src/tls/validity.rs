//! From when to when a certificate is in force: two fields of its DER form, and what follows from them.
//!
//! Nothing else of a certificate is judged here; whether it goes with its key is the TLS library's to say.
//!
//! Source: RFC 5280 section 4.1.

use crate::expiry::{DAY_S, days, render};
use highwater_base::Millis;

/// Before its end a certificate is told of for so long, or for a quarter of its time if that is less: short ones are
/// renewed late by design.
const SOON_MS: u64 = 14 * DAY_S as u64 * 1_000;

/// The tags that stand in front of the two times.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When a certificate is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From when on.
    pub from: Millis,
    /// Up to when.
    pub until: Millis,
}

/// How a certificate stands at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is in force.
    InForce,
    /// It is, and its end is near.
    EndsSoon,
    /// Its time is over: clients refuse it.
    Expired,
    /// Its time has not begun: clients refuse it.
    NotYet,
}

impl Standing {
    /// Whether clients take it.
    #[must_use]
    pub fn is_good(self) -> bool {
        matches!(self, Self::InForce | Self::EndsSoon)
    }

    /// Its name in the status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InForce => "in_force",
            Self::EndsSoon => "ends_soon",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
        }
    }
}

impl Validity {
    /// Reads it from a certificate in DER form; `None` if it is none.
    #[must_use]
    pub fn of(der: &[u8]) -> Option<Self> {
        let mut outer = der;
        let mut certificate = take(&mut outer, SEQUENCE)?;
        let mut fields = take(&mut certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            take(&mut fields, VERSION)?;
        }
        // The serial number, the algorithm of the signature, and who signed.
        for tag in [INTEGER, SEQUENCE, SEQUENCE] {
            take(&mut fields, tag)?;
        }
        let mut times = take(&mut fields, SEQUENCE)?;
        Some(Self { from: time(&mut times)?, until: time(&mut times)? })
    }

    /// How it stands at `now`.
    #[must_use]
    pub fn at(&self, now: Millis) -> Standing {
        let soon_ms = SOON_MS.min(self.until.since(self.from) / 4);
        match () {
            () if now < self.from => Standing::NotYet,
            () if now > self.until => Standing::Expired,
            () if self.until.since(now) < soon_ms => Standing::EndsSoon,
            () => Standing::InForce,
        }
    }

    /// Its end, as a clock in UTC shows it.
    #[must_use]
    pub fn end(&self) -> String {
        render(self.until)
    }
}

/// The content of the element that comes next, if it has this tag.
fn take<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (&[found, first], rest) = bytes.split_first_chunk()?;
    // Above 127 the byte says how many bytes of length follow; four are more than any certificate has.
    let digits = usize::from(first & 0x7f);
    let (length, rest) = match first {
        0..=0x7f => (digits, rest),
        _ if digits > 4 => return None,
        _ => {
            let (length, rest) = rest.split_at_checked(digits)?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    (found == tag).then_some(content)
}

/// The time that comes next: two digits of the year, or four. One before 1970 counts as its beginning.
fn time(bytes: &mut &[u8]) -> Option<Millis> {
    let tag = *bytes.first()?;
    let text = std::str::from_utf8(take(bytes, tag)?).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => (text.get(..2)?, text.get(2..)?),
        GENERALIZED_TIME => (text.get(..4)?, text.get(4..)?),
        _ => return None,
    };
    if rest.len() != 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize| rest[from..from + 2].parse::<i64>().ok();
    let year: i64 = year.parse().ok()?;
    // RFC 5280: below 50 is this century.
    let year = if tag == GENERALIZED_TIME { year } else { year + if year < 50 { 2_000 } else { 1_900 } };
    let (month, day, hour, minute, second) = (number(0)?, number(2)?, number(4)?, number(6)?, number(8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * DAY_S + hour * 3_600 + minute * 60 + second;
    Some(Millis(u64::try_from(seconds).unwrap_or(0) * 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> Vec<u8> {
        let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        parameters.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        parameters.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
        let key = rcgen::KeyPair::generate().expect("a key");
        parameters.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn the_times_of_a_certificate_are_read_in_both_of_their_forms() {
        let der = certificate((2026, 1, 2), (2026, 3, 4));
        let read = Validity::of(&der).expect("readable");
        assert_eq!(
            (render(read.from), read.end()),
            ("2026-01-02T00:00:00.000Z".into(), "2026-03-04T00:00:00.000Z".into())
        );
        let read = Validity::of(&certificate((1975, 1, 1), (4096, 1, 1))).expect("readable");
        assert_eq!(
            (render(read.from), read.end()),
            ("1975-01-01T00:00:00.000Z".into(), "4096-01-01T00:00:00.000Z".into())
        );
    }

    /// Whoever fills the files may fill them with anything.
    #[test]
    fn whatever_is_no_certificate_has_no_times() {
        let der = certificate((2026, 1, 2), (2026, 3, 4));
        for cut in 0..der.len() {
            assert_eq!(Validity::of(&der[..cut]), None, "cut at {cut}");
        }
        let mut read = 0;
        for at in 0..200 {
            for with in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut bent = der.clone();
                bent[at] = with;
                read += usize::from(Validity::of(&bent).is_some());
            }
        }
        assert!((1..1_200).contains(&read), "{read}: a bent byte is an answer, and no panic");
        for text in [
            &b"\x17\x0d260230250000Z"[..],
            b"\x17\x0d2602302359x0Z",
            b"\x18\x0f00000000000000Z",
            b"\x17\x01Z",
            b"\x05\x00",
        ] {
            assert_eq!(time(&mut &*text), None, "{text:?}");
        }
    }

    #[test]
    fn the_end_is_told_a_fortnight_ahead_or_a_quarter_of_a_short_time() {
        let at = |days: u64| Millis(days * DAY_MS);
        let year = Validity { from: at(100), until: at(465) };
        for (day, standing) in [
            (99, Standing::NotYet),
            (100, Standing::InForce),
            (451, Standing::InForce),
            (452, Standing::EndsSoon),
            (465, Standing::EndsSoon),
            (466, Standing::Expired),
        ] {
            assert_eq!(year.at(at(day)), standing, "day {day}");
        }
        let short = Validity { from: at(0), until: at(8) };
        assert_eq!((short.at(at(6)), short.at(at(7))), (Standing::InForce, Standing::EndsSoon));
    }
}
