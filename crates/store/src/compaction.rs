//! Which live payload moves out of files that are mostly dead.
//!
//! A file whose half is dead costs at most as much to empty as it gives back, so that over a store's life a byte that is
//! removed costs one that is copied at the most.

use crate::extent::{FileExtent, find};
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// What a checkpoint does about an extent that is not at the end of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relaid {
    /// It moves into a new run.
    Copy(FileExtent),
    /// It stays where it is, and the index names it again behind what moved.
    Stay(FileExtent),
}

/// What one checkpoint moves out of mostly dead files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    victims: BTreeSet<u32>,
    /// By object: extents that begin below this object offset move if they lie in a victim.
    below: BTreeMap<u64, u64>,
    /// Bytes chosen, and how many may be.
    bytes: u64,
    bytes_max: u64,
}

impl Plan {
    /// Chooses what of an object lies in victims. `false` if something does not fit any more; the first extent always does.
    pub fn choose(&mut self, key: u64, extents: &[FileExtent]) -> bool {
        for extent in extents.iter().filter(|extent| self.victims.contains(&extent.file)) {
            let length = u64::from(extent.length);
            if self.bytes > 0 && self.bytes + length > self.bytes_max {
                return false;
            }
            self.bytes += length;
            self.below.insert(key, extent.end());
        }
        true
    }

    pub fn objects(&self) -> impl Iterator<Item = u64> {
        self.below.keys().copied()
    }

    /// Of the extents of `object` that are kept as they are, those from the first that moves on.
    pub fn relaid(&self, object: u64, extents: &[FileExtent]) -> Vec<Relaid> {
        let Some(below) = self.below.get(&object) else { return Vec::new() };
        let moves = |extent: &FileExtent| extent.start < *below && self.victims.contains(&extent.file);
        let first = extents.iter().position(moves).unwrap_or(extents.len());
        let relaid = |extent: &FileExtent| match moves(extent) {
            true => Relaid::Copy(*extent),
            false => Relaid::Stay(*extent),
        };
        extents[first..].iter().map(relaid).collect()
    }
}

impl Store {
    /// Whether a compaction would free something: a data file is mostly dead, and the one that is written on only counts
    /// if much of it is.
    #[must_use]
    pub fn compaction_due(&self) -> bool {
        self.compaction_due || self.files.recalled()
    }

    /// Judges it anew.
    pub(crate) fn judge_files(&mut self) {
        self.compaction_due = self.active_is_dead() || self.victims().next().is_some();
    }

    fn victims(&self) -> impl Iterator<Item = u32> {
        let active = self.active.map(|active| active.file);
        let dead = self.usage.iter().filter(move |(file, found)| Some(*file) != active && found.mostly_dead());
        // One in the object store comes back first.
        dead.map(|(file, _)| file).filter(|file| !self.stuck.contains(file) && !self.files.is_away(*file))
    }

    /// Whether the file that is written on is worth leaving: mostly dead, and by no less than a sixteenth of a file, so
    /// that small stores do not move for every removed stream.
    fn active_is_dead(&self) -> bool {
        let found = self.active.and_then(|active| self.usage.get(active.file));
        found.is_some_and(|found| {
            found.mostly_dead() && found.dead() >= u64::from(self.options.file_bytes_max / 16) && found.payload > 0
        })
    }

    /// Chooses at most `bytes_max` bytes of the live payload of objects in memory, but one extent at the least if there is any;
    /// leaves the file that is written on if it is mostly dead itself.
    ///
    /// Moreover says whether there may be more, of objects that are not in memory.
    pub(crate) fn plan_compaction(&mut self, bytes_max: u64) -> (Plan, bool) {
        if bytes_max == 0 {
            return (Plan::default(), false);
        }
        if self.active_is_dead() {
            self.active = None;
        }
        self.files.take_recalled();
        let mut plan = Plan { victims: self.victims().collect(), bytes_max, ..Plan::default() };
        if plan.victims.is_empty() || !self.residents.placed_from(0).all(|(key, extents)| plan.choose(key, extents)) {
            return (plan, false);
        }
        let live: u64 = plan.victims.iter().filter_map(|file| self.usage.get(*file)).map(|file| file.payload).sum();
        let more = plan.bytes < live.min(bytes_max);
        (plan, more)
    }

    /// The extents of `object` from the one on that holds the byte at `offset`.
    pub(crate) fn extents_from(&self, object: u64, offset: u64) -> &[FileExtent] {
        let extents = self.residents.extents(object);
        &extents[find(extents, offset, FileExtent::end)..]
    }
}
