//! Close: with last bytes or without.

use super::{CONTENT_TYPE, Draft};
use crate::message::Ask;
use crate::oracle::register::Deed;
use bytes::Bytes;
use highwater_base::Random;
use highwater_stream::{Append, Operation};

/// Closes the stream at `path`.
pub fn close(draft: &mut Draft<'_>, path: &str) -> Ask {
    let body = if draft.random.below(2) == 0 { draft.body().1 } else { Bytes::new() };
    let incarnation = draft.oracle.token(path);
    let write = draft.oracle.register.add(path, Deed::Keyless, incarnation, true, body.clone());
    let operation = Operation::Append(Append {
        incarnation,
        producer: None,
        body_fault: None,
        content_type: Some(CONTENT_TYPE.to_owned()),
        stream_seq: None,
        close: true,
        body,
    });
    Ask::Write { path: path.to_owned(), operation, write }
}
