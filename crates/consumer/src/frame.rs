//! One message of a firehose: a header and a body, both maps of the data model, and nothing behind them.
//!
//! Source: atproto event stream specification, "Streaming Wire Protocol"; lexicon `com.atproto.sync.subscribeRepos`; atproto
//! sync specification for what must be present when. Where the lexicon lets a server choose, one spelling is taken: keys in
//! their order, the deprecated fields empty, an inactive account with its status.

mod commit;
mod fields;
mod position;

pub use commit::CommitFrame;
pub use position::{Position, Status};

use crate::frame::fields::Fields;
use bytes::Bytes;
use highwater_repo::data::{DataError, Decoder, INTEGER_MAX};
use highwater_repo::syntax::{Did, Handle};
use highwater_repo::{Tid, Value};
use thiserror::Error;

/// Bytes of a message at the most.
pub const FRAME_BYTES_MAX: usize = 5_000_000;
/// Operations of a commit at the most.
pub const OPERATIONS_MAX: usize = 200;
/// Bytes of a commit's blocks at the most.
pub const COMMIT_BLOCKS_BYTES_MAX: usize = 2_000_000;
/// Bytes of the blocks of a `#sync` at the most.
pub const SYNC_BLOCKS_BYTES_MAX: usize = 10_000;
/// The largest number of an event, which every client can hold exactly. The first one is 1.
pub const SEQUENCE_MAX: u64 = INTEGER_MAX as u64;

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A repository changed.
    Commit(CommitFrame),
    /// A repository is at a commit, whatever was said of it before.
    Sync(SyncFrame),
    /// An account's handle or keys may have changed.
    Identity(IdentityFrame),
    /// An account's position.
    Account(AccountFrame),
    /// `OutdatedCursor`: what follows begins later than the cursor that was asked for. The text explains it.
    Outdated(Option<String>),
    /// Why the server closes the connection.
    Error(ErrorFrame),
}

/// A `#sync`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncFrame {
    /// The event's number.
    pub sequence: u64,
    /// The account.
    pub did: Did,
    /// The commit's revision.
    pub rev: Tid,
    /// When it was sent, as a datetime.
    pub time: String,
    /// An archive of the commit's block alone.
    pub blocks: Bytes,
}

/// An `#identity`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFrame {
    /// The event's number.
    pub sequence: u64,
    /// The account.
    pub did: Did,
    /// When it was sent, as a datetime.
    pub time: String,
    /// Its handle, if the server says.
    pub handle: Option<Handle>,
}

/// An `#account`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountFrame {
    /// The event's number.
    pub sequence: u64,
    /// The account.
    pub did: Did,
    /// When it was sent, as a datetime.
    pub time: String,
    /// Where it stands now.
    pub position: Position,
}

/// An error, after which the server closes the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorFrame {
    /// Its name, such as `FutureCursor` or `ConsumerTooSlow`.
    pub error: String,
    /// What it says to people.
    pub message: Option<String>,
}

/// Why a message is none that a server may send.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    /// More than [`FRAME_BYTES_MAX`].
    #[error("the message has {0} bytes, more than {FRAME_BYTES_MAX}")]
    TooLarge(usize),
    /// Its header is none.
    #[error("the header: {0}")]
    Header(DataError),
    /// A header with another `op` than 1 and -1.
    #[error("the header's op is {0}, neither 1 nor -1")]
    Op(i64),
    /// A type that the stream of repositories does not have.
    #[error("there are no messages of type {0:?}")]
    Kind(String),
    /// Its body, or an operation in it, has more or fewer fields than it may.
    #[error("{kind} has {keys} fields")]
    Keys {
        /// What it is.
        kind: &'static str,
        /// How many there are.
        keys: u64,
    },
    /// A field is missing, stands in the wrong place, or holds what it must not.
    #[error("{kind}, field {field}: {fault}")]
    Field {
        /// What it is.
        kind: &'static str,
        /// The field that should stand here.
        field: &'static str,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Its body is none, or something follows it.
    #[error("the body of {kind}: {error}")]
    Body {
        /// What it is.
        kind: &'static str,
        /// What is wrong.
        error: DataError,
    },
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// It is not there, or it is no value of its type.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Its text does not follow a syntax.
    #[error("{text:?} is no {expected}")]
    Syntax {
        /// What it should be.
        expected: &'static str,
        /// What it is.
        text: String,
    },
    /// It is larger than it may be.
    #[error("{found} is more than {most}")]
    TooMuch {
        /// Its number, its bytes or its parts.
        found: u64,
        /// How many there may be.
        most: u64,
    },
    /// It contradicts a rule.
    #[error("{0}")]
    Rule(&'static str),
}

impl Frame {
    /// Reads a message.
    /// # Errors
    /// What is wrong with it first.
    pub fn decode(message: Bytes) -> Result<Self, FrameError> {
        if message.len() > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge(message.len()));
        }
        let mut data = Decoder::new(message);
        match header(&mut data)?.as_deref() {
            None => error(data),
            Some("#commit") => commit::decode(data).map(Self::Commit),
            Some("#sync") => sync(data),
            Some("#identity") => identity(data),
            Some("#account") => account(data),
            Some("#info") => info(data),
            Some(other) => Err(FrameError::Kind(other.to_owned())),
        }
    }

    /// Its type, as the header says it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Commit(_) => "#commit",
            Self::Sync(_) => "#sync",
            Self::Identity(_) => "#identity",
            Self::Account(_) => "#account",
            Self::Outdated(_) => "#info",
            Self::Error(_) => "error",
        }
    }

    /// Its number, if it is an event.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        match self {
            Self::Commit(frame) => Some(frame.sequence),
            Self::Sync(frame) => Some(frame.sequence),
            Self::Identity(frame) => Some(frame.sequence),
            Self::Account(frame) => Some(frame.sequence),
            Self::Outdated(_) | Self::Error(_) => None,
        }
    }

    /// Whom it is about, if it is an event.
    #[must_use]
    pub fn did(&self) -> Option<&Did> {
        match self {
            Self::Commit(frame) => Some(&frame.did),
            Self::Sync(frame) => Some(&frame.did),
            Self::Identity(frame) => Some(&frame.did),
            Self::Account(frame) => Some(&frame.did),
            Self::Outdated(_) | Self::Error(_) => None,
        }
    }
}

