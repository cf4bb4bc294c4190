//! JSON streams: where a read of one begins and ends.
//!
//! Each message is stored as its text without insignificant white space and a line feed behind it, and no such text
//! holds a line feed. So a read may begin behind a line feed, and ends behind one.
//!
//! Source: the stream contract, JSON mode; DESIGN decision 10.

use crate::api::ReadAnswer;
use highwater_base::Offset;
use highwater_base::limits::REQUEST_BYTES_MAX;

/// What ends a message.
pub const BOUNDARY: u8 = b'\n';

/// Bytes of the largest message: one body, and what ends it.
pub const MESSAGE_BYTES_MAX: u64 = REQUEST_BYTES_MAX + 1;

/// Whether a normalised content type asks for JSON mode.
#[must_use]
pub fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim() == "application/json")
}

/// Bytes of the first message, if all of it is there.
#[must_use]
pub fn first_bytes(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == BOUNDARY).map(|at| at + 1)
}

/// Cuts an answer behind its last message; `false` if it does not hold even one.
pub fn cut(answer: &mut ReadAnswer) -> bool {
    let whole = whole_bytes(&answer.body);
    if whole == 0 && !answer.body.is_empty() {
        return false;
    }
    if whole < answer.body.len() {
        answer.body.truncate(whole);
        answer.next = Offset(answer.start.0 + whole as u64);
        // What was cut off follows.
        (answer.up_to_date, answer.closed) = (false, false);
    }
    true
}

/// Bytes of the whole messages that `bytes` begins with.
#[must_use]
pub fn whole_bytes(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == BOUNDARY).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_do_not_change_what_json_is() {
        for (content_type, json) in [
            ("application/json", true),
            ("application/json; charset=utf-8", true),
            ("application/jsonl", false),
            ("application/ld+json", false),
            ("text/plain; a=application/json", false),
            ("text/json", false),
            ("", false),
        ] {
            assert_eq!(is_json(content_type), json, "{content_type}");
        }
    }

    #[test]
    fn whole_messages_end_with_the_last_boundary() {
        for (bytes, whole) in [(&b""[..], 0), (b"1", 0), (b"1\n", 2), (b"1\n23", 2), (b"1\n2\n", 4)] {
            assert_eq!(whole_bytes(bytes), whole);
        }
    }
}
