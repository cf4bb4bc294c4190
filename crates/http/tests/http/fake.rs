//! A node in memory: the real machine of streams, bytes in a map, and faults on demand.

use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Millis, Offset};
use highwater_control::View;
use highwater_http::Service;
use highwater_node::json;
use highwater_node::{
    ControlAnswer, Durability, GroupState, GroupStatus, HotStatus, Identity, PartsCommit, ReadAnswer, ReadRequest,
    SnapshotHasher, Status, Unavailable, WriteAnswer,
};
use highwater_stream::machine::Options;
use highwater_stream::{
    Command, Effect, Head, Machine, Operation, Outcome, ProducerKey, PublishSnapshot, ReadScope, Refusal, SnapshotHead,
    SnapshotScope, SnapshotSource,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Where a request meets the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Route,
    Early,
    Admit,
    Write,
    Head,
    Read,
    Publish,
    Commit,
    Discard,
    Snapshot,
    Part,
}

#[derive(Clone)]
pub struct Fake(Arc<Inner>);

struct Inner {
    identity: Identity,
    state: Mutex<State>,
    changed: Notify,
    control: Mutex<highwater_control::Machine>,
    view: watch::Sender<Option<Arc<View>>>,
}

struct State {
    machine: Machine,
    bytes: BTreeMap<u64, Vec<u8>>,
    now: Millis,
    token: u64,
    faults: BTreeMap<Stage, Unavailable>,
    /// What the next write, head or read is refused with in place of the machine's answer.
    refusal: Option<Refusal>,
    seen: Vec<Stage>,
    /// Readers that wait.
    waiting: usize,
    /// Bytes of buckets.
    stored: BTreeMap<String, u64>,
    drawn: u64,
}

/// Counts a reader for as long as it waits, however that ends.
struct Waiting(Fake);

impl Waiting {
    fn new(fake: &Fake) -> Self {
        fake.state().waiting += 1;
        Self(fake.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Fake {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let identity = Identity { cluster_id: "fake-1".to_owned(), node_id: 1, protocol: 11 };
        let state = State {
            machine: Machine::new(options),
            bytes: BTreeMap::new(),
            now: Millis(1_000),
            token: 1 << 52,
            faults: BTreeMap::new(),
            refusal: None,
            seen: Vec::new(),
            waiting: 0,
            stored: BTreeMap::new(),
            drawn: 0,
        };
        Self(Arc::new(Inner {
            identity,
            state: Mutex::new(state),
            changed: Notify::new(),
            control: Mutex::default(),
            view: watch::Sender::new(Some(Arc::default())),
        }))
    }

    /// Fails every later call of this stage.
    pub fn fail(&self, stage: Stage, unavailable: Unavailable) {
        self.state().faults.insert(stage, unavailable);
    }

    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Answers the next request with a refusal that the machine gives only after events that are not built yet.
    pub fn refuse_next(&self, refusal: Refusal) {
        self.state().refusal = Some(refusal);
    }

    /// Lets time pass.
    pub fn pass(&self, milliseconds: u64) {
        let mut state = self.state();
        state.now = state.now.plus(milliseconds);
    }

    /// Nobody knows the keys.
    pub fn forget_keys(&self) {
        self.0.view.send_replace(None);
    }

    /// Bytes that every bucket holds, as the node would count them.
    pub fn store(&self, bucket: &str, bytes: u64) {
        self.state().stored.insert(bucket.to_owned(), bytes);
    }

    /// Readers that wait.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// The stages that requests reached since the last call.
    pub fn seen(&self) -> Vec<Stage> {
        std::mem::take(&mut self.state().seen)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no test panics inside")
    }

    fn enter(&self, stage: Stage) -> Result<MutexGuard<'_, State>, Unavailable> {
        let mut state = self.state();
        state.seen.push(stage);
        match state.faults.get(&stage) {
            Some(fault) => Err(fault.clone()),
            None => Ok(state),
        }
    }

    fn try_read(&self, request: &ReadRequest) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        let mut state = self.enter(Stage::Read)?;
        if let Some(refusal) = state.refusal.take() {
            return Ok(Err(refusal));
        }
        let scope = state.machine.check_read(&request.path, state.now, request.incarnation, request.from);
        Ok(scope.and_then(|scope| slice(&state, &scope, request.length_max)))
    }
}

