//! An account's blocks, found by their names.

use crate::error::ReadError;
use crate::index::{Index, Place};
use crate::shared::{Fault, Shared, row_object};
use crate::slot::{Ahead, Slot, lock};
use crate::windows::Windows;
use bytes::Bytes;
use highwater_pds::Account;
use highwater_pds::account::Extent;
use highwater_repo::cid::CID_BYTES;
use highwater_repo::mst::TreeError;
use highwater_repo::{Blocks, Cid, Tid, Tree};
use std::cell::RefCell;

/// Bytes of an object that are looked through at a time.
const SCAN_BYTES: u64 = 4 << 20;

/// The blocks that are stored of an account, and those of turns that are under way.
pub(crate) struct AccountBlocks<'a> {
    shared: &'a Shared,
    slot: &'a Slot,
    ahead: Option<&'a Ahead>,
    windows: Option<&'a RefCell<Windows>>,
    fault: RefCell<Option<ReadError>>,
}

impl<'a> AccountBlocks<'a> {
    /// Those of an account whose object reaches so far at least.
    pub fn open(shared: &'a Shared, slot: &'a Slot, extent: Extent) -> Result<Self, ReadError> {
        catch_up(shared, slot, extent)?;
        Ok(Self { shared, slot, ahead: None, windows: None, fault: RefCell::default() })
    }

    /// Also those of turns that may not be durable yet.
    pub fn with(self, ahead: &'a Ahead) -> Self {
        Self { ahead: Some(ahead), ..self }
    }

    /// Reads through windows, for whoever goes through most of them.
    pub fn through(self, windows: &'a RefCell<Windows>) -> Self {
        Self { windows: Some(windows), ..self }
    }

    /// What a tree's error comes from: the disk, if that failed.
    pub fn explain(&self, error: TreeError) -> ReadError {
        self.fault.borrow_mut().take().unwrap_or(ReadError::Tree(error))
    }

    /// A block, or why not.
    pub fn get(&self, cid: &Cid) -> Result<Bytes, ReadError> {
        match self.block(cid) {
            Some(block) => Ok(block),
            None => Err(self.fault.borrow_mut().take().unwrap_or(ReadError::NoBlock(*cid))),
        }
    }

    fn place(&self, cid: &Cid) -> Option<Place> {
        lock(&self.slot.index).as_ref().and_then(|index| index.get(cid))
    }

    /// As [`Index::known_below`].
    pub fn known_below(&self, rev: Tid) -> Option<u64> {
        lock(&self.slot.index).as_ref().and_then(|index| index.known_below(rev))
    }

    /// Whether a block lies below an offset.
    pub fn lies_below(&self, cid: &Cid, offset: u64) -> bool {
        self.place(cid).is_some_and(|place| place.offset < offset)
    }

    fn fetch(&self, cid: &Cid, place: Place) -> Result<Bytes, Fault> {
        let object = row_object(self.slot.id);
        let range = place.range();
        let section = match self.windows {
            None => self.shared.read(object, range)?,
            Some(windows) => windows.borrow_mut().read(self.shared, object, range)?,
        };
        // A short hash led here.
        let (name, block) = (section.slice(..CID_BYTES), section.slice(CID_BYTES..));
        if name[..] != cid.to_bytes() {
            return Err(Fault::Gone);
        }
        if !cid.names(&block) {
            return Err(Fault::Damaged(format!("the bytes of block {cid} are others")));
        }
        Ok(block)
    }
}

impl Blocks for AccountBlocks<'_> {
    fn block(&self, cid: &Cid) -> Option<Bytes> {
        if let Some(block) = self.ahead.and_then(|ahead| ahead.block(cid)) {
            return Some(block);
        }
        // A block that was written once more moves once.
        for _ in 0..2 {
            match self.place(cid).map(|place| self.fetch(cid, place)) {
                None => break,
                Some(Ok(block)) => return Some(block),
                Some(Err(Fault::Gone)) => {}
                Some(Err(fault)) => {
                    self.fault.borrow_mut().get_or_insert(fault.into());
                    return None;
                }
            }
            let extent = self.shared.state().accounts.get(&self.slot.id).map(|account| account.blocks);
            if let Some(Err(error)) = extent.map(|extent| catch_up(self.shared, self.slot, extent)) {
                self.fault.borrow_mut().get_or_insert(error);
                return None;
            }
        }
        None
    }

    fn block_bytes(&self, cid: &Cid) -> Option<usize> {
        self.place(cid).map(|place| place.length as usize)
    }
}

/// Looks through what the index of an account does not know yet of its object.
fn catch_up(shared: &Shared, slot: &Slot, extent: Extent) -> Result<(), ReadError> {
    let mut index = lock(&slot.index);
    let index = index.get_or_insert_with(|| Index::new(extent.front));
    index.release(extent.front);
    while index.end < extent.end {
        // What it begins with is a section, and what is cut off at its end is read again.
        let want = SCAN_BYTES.min(extent.end - index.end);
        let bytes = shared.read(row_object(slot.id), index.end..index.end + want);
        let bytes = match bytes {
            Ok(bytes) => bytes,
            // It was given up meanwhile: the row says so by now.
            Err(Fault::Gone) => return Ok(()),
            Err(fault) => return Err(fault.into()),
        };
        let whole = whole_sections(&bytes);
        if whole == 0 {
            return Err(ReadError::Damaged(format!("no block lies at {} of account {}", index.end, slot.id.0)));
        }
        index.add(&bytes[..whole]).map_err(|error| ReadError::Damaged(error.to_string()))?;
    }
    Ok(())
}

/// Bytes of the sections that are whole at the beginning of some.
fn whole_sections(bytes: &[u8]) -> usize {
    let sections = highwater_repo::car::Sections::new(bytes);
    sections.map_while(Result::ok).last().map_or(0, |(_, range)| range.end)
}

/// The tree of an account's newest durable commit.
pub(crate) fn tree(shared: &Shared, slot: &Slot, account: &Account) -> Result<Tree, ReadError> {
    let Some(head) = account.head else { return Ok(Tree::new()) };
    if let Some(tree) = lock(&slot.tree).as_ref().filter(|tree| tree.name() == Some(head.data)) {
        return Ok(tree.clone());
    }
    let blocks = AccountBlocks::open(shared, slot, account.blocks)?;
    let tree = Tree::open(head.data, &blocks).map_err(|error| blocks.explain(error))?;
    // Another one may be newer by now; then this one is loaded once more by whoever needs it, which is nobody.
    *lock(&slot.tree) = Some(tree.clone());
    Ok(tree)
}
