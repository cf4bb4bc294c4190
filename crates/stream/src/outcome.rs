//! What can be answered.

use crate::command::Expiry;
use crate::effect::Effect;
use highwater_base::{Digest, Incarnation, Offset};
use thiserror::Error;

/// A write that did what was asked, now or earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The stream is new.
    Created(Created),
    /// A stream with the same settings was there.
    Matched(Created),
    /// Bytes were appended without a key; the stream's end, and whether it is closed now.
    Appended {
        /// Where the bytes begin.
        start: Offset,
        /// The end of the stream.
        next: Offset,
        /// The stream's token.
        incarnation: Incarnation,
        /// Whether the stream is closed.
        closed: bool,
    },
    /// A keyed write applied just now.
    Applied(Receipt),
    /// The newest keyed write, repeated: its original receipt.
    Repeated(Receipt),
    /// A keyed write that applied earlier and whose range is forgotten.
    Evicted {
        /// The producer's epoch.
        epoch: u64,
        /// The highest applied sequence number.
        seq: u64,
        /// The stream's token.
        incarnation: Incarnation,
        /// For a repeated claim: the epoch it closed and that epoch's last sequence number.
        closed: Option<ClosedEpoch>,
    },
    /// The stream is gone.
    Deleted,
    /// A part of a snapshot is kept.
    PartStaged {
        /// Its number; in decimal, its id.
        part: Incarnation,
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// No part waits for a snapshot any more.
    PartsDiscarded {
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// This snapshot is the latest one, since now or before.
    Published {
        /// The snapshot.
        snapshot: SnapshotHead,
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// What is below the offset is given up, since now or before.
    Retained {
        /// The first offset that can be read.
        offset: Offset,
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// The stream's window began anew, or goes on for longer already.
    Touched,
    /// The sweep looked at the stream.
    Expired {
        /// Whether the stream was over and is gone.
        stream: bool,
    },
    /// The group is in the history that the event begins.
    HistoryBegun,
    /// Sliding expiries have a whole window from here.
    Led,
}

/// What names a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHead {
    /// Everything below it is in the snapshot.
    pub offset: Offset,
    /// BLAKE3-256 over the length of its content type, the content type and the bytes.
    pub digest: Digest,
}

/// A stream after a create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// Its token.
    pub incarnation: Incarnation,
    /// Its end.
    pub next: Offset,
    /// Whether it is closed.
    pub closed: bool,
    /// Its content type, normalised.
    pub content_type: String,
}

/// What a keyed write is answered with, whenever it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The producer's epoch.
    pub epoch: u64,
    /// The highest applied sequence number of the epoch.
    pub seq: u64,
    /// Where the write's bytes begin.
    pub start: Offset,
    /// Where they end.
    pub next: Offset,
    /// The stream's token.
    pub incarnation: Incarnation,
    /// For a claim that closed an epoch: which, and its last sequence number.
    pub closed_epoch: Option<ClosedEpoch>,
    /// Whether this write closed the stream.
    pub closed_stream: bool,
    /// Whether the write had a body (a close alone is answered 204).
    pub had_body: bool,
}

/// An epoch that a claim ended: every write up to `last_seq` applied, none above it ever will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedEpoch {
    /// The epoch.
    pub epoch: u64,
    /// Its highest applied sequence number.
    pub last_seq: u64,
}

