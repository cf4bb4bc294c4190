//! The front ends' way in.

use crate::api::{ControlAnswer, Identity, ReadAnswer, ReadRequest, Status, Unavailable, WriteAnswer};
use crate::json;
use crate::rooms::Asker;
use crate::route::group_of;
use crate::shard::{Input, Proposal, ReadLocated};
use crate::storage::StorageFault;
use crate::threads::{Mail, Reply, Shard, Shared};
use bytes::BytesMut;
use highwater_base::{GroupId, Incarnation, Millis, Offset, limits};
use highwater_control::View;
use highwater_store::{Pin, ReadError, ReadPlan};
use highwater_stream::{Head, Operation, ProducerKey, ReadFrom, Refusal};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use tokio::sync::{SemaphorePermit, oneshot, watch};

/// Bytes of a read that are fetched by the task that asks; more goes to the threads for blocking work.
///
/// A read of this size from the page cache takes less time than handing it over and back.
const FETCH_INLINE_BYTES_MAX: u64 = 16 << 10;

/// How long a read waits for a place among those that wait for the object store.
const COLD_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Times that a read is located anew because its bytes moved meanwhile; each time means that a whole checkpoint ended
/// between locating and fetching.
pub(crate) const RELOCATIONS_MAX: u32 = 16;

