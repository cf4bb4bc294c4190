//! Snapshot: reads the latest one, or one that is not there.

use super::Draft;
use crate::message::Ask;
use highwater_base::{Offset, Random};

/// Reads a snapshot of the stream at `path`.
pub fn snapshot(draft: &mut Draft<'_>, path: &str) -> Ask {
    let latest = draft.oracle.history(path).and_then(|history| history.snapshots.latest());
    let offset = match latest {
        Some(latest) if draft.random.below(8) > 0 => latest.offset,
        _ => Offset(draft.random.below(1_000)),
    };
    let tokened = draft.random.below(2) == 0;
    let incarnation = draft.oracle.token(path).filter(|_| tokened);
    Ask::Snapshot { path: path.to_owned(), incarnation, offset }
}
