//! Trees and their parts.

use super::node::{Leaf, Node};
use super::{Blocks, ENTRIES_MAX, NodeError, TreeError, layer_of};
use crate::cid::{Cid, Codec};
use bytes::Bytes;
use std::sync::Arc;

/// A part of a tree: by its name, in memory, or both. One that was edited has no name until it is sealed.
#[derive(Debug, Clone)]
pub(super) struct Subtree {
    name: Option<Cid>,
    node: Option<Arc<Node>>,
}

impl Subtree {
    /// One that is only named.
    pub fn stored(name: Cid) -> Self {
        Self { name: Some(name), node: None }
    }

    /// One that was just made; nothing for an empty node.
    pub fn edited(node: Node) -> Option<Self> {
        (!node.is_empty()).then(|| Self { name: None, node: Some(Arc::new(node)) })
    }

    /// Its node at a layer.
    pub fn load(&self, layer: u32, blocks: &dyn Blocks) -> Result<Arc<Node>, TreeError> {
        match (&self.node, self.name) {
            (Some(node), _) => Ok(Arc::clone(node)),
            (None, Some(name)) => Ok(fetch(name, layer, blocks)?.0),
            (None, None) => unreachable!("a subtree is named or in memory"),
        }
    }

    /// Its node at a layer, with its block; of a subtree that is sealed.
    pub fn load_block(&self, layer: u32, blocks: &dyn Blocks) -> Result<(Arc<Node>, Bytes), TreeError> {
        match &self.node {
            Some(node) => Ok((Arc::clone(node), node.encode(Self::name).into())),
            None => fetch(self.name(), layer, blocks),
        }
    }

    /// Its name, which it has once it is sealed.
    pub fn name(&self) -> Cid {
        self.name.expect("children are sealed before their parent")
    }

    fn is_crowded(&self) -> bool {
        let Some(node) = self.node.as_ref().filter(|_| self.name.is_none()) else { return false };
        node.leaves.len() > ENTRIES_MAX || node.children().any(Self::is_crowded)
    }

    /// Names what was edited, children first, and hands over the blocks.
    fn seal(&mut self, made: &mut Vec<(Cid, Bytes)>) -> Cid {
        if let Some(name) = self.name {
            return name;
        }
        let node = Arc::make_mut(self.node.as_mut().expect("what has no name is in memory"));
        for child in node.left.iter_mut().chain(node.leaves.iter_mut().filter_map(|leaf| leaf.right.as_mut())) {
            child.seal(made);
        }
        let block = Bytes::from(node.encode(Subtree::name));
        let name = Cid::of(Codec::DagCbor, &block);
        made.push((name, block));
        self.name = Some(name);
        name
    }

    /// Whether there are nodes below so many layers that can be loaded again.
    fn holds_below(&self, layers: u32) -> bool {
        let Some(node) = self.node.as_ref().filter(|node| self.name.is_some() && !node.is_empty()) else {
            return false;
        };
        layers == 0 || node.children().any(|child| child.holds_below(layers - 1))
    }

    /// Gives them up. What holds none is left alone, because it may be shared.
    fn forget_below(&mut self, layers: u32) {
        if !self.holds_below(layers) {
            return;
        }
        if layers == 0 {
            self.node = None;
        } else if let Some(node) = &mut self.node {
            let node = Arc::make_mut(node);
            for child in node.left.iter_mut().chain(node.leaves.iter_mut().filter_map(|leaf| leaf.right.as_mut())) {
                child.forget_below(layers - 1);
            }
        }
    }
}

/// A node from its block, wherever it may stand.
fn fetch_anywhere(name: Cid, blocks: &dyn Blocks) -> Result<(Node, Bytes), TreeError> {
    if name.codec() != Codec::DagCbor {
        return Err(TreeError::Missing(name));
    }
    let block = blocks.block(&name).ok_or(TreeError::Missing(name))?;
    let node = Node::decode(block.clone()).map_err(|error| TreeError::Node(name, error))?;
    Ok((node, block))
}

/// A node from its block, which must be one that may stand at a layer.
fn fetch(name: Cid, layer: u32, blocks: &dyn Blocks) -> Result<(Arc<Node>, Bytes), TreeError> {
    let (node, block) = fetch_anywhere(name, blocks)?;
    node.check(layer).map_err(|error| TreeError::Node(name, error))?;
    Ok((Arc::new(node), block))
}

