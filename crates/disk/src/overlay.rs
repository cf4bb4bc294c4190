//! Another disk that is only read: what is changed here lies in memory, and is forgotten with it.
//!
//! For looking at files with the very code that would tidy them up: a directory that is checked stays as it was, byte for byte, and may
//! lie on a disk that takes no writes.

use crate::traits::{Disk, File, OpenMode};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;

/// The disk, and what was changed on it.
pub struct OverlayDisk {
    below: Arc<dyn Disk>,
    changed: Mutex<Changed>,
}

#[derive(Default)]
struct Changed {
    /// Files that were opened for writing, by their names; `None` where one was removed.
    files: BTreeMap<PathBuf, Option<Arc<Layer>>>,
    /// Directories that were made.
    made: BTreeSet<PathBuf>,
}

impl OverlayDisk {
    /// A disk that shows what is on `below`.
    #[must_use]
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self { below, changed: Mutex::default() }
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a name, to be changed here.
    fn layer(&self, changed: &mut Changed, path: &Path) -> io::Result<Arc<Layer>> {
        match changed.files.get(path) {
            Some(Some(layer)) => return Ok(Arc::clone(layer)),
            Some(None) => return Err(ErrorKind::NotFound.into()),
            None => {}
        }
        let below = self.below.open(path, OpenMode::Read)?;
        let length = below.length()?;
        let layer =
            Arc::new(Layer { below: Some(below), kept: Mutex::new(Kept { length, below: length, ..Kept::default() }) });
        changed.files.insert(path.to_path_buf(), Some(Arc::clone(&layer)));
        Ok(layer)
    }

    fn is_directory(&self, changed: &Changed, path: &Path) -> bool {
        changed.made.contains(path) || self.below.list(path).is_ok()
    }
}

impl Disk for OverlayDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut changed = self.changed();
        if mode == OpenMode::Read && !changed.files.contains_key(path) {
            return self.below.open(path, OpenMode::Read);
        }
        match (self.layer(&mut changed, path), mode) {
            (Ok(_), OpenMode::CreateNew) => Err(ErrorKind::AlreadyExists.into()),
            (Err(error), OpenMode::Create | OpenMode::CreateNew) if error.kind() == ErrorKind::NotFound => {
                if !path.parent().is_none_or(|parent| self.is_directory(&changed, parent)) {
                    return Err(error);
                }
                let layer = Arc::new(Layer { below: None, kept: Mutex::default() });
                changed.files.insert(path.to_path_buf(), Some(Arc::clone(&layer)));
                Ok(layer)
            }
            (layer, _) => Ok(layer?),
        }
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut changed = self.changed();
        for directory in path.ancestors().filter(|directory| !directory.as_os_str().is_empty()) {
            if self.is_directory(&changed, directory) {
                break;
            }
            changed.made.insert(directory.to_path_buf());
        }
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut changed = self.changed();
        let layer = self.layer(&mut changed, from)?;
        changed.files.insert(from.to_path_buf(), None);
        changed.files.insert(to.to_path_buf(), Some(layer));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut changed = self.changed();
        self.layer(&mut changed, path)?;
        changed.files.insert(path.to_path_buf(), None);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let changed = self.changed();
        let mut names: BTreeSet<String> = match self.below.list(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && changed.made.contains(path) => BTreeSet::new(),
            names => names?.into_iter().collect(),
        };
        let name = |child: &Path| child.file_name().map(|name| name.to_string_lossy().into_owned());
        let here = |child: &&PathBuf| child.parent() == Some(path);
        names.extend(changed.made.iter().filter(here).filter_map(|child| name(child)));
        for (child, layer) in changed.files.iter().filter(|(child, _)| child.parent() == Some(path)) {
            let Some(name) = name(child) else { continue };
            match layer {
                Some(_) => drop(names.insert(name)),
                None => drop(names.remove(&name)),
            }
        }
        Ok(names.into_iter().collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let changed = self.changed();
        match changed.files.get(path) {
            Some(layer) => Ok(layer.is_some()),
            None if changed.made.contains(path) => Ok(true),
            None => self.below.exists(path),
        }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.below.free_bytes(path)
    }
}

/// A file: what is below, and pages above it.
struct Layer {
    below: Option<Arc<dyn File>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    length: u64,
    /// So much of the file below shows, in bytes: what was cut off does not come back.
    below: u64,
    /// Pages that are not as they are below, by their number.
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl Layer {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page as it is now, zeros where nothing is.
    fn page(&self, kept: &Kept, number: u64) -> io::Result<Box<[u8; PAGE]>> {
        if let Some(page) = kept.pages.get(&number) {
            return Ok(page.clone());
        }
        let mut page = Box::new([0; PAGE]);
        let offset = number * PAGE as u64;
        let shown = kept.below.saturating_sub(offset).min(PAGE as u64) as usize;
        if let Some(below) = self.below.as_ref().filter(|_| shown > 0) {
            below.read_exact_at(&mut page[..shown], offset)?;
        }
        Ok(page)
    }
}

/// The pages that a range of bytes touches: of each its number, and where in it and in the range its bytes are.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let end = length.min(done + PAGE - within);
        let piece = (at / PAGE as u64, within, done..end);
        done = end;
        Some(piece)
    })
}

