//! What front ends ask and are answered.

use crate::cold::ColdStatus;
use crate::storage::ScrubStatus;
use bytes::Bytes;
use highwater_base::{Incarnation, Offset};
use highwater_stream::{Outcome, ReadFrom, Refusal};
use serde::Serialize;
use thiserror::Error;

/// Who this server is, as every HEAD answer tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Drawn once, when the data directory was made: 1 to 64 of `[A-Za-z0-9._-]`.
    pub cluster_id: String,
    /// This node within its cluster, from 1.
    pub node_id: u64,
    /// The protocol's release line, major * 1000 + minor.
    pub protocol: u32,
}

/// How many copies had a write on disk when its answer was sent, and out of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durability {
    /// Voters that persisted it.
    pub synced: u32,
    /// Voters of its group.
    pub of: u32,
}

/// A write that was ordered and applied: it did something, or was refused for a reason that is itself durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteAnswer {
    /// What the stream's machine said.
    pub result: Result<Outcome, Refusal>,
    /// What holds at this moment; for a repeat, what holds now.
    pub durability: Durability,
}

/// A change of the control plane that was ordered and applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlAnswer {
    /// What its machine said.
    pub result: Result<highwater_control::Outcome, highwater_control::Refusal>,
    /// What holds at this moment.
    pub durability: Durability,
}

/// Why a request got no answer from the stream's machine. Only [`Unavailable::OutcomeUnknown`],
/// [`Unavailable::SnapshotCommitInProgress`] and [`Unavailable::Internal`] leave open whether a write applied; every other one proves that it did not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// This node does not lead the stream's group, or cannot confirm that it does.
    #[error("group {group} has no leader here")]
    NoLeader {
        /// The stream's group.
        group: u32,
    },
    /// Another node leads the stream's group: ask there.
    #[error("node {leader} leads group {group}")]
    LedElsewhere {
        /// The stream's group.
        group: u32,
        /// The node that leads it.
        leader: u64,
        /// Its term.
        term: u64,
        /// Where that node is reached, such as `http://10.0.0.2:4437`.
        url: String,
    },
    /// The write was proposed and its outcome was lost: it may have applied.
    #[error("the outcome of the write is unknown")]
    OutcomeUnknown {
        /// Whether it was lost with the leadership, so that a retry may find a leader soon.
        leadership_lost: bool,
    },
    /// The log has no space left, on disk or within its bound.
    #[error("the server's disk, or the log's bound, leaves no room")]
    WalDiskPressure,
    /// A group's log has grown past its bound.
    #[error("the group's log is full")]
    RaftLogPressure,
    /// Too many bytes wait to be committed.
    #[error("too many bytes wait to be committed")]
    RaftUncommittedBackpressure,
    /// Too many bytes of request bodies are in memory.
    #[error("too many bytes of request bodies are in memory")]
    IngressBodyBytesLimit,
    /// A history event is being recorded.
    #[error("a history event is being recorded")]
    HistoryPending,
    /// The group is being recovered.
    #[error("the group is being recovered")]
    GroupRestarting,
    /// The group stopped; the status page says why.
    #[error("the group has stopped")]
    ApplyStopped,
    /// As many readers wait already as may wait.
    #[error("too many readers are waiting")]
    LiveReadsExhausted,
    /// The bytes that a read asks for are damaged on this node's disk; those that are sound are still served.
    #[error("the bytes are damaged on the server's disk: {0}")]
    StoredBytesDamaged(String),
    /// The bytes that a read asks for lie in the object store, which does not answer. They are not lost by that.
    #[error(
        "these bytes lie in the object store, which does not answer now; they are kept there, the rest of the stream is \
         served, and writes go on: try again"
    )]
    ColdStoreUnreachable,
    /// As many reads as may wait for the object store.
    #[error("too many reads wait for the object store: try again")]
    ColdReadsExhausted,
    /// The answers of reads in flight hold as many bytes as they may.
    #[error("the answers that wait for slow readers hold all the memory they may")]
    ReadBytesExhausted,
    /// As many commits of snapshots read their parts as may.
    #[error("as many snapshots are being committed as may be")]
    SnapshotCommitsBusy,
    /// A commit of this stream's snapshot is under way: whether it will be as asked for here, a repeat tells.
    #[error("a snapshot of this stream is being committed")]
    SnapshotCommitInProgress,
    /// Something failed that no one asked for.
    #[error("internal error: {0}")]
    Internal(String),
}

/// A read of a stream's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// The stream.
    pub path: String,
    /// Only of this history of it.
    pub incarnation: Option<Incarnation>,
    /// Where to begin.
    pub from: ReadFrom,
    /// Bytes that the answer may hold; clamped to `READ_BYTES_MAX`. One message of a JSON stream is given whole, however
    /// long it is.
    pub length_max: u64,
    /// Whether the answer must be at least as new as the moment of the request, on any node.
    pub leader: bool,
    /// At the tail of an open stream: milliseconds to wait for more; clamped to `LONG_POLL_MS_MAX`.
    pub wait_ms: Option<u64>,
}