/// Why a write or read was not done. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// `STREAM_NOT_FOUND`, 404.
    #[error("there is no stream at this path")]
    StreamNotFound,
    /// `INCARNATION_MISMATCH`, 412: deleted and created again, or a new history.
    #[error("the stream's token is another one")]
    IncarnationMismatch {
        /// The stream's token, absent where there is no stream.
        current: Option<Incarnation>,
    },
    /// `STREAM_ALREADY_EXISTS_CONFLICT`, 409.
    #[error("a stream with other settings is at this path")]
    AlreadyExists,
    /// `PRODUCER_EPOCH_CLOSED` with `by=claim`, 403.
    #[error("a later claim closed this epoch")]
    EpochClosedByClaim {
        /// The current epoch.
        current: u64,
        /// The write's epoch and its last sequence number.
        closed: ClosedEpoch,
    },
    /// `PRODUCER_EPOCH_CLOSED` with `by=history`, 403.
    #[error("a history event closed this epoch")]
    EpochClosedByHistory {
        /// The write's epoch and its last sequence number.
        closed: ClosedEpoch,
    },
    /// `PRODUCER_EPOCH_STALE`, 403.
    #[error("a later epoch is current")]
    EpochStale {
        /// The current epoch.
        current: u64,
    },
    /// `PRODUCER_KEY_CONFLICT`, 403.
    #[error("this key holds other bytes")]
    KeyConflict {
        /// The current epoch.
        current: u64,
    },
    /// `PRODUCER_EXPIRED`, 403.
    #[error("the server forgot this epoch; claim one above the floor")]
    ProducerExpired {
        /// The stream's epoch floor.
        floor: u64,
    },
    /// `INVALID_PRODUCER`, 400, with `Producer-Expected-Seq: 0`.
    #[error("this epoch was never claimed; its first write has sequence number 0")]
    EpochNotClaimed,
    /// `PRODUCER_SEQ_CONFLICT`, 409.
    #[error("a write of this epoch is missing")]
    SeqGap {
        /// The next sequence number that would apply.
        expected: u64,
        /// The one that was sent.
        received: u64,
    },
    /// `PRODUCER_LIMIT`, 429.
    #[error("the stream has as many active producers as it may have")]
    ProducerLimit,
    /// `STREAM_CLOSED`, 409.
    #[error("the stream is closed")]
    StreamClosed {
        /// Its end.
        next: Offset,
    },
    /// `PRODUCER_DIGEST_MISMATCH`, 400.
    #[error("the body does not have the digest that the request states")]
    DigestMismatch,
    /// `EMPTY_APPEND`, 400.
    #[error("an append needs a body unless it closes the stream")]
    EmptyAppend,
    /// `MISSING_CONTENT_TYPE`, 400.
    #[error("an append with a body needs a Content-Type")]
    MissingContentType,
    /// `INVALID_JSON`, 400.
    #[error("the body is not JSON")]
    InvalidJson,
    /// `EMPTY_APPEND`, 400, too: an array without a message has nothing to append.
    #[error("the array holds no message")]
    EmptyArray,
    /// `CONTENT_TYPE_MISMATCH`, 409.
    #[error("the stream's content type is {expected}")]
    ContentTypeMismatch {
        /// The stream's content type.
        expected: String,
        /// The stream's end.
        next: Offset,
    },
    /// `STREAM_SEQ_CONFLICT`, 409.
    #[error("Stream-Seq is not greater than the last one")]
    StreamSeqConflict {
        /// The last accepted `Stream-Seq`.
        last: String,
    },
    /// `NOT_JSON_BOUNDARY`, 400: a read of a JSON stream begins inside a message.
    #[error("the offset lies inside a message")]
    NotJsonBoundary,
    /// `OFFSET_OUT_OF_RANGE`, 416.
    #[error("the offset lies beyond the end of the stream")]
    OffsetOutOfRange {
        /// The stream's end.
        next: Offset,
        /// Its token.
        incarnation: Incarnation,
    },
    /// `STREAM_GONE`, 410: below the retained offset.
    #[error("the bytes before the retained offset are gone")]
    Gone {
        /// The first offset that can still be read.
        retained: Offset,
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// `SNAPSHOT_CONFLICT`, 409: another snapshot is the latest one, or none reaches so far.
    #[error("another snapshot is the latest one, or none reaches this offset")]
    SnapshotConflict {
        /// The latest one.
        latest: Option<SnapshotHead>,
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// `SNAPSHOT_CONFLICT`, 409, too: a snapshot of bytes that the stream does not have.
    #[error("the offset lies beyond the end of the stream")]
    SnapshotBeyondEnd {
        /// The stream's end.
        next: Offset,
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// `SNAPSHOT_NOT_FOUND`, 404.
    #[error("there is no snapshot at this offset")]
    SnapshotNotFound {
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// `SNAPSHOT_DIGEST_MISMATCH`, 400.
    #[error("the snapshot does not have the digest that the request states")]
    SnapshotDigestMismatch,
    /// `SNAPSHOT_TOO_LARGE`, 413.
    #[error("a snapshot has at most {bytes_max} bytes")]
    SnapshotTooLarge {
        /// Bytes of the largest one.
        bytes_max: u64,
    },
    /// `UNKNOWN_PART`, 400.
    #[error("one of the parts is not staged")]
    UnknownPart {
        /// The stream's token.
        incarnation: Incarnation,
    },
    /// `STAGED_PARTS_LIMIT`, 429.
    #[error("as many parts are staged and unused as may be")]
    StagedPartsLimit {
        /// Which bound was met.
        limit: StagedLimit,
        /// The stream's token.
        incarnation: Incarnation,
    },
}

/// The bounds of what is staged for one stream and not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StagedLimit {
    /// Parts.
    Parts(u64),
    /// Their bytes.
    Bytes(u64),
}

/// What applying a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The answer.
    pub result: Result<Outcome, Refusal>,
    /// What the keeper of the bytes and the waiting readers must hear of, in order; empty where nothing changed.
    pub effects: Vec<Effect>,
}

/// What `HEAD` tells of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its token.
    pub incarnation: Incarnation,
    /// Its end.
    pub next: Offset,
    /// The first offset that can be read.
    pub retained: Offset,
    /// Whether it is closed.
    pub closed: bool,
    /// Its content type, normalised.
    pub content_type: String,
    /// After a history event: the token before it, and the offset below which the bytes are the same under both.
    pub previous: Option<(Incarnation, Offset)>,
    /// When it ends by itself, as it was asked for.
    pub expiry: Option<Expiry>,
    /// The latest snapshot.
    pub snapshot: Option<SnapshotHead>,
}

/// Where a read begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the stream's first byte.
    Start,
    /// At its end.
    Now,
    /// At an offset.
    At(Offset),
}

/// What a read may take, as the stream is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadScope {
    /// The stream's token.
    pub incarnation: Incarnation,
    /// The stream's object.
    pub object: u64,
    /// Where the read begins.
    pub start: Offset,
    /// The first offset that can be read.
    pub retained: Offset,
    /// The stream's end; the read takes at most the bytes between.
    pub next: Offset,
    /// Whether the stream is closed.
    pub closed: bool,
    /// The stream's content type, normalised.
    pub content_type: String,
}

/// The latest snapshot, as a reader needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotScope {
    /// The stream's token.
    pub incarnation: Incarnation,
    /// What names it.
    pub head: SnapshotHead,
    /// Its content type, normalised.
    pub content_type: String,
    /// Its length in bytes.
    pub length: u64,
    /// Its bytes, in order.
    pub parts: Vec<SnapshotPart>,
}

/// Bytes of a snapshot that lie in an object of their own, from its first byte on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPart {
    /// The object.
    pub object: u64,
    /// Bytes in it; the store knows no object for none.
    pub length: u64,
}
