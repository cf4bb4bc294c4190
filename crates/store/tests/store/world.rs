//! A store, a log in memory, and a model that keeps every object as one `Vec<u8>`.

use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{GroupId, OwnerId, Random};
use highwater_disk::{Disk, SimDisk};
use highwater_store::{
    Checkpoint, CheckpointDone, CheckpointError, Found, Keep, Loaded, LogError, LogSource, LookupError, OpenError,
    Options, ReadError, ReadPlan, Residence, Store, StoreReader,
};
use highwater_wal::Location;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

pub const DIRECTORY: &str = "/data/store/g3";

/// An empty disk with a durable `/data`, which is the caller's to make.
pub fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_directory(Path::new("/data")).expect("create");
    disk.sync_directory(Path::new("/")).expect("sync");
    disk
}

pub fn owner() -> OwnerId {
    OwnerId::group(GroupId(3))
}

/// Small files and early folding, so that short scripts reach every path.
pub fn small() -> Options {
    Options {
        file_bytes_max: 256 << 10,
        index_delta_bytes_min: 16 << 10,
        index_delta_bytes_max: 64 << 10,
        index_block_bytes: 2 << 10,
        handles_max: 2,
        cold: None,
    }
}

/// A log in memory: never torn, never lost, and freed by segment when a test says so.
#[derive(Default)]
pub struct FakeLog {
    frames: Mutex<Vec<Option<Bytes>>>,
}

impl FakeLog {
    pub fn append(&self, payload: Vec<u8>) -> Location {
        let mut frames = self.frames.lock().expect("no test panics with it");
        let length = payload.len() as u32;
        frames.push(Some(payload.into()));
        Location { segment: frames.len() as u64, offset: 0, length }
    }

    /// Frees every frame so far.
    pub fn free_all(&self) {
        self.frames.lock().expect("no test panics with it").iter_mut().for_each(|frame| *frame = None);
    }
}

impl LogSource for FakeLog {
    fn read(&self, location: Location) -> Result<Bytes, LogError> {
        self.frames.lock().expect("no test panics with it")[location.segment as usize - 1]
            .clone()
            .ok_or(LogError::Reclaimed)
    }
}

/// What was appended at an offset of an object: cheap, and different everywhere.
pub fn byte(object: u64, offset: u64) -> u8 {
    let mixed = (offset ^ object << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// Bytes `range` of an object.
pub fn payload(object: u64, range: Range<u64>) -> Vec<u8> {
    range.map(|offset| byte(object, offset)).collect()
}

#[derive(Debug, Clone)]
pub enum Command {
    Append { object: u64, start: u64, source: Location, within: Range<u32> },
    Remove { object: u64 },
    Release { object: u64, front: u64 },
}

/// An object as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Modelled {
    /// Object offset of the first byte.
    pub start: u64,
    pub end: u64,
    /// Object offset below which bytes were given up.
    pub front: u64,
    /// Position of the last command on it.
    pub touched: u64,
    /// Tells the bytes of one object from those of another with the same key.
    pub salt: u64,
}

impl Modelled {
    pub fn state(&self) -> Bytes {
        format!("{}..{} from {} touched by {} {}", self.start, self.end, self.front, self.touched, "x".repeat(200))
            .into()
    }
}

/// The model after a number of commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    pub objects: BTreeMap<u64, Modelled>,
}

impl Model {
    fn apply(&mut self, position: u64, command: &Command) {
        match command {
            Command::Append { object, start, within, .. } => {
                let fresh = || Modelled { start: *start, end: *start, front: *start, touched: 0, salt: position };
                let modelled = self.objects.entry(*object).or_insert_with(fresh);
                modelled.end += u64::from(within.end - within.start);
                modelled.touched = position;
            }
            Command::Remove { object } => drop(self.objects.remove(object)),
            Command::Release { object, front } => {
                let modelled = self.objects.get_mut(object).expect("only of objects that are there");
                (modelled.front, modelled.touched) = (modelled.front.max(*front), position);
            }
        }
    }

    pub fn after(commands: &[Command]) -> Self {
        let mut model = Self::default();
        commands.iter().enumerate().for_each(|(index, command)| model.apply(index as u64 + 1, command));
        model
    }
}

/// A store in use.
pub struct World {
    pub disk: Arc<dyn Disk>,
    pub log: Arc<FakeLog>,
    pub options: Options,
    pub store: Store,
    pub reader: StoreReader,
    pub commands: Vec<Command>,
    pub model: Model,
    /// Objects changed since the last checkpoint was begun.
    pub changed: BTreeSet<u64>,
    /// Draws what leaves memory before each step.
    random: SplitMix,
    /// What lookups found earlier, to be admitted when it may be wrong.
    pub stale: Vec<Found>,
    /// Objects that left memory, and that came back.
    pub evicted: u64,
    pub admitted: u64,
    /// Whether the disk died while an object was looked up: nothing is done any more.
    pub dead: bool,
}

impl World {
    pub fn new(disk: &SimDisk, options: Options) -> Self {
        Self::open(Arc::new(disk.clone()), options, Arc::default(), Vec::new()).expect("an empty disk")
    }

