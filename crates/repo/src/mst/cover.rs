//! Which nodes somebody needs who knows nothing else of the tree and undoes a change of it.

use super::tree::{Subtree, Tree};
use super::{Blocks, TreeError};
use crate::cid::Cid;
use bytes::Bytes;
use std::collections::BTreeMap;

impl Tree {
    /// Adds to `proof` the nodes on the way to a key and to its neighbours on both sides, of a tree that is sealed.
    ///
    /// To take a key out again, its neighbours' subtrees are joined along their facing sides; to put one back, what lies
    /// on its way is split. Both meet these nodes and no others.
    /// # Errors
    /// A block that is missing or bad.
    pub fn cover(&self, key: &str, blocks: &dyn Blocks, proof: &mut BTreeMap<Cid, Bytes>) -> Result<(), TreeError> {
        cover(&self.root, self.layer, key, blocks, proof)
    }
}

fn cover(
    subtree: &Subtree,
    layer: u32,
    key: &str,
    blocks: &dyn Blocks,
    proof: &mut BTreeMap<Cid, Bytes>,
) -> Result<(), TreeError> {
    let node = subtree.load(layer, blocks)?;
    proof.entry(subtree.name()).or_insert_with(|| node.encode(Subtree::name).into());
    let (before, behind) = match node.search(key) {
        Ok(at) => (node.gap(at), node.gap(at + 1)),
        Err(at) => (node.gap(at), None),
    };
    for child in before.into_iter().chain(behind) {
        cover(child, layer - 1, key, blocks, proof)?;
    }
    Ok(())
}
