//! Publish: a snapshot in one request, sometimes with a digest that is not its own.

use super::Draft;
use crate::message::Ask;
use crate::oracle::register::Deed;
use crate::oracle::snapshots::SNAPSHOT_TYPE;
use highwater_base::{Digest, Incarnation, Offset, Random};
use highwater_node::SnapshotHasher;
use highwater_stream::{Operation, PublishSnapshot, SnapshotHead, SnapshotSource};

/// Publishes a snapshot of the stream at `path`.
pub fn publish(draft: &mut Draft<'_>, path: &str) -> Ask {
    let part = Incarnation::issue(draft.random);
    let incarnation = draft.oracle.token(path);
    let (_, body) = draft.body();
    let offset = draft.covered(path);
    let (digest, honest) = draft.digest(&body);
    let head = SnapshotHead { offset, digest };
    let deed = Deed::Publish { head, honest, parts: Vec::new() };
    let write = draft.oracle.register.add(path, deed, incarnation, false, body.clone());
    let operation = Operation::PublishSnapshot(PublishSnapshot {
        incarnation,
        offset,
        digest,
        digest_matches: honest,
        content_type: SNAPSHOT_TYPE.to_owned(),
        source: SnapshotSource::Body { part, body },
    });
    Ask::Write { path: path.to_owned(), operation, write }
}

impl Draft<'_> {
    /// An offset up to which a snapshot would cover the stream: usually all that was seen, sometimes more than there is.
    pub(super) fn covered(&mut self, path: &str) -> Offset {
        let end = self.oracle.history(path).map_or(0, |history| history.end().0);
        match self.random.below(4) {
            0 => Offset(self.random.below(end + 2)),
            _ => Offset(end),
        }
    }

    /// The digest of a snapshot, or another one; and whether it is its own.
    pub(super) fn digest(&mut self, body: &[u8]) -> (Digest, bool) {
        let mut hasher = SnapshotHasher::new(SNAPSHOT_TYPE);
        hasher.update(body);
        let honest = self.random.below(10) > 0;
        if !honest {
            hasher.update(b"not in it");
        }
        (hasher.finish(), honest)
    }
}
