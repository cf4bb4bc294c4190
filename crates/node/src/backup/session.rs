//! A backup being taken from a running node.
//!
//! Every group makes a checkpoint, whose files are then kept as they are until the backup ends; the node goes on. What
//! would have been deleted meanwhile is deleted then. A backup that nobody reads from for a while ends by itself.

use super::{AbsentGroup, PIECE_BYTES};
use crate::api::{GroupState, Unavailable};
use crate::cluster_file;
use crate::handle::Handle;
use crate::threads::Shared;
use bytes::Bytes;
use highwater_base::{Digest, OwnerId};
use highwater_disk::OpenMode;
use highwater_store::Pin;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// Milliseconds without a read after which a backup ends: whoever took it has gone.
pub const IDLE_MS_MAX: u64 = 300_000;

/// Backups at one time: each keeps deleted bytes on the disk.
const BACKUPS_MAX: usize = 4;

/// Why a backup cannot be taken or read.
#[derive(Debug, Error)]
pub enum BackupError {
    /// A group has no sound checkpoint now.
    #[error(
        "{group} cannot be backed up: {why}. A backup holds every group; with --except-damaged it names the damaged ones and leaves them out"
    )]
    Group {
        /// The group.
        group: OwnerId,
        /// Why.
        why: Unavailable,
    },
    /// There is no such backup, or no such file in it; it may have ended for want of reads.
    #[error(
        "there is no such backup, or no such file in it. A backup ends when nothing is read from it for five minutes"
    )]
    Unknown,
    /// As many are under way as may be.
    #[error("four backups are under way already; end one of them, or wait")]
    TooMany,
    /// The system failed.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        error: io::Error,
    },
}

/// One file of a backup being taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Its path in the data directory.
    pub path: String,
    /// Bytes of it that belong to the backup.
    pub bytes: u64,
}

/// What a backup consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupPlan {
    /// Names the backup until it ends.
    pub id: String,
    /// The cluster whose it is.
    pub cluster_id: String,
    /// The node that it is taken from.
    pub node: u64,
    /// Raft groups of streams.
    pub groups: u32,
    /// Milliseconds since the Unix epoch when it began.
    pub began_ms: u64,
    /// Groups that are damaged and left out, as was asked for.
    #[serde(default)]
    pub absent: Vec<AbsentGroup>,
    /// Its files, in order of their paths.
    pub files: Vec<BackupFile>,
}

/// One backup under way.
struct Session {
    cluster: Bytes,
    /// By the store's folder.
    pins: BTreeMap<String, Pin>,
    /// Monotonic milliseconds of the last read.
    used_at: Mutex<u64>,
}

/// The backups under way, by id.
#[derive(Default)]
pub(crate) struct Backups(Mutex<BTreeMap<String, Arc<Session>>>);

impl Backups {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> u64 {
        self.all().len() as u64
    }

    fn get(&self, id: &str, now: u64) -> Option<Arc<Session>> {
        let session = self.all().get(id).cloned()?;
        *session.used_at.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Some(session)
    }

    /// Ends those that nobody has read from for too long; whether any is left.
    fn expire(&self, now: u64) -> bool {
        let mut all = self.all();
        let idle = |session: &Session| {
            now.saturating_sub(*session.used_at.lock().unwrap_or_else(PoisonError::into_inner)) > IDLE_MS_MAX
        };
        let gone: Vec<_> = all.extract_if(.., |_, session| idle(session)).collect();
        let left = !all.is_empty();
        drop(all);
        for (id, _) in &gone {
            tracing::warn!(id, "a backup ended because nothing was read from it");
        }
        left
    }
}

