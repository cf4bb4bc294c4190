//! What a handler asks of the node.

use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Millis, Offset};
use highwater_control::View;
use highwater_node::backup::{BackupError, BackupPlan};
use highwater_node::rooms::Asker;
use highwater_node::{
    Admission, ControlAnswer, Durability, Handle, Identity, PartsCommit, ReadAnswer, ReadRequest, Status, Unavailable,
    WriteAnswer,
};
use highwater_stream::{Head, Operation, Outcome, ProducerKey, Refusal, SnapshotHead, SnapshotScope};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::watch;

/// The node, as the handlers see it: [`Handle`] in production, a player of faults in tests.
pub trait Service: Clone + Send + Sync + 'static {
    /// Room for a body, held until its request is answered.
    type Admission: Send;

    /// Whether the bytes of a read hold their part of a budget until they are dropped.
    const READS_HOLD_ROOM: bool = false;

    /// Who answers.
    fn identity(&self) -> &Identity;

    /// Whether the node serves.
    fn ready(&self) -> bool;

    /// The node, for the status page and the metrics; may block for a moment.
    fn status(&self) -> Status;

    /// The wall clock.
    fn wall(&self) -> Millis;

    /// Random bits, good for secrets.
    fn draw(&self) -> u64;

    /// What the control plane knows; absent until it is known to be current.
    fn control_view(&self) -> watch::Receiver<Option<Arc<View>>>;

    /// Changes keys, accounts and plans.
    /// # Errors
    /// Whether it applied, the variants of [`Unavailable`] say.
    fn control(
        &self,
        operation: highwater_control::Operation,
    ) -> impl Future<Output = Result<ControlAnswer, Unavailable>> + Send;

    /// Bytes that these buckets hold together, as they were a moment ago.
    fn stored_bytes(&self, buckets: &[String]) -> u64;

    /// A fresh token for a stream that is about to be created.
    fn issue_incarnation(&self) -> Incarnation;

    /// Whether the group of `path` takes writes, asked before anything of the body is read.
    /// # Errors
    /// `NoLeader`, `GroupRestarting`, `HistoryPending`, `ApplyStopped`: nothing of the request is proposed.
    fn route(&self, path: &str) -> Result<(), Unavailable>;

    /// Room for `bytes` of a body, asked after the early answer and before the body.
    /// # Errors
    /// One of the pressures: nothing of the request is proposed.
    fn admit(&self, bytes: u64) -> Result<Self::Admission, Unavailable>;

    /// The answer to a tokened keyed write as far as its key alone tells it: a repeat, or a key that is taken.
    /// # Errors
    /// Nothing of the request is proposed, whatever they are.
    fn early(
        &self,
        path: &str,
        incarnation: Incarnation,
        key: &ProducerKey,
    ) -> impl Future<Output = Result<Option<WriteAnswer>, Unavailable>> + Send;

    /// Does a write.
    /// # Errors
    /// Whether it applied, the variants of [`Unavailable`] say.
    fn write(
        &self,
        path: String,
        operation: Operation,
        admission: Self::Admission,
    ) -> impl Future<Output = Result<WriteAnswer, Unavailable>> + Send;

    /// What HEAD tells, as of now at the earliest.
    /// # Errors
    /// The group cannot answer now.
    fn head(&self, path: &str) -> impl Future<Output = Result<Result<Head, Refusal>, Unavailable>> + Send;

    /// What a publish of a snapshot of this name is answered with before its bytes are looked at; nothing if they decide.
    /// # Errors
    /// The group cannot answer now. Nothing of the request is proposed.
    fn check_publish(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        named: SnapshotHead,
    ) -> impl Future<Output = Result<Result<Option<Outcome>, Refusal>, Unavailable>> + Send;

    /// Publishes a snapshot of staged parts.
    /// # Errors
    /// Whether it applied, the variants of [`Unavailable`] say.
    fn commit_parts(
        &self,
        commit: PartsCommit,
    ) -> impl Future<Output = Result<Result<WriteAnswer, Refusal>, Unavailable>> + Send;

    /// Removes the staged parts of a stream.
    /// # Errors
    /// Whether it applied, the variants of [`Unavailable`] say.
    fn discard_parts(
        &self,
        path: String,
        incarnation: Option<Incarnation>,
    ) -> impl Future<Output = Result<WriteAnswer, Unavailable>> + Send;

    /// The latest snapshot, if it is the one at `offset`.
    /// # Errors
    /// The group cannot answer now.
    fn snapshot(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        offset: Offset,
    ) -> impl Future<Output = Result<Result<SnapshotScope, Refusal>, Unavailable>> + Send;

    /// Bytes of a part of a snapshot: at least one and at most those of `range`; none if the part is gone.
    /// # Errors
    /// The group cannot answer now, or its disk fails.
    fn read_part(
        &self,
        path: &str,
        object: u64,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Option<Bytes>, Unavailable>> + Send;

    /// Reads bytes, and waits for some at the tail if the request says so.
    /// # Errors
    /// The group cannot answer now, or as many readers wait as may.
    fn read(
        &self,
        request: ReadRequest,
    ) -> impl Future<Output = Result<Result<ReadAnswer, Refusal>, Unavailable>> + Send;

    /// Begins a read whose answer may be long: its `body` may hold only the first part of it, of about `bytes`, while all
    /// else is about the whole. What follows is read by further calls. The bytes take room of the asker's share.
    /// # Errors
    /// As [`Self::read`].
    fn read_begun(
        &self,
        request: ReadRequest,
        _bytes: u64,
        _asker: Asker,
    ) -> impl Future<Output = Result<Result<ReadAnswer, Refusal>, Unavailable>> + Send {
        self.read(request)
    }

    /// Begins a backup.
    /// # Errors
    /// A group that has no sound checkpoint now, or too many backups.
    fn begin_backup(&self, _except_damaged: bool) -> impl Future<Output = Result<BackupPlan, BackupError>> + Send {
        async { Err(BackupError::Unknown) }
    }

    /// Reads a file of a backup by range; blocks on the disk.
    /// # Errors
    /// No such backup or file, or the disk's.
    fn read_backup(&self, _id: &str, _path: &str, _offset: u64, _length: u64) -> Result<Bytes, BackupError> {
        Err(BackupError::Unknown)
    }

    /// The digest of a file of a backup; blocks on the disk.
    /// # Errors
    /// As [`Self::read_backup`].
    fn digest_backup(&self, _id: &str, _path: &str) -> Result<Digest, BackupError> {
        Err(BackupError::Unknown)
    }

    /// Ends a backup; whether there was one. Blocks on the disk.
    fn end_backup(&self, _id: &str) -> bool {
        false
    }
}

