//! Whole repositories as archives, made while they are read.
//!
//! Identical exports that run at once are one: the first to need a chunk makes it, the others take it. It is counted for one of
//! those who read it, who is the first of them that is still there: whoever joins and then reads slowly holds a place of its own.

use crate::blocks::{AccountBlocks, tree};
use crate::error::ReadError;
use crate::host::Host;
use crate::share::Shares;
use crate::shared::Shared;
use crate::slot::{Slot, lock};
use crate::windows::Windows;
use bytes::Bytes;
use highwater_pds::{AccountId, Head};
use highwater_repo::export::Export as Course;
use highwater_repo::{Cid, Tid};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Bytes of a chunk at the least, but for the last one.
const CHUNK_BYTES: usize = 256 << 10;
/// What of a repository is wanted, and by whom.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Only what is newer than this revision, as far as that is known; everything otherwise.
    pub since: Option<Tid>,
    /// For whom it counts: nobody holds more places than are left for others.
    pub whose: IpAddr,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { since: None, whose: Ipv4Addr::UNSPECIFIED.into() }
    }
}

/// The exports that run.
#[derive(Debug)]
pub(crate) struct Exports {
    running: Mutex<Running>,
    freed: Condvar,
}

/// What makes exports identical: the commit, and since when.
type Key = (AccountId, Cid, Option<Tid>);

#[derive(Debug)]
struct Running {
    places: Shares<IpAddr>,
    exports: BTreeMap<Key, Weak<Common>>,
}

impl Exports {
    pub fn new(exports_max: usize) -> Self {
        let running = Running { places: Shares::new(exports_max.max(1)), exports: BTreeMap::new() };
        Self { running: Mutex::new(running), freed: Condvar::new() }
    }
}

/// What identical exports share.
struct Common {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    head: Head,
    made: Mutex<Made>,
}

struct Made {
    course: Course,
    /// Blocks below this offset are known to its readers.
    known_below: u64,
    /// For whom it counts.
    whose: IpAddr,
    windows: RefCell<Windows>,
    /// Chunks from number `first` on.
    chunks: VecDeque<Chunk>,
    first: usize,
    kept_bytes: usize,
    kept_bytes_max: usize,
    complete: bool,
    readers: BTreeMap<u64, ReaderOf>,
    next_reader: u64,
}

struct Chunk {
    bytes: Bytes,
    /// From where it can be made once more.
    before: Course,
}

/// One who reads an export.
struct ReaderOf {
    whose: IpAddr,
    /// The chunk that it needs next.
    next: usize,
    /// From where it goes on by itself, if that chunk is not kept any more.
    own: Option<Course>,
}

/// A repository on its way to somebody. Each call of [`Export::chunk`] may read the disk.
pub struct Export {
    common: Arc<Common>,
    reader: u64,
    next: usize,
}

impl std::fmt::Debug for Common {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Common").field("head", &self.head).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("common", &self.common).field("next", &self.next).finish_non_exhaustive()
    }
}

/// Begins the export of an account's newest commit, or joins one that has everything yet.
pub(crate) fn begin(host: &Host, id: AccountId, wanted: Wanted) -> Result<Export, ReadError> {
    let shared = &host.shared;
    let slot = shared.slots.get(id);
    let key = (id, host.served(id)?.0.commit, wanted.since);
    if let Some(export) = place(shared, &key, wanted.whose)? {
        return Ok(export);
    }
    // From here on blocks that this commit needs stay where they are.
    slot.exports.fetch_add(1, Ordering::AcqRel);
    let (head, made) = match open(host, &slot, wanted) {
        Ok(opened) => opened,
        Err(error) => {
            slot.exports.fetch_sub(1, Ordering::AcqRel);
            release(shared, wanted.whose);
            return Err(error);
        }
    };
    let common = Arc::new(Common { shared: Arc::clone(shared), slot, head, made: Mutex::new(made) });
    lock(&shared.exports.running).exports.insert((id, head.commit, wanted.since), Arc::downgrade(&common));
    Ok(Export { common, reader: 0, next: 0 })
}