impl File for Layer {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let kept = self.kept();
        let length = kept.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        // Most of a file is as it is below.
        if kept.pages.is_empty() && offset + length as u64 <= kept.below {
            return self.below.as_ref().map_or(Ok(0), |below| below.read_at(&mut buffer[..length], offset));
        }
        for (number, within, range) in pieces(offset, length) {
            let page = self.page(&kept, number)?;
            buffer[range.clone()].copy_from_slice(&page[within..within + range.len()]);
        }
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut kept = self.kept();
        for (number, within, range) in pieces(offset, bytes.len()) {
            let mut page = self.page(&kept, number)?;
            let there = &mut page[within..within + range.len()];
            // A log writes what it is not sure of again as it is.
            if *there != bytes[range.clone()] {
                there.copy_from_slice(&bytes[range]);
                kept.pages.insert(number, page);
            }
        }
        kept.length = kept.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut kept = self.kept();
        if length < kept.length {
            kept.below = kept.below.min(length);
            let (last, within) = (length / PAGE as u64, (length % PAGE as u64) as usize);
            drop(kept.pages.split_off(&(last + u64::from(within > 0))));
            if let Some(page) = kept.pages.get_mut(&last) {
                page[within..].fill(0);
            }
        }
        kept.length = length;
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.kept().length)
    }

    fn reserve(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    /// The lock of the file below, so that nobody who writes there is overlooked. A file system that locks only what is open for
    /// writing has nobody who writes.
    fn try_lock(&self) -> io::Result<bool> {
        self.below.as_ref().map_or(Ok(true), |below| below.try_lock().or(Ok(true)))
    }

    fn identity(&self) -> io::Result<Option<u64>> {
        self.below.as_ref().map_or(Ok(None), |below| below.identity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimDisk, create_directory_durably};
    use highwater_base::Random as _;
    use highwater_base::random::SplitMix;

    fn read(disk: &dyn Disk, path: &Path) -> Vec<u8> {
        let file = disk.open(path, OpenMode::Read).expect("it is there");
        let mut bytes = vec![0; file.length().expect("a length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("read");
        bytes
    }

    /// Whatever is done is what another disk does, and the disk below does not change.
    #[test]
    fn files_change_as_on_any_disk_and_nothing_below_does() {
        let (below, other) = (SimDisk::new(1), SimDisk::new(2));
        let names: Vec<PathBuf> = (0..5).map(|name| format!("/data/{name}").into()).collect();
        for disk in [&below, &other] {
            create_directory_durably(disk, Path::new("/data")).expect("made");
            for name in &names[..3] {
                disk.open(name, OpenMode::Create).expect("made").write_at(&[7; 10_000], 0).expect("written");
            }
        }
        let before = below.files();
        let overlay = OverlayDisk::new(Arc::new(below.clone()));
        let mut random = SplitMix::new(3);
        for step in 0..2_000 {
            let name = &names[random.below(5) as usize];
            let to = &names[random.below(5) as usize];
            let (offset, length) = (random.below(12_000), random.below(6_000));
            let doing = random.below(6);
            let act = |disk: &dyn Disk| -> io::Result<()> {
                match doing {
                    0 | 1 => disk.open(name, OpenMode::Create)?.write_at(&vec![step as u8; length as usize], offset),
                    2 => disk.open(name, OpenMode::Write)?.set_length(offset),
                    3 => disk.remove(name),
                    4 if name != to => disk.rename(name, to),
                    _ => disk.open(name, OpenMode::CreateNew).map(drop),
                }
            };
            let kind = |done: io::Result<()>| done.map_err(|error| error.kind());
            assert_eq!(kind(act(&overlay)), kind(act(&other)), "step {step}: {doing} of {name:?} and {to:?}");
            assert_eq!(
                overlay.list(Path::new("/data")).expect("listed"),
                other.list(Path::new("/data")).expect("listed")
            );
            for name in &names {
                assert_eq!(overlay.exists(name).expect("looked"), other.exists(name).expect("looked"));
                if other.exists(name).expect("looked") {
                    assert!(read(&overlay, name) == read(&other, name), "step {step}: {doing} of {name:?}");
                }
            }
        }
        assert!(below.files() == before);
    }

    #[test]
    fn directories_are_made_in_memory_and_locks_are_those_below() {
        let below = SimDisk::new(1);
        create_directory_durably(&below, Path::new("/data")).expect("made");
        let lock = below.open(Path::new("/data/lock"), OpenMode::Create).expect("made");
        assert!(lock.try_lock().expect("locked"));
        let overlay = OverlayDisk::new(Arc::new(below.clone()));
        assert!(!overlay.open(Path::new("/data/lock"), OpenMode::Create).expect("there").try_lock().expect("asked"));
        let missing = overlay.open(Path::new("/data/a/file"), OpenMode::Create).map(drop).expect_err("no directory");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        create_directory_durably(&overlay, Path::new("/data/a/b")).expect("made");
        assert_eq!(overlay.list(Path::new("/data")).expect("listed"), ["a", "lock"]);
        assert!(overlay.open(Path::new("/data/a/file"), OpenMode::Create).expect("made").try_lock().expect("locked"));
        assert_eq!(overlay.list(Path::new("/data/a")).expect("listed"), ["b", "file"]);
        assert!(!below.exists(Path::new("/data/a")).expect("looked"));
        assert!(overlay.list(Path::new("/data/c")).is_err());
    }
}
