//! Read: any range, as a replica has it or as the leader confirms it, now or as soon as something comes.

use super::Draft;
use crate::message::Ask;
use highwater_base::{Offset, Random};
use highwater_node::ReadRequest;
use highwater_stream::ReadFrom;

/// Reads from the stream at `path`.
pub fn read(draft: &mut Draft<'_>, path: &str) -> Ask {
    let end = draft.oracle.history(path).map_or(0, |history| history.end().0);
    let from = match draft.random.below(4) {
        0 => ReadFrom::Start,
        1 => ReadFrom::Now,
        // Past the end too.
        _ => ReadFrom::At(Offset(draft.random.below(end + 2))),
    };
    let waits = draft.random.below(4) == 0;
    let tokened = draft.random.below(2) == 0;
    Ask::Read(ReadRequest {
        path: path.to_owned(),
        incarnation: draft.oracle.token(path).filter(|_| tokened),
        from,
        length_max: 1 + draft.random.below(20_000),
        leader: !waits && draft.random.below(2) == 0,
        wait_ms: waits.then(|| draft.random.below(3_000)),
    })
}
