//! Records in order of their keys, loading what lies between two bounds and nothing else.

use super::node::Node;
use super::tree::{Subtree, Tree};
use super::{Blocks, TreeError};
use crate::cid::Cid;
use std::ops::Bound;
use std::sync::Arc;

/// In which direction records come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The smallest key first.
    Ascending,
    /// The largest key first.
    Descending,
}

/// A key and what it names.
pub type Record = (Arc<str>, Cid);

#[derive(Debug, Clone)]
enum Pending {
    Subtree(Subtree, u32),
    Record(Arc<str>, Cid),
}

/// Records of a tree between two bounds, one after another.
///
/// A node is loaded when the way leads into it, so that a page costs its own nodes and one path.
#[derive(Debug, Clone)]
pub struct Records {
    /// What is still to come, the next on top.
    pending: Vec<Pending>,
    low: Bound<Box<str>>,
    high: Bound<Box<str>>,
    order: Order,
}

impl Tree {
    /// The records whose keys lie between two bounds.
    #[must_use]
    pub fn records(&self, low: Bound<&str>, high: Bound<&str>, order: Order) -> Records {
        let pending = vec![Pending::Subtree(self.root.clone(), self.layer)];
        Records { pending, low: low.map(Box::from), high: high.map(Box::from), order }
    }

    /// The records of a collection; those that come after the record key `beyond` in that order, if there is one.
    #[must_use]
    pub fn records_of(&self, collection: &str, beyond: Option<&str>, order: Order) -> Records {
        let first = format!("{collection}/");
        // The byte after the slash: no key of the collection lies at or above it.
        let end = format!("{collection}0");
        let beyond = beyond.map(|key| format!("{first}{key}"));
        let (mut low, mut high) = (Bound::Included(first.as_str()), Bound::Excluded(end.as_str()));
        match (&beyond, order) {
            (None, _) => {}
            (Some(key), Order::Ascending) => low = Bound::Excluded(key),
            (Some(key), Order::Descending) => high = Bound::Excluded(key),
        }
        self.records(low, high, order)
    }

    /// The first collections that hold a record, up to `limit`, in the order of their keys. It costs a path for each of them, however
    /// many records there are.
    /// # Errors
    /// A block that is missing or bad.
    pub fn collections(&self, limit: usize, blocks: &dyn Blocks) -> Result<Vec<String>, TreeError> {
        let (mut collections, mut low) = (Vec::new(), Bound::Unbounded);
        loop {
            if collections.len() >= limit {
                return Ok(collections);
            }
            let mut records = self.records(low.as_ref().map(String::as_str), Bound::Unbounded, Order::Ascending);
            let Some((key, _)) = records.next(blocks)? else { return Ok(collections) };
            // Another server's tree may hold a key without a slash, which is of no collection.
            low = match key.split_once('/') {
                Some((collection, _)) => {
                    collections.push(collection.to_owned());
                    Bound::Included(format!("{collection}0"))
                }
                None => Bound::Excluded(key.to_string()),
            };
        }
    }
}

impl Records {
    /// The next record; `None` at the end.
    /// # Errors
    /// A block that is missing or bad. The same step can be tried again.
    pub fn next(&mut self, blocks: &dyn Blocks) -> Result<Option<Record>, TreeError> {
        loop {
            match self.pending.last() {
                None => return Ok(None),
                Some(Pending::Record(key, value)) => {
                    let record = (Arc::clone(key), *value);
                    self.pending.pop();
                    return Ok(Some(record));
                }
                Some(Pending::Subtree(subtree, layer)) => {
                    let (node, below) = (subtree.load(*layer, blocks)?, layer.saturating_sub(1));
                    self.pending.pop();
                    self.enter(&node, below);
                }
            }
        }
    }

    /// Up to `limit` records more.
    /// # Errors
    /// As [`Records::next`]; begin again then.
    pub fn page(&mut self, limit: usize, blocks: &dyn Blocks) -> Result<Vec<Record>, TreeError> {
        let mut page = Vec::new();
        while page.len() < limit {
            match self.next(blocks)? {
                Some(record) => page.push(record),
                None => break,
            }
        }
        Ok(page)
    }

    /// Puts off what lies in a node within the bounds.
    fn enter(&mut self, node: &Node, below: u32) {
        let start = self.pending.len();
        for at in 0..=node.leaves.len() {
            let before = at.checked_sub(1).map(|before| &*node.leaves[before].key);
            let behind = node.leaves.get(at);
            let reached = behind.is_none_or(|leaf| self.low_reached(&leaf.key));
            if let Some(child) = node.gap(at)
                && reached
                && before.is_none_or(|key| !self.high_passed(key))
            {
                self.pending.push(Pending::Subtree(child.clone(), below));
            }
            if let Some(leaf) = behind
                && reached
                && !self.high_passed(&leaf.key)
            {
                self.pending.push(Pending::Record(Arc::clone(&leaf.key), leaf.value));
            }
        }
        if self.order == Order::Ascending {
            self.pending[start..].reverse();
        }
    }

    fn low_reached(&self, key: &str) -> bool {
        match &self.low {
            Bound::Included(low) => key >= &**low,
            Bound::Excluded(low) => key > &**low,
            Bound::Unbounded => true,
        }
    }

    fn high_passed(&self, key: &str) -> bool {
        match &self.high {
            Bound::Included(high) => key > &**high,
            Bound::Excluded(high) => key >= &**high,
            Bound::Unbounded => false,
        }
    }
}