impl Session {
    fn files(&self) -> Vec<BackupFile> {
        let cluster = BackupFile { path: cluster_file::NAME.to_owned(), bytes: self.cluster.len() as u64 };
        let mut files = vec![cluster];
        for (folder, pin) in &self.pins {
            let of_store = pin.files().iter();
            files.extend(of_store.map(|f| BackupFile { path: format!("store/{folder}/{}", f.name), bytes: f.bytes }));
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    fn read(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, BackupError> {
        if path == cluster_file::NAME {
            let from = (offset as usize).min(self.cluster.len());
            let to = self.cluster.len().min(from.saturating_add(length as usize));
            return Ok(self.cluster.slice(from..to));
        }
        let (folder, name) =
            path.strip_prefix("store/").and_then(|rest| rest.split_once('/')).ok_or(BackupError::Unknown)?;
        let pin = self.pins.get(folder).ok_or(BackupError::Unknown)?;
        pin.read(name, offset, length).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if !pin.files().iter().any(|file| file.name == name) => BackupError::Unknown,
            _ => BackupError::Io { path: path.to_owned(), error },
        })
    }
}

impl Handle {
    /// Begins a backup: makes a checkpoint of every group, holding all that was acknowledged before, and keeps its files.
    /// With `except_damaged` groups that are damaged, or have stopped, are left out and named.
    /// # Errors
    /// [`BackupError`], none of them for a backup that was begun.
    pub async fn begin_backup(&self, except_damaged: bool) -> Result<BackupPlan, BackupError> {
        let shared = Arc::clone(self.shared());
        shared.backups.expire(shared.clock.monotonic());
        if shared.backups.count() >= BACKUPS_MAX as u64 {
            return Err(BackupError::TooMany);
        }
        let began_ms = shared.clock.wall().0;
        let groups = u32::try_from(shared.readers.len() - 1).unwrap_or(u32::MAX);
        let (mut pins, mut absent) = (BTreeMap::new(), Vec::new());
        for number in 0..=groups {
            let group = crate::shard::owner(number, groups);
            match self.pin(number).await {
                Ok(pin) => drop(pins.insert(group.to_string(), pin)),
                Err(why @ (Unavailable::ApplyStopped | Unavailable::StoredBytesDamaged(_))) if except_damaged => {
                    let why = self.damage_of(number, &why);
                    tracing::warn!(event = "backup_without_group", %group, why, "a backup leaves out a damaged group");
                    absent.push(AbsentGroup { group: group.to_string(), why });
                }
                Err(why) => return Err(BackupError::Group { group, why }),
            }
        }
        absent.sort_by(|a, b| a.group.cmp(&b.group));
        let cluster = read_cluster(&shared)?;
        let session = Session { cluster, pins, used_at: Mutex::new(shared.clock.monotonic()) };
        let draw = shared.random.lock().unwrap_or_else(PoisonError::into_inner).next_u64();
        let id = format!("{draw:016x}");
        let identity = shared.identity.clone();
        let plan = BackupPlan {
            id: id.clone(),
            cluster_id: identity.cluster_id,
            node: identity.node_id,
            groups,
            began_ms,
            absent,
            files: session.files(),
        };
        let bytes: u64 = plan.files.iter().map(|file| file.bytes).sum();
        tracing::info!(id, bytes, files = plan.files.len(), "a backup began");
        shared.backups.all().insert(id, Arc::new(session));
        self.watch_backups();
        Ok(plan)
    }

    /// What the status says of a group that gives no checkpoint.
    fn damage_of(&self, number: u32, why: &Unavailable) -> String {
        let status = self.status();
        let group = status.groups.iter().chain([&status.control]).find(|group| group.id == number);
        match group.map(|group| &group.state) {
            Some(GroupState::Damaged(reason) | GroupState::Stopped(reason)) => reason.clone(),
            _ => why.to_string(),
        }
    }

    /// Reads up to `length` bytes of a file of a backup; fewer only at its end. Blocks on the disk.
    /// # Errors
    /// `Unknown` or `Io`.
    pub fn read_backup(&self, id: &str, path: &str, offset: u64, length: u64) -> Result<Bytes, BackupError> {
        let shared = self.shared();
        let session = shared.backups.get(id, shared.clock.monotonic()).ok_or(BackupError::Unknown)?;
        session.read(path, offset, length)
    }

    /// The digest of a file of a backup, so that one that was copied before need not be copied again. Blocks on the disk.
    /// # Errors
    /// As [`Self::read_backup`].
    pub fn digest_backup(&self, id: &str, path: &str) -> Result<Digest, BackupError> {
        let mut hasher = blake3::Hasher::new();
        let mut offset = 0;
        loop {
            let bytes = self.read_backup(id, path, offset, PIECE_BYTES)?;
            if bytes.is_empty() {
                return Ok(Digest(*hasher.finalize().as_bytes()));
            }
            hasher.update(&bytes);
            offset += bytes.len() as u64;
        }
    }

    /// Ends a backup; whether there was one. What was kept for it is deleted: blocks on the disk.
    pub fn end_backup(&self, id: &str) -> bool {
        let session = self.shared().backups.all().remove(id);
        if session.is_some() {
            tracing::info!(id, "a backup ended");
        }
        session.is_some()
    }

    /// Sees to it that a backup whose taker has gone ends.
    fn watch_backups(&self) {
        let shared = Arc::downgrade(self.shared());
        let every = Duration::from_millis(IDLE_MS_MAX / 5);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(shared) = shared.upgrade() else { return };
                let now = shared.clock.monotonic();
                let left = tokio::task::spawn_blocking(move || shared.backups.expire(now)).await;
                if !left.unwrap_or(false) {
                    return;
                }
            }
        });
    }
}

fn read_cluster(shared: &Shared) -> Result<Bytes, BackupError> {
    let path = shared.data.join(cluster_file::NAME);
    let read = |path: &Path| {
        let file = shared.disk.open(path, OpenMode::Read)?;
        let mut bytes = vec![0; file.length()?.min(cluster_file::FILE_BYTES_MAX) as usize];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    let failed = |error| BackupError::Io { path: cluster_file::NAME.to_owned(), error };
    read(&path).map(Bytes::from).map_err(failed)
}
