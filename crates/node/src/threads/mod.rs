//! What drives the core in production: one thread for the shard, one for the log, one for checkpoints.
//!
//! A write's way: its task encodes it and posts it to the shard's thread; that thread proposes everything that has
//! come and hands one batch to the log's thread; after the sync the log's thread posts the locations back; the shard's
//! thread applies and wakes the task. Two hops each way, and nobody waits for a clock.

mod checkpointer;
mod reply;
mod shard;

pub(crate) use checkpointer::{Checkpointer, Work};
pub(crate) use reply::Reply;
pub(crate) use shard::{ShardThread, run};

use crate::api::{GroupStatus, Identity, Status};
use crate::shard::Input;
use highwater_base::{Clock, Random};
use highwater_control::View;
use highwater_store::StoreReader;
use highwater_wal::WriterHandle;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use tokio::sync::watch;

/// What the shard's thread is sent.
pub(crate) enum Mail {
    Input(Input<Reply>),
    Status(mpsc::Sender<(Vec<GroupStatus>, GroupStatus)>),
    /// Finish what is under way and end.
    Stop,
}

/// Says loudly that a thread panicked: the node is not ready any more, `failed` tells everyone who asks, and the shard's
/// thread, if it is there, stops taking requests.
pub(crate) struct Loud {
    pub shared: Arc<Shared>,
    pub mail: mpsc::Sender<Mail>,
    pub name: &'static str,
}

impl Drop for Loud {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let reason = format!("the thread `{}` panicked", self.name);
        tracing::error!(reason, "the node failed and stops");
        self.shared.fail(reason.clone());
        // Its own mailbox goes with the shard's thread; of the others it hears here.
        drop(self.mail.send(Mail::Input(Input::Failed(reason))));
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
    pub uncommitted_bytes: AtomicU64,
    pub uncommitted_bytes_max: u64,
    pub live_reads: AtomicU64,
    pub log_full: AtomicBool,
    /// Bytes of the largest write that the log has room for.
    pub log_room: AtomicU64,
    pub ready: AtomicBool,
    pub closing: AtomicBool,
    pub failed: watch::Sender<Option<String>>,
    /// The groups of the streams and the control group, as they last were.
    pub groups: Mutex<(Vec<GroupStatus>, GroupStatus)>,
    /// What the control plane knows; absent until it is known to be current.
    pub control: watch::Sender<Option<Arc<View>>>,
}

impl Shared {
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
            wal_bytes: metrics.log_bytes,
            wal_syncs: metrics.syncs,
            wal_batches: metrics.batches,
            ingress_bytes: self.ingress_bytes.load(Ordering::Relaxed),
            uncommitted_bytes: self.uncommitted_bytes.load(Ordering::Relaxed),
            live_reads: self.live_reads.load(Ordering::Relaxed),
        }
    }
}
