//! The objects whose places are in memory.

use crate::extent::FileExtent;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of memory of a map's entry for each byte of it: the nodes of a B-tree are two thirds full.
const TREE_SPARE: u64 = 3;
const TREE_FULL: u64 = 2;

/// Objects that are in memory, and where their payload lies in data files.
///
/// One without extents takes 12 bytes of memory, one with extents about 48, and 24 an extent.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    /// No list is empty.
    placed: BTreeMap<u64, Vec<FileExtent>>,
    /// Objects without extents in data files.
    bare: BTreeSet<u64>,
    extents: u64,
}

impl Residents {
    pub fn contains(&self, key: u64) -> bool {
        self.placed.contains_key(&key) || self.bare.contains(&key)
    }

    /// The extents of an object; none if it is not here.
    pub fn extents(&self, key: u64) -> &[FileExtent] {
        self.placed.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Takes an object in that is new, or leaves it as it is.
    pub fn ensure(&mut self, key: u64) {
        if !self.placed.contains_key(&key) {
            self.bare.insert(key);
        }
    }

    /// Takes an object in, with these extents in place of those it had.
    pub fn insert(&mut self, key: u64, mut extents: Vec<FileExtent>) {
        self.remove(key);
        if extents.is_empty() {
            self.bare.insert(key);
        } else {
            self.extents += extents.len() as u64;
            extents.shrink_to_fit();
            self.placed.insert(key, extents);
        }
    }

    /// Changes the extents of an object that is here; nothing happens to any other.
    pub fn change(&mut self, key: u64, change: impl FnOnce(&mut Vec<FileExtent>)) {
        let Some(extents) = self.placed.get_mut(&key) else {
            let mut extents = Vec::new();
            if self.bare.contains(&key) {
                change(&mut extents);
                self.insert(key, extents);
            }
            return;
        };
        self.extents -= extents.len() as u64;
        change(extents);
        self.extents += extents.len() as u64;
        if extents.is_empty() {
            self.placed.remove(&key);
            self.bare.insert(key);
        }
    }

    /// Forgets an object; returns the extents that it had.
    pub fn remove(&mut self, key: u64) -> Vec<FileExtent> {
        self.bare.remove(&key);
        let extents = self.placed.remove(&key).unwrap_or_default();
        self.extents -= extents.len() as u64;
        extents
    }

    /// Objects with extents, from a key on.
    pub fn placed_from(&self, key: u64) -> impl Iterator<Item = (u64, &[FileExtent])> {
        self.placed.range(key..).map(|(key, extents)| (*key, extents.as_slice()))
    }

    /// Objects without extents, from a key on.
    pub fn bare_from(&self, key: u64) -> impl Iterator<Item = u64> {
        self.bare.range(key..).copied()
    }

    /// Number of objects with extents.
    pub fn placed_count(&self) -> u64 {
        self.placed.len() as u64
    }

    /// Number of objects.
    pub fn count(&self) -> u64 {
        (self.placed.len() + self.bare.len()) as u64
    }

    /// Number of extents.
    pub fn extent_count(&self) -> u64 {
        self.extents
    }

    /// Bytes of memory, about.
    pub fn bytes(&self) -> u64 {
        let entry = size_of::<(u64, Vec<FileExtent>)>() as u64;
        let trees = self.placed.len() as u64 * entry + self.bare.len() as u64 * size_of::<u64>() as u64;
        trees * TREE_SPARE / TREE_FULL + self.extents * size_of::<FileExtent>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64) -> FileExtent {
        FileExtent { start, length: 10, file: 1, position: 4096 }
    }

    #[test]
    fn an_object_keeps_its_place_whether_it_has_extents_or_not() {
        let mut residents = Residents::default();
        residents.change(1, |extents| extents.push(extent(0)));
        assert!(!residents.contains(1), "nobody took it in");
        residents.ensure(1);
        assert_eq!((residents.count(), residents.placed_count(), residents.extent_count()), (1, 0, 0));
        residents.change(1, |extents| extents.extend([extent(0), extent(10)]));
        residents.ensure(1);
        assert_eq!((residents.count(), residents.placed_count(), residents.extent_count()), (1, 1, 2));
        residents.change(1, Vec::clear);
        assert!(residents.contains(1) && residents.extents(1).is_empty());
        residents.insert(1, vec![extent(5)]);
        assert_eq!((residents.count(), residents.extent_count(), residents.placed_count()), (1, 1, 1));
        assert_eq!(residents.remove(1), [extent(5)]);
        assert_eq!((residents.count(), residents.extent_count(), residents.bytes()), (0, 0, 0));
    }
}
