//! What can be answered.

use highwater_base::{Incarnation, Offset};
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
}

/// What applying a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The answer.
    pub result: Result<Outcome, Refusal>,
    /// What the keeper of the bytes and the waiting readers must hear of; absent where nothing changed.
    pub effect: Option<Effect>,
}

/// A change of what a stream holds. An object is the key under which `store` keeps a stream's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A new stream; its first `length` bytes are the command's body.
    Created {
        /// The stream's object.
        object: u64,
        /// Bytes of the body; may be zero.
        length: u64,
    },
    /// The command's body is the stream's bytes from `start`, or the stream was closed, or both.
    Append {
        /// The stream's object.
        object: u64,
        /// Where the bytes begin.
        start: Offset,
        /// Bytes of the body; zero for a close alone.
        length: u64,
        /// Whether the stream is closed now.
        closed: bool,
    },
    /// The stream is gone, and its bytes with it.
    Removed {
        /// The stream's object.
        object: u64,
    },
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
    /// The stream's end; the read takes at most the bytes between.
    pub next: Offset,
    /// Whether the stream is closed.
    pub closed: bool,
    /// The stream's content type, normalised.
    pub content_type: String,
}