    /// Opens, checks what was loaded against the commands that it covers, and replays the others.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        log: Arc<FakeLog>,
        commands: Vec<Command>,
    ) -> Result<Self, OpenError> {
        let opening = Store::opening(disk.clone(), Path::new(DIRECTORY), owner(), options.clone())?;
        let mut loaded = Loaded { applied: opening.applied(), meta: opening.meta().clone(), objects: Vec::new() };
        let mut random = SplitMix::new(loaded.applied);
        let store = opening.load(&mut |visited| {
            loaded.objects.push((visited.key, visited.state));
            Ok(if random.next_u64().is_multiple_of(2) { Keep::Resident } else { Keep::Stored })
        })?;
        let covered = &commands[..loaded.applied as usize];
        let reader = store.reader(log.clone());
        let model = Model::after(covered);
        let (changed, stale) = (BTreeSet::new(), Vec::new());
        let commands_after = &commands[loaded.applied as usize..];
        let commands = covered.to_vec();
        let (evicted, admitted, dead) = (0, 0, false);
        let mut world = Self {
            disk,
            log,
            options,
            store,
            reader,
            commands,
            model,
            changed,
            random,
            stale,
            evicted,
            admitted,
            dead,
        };
        world.check_loaded(&loaded);
        world.check_payload();
        for command in commands_after {
            world.apply(command.clone());
        }
        Ok(world)
    }

    pub fn reopen(self) -> Result<Self, OpenError> {
        drop((self.store, self.reader));
        Self::open(self.disk, self.options, self.log, self.commands)
    }

    /// The same where what is stored cannot all be read.
    pub fn reopen_unchecked(self) -> Self {
        drop((self.store, self.reader));
        let (store, loaded) =
            Store::open(self.disk.clone(), Path::new(DIRECTORY), owner(), self.options.clone()).expect("an index");
        assert_eq!(loaded.applied, self.commands.len() as u64, "nothing is to be replayed");
        let reader = store.reader(self.log.clone());
        Self { store, reader, ..self }
    }

    fn check_loaded(&self, loaded: &Loaded) {
        assert_eq!(loaded.meta, meta(loaded.applied), "the meta of the checkpoint");
        let expected: Vec<_> = self.model.objects.iter().map(|(key, modelled)| (*key, modelled.state())).collect();
        assert_eq!(loaded.objects, expected, "the states of the objects");
    }

    /// Lets some objects leave memory, as far as the store lets them, and offers it what was found earlier.
    pub fn shake(&mut self) {
        // Going through thousands of objects at each step would take most of a test.
        if self.model.objects.len() > 200 && !self.random.next_u64().is_multiple_of(500) {
            return;
        }
        for key in self.model.objects.keys().filter(|key| !self.changed.contains(key)) {
            if self.random.next_u64().is_multiple_of(3) && self.store.evict(*key) {
                assert_eq!(self.store.residence(*key), Residence::Stored, "object {key} left memory");
                self.evicted += 1;
            }
        }
        if self.random.next_u64().is_multiple_of(2) && !self.stale.is_empty() {
            let index = self.random.next_u64() as usize % self.stale.len();
            let found = self.stale.swap_remove(index);
            if self.store.admit(&found) {
                self.check_found(&found);
            }
        }
    }

    /// What is admitted is what the object is now.
    fn check_found(&mut self, found: &Found) {
        self.admitted += 1;
        let expected = self.model.objects.get(&found.key()).map(Modelled::state);
        assert_eq!(found.state(), expected.as_ref(), "object {}", found.key());
    }

    /// Brings an object into memory if it is on disk alone.
    pub fn warm(&mut self, object: u64) -> Result<(), LookupError> {
        let mut retries = 3;
        while self.store.residence(object) == Residence::Stored {
            // Others are found on the way, and kept for later.
            let others = (0..2).map(|_| self.random.next_u64() % 64);
            let keys: Vec<u64> = others.chain([object]).collect();
            let mut found = match self.store.lookup().find(&keys) {
                // A disk that fails once answers the next time.
                Err(LookupError::Io { .. }) if retries > 0 => {
                    retries -= 1;
                    continue;
                }
                found => found?,
            };
            let own = found.pop().expect("one for each key");
            assert!(self.store.admit(&own), "nothing happened since");
            self.check_found(&own);
            self.stale.append(&mut found);
            if self.stale.len() > 8 {
                self.stale.remove(0);
            }
        }
        Ok(())
    }

    fn apply(&mut self, command: Command) {
        self.shake();
        let (Command::Append { object, .. } | Command::Remove { object } | Command::Release { object, .. }) = &command;
        self.dead |= self.warm(*object).is_err();
        if self.dead {
            return;
        }
        match &command {
            Command::Append { object, start, source, within } => {
                self.store.append(*object, *start, *source, within.clone());
                self.changed.insert(*object);
            }
            Command::Remove { object } => {
                self.store.remove(*object);
                self.changed.insert(*object);
            }
            Command::Release { object, front } => {
                self.store.release_front(*object, *front);
                self.changed.insert(*object);
            }
        }
        self.model.apply(self.commands.len() as u64 + 1, &command);
        self.commands.push(command);
    }

    /// Appends to an object, in a frame with something before and behind.
    pub fn append(&mut self, object: u64, length: u64) {
        let position = self.commands.len() as u64 + 1;
        let known = self.model.objects.get(&object);
        let (start, salt) = known.map_or((object % 3 * 1000, position), |known| (known.end, known.salt));
        let mut frame = vec![0xee; 5];
        frame.extend(payload(object ^ salt << 8, start..start + length));
        frame.extend([0xee; 3]);
        let source = self.log.append(frame);
        self.apply(Command::Append { object, start, source, within: 5..5 + length as u32 });
    }

    pub fn remove(&mut self, object: u64) {
        self.apply(Command::Remove { object });
    }

    /// Gives up `part` of a thousand of what is left of an object, if it is there.
    pub fn release(&mut self, object: u64, part: u64) {
        if let Some(modelled) = self.model.objects.get(&object) {
            let front = modelled.front + (modelled.end - modelled.front) * part / 1000;
            self.apply(Command::Release { object, front });
        }
    }

    pub fn begin(&mut self) -> Checkpoint {
        self.begin_compaction(0)
    }

    /// Begins a checkpoint that moves so many bytes out of mostly dead files.
    pub fn begin_compaction(&mut self, bytes_max: u64) -> Checkpoint {
        self.shake();
        let applied = self.commands.len() as u64;
        let state = |key: u64| (key, self.model.objects.get(&key).map(Modelled::state));
        let changed = std::mem::take(&mut self.changed).into_iter().map(state).collect();
        self.store.begin_compaction(applied, meta(applied).into(), changed, bytes_max)
    }

    /// Ends a checkpoint; whether it was done.
    pub fn end(&mut self, result: Result<CheckpointDone, CheckpointError>) -> Result<(), String> {
        match result {
            Ok(done) => {
                drop(self.store.finish_checkpoint(done));
                Ok(())
            }
            Err(error) => {
                let text = error.to_string();
                self.store.fail_checkpoint(error);
                Err(text)
            }
        }
    }

    pub fn checkpoint(&mut self) -> Result<(), String> {
        if self.dead {
            return Err("the disk died before".into());
        }
        let checkpoint = self.begin();
        let result = checkpoint.run(&*self.log);
        self.end(result)
    }

    /// A checkpoint that compacts; returns the bytes that it copied.
    pub fn compact(&mut self, bytes_max: u64) -> Result<u64, String> {
        if self.dead {
            return Err("the disk died before".into());
        }
        let checkpoint = self.begin_compaction(bytes_max);
        let result = checkpoint.run(&*self.log);
        let copied = result.as_ref().map_or(0, CheckpointDone::copied_bytes);
        self.end(result).map(|()| copied)
    }

    /// Compacts until nothing is mostly dead.
    pub fn compact_all(&mut self) -> u64 {
        let (mut copied, mut rounds) = (0, 0);
        while self.store.compaction_due() {
            copied += self.compact(100_000).expect("a sound disk");
            rounds += 1;
            assert!(rounds < 1000, "compaction comes to an end");
        }
        copied
    }

    /// Reads up to `length_max` bytes from `from`, in one plan.
    pub fn read(&mut self, object: u64, from: u64, length_max: u64) -> Result<Bytes, ReadError> {
        if let Err(error) = self.warm(object) {
            return Err(ReadError::Io { path: DIRECTORY.into(), source: std::io::Error::other(error) });
        }
        self.reader.read(&self.store.plan_read(object, from, length_max))
    }

    /// Plans a read of an object, which is brought into memory first.
    pub fn plan(&mut self, object: u64, from: u64, length_max: u64) -> ReadPlan {
        self.warm(object).expect("a sound index");
        self.store.plan_read(object, from, length_max)
    }

    /// Every byte of every object, in parts.
    pub fn check_payload(&mut self) {
        let mut retries = 3;
        self.shake();
        for (object, modelled) in &self.model.objects.clone() {
            self.warm(*object).expect("readable");
            let mut at = modelled.front;
            while at < modelled.end {
                let bytes = match self.read(*object, at, 100_000) {
                    // The disk failed once: the answer is an error, and the next one is sound.
                    Err(ReadError::Io { .. }) if retries > 0 => {
                        retries -= 1;
                        continue;
                    }
                    answer => answer.expect("readable"),
                };
                assert!(!bytes.is_empty(), "object {object} has bytes at {at}");
                let expected = payload(object ^ modelled.salt << 8, at..at + bytes.len() as u64);
                assert!(bytes == expected, "object {object} at {at}");
                at += bytes.len() as u64;
            }
            assert_eq!(at, modelled.end, "object {object}");
            assert!(self.store.plan_read(*object, at, 1).is_empty(), "nothing behind the end of {object}");
        }
    }
}

pub fn meta(applied: u64) -> Vec<u8> {
    if applied == 0 { Vec::new() } else { format!("meta of {applied}").into_bytes() }
}
