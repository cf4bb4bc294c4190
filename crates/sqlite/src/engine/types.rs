//! The words of the engine's interface.

use highwater_base::{Digest, Incarnation, Offset};
use std::fmt;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// The number of a database page, counted from 1.
pub type PageNumber = u32;

/// A byte position in the endless sequence of record bytes of one log lineage.
///
/// Positions are local: a stream counts its own offsets, and a restored database starts a new lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition(pub u64);

impl LogPosition {
    /// Bytes from `earlier` to `self`, zero if `earlier` lies behind.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The position `length` bytes later. Positions count bytes ever written, so 64 bits do not run out.
    #[must_use]
    pub fn plus(self, length: u64) -> Self {
        Self(self.0.saturating_add(length))
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}", self.0)
    }
}

/// What one transaction changed, apart from the page images themselves.
#[derive(Debug, Clone, Copy)]
pub struct CommitShape<'a> {
    /// Bytes of a page; must be the database's.
    pub page_size: u32,
    /// Pages of the database after the commit, as the commit frame says.
    pub pages_after: u32,
    /// The pages written, ascending, each once. Those past `pages_after` and the lock-byte page are left out of the
    /// record.
    pub pages: &'a [PageNumber],
}

/// How `PRAGMA synchronous` stands, as far as the log is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// No sync of its own accord.
    Off,
    /// A background sync within 200 ms.
    #[default]
    Normal,
    /// One sync per commit.
    Full,
}

/// Why a database serves no more reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopReason {
    /// The reason an application can switch on.
    pub code: StopCode,
    /// What happened and what to do, for a person.
    pub text: String,
}

impl StopReason {
    /// A reason with its explanation.
    #[must_use]
    pub fn new(code: StopCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.text)
    }
}

/// The kinds of [`StopReason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCode {
    /// Another process owns the database's stream.
    Fenced,
    /// The stream's history was rewritten by a restore of the server.
    History,
    /// The stream was deleted and created again.
    Recreated,
    /// The server forgot our epoch and others wrote since.
    Expired,
    /// Something else wrote to the stream.
    ForeignWrite,
    /// The local log cannot be written any more: a write, cut or sync failed and its outcome is unknown.
    LogFailed,
    /// The database was closed, or the process forked.
    Closed,
}

impl StopCode {
    /// All kinds, in the order of their numbers in `meta`.
    pub const ALL: [Self; 7] = [
        Self::Fenced,
        Self::History,
        Self::Recreated,
        Self::Expired,
        Self::ForeignWrite,
        Self::LogFailed,
        Self::Closed,
    ];

    /// The code's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::History => "history",
            Self::Recreated => "recreated",
            Self::Expired => "expired",
            Self::ForeignWrite => "foreign_write",
            Self::LogFailed => "log_failed",
            Self::Closed => "closed",
        }
    }

    /// Whether the reason outlives the process: a reset does, a local failure is looked at anew by recovery.
    #[must_use]
    pub fn is_reset(self) -> bool {
        !matches!(self, Self::LogFailed | Self::Closed)
    }
}

/// Why a write transaction may not start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// As many bytes as allowed wait for the stream.
    #[error(
        "backlog_full: {pending_bytes} bytes of commits wait for the stream, the limit is {max_pending_bytes}; reads \
         go on, and writes as soon as replication catches up (highwater db status says what it waits for)"
    )]
    BacklogFull {
        /// Bytes logged and not acknowledged.
        pending_bytes: u64,
        /// The limit.
        max_pending_bytes: u64,
    },
    /// The database is stopped.
    #[error("{0}")]
    Stopped(StopReason),
}

impl Refused {
    /// The code an application can switch on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::BacklogFull { .. } => "backlog_full",
            Self::Stopped(reason) => reason.code.as_str(),
        }
    }
}

