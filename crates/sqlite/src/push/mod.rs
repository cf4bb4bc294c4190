//! Sending what an earlier process left pending.

use crate::engine::{Engine, OpenError, OpenOptions};
use crate::replicator::connect::Remote;
use crate::replicator::machine::Snapshot;
use crate::replicator::{Replication, StreamError, SyncedError};
use highwater_client::Options;
use highwater_disk::Disk;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Time between two reports of progress.
const REPORT: Duration = Duration::from_millis(250);

/// What a push did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// Commits that were pending when it began.
    pub commits: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The last commit, which the stream now holds like all before it.
    pub lsn: u64,
    /// Nothing was pending, and bytes that this database did not write follow its last commit in the stream.
    pub followed: bool,
}

/// How far a push is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushProgress {
    /// Bytes that are still pending.
    pub pending_bytes: u64,
    /// What keeps them from getting through, if anything does.
    pub replication: Snapshot,
}

/// Why not everything was pushed. What is pending stays in the log.
#[derive(Debug, Error)]
pub enum PushError {
    /// The database does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its stream cannot be addressed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The time was over, or the database stopped.
    #[error(transparent)]
    Synced(#[from] SyncedError),
    /// The stream ends before what it acknowledged.
    #[error(
        "server_lost_data: {url} ends at offset {found}, and acknowledged everything up to {acknowledged}; keep {path} and \
         its folder: they hold commits that the server no longer has. If it gets its data back, replication goes on by \
         itself; if not, bind a copy of the file to a new stream"
    )]
    Lost {
        /// The database.
        path: String,
        /// Its stream.
        url: String,
        /// Where the stream ends.
        found: u64,
        /// Where it ended when it acknowledged the last commit.
        acknowledged: u64,
    },
    /// The stream is another one, or has another history.
    #[error(
        "recreated: {url} is not as this database knew it: it was deleted and made again, or its server was restored; keep \
         {path} and its folder, compare with `highwater db verify`, and see the runbook of stopped databases"
    )]
    Replaced {
        /// The database.
        path: String,
        /// Its stream.
        url: String,
    },
}

impl PushError {
    /// The code an application can switch on.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Open(error) => error.code(),
            Self::Stream(error) => error.code(),
            Self::Synced(error) => error.code(),
            Self::Lost { .. } => "server_lost_data",
            Self::Replaced { .. } => "recreated",
        }
    }
}

/// Opens the database at `path`, claims its stream, sends what is pending, and waits until the stream holds all of it.
///
/// With nothing pending it claims nothing and fences nobody, but asks the stream whether it holds what it acknowledged.
/// # Errors
/// See [`PushError`].
pub fn push(
    disk: Arc<dyn Disk>,
    path: &Path,
    client: Options,
    timeout: Option<Duration>,
    progress: &mut dyn FnMut(&PushProgress),
) -> Result<Pushed, PushError> {
    let engine = Engine::open(disk, path, OpenOptions::default())?;
    let result = push_open(&engine, client, timeout, progress);
    engine.close();
    result
}

fn push_open(
    engine: &Arc<Engine>,
    client: Options,
    timeout: Option<Duration>,
    progress: &mut dyn FnMut(&PushProgress),
) -> Result<Pushed, PushError> {
    let before = engine.progress();
    let bytes = before.confirmed_end.since(before.acknowledged);
    let commits = before.last_lsn.saturating_sub(before.acknowledged_lsn);
    let started = Instant::now();
    if bytes == 0 {
        let followed = held(engine, client, timeout.map(|timeout| started + timeout))?;
        return Ok(Pushed { commits, bytes, lsn: before.last_lsn, followed });
    }
    let pushed = Pushed { commits, bytes, lsn: before.last_lsn, followed: false };
    let replication = Replication::start(Arc::clone(engine), client)?;
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        match replication.synced(Some(left.map_or(REPORT, |left| left.min(REPORT)))) {
            Err(SyncedError::Timeout { commits, trouble, .. }) => {
                let waited = started.elapsed();
                if timeout.is_some_and(|timeout| waited >= timeout) {
                    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                    return Err(SyncedError::Timeout { commits, waited_ms, trouble }.into());
                }
            }
            result => return Ok(result.map(|()| pushed)?),
        }
        let snapshot = replication.snapshot();
        let pending_bytes = before.confirmed_end.since(snapshot.acknowledged);
        progress(&PushProgress { pending_bytes, replication: snapshot });
    }
}

/// Whether other bytes follow in the stream what it acknowledged; an error if it does not hold that.
fn held(engine: &Engine, client: Options, deadline: Option<Instant>) -> Result<bool, PushError> {
    let (binding, acknowledged) = (engine.binding(), engine.progress().stream_end);
    let (path, url) = (engine.layout().database.display().to_string(), binding.url);
    let remote = Remote::new(&url, client)?.until(deadline);
    let head = remote.look()?.ok_or_else(|| StreamError::NotFound { url: url.clone() })?.head;
    if head.incarnation != binding.incarnation {
        return Err(PushError::Replaced { path, url });
    }
    if head.next < acknowledged {
        return Err(PushError::Lost { path, url, found: head.next.0, acknowledged: acknowledged.0 });
    }
    Ok(head.next > acknowledged)
}
