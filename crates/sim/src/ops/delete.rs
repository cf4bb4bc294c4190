//! Delete: whatever lives at a path, or only the history that was last seen there.

use super::Draft;
use crate::message::Ask;
use crate::oracle::register::Deed;
use bytes::Bytes;
use highwater_base::Random;
use highwater_stream::Operation;

/// Deletes the stream at `path`.
pub fn delete(draft: &mut Draft<'_>, path: &str) -> Ask {
    let tokened = draft.random.below(2) == 0;
    let incarnation = draft.oracle.token(path).filter(|_| tokened);
    let write = draft.oracle.register.add(path, Deed::Delete, incarnation, false, Bytes::new());
    Ask::Write { path: path.to_owned(), operation: Operation::Delete { incarnation }, write }
}