/// Why a commit was not logged. The log is as before the call, unless the error is `Stopped`.
#[derive(Debug, Error)]
pub enum AppendFailed {
    /// The disk is full: for the log, or for the growth of the database file that the commit would need later.
    #[error("disk_full: the commit does not fit on the disk")]
    Full,
    /// The log could not be written, or a page could not be read.
    #[error("the commit could not be logged: {0}")]
    Io(#[from] io::Error),
    /// The database is stopped.
    #[error("{0}")]
    Stopped(StopReason),
    /// The commit's page size is not the database's.
    #[error("page_size: the database has pages of {expected} bytes, the commit has {found}; rebind to change it")]
    PageSize {
        /// The database's.
        expected: u32,
        /// The commit's.
        found: u32,
    },
    /// The commit's page 1 takes the database out of WAL mode.
    #[error("journal_mode: a bound database stays in WAL mode")]
    LeavesWal,
    /// The record before was neither confirmed nor cut.
    #[error("the record before was neither confirmed nor cut")]
    Unconfirmed,
    /// The pages are not ascending, or the database would have none.
    #[error("the commit's page list is not ascending or empty of pages")]
    Shape,
}

/// Whose stream the database is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The stream's URL.
    pub url: String,
    /// The stream's history when it was bound or restored.
    pub incarnation: Incarnation,
    /// The deployment that answered then.
    pub cluster_id: String,
    /// The release line it spoke.
    pub protocol: u32,
    /// Bytes of a database page.
    pub page_size: u32,
    /// Names this log; a copy of the folder has the same one.
    pub lineage: [u8; 16],
}

/// One batch that is being sent: written down before its first byte leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// The stream's history it is meant for.
    pub incarnation: Incarnation,
    /// The producer epoch.
    pub epoch: u64,
    /// The producer sequence number.
    pub seq: u64,
    /// The first log byte in it.
    pub from: LogPosition,
    /// The log byte after its last.
    pub to: LogPosition,
    /// The digest of the request's body.
    pub digest: Digest,
    /// The stream offset at which it must land.
    pub stream_offset: Offset,
}

/// What the stream acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Every log byte below is held by the stream.
    pub upto: LogPosition,
    /// The end of the last acknowledged write.
    pub stream_end: Offset,
    /// The sequence number of the next append.
    pub next_seq: u64,
}

/// A won claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimWon {
    /// The producer epoch, now ours.
    pub epoch: u64,
    /// The end of the claim's own bytes in the stream.
    pub stream_end: Offset,
    /// Where sending continues. May lie below what was acknowledged: a claim inside a run of parts voids the record
    /// they belong to, and it is sent again from its first byte.
    pub resume: LogPosition,
    /// The sequence number of the next append, 1 after a claim.
    pub next_seq: u64,
}

/// How far the log and the stream are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Every log byte below is held by the stream. May lie inside a record.
    pub acknowledged: LogPosition,
    /// The last commit whose record the stream holds whole.
    pub acknowledged_lsn: u64,
    /// The end of the last acknowledged write in the stream.
    pub stream_end: Offset,
    /// The producer epoch last claimed; 0 for none.
    pub epoch: u64,
    /// The sequence number of the next append under that epoch.
    pub next_seq: u64,
    /// The batch whose outcome is not known yet.
    pub in_flight: Option<Seal>,
    /// The last confirmed commit.
    pub last_lsn: u64,
    /// The end of its record.
    pub confirmed_end: LogPosition,
}

/// Called after a commit was confirmed.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// What the owner of the stream's side adds to the status page: `(role, replication, ownership)` of
/// `DESIGN.md`'s "extension status".
pub type StatusSource = Arc<dyn Fn() -> StatusParts + Send + Sync>;

/// The replicator's part of the status page.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusParts {
    /// `owner`, `unclaimed`, `reader` …
    pub role: String,
    /// The `replication` object.
    pub replication: serde_json::Value,
    /// The `ownership` object.
    pub ownership: serde_json::Value,
}

/// Where nothing replicates, the page has the same members.
impl Default for StatusParts {
    fn default() -> Self {
        Self {
            role: String::new(),
            replication: serde_json::json!({
                "condition": null, "since": null, "attempts": 0, "retry_in_ms": null, "last_error": null,
                "batch_bytes_max": null, "synced_waiting": 0,
            }),
            ownership: serde_json::json!({ "state": "unclaimed", "reason": null, "text": null }),
        }
    }
}