/// Whether a key is in a tree, and how somebody who knows only the root's name can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// What the key names.
    pub value: Option<Cid>,
    /// Nodes on the way to it, or to where it would be, the root first.
    pub nodes: Vec<(Cid, Bytes)>,
}

/// Records by their keys. Cloning is cheap, and clones share what neither changed.
///
/// An operation that meets a missing or bad block changes nothing: fetch the block and try again.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(super) root: Subtree,
    /// Of the root.
    pub(super) layer: u32,
}

impl Default for Tree {
    fn default() -> Self {
        Self { root: Subtree { name: None, node: Some(Arc::default()) }, layer: 0 }
    }
}

impl Tree {
    /// Without records.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tree whose root has this name.
    /// # Errors
    /// If the root is missing, or is no root: one without keys has a child above its place.
    pub fn open(root: Cid, blocks: &dyn Blocks) -> Result<Self, TreeError> {
        let (node, _) = fetch_anywhere(root, blocks)?;
        let layer = node.leaves.first().map_or(0, |leaf| layer_of(&leaf.key));
        if !node.is_empty() {
            let sound = if node.leaves.is_empty() { Err(NodeError::Layer) } else { node.check(layer) };
            sound.map_err(|error| TreeError::Node(root, error))?;
        }
        Ok(Self { root: Subtree { name: Some(root), node: Some(Arc::new(node)) }, layer })
    }

    /// What a key names.
    /// # Errors
    /// A block that is missing or bad.
    pub fn get(&self, key: &str, blocks: &dyn Blocks) -> Result<Option<Cid>, TreeError> {
        let wanted = layer_of(key);
        let (mut subtree, mut layer) = (self.root.clone(), self.layer);
        while layer >= wanted {
            let node = subtree.load(layer, blocks)?;
            match node.search(key) {
                Ok(at) => return Ok(Some(node.leaves[at].value)),
                Err(_) if layer == wanted => return Ok(None),
                Err(at) => match node.gap(at) {
                    Some(child) => (subtree, layer) = (child.clone(), layer - 1),
                    None => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    /// What a key names, with the blocks of the nodes on the way to it or to the bottom, the root first: they prove that the
    /// key is there or that it is not. Of a tree that is sealed.
    /// # Errors
    /// A block that is missing or bad.
    pub fn prove(&self, key: &str, blocks: &dyn Blocks) -> Result<Proof, TreeError> {
        let (mut subtree, mut layer) = (self.root.clone(), self.layer);
        let mut proof = Proof { value: None, nodes: Vec::new() };
        loop {
            let (node, block) = subtree.load_block(layer, blocks)?;
            proof.nodes.push((subtree.name(), block));
            let at = match node.search(key) {
                Ok(at) => return Ok(Proof { value: Some(node.leaves[at].value), ..proof }),
                Err(at) => at,
            };
            // Beyond the key's own layer too: not every reader knows that it cannot stand there.
            let Some(child) = node.gap(at) else { return Ok(proof) };
            (subtree, layer) = (child.clone(), layer.saturating_sub(1));
        }
    }

    /// Whether a node that was edited since the last seal holds more than [`ENTRIES_MAX`] keys.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.root.is_crowded()
    }

    /// Names every node that was edited since the last call; returns the root's name, and the new nodes' blocks,
    /// children before their parents.
    pub fn seal(&mut self) -> (Cid, Vec<(Cid, Bytes)>) {
        let mut made = Vec::new();
        let name = self.root.seal(&mut made);
        (name, made)
    }

    /// The root's name, if nothing was edited since it was sealed.
    #[must_use]
    pub fn name(&self) -> Option<Cid> {
        self.root.name
    }

    /// Keeps so many layers in memory, from the root down, and gives up what lies below; what is not sealed stays.
    pub fn keep_layers(&mut self, layers: u32) {
        self.root.forget_below(layers);
    }
}

impl Leaf {
    pub fn new(key: &str, value: Cid, right: Option<Subtree>) -> Self {
        Self { key: Arc::from(key), value, right }
    }
}
