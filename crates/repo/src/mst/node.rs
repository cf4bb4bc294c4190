//! One node, in memory and as a block.

use super::tree::Subtree;
use super::{ENTRIES_MAX, KEY_BYTES_MAX, layer_of};
use crate::data::{DataError, Decoder, Encoder};
use bytes::Bytes;
use std::sync::Arc;
use thiserror::Error;

use crate::cid::Cid;

/// Bytes of an entry's names, types and link, without its key: what room is asked for.
const ENTRY_BYTES: usize = 100;

/// Why a block is no node of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NodeError {
    /// It is no node at all.
    #[error("this is no node: {0}")]
    Data(#[from] DataError),
    /// A key is not text, or too long.
    #[error("a key is no text of at most {KEY_BYTES_MAX} bytes")]
    Key,
    /// A key shares more or less with the one before it than it says.
    #[error("a key's shared prefix is not the longest one")]
    Prefix,
    /// More keys than [`ENTRIES_MAX`].
    #[error("it has {0} keys, more than {ENTRIES_MAX}")]
    Entries(u64),
    /// Keys out of order.
    #[error("its keys are out of order")]
    Order,
    /// A key that belongs to another layer, or a child below the lowest.
    #[error("it stands at the wrong layer")]
    Layer,
    /// Neither a key nor a child, which only the root of an empty tree is.
    #[error("it is empty")]
    Empty,
}

/// A key with what it names, and the subtree of the keys between it and the next one.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub key: Arc<str>,
    pub value: Cid,
    pub right: Option<Subtree>,
}

/// Keys of one layer, in order, with the subtrees between them.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    /// The keys below the first one.
    pub left: Option<Subtree>,
    pub leaves: Vec<Leaf>,
}

impl Node {
    /// The subtree before the leaf `at`, which is behind the last one if there are no more.
    pub fn gap(&self, at: usize) -> Option<&Subtree> {
        match at.checked_sub(1) {
            None => self.left.as_ref(),
            Some(before) => self.leaves[before].right.as_ref(),
        }
    }

    pub fn set_gap(&mut self, at: usize, subtree: Option<Subtree>) {
        match at.checked_sub(1) {
            None => self.left = subtree,
            Some(before) => self.leaves[before].right = subtree,
        }
    }

    /// Where a key stands, or before which leaf it would.
    pub fn search(&self, key: &str) -> Result<usize, usize> {
        self.leaves.binary_search_by(|leaf| leaf.key.as_bytes().cmp(key.as_bytes()))
    }

    /// Its subtrees, in order.
    pub fn children(&self) -> impl Iterator<Item = &Subtree> {
        self.left.iter().chain(self.leaves.iter().filter_map(|leaf| leaf.right.as_ref()))
    }

    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty() && self.left.is_none()
    }

    /// The block, if the name of every child is given by `name`.
    pub fn encode(&self, name: impl Fn(&Subtree) -> Cid) -> Vec<u8> {
        let name = |child: &Option<Subtree>| child.as_ref().map(&name);
        let mut out =
            Encoder::with_capacity(64 + self.leaves.iter().map(|leaf| ENTRY_BYTES + leaf.key.len()).sum::<usize>());
        out.map(2).text("e").list(self.leaves.len());
        let mut before: &[u8] = &[];
        for leaf in &self.leaves {
            let key = leaf.key.as_bytes();
            let shared = shared_bytes(before, key);
            out.map(4).text("k").bytes(&key[shared..]).text("p").integer(shared as i64);
            out.text("t").optional_link(name(&leaf.right).as_ref()).text("v").link(&leaf.value);
            before = key;
        }
        out.text("l").optional_link(name(&self.left).as_ref());
        out.into_vec()
    }

    /// Reads a block, whose children are only named.
    /// # Errors
    /// What is wrong with it by itself.
    pub fn decode(block: Bytes) -> Result<Self, NodeError> {
        let mut data = Decoder::new(block);
        expect_map(&mut data, 2)?;
        data.key("e")?;
        let count = data.list()?;
        if count > ENTRIES_MAX as u64 {
            return Err(NodeError::Entries(count));
        }
        let mut node = Self::default();
        let mut before: Arc<str> = Arc::from("");
        for _ in 0..count {
            let leaf = entry(&mut data, &before, node.leaves.is_empty())?;
            before = Arc::clone(&leaf.key);
            node.leaves.push(leaf);
        }
        data.key("l")?;
        node.left = data.optional_link()?.map(Subtree::stored);
        data.finish()?;
        Ok(node)
    }

    /// Whether the node may stand at a layer, as a part of a tree.
    /// # Errors
    /// `Layer` or `Empty`.
    pub fn check(&self, layer: u32) -> Result<(), NodeError> {
        if self.is_empty() {
            return Err(NodeError::Empty);
        }
        let childless = self.left.is_none() && self.leaves.iter().all(|leaf| leaf.right.is_none());
        let at_layer = self.leaves.iter().all(|leaf| layer_of(&leaf.key) == layer);
        if at_layer && (layer > 0 || childless) { Ok(()) } else { Err(NodeError::Layer) }
    }
}

fn shared_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

fn expect_map(data: &mut Decoder, keys: u64) -> Result<(), DataError> {
    if data.map()? == keys { Ok(()) } else { Err(DataError::Expected("a map of known keys")) }
}

fn entry(data: &mut Decoder, before: &str, first: bool) -> Result<Leaf, NodeError> {
    expect_map(data, 4)?;
    data.key("k")?;
    let rest = data.bytes()?;
    data.key("p")?;
    let shared = data.unsigned()?;
    data.key("t")?;
    let right = data.optional_link()?.map(Subtree::stored);
    data.key("v")?;
    let value = data.link()?;
    let prefix =
        usize::try_from(shared).ok().and_then(|shared| before.as_bytes().get(..shared)).ok_or(NodeError::Prefix)?;
    if prefix.len() + rest.len() > KEY_BYTES_MAX {
        return Err(NodeError::Key);
    }
    let key = [prefix, &rest].concat();
    if shared_bytes(before.as_bytes(), &key) != prefix.len() {
        return Err(NodeError::Prefix);
    }
    if !first && before.as_bytes() >= key.as_slice() {
        return Err(NodeError::Order);
    }
    let key = std::str::from_utf8(&key).map_err(|_| NodeError::Key)?;
    Ok(Leaf { key: Arc::from(key), value, right })
}
