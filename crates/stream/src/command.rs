//! What can be asked of a stream.

use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Millis, Offset};

mod codec;

pub(crate) use codec::take_token;

/// One write, as it is proposed, ordered and applied. The time and every random choice were made by the proposer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The leader's wall clock when it proposed this.
    pub at: Millis,
    /// Which stream: a clean path of at most `PATH_BYTES_MAX` bytes, without a leading slash. Empty where the operation
    /// is the whole group's.
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
    /// A read or write reached a stream whose expiry slides: its window starts anew at the command's time.
    Touch {
        /// Only if this is the stream's token.
        incarnation: Incarnation,
    },
    /// Removes the stream if it has expired at the command's time, and otherwise its staged parts that have waited for
    /// too long. Proposed by the leader's sweep.
    Expire {
        /// Only if this is the stream's token.
        incarnation: Incarnation,
    },
    /// Keeps a part of a snapshot to come.
    StagePart {
        /// Only if this is the stream's token.
        incarnation: Option<Incarnation>,
        /// Drawn like a token; the part's object in the store and, in decimal, the id that the client is told. If it is
        /// in use the next number that is not.
        part: Incarnation,
        /// The part's bytes.
        body: Bytes,
    },
    /// Removes all parts that no snapshot took.
    DiscardParts {
        /// Only if this is the stream's token.
        incarnation: Option<Incarnation>,
    },
    /// Puts a snapshot in the place of the latest one.
    PublishSnapshot(PublishSnapshot),
    /// Gives up the bytes below an offset.
    Retain {
        /// Only if this is the stream's token.
        incarnation: Option<Incarnation>,
        /// The first offset that stays readable.
        offset: Offset,
    },
    /// The whole group begins a new history: every token changes, and every producer's epoch is closed.
    History {
        /// Drawn once for the event; the same nonce twice in a row is one event.
        nonce: u64,
    },
    /// A leader begins: expiries that slide get one whole window from the command's time, because touches of the leader
    /// before may be missing.
    Lead,
}

/// When a stream ends by itself. Compared as a whole when a create meets an existing stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// `Stream-TTL`: so long after it was last read or written.
    Sliding {
        /// The window, in seconds.
        ttl_s: u64,
    },
    /// `Stream-Expires-At`: at a time that never moves.
    At(Millis),
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
    /// When it ends by itself.
    pub expiry: Option<Expiry>,
    /// The first bytes; may be empty.
    pub body: Bytes,
}

impl Create {
    /// A stream that asks for nothing but its content type, which is normalised already, and its first bytes.
    #[must_use]
    pub fn plain(content_type: &str, new_incarnation: Incarnation, body: Bytes) -> Self {
        let content_type = content_type.to_owned();
        Self { content_type, closed: false, incarnation: None, new_incarnation, expiry: None, body }
    }
}

/// An append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Only if this is the stream's token. A write that carries it is *tokened*.
    pub incarnation: Option<Incarnation>,
    /// Who writes, if they want repeats recognised.
    pub producer: Option<ProducerKey>,
    /// What is wrong with the body, as far as it can be told without knowing the stream.
    pub body_fault: Option<BodyFault>,
    /// Normalised like [`Create::content_type`]; absent if the request had none.
    pub content_type: Option<String>,
    /// Compare-and-set for writers: must be greater, as bytes, than the last one.
    pub stream_seq: Option<String>,
    /// Close the stream with this append.
    pub close: bool,
    /// The bytes; empty only for a close.
    pub body: Bytes,
}

impl Append {
    /// Bytes of a content type, which is normalised already, from a writer who asks for nothing else.
    #[must_use]
    pub fn plain(content_type: &str, body: Bytes) -> Self {
        Self {
            incarnation: None,
            producer: None,
            body_fault: None,
            content_type: Some(content_type.to_owned()),
            stream_seq: None,
            close: false,
            body,
        }
    }
}

/// What is wrong with a body. It is reported only for a write that would otherwise apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFault {
    /// It does not have the digest that the key states.
    DigestMismatch,
    /// It was sent as JSON and is none.
    InvalidJson,
    /// It is a JSON array without a message.
    EmptyArray,
}

/// A snapshot to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishSnapshot {
    /// Only if this is the stream's token.
    pub incarnation: Option<Incarnation>,
    /// Everything below it is in the snapshot.
    pub offset: Offset,
    /// BLAKE3-256 over the length of the content type, the content type and the body, as the request stated it.
    pub digest: Digest,
    /// Whether the bytes have that digest.
    pub digest_matches: bool,
    /// The snapshot's own content type, normalised like [`Create::content_type`].
    pub content_type: String,
    /// Its bytes.
    pub source: SnapshotSource,
}

/// Where the bytes of a snapshot come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotSource {
    /// They are in the command.
    Body {
        /// Drawn like a token: the object in the store.
        part: Incarnation,
        /// The whole snapshot.
        body: Bytes,
    },
    /// They were staged before; in this order they are the snapshot.
    Parts(Vec<Incarnation>),
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

impl Operation {
    /// The bytes that are to be kept; empty for what carries none.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        match self {
            Self::Create(Create { body, .. })
            | Self::Append(Append { body, .. })
            | Self::StagePart { body, .. }
            | Self::PublishSnapshot(PublishSnapshot { source: SnapshotSource::Body { body, .. }, .. }) => body,
            _ => &NONE,
        }
    }

    /// The token that must be the stream's, where one is named.
    #[must_use]
    pub fn precondition(&self) -> Option<Incarnation> {
        match self {
            Self::Create(Create { incarnation, .. })
            | Self::Append(Append { incarnation, .. })
            | Self::PublishSnapshot(PublishSnapshot { incarnation, .. })
            | Self::Delete { incarnation }
            | Self::StagePart { incarnation, .. }
            | Self::DiscardParts { incarnation }
            | Self::Retain { incarnation, .. } => *incarnation,
            Self::Touch { incarnation } | Self::Expire { incarnation } => Some(*incarnation),
            Self::History { .. } | Self::Lead => None,
        }
    }
}
