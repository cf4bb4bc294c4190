//! Writing an account's blocks together once more, so that what no record needs any more can go.
//!
//! It is a number of turns like any others: copies of what the newest commit needs, in the order in which it is exported, and with
//! the last of them the word that what lay there before is not needed. Whatever is written meanwhile lies behind that point.

use crate::blocks::{AccountBlocks, tree};
use crate::error::{ReadError, Unsettled};
use crate::pending::{Pending, pending};
use crate::queue::Turn;
use crate::shared::Shared;
use crate::slot::{Slot, lock};
use crate::turn::row_now;
use crate::windows::Windows;
use crate::worker::is_crowded;
use highwater_pds::{Account, AccountId, Draft, Part};
use highwater_repo::mst::{Step, TreeError, Walk};
use highwater_repo::{Blocks as _, car};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of one turn of it: no write waits long behind it.
const PIECE_BYTES: usize = 1 << 20;

/// Between two looks at whether the log is short enough again.
const PAUSE: Duration = Duration::from_millis(10);

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

/// Held while it goes on, until its last turn came to its end.
struct Claim(Arc<Slot>);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.compacting.store(false, Ordering::Release);
    }
}

/// Does it, if it is still worth it and nobody reads what would go.
pub(crate) fn compact(shared: &Arc<Shared>, id: AccountId, may_wait: bool) {
    let slot = shared.slots.get(id);
    if slot.compacting.swap(true, Ordering::AcqRel) {
        return;
    }
    let claim = Claim(Arc::clone(&slot));
    // An export that comes later reads a commit whose blocks are copied, or lie behind.
    let row = shared.state().accounts.get(&id).cloned();
    let due = |row: &Account| {
        is_crowded(&row.blocks)
            && row.blocks.end >= slot.compacting_beyond.load(Ordering::Relaxed)
            && slot.exports.load(Ordering::Acquire) == 0
    };
    let Some(row) = row.filter(due) else { return };
    // What is copied in vain makes the next attempt costlier: that waits until as much was written again.
    let beyond = row.blocks.end + (row.blocks.end - row.blocks.front);
    slot.compacting_beyond.store(beyond, Ordering::Relaxed);
    match copy(shared, &slot, &row, (claim, may_wait)) {
        Ok(()) => lock(&shared.figures).compactions += 1,
        Err(Given::Changed) => {}
        Err(Given::Unsettled(why)) => {
            tracing::info!(event = "compaction_put_off", account = id.0, %why, "blocks stay where they are");
        }
        Err(Given::Read(error)) => {
            tracing::error!(event = "compaction_failed", account = id.0, %error, "blocks stay where they are");
        }
    }
}

type Waiting = Pending<Result<(), Unsettled>>;

/// One such attempt.
struct Copying<'a> {
    shared: &'a Arc<Shared>,
    slot: &'a Arc<Slot>,
    row: &'a Account,
    /// Without one of its turns the last one would give up blocks that were not copied.
    chain: Arc<AtomicBool>,
}

fn copy(shared: &Arc<Shared>, slot: &Arc<Slot>, row: &Account, (claim, may_wait): (Claim, bool)) -> Result<(), Given> {
    let Some(head) = row.head.filter(|_| !row.standing.erased) else { return Ok(()) };
    let copying = Copying { shared, slot, row, chain: Arc::default() };
    let front = row.blocks.end;
    let tree = tree(shared, slot, row)?;
    let windows = RefCell::new(Windows::new(row.blocks.front..row.blocks.end));
    let blocks = AccountBlocks::open(shared, slot, row.blocks)?.through(&windows);
    let piece_bytes = PIECE_BYTES.min(shared.options.log.segment_bytes as usize / 4);
    let (mut piece, mut seen) = (Vec::with_capacity(piece_bytes), BTreeSet::new());
    car::put_block(&mut piece, &head.commit, &blocks.get(&head.commit)?);
    let mut walk = Walk::new(&tree);
    while let Some(step) = walk.next(&blocks).map_err(|error| blocks.explain(error))? {
        match step {
            Step::Node(cid, block) => car::put_block(&mut piece, &cid, &block),
            // Several keys may name one record.
            Step::Record(_, cid) if seen.insert(cid) => match blocks.block(&cid) {
                Some(block) => car::put_block(&mut piece, &cid, &block),
                None => return Err(blocks.explain(TreeError::Missing(cid)).into()),
            },
            Step::Record(..) => {}
        }
        if piece.len() >= piece_bytes {
            let waiting = copying.hand_over(std::mem::take(&mut piece), None)?;
            if may_wait {
                waiting.wait().map_err(Given::Unsettled)?;
                wait_for_log(shared);
            }
        }
    }
    let waiting = copying.hand_over(piece, Some((front, claim)))?;
    if may_wait { waiting.wait().map_err(Given::Unsettled) } else { Ok(()) }
}

/// Waits until a checkpoint has made the log short: what it takes up is not left for writes.
fn wait_for_log(shared: &Shared) {
    while shared.log_long.load(Ordering::Acquire) && shared.queue.ended().is_none() {
        std::thread::sleep(PAUSE);
    }
}

impl Copying<'_> {
    fn hand_over(&self, sections: Vec<u8>, last: Option<(u64, Claim)>) -> Result<Waiting, Given> {
        let Self { shared, slot, row, .. } = self;
        let (answer, waiting) = pending(|| Err(Unsettled::Stopped("the writer ended".into())));
        {
            // Under the account's turn: an erasure stands in the log before it, and then this is not done, or behind it.
            let working = lock(&slot.working);
            let now = row_now(shared, slot, &working);
            if !now.is_some_and(|now| !now.standing.erased && now.blocks.front == row.blocks.front) {
                return Err(Given::Changed);
            }
            let (front, claim) = last.map_or((None, None), |(front, claim)| (Some(front), Some(claim)));
            let part = Part::Copied { account: row.id, sections: sections.into(), front };
            let draft = Draft::new(shared.now()).part(part);
            let slot = Arc::clone(slot);
            let done = Box::new(move |result: Result<(), Unsettled>| {
                if claim.is_some() && result.is_ok() {
                    slot.compacting_beyond.store(0, Ordering::Relaxed);
                }
                drop(claim);
                answer.send(result);
            });
            let chain = Some(Arc::clone(&self.chain));
            let turn = Turn { slot: None, chain, draft, fallback: None, urgent: false, tree: None, done };
            shared.queue.push(turn).map_err(Given::Unsettled)?;
        }
        Ok(waiting)
    }
}
