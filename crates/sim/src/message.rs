//! What goes over the network.

use highwater_client::{Answer, HeadAnswer, Piece, WriteKind, Written};
use highwater_node::ReadRequest;
use highwater_stream::Operation;

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
}

impl Ask {
    /// What a success of this write must carry.
    #[must_use]
    pub fn kind(&self) -> WriteKind {
        match self {
            Self::Write { operation: Operation::Create(_), .. } => WriteKind::Create,
            Self::Write { operation: Operation::Append(append), .. } if append.producer.is_some() => WriteKind::Keyed,
            Self::Write { operation: Operation::Append(_), .. } => WriteKind::Keyless,
            Self::Write { .. } | Self::Head { .. } | Self::Read(_) => WriteKind::Delete,
        }
    }

    /// Bytes of the request's body.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        match self {
            Self::Write { operation, .. } => operation.body().len() as u64,
            Self::Head { .. } | Self::Read(_) => 0,
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
            Self::Write { path, operation, write } => {
                let what = match operation {
                    Operation::Create(create) => format!("create {}", create.new_incarnation),
                    Operation::Delete { incarnation } => format!("delete {incarnation:?}"),
                    Operation::Touch { .. }
                    | Operation::Expire { .. }
                    | Operation::StagePart { .. }
                    | Operation::DiscardParts { .. }
                    | Operation::PublishSnapshot(_)
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
            Self::Write { .. } => Reply::Written(Answer::none(why.to_owned())),
            Self::Head { .. } => Reply::Head(HeadAnswer { identity: None, answer: Answer::none(why.to_owned()) }),
            Self::Read(_) => Reply::Read(Answer::none(why.to_owned())),
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
}

impl Reply {
    /// A few words for the trace.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Written(answer) => format!("written {} {}", answer.status, answer.code),
            Self::Head(head) => format!("head {} {}", head.answer.status, head.answer.code),
            Self::Read(answer) => format!("read {} {}", answer.status, answer.code),
        }
    }

    /// Whether a success came back.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        let status = match self {
            Self::Written(answer) => answer.status,
            Self::Head(head) => head.answer.status,
            Self::Read(answer) => answer.status,
        };
        (200..300).contains(&status)
    }
}
