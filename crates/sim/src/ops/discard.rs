//! Discard: forgets all parts that no snapshot took.

use super::Draft;
use crate::message::Ask;
use crate::oracle::register::Deed;
use bytes::Bytes;
use highwater_stream::Operation;

/// Discards the parts of the stream at `path`.
pub fn discard(draft: &mut Draft<'_>, path: &str) -> Ask {
    let incarnation = draft.oracle.token(path);
    let write = draft.oracle.register.add(path, Deed::Discard, incarnation, false, Bytes::new());
    Ask::Write { path: path.to_owned(), operation: Operation::DiscardParts { incarnation }, write }
}
