//! What is in memory of an account beside its row: the turn that is being built, its tree, and where its blocks lie.

use crate::index::Index;
use bytes::Bytes;
use highwater_pds::{Account, AccountId, blob};
use highwater_repo::key::SigningKey;
use highwater_repo::{Cid, Tree};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Layers of a tree that stay in memory, from the root down: about 85 nodes of four keys, or 50 KB of the 100 that an account may
/// take.
pub(crate) const TREE_LAYERS: u32 = 4;

/// What of an account is ahead of the log: as its turns left it that were handed over and are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Working {
    /// The generation that `ahead` belongs to.
    pub generation: u64,
    pub ahead: Option<Ahead>,
}

#[derive(Debug)]
pub(crate) struct Ahead {
    pub row: Account,
    /// None until somebody needs it.
    pub tree: Option<Tree>,
    /// Blocks of turns that may not be durable yet, each with the number of its turn.
    pub blocks: VecDeque<(u64, BTreeMap<Cid, Bytes>)>,
    /// Changes of blobs of the same turns.
    pub blobs: VecDeque<(u64, Vec<blob::Change>)>,
}

impl Ahead {
    /// A block of a turn that may not be durable yet.
    pub fn block(&self, cid: &Cid) -> Option<Bytes> {
        self.blocks.iter().rev().find_map(|(_, blocks)| blocks.get(cid).cloned())
    }

    /// Bytes of the blocks of turns that may not be durable yet.
    fn bytes(&self) -> u64 {
        let blocks = self.blocks.iter().flat_map(|(_, blocks)| blocks.values());
        blocks.map(|block| block.len() as u64).sum()
    }

    /// Forgets what is durable by now.
    pub fn settle(&mut self, settled: u64) {
        while self.blocks.front().is_some_and(|(turn, _)| *turn <= settled) {
            self.blocks.pop_front();
        }
        while self.blobs.front().is_some_and(|(turn, _)| *turn <= settled) {
            self.blobs.pop_front();
        }
    }
}

/// An account in memory.
#[derive(Debug)]
pub(crate) struct Slot {
    pub id: AccountId,
    /// Held while a turn is built, until it is handed over.
    pub working: Mutex<Working>,
    /// Turns handed over so far; changed under `working`.
    pub queued: AtomicU64,
    /// Turns that came to their end so far: what they made is durable, or they were refused.
    pub settled: AtomicU64,
    /// Turns of an earlier generation were built on one that was refused.
    pub generation: AtomicU64,
    /// The same, as the writer of the log has it: ahead of `generation` until what came before is applied.
    pub refused_below: AtomicU64,
    /// The tree of the newest durable commit, if it is in memory.
    pub tree: Mutex<Option<Tree>>,
    pub index: Mutex<Option<Index>>,
    pub key: OnceLock<SigningKey>,
    /// Exports that read blocks which a newer commit may not need.
    pub exports: AtomicUsize,
    /// Its blocks are being written together.
    pub compacting: AtomicBool,
    /// That came to nothing, and is tried again when its blocks reach so far, in bytes of their object.
    pub compacting_beyond: AtomicU64,
    /// Turns that take something away from it and were built in vain once.
    pub withheld: AtomicUsize,
    /// When it was used last, in uses of any account.
    pub used: AtomicU64,
}

/// A lock whose holder panicked protects what is loaded anew or judged anew each time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn new(id: AccountId) -> Self {
        Self {
            id,
            working: Mutex::default(),
            queued: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            refused_below: AtomicU64::new(0),
            tree: Mutex::default(),
            index: Mutex::default(),
            key: OnceLock::new(),
            exports: AtomicUsize::new(0),
            compacting: AtomicBool::new(false),
            compacting_beyond: AtomicU64::new(0),
            withheld: AtomicUsize::new(0),
            used: AtomicU64::new(0),
        }
    }

    /// Whether something is on its way that takes something away from the account, and was built in vain once.
    pub fn is_withheld(&self) -> bool {
        self.withheld.load(Ordering::Acquire) > 0
    }

    /// Whether everything that was handed over came to its end.
    pub fn is_settled(&self) -> bool {
        // In this order: whoever holds `working` knows that nothing is handed over meanwhile.
        self.settled.load(Ordering::Acquire) == self.queued.load(Ordering::Acquire)
    }
}

/// While it lives, the account has no turns but those that take something away from it.
#[derive(Debug)]
pub(crate) struct Withheld(Arc<Slot>);

impl Withheld {
    pub fn of(slot: &Arc<Slot>) -> Self {
        slot.withheld.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(slot))
    }
}

impl Drop for Withheld {
    fn drop(&mut self) {
        self.0.withheld.fetch_sub(1, Ordering::AcqRel);
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Mutex<BTreeMap<AccountId, Arc<Slot>>>,
    uses: AtomicU64,
}

/// Bytes that a tree in memory takes at the most, about: what [`TREE_LAYERS`] amount to.
const TREE_BYTES: u64 = 50_000;

impl Slots {
    pub fn get(&self, id: AccountId) -> Arc<Slot> {
        let mut slots = lock(&self.slots);
        let slot = slots.entry(id).or_insert_with(|| Arc::new(Slot::new(id)));
        slot.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Arc::clone(slot)
    }

    /// Takes in blocks that were just written, if the account's index is in memory, reaches up to them, and nobody is busy with it;
    /// otherwise whoever needs them looks through the object.
    pub fn note_blocks(&self, id: AccountId, offset: u64, sections: &[u8]) {
        let slot = lock(&self.slots).get(&id).cloned();
        let Some(mut index) = slot.as_ref().and_then(|slot| slot.index.try_lock().ok()) else { return };
        if let Some(known) = index.as_mut().filter(|index| index.end == offset)
            && known.add(sections).is_err()
        {
            *index = None;
        }
    }

    /// Forgets what turns made that are durable by now, then lets the memory of accounts go that were not used for longest, until
    /// the others take no more than `bytes_max`. Returns the bytes that they take.
    pub fn trim(&self, bytes_max: u64) -> u64 {
        let mut slots: Vec<Arc<Slot>> = lock(&self.slots).values().cloned().collect();
        slots.sort_unstable_by_key(|slot| std::cmp::Reverse(slot.used.load(Ordering::Relaxed)));
        let mut total = 0;
        for slot in slots {
            // What is in use right now is in memory for a reason.
            let (Ok(mut working), Ok(mut index), Ok(mut tree)) =
                (slot.working.try_lock(), slot.index.try_lock(), slot.tree.try_lock())
            else {
                continue;
            };
            let settled = slot.settled.load(Ordering::Acquire);
            let handed_over = working.ahead.as_mut().map_or(0, |ahead| {
                ahead.settle(settled);
                ahead.bytes()
            });
            let trees = u64::from(tree.is_some()) + u64::from(working.ahead.is_some());
            let bytes = index.as_ref().map_or(0, Index::bytes) + trees * TREE_BYTES + handed_over;
            if total + bytes > bytes_max && slot.is_settled() && slot.exports.load(Ordering::Relaxed) == 0 {
                (*index, *tree, working.ahead) = (None, None, None);
            } else {
                total += bytes;
            }
        }
        total
    }
}
