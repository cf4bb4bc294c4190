//! A store whose objects come into memory, leave it, change and move as the input says, held to one vector of bytes each.

use bytes::Bytes;
use highwater_base::{GroupId, OwnerId};
use highwater_disk::sim::Operation;
use highwater_disk::{Disk as _, OpenMode, SimDisk};
use highwater_store::{
    CheckpointDone, CheckpointError, Found, Keep, LogError, LogSource, LookupError, Options, Residence, Store,
};
use highwater_wal::Location;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Bytes of one step: what happens, to which object, and how much of it.
const STEP_BYTES: usize = 3;

/// Steps are taken up to this many; a base of several blocks needs some dozens.
const STEPS_MAX: usize = 400;

/// Objects that there are.
const OBJECTS: u64 = 24;

/// What was found earlier and is kept, to be offered when it may be wrong.
const KEPT_MAX: usize = 8;

const FOLDER: &str = "/store";

/// A log in memory that frees nothing.
#[derive(Default)]
struct Memory(Mutex<Vec<Bytes>>);

impl Memory {
    fn append(&self, bytes: Vec<u8>) -> Location {
        let mut frames = self.0.lock().expect("nobody panics with it");
        let length = bytes.len() as u32;
        frames.push(bytes.into());
        Location { segment: frames.len() as u64, offset: 0, length }
    }
}

impl LogSource for Memory {
    fn read(&self, location: Location) -> Result<Bytes, LogError> {
        let frames = self.0.lock().expect("nobody panics with it");
        Ok(frames[location.segment as usize - 1].clone())
    }
}

#[derive(Clone, Default)]
struct Object {
    bytes: Vec<u8>,
    /// Below this nothing is asked for any more.
    front: usize,
    /// The step that touched it last.
    touched: usize,
}

impl Object {
    fn state(&self) -> Bytes {
        format!("{} bytes from {} touched by {}", self.bytes.len(), self.front, self.touched).into()
    }
}

struct World {
    disk: SimDisk,
    log: Arc<Memory>,
    store: Store,
    model: BTreeMap<u64, Object>,
    /// Changed since the last checkpoint was begun.
    changed: BTreeSet<u64>,
    kept: Vec<Found>,
    running: Option<Result<CheckpointDone, CheckpointError>>,
    step: usize,
}

/// Small files, small blocks, early folds.
fn options() -> Options {
    Options {
        file_bytes_max: 128 << 10,
        index_delta_bytes_min: 5 << 10,
        index_delta_bytes_max: 20 << 10,
        index_block_bytes: 128,
        ..Options::default()
    }
}

fn owner() -> OwnerId {
    OwnerId::group(GroupId(3))
}

/// Opens the store, leaving on disk what `mask` says, and holds what it says to the model.
fn open(disk: &SimDisk, model: &BTreeMap<u64, Object>, mask: u8) -> Store {
    let opening = Store::opening(Arc::new(disk.clone()), Path::new(FOLDER), owner(), options()).expect("a sound index");
    let mut expected = model.iter();
    let store = opening.load(&mut |visited| {
        let (key, object) = expected.next().expect("no object more than there are");
        assert_eq!((visited.key, visited.state), (*key, object.state()));
        Ok(if mask >> (key % 8) & 1 == 1 { Keep::Stored } else { Keep::Resident })
    });
    assert!(expected.next().is_none(), "every object is there");
    store.expect("a sound index")
}

impl World {
    fn new() -> Self {
        let (disk, model) = (SimDisk::new(0), BTreeMap::new());
        let store = open(&disk, &model, 0);
        let (changed, kept, running) = (BTreeSet::new(), Vec::new(), None);
        Self { disk, log: Arc::default(), store, model, changed, kept, running, step: 0 }
    }

    /// What was admitted is what the object is.
    fn check_found(&self, found: &Found) {
        let expected = self.model.get(&found.key()).map(Object::state);
        assert_eq!(found.state(), expected.as_ref(), "object {}", found.key());
    }

    fn warm(&mut self, key: u64) {
        if self.store.residence(key) == Residence::Stored {
            let found = self.store.lookup().find(&[key]).expect("a sound base");
            assert!(self.store.admit(&found[0]), "nothing happened in between");
            self.check_found(&found[0]);
        }
    }

    fn check(&mut self, key: u64) {
        self.warm(key);
        let Some(object) = self.model.get(&key) else {
            return assert_eq!(self.store.residence(key), Residence::Absent, "object {key}");
        };
        let reader = self.store.reader(Arc::clone(&self.log));
        let mut at = object.front;
        while at < object.bytes.len() {
            let plan = self.store.plan_read(key, at as u64, u64::MAX);
            let bytes = reader.read(&plan).expect("sound");
            assert!(!bytes.is_empty() && object.bytes[at..].starts_with(&bytes), "object {key} at {at}");
            at += bytes.len();
        }
    }

