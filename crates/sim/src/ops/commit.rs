//! Commit: a snapshot of parts that were staged before, some of which may be gone.

use super::Draft;
use crate::message::Ask;
use crate::oracle::register::Deed;
use crate::oracle::snapshots::SNAPSHOT_TYPE;
use highwater_base::{Incarnation, Random};
use highwater_stream::{PublishSnapshot, SnapshotHead, SnapshotSource};

/// Publishes a snapshot of the stream at `path` of some of its parts, in any order.
pub fn commit(draft: &mut Draft<'_>, path: &str) -> Ask {
    let incarnation = draft.oracle.token(path);
    let history = draft.oracle.history(path);
    let known = history.map(|history| history.snapshots.parts().clone()).unwrap_or_default();
    let mut parts = Vec::new();
    let mut body = Vec::new();
    for (number, part) in known {
        if draft.random.below(4) > 0
            && let Some(id) = Incarnation::new(number)
        {
            let at = draft.random.below(parts.len() as u64 + 1) as usize;
            parts.insert(at, (id, part.bytes));
        }
    }
    if draft.random.below(12) == 0 {
        // One that was never staged.
        parts.push((Incarnation::issue(draft.random), bytes::Bytes::new()));
    }
    parts.iter().for_each(|(_, bytes)| body.extend_from_slice(bytes));
    let parts: Vec<Incarnation> = parts.into_iter().map(|(part, _)| part).collect();
    let offset = draft.covered(path);
    let (digest, honest) = draft.digest(&body);
    let head = SnapshotHead { offset, digest };
    let deed = Deed::Publish { head, honest, parts: parts.clone() };
    let write = draft.oracle.register.add(path, deed, incarnation, false, body.into());
    let publish = PublishSnapshot {
        incarnation,
        offset,
        digest,
        digest_matches: false,
        content_type: SNAPSHOT_TYPE.to_owned(),
        source: SnapshotSource::Parts(parts.clone()),
    };
    Ask::Commit { path: path.to_owned(), publish, parts, write }
}
