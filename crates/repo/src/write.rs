//! From writes to a commit: what the account signs, and what everybody is told of it.

use crate::car;
use crate::cid::{Cid, Codec};
use crate::commit::Commit;
use crate::key::SigningKey;
use crate::mst::{Blocks, ENTRIES_MAX, Tree, TreeError, is_key};
use crate::syntax::Did;
use crate::tid::Tid;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use thiserror::Error;

/// Bytes of a record at the most.
pub const RECORD_BYTES_MAX: usize = 1_000_000;
/// Operations of a commit at the most.
pub const OPERATIONS_MAX: usize = 200;
/// Bytes of a commit's archive of blocks at the most.
pub const COMMIT_BLOCKS_BYTES_MAX: usize = 2_000_000;
/// Bytes of a commit's block at the most: a DID of 2,048 bytes, and about 200 for the rest.
const COMMIT_BLOCK_BYTES_MAX: usize = 2_304;

/// What to do at a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A record that is not there yet, encoded.
    Create(Bytes),
    /// Another record in the place of the one that is there.
    Update(Bytes),
    /// No record.
    Delete,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key: `kind/record-key`.
    pub path: String,
    /// What to do at it.
    pub change: Change,
}

/// What a commit did at a key, as readers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub path: String,
    /// The record that is there now.
    pub cid: Option<Cid>,
    /// The record that was there before.
    pub previous: Option<Cid>,
}

/// Why writes make no commit. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WriteError {
    /// A key that none may be.
    #[error("{0:?} is no key of a record")]
    Key(String),
    /// Two writes at one key: nobody could undo them in any order.
    #[error("two writes at {0}")]
    Twice(String),
    /// A create where a record is.
    #[error("there is a record at {0}")]
    Exists(String),
    /// An update or a delete where none is.
    #[error("there is no record at {0}")]
    Absent(String),
    /// A record beyond [`RECORD_BYTES_MAX`].
    #[error("the record at {path} has {bytes} bytes, more than {RECORD_BYTES_MAX}")]
    RecordTooLarge {
        /// The key.
        path: String,
        /// Its bytes.
        bytes: usize,
    },
    /// More than [`OPERATIONS_MAX`] writes, or none.
    #[error("{0} writes: a commit has 1 to {OPERATIONS_MAX}")]
    Count(usize),
    /// What readers would be sent is beyond [`COMMIT_BLOCKS_BYTES_MAX`].
    #[error("the commit would have {bytes} bytes of blocks, more than {COMMIT_BLOCKS_BYTES_MAX}; write less at once")]
    CommitTooLarge {
        /// Bytes of the archive.
        bytes: usize,
    },
    /// Too many keys that were chosen to stand side by side.
    #[error(
        "more than {ENTRIES_MAX} keys would share one node of the tree, which does not happen by chance; use other record keys"
    )]
    Crowded,
    /// A block that is missing or bad.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Writes that were tried on a tree and found good, before anything is signed.
#[derive(Debug, Clone)]
pub struct Staged {
    /// The tree after them, sealed.
    pub tree: Tree,
    /// What they did, in their order.
    pub operations: Vec<Operation>,
    /// Blocks that are new, nodes and records, each once. A record may be one that another key names already.
    pub made: Vec<(Cid, Bytes)>,
    /// Moreover the nodes that readers need to undo the operations.
    proof: BTreeMap<Cid, Bytes>,
    data: Cid,
}

/// A commit with all that follows from it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The commit.
    pub commit: Commit,
    /// Its block's name.
    pub cid: Cid,
    /// Its block.
    pub block: Bytes,
    /// The archive that readers are sent: the commit first, then new nodes and records, then what undoing needs beyond them.
    pub archive: Bytes,
    /// Bytes of `archive` in which the sections of the commit and of the new blocks stand, and nothing else: whoever keeps
    /// the archive has stored the commit, and finds its blocks with [`car::Sections`].
    pub stored: Range<usize>,
    /// The tree after it.
    pub tree: Tree,
    /// What it did.
    pub operations: Vec<Operation>,
    /// Blocks that are new, each once, without the commit's.
    pub made: Vec<(Cid, Bytes)>,
}

