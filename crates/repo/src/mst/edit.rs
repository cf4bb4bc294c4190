//! Putting and removing keys.

use super::node::{Leaf, Node};
use super::tree::{Subtree, Tree};
use super::{Blocks, TreeError, layer_of};
use crate::cid::Cid;

type Child = Option<Subtree>;

/// A key on its way down to its layer.
struct Edit<'a> {
    key: &'a str,
    layer: u32,
    blocks: &'a dyn Blocks,
}

impl Tree {
    /// Lets a key name a record; returns what it named before.
    /// # Errors
    /// A block that is missing or bad; nothing changed then.
    pub fn put(&mut self, key: &str, value: Cid, blocks: &dyn Blocks) -> Result<Option<Cid>, TreeError> {
        let edit = Edit { key, layer: layer_of(key), blocks };
        let root = self.root.load(self.layer, blocks);
        let empty = matches!(&root, Ok(node) if node.is_empty());
        let (node, layer, before) = if empty {
            (Node { left: None, leaves: vec![Leaf::new(key, value, None)] }, edit.layer, None)
        } else if edit.layer <= self.layer {
            let (node, before) = edit.put(Some(&self.root), self.layer, value)?;
            (node, self.layer, before)
        } else {
            let (left, right) = edit.split(Some(&self.root), self.layer)?;
            let (left, right) = (self.raised(left, edit.layer - 1), self.raised(right, edit.layer - 1));
            (Node { left, leaves: vec![Leaf::new(key, value, right)] }, edit.layer, None)
        };
        if before != Some(value) {
            self.layer = layer;
            self.root = Subtree::edited(node).expect("it has a key");
        }
        Ok(before)
    }

    /// Removes a key; returns what it named.
    /// # Errors
    /// A block that is missing or bad; nothing changed then.
    pub fn remove(&mut self, key: &str, blocks: &dyn Blocks) -> Result<Option<Cid>, TreeError> {
        let edit = Edit { key, layer: layer_of(key), blocks };
        if edit.layer > self.layer || self.root.load(self.layer, blocks)?.is_empty() {
            return Ok(None);
        }
        let Some((mut root, value)) = edit.remove(Some(&self.root), self.layer)? else { return Ok(None) };
        let mut layer = self.layer;
        // A root without keys gives way to its child.
        while let Some(subtree) = &root {
            let node = subtree.load(layer, blocks)?;
            if !node.leaves.is_empty() {
                break;
            }
            root = node.left.clone();
            layer -= 1;
        }
        *self = root.map_or_else(Self::default, |root| Self { root, layer });
        Ok(Some(value))
    }

    /// A part of this tree's root, under as many empty nodes as bring it to a layer: no link skips one.
    fn raised(&self, part: Child, layer: u32) -> Child {
        (self.layer..layer).fold(part, |part, _| Subtree::edited(Node { left: part, leaves: Vec::new() }))
    }
}

impl Edit<'_> {
    fn load(&self, subtree: Option<&Subtree>, layer: u32) -> Result<Node, TreeError> {
        subtree.map_or_else(|| Ok(Node::default()), |subtree| Ok((*subtree.load(layer, self.blocks)?).clone()))
    }

    fn put(&self, subtree: Option<&Subtree>, layer: u32, value: Cid) -> Result<(Node, Option<Cid>), TreeError> {
        let mut node = self.load(subtree, layer)?;
        let before = match node.search(self.key) {
            Ok(at) => Some(std::mem::replace(&mut node.leaves[at].value, value)),
            Err(at) if layer == self.layer => {
                let (left, right) = self.split(node.gap(at), layer.saturating_sub(1))?;
                node.set_gap(at, left);
                node.leaves.insert(at, Leaf::new(self.key, value, right));
                None
            }
            Err(at) => {
                let (child, before) = self.put(node.gap(at), layer - 1, value)?;
                node.set_gap(at, Subtree::edited(child));
                before
            }
        };
        Ok((node, before))
    }

    /// What is left of a subtree without the key, and what the key named; nothing if it is not there.
    fn remove(&self, subtree: Option<&Subtree>, layer: u32) -> Result<Option<(Child, Cid)>, TreeError> {
        let Some(subtree) = subtree else { return Ok(None) };
        let mut node = self.load(Some(subtree), layer)?;
        let value = match node.search(self.key) {
            Ok(at) => {
                let joined = self.join(node.gap(at), node.gap(at + 1), layer.saturating_sub(1))?;
                node.set_gap(at, joined);
                node.leaves.remove(at).value
            }
            Err(_) if layer == self.layer => return Ok(None),
            Err(at) => {
                let Some((child, value)) = self.remove(node.gap(at), layer - 1)? else { return Ok(None) };
                node.set_gap(at, child);
                value
            }
        };
        Ok(Some((Subtree::edited(node), value)))
    }

    /// The parts of a subtree below and above the key.
    fn split(&self, subtree: Option<&Subtree>, layer: u32) -> Result<(Child, Child), TreeError> {
        let Some(subtree) = subtree else { return Ok((None, None)) };
        let mut lower = self.load(Some(subtree), layer)?;
        let at = lower.search(self.key).unwrap_or_else(|at| at);
        let (left, right) = self.split(lower.gap(at), layer.saturating_sub(1))?;
        // One that lies on one side as a whole stays what it is, name and all.
        match (at, left.is_none(), right.is_none()) {
            (0, true, _) => return Ok((None, Some(subtree.clone()))),
            (at, _, true) if at == lower.leaves.len() => return Ok((Some(subtree.clone()), None)),
            _ => {}
        }
        let upper = Node { left: right, leaves: lower.leaves.split_off(at) };
        lower.set_gap(at, left);
        Ok((Subtree::edited(lower), Subtree::edited(upper)))
    }

    /// Two neighbours as one.
    fn join(&self, left: Option<&Subtree>, right: Option<&Subtree>, layer: u32) -> Result<Child, TreeError> {
        let (Some(left), Some(right)) = (left, right) else { return Ok(left.or(right).cloned()) };
        let (mut node, mut other) = (self.load(Some(left), layer)?, self.load(Some(right), layer)?);
        let end = node.leaves.len();
        let middle = self.join(node.gap(end), other.left.as_ref(), layer.saturating_sub(1))?;
        node.set_gap(end, middle);
        node.leaves.append(&mut other.leaves);
        Ok(Subtree::edited(node))
    }
}
