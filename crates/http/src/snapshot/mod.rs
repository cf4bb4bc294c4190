//! Snapshots of a stream: published with one request or in parts, and read by range.
//!
//! Source: the stream contract, snapshots.

mod manifest;
mod publish;
mod range;
mod read;
mod transfer;

pub(crate) use publish::{discard, publish, stage};
pub(crate) use read::{answer, read};

use crate::error::{Code, Error};
use crate::router::App;
use crate::service::Service;
use highwater_base::{Incarnation, Offset};
use highwater_node::ReadRequest;
use highwater_stream::{ReadFrom, Refusal};

/// Digits of the largest offset.
const OFFSET_DIGITS_MAX: usize = 20;

/// The offset in a mutable path: up to 20 decimal digits.
///
/// # Errors
/// `INVALID_OFFSET`.
pub(crate) fn offset(text: &str) -> Result<Offset, Error> {
    let digits = (1..=OFFSET_DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let offset = text.parse().ok().filter(|_| digits).map(Offset);
    offset.ok_or_else(|| Error::new(Code::InvalidOffset, "the offset in the path must be up to 20 decimal digits"))
}

/// Checks that an offset of a JSON stream lies between two messages. Every other stream has no messages, and whatever else
/// is wrong with the offset the apply tells.
///
/// # Errors
/// `NOT_JSON_BOUNDARY`; `JSON_BOUNDARY_UNVERIFIED` if that cannot be told now.
pub(crate) async fn check_boundary<S: Service>(
    app: &App<S>,
    path: &str,
    incarnation: Option<Incarnation>,
    offset: Offset,
) -> Result<(), Error> {
    let Ok(head) = app.service.head(path).await? else { return Ok(()) };
    if !highwater_node::json::is_json(&head.content_type) {
        return Ok(());
    }
    let (path, from) = (path.to_owned(), ReadFrom::At(offset));
    let request = ReadRequest { path, incarnation, from, length_max: 1, leader: true, wait_ms: None };
    match app.service.read(request).await {
        Ok(Err(inside @ Refusal::NotJsonBoundary)) => Err(inside.into()),
        Ok(_) => Ok(()),
        Err(why) => {
            tracing::warn!(%why, "an offset of a JSON stream could not be checked");
            Err(Error::new(Code::JsonBoundaryUnverified, Code::JsonBoundaryUnverified.row().when))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_in_a_path_is_up_to_twenty_digits() {
        for (text, value) in [("0", 0), ("7", 7), ("007", 7), ("00000000000000004096", 4096)] {
            assert_eq!(offset(text).map_err(|error| error.code()), Ok(Offset(value)));
        }
        for text in ["", "-1", "now", "+5", "5x", "1_0", "000000000000000000001", "99999999999999999999", " 5"] {
            assert_eq!(offset(text).map_err(|error| error.code()), Err(Code::InvalidOffset), "{text:?}");
        }
    }
}
