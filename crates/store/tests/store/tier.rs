//! Object stores for tests, and what moves files to them.

use crate::world::{World, small};
use bytes::Bytes;
use highwater_disk::{Disk, OpenMode, SimDisk};
use highwater_store::{ColdError, ColdStore, ColdTier, Erased, Folder, Life, MoveError, Options, Outward};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

pub const LIFE: Life = Life(7);

/// What an object store does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wrong {
    #[default]
    Nothing,
    /// It answers nothing.
    Down,
    /// It says that it wrote, and keeps nothing.
    Loses,
    /// It keeps a part and says that it wrote.
    Truncates,
    /// It flips a bit of what it keeps.
    Flips,
    /// It answers fewer bytes than it has.
    AnswersShort,
    /// It takes half and breaks off.
    BreaksOff,
}

/// An object store in memory.
#[derive(Default)]
pub struct Fake {
    pub objects: Mutex<BTreeMap<String, Vec<u8>>>,
    pub wrong: Mutex<Wrong>,
    /// Names that were ever written, in order.
    pub written: Mutex<Vec<String>>,
}

impl Fake {
    pub fn set(&self, wrong: Wrong) {
        *self.wrong.lock().expect("no test panics with it") = wrong;
    }

    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.objects.lock().expect("no test panics with it")
    }

    fn wrong(&self) -> Result<Wrong, ColdError> {
        match *self.wrong.lock().expect("no test panics with it") {
            Wrong::Down => Err(ColdError::Unreachable("connection refused".to_owned())),
            other => Ok(other),
        }
    }
}

impl ColdTier for Fake {
    fn put(&self, name: &str, bytes: u64, pieces: &mut dyn FnMut() -> io::Result<Bytes>) -> Result<(), ColdError> {
        let wrong = self.wrong()?;
        let mut object = Vec::new();
        loop {
            let piece = pieces().map_err(|error| ColdError::Source(error.to_string()))?;
            if piece.is_empty() {
                break;
            }
            object.extend_from_slice(&piece);
        }
        assert_eq!(object.len() as u64, bytes);
        match wrong {
            Wrong::Loses => return Ok(()),
            Wrong::Truncates | Wrong::BreaksOff => object.truncate(object.len() / 2),
            Wrong::Flips => object[bytes as usize / 2] ^= 4,
            _ => {}
        }
        self.written.lock().expect("no test panics with it").push(name.to_owned());
        self.objects().insert(name.to_owned(), object);
        match wrong {
            Wrong::BreaksOff => Err(ColdError::Unreachable("connection reset".to_owned())),
            _ => Ok(()),
        }
    }

    fn read(&self, name: &str, offset: u64, length: u64) -> Result<Bytes, ColdError> {
        let wrong = self.wrong()?;
        let objects = self.objects();
        let object = objects.get(name).ok_or(ColdError::Missing)?;
        let from = object.len().min(offset as usize);
        let to = object.len().min(from + length as usize);
        let to = if wrong == Wrong::AnswersShort { from + (to - from) / 2 } else { to };
        Ok(Bytes::copy_from_slice(&object[from..to]))
    }

    fn delete(&self, name: &str) -> Result<(), ColdError> {
        self.wrong()?;
        self.objects().remove(name);
        Ok(())
    }

    fn place(&self) -> String {
        "fake://bucket".to_owned()
    }
}

pub fn with(tier: Arc<dyn ColdTier>) -> Options {
    Options { cold: Some(ColdStore(tier)), ..small() }
}

/// Where a folder as object store lies on a simulated disk.
pub const FOLDER: &str = "/cold";

pub fn folder(disk: &SimDisk) -> Options {
    with(Arc::new(Folder::new(Arc::new(disk.clone()), FOLDER)))
}

pub fn make_folder(disk: &SimDisk) {
    disk.create_directory(Path::new(FOLDER)).expect("create");
    disk.sync_directory(Path::new("/")).expect("sync");
}

/// Names of the objects in the folder.
pub fn names(disk: &SimDisk) -> Vec<String> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with(FOLDER)).map(|path| path.display().to_string()).collect()
}

/// Writes over bytes of a file.
pub fn damage(disk: &dyn Disk, path: &Path, offset: u64) {
    let file = disk.open(path, OpenMode::Write).expect("there");
    file.write_at(&[0xa5; 16], offset).expect("write");
}

impl World {
    pub fn move_one(&self, file: u32, life: Life, nonce: u64) -> Result<Option<u64>, MoveError> {
        self.reader.move_outward(file, Outward { life, nonce }, &mut |_| true)
    }

    /// Moves everything that may move; how many files did.
    pub fn move_all(&self) -> Result<usize, MoveError> {
        let candidates = self.store.plan_cold().candidates;
        let mut moved = 0;
        for candidate in &candidates {
            moved += usize::from(self.move_one(candidate.file, LIFE, 100 + u64::from(candidate.file))?.is_some());
        }
        Ok(moved)
    }

    pub fn recall_all(&self) -> Result<usize, MoveError> {
        let mut back = 0;
        for file in self.store.plan_cold().recalls {
            back += usize::from(self.reader.bring_back(file, &mut |_| true)?.is_some());
        }
        Ok(back)
    }

    pub fn erase_all(&self) -> Result<usize, MoveError> {
        let mut erased = 0;
        for file in self.store.plan_cold().erasable {
            erased += usize::from(self.reader.erase(file, LIFE)? == Erased::Deleted);
        }
        Ok(erased)
    }
}