impl Service for Handle {
    type Admission = Admission;

    const READS_HOLD_ROOM: bool = true;

    fn identity(&self) -> &Identity {
        Self::identity(self)
    }

    fn ready(&self) -> bool {
        Self::ready(self)
    }

    fn status(&self) -> Status {
        Self::status(self)
    }

    fn wall(&self) -> Millis {
        Self::wall(self)
    }

    fn draw(&self) -> u64 {
        Self::draw(self)
    }

    fn control_view(&self) -> watch::Receiver<Option<Arc<View>>> {
        Self::control_view(self)
    }

    async fn control(&self, operation: highwater_control::Operation) -> Result<ControlAnswer, Unavailable> {
        Self::control(self, operation).await
    }

    fn stored_bytes(&self, buckets: &[String]) -> u64 {
        Self::stored_bytes(self, buckets)
    }

    fn issue_incarnation(&self) -> Incarnation {
        Self::issue_incarnation(self)
    }

    fn route(&self, path: &str) -> Result<(), Unavailable> {
        Self::route(self, path)
    }

    fn admit(&self, bytes: u64) -> Result<Admission, Unavailable> {
        Self::admit(self, bytes)
    }

    async fn early(
        &self,
        path: &str,
        incarnation: Incarnation,
        key: &ProducerKey,
    ) -> Result<Option<WriteAnswer>, Unavailable> {
        Self::early(self, path, incarnation, key).await
    }

    async fn write(
        &self,
        path: String,
        operation: Operation,
        admission: Admission,
    ) -> Result<WriteAnswer, Unavailable> {
        self.write_admitted(path, operation, admission).await
    }

    async fn head(&self, path: &str) -> Result<Result<Head, Refusal>, Unavailable> {
        Self::head(self, path).await
    }

    async fn check_publish(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        named: SnapshotHead,
    ) -> Result<Result<Option<Outcome>, Refusal>, Unavailable> {
        Self::check_publish(self, path, incarnation, named).await
    }

    async fn commit_parts(&self, commit: PartsCommit) -> Result<Result<WriteAnswer, Refusal>, Unavailable> {
        Self::commit_parts(self, commit).await
    }

    async fn discard_parts(&self, path: String, incarnation: Option<Incarnation>) -> Result<WriteAnswer, Unavailable> {
        Self::discard_parts(self, path, incarnation).await
    }

    async fn snapshot(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        offset: Offset,
    ) -> Result<Result<SnapshotScope, Refusal>, Unavailable> {
        Self::snapshot(self, path, incarnation, offset).await
    }

    async fn read_part(&self, path: &str, object: u64, range: Range<u64>) -> Result<Option<Bytes>, Unavailable> {
        Self::read_part(self, path, object, range).await
    }

    async fn read(&self, request: ReadRequest) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        Self::read(self, request).await
    }

    async fn read_begun(
        &self,
        request: ReadRequest,
        bytes: u64,
        asker: Asker,
    ) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        Self::read_begun(self, request, bytes, asker).await
    }

    async fn begin_backup(&self, except_damaged: bool) -> Result<BackupPlan, BackupError> {
        Self::begin_backup(self, except_damaged).await
    }

    fn read_backup(&self, id: &str, path: &str, offset: u64, length: u64) -> Result<Bytes, BackupError> {
        Self::read_backup(self, id, path, offset, length)
    }

    fn digest_backup(&self, id: &str, path: &str) -> Result<Digest, BackupError> {
        Self::digest_backup(self, id, path)
    }

    fn end_backup(&self, id: &str) -> bool {
        Self::end_backup(self, id)
    }
}

/// What holds now of a snapshot that was published before: it was applied, so every voter of a group of one has it on
/// disk.
pub(crate) const APPLIED_EARLIER: Durability = Durability { synced: 1, of: 1 };
