//! What drives the core in production: its callers, one thread each for the shard, the log, checkpoints, the scrub and
//! the moves to an object store, and a few for what is not in memory.
//!
//! A write's way: its task encodes it and posts it to the shard. If nobody else is there, the task's thread proposes it,
//! writes it to the log, syncs, applies and goes on with the answer: no other thread is woken. If others are there,
//! whoever has the core proposes everything that has come; the log's thread takes it as one batch, applies it after the
//! sync, and wakes the tasks. Nobody waits for a clock.

mod checkpointer;
mod loader;
mod mover;
mod reply;
mod scrubber;
mod shard;

pub(crate) use checkpointer::{Work, checkpointer};
pub(crate) use loader::loaders;
pub(crate) use mover::Mover;
pub(crate) use reply::Reply;
pub(crate) use scrubber::{ScrubOptions, Scrubber};
pub(crate) use shard::Shard;

use crate::api::{GroupStatus, Identity, Status, Unavailable};
use crate::backup::session::Backups;
use crate::cold::Standing;
use crate::rooms::Rooms;
use crate::shard::{Input, ShardCore};
use crate::snapshot::Commits;
use crate::storage::Faults;
use highwater_base::{Clock, GroupId, Random};
use highwater_control::View;
use highwater_disk::Disk;
use highwater_store::StoreReader;
use highwater_wal::WriterHandle;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use tokio::sync::{Semaphore, watch};

/// Something that somebody wants to know of the core.
pub(crate) type Question = Box<dyn FnOnce(&ShardCore<Reply>) + Send>;

/// What the shard's thread is sent.
pub(crate) enum Mail {
    Input(Input<Reply>),
    Status(mpsc::Sender<(Vec<GroupStatus>, GroupStatus)>),
    /// Something that is only looked up.
    Ask(Question),
    /// Finish what is under way and end.
    Stop,
}

/// Says loudly that a thread panicked: the node is not ready any more, `failed` tells everyone who asks, and the shard
/// stops taking requests.
pub(crate) struct Loud {
    pub shard: Arc<Shard>,
    pub name: &'static str,
}

impl Drop for Loud {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.shard.abandon(format!("the thread `{}` panicked", self.name));
    }
}

/// What the threads of a node and its handles share.
pub(crate) struct Shared {
    pub identity: Identity,
    pub clock: Arc<dyn Clock>,
    pub opened_ms: u64,
    pub random: Mutex<Box<dyn Random>>,
    pub readers: Vec<Option<StoreReader>>,
    pub writer: WriterHandle,
    pub ingress_bytes: AtomicU64,
    pub ingress_bytes_max: u64,
    /// Memory for what reads answer.
    pub rooms: Rooms,
    pub uncommitted_bytes: AtomicU64,
    pub uncommitted_bytes_max: u64,
    pub live_reads: AtomicU64,
    pub commits: Arc<Commits>,
    pub log_full: AtomicBool,
    /// Bytes of the largest write that the log has room for.
    pub log_room: AtomicU64,
    pub ready: AtomicBool,
    pub closing: AtomicBool,
    pub failed: watch::Sender<Option<String>>,
    /// The groups of the streams and the control group, as they last were.
    pub groups: Mutex<(Vec<GroupStatus>, GroupStatus)>,
    /// Bytes of every bucket that some account has, as the shard last counted them.
    pub stored_bytes: RwLock<BTreeMap<String, u64>>,
    /// Why each group takes no request now; 0 if it does.
    pub refusals: Vec<AtomicU8>,
    pub looks_restored: bool,
    pub history_pending: AtomicBool,
    /// What the control plane knows; absent until it is known to be current.
    pub control: watch::Sender<Option<Arc<View>>>,
    pub storage: Faults,
    pub backups: Backups,
    pub cold: Option<Arc<Standing>>,
    /// Places of reads that wait for the object store.
    pub cold_reads: Semaphore,
    pub disk: Arc<dyn Disk>,
    pub data: PathBuf,
}

/// Why a group takes no request, as a number that is shared without a lock; 0 if it does.
pub(crate) fn refusal_code(refusal: Option<&Unavailable>) -> u8 {
    match refusal {
        None => 0,
        Some(Unavailable::GroupRestarting) => 1,
        Some(Unavailable::HistoryPending) => 2,
        Some(Unavailable::NoLeader { .. }) => 3,
        Some(_) => 4,
    }
}

impl Shared {
    /// Why a group takes no request now, as the shard's thread last said.
    pub fn refusal(&self, group: GroupId) -> Option<Unavailable> {
        match self.refusals.get(group.0 as usize)?.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Unavailable::GroupRestarting),
            2 => Some(Unavailable::HistoryPending),
            3 => Some(Unavailable::NoLeader { group: group.0 }),
            _ => Some(Unavailable::ApplyStopped),
        }
    }

    /// Notes that nothing will be acknowledged any more; the first reason stays.
    pub fn fail(&self, reason: String) {
        self.ready.store(false, Ordering::Relaxed);
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert(reason);
            first
        });
    }

    pub fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// Whether the node serves.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.closing.load(Ordering::Relaxed) && !self.has_failed()
    }

    pub fn status(&self) -> Status {
        let metrics = self.writer.metrics();
        let (groups, control) = self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Status {
            identity: self.identity.clone(),
            uptime_ms: self.clock.monotonic().saturating_sub(self.opened_ms),
            ready: self.is_ready(),
            failed: self.failed.borrow().clone(),
            groups,
            control,
            looks_restored: self.looks_restored,
            history_pending: self.history_pending.load(Ordering::Relaxed),
            wal_bytes: metrics.log_bytes,
            wal_syncs: metrics.syncs,
            wal_batches: metrics.batches,
            ingress_bytes: self.ingress_bytes.load(Ordering::Relaxed),
            uncommitted_bytes: self.uncommitted_bytes.load(Ordering::Relaxed),
            live_reads: self.live_reads.load(Ordering::Relaxed),
            read_bytes_held: self.rooms.held(),
            disk_free_bytes: self.disk.free_bytes(&self.data).ok(),
            scrub: self.storage.status(),
            snapshot_commits: self.commits.running(),
            backups: self.backups.count(),
            object_store: self.cold.as_ref().map(|cold| cold.status()),
        }
    }
}
