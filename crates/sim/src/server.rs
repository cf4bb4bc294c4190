//! The server: a whole node on a simulated disk, driven step by step.

use crate::invariants::{Checked, Invariant, hold, violated};
use crate::swarm::Swarm;
use highwater_base::random::SplitMix;
use highwater_base::{Millis, Random};
use highwater_control::View;
use highwater_disk::{Disk, SimDisk};
use highwater_node::restored;
use highwater_node::shard::{Answer, Input, Proposal, ReadLocated, SnapshotQuestion};
use highwater_node::solo::Solo;
use highwater_node::{Config, GroupState, ReadAnswer, ReadRequest};
use highwater_store::ReadError;
use highwater_stream::Operation;
use std::path::Path;
use std::sync::Arc;

mod probe;

/// Where the server keeps its data on its disk.
const DATA: &str = "/data";
/// Wall-clock milliseconds at the start of a run.
const EPOCH_MS: u64 = 1_800_000_000_000;

/// Milliseconds of a tick.
const TICK_MS: u64 = 100;

/// How the server goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The process dies; what it wrote stays in the page cache.
    Process,
    /// The machine dies; what was not synced may be gone.
    Power,
}

/// The server and its machine.
pub struct Server {
    /// Its disk.
    pub disk: SimDisk,
    /// What becomes of the machine when the disk stops at a chosen operation.
    pub death_at_stop: Death,
    config: Config,
    random: SplitMix,
    node: Option<Solo<u64>>,
    inbox: Vec<Input<u64>>,
    fetches: Vec<(u64, ReadRequest, ReadLocated)>,
    /// Answers that came out of the oracle's turns.
    kept: Vec<(u64, Answer)>,
    wall_offset_ms: i64,
    now_ms: u64,
    cluster_id: Option<String>,
}

impl Server {
    /// A server that was never started.
    #[must_use]
    pub fn new(swarm: &Swarm, seed: u64) -> Self {
        let segments = 8;
        let mut config = Config::new(DATA);
        config.groups = swarm.groups;
        config.wal_segment_bytes = swarm.segment_bytes;
        config.wal_bytes_max = segments * swarm.segment_bytes;
        config.checkpoint_bytes = swarm.checkpoint_bytes;
        config.uncommitted_bytes_max = 2 * swarm.segment_bytes;
        config.live_reads_max = 4;
        config.store.file_bytes_max = 128 << 10;
        config.store.index_delta_bytes_min = 4 << 10;
        // In two of three worlds streams leave memory whenever they may.
        config.hot_metadata_bytes = [0, 4 << 10, 64 << 20][(seed % 3) as usize];
        Self {
            disk: SimDisk::new(seed),
            death_at_stop: Death::Power,
            config,
            random: SplitMix::new(seed ^ 0x5e7e),
            node: None,
            inbox: Vec::new(),
            fetches: Vec::new(),
            kept: Vec::new(),
            wall_offset_ms: 0,
            now_ms: 0,
            cluster_id: None,
        }
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.node.is_some()
    }

    /// Whether every group serves.
    #[must_use]
    pub fn serves(&self) -> bool {
        let status = self.node.as_ref().map(|node| node.core().status()).unwrap_or_default();
        !status.is_empty() && status.iter().all(|group| group.state == GroupState::Serving)
    }

