//! Retain: gives the front of a stream up, as far as a snapshot covers it, or further than that.

use super::Draft;
use crate::message::Ask;
use crate::oracle::register::Deed;
use bytes::Bytes;
use highwater_base::{Offset, Random};
use highwater_stream::Operation;

/// Gives up what the stream at `path` has below an offset.
pub fn retain(draft: &mut Draft<'_>, path: &str) -> Ask {
    // Only in a history that was seen as far as this, so that every byte was seen before it is given up.
    let incarnation = draft.oracle.token(path);
    let history = draft.oracle.history(path);
    let covered = history.and_then(|history| history.snapshots.latest()).map_or(0, |latest| latest.offset.0);
    let end = history.map_or(0, |history| history.end().0);
    let most = if draft.random.below(8) == 0 { end } else { covered };
    let offset = if draft.random.below(2) == 0 { Offset(most) } else { Offset(draft.random.below(most + 1)) };
    let write = draft.oracle.register.add(path, Deed::Retain(offset), incarnation, false, Bytes::new());
    Ask::Write { path: path.to_owned(), operation: Operation::Retain { incarnation, offset }, write }
}
