//! Which data files may move, come back, or be deleted.

use crate::reader::StoreReader;
use crate::store::Store;
use highwater_disk::OpenMode;

/// A data file that may move to the object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdCandidate {
    /// Its number; a lower one is older.
    pub file: u32,
    /// Its bytes.
    pub bytes: u64,
}

/// The data files of a store, as the one sees them who moves them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ColdPlan {
    /// Those that may move, oldest first: nothing is written to them any more, none is mostly dead, nobody copies them, and
    /// none is known to be damaged.
    pub candidates: Vec<ColdCandidate>,
    /// Files in the object store of which half or more is dead, so that they should come back and be emptied.
    pub recalls: Vec<u32>,
    /// Files whose objects nothing needs any more.
    pub erasable: Vec<u32>,
    /// Bytes of the data files that lie on the disk.
    pub local_bytes: u64,
    /// Files in the object store that are still named.
    pub cold_files: u64,
    /// Their bytes.
    pub cold_bytes: u64,
}

impl StoreReader {
    /// When a data file on the disk was last written, in nanoseconds since the Unix epoch; 0 if the disk does not say.
    #[must_use]
    pub fn changed_ns(&self, file: u32) -> u64 {
        let opened = self.files.disk.open(&self.files.path(file), OpenMode::Read);
        opened.and_then(|opened| opened.modified_ns()).ok().flatten().unwrap_or_default()
    }
}

impl Store {
    /// Bytes of the files in the object store.
    #[must_use]
    pub fn cold_bytes(&self) -> u64 {
        let away = self.files.away();
        let bytes = away.iter().filter_map(|file| self.usage.get(*file));
        bytes.map(|found| found.bytes).sum()
    }

    /// What may be done now. Touches no disk.
    #[must_use]
    pub fn plan_cold(&self) -> ColdPlan {
        let away = self.files.away();
        let mut plan = ColdPlan { erasable: self.files.erasable(), ..ColdPlan::default() };
        let pinned = self.files.pinned();
        let active = self.active.map(|active| active.file);
        for (file, found) in self.usage.iter() {
            if away.contains(&file) {
                plan.cold_files += 1;
                plan.cold_bytes += found.bytes;
                if found.mostly_dead() && !self.stuck.contains(&file) {
                    plan.recalls.push(file);
                }
                continue;
            }
            plan.local_bytes += found.bytes;
            let settled = Some(file) != active && !found.mostly_dead() && !self.stuck.contains(&file);
            if settled && !pinned {
                plan.candidates.push(ColdCandidate { file, bytes: found.bytes });
            }
        }
        plan
    }
}
