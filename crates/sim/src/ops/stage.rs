//! Stage: keeps a part of a snapshot to come.

use super::Draft;
use crate::message::Ask;
use crate::oracle::register::Deed;
use highwater_base::Incarnation;
use highwater_stream::Operation;

/// Stages a part for the stream at `path`.
pub fn stage(draft: &mut Draft<'_>, path: &str) -> Ask {
    let part = Incarnation::issue(draft.random);
    let incarnation = draft.oracle.token(path);
    let (_, body) = draft.body();
    let write = draft.oracle.register.add(path, Deed::Stage(part), incarnation, false, body.clone());
    Ask::Write { path: path.to_owned(), operation: Operation::StagePart { incarnation, part, body }, write }
}