/// Bytes of a body that a request may hold in memory, until this is dropped.
pub struct Admission {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.shared.ingress_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The front ends' way to a node. Cheap to clone. It outlives the node, and then refuses with `GroupRestarting`.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    shard: Arc<Shard>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("identity", self.identity()).finish_non_exhaustive()
    }
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, shard: Arc<Shard>) -> Self {
        Self { shared, shard }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Who this server is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// A token for a stream that is about to be created.
    #[must_use]
    pub fn issue_incarnation(&self) -> Incarnation {
        let mut random = self.shared.random.lock().unwrap_or_else(PoisonError::into_inner);
        Incarnation::issue(random.as_mut())
    }

    /// Random bits of the operating system's, good for secrets in production.
    #[must_use]
    pub fn draw(&self) -> u64 {
        self.shared.random.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// The node's wall clock, which its commands carry.
    #[must_use]
    pub fn wall(&self) -> Millis {
        self.shared.clock.wall()
    }

    /// What the control plane knows: every key, account and plan. Absent until the control group is known to be current;
    /// after an acknowledged change never older than that.
    #[must_use]
    pub fn control_view(&self) -> watch::Receiver<Option<Arc<View>>> {
        self.shared.control.subscribe()
    }

    /// Bytes that these buckets hold together, as they were a moment ago.
    #[must_use]
    pub fn stored_bytes(&self, buckets: &[String]) -> u64 {
        let stored = self.shared.stored_bytes.read().unwrap_or_else(PoisonError::into_inner);
        buckets.iter().filter_map(|bucket| stored.get(bucket)).sum()
    }

    /// Orders a change of the control plane and applies it. The node's clock gives it its time.
    /// # Errors
    /// [`Unavailable`]: whether it applied, its variants say.
    pub async fn control(&self, operation: highwater_control::Operation) -> Result<ControlAnswer, Unavailable> {
        let proposal = Proposal::control(self.shared.clock.wall(), operation);
        let (sender, receiver) = oneshot::channel();
        self.send(Input::Write { token: Reply::Control(sender), proposal })?;
        receiver.await.unwrap_or(Err(Unavailable::OutcomeUnknown { leadership_lost: false }))
    }

    /// Asks for room for a body of `bytes`, before it is read. Hand the result to [`Self::write_admitted`].
    /// # Errors
    /// What a write would be refused with now: `GroupRestarting`, `WalDiskPressure`, `RaftUncommittedBackpressure`,
    /// `IngressBodyBytesLimit`.
    pub fn admit(&self, bytes: u64) -> Result<Admission, Unavailable> {
        let shared = &self.shared;
        if shared.closing.load(Ordering::Relaxed) {
            return Err(Unavailable::GroupRestarting);
        }
        // One without a body may be a delete, which makes room: that is judged where it is known.
        let full = shared.log_full.load(Ordering::Relaxed) || bytes > shared.log_room.load(Ordering::Relaxed);
        if bytes > 0 && full {
            return Err(Unavailable::WalDiskPressure);
        }
        let uncommitted = shared.uncommitted_bytes.load(Ordering::Relaxed);
        if uncommitted > 0 && uncommitted.saturating_add(bytes) > shared.uncommitted_bytes_max {
            return Err(Unavailable::RaftUncommittedBackpressure);
        }
        let held = shared.ingress_bytes.fetch_add(bytes, Ordering::Relaxed);
        let admission = Admission { shared: Arc::clone(shared), bytes };
        if held.saturating_add(bytes) > shared.ingress_bytes_max {
            return Err(Unavailable::IngressBodyBytesLimit);
        }
        Ok(admission)
    }

    /// Orders a write and applies it. The node's clock gives it its time.
    /// # Errors
    /// [`Unavailable`]: whether it applied, its variants say.
    pub async fn write(&self, path: String, operation: Operation) -> Result<WriteAnswer, Unavailable> {
        let admission = self.admit(operation.body().len() as u64)?;
        self.write_admitted(path, operation, admission).await
    }

    /// As [`Self::write`], for a body that was admitted before it was read.
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_admitted(
        &self,
        path: String,
        operation: Operation,
        admission: Admission,
    ) -> Result<WriteAnswer, Unavailable> {
        let proposal = Proposal::new(self.shared.clock.wall(), path, operation);
        let (sender, receiver) = oneshot::channel();
        self.send(Input::Write { token: Reply::Write(sender, admission), proposal })?;
        // A channel that closed without an answer: the node went away with the write inside.
        receiver.await.unwrap_or(Err(Unavailable::OutcomeUnknown { leadership_lost: false }))
    }

    /// What `HEAD` tells, as of now at the earliest (linearizable).
    /// # Errors
    /// `NoLeader` or that of a stopped group.
    pub async fn head(&self, path: &str) -> Result<Result<Head, Refusal>, Unavailable> {
        let (sender, receiver) = oneshot::channel();
        let (path, at) = (path.to_owned(), self.shared.clock.wall());
        self.send(Input::Head { token: Reply::Head(sender), path, at })?;
        receiver.await.unwrap_or(Err(Unavailable::GroupRestarting))
    }

    /// Reads bytes, and waits for them at the tail if the request says so. Those of a JSON stream end behind a message.
    /// # Errors
    /// `NoLeader`, `LiveReadsExhausted`, or that of a stopped group.
    pub async fn read(&self, request: ReadRequest) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        self.read_begun(request, u64::MAX, Asker::NOBODY).await
    }

    /// Begins a read: as [`Self::read`], but of an answer of more than `bytes` about so many are fetched, and not one of a
    /// JSON stream, whose end depends on its bytes. All else of the answer is about the whole; `body` holds less than lies
    /// between `start` and `next`, and the rest is read by further calls from where it ends.
    ///
    /// The bytes take room of the asker's share. Where damage is known, everything is fetched before anything is answered,
    /// so that the answer can still name it.
    /// # Errors
    /// As [`Self::read`].
    pub async fn read_begun(
        &self,
        request: ReadRequest,
        bytes: u64,
        asker: Asker,
    ) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        let path = request.path.clone();
        match self.read_piece(request, bytes, asker).await? {
            Ok(piece) if json::is_json(&piece.content_type) => self.whole_messages(path, piece, asker).await,
            other => Ok(other),
        }
    }

    /// Cuts an answer behind its last message, or reads the rest of the one message that it begins.
    async fn whole_messages(
        &self,
        path: String,
        mut piece: ReadAnswer,
        asker: Asker,
    ) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        if !piece.boundary {
            return Ok(Err(Refusal::NotJsonBoundary));
        }
        if json::cut(&mut piece) {
            return Ok(Ok(piece));
        }
        let mut message = BytesMut::from(piece.body);
        loop {
            let request = ReadRequest {
                path: path.clone(),
                incarnation: Some(piece.incarnation),
                from: ReadFrom::At(piece.next),
                length_max: limits::READ_BYTES_MAX,
                leader: false,
                wait_ms: None,
            };
            let more = match self.read_piece(request, u64::MAX, asker).await? {
                Ok(more) => more,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let taken = json::first_bytes(&more.body).unwrap_or(more.body.len());
            message.extend_from_slice(&more.body[..taken]);
            piece.next = Offset(more.start.0 + taken as u64);
            if message.last() == Some(&json::BOUNDARY) {
                let last = more.next == piece.next;
                piece.up_to_date = last && more.up_to_date;
                piece.closed = last && more.closed;
                piece.body = message.freeze();
                return Ok(Ok(piece));
            }
            if taken == 0 || message.len() as u64 > json::MESSAGE_BYTES_MAX {
                return Err(Unavailable::Internal(format!("the message at offset {} has no end", piece.start.0)));
            }
        }
    }

    async fn read_piece(
        &self,
        mut request: ReadRequest,
        bytes: u64,
        asker: Asker,
    ) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        for _ in 0..RELOCATIONS_MAX {
            let (sender, receiver) = oneshot::channel();
            self.send(Input::Read { token: Reply::Read(sender), request: request.clone() })?;
            let mut located = match receiver.await.unwrap_or(Err(Unavailable::GroupRestarting))? {
                Ok(located) => located,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if let Some(plan) = located.plan.as_mut().filter(|plan| plan.length() > bytes)
                && !json::is_json(&located.content_type)
                && !self.shared.storage.is_damaged(&request.path)
            {
                plan.cut(bytes);
            }
            // What a wait found, or the tail as it was then, is what is located again.
            if request.wait_ms.take().is_some() {
                request.incarnation = Some(located.incarnation);
            }
            request.from = ReadFrom::At(located.start);
            let (group, start, next) = (located.group.0, located.start.0, located.next.0);
            let memory = located.plan.as_ref().map_or(0, highwater_store::ReadPlan::memory);
            let place = self.cold_place(located.plan.as_ref(), located.group).await?;
            let room = self.shared.rooms.wait(memory, asker).await.ok_or(Unavailable::ReadBytesExhausted)?;
            match self.fetch(located, place.is_some()).await {
                Ok(answer) => return Ok(Ok(ReadAnswer { body: room.around(answer.body), ..answer })),
                Err(ReadError::Moved) => {}
                Err(ReadError::Damaged { path, position, fault }) => {
                    let why = format!("{}, byte {position}: {fault}", path.display());
                    self.shared.storage.note(StorageFault {
                        group,
                        file: path.display().to_string(),
                        position,
                        what: fault.to_string(),
                        stream: Some(request.path),
                        snapshot: false,
                        from: Some(start),
                        to: Some(next),
                    });
                    return Err(Unavailable::StoredBytesDamaged(why));
                }
                Err(ReadError::LogDamaged(why)) => {
                    self.note_log_damage(group, &why, request.path, false, start..next);
                    return Err(Unavailable::StoredBytesDamaged(why));
                }
                Err(error) => return Err(self.read_failed(&error)),
            }
        }
        Err(Unavailable::Internal("the bytes moved as often as they were located".to_owned()))
    }

    /// Puts damage of the log that a read met on the list of what is known. The group's next checkpoint meets it too.
    pub(crate) fn note_log_damage(&self, group: u32, why: &str, stream: String, snapshot: bool, bytes: Range<u64>) {
        self.shared.storage.note(StorageFault {
            group,
            file: self.shared.data.join("wal").display().to_string(),
            position: 0,
            what: why.to_owned(),
            stream: Some(stream),
            snapshot,
            from: Some(bytes.start),
            to: Some(bytes.end),
        });
    }

    async fn fetch(&self, located: ReadLocated, reaches_out: bool) -> Result<ReadAnswer, ReadError> {
        let reader = self.shared.readers.get(located.group.0 as usize).cloned().flatten();
        let short = located.plan.as_ref().is_none_or(|plan| plan.length() <= FETCH_INLINE_BYTES_MAX);
        if short && !reaches_out {
            return located.fetch(reader.as_ref());
        }
        let fetched = tokio::task::spawn_blocking(move || located.fetch(reader.as_ref())).await;
        fetched.unwrap_or_else(|error| Err(ReadError::Log(error.to_string())))
    }

    /// A place among those that wait for the object store, if this read does: it may take long, and neither its memory nor
    /// its thread may be missing to those that read the disk.
    pub(crate) async fn cold_place(
        &self,
        plan: Option<&ReadPlan>,
        group: GroupId,
    ) -> Result<Option<SemaphorePermit<'_>>, Unavailable> {
        let shared = &self.shared;
        let reader = shared.readers.get(group.0 as usize).and_then(Option::as_ref);
        let reaches_out = plan.zip(reader).is_some_and(|(plan, reader)| reader.reaches_out(plan));
        if !reaches_out {
            return Ok(None);
        }
        match tokio::time::timeout(COLD_PATIENCE, shared.cold_reads.acquire()).await {
            Ok(Ok(place)) => Ok(Some(place)),
            Ok(Err(_)) | Err(_) => Err(Unavailable::ColdReadsExhausted),
        }
    }

    /// What a failed read is answered with.
    pub(crate) fn read_failed(&self, error: &ReadError) -> Unavailable {
        match error {
            ReadError::Unreachable { object, why } => {
                tracing::debug!(object, why, "a read of the object store failed");
                if let Some(cold) = &self.shared.cold {
                    cold.read_failed(&format!("{object}: {why}"));
                }
                Unavailable::ColdStoreUnreachable
            }
            other => Unavailable::Internal(other.to_string()),
        }
    }

    /// Whether the group of a stream takes requests, as the shard's thread last said: asked before a body is read, so
    /// that nobody sends one in vain.
    /// # Errors
    /// `NoLeader`, `GroupRestarting`, `HistoryPending`, `ApplyStopped`; nothing was proposed.
    pub fn route(&self, path: &str) -> Result<(), Unavailable> {
        let shared = &self.shared;
        if shared.closing.load(Ordering::Relaxed) {
            return Err(Unavailable::GroupRestarting);
        }
        if shared.has_failed() {
            return Err(Unavailable::ApplyStopped);
        }
        let groups = u32::try_from(shared.refusals.len()).unwrap_or(u32::MAX);
        shared.refusal(group_of(path, groups)).map_or(Ok(()), Err)
    }

    /// The answer to a tokened keyed write that its head alone proves: a repeat or a key conflict.
    /// # Errors
    /// `NoLeader` or that of a stopped group.
    pub async fn early(
        &self,
        path: &str,
        incarnation: Incarnation,
        key: &ProducerKey,
    ) -> Result<Option<WriteAnswer>, Unavailable> {
        let (sender, receiver) = oneshot::channel();
        let (path, key) = (path.to_owned(), key.clone());
        self.send(Input::Early { token: Reply::Early(sender), path, incarnation, key })?;
        receiver.await.unwrap_or(Err(Unavailable::GroupRestarting))
    }

    /// Makes a checkpoint of a group that holds everything acknowledged before this call, and keeps its files until the
    /// result is dropped.
    /// # Errors
    /// That of a stopped or starting group; `Internal` if the checkpoint failed.
    pub async fn pin(&self, group: u32) -> Result<Pin, Unavailable> {
        let (sender, receiver) = oneshot::channel();
        self.send(Input::Pin { token: Reply::Pin(sender), group: GroupId(group) })?;
        receiver.await.unwrap_or(Err(Unavailable::GroupRestarting))
    }

    /// The node, for the status page. Asks the shard and waits for it for a moment; if it is stuck,
    /// what it last said.
    #[must_use]
    pub fn status(&self) -> Status {
        let (sender, receiver) = mpsc::channel();
        self.shard.post(Mail::Status(sender));
        if let Ok(groups) = receiver.recv_timeout(std::time::Duration::from_millis(500)) {
            *self.shared.groups.lock().unwrap_or_else(PoisonError::into_inner) = groups;
        }
        self.shared.status()
    }

    /// Whether the shard answers within `patience`; blocks for that long at the most.
    #[must_use]
    pub fn answers(&self, patience: std::time::Duration) -> bool {
        let (sender, receiver) = mpsc::channel();
        self.shard.post(Mail::Status(sender));
        receiver.recv_timeout(patience).is_ok()
    }

    /// Whether the node serves.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.shared.is_ready()
    }

    /// Waits until the node has stopped for good because its log or one of its threads failed, and says why. The process should end then:
    /// only a restart, which recovers the log, can serve again.
    pub async fn failed(&self) -> String {
        let mut failed = self.shared.failed.subscribe();
        let reason = failed.wait_for(Option::is_some).await.map(|reason| reason.clone());
        match reason {
            Ok(Some(reason)) => reason,
            _ => std::future::pending().await,
        }
    }

    pub(crate) fn send(&self, input: Input<Reply>) -> Result<(), Unavailable> {
        if self.shared.closing.load(Ordering::Relaxed) {
            return Err(Unavailable::GroupRestarting);
        }
        if self.shared.has_failed() {
            return Err(Unavailable::ApplyStopped);
        }
        self.shard.post(Mail::Input(input));
        Ok(())
    }
}
