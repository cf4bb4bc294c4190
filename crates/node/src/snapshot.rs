//! Snapshots: their bytes pass through this node in pieces and are never whole in memory.

use crate::api::{Unavailable, WriteAnswer};
use crate::handle::{Handle, RELOCATIONS_MAX};
use crate::shard::{Input, SnapshotAbout, SnapshotAnswer, SnapshotQuestion};
use crate::storage::StorageFault;
use crate::threads::Reply;
use bytes::Bytes;
use highwater_base::limits::READ_BYTES_MAX;
use highwater_base::{Digest, Incarnation, Offset};
use highwater_store::ReadError;
use highwater_stream::{
    Operation, Outcome, PublishSnapshot, Refusal, SnapshotHead, SnapshotPart, SnapshotScope, SnapshotSource,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The digest of a snapshot: of the length of its content type, that, and its bytes.
///
/// Source: the stream contract, snapshots.
#[derive(Debug, Clone)]
pub struct SnapshotHasher(blake3::Hasher);

impl SnapshotHasher {
    /// Begins the digest of a snapshot of this content type, normalised.
    #[must_use]
    pub fn new(content_type: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(content_type.len() as u64).to_le_bytes()).update(content_type.as_bytes());
        Self(hasher)
    }

    /// Adds the snapshot's next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything that was added.
    #[must_use]
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

/// A snapshot to publish whose parts are staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsCommit {
    /// The stream.
    pub path: String,
    /// Only of this history of it.
    pub incarnation: Option<Incarnation>,
    /// What names the snapshot.
    pub head: SnapshotHead,
    /// The snapshot's own content type, normalised.
    pub content_type: String,
    /// Its parts, in order.
    pub parts: Vec<Incarnation>,
}

/// The commits that read their parts now: so many at a time, and one of a stream.
#[derive(Debug)]
pub(crate) struct Commits {
    max: usize,
    running: Mutex<BTreeSet<String>>,
}

/// One of them, until it is dropped.
struct Running {
    commits: Arc<Commits>,
    path: String,
}