    fn append(&mut self, key: u64, length: usize) {
        self.warm(key);
        let fill = (self.step as u8).wrapping_mul(37).wrapping_add(key as u8);
        let bytes = vec![fill; length];
        let source = self.log.append(bytes.clone());
        let object = self.model.entry(key).or_default();
        self.store.append(key, object.bytes.len() as u64, source, 0..length as u32);
        object.bytes.extend(bytes);
        object.touched = self.step;
        self.changed.insert(key);
    }

    fn remove(&mut self, key: u64) {
        self.warm(key);
        self.store.remove(key);
        self.model.remove(&key);
        self.changed.insert(key);
    }

    fn release(&mut self, key: u64, part: usize) {
        self.warm(key);
        if let Some(object) = self.model.get_mut(&key) {
            object.front += (object.bytes.len() - object.front) * part / 255;
            object.touched = self.step;
            self.store.release_front(key, object.front as u64);
            self.changed.insert(key);
        }
    }

    /// Begins a checkpoint and does its I/O; it ends with a later step.
    fn begin(&mut self, compaction_bytes: u64) {
        self.end();
        let state = |key: u64| (key, self.model.get(&key).map(Object::state));
        let changed = std::mem::take(&mut self.changed).into_iter().map(state).collect();
        let checkpoint = self.store.begin_compaction(self.step as u64, Bytes::new(), changed, compaction_bytes);
        self.running = Some(checkpoint.run(&*self.log));
    }

    fn end(&mut self) {
        match self.running.take() {
            None => {}
            Some(Ok(done)) => drop(self.store.finish_checkpoint(done)),
            Some(Err(error)) => self.store.fail_checkpoint(error),
        }
    }

    fn fail(&mut self, which: usize) {
        self.end();
        let operation = if which.is_multiple_of(2) { Operation::Sync } else { Operation::Write };
        self.disk.fail_next(operation, if which % 4 < 2 { "index-" } else { "data-" });
        self.begin((which as u64 & 1) << 20);
        self.end();
        self.disk.clear_faults();
    }

    fn reopen(&mut self, mask: u8) {
        self.begin(0);
        self.end();
        self.disk.power_loss();
        self.store = open(&self.disk, &self.model, mask);
        self.kept.clear();
    }

    /// A base with a changed byte: what a lookup says of any object is what was, or nothing.
    fn damage(&mut self, place: usize) {
        let Some(pin) = self.store.pin() else { return };
        let path = Path::new(FOLDER).join(&pin.files()[0].name);
        let file = self.disk.open(&path, OpenMode::Write).expect("the index is there");
        let (lookup, keys) = (self.store.lookup(), (0..OBJECTS).collect::<Vec<_>>());
        let sound = lookup.find(&keys).expect("a sound base");
        let at = (place * 97) as u64 % file.length().expect("a length");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("within the file");
        file.write_at(&[byte[0] ^ 1 << (place % 8)], at).expect("memory takes it");
        for sound in &sound {
            match lookup.find(&[sound.key()]) {
                Ok(found) => assert_eq!(&found[0], sound),
                Err(LookupError::Damaged { path: named, .. }) => assert_eq!(named, path),
                Err(other) => panic!("{other}"),
            }
        }
        file.write_at(&byte, at).expect("memory takes it");
    }

    fn take(&mut self, what: u8, which: u8, much: u8) {
        let (key, much) = (u64::from(which) % OBJECTS, usize::from(much));
        match what % 16 {
            0..=2 => self.append(key, 1 + much * 7),
            3 => self.append(key, 1 + much * 300),
            4 => self.remove(key),
            5 => self.release(key, much),
            6 => self.begin(0),
            7 => self.begin(much as u64 * 1000),
            8 => self.end(),
            9 => self.fail(much),
            10 | 11 => {
                let free: Vec<u64> = (0..OBJECTS).filter(|key| !self.changed.contains(key)).collect();
                free.iter().filter(|key| much >> (*key % 8) & 1 == 1).for_each(|key| {
                    if self.store.evict(*key) {
                        assert_eq!(self.store.residence(*key), Residence::Stored);
                    }
                });
            }
            12 => {
                let keys = [key, much as u64 % OBJECTS, 1000 + much as u64];
                self.kept.extend(self.store.lookup().find(&keys).expect("a sound base"));
                self.kept.drain(..self.kept.len().saturating_sub(KEPT_MAX));
            }
            13 if !self.kept.is_empty() => {
                let found = self.kept[much % self.kept.len()].clone();
                if self.store.admit(&found) {
                    self.check_found(&found);
                }
            }
            14 => self.reopen(much as u8),
            15 => self.damage(much * 256 + usize::from(which)),
            _ => {}
        }
        self.check(key);
    }
}

/// Every three bytes are a step. Whatever the steps are, every object has its bytes and its state.
pub fn store_residence(script: &[u8]) {
    let mut world = World::new();
    for step in script.chunks_exact(STEP_BYTES).take(STEPS_MAX) {
        world.step += 1;
        world.take(step[0], step[1], step[2]);
    }
    world.end();
    (0..OBJECTS).for_each(|key| world.check(key));
    world.reopen(0xff);
    (0..OBJECTS).for_each(|key| world.check(key));
}
