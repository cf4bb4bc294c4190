//! The names of the simulated disk: those the system sees, and those that would be left without power.

use super::inode::{Fate, Inode};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(super) type Shared = Arc<Mutex<Inode>>;

/// What a name stands for.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// A file.
    File(Shared),
    /// A directory, with its own names.
    Directory,
}

/// A change of one directory's names that it has not been synced after.
#[derive(Debug, Clone)]
enum Change {
    Add { path: PathBuf, entry: Entry },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, entry: Entry },
}

/// Every name, by full path.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    seen: BTreeMap<PathBuf, Entry>,
    durable: BTreeMap<PathBuf, Entry>,
    /// By directory, in the order in which they were made.
    pending: BTreeMap<PathBuf, Vec<Change>>,
}

/// The path without `.` and `..`, so that one file has one name.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none() || path.as_os_str().is_empty()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<Entry> {
        if is_root(path) { Some(Entry::Directory) } else { self.seen.get(path).cloned() }
    }

    pub(super) fn is_directory(&self, path: &Path) -> bool {
        matches!(self.get(path), Some(Entry::Directory))
    }

    pub(super) fn has_parent(&self, path: &Path) -> bool {
        self.is_directory(&parent(path))
    }

    pub(super) fn add(&mut self, path: &Path, entry: Entry) {
        self.seen.insert(path.to_path_buf(), entry.clone());
        self.pend(&parent(path), Change::Add { path: path.to_path_buf(), entry });
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.seen.remove(path);
        self.pend(&parent(path), Change::Remove { path: path.to_path_buf() });
    }

    /// Moves a file's name; durable once the directory of the new name was synced.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        if let Some(entry) = self.seen.remove(from) {
            self.seen.insert(to.to_path_buf(), entry.clone());
            let change = Change::Rename { from: from.to_path_buf(), to: to.to_path_buf(), entry };
            self.pend(&parent(to), change);
        }
    }

    fn pend(&mut self, directory: &Path, change: Change) {
        self.pending.entry(directory.to_path_buf()).or_default().push(change);
    }

    pub(super) fn sync(&mut self, directory: &Path) {
        for change in self.pending.remove(directory).unwrap_or_default() {
            apply(&mut self.durable, change);
        }
    }

    /// The names right in this directory.
    pub(super) fn list(&self, directory: &Path) -> Vec<String> {
        let below = self.seen.range(directory.to_path_buf()..).take_while(|(path, _)| path.starts_with(directory));
        let direct = below.filter(|(path, _)| parent(path) == directory && !is_root(path));
        let mut names: Vec<_> =
            direct.filter_map(|(path, _)| path.file_name().map(|name| name.to_string_lossy().into_owned())).collect();
        names.sort_unstable();
        names
    }

    /// Leaves the durable names and those of the changes after them that `fate` and `random` let through.
    pub(super) fn lose_power(&mut self, fate: Fate, random: &mut SplitMix) {
        for changes in std::mem::take(&mut self.pending).into_values() {
            // A file system that orders its journal keeps a prefix; nothing promises even that.
            let prefix = (random.below(2) == 0).then(|| random.below(changes.len() as u64 + 1));
            for (index, change) in changes.into_iter().enumerate() {
                let survives = match (fate, prefix) {
                    (Fate::Lost, _) => false,
                    (Fate::Kept, _) => true,
                    (Fate::Mixed, Some(prefix)) => (index as u64) < prefix,
                    (Fate::Mixed, None) => random.below(2) == 0,
                };
                if survives {
                    apply(&mut self.durable, change);
                }
            }
        }
        let orphans: Vec<_> = self.durable.keys().filter(|path| !self.reachable(path)).cloned().collect();
        orphans.iter().for_each(|path| drop(self.durable.remove(path)));
        self.seen = self.durable.clone();
    }

    /// Whether all directories above a durable name are durable themselves.
    fn reachable(&self, path: &Path) -> bool {
        let above = path.ancestors().skip(1).take_while(|path| !is_root(path));
        above.into_iter().all(|path| matches!(self.durable.get(path), Some(Entry::Directory)))
    }

    /// The files that have a name, each with how many; by their number.
    pub(super) fn files(&self) -> BTreeMap<u64, (Shared, u32)> {
        let mut files = BTreeMap::new();
        for entry in self.seen.values() {
            if let Entry::File(file) = entry {
                files.entry(super::lock(file).number).or_insert_with(|| (file.clone(), 0)).1 += 1;
            }
        }
        files
    }

    /// Every file with a name, by path.
    pub(super) fn all_files(&self) -> Vec<(PathBuf, Shared)> {
        let files = self.seen.iter().filter_map(|(path, entry)| match entry {
            Entry::File(file) => Some((path.clone(), file.clone())),
            Entry::Directory => None,
        });
        files.collect()
    }

    /// The same names for copies of the files.
    pub(super) fn fork(&self) -> Self {
        let mut copies: BTreeMap<u64, Shared> = BTreeMap::new();
        let mut copy = |entry: &Entry| match entry {
            Entry::Directory => Entry::Directory,
            Entry::File(file) => {
                let inode = super::lock(file).clone();
                Entry::File(copies.entry(inode.number).or_insert_with(|| Arc::new(Mutex::new(inode))).clone())
            }
        };
        let seen = self.seen.iter().map(|(path, entry)| (path.clone(), copy(entry))).collect();
        let durable = self.durable.iter().map(|(path, entry)| (path.clone(), copy(entry))).collect();
        let mut pending: BTreeMap<PathBuf, Vec<Change>> = BTreeMap::new();
        for (directory, changes) in &self.pending {
            let changes = changes.iter().map(|change| match change {
                Change::Add { path, entry } => Change::Add { path: path.clone(), entry: copy(entry) },
                Change::Remove { path } => Change::Remove { path: path.clone() },
                Change::Rename { from, to, entry } => {
                    Change::Rename { from: from.clone(), to: to.clone(), entry: copy(entry) }
                }
            });
            pending.insert(directory.clone(), changes.collect());
        }
        Self { seen, durable, pending }
    }
}

fn apply(names: &mut BTreeMap<PathBuf, Entry>, change: Change) {
    match change {
        Change::Add { path, entry } => {
            names.insert(path, entry);
        }
        Change::Remove { path } => {
            names.remove(&path);
        }
        Change::Rename { from, to, entry } => {
            names.remove(&from);
            names.insert(to, entry);
        }
    }
}