fn slice(state: &State, scope: &ReadScope, length_max: u64) -> Result<ReadAnswer, Refusal> {
    let start = scope.start.0;
    let mut end = scope.next.0.min(start.saturating_add(length_max));
    let all = state.bytes.get(&scope.object).map_or(&[][..], Vec::as_slice);
    if json::is_json(&scope.content_type) && start < end {
        if start > 0 && all[start as usize - 1] != json::BOUNDARY {
            return Err(Refusal::NotJsonBoundary);
        }
        let whole = match json::whole_bytes(&all[start as usize..end as usize]) {
            0 => json::first_bytes(&all[start as usize..]).expect("a message ends"),
            whole => whole,
        };
        end = start + whole as u64;
    }
    let bytes = &all[start.min(end) as usize..end as usize];
    let up_to_date = end == scope.next.0;
    Ok(ReadAnswer {
        start: scope.start,
        next: highwater_base::Offset(end),
        incarnation: scope.incarnation,
        content_type: scope.content_type.clone(),
        up_to_date,
        closed: up_to_date && scope.closed,
        body: Bytes::copy_from_slice(bytes),
        boundary: true,
        timed_out: false,
    })
}

impl Service for Fake {
    type Admission = ();

    fn identity(&self) -> &Identity {
        &self.0.identity
    }

    fn ready(&self) -> bool {
        self.state().faults.is_empty()
    }

    fn status(&self) -> Status {
        let ready = self.ready();
        let reason = || GroupState::Damaged("its log cannot be believed".to_owned());
        let group = GroupStatus {
            id: 0,
            leader: Some(1),
            term: 1,
            commit: 3,
            applied: 3,
            voters: vec![1],
            streams: 2,
            store_bytes: 0,
            storage: highwater_node::StorageBytes { dead: 7, ..Default::default() },
            unmoved_bytes: 0,
            hot: HotStatus { streams: 3, ..HotStatus::default() },
            history_events: 0,
            state: if ready { GroupState::Serving } else { reason() },
        };
        Status {
            identity: self.0.identity.clone(),
            uptime_ms: 2_500,
            ready,
            failed: None,
            control: GroupStatus { id: 1, streams: 0, state: GroupState::Serving, ..group.clone() },
            groups: vec![group],
            wal_bytes: 4_096,
            wal_syncs: 7,
            wal_batches: 7,
            ingress_bytes: 0,
            uncommitted_bytes: 0,
            live_reads: 0,
            read_bytes_held: 0,
            disk_free_bytes: Some(1 << 30),
            snapshot_commits: 0,
            backups: 0,
            object_store: Some(highwater_node::ColdStatus::default()),
            scrub: highwater_node::ScrubStatus {
                last: Some(highwater_node::ScrubPass { ended_ms: Some(1_000), ..Default::default() }),
                ..Default::default()
            },
            looks_restored: false,
            history_pending: false,
        }
    }

    fn wall(&self) -> Millis {
        self.state().now
    }

