//! What can be asked of a stream.

use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Millis};

/// One write, as it is proposed, ordered and applied. The time and every random choice were made by the proposer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The leader's wall clock when it proposed this.
    pub at: Millis,
    /// Which stream: a clean path of at most `PATH_BYTES_MAX` bytes, without a leading slash.
    pub path: String,
    /// What to do with it.
    pub operation: Operation,
}

/// What a write does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Makes a stream, or finds one with the same settings.
    Create(Create),
    /// Appends bytes, claims an epoch, closes, or several of these at once.
    Append(Append),
    /// Removes the stream and its bytes.
    Delete {
        /// Only if this is the stream's token.
        incarnation: Option<Incarnation>,
    },
}

/// The settings of a new stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// Normalised: each `;`-separated part trimmed and in lower case, joined with `; `.
    pub content_type: String,
    /// Created closed.
    pub closed: bool,
    /// Only if this is the token of an existing stream; on a missing one it refuses.
    pub incarnation: Option<Incarnation>,
    /// The token that the stream gets if it is new.
    pub new_incarnation: Incarnation,
    /// The first bytes; may be empty.
    pub body: Bytes,
}

/// An append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Only if this is the stream's token. A write that carries it is *tokened*.
    pub incarnation: Option<Incarnation>,
    /// Who writes, if they want repeats recognised.
    pub producer: Option<ProducerKey>,
    /// Whether the body has the digest that the key states; `true` where it states none.
    pub digest_matches: bool,
    /// Normalised like [`Create::content_type`]; absent if the request had none.
    pub content_type: Option<String>,
    /// Compare-and-set for writers: must be greater, as bytes, than the last one.
    pub stream_seq: Option<String>,
    /// Close the stream with this append.
    pub close: bool,
    /// The bytes; empty only for a close.
    pub body: Bytes,
}

/// The key of a producer's write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerKey {
    /// 1 to 256 visible ASCII bytes, inner spaces and tabs allowed.
    pub id: String,
    /// The owner's epoch, below 2^53.
    pub epoch: u64,
    /// Counts writes within the epoch; 0 claims it.
    pub seq: u64,
    /// BLAKE3-256 of the body, as the request stated it.
    pub digest: Option<Digest>,
}
