//! Archives of a repository, whole or of one record, and what it consists of.

use crate::car;
use crate::cid::Cid;
use crate::mst::{Blocks, Step, Tree, TreeError, Walk};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A whole repository as an archive, made while it is read: the commit, then every node before what lies below it and every
/// record in order of its key, so that whoever reads it keeps no more than one path either.
///
/// Source: atproto repository specification, "CAR File Serialization".
#[derive(Clone)]
pub struct Export {
    /// The header and the commit, until they were taken.
    beginning: Option<Vec<u8>>,
    walk: Walk,
    /// A record whose block is still to come.
    record: Option<Cid>,
}

impl Export {
    /// Of a commit and its tree, which is sealed.
    #[must_use]
    pub fn new(commit: &Cid, block: &Bytes, tree: &Tree) -> Self {
        Self { beginning: Some(car::archive(commit, [(commit, block)])), walk: Walk::new(tree), record: None }
    }

    /// Adds whole sections to `out` until it has `bytes_min` bytes or the archive ends; whether there may be more.
    /// # Errors
    /// A block that is missing or bad. What was added stays good, and the same call can be tried again.
    pub fn fill(&mut self, out: &mut Vec<u8>, bytes_min: usize, blocks: &dyn Blocks) -> Result<bool, TreeError> {
        self.fill_unknown(out, bytes_min, blocks, |_| false)
    }

    /// As [`Self::fill`], for a reader who holds an older state of the repository: without blocks that are `known` to it. Of a node
    /// that is known, so is everything below it.
    /// # Errors
    /// As [`Self::fill`].
    /// Source: lexicon `com.atproto.sync.getRepo`, `since`.
    pub fn fill_unknown(
        &mut self,
        out: &mut Vec<u8>,
        bytes_min: usize,
        blocks: &dyn Blocks,
        known: impl Fn(&Cid) -> bool,
    ) -> Result<bool, TreeError> {
        out.extend(self.beginning.take().unwrap_or_default());
        while out.len() < bytes_min {
            if let Some(cid) = self.record {
                car::put_block(out, &cid, &blocks.block(&cid).ok_or(TreeError::Missing(cid))?);
                self.record = None;
            }
            self.walk.skip(&known);
            match self.walk.next(blocks)? {
                Some(Step::Node(cid, block)) => car::put_block(out, &cid, &block),
                Some(Step::Record(_, cid)) => self.record = Some(cid).filter(|cid| !known(cid)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// An archive that proves to whoever trusts the commit what a key names, or that it names nothing: the commit, the nodes on the
/// way, and the record.
/// # Errors
/// A block that is missing or bad.
/// Source: lexicon `com.atproto.sync.getRecord`.
pub fn record(commit: &Cid, block: &Bytes, tree: &Tree, key: &str, blocks: &dyn Blocks) -> Result<Vec<u8>, TreeError> {
    let proof = tree.prove(key, blocks)?;
    let mut out = car::archive(commit, [(commit, block)]);
    for (cid, block) in &proof.nodes {
        car::put_block(&mut out, cid, block);
    }
    if let Some(cid) = proof.value {
        car::put_block(&mut out, &cid, &blocks.block(&cid).ok_or(TreeError::Missing(cid))?);
    }
    Ok(out)
}

/// Every block that a tree needs, nodes and records, with its bytes: what must be kept.
/// # Errors
/// A block that is missing or bad.
pub fn reachable(tree: &Tree, blocks: &dyn Blocks) -> Result<BTreeMap<Cid, usize>, TreeError> {
    let (mut walk, mut found) = (Walk::new(tree), BTreeMap::new());
    while let Some(step) = walk.next(blocks)? {
        match step {
            Step::Node(cid, block) => found.insert(cid, block.len()),
            Step::Record(_, cid) => {
                let bytes = blocks.block_bytes(&cid).ok_or(TreeError::Missing(cid))?;
                found.insert(cid, bytes)
            }
        };
    }
    Ok(found)
}
