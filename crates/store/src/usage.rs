//! How much of each data file is still needed.

use crate::data::run_bytes;
use crate::extent::FileExtent;
use crate::runs::Active;
use std::collections::BTreeMap;

/// One data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileUse {
    /// Payload that memory or the index on disk names, in bytes.
    pub payload: u64,
    /// The same with the headers of its blocks: what a copy of it would take.
    pub laid: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl FileUse {
    /// Bytes that nothing needs: dead payload, its blocks' headers, and what lies between runs.
    pub fn dead(&self) -> u64 {
        self.bytes.saturating_sub(self.laid)
    }

    /// Whether half of the file or more is dead.
    pub fn mostly_dead(&self) -> bool {
        self.dead() >= self.bytes.div_ceil(2)
    }
}

/// The data files of one store.
///
/// A file is listed from the moment when something in it is named until nothing is.
#[derive(Debug, Default)]
pub(crate) struct Usage(BTreeMap<u32, FileUse>);

impl Usage {
    /// Something in the file is named that was not.
    pub fn add(&mut self, extent: &FileExtent) {
        let file = self.0.entry(extent.file).or_default();
        file.payload += u64::from(extent.length);
        file.laid += run_bytes(u64::from(extent.length));
        file.bytes = file.bytes.max(u64::from(extent.position) + run_bytes(u64::from(extent.length)));
    }

    /// It is named no more, not even by the index on disk.
    pub fn release(&mut self, extent: &FileExtent) {
        let file = self.0.entry(extent.file).or_default();
        file.payload -= u64::from(extent.length);
        file.laid -= run_bytes(u64::from(extent.length));
    }

    /// The file has this many bytes.
    pub fn grown(&mut self, file: u32, bytes: u64) {
        if let Some(file) = self.0.get_mut(&file) {
            file.bytes = file.bytes.max(bytes);
        }
    }

    pub fn get(&self, file: u32) -> Option<FileUse> {
        self.0.get(&file).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, FileUse)> {
        self.0.iter().map(|(file, found)| (*file, *found))
    }

    /// Forgets the files in which nothing is named, but for one, and returns them.
    pub fn take_dead(&mut self, but: Option<u32>) -> Vec<u32> {
        self.0.extract_if(.., |file, found| found.payload == 0 && Some(*file) != but).map(|(file, _)| file).collect()
    }

    pub fn files(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn payload_bytes(&self) -> u64 {
        self.0.values().map(|file| file.payload).sum()
    }

    pub fn dead_bytes(&self) -> u64 {
        self.0.values().map(FileUse::dead).sum()
    }

    pub fn file_bytes(&self) -> u64 {
        self.0.values().map(|file| file.bytes).sum()
    }
}

/// What is learnt of the data files while an index is read.
#[derive(Debug, Default)]
pub(crate) struct Laid {
    pub usage: Usage,
    /// The newest file, and the position behind the last byte in it that the index names.
    pub active: Option<Active>,
}

impl Laid {
    /// The index names this extent.
    pub fn add(&mut self, extent: &FileExtent) {
        self.usage.add(extent);
        let end = extent.position + run_bytes(u64::from(extent.length)) as u32;
        if self.active.is_none_or(|active| (active.file, active.end) < (extent.file, end)) {
            self.active = Some(Active { file: extent.file, end });
        }
    }
}
