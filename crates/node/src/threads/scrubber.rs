//! The thread that reads everything that is stored, slowly, to find damage before somebody needs the bytes.

use super::{Loud, Mail, Reply, Shard, Shared};
use crate::shard::ShardCore;
use crate::storage::{ScrubSource, scrub_group};
use highwater_base::GroupId;
use highwater_store::{IndexSlice, ScrubCursor, ScrubSlice};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Milliseconds after the start before the first scrub, which leaves a start to those who wait for it.
const START_MS: u64 = 10_000;

/// How much slower it reads while requests are served.
const BUSY_FACTOR: u32 = 4;

/// Time that is owed at the most before it is slept: sleeping for microseconds costs more than they are.
const DEBT: Duration = Duration::from_millis(10);

/// How it goes about.
pub(crate) struct ScrubOptions {
    pub bytes_per_second: u64,
    pub interval_ms: u64,
}

/// The thread. It ends soon after its sender is gone.
pub(crate) struct Scrubber {
    pub stop: mpsc::Sender<()>,
    pub thread: JoinHandle<()>,
}

impl Scrubber {
    pub fn spawn(options: ScrubOptions, shared: Arc<Shared>, shard: Arc<Shard>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            let _loud = Loud { shard: Arc::clone(&shard), name: "scrubber" };
            Scrub { options, shard, shared, stopped, debt: Duration::ZERO }.run();
        };
        let thread = std::thread::Builder::new().name("scrubber".to_owned()).spawn(run)?;
        Ok(Self { stop, thread })
    }
}

struct Scrub {
    options: ScrubOptions,
    shard: Arc<Shard>,
    shared: Arc<Shared>,
    stopped: mpsc::Receiver<()>,
    debt: Duration,
}

impl Scrub {
    fn run(mut self) {
        let mut wait_ms = START_MS.min(self.options.interval_ms);
        while self.options.bytes_per_second > 0 && self.sleep(Duration::from_millis(wait_ms)) {
            let began = self.shared.clock.monotonic();
            if !self.pass() {
                return;
            }
            let took_ms = self.shared.clock.monotonic().saturating_sub(began);
            wait_ms = self.options.interval_ms.saturating_sub(took_ms);
        }
    }

    /// One scrub of all groups; `false` if it is to stop.
    ///
    /// It begins with another group after each start, so that a server that is restarted often reaches all of them.
    fn pass(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let (known, wall_ms) = (&shared.storage, || shared.clock.wall().0);
        let groups = shared.readers.len() as u64;
        let first = wall_ms() % groups.max(1);
        known.began(wall_ms());
        for number in (0..groups).map(|number| (number + first) % groups) {
            let Some(Some(reader)) = shared.readers.get(number as usize) else { continue };
            let source = Mailbox(Arc::clone(&self.shard));
            if scrub_group(GroupId(number as u32), reader, &source, &mut |bytes| self.pace(bytes), known).is_none() {
                return false;
            }
        }
        if let Some(pass) = known.ended(wall_ms()) {
            tracing::info!(event = "scrub_ended", bytes = pass.bytes, faults = pass.faults, "a scrub ended");
        }
        true
    }

    /// Waits until so many bytes may be read; `false` if it is to stop.
    fn pace(&mut self, bytes: u64) -> bool {
        let shared = &self.shared;
        let busy =
            shared.ingress_bytes.load(Ordering::Relaxed) > 0 || shared.uncommitted_bytes.load(Ordering::Relaxed) > 0;
        let wait = Duration::from_secs_f64(bytes as f64 / self.options.bytes_per_second as f64);
        self.debt += if busy { wait * BUSY_FACTOR } else { wait };
        if self.debt < DEBT {
            return !matches!(self.stopped.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        }
        let debt = std::mem::take(&mut self.debt);
        self.sleep(debt)
    }

    /// Sleeps; `false` if it is to stop.
    fn sleep(&self, time: Duration) -> bool {
        matches!(self.stopped.recv_timeout(time), Err(mpsc::RecvTimeoutError::Timeout))
    }
}

/// The shard, asked by its mailbox.
struct Mailbox(Arc<Shard>);

impl Mailbox {
    fn ask<R: Send + 'static>(&self, question: impl FnOnce(&ShardCore<Reply>) -> R + Send + 'static) -> Option<R> {
        let (sender, receiver) = mpsc::channel();
        // Whoever asked may have gone; a shard that has ended drops the question.
        self.0.post(Mail::Ask(Box::new(move |core| drop(sender.send(question(core))))));
        receiver.recv().ok()
    }
}

impl ScrubSource for Mailbox {
    fn index(&self, id: GroupId) -> Option<Option<IndexSlice>> {
        self.ask(move |core| core.scrub_index(id))
    }

    fn slice(&self, id: GroupId, from: ScrubCursor) -> Option<Option<ScrubSlice>> {
        self.ask(move |core| core.scrub_slice(id, from))
    }

    fn streams(&self, id: GroupId, objects: Vec<Option<u64>>) -> Option<Vec<Option<(String, bool)>>> {
        let name = move |core: &ShardCore<Reply>, object: u64| core.stream_of(id, object);
        self.ask(move |core| objects.into_iter().map(|object| object.and_then(|object| name(core, object))).collect())
    }
}
