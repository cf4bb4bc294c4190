//! Create: makes a stream, with or without first bytes.

use super::{CONTENT_TYPE, Draft};
use crate::message::Ask;
use crate::oracle::register::Deed;
use bytes::Bytes;
use highwater_base::{Incarnation, Random};
use highwater_stream::{Create, Operation};

/// Makes the stream at `path`, or finds it.
pub fn create(draft: &mut Draft<'_>, path: &str) -> Ask {
    let new_incarnation = Incarnation::issue(draft.random);
    let closed = draft.random.below(20) == 0;
    let body = if draft.random.below(3) == 0 { draft.body().1 } else { Bytes::new() };
    let write = draft.oracle.register.add(path, Deed::Create(new_incarnation), None, closed, body.clone());
    let content_type = CONTENT_TYPE.to_owned();
    let operation =
        Operation::Create(Create { content_type, closed, incarnation: None, new_incarnation, expiry: None, body });
    Ask::Write { path: path.to_owned(), operation, write }
}
