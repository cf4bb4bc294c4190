//! What goes over the network.

use crate::oracle::control::OrderId;
use highwater_base::{Incarnation, Offset};
use highwater_client::{Answer, HeadAnswer, Piece, WriteKind, Written};
use highwater_node::ReadRequest;
use highwater_stream::{Operation, PublishSnapshot};

/// Who asks the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A client of raw streams.
    Client(usize),
    /// A database's process.
    Database(usize),
}

/// A write, by its number in the oracle's register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(pub usize);

/// A request.
#[derive(Debug, Clone)]
pub enum Ask {
    /// A write.
    Write {
        /// The stream.
        path: String,
        /// What to do.
        operation: Operation,
        /// Which of the oracle's writes it carries; several requests may carry one.
        write: WriteId,
    },
    /// The head of a stream.
    Head {
        /// The stream.
        path: String,
    },
    /// A range of a stream.
    Read(ReadRequest),
    /// A snapshot of staged parts, which the server reads before it publishes it.
    Commit {
        /// The stream.
        path: String,
        /// What to publish; whether the digest matches is the server's to find out.
        publish: PublishSnapshot,
        /// Its parts.
        parts: Vec<Incarnation>,
        /// Which of the oracle's writes it carries.
        write: WriteId,
    },
    /// The snapshot at an offset.
    Snapshot {
        /// The stream.
        path: String,
        /// Only of this history of it.
        incarnation: Option<Incarnation>,
        /// Where the snapshot is.
        offset: Offset,
    },
    /// A change of the control plane.
    Control {
        /// The change.
        operation: highwater_control::Operation,
        /// Which of the oracle's orders it carries.
        order: OrderId,
    },
}

impl Ask {
    /// What a success of this write must carry.
    #[must_use]
    pub fn kind(&self) -> WriteKind {
        match self {
            Self::Write { operation: Operation::Create(_), .. } => WriteKind::Create,
            Self::Write { operation: Operation::Append(append), .. } if append.producer.is_some() => WriteKind::Keyed,
            Self::Write { operation: Operation::Append(_), .. } => WriteKind::Keyless,
            _ => WriteKind::Delete,
        }
    }

    /// Whether the answer is told in words alone: the extension's client asks no such thing.
    #[must_use]
    pub fn is_told(&self) -> bool {
        match self {
            Self::Commit { .. } | Self::Snapshot { .. } | Self::Control { .. } => true,
            Self::Write { operation, .. } => {
                !matches!(operation, Operation::Create(_) | Operation::Append(_) | Operation::Delete { .. })
            }
            Self::Head { .. } | Self::Read(_) => false,
        }
    }

    /// Bytes of the request's body.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        match self {
            Self::Write { operation, .. } => operation.body().len() as u64,
            _ => 0,
        }
    }

    /// Whether a layer may send it twice: a keyed write is the same write however often it arrives.
    #[must_use]
    pub fn repeatable(&self) -> bool {
        matches!(self.kind(), WriteKind::Keyed)
    }

    /// A few words for the trace.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Head { path } => format!("head {path}"),
            Self::Read(request) => format!("read {} {:?} {}", request.path, request.from, request.length_max),
            Self::Commit { path, parts, write, .. } => {
                format!("publish {} parts of {path}, write {}", parts.len(), write.0)
            }
            Self::Snapshot { path, offset, .. } => format!("snapshot {offset} of {path}"),
            Self::Control { operation, order } => format!("{operation:?}, order {}", order.0),
            Self::Write { path, operation, write } => {
                let what = match operation {
                    Operation::StagePart { part, body, .. } => format!("stage {} bytes as {part}", body.len()),
                    Operation::PublishSnapshot(publish) => format!("publish {}", publish.offset),
                    Operation::Create(create) => format!("create {}", create.new_incarnation),
                    Operation::Delete { incarnation } => format!("delete {incarnation:?}"),
                    Operation::Touch { .. }
                    | Operation::Expire { .. }
                    | Operation::DiscardParts { .. }
                    | Operation::Retain { .. }
                    | Operation::History { .. }
                    | Operation::Lead => format!("{operation:?}"),
                    Operation::Append(append) => match &append.producer {
                        Some(key) => format!("append {}/{}/{}", key.id, key.epoch, key.seq),
                        None => format!("append, close: {}", append.close),
                    },
                };
                format!("{what} on {path}, write {}", write.0)
            }
        }
    }

    /// The reply to a request that got no answer.
    #[must_use]
    pub fn unanswered(&self, why: &str) -> Reply {
        match self {
            told if told.is_told() => Reply::Told { done: false, words: why.to_owned() },
            Self::Write { .. } => Reply::Written(Answer::none(why.to_owned())),
            Self::Head { .. } => Reply::Head(HeadAnswer { identity: None, answer: Answer::none(why.to_owned()) }),
            _ => Reply::Read(Answer::none(why.to_owned())),
        }
    }
}

/// What a request ends with, for whoever asked.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Of a write.
    Written(Answer<Written>),
    /// Of a head.
    Head(HeadAnswer),
    /// Of a read.
    Read(Answer<Piece>),
    /// Of what the extension's client does not ask.
    Told {
        /// Whether it succeeded.
        done: bool,
        /// What was said.
        words: String,
    },
}

impl Reply {
    /// A few words for the trace.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Written(answer) => format!("written {} {}", answer.status, answer.code),
            Self::Head(head) => format!("head {} {}", head.answer.status, head.answer.code),
            Self::Read(answer) => format!("read {} {}", answer.status, answer.code),
            Self::Told { words, .. } => words.clone(),
        }
    }

    /// Whether a success came back.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        let status = match self {
            Self::Written(answer) => answer.status,
            Self::Head(head) => head.answer.status,
            Self::Read(answer) => answer.status,
            Self::Told { done, .. } => return *done,
        };
        (200..300).contains(&status)
    }
}
