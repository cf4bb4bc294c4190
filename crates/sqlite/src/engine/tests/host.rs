//! A host for the engine that commits as the VFS does, and remembers what it was promised.

use crate::bind::{BindOptions, BoundStream, bind};
use crate::engine::pages::PageTable;
use crate::engine::{Acknowledgement, AppendFailed, CommitShape, Engine, OpenError, OpenOptions, Seal, Synchronous};
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Incarnation, Offset, Random};
use highwater_disk::{Disk, File, SimDisk};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub const PATH: &str = "/d/app.db";
pub const PAGE: usize = 512;

/// A database, page by page; a page that was never written is `None`, which reads as zeros.
pub type Image = Vec<Option<Arc<Vec<u8>>>>;

pub fn bytes_of(image: &Image) -> Vec<u8> {
    image.iter().flat_map(|page| page.as_deref().cloned().unwrap_or_else(|| vec![0; PAGE])).collect()
}

pub fn stream() -> BoundStream {
    BoundStream {
        url: "http://127.0.0.1:4437/v1/stream/shop/orders".into(),
        incarnation: Incarnation::new(1 << 52).expect("in range"),
        cluster_id: "one".into(),
        protocol: 11,
        end: Offset(0),
    }
}

/// A disk with the durable directory `/d`.
pub fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_directory(Path::new("/d")).expect("create");
    disk.sync_directory(Path::new("/")).expect("sync");
    disk
}

