//! Where an account's blocks lie: by a short hash of their names, in one object of the store.

use bytes::Bytes;
use highwater_repo::car::{CarError, Sections};
use highwater_repo::cid::CID_BYTES;
use highwater_repo::{Cid, Commit, Tid};
use std::collections::BTreeMap;

/// Bytes of a block at the most, in bits of an entry. Blocks are below 2 MiB.
const LENGTH_BITS: u32 = 22;

/// Where a block's bytes stand in the account's object; its name stands right before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of the block's first byte.
    pub offset: u64,
    pub length: u32,
}

impl Place {
    fn pack(self) -> u64 {
        self.offset << LENGTH_BITS | u64::from(self.length)
    }

    fn unpack(packed: u64) -> Self {
        Self { offset: packed >> LENGTH_BITS, length: (packed & ((1 << LENGTH_BITS) - 1)) as u32 }
    }

    /// The range that holds the block's name and bytes.
    pub fn range(self) -> std::ops::Range<u64> {
        self.offset - CID_BYTES as u64..self.offset + u64::from(self.length)
    }
}

/// 64 bits of a name's hash. Two blocks of one repository that share them are rarer than damage, and whoever reads compares the
/// whole name: one of the two would be reported missing, never served for the other.
fn short(cid: &Cid) -> u64 {
    let bytes = cid.to_bytes();
    bytes.last_chunk::<8>().map_or(0, |tail| u64::from_le_bytes(*tail))
}

/// How the block of a commit begins: a map of six, the first of which is `did`. A record names its type and has another form.
const COMMIT_START: &[u8] = b"\xa6\x63did";

/// The revision of a commit's block; `None` of any other.
fn commit_rev(block: &[u8]) -> Option<Tid> {
    if !block.starts_with(COMMIT_START) {
        return None;
    }
    Commit::decode(Bytes::copy_from_slice(block)).ok().map(|commit| commit.rev)
}

/// Entries that were added last, before they join the sorted ones: a merge costs one pass over all.
const RECENT_MIN: usize = 512;

/// The blocks of an account that lie between two offsets of its object.
#[derive(Debug, Default)]
pub(crate) struct Index {
    sorted: Vec<(u64, u64)>,
    recent: BTreeMap<u64, u64>,
    /// Commits as they were made: their revisions, and the offsets of their blocks, before which nothing of them was written.
    commits: Vec<(Tid, u64)>,
    /// Entries below are of no use any more.
    front: u64,
    /// Up to here the object was looked through.
    pub end: u64,
}

impl Index {
    /// Of an object whose bytes begin at `front`, before anything was looked through.
    pub fn new(front: u64) -> Self {
        Self { front, end: front, ..Self::default() }
    }

    pub fn get(&self, cid: &Cid) -> Option<Place> {
        let short = short(cid);
        let packed = self.recent.get(&short).copied().or_else(|| {
            let at = self.sorted.binary_search_by_key(&short, |(key, _)| *key).ok()?;
            Some(self.sorted[at].1)
        })?;
        Some(Place::unpack(packed)).filter(|place| place.offset >= self.front)
    }

    /// Takes in sections that lie at the end of what was looked through.
    pub fn add(&mut self, sections: &[u8]) -> Result<(), CarError> {
        let start = self.end;
        for section in Sections::new(sections) {
            let (cid, range) = section?;
            let place = Place { offset: start + range.start as u64, length: range.len() as u32 };
            self.recent.insert(short(&cid), place.pack());
            // One that was written once more comes behind newer ones.
            if let Some(rev) =
                commit_rev(&sections[range]).filter(|rev| self.newest().is_none_or(|newest| newest < *rev))
            {
                self.commits.push((rev, place.offset));
            }
        }
        self.end = start + sections.len() as u64;
        if self.recent.len() > RECENT_MIN + self.sorted.len() / 8 {
            self.merge();
        }
        Ok(())
    }

    fn newest(&self) -> Option<Tid> {
        self.commits.last().map(|(rev, _)| *rev)
    }

    /// The offset below which every block of the newest commit's tree lies that stood in the tree of the commit with this revision,
    /// or before it: what was written behind is newer, or was written once more. `None` if no such commit is known.
    pub fn known_below(&self, rev: Tid) -> Option<u64> {
        let at = self.commits.binary_search_by_key(&rev, |(rev, _)| *rev).ok()?;
        Some(self.commits.get(at + 1).map_or(self.end, |(_, offset)| *offset))
    }

    fn merge(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        self.sorted.retain(|(key, _)| !recent.contains_key(key));
        self.sorted.extend(recent);
        self.sorted.sort_unstable();
    }

    /// What lies below an offset is gone.
    pub fn release(&mut self, front: u64) {
        if front > self.front {
            self.front = front;
            self.end = self.end.max(front);
            self.sorted.retain(|(_, packed)| Place::unpack(*packed).offset >= front);
            self.sorted.shrink_to_fit();
            self.recent.retain(|_, packed| Place::unpack(*packed).offset >= front);
            // Of the last one below, everything that came later still lies behind what was written together.
            let gone = self.commits.partition_point(|(_, offset)| *offset < front);
            self.commits.drain(..gone.saturating_sub(1));
        }
    }

    /// Bytes of memory, about.
    pub fn bytes(&self) -> u64 {
        (self.sorted.capacity() * 16 + self.recent.len() * 40 + self.commits.capacity() * 16) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_repo::Codec;
    use highwater_repo::car::put_block;

    #[test]
    fn blocks_are_found_where_they_were_written_last_and_not_below_the_front() {
        let blocks: Vec<Vec<u8>> = (0..2_000u32).map(|n| n.to_le_bytes().to_vec()).collect();
        let name = |block: &[u8]| Cid::of(Codec::DagCbor, block);
        let (mut index, mut object) = (Index::new(0), Vec::new());
        for chunk in blocks.chunks(7) {
            let mut sections = Vec::new();
            chunk.iter().for_each(|block| put_block(&mut sections, &name(block), block));
            index.add(&sections).expect("sections");
            object.extend(sections);
        }
        let found = |index: &Index, block: &[u8], object: &[u8]| {
            let place = index.get(&name(block))?;
            let range = place.range();
            let whole = &object[range.start as usize..range.end as usize];
            assert_eq!(whole[..CID_BYTES], name(block).to_bytes());
            assert_eq!(&whole[CID_BYTES..], block);
            Some(place.offset)
        };
        assert!(blocks.iter().all(|block| found(&index, block, &object).is_some()));
        let front = object.len() as u64;
        let mut sections = Vec::new();
        put_block(&mut sections, &name(&blocks[3]), &blocks[3]);
        index.add(&sections).expect("sections");
        object.extend(sections);
        assert!(found(&index, &blocks[3], &object).is_some_and(|offset| offset >= front));
        index.release(front);
        assert!(found(&index, &blocks[3], &object).is_some() && found(&index, &blocks[4], &object).is_none());
        assert!(index.bytes() < 1_000);
    }
}