/// The type that the header names; `None` for an error's.
fn header(data: &mut Decoder) -> Result<Option<String>, FrameError> {
    let keys = data.map().map_err(FrameError::Header)?;
    let kind = match keys {
        1 => None,
        2 => {
            data.key("t").map_err(FrameError::Header)?;
            Some(data.text().map_err(FrameError::Header)?)
        }
        _ => return Err(FrameError::Header(DataError::Expected("t and op, or op alone"))),
    };
    data.key("op").map_err(FrameError::Header)?;
    match (data.value().map_err(FrameError::Header)?, &kind) {
        (Value::Integer(1), Some(_)) | (Value::Integer(-1), None) => Ok(kind),
        (Value::Integer(1), None) => Err(FrameError::Header(DataError::Expected("t"))),
        (Value::Integer(-1), Some(_)) => Err(FrameError::Header(DataError::Expected("op alone"))),
        (Value::Integer(op), _) => Err(FrameError::Op(op)),
        _ => Err(FrameError::Header(DataError::Expected("a number"))),
    }
}

fn sync(data: Decoder) -> Result<Frame, FrameError> {
    let (mut fields, _) = Fields::begin("#sync", data, 5..=5)?;
    let did = fields.parsed("did", "DID")?;
    let rev = fields.parsed("rev", "TID")?;
    let sequence = fields.sequence()?;
    let time = fields.time()?;
    let blocks = fields.blocks(SYNC_BLOCKS_BYTES_MAX)?;
    fields.finish()?;
    Ok(Frame::Sync(SyncFrame { sequence, did, rev, time, blocks }))
}

fn identity(data: Decoder) -> Result<Frame, FrameError> {
    let (mut fields, keys) = Fields::begin("#identity", data, 3..=4)?;
    let did = fields.parsed("did", "DID")?;
    let sequence = fields.sequence()?;
    let time = fields.time()?;
    let handle = if keys == 4 { Some(fields.parsed("handle", "handle")?) } else { None };
    fields.finish()?;
    Ok(Frame::Identity(IdentityFrame { sequence, did, time, handle }))
}

fn account(data: Decoder) -> Result<Frame, FrameError> {
    let (mut fields, keys) = Fields::begin("#account", data, 4..=5)?;
    let did = fields.parsed("did", "DID")?;
    let sequence = fields.sequence()?;
    let time = fields.time()?;
    let active = fields.bool("active")?;
    let status = if keys == 5 { Some(fields.parsed("status", "status of an account")?) } else { None };
    let position = Position::new(active, status).map_err(|rule| fields.fail("status", Fault::Rule(rule)))?;
    fields.finish()?;
    Ok(Frame::Account(AccountFrame { sequence, did, time, position }))
}

fn info(data: Decoder) -> Result<Frame, FrameError> {
    let (mut fields, keys) = Fields::begin("#info", data, 1..=2)?;
    let name = fields.text("name")?;
    if name != "OutdatedCursor" {
        return Err(fields.fail("name", Fault::Syntax { expected: "name of an #info", text: name }));
    }
    let message = if keys == 2 { Some(fields.text("message")?) } else { None };
    fields.finish()?;
    Ok(Frame::Outdated(message))
}

fn error(data: Decoder) -> Result<Frame, FrameError> {
    let (mut fields, keys) = Fields::begin("error", data, 1..=2)?;
    let error = fields.text("error")?;
    if error.is_empty() {
        return Err(fields.fail("error", Fault::Rule("an error has a name")));
    }
    let message = if keys == 2 { Some(fields.text("message")?) } else { None };
    fields.finish()?;
    Ok(Frame::Error(ErrorFrame { error, message }))
}
