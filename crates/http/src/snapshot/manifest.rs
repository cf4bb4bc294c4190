//! The body of a commit of parts: their ids, one a line.

use crate::error::{Code, Error};
use highwater_base::Incarnation;
use highwater_base::limits::SNAPSHOT_PARTS_MAX;
use std::collections::BTreeSet;

/// Bytes of the longest part id of any server of the contract.
const PART_ID_BYTES_MAX: usize = 64;

/// Bytes of the longest list.
pub(crate) const MANIFEST_BYTES_MAX: u64 = (SNAPSHOT_PARTS_MAX * (PART_ID_BYTES_MAX + 1)) as u64;

/// A number that is never a part's, in place of an id that this server never gave.
const NO_PART: Incarnation = Incarnation::MIN;

/// Reads the ids of exactly `count` parts.
///
/// An id that this server never gave names no part, as the stream will find.
/// # Errors
/// `INVALID_PARTS_COMMIT`.
pub(crate) fn parse(count: usize, body: &[u8]) -> Result<Vec<Incarnation>, Error> {
    let invalid = |message: String| Err(Error::new(Code::InvalidPartsCommit, message));
    let Some(lines) = body.strip_suffix(b"\n") else {
        return invalid("the list of parts must end with a line feed".to_owned());
    };
    let (mut parts, mut seen) = (Vec::with_capacity(count), BTreeSet::new());
    for (number, line) in (1..).zip(lines.split(|byte| *byte == b'\n')) {
        if number > count {
            return invalid(format!("the list has more parts than the {count} of stream-snapshot-parts"));
        }
        let visible = line.iter().all(|byte| (0x21..=0x7e).contains(byte));
        if !visible || !(1..=PART_ID_BYTES_MAX).contains(&line.len()) {
            return invalid(format!("line {number} is no part's id: 1 to 64 bytes of visible ASCII and a line feed"));
        }
        if !seen.insert(line) {
            return invalid(format!("line {number} names a part for the second time"));
        }
        parts.push(std::str::from_utf8(line).ok().and_then(Incarnation::parse).unwrap_or(NO_PART));
    }
    if parts.len() < count {
        return invalid(format!("the list has {} parts, and stream-snapshot-parts says {count}", parts.len()));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ursula_headers::snapshot::{PartCount, PartsManifest};

    #[test]
    fn what_the_published_parser_takes_is_taken_and_nothing_else() {
        let long = "x".repeat(64);
        let longer = format!("{long}x\n");
        let long = format!("{long}\n");
        let bodies = [
            &b"a\n"[..],
            b"a\nb\n",
            b"a\nb",
            b"a\r\nb\r\n",
            b"",
            b"\n",
            b"a\n\n",
            b"a\na\n",
            b"a\nb c\n",
            b"\xff\n",
            b"4503599627370497\n4503599627370498\n",
            long.as_bytes(),
            longer.as_bytes(),
        ];
        for count in 1..=3u32 {
            for body in bodies {
                let published = PartsManifest::parse(PartCount::try_from(count).expect("in range"), body);
                let ours = parse(count as usize, body);
                assert_eq!(published.is_ok(), ours.is_ok(), "{count}: {}", String::from_utf8_lossy(body));
                assert!(ours.is_ok() || ours.is_err_and(|error| error.code() == Code::InvalidPartsCommit));
            }
        }
    }

    #[test]
    fn an_id_of_another_server_is_no_part_of_this_one() {
        let token = |number: u64| Incarnation::new(number).expect("a token");
        let parts = parse(2, b"4503599627370497\npart-1\n").expect("well formed");
        assert_eq!(parts, [token(4_503_599_627_370_497), NO_PART]);
    }
}
