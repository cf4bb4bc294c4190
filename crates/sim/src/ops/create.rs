//! Create: makes a stream, with or without first bytes.

use super::{CONTENT_TYPE, Draft};
use crate::message::Ask;
use crate::oracle::register::Deed;
use bytes::Bytes;
use highwater_base::{Incarnation, Random};
use highwater_stream::{Create, Expiry, Operation};

/// Makes the stream at `path`, or finds it.
pub fn create(draft: &mut Draft<'_>, path: &str) -> Ask {
    let new_incarnation = Incarnation::issue(draft.random);
    let closed = draft.random.below(20) == 0;
    let body = if draft.random.below(3) == 0 { draft.body().1 } else { Bytes::new() };
    let expiry = if draft.expires && draft.random.below(2) == 0 { Some(expiry(draft)) } else { None };
    let deed = Deed::Create(new_incarnation, expiry);
    let write = draft.oracle.register.add(path, deed, None, closed, body.clone());
    let content_type = CONTENT_TYPE.to_owned();
    let operation =
        Operation::Create(Create { content_type, closed, incarnation: None, new_incarnation, expiry, body });
    Ask::Write { path: path.to_owned(), operation, write }
}

/// An end that comes within the run, or one that only a clock that jumps reaches.
fn expiry(draft: &mut Draft<'_>) -> Expiry {
    match draft.random.below(3) {
        0 => Expiry::Sliding { ttl_s: 1 + draft.random.below(20) },
        1 => Expiry::Sliding { ttl_s: 3_600 * (1 + draft.random.below(48)) },
        _ => Expiry::At(draft.wall.plus(draft.random.below(30_000))),
    }
}
