//! The status page: what it says, and how it gets out of the process.

use super::{Engine, Layout, StatusParts, StatusSource, StopCode, StopReason, Synchronous, lock};
use crate::engine::open::read_pid;
use highwater_base::Millis;
use highwater_disk::{Disk, OpenMode};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// What waits to be published. The timer's period is the rate limit.
#[derive(Default)]
pub(super) struct Publishing {
    source: Option<StatusSource>,
    changed: bool,
}

/// A published status page, read from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusRead {
    /// The page.
    pub status: Value,
    /// Milliseconds since it was published, by this machine's clock.
    pub age_ms: u64,
    /// The process that published it.
    pub pid: u32,
    /// Whether the process that has the database open lives.
    pub owner_lives: bool,
}

/// Reads the status page that the owner of the database at `path` published.
/// # Errors
/// `NotFound` if there is none; `InvalidData` if it is not JSON; the system's.
pub fn read_status(disk: &dyn Disk, path: &Path) -> io::Result<StatusRead> {
    let layout = Layout::of(path);
    let file = disk.open(&layout.status, OpenMode::Read)?;
    let mut bytes = vec![0; file.length()?.min(STATUS_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let status: Value = serde_json::from_slice(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    let number = |name: &str| status.get(name).and_then(Value::as_u64).unwrap_or(0);
    let age_ms = wall().since(Millis(number("published_ms")));
    let pid = u32::try_from(number("pid")).unwrap_or(0);
    let owner = disk.open(&layout.lock, OpenMode::Read).map_or(0, |lock| read_pid(&*lock));
    Ok(StatusRead { status, age_ms, pid, owner_lives: lives(owner) })
}

/// A page is a few hundred bytes; the limit keeps a strange file from being read whole.
const STATUS_BYTES_MAX: u64 = 64 << 10;

/// Whether a process has this id. Asked of the system, not of the lock, so that looking never disturbs an open.
fn lives(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    if pid <= 0 {
        return false;
    }
    // SAFETY: signal 0 is not delivered; the call only checks that the process exists.
    let sent = unsafe { libc::kill(pid, 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

fn wall() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Engine {
    /// Sets where the replicator's part of the status page comes from. It is called without a lock of the engine.
    pub fn set_status_source(&self, source: StatusSource) {
        lock(&self.status).source = Some(source);
        self.status_changed();
    }

    /// The status page.
    #[must_use]
    pub fn status(&self) -> Value {
        let source: Option<StatusSource> = lock(&self.status).source.as_ref().map(Arc::clone);
        let parts = source.map_or_else(StatusParts::default, |source| source());
        let progress = self.progress();
        let (checkpoint, log_synced) = (lock(&self.meta).checkpoint.position, self.log.synced());
        let role = if parts.role.is_empty() { "unclaimed" } else { &parts.role };
        let mut ownership = parts.ownership;
        match self.stop_reason() {
            Some(StopReason { code: StopCode::Closed, .. }) => {
                ownership = json!({ "state": "closed", "reason": null, "text": null });
            }
            Some(StopReason { code, text }) => {
                ownership = json!({ "state": "stopped", "reason": code.as_str(), "text": text });
            }
            None => {}
        }
        json!({
            "path": self.layout.database.display().to_string(),
            "url": self.binding.url,
            "role": role,
            "epoch": progress.epoch,
            "commits": {
                "logged": progress.last_lsn,
                "acknowledged": progress.acknowledged_lsn,
                "pending": progress.last_lsn.saturating_sub(progress.acknowledged_lsn),
                "pending_bytes": progress.confirmed_end.since(progress.acknowledged),
                "max_pending_bytes": self.options.max_pending_bytes,
            },
            "replication": parts.replication,
            "stream": { "offset": progress.stream_end.0, "incarnation": self.binding.incarnation.get() },
            "ownership": ownership,
            "log": {
                "bytes": self.log.bytes(),
                "unsynced_bytes": progress.confirmed_end.since(log_synced),
                "checkpoint_lag_bytes": progress.confirmed_end.since(checkpoint),
                "synchronous": match self.synchronous() {
                    Synchronous::Off => "off",
                    // SQLite's own default may be FULL, of which no PRAGMA tells.
                    Synchronous::Normal if !self.commits_synced.load(Ordering::Acquire) => "normal",
                    Synchronous::Normal | Synchronous::Full => "full",
                },
            },
        })
    }

    /// Something worth showing changed: the status page is published soon.
    pub fn status_changed(&self) {
        lock(&self.status).changed = true;
        // Without a timer the page is published by a later change, or at close.
        self.schedule();
    }

    /// Publishes the status page if something changed since the last time, and this process still owns it.
    pub(super) fn publish_if_changed(&self) {
        let owned = lock(&self.owned);
        if *owned && std::mem::take(&mut lock(&self.status).changed) {
            self.publish_now();
        }
    }

    pub(super) fn publish_now(&self) {
        // A page that cannot be written, on a full disk say, is replaced by the next one.
        drop(self.publish_status(wall()));
    }

    /// Takes the hook away, and with it what it keeps alive.
    pub(super) fn forget_status_source(&self) {
        lock(&self.status).source = None;
    }

    /// Publishes the status page, as of `at`, by rename.
    /// # Errors
    /// The system's.
    pub fn publish_status(&self, at: Millis) -> io::Result<()> {
        let mut page = self.status();
        page["pid"] = json!(std::process::id());
        page["published_ms"] = json!(at.0);
        let bytes = serde_json::to_vec(&page)?;
        let file = self.disk.open(&self.layout.status_new, OpenMode::Create)?;
        file.set_length(0)?;
        file.write_at(&bytes, 0)?;
        self.disk.rename(&self.layout.status_new, &self.layout.status)
    }
}