    /// The deployment's identity, once it was started.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        self.cluster_id.as_deref().unwrap_or_default()
    }

    /// Starts the process; why it does not start, if so.
    /// # Errors
    /// `RestartAgrees` if it starts and does not believe its own files, or if they became another deployment's.
    pub fn start(&mut self) -> Checked<Result<(), String>> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let wall = self.wall(self.now_ms);
        let node = match Solo::open_at(&self.config, &disk, &mut self.random, wall) {
            Ok(node) => node,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let known = self.cluster_id.get_or_insert_with(|| node.cluster_id().to_owned());
        if known != node.cluster_id() {
            return violated(Invariant::RestartAgrees, format!("the cluster {known} became {}", node.cluster_id()));
        }
        self.node = Some(node);
        let believed = self.check_groups();
        if believed.is_err() && !self.disk.stopped() {
            // A read that failed is no damage: what is on disk must be believed by a machine whose disk works.
            self.die(Death::Process);
            self.disk.clear_faults();
            let again = Solo::open_at(&self.config, &disk, &mut self.random, wall);
            self.node = Some(match again {
                Ok(node) => node,
                Err(error) => return violated(Invariant::RestartAgrees, format!("a second start failed: {error}")),
            });
            self.check_groups()?;
        }
        Ok(Ok(()))
    }

    fn check_groups(&self) -> Checked {
        for group in self.node.as_ref().map(|node| node.core().status()).unwrap_or_default() {
            let sound = matches!(group.state, GroupState::Serving | GroupState::Starting | GroupState::HistoryPending);
            hold(Invariant::RestartAgrees, sound, || format!("group {} is {:?}", group.id, group.state))?;
        }
        Ok(())
    }

    /// The process or the machine dies. What it had taken in and not answered is of unknown outcome.
    pub fn die(&mut self, death: Death) {
        self.node = None;
        self.inbox.clear();
        self.fetches.clear();
        self.kept.clear();
        match death {
            Death::Process => self.disk.crash_process(),
            Death::Power => self.disk.power_loss(),
        }
    }

    /// The process ends in good order.
    pub fn stop(&mut self) {
        if let Some(node) = self.node.take() {
            // A log that had failed says so at its next start too.
            drop(node.close());
        }
        self.die(Death::Process);
    }

    /// Why the process must end now, if so: the disk stopped, or the log failed.
    #[must_use]
    pub fn must_die(&self) -> Option<Death> {
        let node = self.node.as_ref()?;
        match (self.disk.stopped(), node.failed()) {
            (true, _) => Some(self.death_at_stop),
            (false, Some(_)) => Some(Death::Process),
            (false, None) => None,
        }
    }

    /// Lets the wall clock jump.
    pub fn jump(&mut self, milliseconds: i64) {
        self.wall_offset_ms += milliseconds;
        self.at(self.now_ms);
    }

    /// Tells the process what time it is.
    pub fn at(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        let wall = self.wall(now_ms);
        if let Some(node) = &mut self.node {
            node.set_wall(wall);
        }
    }

    /// The wall clock.
    #[must_use]
    pub fn wall(&self, now_ms: u64) -> Millis {
        Millis((EPOCH_MS + now_ms).saturating_add_signed(self.wall_offset_ms))
    }

    /// Takes a write in; it is considered at the next turn.
    pub fn write(&mut self, token: u64, path: String, operation: Operation, now_ms: u64) {
        let proposal = Proposal::new(self.wall(now_ms), path, operation);
        self.inbox.push(Input::Write { token, proposal });
    }

    /// Takes a change of the control plane in.
    pub fn control(&mut self, token: u64, operation: highwater_control::Operation, now_ms: u64) {
        let proposal = Proposal::control(self.wall(now_ms), operation);
        self.inbox.push(Input::Write { token, proposal });
    }

    /// Takes a question about a snapshot in.
    pub fn snapshot(&mut self, token: u64, question: SnapshotQuestion) {
        self.inbox.push(Input::Snapshot { token, question });
    }

    /// Takes in the head of a keyed, tokened write, for an early answer; `false` if it is none.
    pub fn early(&mut self, token: u64, path: &str, operation: &Operation) -> bool {
        let Operation::Append(append) = operation else { return false };
        let (Some(incarnation), Some(key)) = (append.incarnation, append.producer.clone()) else { return false };
        self.inbox.push(Input::Early { token, path: path.to_owned(), incarnation, key });
        true
    }

    /// Takes a head in.
    pub fn head(&mut self, token: u64, path: String, now_ms: u64) {
        self.inbox.push(Input::Head { token, path, at: self.wall(now_ms) });
    }

    /// Takes a read in.
    pub fn read(&mut self, token: u64, request: ReadRequest) {
        self.inbox.push(Input::Read { token, request });
    }

    /// One turn over everything taken in.
    pub fn turn(&mut self) {
        let inputs = std::mem::take(&mut self.inbox);
        if let Some(node) = &mut self.node {
            node.turn(inputs);
        }
    }

    /// Writes and syncs what waits for the log.
    pub fn sync(&mut self) {
        if let Some(node) = &mut self.node {
            node.sync();
        }
    }

    /// What the control plane published last; nothing before it serves.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<View>> {
        self.node.as_ref().and_then(Solo::control)
    }

    /// Bytes that a bucket is said to hold.
    #[must_use]
    pub fn stored_bytes(&self, bucket: &str) -> u64 {
        self.node.as_ref().map_or(0, |node| node.core().stored_bytes(bucket))
    }

    /// Whether there are answers that came out of the oracle's turns.
    #[must_use]
    pub fn answers_wait(&self) -> bool {
        !self.kept.is_empty()
    }

    /// A copy of its files as they are, as a snapshot of the file system would be.
    pub fn copy(&mut self) -> SimDisk {
        self.disk.fork(self.random.next_u64())
    }

    /// Puts a copy of its files in the place of those that it has, and says so as an operator does.
    /// # Errors
    /// `RestoreIsTold` if that cannot be said.
    pub fn restore(&mut self, copy: &SimDisk) -> Checked {
        self.die(Death::Process);
        self.disk = copy.fork(self.random.next_u64());
        self.disk.set_capacity(None);
        match restored::mark(&self.disk, Path::new(DATA), &mut self.random) {
            Ok(_) => Ok(()),
            Err(error) => violated(Invariant::RestoreIsTold, error.to_string()),
        }
    }

    /// Whether something waits for the log.
    #[must_use]
    pub fn sync_waits(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.appends_waiting() > 0)
    }

    /// Runs the checkpoints that wait; returns how many succeeded.
    pub fn checkpoint(&mut self) -> usize {
        self.node.as_mut().map_or(0, Solo::checkpoint)
    }

    /// A tenth of a second passes.
    /// # Errors
    /// `RestartAgrees` if a group stopped.
    pub fn tick(&mut self) -> Checked {
        let wall = self.wall(self.now_ms);
        if let Some(node) = &mut self.node {
            // The node lets its clock go on by as much: it must not be ahead of the world's.
            node.set_wall(Millis(wall.0.saturating_sub(TICK_MS)));
            node.pass(TICK_MS);
        }
        if self.must_die().is_none() { self.check_groups() } else { Ok(()) }
    }

    /// Takes the answers that are ready. The bytes of reads are not fetched yet: see [`Server::fetch`].
    pub fn answers(&mut self) -> Vec<(u64, Answer)> {
        let mut answers = std::mem::take(&mut self.kept);
        answers.extend(self.node.as_mut().map(Solo::answers).unwrap_or_default());
        answers
    }

    /// Keeps a located read until [`Server::fetch`]; other requests go on meanwhile, as they do in production.
    pub fn keep(&mut self, token: u64, request: ReadRequest, located: ReadLocated) {
        self.fetches.push((token, request, located));
    }

    /// Fetches the bytes of one located read; `Err` if it must be asked again or the disk failed.
    pub fn fetch(&mut self, token: u64) -> Option<Result<ReadAnswer, ReadError>> {
        let at = self.fetches.iter().position(|(kept, _, _)| *kept == token)?;
        let (_, request, located) = self.fetches.remove(at);
        let fetched = self.node.as_ref()?.fetch(located);
        if let Err(ReadError::Moved) = fetched {
            self.inbox.push(Input::Read { token, request });
        }
        Some(fetched)
    }
}
