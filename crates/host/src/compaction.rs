//! Writing an account's blocks together once more, so that what no record needs any more can go.
//!
//! It is a number of turns like any others: copies of what the newest commit needs, in the order in which it is exported, and with
//! the last of them the word that what lay there before is not needed. Whatever is written meanwhile lies behind that point.

use crate::blocks::{AccountBlocks, tree};
use crate::error::{ReadError, Unsettled};
use crate::pending::pending;
use crate::queue::Turn;
use crate::shared::Shared;
use crate::slot::{Slot, lock};
use crate::worker::is_crowded;
use bytes::Bytes;
use highwater_pds::{Account, AccountId, Draft, Part};
use highwater_repo::mst::{Step, Walk};
use highwater_repo::{Blocks as _, Cid, car};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of one turn of it: no write waits long behind it.
const PIECE_BYTES: usize = 1 << 20;

/// Why it came to nothing. What was copied lies there twice until the next attempt.
enum Given {
    Read(ReadError),
    Unsettled(Unsettled),
    /// The account is not what it was when this began.
    Changed,
}

impl From<ReadError> for Given {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Does it, if it is still worth it and nobody reads what would go.
pub(crate) fn compact(shared: &Arc<Shared>, id: AccountId, may_wait: bool) {
    let slot = shared.slots.get(id);
    if slot.compacting.swap(true, Ordering::AcqRel) {
        return;
    }
    // An export that comes later reads a commit whose blocks are copied, or lie behind.
    let row = shared.state().accounts.get(&id).cloned();
    if let Some(row) = row.filter(|row| is_crowded(&row.blocks) && slot.exports.load(Ordering::Acquire) == 0) {
        match copy(shared, &slot, &row, may_wait) {
            Ok(()) | Err(Given::Changed) => {}
            Err(Given::Unsettled(why)) => {
                tracing::info!(event = "compaction_put_off", account = id.0, %why, "blocks stay where they are");
            }
            Err(Given::Read(error)) => {
                tracing::error!(event = "compaction_failed", account = id.0, %error, "blocks stay where they are");
            }
        }
    }
    slot.compacting.store(false, Ordering::Release);
}

fn copy(shared: &Arc<Shared>, slot: &Arc<Slot>, row: &Account, may_wait: bool) -> Result<(), Given> {
    let Some(head) = row.head.filter(|_| !row.standing.erased) else { return Ok(()) };
    let front = row.blocks.end;
    let tree = tree(shared, slot, row)?;
    let windows = RefCell::default();
    let blocks = AccountBlocks::open(shared, slot, row.blocks)?.through(&windows);
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let put = |piece: &mut Vec<u8>, cid: &Cid, block: &Bytes| car::put_block(piece, cid, block);
    put(&mut piece, &head.commit, &blocks.get(&head.commit)?);
    let mut walk = Walk::new(&tree);
    while let Some(step) = walk.next(&blocks).map_err(|error| blocks.explain(error))? {
        match step {
            Step::Node(cid, block) => put(&mut piece, &cid, &block),
            Step::Record(_, cid) => match blocks.block(&cid) {
                Some(block) => put(&mut piece, &cid, &block),
                None => return Err(blocks.explain(highwater_repo::mst::TreeError::Missing(cid)).into()),
            },
        }
        if piece.len() >= PIECE_BYTES {
            hand_over(shared, slot, row, std::mem::take(&mut piece), None, may_wait)?;
        }
    }
    hand_over(shared, slot, row, piece, Some(front), may_wait)
}

fn hand_over(
    shared: &Arc<Shared>,
    slot: &Arc<Slot>,
    row: &Account,
    sections: Vec<u8>,
    front: Option<u64>,
    may_wait: bool,
) -> Result<(), Given> {
    let (answer, waiting) = pending(|| Err(Unsettled::Stopped("the writer ended".into())));
    {
        // Under the account's turn: an erasure stands in the log before it, and then this is not done, or behind it.
        let _turn = lock(&slot.working);
        let now = crate::turn::row_now(shared, slot, &_turn);
        if !now.is_some_and(|now| !now.standing.erased && now.blocks.front == row.blocks.front) {
            return Err(Given::Changed);
        }
        let part = Part::Copied { account: row.id, sections: sections.into(), front };
        let draft = Draft::new(shared.now()).part(part);
        let done = Box::new(move |result| answer.send(result));
        let turn = Turn { slot: None, draft, fallback: None, tree: None, done };
        shared.queue.push(turn).map_err(Given::Unsettled)?;
    }
    if may_wait { waiting.wait().map_err(Given::Unsettled) } else { Ok(()) }
}
