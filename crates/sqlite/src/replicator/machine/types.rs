//! The machine's words: what comes in, what goes out, what it remembers.

use crate::batch::Claim;
use crate::engine::{Acknowledgement, ClaimWon, LogPosition, Seal, StopReason};
use highwater_base::{Digest, Incarnation, Offset};
use highwater_client::{Answer, HeadAnswer, Piece, TokenId, Written};

/// Names one caller of `synced()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// What a machine starts from: the binding, and what the files remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The stream's history.
    pub incarnation: Incarnation,
    /// The deployment that answered when the database was bound.
    pub cluster_id: String,
    /// Names the local log.
    pub lineage: [u8; 16],
    /// Every log byte below is held by the stream.
    pub acknowledged: LogPosition,
    /// The last commit the stream holds whole.
    pub acknowledged_lsn: u64,
    /// The end of the last acknowledged write.
    pub stream_end: Offset,
    /// The highest owner epoch seen.
    pub epoch: u64,
    /// A batch whose outcome an earlier process did not learn.
    pub in_flight: Option<Seal>,
}

/// What the machine asks about the local log. All of it is local state, read without I/O.
pub trait LogView {
    /// The end of the last confirmed record.
    fn confirmed_end(&self) -> LogPosition;
    /// The first byte of the record that holds `position`; `None` below what is kept.
    fn record_start(&self, position: LogPosition) -> Option<LogPosition>;
    /// The last commit whose record ends at or below `position`; `None` below what is kept.
    fn lsn_below(&self, position: LogPosition) -> Option<u64>;
}

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A commit was confirmed, or somebody asks for what is pending to be sent: reason enough to claim.
    Wanted,
    /// `synced()` was called when `target_lsn` was the last commit.
    Synced {
        /// The caller.
        id: WaiterId,
        /// The commit that must be acknowledged.
        target_lsn: u64,
    },
    /// A caller's signal fired.
    Abandoned {
        /// The caller.
        id: WaiterId,
    },
    /// Time passed.
    Timer,
    /// The database was stopped by somebody else.
    Stopped(StopReason),
    /// The outstanding request ended.
    Answered {
        /// The token it carried.
        token: TokenId,
        /// How it ended.
        reply: Box<Reply>,
    },
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Of [`Request::Head`].
    Head(HeadAnswer),
    /// Of [`Request::Opening`] and [`Request::Tail`].
    Read(Answer<Piece>),
    /// Of [`Request::Claim`] and [`Request::Append`].
    Written {
        /// What it proves.
        answer: Answer<Written>,
        /// Bytes that were sent.
        body_bytes: u64,
        /// Their digest.
        digest: Digest,
        /// Milliseconds from the first byte to the answer.
        took_ms: u64,
    },
    /// Nothing was sent: the local files could not be read or written.
    Local(String),
}

/// A batch under a key; the same in every attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The owner epoch.
    pub epoch: u64,
    /// The number in that epoch.
    pub seq: u64,
    /// The first log byte.
    pub from: LogPosition,
    /// The log byte after the last.
    pub to: LogPosition,
    /// Where it must land.
    pub stream_offset: Offset,
    /// The digest of its bytes, once they were built; the seal is written down then, before anything is sent.
    pub digest: Option<Digest>,
}

/// One request; at most one is outstanding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The stream's head.
    Head,
    /// The stream's first bytes, as the leader has them.
    Opening,
    /// The bytes from `at` on, as the leader has them.
    Tail {
        /// Where.
        at: Offset,
        /// How many at the most.
        bytes_max: u64,
    },
    /// A claim.
    Claim(Claim),
    /// A batch.
    Append(Sealed),
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a request and report how it ended.
    Send(Request),
    /// Write a won claim down, synced.
    SaveClaim(ClaimWon),
    /// Write an acknowledgement down.
    SaveAcknowledged(Acknowledgement),
    /// A `synced()` call is over.
    Resolve {
        /// The caller.
        id: WaiterId,
        /// What it is told.
        result: Result<(), StopReason>,
    },
    /// Stop the database.
    Stop(StopReason),
    /// Read the token's file again.
    RereadToken,
}

/// Why appends are not getting through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// No definite answer yet.
    Retrying,
    /// The token was refused twice.
    Unauthorized,
    /// The token may not write this database.
    Forbidden,
    /// The account cannot pay.
    PaymentRequired,
    /// A layer takes less than 4 KiB.
    RequestTooLarge,
    /// Something answers with redirects.
    Redirected,
    /// Another deployment answers.
    WrongCluster,
    /// Something that is not the server answers.
    NoServerIdentity,
    /// Another release line answers.
    ProtocolMismatch,
    /// An answer that nothing can be done about.
    Rejected,
}

impl Condition {
    /// The condition's name in the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retrying => "retrying",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::PaymentRequired => "payment_required",
            Self::RequestTooLarge => "request_too_large",
            Self::Redirected => "redirected",
            Self::WrongCluster => "wrong_cluster",
            Self::NoServerIdentity => "no_server_identity",
            Self::ProtocolMismatch => "protocol_mismatch",
            Self::Rejected => "rejected",
        }
    }
}

/// What the status page shows of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// `unclaimed`, `claiming`, `owner` or `stopped`.
    pub state: &'static str,
    /// Why it is stopped.
    pub reason: Option<StopReason>,
    /// The condition, and the monotonic millisecond since which it holds.
    pub condition: Option<(Condition, u64)>,
    /// Attempts that failed since the last success.
    pub attempts: u32,
    /// The monotonic millisecond of the next attempt.
    pub retry_at: Option<u64>,
    /// What came back last instead of success; empty if nothing did.
    pub last_error: String,
    /// The owner epoch last won, or 0.
    pub epoch: u64,
    /// The history of the stream.
    pub incarnation: Incarnation,
    /// The end of the last acknowledged write.
    pub stream_end: Offset,
    /// Every log byte below is held by the stream.
    pub acknowledged: LogPosition,
    /// The last commit the stream holds whole.
    pub acknowledged_lsn: u64,
    /// Bytes of the largest batch that would be sealed now.
    pub batch_bytes: u64,
    /// Callers that wait in `synced()`.
    pub waiters: usize,
}

impl Snapshot {
    /// What keeps commits from getting through: the condition and what came back last; empty if nothing does.
    #[must_use]
    pub fn trouble(&self) -> String {
        match (self.condition, self.last_error.as_str()) {
            (None, error) => error.to_owned(),
            (Some((condition, _)), "") => condition.as_str().to_owned(),
            (Some((condition, _)), error) => format!("{}: {error}", condition.as_str()),
        }
    }
}
