//! Why a database does not open.

use crate::engine::{Layout, StopReason};
use crate::log::Damage;
use crate::meta::MetaError;
use std::io;
use thiserror::Error;

/// Why a database does not open. The message says what to do.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no binding.
    #[error("not_bound: {path} is not bound to a stream; bind it with `highwater db bind {path} URL`")]
    NotBound {
        /// The database's path.
        path: String,
    },
    /// Another process, or another part of this one, has it open.
    #[error("busy: {path} is open in the process {pid}; one process owns a bound database at a time")]
    Busy {
        /// The database's path.
        path: String,
        /// The owner's process id, 0 if it cannot be told.
        pid: u32,
    },
    /// A program without the extension has the file open.
    #[error("in_use: another program has {path} open without the highwater extension; close it there, then try again")]
    InUse {
        /// The database's path.
        path: String,
    },
    /// The database file is gone.
    #[error(
        "database_missing: {path} is gone but its folder is there; restore it under another name with `highwater db \
         restore {url} FILE`; commits that the stream does not have are in the folder's log"
    )]
    Missing {
        /// The database's path.
        path: String,
        /// The stream's URL.
        url: String,
    },
    /// Something else changed the file.
    #[error(
        "foreign_write: {path} was changed by another program while it was closed ({what}); nothing was touched. \
         Either restore what the stream holds under another name with `highwater db restore {url} FILE`, or keep this \
         file: move it and bind it under its new name to a new stream"
    )]
    Foreign {
        /// The database's path.
        path: String,
        /// What was found.
        what: String,
        /// The stream's URL.
        url: String,
    },
    /// The log is damaged.
    #[error(
        "log_damaged: {damage}; nothing was changed. Keep {path} and its folder, and restore what the stream holds \
         under another name with `highwater db restore {url} FILE`"
    )]
    Damaged {
        /// The database's path.
        path: String,
        /// Where and why.
        damage: Damage,
        /// The stream's URL.
        url: String,
    },
    /// `meta` cannot be read.
    #[error("meta_damaged: {path} cannot be read: {error}; keep the folder, and restore the database from its stream")]
    Meta {
        /// The file.
        path: String,
        /// Why.
        error: MetaError,
    },
    /// A reset ended this database's life here.
    #[error("{reason}; restore what the stream holds under another name with `highwater db restore {url} FILE`")]
    Reset {
        /// What happened.
        reason: StopReason,
        /// The stream's URL.
        url: String,
    },
    /// The system's.
    #[error("io: {path}: {error}")]
    Io {
        /// The database's path.
        path: String,
        /// The system's error.
        error: io::Error,
    },
}

impl OpenError {
    /// The code an application can switch on.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotBound { .. } => "not_bound",
            Self::Busy { .. } => "busy",
            Self::InUse { .. } => "in_use",
            Self::Missing { .. } => "database_missing",
            Self::Foreign { .. } => "foreign_write",
            Self::Damaged { .. } => "log_damaged",
            Self::Meta { .. } => "meta_damaged",
            Self::Reset { reason, .. } => reason.code.as_str(),
            Self::Io { .. } => "io",
        }
    }

    /// Whether it may open later without anyone doing anything here.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::InUse { .. })
    }

    pub(crate) fn io(layout: &Layout) -> impl Fn(io::Error) -> Self + use<> {
        let path = layout.database.display().to_string();
        move |error| Self::Io { path: path.clone(), error }
    }
}