/// Waits until there is a place, which is then taken, or an identical export to join.
fn place(shared: &Shared, key: &Key, whose: IpAddr) -> Result<Option<Export>, ReadError> {
    let exports = &shared.exports;
    let until = Instant::now() + Duration::from_millis(shared.options.export_wait_ms_max);
    let mut running = lock(&exports.running);
    loop {
        if let Some(common) = running.exports.get(key).and_then(Weak::upgrade) {
            // Not under the lock: it may be the last one that holds it.
            drop(running);
            if let Some(export) = join(common, whose) {
                return Ok(Some(export));
            }
            running = lock(&exports.running);
        }
        if running.places.take(whose, 1).is_ok() {
            running.exports.retain(|_, export| export.strong_count() > 0);
            return Ok(None);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ReadError::Busy);
        }
        running = exports.freed.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn open(host: &Host, slot: &Arc<Slot>, wanted: Wanted) -> Result<(Head, Made), ReadError> {
    let shared = &host.shared;
    let (head, row) = host.served(slot.id)?;
    let blocks = AccountBlocks::open(shared, slot, row.blocks)?;
    let commit = blocks.get(&head.commit)?;
    let tree = tree(shared, slot, &row)?;
    let made = Made {
        course: Course::new(&head.commit, &commit, &tree),
        known_below: wanted.since.and_then(|since| blocks.known_below(since)).unwrap_or_default(),
        whose: wanted.whose,
        windows: RefCell::new(Windows::new(row.blocks.front..row.blocks.end)),
        chunks: VecDeque::new(),
        first: 0,
        kept_bytes: 0,
        kept_bytes_max: shared.options.export_kept_bytes_max,
        complete: false,
        readers: BTreeMap::from([(0, ReaderOf { whose: wanted.whose, next: 0, own: None })]),
        next_reader: 1,
    };
    Ok((head, made))
}

fn release(shared: &Shared, whose: IpAddr) {
    lock(&shared.exports.running).places.give(&whose, 1);
    shared.exports.freed.notify_all();
}

fn join(common: Arc<Common>, whose: IpAddr) -> Option<Export> {
    let mut made = lock(&common.made);
    if made.first > 0 {
        return None;
    }
    let reader = made.next_reader;
    made.next_reader += 1;
    made.readers.insert(reader, ReaderOf { whose, next: 0, own: None });
    drop(made);
    Some(Export { common, reader, next: 0 })
}

impl Export {
    /// The commit that is exported.
    #[must_use]
    pub fn head(&self) -> Head {
        self.common.head
    }

    /// The next part of the archive; `None` at its end.
    /// # Errors
    /// What is stored cannot be read. The archive is not whole then.
    pub fn chunk(&mut self) -> Result<Option<Bytes>, ReadError> {
        let mut made = lock(&self.common.made);
        let chunk = match self.next.checked_sub(made.first) {
            None => made.again(&self.common, self.reader)?,
            Some(at) if at == made.chunks.len() => made.more(&self.common)?,
            Some(at) => made.chunks.get(at).map(|chunk| chunk.bytes.clone()),
        };
        if chunk.is_some() {
            self.next += 1;
            made.moved(self.reader, self.next);
        }
        Ok(chunk)
    }
}

impl Made {
    /// The next chunk that nobody has had; `None` at the end.
    fn more(&mut self, common: &Common) -> Result<Option<Bytes>, ReadError> {
        if self.complete {
            return Ok(None);
        }
        let before = self.course.clone();
        let mut course = before.clone();
        let (bytes, more) = self.fill(common, &mut course)?;
        (self.course, self.complete) = (course, !more);
        if bytes.is_empty() {
            return Ok(None);
        }
        self.kept_bytes += bytes.len();
        self.chunks.push_back(Chunk { bytes: bytes.clone(), before });
        Ok(Some(bytes))
    }

    /// A chunk that is not kept any more, for a reader who is behind.
    fn again(&mut self, common: &Common, reader: u64) -> Result<Option<Bytes>, ReadError> {
        let own = self.readers.get_mut(&reader).and_then(|reader| reader.own.take());
        let mut course = own.ok_or_else(|| ReadError::Damaged("an export lost the place of a reader".into()))?;
        let (bytes, _) = self.fill(common, &mut course)?;
        if let Some(reader) = self.readers.get_mut(&reader) {
            reader.own = Some(course);
        }
        Ok(Some(bytes))
    }

    /// The chunk at a place, and whether more may follow.
    fn fill(&mut self, common: &Common, course: &mut Course) -> Result<(Bytes, bool), ReadError> {
        let extent = common.shared.state().accounts.get(&common.slot.id).map(|account| account.blocks);
        let blocks = AccountBlocks::open(&common.shared, &common.slot, extent.unwrap_or_default())?;
        let blocks = blocks.through(&self.windows);
        let known = |cid: &Cid| self.known_below > 0 && blocks.lies_below(cid, self.known_below);
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + (64 << 10));
        let more = course.fill_unknown(&mut chunk, CHUNK_BYTES, &blocks, known);
        let more = more.map_err(|error| blocks.explain(error))?;
        Ok((chunk.into(), more))
    }

    /// Notes what a reader needs next, and lets the oldest chunks go once there are many. Nobody is waited for: one who stalls would
    /// have the whole archive kept, or all others wait.
    fn moved(&mut self, reader: u64, next: usize) {
        if let Some(reader) = self.readers.get_mut(&reader) {
            reader.next = next;
        }
        while self.kept_bytes > self.kept_bytes_max {
            let Some(chunk) = self.chunks.pop_front() else { break };
            for reader in self.readers.values_mut().filter(|reader| reader.next == self.first) {
                reader.own = Some(chunk.before.clone());
            }
            self.kept_bytes -= chunk.bytes.len();
            self.first += 1;
        }
        // Whoever has caught up shares again.
        let first = self.first;
        self.readers.values_mut().filter(|reader| reader.next >= first).for_each(|reader| reader.own = None);
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let mut made = lock(&self.common.made);
        made.readers.remove(&self.reader);
        let (before, now) = (made.whose, made.readers.values().next().map(|reader| reader.whose));
        if let Some(now) = now.filter(|now| *now != before) {
            made.whose = now;
            let exports = &self.common.shared.exports;
            lock(&exports.running).places.pass(&before, now, 1);
            exports.freed.notify_all();
        }
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        self.slot.exports.fetch_sub(1, Ordering::AcqRel);
        let whose = self.made.get_mut().unwrap_or_else(PoisonError::into_inner).whose;
        release(&self.shared, whose);
    }
}