impl Commits {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, running: Mutex::default() })
    }

    /// How many run.
    pub fn running(&self) -> u64 {
        self.lock().len() as u64
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, path: &str) -> Result<Running, Unavailable> {
        let mut running = self.lock();
        if running.contains(path) {
            return Err(Unavailable::SnapshotCommitInProgress);
        }
        if running.len() >= self.max {
            return Err(Unavailable::SnapshotCommitsBusy);
        }
        running.insert(path.to_owned());
        Ok(Running { commits: Arc::clone(self), path: path.to_owned() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.commits.lock().remove(&self.path);
    }
}

impl Handle {
    async fn ask_snapshot(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        about: SnapshotAbout,
    ) -> Result<Result<SnapshotAnswer, Refusal>, Unavailable> {
        let (sender, receiver) = oneshot::channel();
        let question = SnapshotQuestion { path: path.to_owned(), incarnation, about };
        self.send(Input::Snapshot { token: Reply::Snapshot(sender), question })?;
        receiver.await.unwrap_or(Err(Unavailable::GroupRestarting))
    }

    /// What a publish of this name is answered with before its bytes are looked at; nothing if they decide.
    /// # Errors
    /// `NoLeader` or that of a stopped group.
    pub async fn check_publish(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        named: SnapshotHead,
    ) -> Result<Result<Option<Outcome>, Refusal>, Unavailable> {
        match self.ask_snapshot(path, incarnation, SnapshotAbout::Publish(named)).await? {
            Ok(SnapshotAnswer::Publish(known)) => Ok(Ok(known)),
            Ok(_) => Err(other_kind()),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// The latest snapshot, if it is the one at `offset`.
    /// # Errors
    /// `NoLeader` or that of a stopped group.
    pub async fn snapshot(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        offset: Offset,
    ) -> Result<Result<SnapshotScope, Refusal>, Unavailable> {
        match self.ask_snapshot(path, incarnation, SnapshotAbout::Latest(offset)).await? {
            Ok(SnapshotAnswer::Latest(scope)) => Ok(Ok(scope)),
            Ok(_) => Err(other_kind()),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Bytes of a part of a snapshot of the stream at `path`: those of `range` and at most 8 MiB, or fewer. None if the
    /// part is gone, because another snapshot took the place of its own or the stream was removed.
    /// # Errors
    /// That of a stopped group, `StoredBytesDamaged`, or `Internal` for bytes that cannot be read.
    pub async fn read_part(&self, path: &str, object: u64, range: Range<u64>) -> Result<Option<Bytes>, Unavailable> {
        if range.is_empty() {
            return Ok(Some(Bytes::new()));
        }
        let range = range.start..range.end.min(range.start.saturating_add(READ_BYTES_MAX));
        for _ in 0..RELOCATIONS_MAX {
            let (sender, receiver) = oneshot::channel();
            let token = Reply::Located(sender);
            self.send(Input::Locate { token, path: path.to_owned(), object, range: range.clone() })?;
            let located = receiver.await.unwrap_or(Err(Unavailable::GroupRestarting))?;
            if located.plan.is_empty() {
                return Ok(None);
            }
            let reader = self.shared.readers.get(located.group.0 as usize).cloned().flatten();
            let Some(reader) = reader else {
                return Err(Unavailable::Internal("the group's files were not opened".to_owned()));
            };
            let place = self.cold_place(Some(&located.plan), located.group).await?;
            let group = located.group.0;
            let read = tokio::task::spawn_blocking(move || reader.read(&located.plan)).await;
            drop(place);
            match read.unwrap_or_else(|error| Err(ReadError::Log(error.to_string()))) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(ReadError::Moved) => {}
                Err(ReadError::Damaged { path: file, position, fault }) => {
                    let file = file.display().to_string();
                    let why = format!("{file}, byte {position}: {fault}");
                    self.shared.storage.note(StorageFault {
                        group,
                        file,
                        position,
                        what: fault.to_string(),
                        stream: Some(path.to_owned()),
                        snapshot: true,
                        from: Some(range.start),
                        to: Some(range.end),
                    });
                    return Err(Unavailable::StoredBytesDamaged(why));
                }
                Err(ReadError::LogDamaged(why)) => {
                    self.note_log_damage(group, &why, path.to_owned(), true, range);
                    return Err(Unavailable::StoredBytesDamaged(why));
                }
                Err(error) => return Err(self.read_failed(&error)),
            }
        }
        Err(Unavailable::Internal("the bytes moved as often as they were located".to_owned()))
    }

    /// Publishes a snapshot of staged parts: reads all of them from the disk, compares their digest with the stated one,
    /// and only then proposes it. Goes on to its end even if nobody waits for the answer any more.
    /// # Errors
    /// `SnapshotCommitsBusy` and `SnapshotCommitInProgress` before anything is read; as [`Handle::write`].
    pub async fn commit_parts(&self, commit: PartsCommit) -> Result<Result<WriteAnswer, Refusal>, Unavailable> {
        let running = self.shared.commits.begin(&commit.path)?;
        let handle = self.clone();
        let task = tokio::spawn(async move {
            let answer = handle.commit(commit).await;
            drop(running);
            answer
        });
        task.await.unwrap_or_else(|error| Err(Unavailable::Internal(error.to_string())))
    }

    async fn commit(&self, commit: PartsCommit) -> Result<Result<WriteAnswer, Refusal>, Unavailable> {
        let about = SnapshotAbout::Parts(commit.parts.clone());
        let digest_matches = match self.ask_snapshot(&commit.path, commit.incarnation, about).await? {
            Ok(SnapshotAnswer::Parts(parts)) => self.has_digest(&commit, &parts).await?,
            Ok(_) => return Err(other_kind()),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let publish = PublishSnapshot {
            incarnation: commit.incarnation,
            offset: commit.head.offset,
            digest: commit.head.digest,
            digest_matches,
            content_type: commit.content_type,
            source: SnapshotSource::Parts(commit.parts),
        };
        self.write(commit.path, Operation::PublishSnapshot(publish)).await.map(Ok)
    }

    /// Whether the parts, one behind the other, have the digest that the commit states.
    async fn has_digest(&self, commit: &PartsCommit, parts: &[SnapshotPart]) -> Result<bool, Unavailable> {
        let mut hasher = SnapshotHasher::new(&commit.content_type);
        for part in parts {
            let mut at = 0;
            while at < part.length {
                let Some(bytes) = self.read_part(&commit.path, part.object, at..part.length).await? else {
                    // Gone meanwhile, for good: the apply finds that it is not staged before it looks at this.
                    return Ok(false);
                };
                at += bytes.len() as u64;
                hasher = hashed(hasher, bytes).await?;
            }
        }
        Ok(hasher.finish() == commit.head.digest)
    }

    /// Removes every staged part of a stream that no snapshot took.
    /// # Errors
    /// `SnapshotCommitInProgress` while one is being committed; as [`Handle::write`].
    pub async fn discard_parts(
        &self,
        path: String,
        incarnation: Option<Incarnation>,
    ) -> Result<WriteAnswer, Unavailable> {
        if self.shared.commits.lock().contains(&path) {
            return Err(Unavailable::SnapshotCommitInProgress);
        }
        self.write(path, Operation::DiscardParts { incarnation }).await
    }
}

async fn hashed(mut hasher: SnapshotHasher, bytes: Bytes) -> Result<SnapshotHasher, Unavailable> {
    let work = move || {
        hasher.update(&bytes);
        hasher
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| Unavailable::Internal(error.to_string()))
}

/// The core answers a question in its own kind.
fn other_kind() -> Unavailable {
    Unavailable::Internal("an answer of another kind than its question".to_owned())
}