pub fn dynamic(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

pub fn options() -> OpenOptions {
    OpenOptions { timer: false, segment_bytes: 6_000, ..OpenOptions::default() }
}

pub fn open(disk: &SimDisk) -> Result<Arc<Engine>, OpenError> {
    Engine::open(dynamic(disk), Path::new(PATH), options())
}

pub fn bind_new(disk: &SimDisk) {
    let options = BindOptions { page_size: PAGE as u32, auto_vacuum: 0 };
    bind(&dynamic(disk), Path::new(PATH), options, &stream(), &mut |_, _| ()).expect("bind");
}

pub fn read_file(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let files = disk.files();
    files.into_iter().find(|(name, _)| name == path).map(|(_, bytes)| bytes).unwrap_or_default()
}

/// What was promised so far.
#[derive(Debug, Clone, Default)]
pub struct Promise {
    /// The database after each confirmed commit; the first is the database as bound, lsn 1.
    pub states: Vec<Image>,
    /// The commit in the air, which may be there or not after a crash.
    pub attempted: Option<Image>,
    /// Commits that survive a loss of power.
    pub durable: usize,
    /// The last seal that was saved.
    pub seal: Option<Seal>,
    /// The last one that was to be saved.
    pub seal_attempted: Option<Seal>,
}

impl Promise {
    pub fn latest(&self) -> &Image {
        self.states.last().expect("bound")
    }
}

/// What binding promises.
pub fn promise(disk: &SimDisk) -> Promise {
    let page = Arc::new(read_file(disk, Path::new(PATH)));
    Promise { states: vec![vec![Some(page)]], durable: 1, ..Promise::default() }
}

/// A host process.
pub struct Host {
    pub engine: Arc<Engine>,
    pub promise: Promise,
    pub random: SplitMix,
    /// Pages written since the last checkpoint.
    dirty: BTreeMap<u32, Arc<Vec<u8>>>,
}

impl Host {
    pub fn new(engine: Arc<Engine>, promise: Promise, seed: u64) -> Self {
        Self { engine, promise, random: SplitMix::new(seed), dirty: BTreeMap::new() }
    }

    /// Opens a freshly bound database.
    pub fn fresh(disk: &SimDisk, seed: u64) -> Self {
        Self::new(open(disk).expect("open"), promise(disk), seed)
    }

    pub fn page(&mut self, number: u32) -> Arc<Vec<u8>> {
        let mut page = vec![self.random.next_u64() as u8 | 1; PAGE];
        if self.random.below(2) == 0 {
            for word in page.chunks_exact_mut(8) {
                word.copy_from_slice(&self.random.next_u64().to_le_bytes());
            }
        }
        if number == 1 {
            page[18..20].copy_from_slice(&[2, 2]);
        }
        Arc::new(page)
    }

    /// Writes some pages, grows or shrinks; the unconfirmed record is logged.
    pub fn append(&mut self, pages_after: u32, changed: &[u32]) -> Result<(), AppendFailed> {
        let mut image = self.promise.latest().clone();
        image.resize(pages_after as usize, None);
        let mut written = Vec::new();
        for number in changed.iter().copied().filter(|number| *number <= pages_after) {
            let page = self.page(number);
            image[number as usize - 1] = Some(page.clone());
            written.push((number, page));
        }
        let numbers: Vec<u32> = written.iter().map(|(number, _)| *number).collect();
        let shape = CommitShape { page_size: PAGE as u32, pages_after, pages: &numbers };
        self.promise.attempted = Some(image);
        let appended = self.engine.append_commit(shape, &mut |index, buffer| {
            buffer.copy_from_slice(&written[index].1);
            Ok(())
        });
        if let Err(failed) = appended {
            if !matches!(failed, AppendFailed::Stopped(_)) && self.engine.stop_reason().is_none() {
                self.promise.attempted = None;
            }
            return Err(failed);
        }
        self.dirty.extend(written);
        Ok(())
    }

    pub fn confirm(&mut self) {
        self.engine.confirm();
        self.promise.states.extend(self.promise.attempted.take());
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.engine.sync_log()?;
        self.promise.durable = self.promise.states.len();
        Ok(())
    }

    /// A commit as under `synchronous=FULL` or NORMAL.
    pub fn commit(&mut self, pages_after: u32, changed: &[u32], full: bool) -> Result<(), AppendFailed> {
        self.append(pages_after, changed)?;
        if full {
            self.engine.sync_log()?;
        }
        self.confirm();
        if full {
            self.promise.durable = self.promise.states.len();
        }
        Ok(())
    }

    /// A transaction that fails after its record was logged.
    pub fn cut(&mut self, pages_after: u32, changed: &[u32]) -> Result<(), AppendFailed> {
        let dirty = self.dirty.clone();
        self.append(pages_after, changed)?;
        self.engine.cut()?;
        self.promise.attempted = None;
        self.dirty = dirty;
        Ok(())
    }

    /// A checkpoint as SQLite does it: log synced, pages written, file cut to size and synced.
    pub fn checkpoint(&mut self, database: &dyn File) -> io::Result<()> {
        let off = self.engine.synchronous() == Synchronous::Off;
        if !off {
            self.sync()?;
        }
        let pages = self.promise.latest().len() as u32;
        for (number, page) in self.dirty.iter().filter(|(number, _)| **number <= pages) {
            database.write_at(page, u64::from(number - 1) * PAGE as u64)?;
        }
        database.set_length(u64::from(pages) * PAGE as u64)?;
        if off {
            self.engine.backfilled(self.engine.confirmed_end())?;
        } else {
            database.sync_data()?;
            self.engine.checkpointed(self.engine.confirmed_end())?;
        }
        self.dirty.clear();
        Ok(())
    }

    /// Seals everything up to some confirmed byte, and perhaps has it acknowledged.
    pub fn replicate(&mut self, acknowledge: bool) -> io::Result<()> {
        let progress = self.engine.progress();
        let pending = progress.confirmed_end.since(progress.acknowledged);
        let length = 1 + self.random.below(pending);
        if pending == 0 {
            return Ok(());
        }
        let seal = Seal {
            incarnation: self.engine.binding().incarnation,
            epoch: progress.epoch,
            seq: progress.next_seq,
            from: progress.acknowledged,
            to: progress.acknowledged.plus(length),
            digest: Digest::of(&length.to_le_bytes()),
            stream_offset: progress.stream_end,
        };
        self.promise.seal_attempted = Some(seal);
        self.engine.save_seal(seal)?;
        self.promise.seal = Some(seal);
        let held = self.engine.lsn_below(seal.to).expect("in the log") as usize;
        self.promise.durable = self.promise.durable.max(held);
        if acknowledge {
            let stream_end = Offset(progress.stream_end.0 + length);
            let acknowledged = Acknowledgement { upto: seal.to, stream_end, next_seq: seal.seq + 1 };
            self.engine.save_acknowledged(acknowledged)?;
        }
        Ok(())
    }
}

/// The checksum of a database, from its bytes alone.
pub fn checksum(disk: &SimDisk, pages: u32) -> u64 {
    let file = disk.open(Path::new(PATH), highwater_disk::OpenMode::Read).expect("open");
    PageTable::new(PAGE as u32, pages, 0).compute(&*file).expect("read")
}
