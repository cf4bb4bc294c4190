//! Going through a tree in the order in which it is exported.

use super::tree::{Subtree, Tree};
use super::{Blocks, NodeError, TreeError};
use crate::cid::Cid;
use bytes::Bytes;
use std::sync::Arc;

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A node, before everything below it.
    Node(Cid, Bytes),
    /// A record, in order of the keys.
    Record(Arc<str>, Cid),
}

/// What is still to come, the next on top.
#[derive(Clone)]
enum Pending {
    Subtree(Subtree, u32),
    /// With the name of the node that it stands in.
    Record(Arc<str>, Cid, Cid),
}

/// A way through a sealed tree, every node before what is below it and every record in order of its key: a reader who gets the
/// blocks in this order needs to keep no more than one path.
///
/// It verifies the tree on its way: that every node stands at its layer, and that the keys are in order over all of it.
#[derive(Clone)]
pub struct Walk {
    pending: Vec<Pending>,
    last: Option<Arc<str>>,
}

impl Walk {
    /// From the root on.
    #[must_use]
    pub fn new(tree: &Tree) -> Self {
        Self { pending: vec![Pending::Subtree(tree.root.clone(), tree.layer)], last: None }
    }

    /// The next step; `None` at the end.
    /// # Errors
    /// A block that is missing or bad. The same step can be tried again.
    pub fn next(&mut self, blocks: &dyn Blocks) -> Result<Option<Step>, TreeError> {
        match self.pending.last() {
            None => Ok(None),
            Some(Pending::Record(key, value, node)) => {
                let (key, value) = (Arc::clone(key), *value);
                self.in_order(&key, *node)?;
                self.pending.pop();
                self.last = Some(Arc::clone(&key));
                Ok(Some(Step::Record(key, value)))
            }
            Some(Pending::Subtree(subtree, layer)) => {
                let (subtree, layer) = (subtree.clone(), *layer);
                let (node, block) = subtree.load_block(layer, blocks)?;
                let (name, below) = (subtree.name(), layer.saturating_sub(1));
                self.pending.pop();
                for leaf in node.leaves.iter().rev() {
                    self.pending.extend(leaf.right.clone().map(|right| Pending::Subtree(right, below)));
                    self.pending.push(Pending::Record(Arc::clone(&leaf.key), leaf.value, name));
                }
                self.pending.extend(node.left.clone().map(|left| Pending::Subtree(left, below)));
                Ok(Some(Step::Node(name, block)))
            }
        }
    }

    /// Leaves out subtrees that come next for as long as `known` says so of them, with everything below: nothing of them is loaded.
    pub fn skip(&mut self, known: impl Fn(&Cid) -> bool) {
        while let Some(Pending::Subtree(subtree, _)) = self.pending.last()
            && known(&subtree.name())
        {
            self.pending.pop();
        }
    }

    /// How many subtrees and records wait, which is what the walk holds in memory.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn in_order(&self, key: &str, node: Cid) -> Result<(), TreeError> {
        match &self.last {
            Some(last) if **last >= *key => Err(TreeError::Node(node, NodeError::Order)),
            _ => Ok(()),
        }
    }
}
