//! Whole repositories as archives, made while they are read.
//!
//! Identical exports that run at once are one: the first to need a chunk makes it, the others take it.

use crate::blocks::{AccountBlocks, tree};
use crate::error::ReadError;
use crate::shared::Shared;
use crate::slot::{Slot, lock};
use crate::windows::Windows;
use bytes::Bytes;
use highwater_pds::{AccountId, Head};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Bytes of a chunk at the least, but for the last one.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of chunks that are kept for others to join. A larger archive keeps only what somebody has yet to take.
const SHARED_BYTES_MAX: usize = 32 << 20;
/// How long an export waits for a place.
const PATIENCE: Duration = Duration::from_secs(10);

/// The exports that run.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    running: Mutex<Running>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Running {
    count: usize,
    exports: BTreeMap<(AccountId, highwater_repo::Cid), Weak<Common>>,
}

/// What identical exports share.
struct Common {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    head: Head,
    made: Mutex<Made>,
}

struct Made {
    export: highwater_repo::export::Export,
    windows: RefCell<Windows>,
    /// Chunks from number `first` on.
    chunks: VecDeque<Bytes>,
    first: usize,
    kept_bytes: usize,
    complete: bool,
    /// The chunk that each reader needs next.
    readers: BTreeMap<u64, usize>,
    next_reader: u64,
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
pub(crate) fn begin(shared: &Arc<Shared>, id: AccountId) -> Result<Export, ReadError> {
    let slot = shared.slots.get(id);
    let head = crate::read::served(shared, id)?.0;
    let key = (id, head.commit);
    let mut running = lock(&shared.exports.running);
    loop {
        if let Some(common) = running.exports.get(&key).and_then(Weak::upgrade) {
            // Not under the lock: it may be the last one that holds it.
            drop(running);
            if let Some(export) = join(common) {
                return Ok(export);
            }
            running = lock(&shared.exports.running);
        }
        if running.count < shared.options.exports_max.max(1) {
            break;
        }
        let (guard, timeout) =
            shared.exports.freed.wait_timeout(running, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        running = guard;
        if timeout.timed_out() {
            return Err(ReadError::Busy);
        }
    }
    running.count += 1;
    running.exports.retain(|_, export| export.strong_count() > 0);
    drop(running);
    // From here on blocks that this commit needs stay where they are.
    slot.exports.fetch_add(1, Ordering::AcqRel);
    let made = open(shared, &slot, id);
    let (head, export, used) = match made {
        Ok(made) => made,
        Err(error) => {
            slot.exports.fetch_sub(1, Ordering::AcqRel);
            release(shared);
            return Err(error);
        }
    };
    let made = Made {
        export,
        windows: RefCell::new(Windows::new(used)),
        chunks: VecDeque::new(),
        first: 0,
        kept_bytes: 0,
        complete: false,
        readers: BTreeMap::from([(0, 0)]),
        next_reader: 1,
    };
    let common = Arc::new(Common { shared: Arc::clone(shared), slot, head, made: Mutex::new(made) });
    lock(&shared.exports.running).exports.insert((id, head.commit), Arc::downgrade(&common));
    Ok(Export { common, reader: 0, next: 0 })
}

fn open(
    shared: &Arc<Shared>,
    slot: &Arc<Slot>,
    id: AccountId,
) -> Result<(Head, highwater_repo::export::Export, Range<u64>), ReadError> {
    let (head, row) = crate::read::served(shared, id)?;
    let blocks = AccountBlocks::open(shared, slot, row.blocks)?;
    let commit = blocks.get(&head.commit)?;
    let tree = tree(shared, slot, &row)?;
    let export = highwater_repo::export::Export::new(&head.commit, &commit, &tree);
    Ok((head, export, row.blocks.front..row.blocks.end))
}

fn release(shared: &Shared) {
    lock(&shared.exports.running).count -= 1;
    shared.exports.freed.notify_all();
}

fn join(common: Arc<Common>) -> Option<Export> {
    let mut made = lock(&common.made);
    if made.first > 0 {
        return None;
    }
    let reader = made.next_reader;
    made.next_reader += 1;
    made.readers.insert(reader, 0);
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
        let common = &self.common;
        let mut made = lock(&common.made);
        if self.next == made.first + made.chunks.len() {
            if made.complete {
                return Ok(None);
            }
            let extent = common.shared.state().accounts.get(&common.slot.id).map(|account| account.blocks);
            let blocks = AccountBlocks::open(&common.shared, &common.slot, extent.unwrap_or_default())?;
            let Made { export, windows, .. } = &mut *made;
            let blocks = blocks.through(windows);
            let mut chunk = Vec::with_capacity(CHUNK_BYTES + (64 << 10));
            let more = export.fill(&mut chunk, CHUNK_BYTES, &blocks).map_err(|error| blocks.explain(error))?;
            made.complete = !more;
            if chunk.is_empty() {
                return Ok(None);
            }
            made.kept_bytes += chunk.len();
            made.chunks.push_back(chunk.into());
        }
        let at = self.next - made.first;
        let chunk = made.chunks[at].clone();
        self.next += 1;
        made.readers.insert(self.reader, self.next);
        made.forget();
        Ok(Some(chunk))
    }
}

impl Made {
    /// Lets chunks go that nobody needs any more, once there are many.
    fn forget(&mut self) {
        let slowest = self.readers.values().copied().min().unwrap_or(usize::MAX);
        while self.kept_bytes > SHARED_BYTES_MAX && self.first < slowest {
            let Some(chunk) = self.chunks.pop_front() else { break };
            self.kept_bytes -= chunk.len();
            self.first += 1;
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let mut made = lock(&self.common.made);
        made.readers.remove(&self.reader);
        made.forget();
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        self.slot.exports.fetch_sub(1, Ordering::AcqRel);
        release(&self.shared);
    }
}
