//! The Merkle search tree: a repository's records by their keys, under one name.
//!
//! A key stands at the layer that its hash says, so that the same records make the same tree in whatever order they came. A
//! [`Tree`] shares what it did not change with the tree that it was made from, and loads nodes as it meets them.
//!
//! Source: atproto repository specification, "MST Structure".

mod cover;
mod edit;
mod invert;
mod node;
mod records;
mod tree;
mod walk;

pub use invert::{InvertError, invert};
pub use node::NodeError;
pub use records::{Order, Records};
pub use tree::{Proof, Tree};
pub use walk::{Step, Walk};

use crate::cid::Cid;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use thiserror::Error;

/// Bytes of a key at the most: a kind of record, a slash, and a record key.
pub const KEY_BYTES_MAX: usize = 1024;

/// Keys of a node at the most.
///
/// Of the keys that happen to be, three quarters go into the node at hand and one begins the next: a node of a hundred is
/// rarer than one in 10^12. A longer one was made on purpose, by choosing keys that all stand at one layer, and costs every
/// later write and every reader its whole length. The depth needs no such bound: no key stands above layer 128.
pub const ENTRIES_MAX: usize = 1024;

/// Where blocks are found.
pub trait Blocks {
    /// The bytes of a block. `None` if it is not here, which may mean that it must be fetched first.
    fn block(&self, cid: &Cid) -> Option<Bytes>;

    /// How many bytes a block has. `None` as above.
    fn block_bytes(&self, cid: &Cid) -> Option<usize> {
        self.block(cid).map(|block| block.len())
    }
}

impl Blocks for BTreeMap<Cid, Bytes> {
    fn block(&self, cid: &Cid) -> Option<Bytes> {
        self.get(cid).cloned()
    }
}

/// Why a tree could not be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A node is not among the blocks.
    #[error("block {0} is missing")]
    Missing(Cid),
    /// A block is no node that may stand where it is named.
    #[error("block {0} is no node of this tree: {1}")]
    Node(Cid, NodeError),
}

/// The layer of a key: how many pairs of zero bits its hash begins with. Layer 0 is at the bottom.
#[must_use]
pub fn layer_of(key: &str) -> u32 {
    let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    let whole = digest.iter().take_while(|byte| **byte == 0).count();
    let rest = digest.get(whole).map_or(0, |byte| byte.leading_zeros() / 2);
    whole as u32 * 4 + rest
}

/// Whether text may be a key of the tree: `kind/record-key`.
#[must_use]
pub fn is_key(text: &str) -> bool {
    text.len() <= KEY_BYTES_MAX
        && text
            .split_once('/')
            .is_some_and(|(kind, key)| crate::syntax::is_nsid(kind) && crate::syntax::is_record_key(key))
}

#[cfg(test)]
mod tests;