    fn draw(&self) -> u64 {
        let mut state = self.state();
        state.drawn += 1;
        state.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn control_view(&self) -> watch::Receiver<Option<Arc<View>>> {
        self.0.view.subscribe()
    }

    async fn control(&self, operation: highwater_control::Operation) -> Result<ControlAnswer, Unavailable> {
        let command = highwater_control::Command { at: self.wall(), operation };
        let mut machine = self.0.control.lock().expect("no test panics inside");
        let applied = machine.apply(&command);
        self.0.view.send_replace(Some(machine.view()));
        Ok(ControlAnswer { result: applied.result, durability: Durability { synced: 1, of: 1 } })
    }

    fn stored_bytes(&self, buckets: &[String]) -> u64 {
        let state = self.state();
        buckets.iter().filter_map(|bucket| state.stored.get(bucket)).sum()
    }

    fn issue_incarnation(&self) -> Incarnation {
        let mut state = self.state();
        state.token += 1;
        Incarnation::new(state.token).expect("a token in range")
    }

    fn route(&self, _path: &str) -> Result<(), Unavailable> {
        self.enter(Stage::Route).map(drop)
    }

    fn admit(&self, _bytes: u64) -> Result<(), Unavailable> {
        self.enter(Stage::Admit).map(drop)
    }

    async fn early(
        &self,
        path: &str,
        incarnation: Incarnation,
        key: &ProducerKey,
    ) -> Result<Option<WriteAnswer>, Unavailable> {
        let state = self.enter(Stage::Early)?;
        let durability = Durability { synced: 1, of: 1 };
        let early = state.machine.early(path, state.now, incarnation, key);
        Ok(early.map(|result| WriteAnswer { result, durability }))
    }

    async fn write(&self, path: String, operation: Operation, (): ()) -> Result<WriteAnswer, Unavailable> {
        let result = {
            let mut state = self.enter(Stage::Write)?;
            let body = operation.body().clone();
            let command = Command { at: state.now, path, operation };
            let applied = match state.refusal.take() {
                Some(refusal) => highwater_stream::Applied { result: Err(refusal), effects: Vec::new() },
                None => state.machine.apply(&command),
            };
            for effect in applied.effects {
                match effect {
                    Effect::Created { object, .. } | Effect::Append { object, .. } | Effect::Part { object, .. } => {
                        state.bytes.entry(object).or_default().extend_from_slice(&body);
                    }
                    Effect::Removed { object } | Effect::PartRemoved { object } => {
                        state.bytes.remove(&object);
                    }
                    _ => {}
                }
            }
            applied.result
        };
        self.0.changed.notify_waiters();
        Ok(WriteAnswer { result, durability: Durability { synced: 1, of: 1 } })
    }

    async fn check_publish(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        named: SnapshotHead,
    ) -> Result<Result<Option<Outcome>, Refusal>, Unavailable> {
        self.enter(Stage::Publish).map(|state| state.machine.check_publish(path, state.now, incarnation, named))
    }

    async fn commit_parts(&self, commit: PartsCommit) -> Result<Result<WriteAnswer, Refusal>, Unavailable> {
        let digest_matches = {
            let state = self.enter(Stage::Commit)?;
            let parts = state.machine.check_parts(&commit.path, state.now, commit.incarnation, &commit.parts);
            let parts = match parts {
                Ok(parts) => parts,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let mut hasher = SnapshotHasher::new(&commit.content_type);
            parts.iter().for_each(|part| hasher.update(&state.bytes[&part.object]));
            hasher.finish() == commit.head.digest
        };
        let publish = PublishSnapshot {
            incarnation: commit.incarnation,
            offset: commit.head.offset,
            digest: commit.head.digest,
            digest_matches,
            content_type: commit.content_type,
            source: SnapshotSource::Parts(commit.parts),
        };
        self.write(commit.path, Operation::PublishSnapshot(publish), ()).await.map(Ok)
    }

    async fn discard_parts(&self, path: String, incarnation: Option<Incarnation>) -> Result<WriteAnswer, Unavailable> {
        drop(self.enter(Stage::Discard)?);
        self.write(path, Operation::DiscardParts { incarnation }, ()).await
    }

    async fn snapshot(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        offset: Offset,
    ) -> Result<Result<SnapshotScope, Refusal>, Unavailable> {
        self.enter(Stage::Snapshot).map(|state| state.machine.check_snapshot(path, state.now, incarnation, offset))
    }

    async fn read_part(&self, _path: &str, object: u64, range: Range<u64>) -> Result<Option<Bytes>, Unavailable> {
        let state = self.enter(Stage::Part)?;
        let bytes = state.bytes.get(&object).map(|bytes| &bytes[range.start as usize..range.end as usize]);
        Ok(bytes.map(Bytes::copy_from_slice))
    }

    async fn head(&self, path: &str) -> Result<Result<Head, Refusal>, Unavailable> {
        self.enter(Stage::Head).map(|state| state.machine.head(path, state.now))
    }

    async fn read(&self, request: ReadRequest) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        let wait = Duration::from_millis(request.wait_ms.unwrap_or(0));
        let end = tokio::time::Instant::now() + wait;
        let mut request = request;
        let _waiting = Waiting::new(self);
        loop {
            let changed = self.0.changed.notified();
            let answer = self.try_read(&request)?;
            match answer {
                Ok(mut answer) if answer.body.is_empty() && answer.up_to_date && !answer.closed && !wait.is_zero() => {
                    request.from = highwater_stream::ReadFrom::At(answer.start);
                    request.incarnation = Some(answer.incarnation);
                    if tokio::time::timeout_at(end, changed).await.is_err() {
                        answer.timed_out = true;
                        return Ok(Ok(answer));
                    }
                }
                answer => return Ok(answer),
            }
        }
    }
}

/// The spelling of a body's digest.
pub fn digest(body: &[u8]) -> String {
    Digest::of(body).to_string()
}

/// The spelling of a snapshot's digest.
pub fn snapshot_digest(content_type: &str, body: &[u8]) -> String {
    let length = (content_type.len() as u64).to_le_bytes();
    Digest::of(&[&length[..], content_type.as_bytes(), body].concat()).to_string()
}