/// The bytes of a stream from `start` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAnswer {
    /// Where the bytes begin.
    pub start: Offset,
    /// Where they end, and a following read begins.
    pub next: Offset,
    /// The stream's token.
    pub incarnation: Incarnation,
    /// The stream's content type, normalised.
    pub content_type: String,
    /// Whether `next` was the stream's end.
    pub up_to_date: bool,
    /// Whether `next` was the end of a closed stream: no byte will follow.
    pub closed: bool,
    /// The bytes; empty at the tail. Those of a JSON stream are whole messages, each with the line feed that ends it.
    pub body: Bytes,
    /// Whether `start` lies between two messages; without JSON every byte is one.
    pub boundary: bool,
    /// Whether the read waited and nothing came.
    pub timed_out: bool,
}

/// What a group is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum GroupState {
    /// Reads its log, or has not yet committed an entry of its own term.
    Starting,
    /// Records the history event of a restored directory before it serves.
    HistoryPending,
    /// Serves.
    Serving,
    /// Refuses, because its log or its files cannot be believed; they are kept as they are.
    Damaged(String),
    /// Stopped while applying.
    Stopped(String),
}

/// Where a group's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StorageBytes {
    /// Bytes of its data files.
    pub files: u64,
    /// Of these, bytes of streams.
    pub live: u64,
    /// Of these, bytes that nothing needs any more and that compaction gives back.
    pub dead: u64,
    /// Of these, bytes of files in the object store.
    pub cold: u64,
    /// Bytes of its index.
    pub index: u64,
    /// Bytes in the log that the next checkpoint makes superfluous.
    pub log: u64,
    /// Bytes that compaction has copied since the start.
    pub compacted: u64,
}

/// What of a group's streams is in memory; the others are in its index on disk alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct HotStatus {
    /// Streams in memory.
    pub streams: u64,
    /// Bytes that these and the places of their bytes take, about.
    pub bytes: u64,
    /// Trips to the index for what was not in memory, since the start.
    pub loads: u64,
    /// Microseconds that these took.
    pub loads_us: u64,
    /// Streams that left memory since the start.
    pub evictions: u64,
}

/// One group, for the status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupStatus {
    /// Its number, from 0.
    pub id: u32,
    /// The node that leads it, as this node believes.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
    /// The highest index known to be committed.
    pub commit: u64,
    /// The highest index applied here.
    pub applied: u64,
    /// Nodes that vote.
    pub voters: Vec<u64>,
    /// Streams that it holds.
    pub streams: u64,
    /// Bytes of its data files.
    pub store_bytes: u64,
    /// Bytes of payload that lie in the log alone, until the next checkpoint.
    pub unmoved_bytes: u64,
    /// Where its bytes are.
    pub storage: StorageBytes,
    /// What of its streams is in memory.
    pub hot: HotStatus,
    /// History events that it went through: restores from an older copy that the operator told of.
    pub history_events: u64,
    /// What it is doing.
    #[serde(flatten)]
    pub state: GroupState,
}

impl GroupStatus {
    /// A group in a state in which nothing else is known of it.
    pub(crate) fn down(id: u32, state: GroupState) -> Self {
        let voters = Vec::new();
        let (term, commit, applied, streams, store_bytes, unmoved_bytes) = (0, 0, 0, 0, 0, 0);
        let storage = StorageBytes::default();
        let (hot, history_events) = (HotStatus::default(), 0);
        Self {
            id,
            leader: None,
            term,
            commit,
            applied,
            voters,
            streams,
            store_bytes,
            unmoved_bytes,
            storage,
            hot,
            history_events,
            state,
        }
    }
}

/// The node, for the status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Who it is.
    pub identity: Identity,
    /// Milliseconds since it was opened.
    pub uptime_ms: u64,
    /// Whether it serves.
    pub ready: bool,
    /// Why it stopped for good, if it did: the log could not be written or synced.
    pub failed: Option<String>,
    /// The groups of its streams.
    pub groups: Vec<GroupStatus>,
    /// The group of its keys and accounts.
    pub control: GroupStatus,
    /// Whether the directory's files are a copy of those that it was last started with, and nobody said why: see
    /// `highwater mark-restored`.
    pub looks_restored: bool,
    /// Whether the directory was marked as restored and a group has not recorded its new history yet.
    pub history_pending: bool,
    /// Bytes of the log's segments.
    pub wal_bytes: u64,
    /// Syncs of the log since the start.
    pub wal_syncs: u64,
    /// Batches written to the log since the start.
    pub wal_batches: u64,
    /// Bytes of bodies in flight.
    pub ingress_bytes: u64,
    /// Bytes proposed and not yet applied.
    pub uncommitted_bytes: u64,
    /// Readers that wait for more.
    pub live_reads: u64,
    /// Bytes of answers that their readers have not taken yet.
    pub read_bytes_held: u64,
    /// Bytes that may still be written on the disk of the data directory, if it says so.
    pub disk_free_bytes: Option<u64>,
    /// What the scrub did, and what is known to be damaged.
    pub scrub: ScrubStatus,
    /// Snapshots whose parts are being read and verified.
    pub snapshot_commits: u64,
    /// Backups being taken: what is deleted stays on the disk until they end.
    pub backups: u64,
    /// The object store, if there is one.
    pub object_store: Option<ColdStatus>,
}
