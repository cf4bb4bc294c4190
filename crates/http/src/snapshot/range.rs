//! Which bytes of a snapshot a request asks for.

use axum::http::{HeaderMap, header};
use std::ops::Range;

/// What a `Range` comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ranged {
    /// All of it, as 200.
    Whole,
    /// These, as 206; never empty.
    Part(Range<u64>),
    /// None that there are: 416.
    Unsatisfiable,
}

/// Resolves the one range of bytes that is honoured: `bytes=a-b`, `bytes=a-` or `bytes=-n`. Several ranges, another unit, what
/// does not parse, and any of them beside `If-Range` get the whole.
///
/// Source: RFC 9110 section 14.
pub(crate) fn resolve(headers: &HeaderMap, total: u64) -> Ranged {
    let mut fields = headers.get_all(header::RANGE).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return Ranged::Whole };
    if headers.contains_key(header::IF_RANGE) {
        return Ranged::Whole;
    }
    field.to_str().ok().and_then(|value| parse(value, total)).unwrap_or(Ranged::Whole)
}

/// `None` for what is no such range.
fn parse(value: &str, total: u64) -> Option<Ranged> {
    let (unit, range) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let range = match (first, last) {
        ("", last) => {
            let count = position(last)?;
            // No 206 can say that nothing of nothing was sent.
            if total == 0 && count > 0 {
                return Some(Ranged::Whole);
            }
            total - count.min(total)..total
        }
        (first, "") => position(first)?..total,
        (first, last) => {
            let (first, last) = (position(first)?, position(last)?);
            if first > last {
                return None;
            }
            first..total.min(last.saturating_add(1))
        }
    };
    Some(if range.is_empty() { Ranged::Unsatisfiable } else { Ranged::Part(range) })
}

fn position(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use proptest::prelude::*;
    use ursula_headers::range::{ByteRange, ContentRange};

    fn published(value: &str, total: u64) -> Ranged {
        match ByteRange::parse([("range", value.as_bytes())]).and_then(|range| range.resolve(total)) {
            None => Ranged::Whole,
            Some(ContentRange::Unsatisfied { .. }) => Ranged::Unsatisfiable,
            Some(ContentRange::Partial(span)) => Ranged::Part(span.first()..span.last() + 1),
        }
    }

    fn ours(value: &str, total: u64) -> Ranged {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::try_from(value).expect("visible"));
        resolve(&headers, total)
    }

    #[test]
    fn ranges_are_resolved_as_published() {
        let values = [
            "bytes=0-0",
            "bytes=0-9",
            "bytes=0-10",
            "bytes=5-",
            "bytes=9-",
            "bytes=10-",
            "bytes=-3",
            "bytes=-0",
            "bytes=-99",
            "bytes=7-3",
            "bytes=-",
            "bytes=0-1,4-5",
            "items=0-5",
            "Bytes = 3-",
            "bytes=+1-2",
            "bytes=a-b",
            "bytes",
            "bytes=0-18446744073709551615",
            "bytes=0-18446744073709551616",
            "bytes=18446744073709551615-",
        ];
        for total in [0, 1, 10, u64::MAX] {
            for value in values {
                assert_eq!(ours(value, total), published(value, total), "{value} of {total}");
            }
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-1"));
        headers.insert(header::IF_RANGE, HeaderValue::from_static("\"x\""));
        assert_eq!(resolve(&headers, 10), Ranged::Whole);
        headers.remove(header::IF_RANGE);
        headers.append(header::RANGE, HeaderValue::from_static("bytes=0-1"));
        assert_eq!(resolve(&headers, 10), Ranged::Whole, "two fields are several ranges");
    }

    proptest! {
        #[test]
        fn any_range_is_resolved_as_published(value in "(bytes|Bytes|b)?[= ]{0,2}[0-9]{0,3}[-,]?[0-9]{0,3}", total in 0u64..300) {
            prop_assert_eq!(ours(&value, total), published(&value, total));
        }
    }
}
