//! A node with its threads.

use crate::api::{GroupState, GroupStatus, Identity, Unavailable};
use crate::cold::Standing;
use crate::config::Config;
use crate::handle::Handle;
use crate::open::{OpenError, Opened, open};
use crate::rooms::Rooms;
use crate::snapshot::Commits;
use crate::storage::Faults;
use crate::threads::{Mail, Mover, Reply, ScrubOptions, Scrubber, Shard, Shared, checkpointer, loaders, refusal_code};
use highwater_base::{Clock, Random};
use highwater_disk::{Disk, File};
use highwater_wal::Writer;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::thread::JoinHandle;
use tokio::sync::{Semaphore, watch};

/// The protocol's release line that this server speaks.
const PROTOCOL: u32 = 11;

/// A running node. Dropping it is a shutdown whose result nobody sees.
pub struct Node {
    handle: Handle,
    shared: Arc<Shared>,
    shard: Arc<Shard>,
    running: Option<Running>,
}

struct Running {
    shard: JoinHandle<()>,
    checkpointer: JoinHandle<()>,
    loaders: Vec<JoinHandle<()>>,
    scrubber: Scrubber,
    mover: Option<Mover>,
    writer: Writer,
    _lock: Arc<dyn File>,
}

impl Node {
    /// Opens a data directory, makes it if it is empty, recovers what it holds, and serves. Blocks until it does.
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        config: Config,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        mut random: Box<dyn Random>,
    ) -> Result<Self, OpenError> {
        let opened = open::<Reply>(&config, &disk, random.as_mut())?;
        let Opened { cluster, lock, log, core, readers, looks_restored, cold } = opened;
        let log_reader = log.reader();
        let writer = Writer::spawn(log);
        let shared = Arc::new(Shared {
            identity: Identity { cluster_id: cluster.cluster_id, node_id: cluster.node.0, protocol: PROTOCOL },
            opened_ms: clock.monotonic(),
            clock,
            random: Mutex::new(random),
            readers,
            writer: writer.handle(),
            ingress_bytes: AtomicU64::new(0),
            ingress_bytes_max: config.ingress_bytes_max,
            rooms: Rooms::new(config.read_bytes_held_max, config.read_room_wait_ms_max),
            uncommitted_bytes: AtomicU64::new(0),
            uncommitted_bytes_max: config.uncommitted_bytes_effective(),
            live_reads: AtomicU64::new(0),
            commits: Commits::new(config.snapshot_commits_max),
            log_full: AtomicBool::new(false),
            log_room: AtomicU64::new(u64::MAX),
            ready: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            failed: watch::Sender::new(None),
            groups: Mutex::new((Vec::new(), GroupStatus::down(cluster.groups, GroupState::Starting))),
            stored_bytes: RwLock::default(),
            refusals: (0..cluster.groups)
                .map(|_| AtomicU8::new(refusal_code(Some(&Unavailable::GroupRestarting))))
                .collect(),
            looks_restored,
            history_pending: AtomicBool::new(core.history_pending()),
            control: watch::Sender::new(None),
            storage: Faults::new(config.scrub_bytes_per_second),
            backups: Default::default(),
            cold: config.cold.as_ref().zip(cold.as_ref()).map(|(options, cold)| {
                Arc::new(Standing::new(options.store.0.place(), cold.life, options.local_bytes_max))
            }),
            cold_reads: Semaphore::new(config.cold_reads_max),
            disk,
            data: config.data.clone(),
        });
        let spawn_failed = |error: io::Error| OpenError::Io { path: config.data.clone(), error };
        let (work, queue) = mpsc::channel();
        let (loads, load_queue) = mpsc::channel();
        let (started, starts) = mpsc::channel();
        let shard = Shard::new(core, Arc::clone(&shared), (work, loads), started);
        let checkpointer = checkpointer(log_reader, queue, Arc::clone(&shard)).map_err(spawn_failed)?;
        let loaders = loaders(load_queue, &shard).map_err(spawn_failed)?;
        let scrub =
            ScrubOptions { bytes_per_second: config.scrub_bytes_per_second, interval_ms: config.scrub_interval_ms };
        let scrubber = Scrubber::spawn(scrub, Arc::clone(&shared), Arc::clone(&shard)).map_err(spawn_failed)?;
        let moving = config.cold.clone().zip(cold).zip(shared.cold.clone());
        let mover = moving.map(|((options, cold), standing)| {
            Mover::spawn(options, cold, standing, Arc::clone(&shared), Arc::clone(&shard))
        });
        let mover = mover.transpose().map_err(spawn_failed)?;
        let of_thread = Arc::clone(&shard);
        let thread = std::thread::Builder::new().name("shard".to_owned()).spawn(move || of_thread.run());
        let running = Some(Running {
            shard: thread.map_err(spawn_failed)?,
            checkpointer,
            loaders,
            scrubber,
            mover,
            writer,
            _lock: lock,
        });
        let handle = Handle::new(Arc::clone(&shared), Arc::clone(&shard));
        let node = Self { handle, shared, shard, running };
        match starts.recv() {
            Ok(Ok(())) => {
                let identity = &node.shared.identity;
                tracing::info!(
                    event = "node_open",
                    cluster = identity.cluster_id,
                    node = identity.node_id,
                    "the node serves"
                );
                Ok(node)
            }
            Ok(Err(reason)) => Err(OpenError::LogFailed(reason)),
            Err(_) => Err(OpenError::LogFailed("the shard's thread ended".to_owned())),
        }
    }

    /// The front ends' way in.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops taking requests, lets what is in flight finish, and closes the log.
    /// # Errors
    /// `LogFailed` if the log or a thread had failed; what was acknowledged is safe.
    pub fn shutdown(mut self) -> Result<(), OpenError> {
        self.stop();
        match self.shared.failed.borrow().clone() {
            None => Ok(()),
            Some(reason) => Err(OpenError::LogFailed(reason)),
        }
    }

    fn stop(&mut self) {
        let Some(Running { shard, checkpointer, loaders, scrubber, mover, writer, _lock }) = self.running.take() else {
            return;
        };
        drop(scrubber.stop);
        if let Some(mover) = mover {
            mover.stop();
        }
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shard.post(Mail::Stop);
        // In this order: the shard owns the work for the checkpointer, and both use the log.
        for thread in [shard, checkpointer, scrubber.thread].into_iter().chain(loaders) {
            if thread.join().is_err() {
                tracing::error!(event = "thread_panicked", "a thread of the node had panicked");
            }
        }
        if let Err(error) = writer.stop() {
            tracing::error!(event = "log_not_closed", %error, "the log was not closed");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("handle", &self.handle).finish_non_exhaustive()
    }
}
