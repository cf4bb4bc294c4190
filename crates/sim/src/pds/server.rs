//! A server of accounts on a simulated disk, driven by hand.

use super::swarm::Swarm;
use crate::server::Death;
use highwater_base::random::SplitMix;
use highwater_base::{Clock, Millis, Random};
use highwater_disk::{SimDisk, create_directory_durably};
use highwater_host::{Boot, Host, OpenError, Options, Pending, Seams, Worker, files};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the server keeps its accounts on its disk.
const DATA: &str = "/data/pds";
/// What stays when the volume goes back.
const WITNESS: &str = "/outside/pds.witness";
/// Wall-clock milliseconds at the start of a run.
const EPOCH_MS: u64 = 1_800_000_000_000;

/// The machine's clocks: they go on by themselves, but a machine's wall clock may be behind.
#[derive(Debug)]
pub struct Clocks {
    true_ms: AtomicU64,
    behind_ms: AtomicU64,
}

impl Clocks {
    /// Milliseconds since 1970, as they are.
    pub fn true_ms(&self) -> u64 {
        self.true_ms.load(Ordering::Relaxed)
    }

    /// Time passes.
    pub fn pass(&self, ms: u64) {
        self.true_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// The machine's wall clock is so far behind from now on.
    pub fn set_behind(&self, ms: u64) {
        self.behind_ms.store(ms, Ordering::Relaxed);
    }

    /// How far it is behind.
    pub fn behind_ms(&self) -> u64 {
        self.behind_ms.load(Ordering::Relaxed)
    }
}

impl Clock for Clocks {
    fn wall(&self) -> Millis {
        Millis(self.true_ms() - self.behind_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> u64 {
        self.true_ms()
    }
}

/// A running process.
pub struct Process {
    /// The handle.
    pub host: Host,
    /// Its writer, which runs when the world says so.
    pub worker: Worker,
}

/// The server and its machine.
pub struct Server {
    /// Its disk.
    pub disk: SimDisk,
    /// Its clocks.
    pub clocks: Arc<Clocks>,
    /// What becomes of the machine when the disk stops at a chosen operation.
    pub death_at_stop: Death,
    /// The process, while it runs.
    pub process: Option<Process>,
    /// Operations of the disk that the last start took.
    pub start_operations: u64,
    options: Options,
    random: SplitMix,
}

impl Server {
    /// A server that was never started.
    #[must_use]
    pub fn new(swarm: &Swarm, seed: u64) -> Self {
        let mut options = Options::new(DATA, "pds.example");
        options.announce = swarm.announce;
        options.retention_seconds = swarm.retention_seconds;
        options.events_bytes_max = swarm.events_bytes_max;
        options.checkpoint_bytes = swarm.checkpoint_bytes;
        options.checkpoint_seconds = swarm.checkpoint_seconds;
        options.memory_bytes_max = swarm.memory_bytes_max;
        options.log.segment_bytes = swarm.segment_bytes;
        options.log.log_bytes_max = swarm.log_segments * swarm.segment_bytes;
        options.log.spare_segments_max = 1;
        options.store.file_bytes_max = 128 << 10;
        options.store.index_delta_bytes_min = 4 << 10;
        options.witness_path = swarm.witness.then(|| WITNESS.into());
        let disk = SimDisk::new(seed);
        if let Some(outside) = options.witness_path.as_ref().and_then(|path| path.parent()) {
            create_directory_durably(&disk, outside).expect("a new disk works");
        }
        Self {
            disk,
            clocks: Arc::new(Clocks { true_ms: AtomicU64::new(EPOCH_MS), behind_ms: AtomicU64::new(0) }),
            death_at_stop: Death::Power,
            process: None,
            start_operations: 0,
            options,
            random: SplitMix::new(seed ^ 0x9d5),
        }
    }

    /// How it is kept.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The process's handle, while it runs.
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.process.as_ref().map(|process| &process.host)
    }

    /// Starts the process.
    /// # Errors
    /// Why it does not start.
    pub fn start(&mut self) -> Result<Boot, OpenError> {
        let seams = Seams {
            disk: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clocks) as Arc<dyn Clock>,
            random: Box::new(SplitMix::new(self.random.next_u64())),
            sealer: None,
        };
        let before = self.disk.operations();
        let (host, worker, boot) = Host::open(self.options.clone(), seams)?;
        self.start_operations = self.disk.operations() - before;
        self.process = Some(Process { host, worker });
        Ok(boot)
    }

    /// The process or the machine dies.
    pub fn die(&mut self, death: Death) {
        self.process = None;
        match death {
            Death::Process => self.disk.crash_process(),
            Death::Power => self.disk.power_loss(),
        }
    }

    /// The process ends in good order; what was handed over is done.
    pub fn stop(&mut self) {
        if let Some(Process { host, worker }) = self.process.take() {
            // Why it did not end in order is seen at the next start.
            drop(worker.stop());
            drop(host);
        }
        self.disk.crash_process();
    }

    /// Lets the writer do what there is to do.
    pub fn pump(&mut self) {
        if let Some(process) = &mut self.process {
            // A checkpoint may hand over turns of its own.
            for _ in 0..3 {
                process.worker.run_once();
            }
        }
    }

    /// Whether the process must end now: the disk stopped, or the log failed.
    #[must_use]
    pub fn must_die(&self) -> Option<Death> {
        let failed = self.host().is_some_and(|host| host.ended().is_some());
        match self.disk.stopped() {
            true => Some(self.death_at_stop),
            false => failed.then_some(Death::Process),
        }
    }

    /// A copy of the files of a server that is down.
    pub fn copy(&mut self) -> SimDisk {
        self.disk.fork(self.random.next_u64())
    }

    /// Puts a copy in the place of the files that there are, but for what lies outside the volume.
    /// # Errors
    /// The disk's.
    pub fn put_back(&mut self, copy: &SimDisk) -> io::Result<()> {
        self.process = None;
        let lost = std::mem::replace(&mut self.disk, copy.fork(self.random.next_u64()));
        self.disk.set_capacity(None);
        let Some(path) = &self.options.witness_path else { return Ok(()) };
        lost.clear_faults();
        match files::read(&lost, path)? {
            Some(witness) => files::replace(&self.disk, path, &witness),
            None => files::remove(&self.disk, path),
        }
    }
}

/// Takes an answer, if it is there.
pub fn taken<T>(pending: &mut Option<Pending<T>>) -> Option<T> {
    let answer = pending.as_mut()?.try_take();
    if answer.is_some() {
        *pending = None;
    }
    answer
}