/// Tries writes on a sealed tree. All limits are checked here, before a commit exists.
/// # Errors
/// Why they make no commit.
pub fn stage(tree: &Tree, writes: &[Write], blocks: &dyn Blocks) -> Result<Staged, WriteError> {
    if !(1..=OPERATIONS_MAX).contains(&writes.len()) {
        return Err(WriteError::Count(writes.len()));
    }
    let (mut tree, mut operations, mut made) = (tree.clone(), Vec::with_capacity(writes.len()), Vec::new());
    let mut seen = BTreeSet::new();
    for write in writes {
        if !seen.insert(write.path.as_str()) {
            return Err(WriteError::Twice(write.path.clone()));
        }
        operations.push(apply(&mut tree, write, blocks, &mut made)?);
    }
    if tree.is_crowded() {
        return Err(WriteError::Crowded);
    }
    let (data, nodes) = tree.seal();
    // New nodes are part of what undoing needs, and have their blocks already.
    let mut proof: BTreeMap<Cid, Bytes> = nodes.iter().cloned().collect();
    for operation in &operations {
        tree.cover(&operation.path, blocks, &mut proof)?;
    }
    made.extend(nodes);
    // A record that two keys name is sent once.
    let mut seen = BTreeSet::new();
    made.retain(|(cid, _)| seen.insert(*cid));
    proof.retain(|cid, _| !seen.contains(cid));
    let staged = Staged { tree, operations, made, proof, data };
    let bytes = staged.archive_bytes_max();
    if bytes > COMMIT_BLOCKS_BYTES_MAX { Err(WriteError::CommitTooLarge { bytes }) } else { Ok(staged) }
}

/// Does one write.
fn apply(
    tree: &mut Tree,
    write: &Write,
    blocks: &dyn Blocks,
    made: &mut Vec<(Cid, Bytes)>,
) -> Result<Operation, WriteError> {
    let path = &write.path;
    if !is_key(path) {
        return Err(WriteError::Key(path.clone()));
    }
    let record = match &write.change {
        Change::Create(record) | Change::Update(record) => Some(record),
        Change::Delete => None,
    };
    if let Some(bytes) = record.map(Bytes::len).filter(|bytes| *bytes > RECORD_BYTES_MAX) {
        return Err(WriteError::RecordTooLarge { path: path.clone(), bytes });
    }
    let cid = record.map(|record| Cid::of(Codec::DagCbor, record));
    let previous = match cid {
        Some(cid) => tree.put(path, cid, blocks)?,
        None => tree.remove(path, blocks)?,
    };
    match (&write.change, previous) {
        (Change::Create(_), Some(_)) => return Err(WriteError::Exists(path.clone())),
        (Change::Update(_) | Change::Delete, None) => return Err(WriteError::Absent(path.clone())),
        _ => {}
    }
    made.extend(cid.zip(record.cloned()));
    Ok(Operation { path: path.clone(), cid, previous })
}

impl Staged {
    /// The root of the tree after the writes.
    #[must_use]
    pub fn data(&self) -> Cid {
        self.data
    }

    fn archive_bytes_max(&self) -> usize {
        let blocks = self.made.iter().map(|(_, block)| block).chain(self.proof.values());
        let sections: usize = blocks.map(|block| car::section_bytes(block.len())).sum();
        car::header(&self.data).len() + car::section_bytes(COMMIT_BLOCK_BYTES_MAX) + sections
    }

    /// Signs the commit.
    #[must_use]
    pub fn commit(self, did: Did, rev: Tid, key: &SigningKey) -> Prepared {
        let Self { tree, operations, made, proof, data } = self;
        let commit = Commit::sign(did, rev, data, key);
        let (cid, block) = commit.block();
        let mut archive = car::header(&cid);
        let start = archive.len();
        car::put_block(&mut archive, &cid, &block);
        for (cid, block) in &made {
            car::put_block(&mut archive, cid, block);
        }
        let stored = start..archive.len();
        for (cid, block) in &proof {
            car::put_block(&mut archive, cid, block);
        }
        Prepared { commit, cid, block, archive: archive.into(), stored, tree, operations, made }
    }
}
