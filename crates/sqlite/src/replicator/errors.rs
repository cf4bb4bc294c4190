//! What the replicator's callers are told.

use crate::bind::BindError;
use crate::engine::StopReason;
use highwater_client::{SetupError, UrlError};
use thiserror::Error;

/// Why `synced()` did not resolve. Commits go on replicating in every case but a stop.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SyncedError {
    /// The signal fired.
    #[error(
        "synced_timeout: {commits} {} not acknowledged after {waited_ms} ms; replication goes on{}",
        if *.commits == 1 { "commit" } else { "commits" },
        because(trouble)
    )]
    Timeout {
        /// Commits up to the target that the stream has not acknowledged.
        commits: u64,
        /// Milliseconds waited.
        waited_ms: u64,
        /// What keeps them from getting through, as the status page names it with what came back last; empty if nothing is known.
        trouble: String,
    },
    /// The database stopped: it was fenced, or its stream is no longer the one it knew.
    #[error("{0}")]
    Stopped(StopReason),
    /// The process forked, and this is the child.
    #[error(
        "forked: a database opened before fork() replicates only in the process that opened it; open it again here"
    )]
    Forked,
}

/// What follows a message about commits that do not get through.
pub(crate) fn because(trouble: &str) -> String {
    if trouble.is_empty() { String::new() } else { format!(" ({trouble})") }
}

impl SyncedError {
    /// The code an application can switch on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "synced_timeout",
            Self::Stopped(reason) => reason.code.as_str(),
            Self::Forked => "forked",
        }
    }
}

/// Why a stream cannot be used for a database. The message says what to do.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The address is none.
    #[error("url: {0}")]
    Url(#[from] UrlError),
    /// The certificates cannot be used.
    #[error("ca_file: {0}")]
    Setup(#[from] SetupError),
    /// Nothing of ours answers at the address.
    #[error(
        "no_server_identity: {url} is not answered by a Highwater server ({found}); check the address, and that nothing \
         between removes headers"
    )]
    NoServerIdentity {
        /// The address.
        url: String,
        /// What came back.
        found: String,
    },
    /// Another release line answers.
    #[error(
        "protocol_mismatch: {url} speaks the release line {found}, this program speaks {expected}; use the program of that release"
    )]
    ProtocolMismatch {
        /// The address.
        url: String,
        /// Theirs.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// The stream does not exist.
    #[error("not_found: there is no stream at {url}")]
    NotFound {
        /// The address.
        url: String,
    },
    /// The stream holds something that is not a database of this format.
    #[error("rejected: {url} holds {found}; choose another address, this stream stays as it is")]
    Foreign {
        /// The address.
        url: String,
        /// What it holds.
        found: String,
    },
    /// A file is to be bound to a stream that holds a database already.
    #[error(
        "not_empty: {url} holds a database already; to continue it here, run `highwater db restore {url} FILE` on a \
         path that does not exist; to bind this file, choose another address"
    )]
    NotEmpty {
        /// The address.
        url: String,
    },
    /// The stream holds no commit yet.
    #[error("empty: the stream at {url} holds no commit yet")]
    Empty {
        /// The address.
        url: String,
    },
    /// The stream is closed.
    #[error("closed: the stream at {url} is closed and takes no more writes")]
    Closed {
        /// The address.
        url: String,
    },
    /// The stream's beginning was dropped, and it can be read from a snapshot only.
    #[error(
        "retained: {url} starts at offset {retained}; a stream whose beginning was dropped cannot be read by this release"
    )]
    Retained {
        /// The address.
        url: String,
        /// Its first byte.
        retained: u64,
    },
    /// The server, or something before it, refused.
    #[error("{code}: {url} answered {found}")]
    Refused {
        /// The condition, as the status page would name it.
        code: &'static str,
        /// The address.
        url: String,
        /// What it answered.
        found: String,
    },
    /// No answer.
    #[error("unreachable: {url} gave no answer ({found})")]
    Unreachable {
        /// The address.
        url: String,
        /// Why.
        found: String,
    },
    /// The stream's bytes are not what the format says.
    #[error("damaged: the stream {url} cannot be read past offset {offset}: {found}")]
    Damaged {
        /// The address.
        url: String,
        /// Where.
        offset: u64,
        /// What is wrong there.
        found: String,
    },
    /// The stream changed its history, or was replaced, while it was read.
    #[error("recreated: the stream {url} was replaced while it was read; start again")]
    Replaced {
        /// The address.
        url: String,
    },
    /// The local files' part.
    #[error(transparent)]
    Files(#[from] BindError),
}

impl StreamError {
    /// The code an application can switch on.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Url(_) => "url",
            Self::Setup(_) => "ca_file",
            Self::NoServerIdentity { .. } => "no_server_identity",
            Self::ProtocolMismatch { .. } => "protocol_mismatch",
            Self::NotFound { .. } => "not_found",
            Self::Foreign { .. } => "rejected",
            Self::NotEmpty { .. } => "not_empty",
            Self::Empty { .. } => "empty",
            Self::Closed { .. } => "closed",
            Self::Retained { .. } => "retained",
            Self::Refused { code, .. } => code,
            Self::Unreachable { .. } => "unreachable",
            Self::Damaged { .. } => "damaged",
            Self::Replaced { .. } => "recreated",
            Self::Files(error) => error.code(),
        }
    }
}
