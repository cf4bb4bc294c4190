//! Why something is not done: one type for each kind of request.

use highwater_pds::{Unserved, Withdrawn};
use highwater_repo::Cid;
use highwater_repo::mst::TreeError;
use highwater_repo::write::WriteError;
use std::path::PathBuf;
use thiserror::Error;

/// A turn that did not become part of the log. Nothing of it happened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unsettled {
    /// There is no space for it.
    #[error(
        "the disk or the log is full, so that nothing can be written; what was acknowledged is safe. Make room on the disk; if there is \
         some, the status says why no checkpoint gives the log's room back. Then try again"
    )]
    Full,
    /// Its frames get no numbers any more.
    #[error("the numbers of the stream are used up: no frame can be sent any more")]
    Numbers,
    /// It was built on a turn that was refused.
    #[error("a write before this one was refused, on which it was built: try again")]
    Overtaken,
    /// More is waiting to be written than the server holds in memory.
    #[error("more is waiting to be written than the server takes: try again later")]
    Busy,
    /// The server stopped, or its disk failed. Whether the turn survives shows after the next start.
    #[error("the server takes no more writes: {0}")]
    Stopped(String),
}

/// Why an account was not made, or not changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// There is no such account.
    #[error("there is no such account")]
    NoAccount,
    /// What was asked for cannot be, in words.
    #[error("{0}")]
    Invalid(String),
    /// The account stands where it cannot be.
    #[error(transparent)]
    Turn(highwater_pds::Refused),
    /// What let the request in holds no more, or the account stands where nobody may ask for this.
    #[error(transparent)]
    Withdrawn(#[from] Withdrawn),
    /// What is stored of the account could not be read: the failing is the server's.
    #[error("nothing was changed: {0}")]
    Read(ReadError),
    /// No new key or name could be had, which is the server's failing as well.
    #[error("{0}")]
    Undrawn(String),
    /// A name that was taken once is not given again.
    #[error("the handle {0} is taken")]
    Taken(String),
    /// It did not become part of the log.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
}

/// Why a write was not made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WriteRefused {
    /// There is no such account, or it may not write.
    #[error(transparent)]
    Account(#[from] Unserved),
    /// The account stands where it does not write, or the commit does not fit a message.
    #[error(transparent)]
    Turn(highwater_pds::Refused),
    /// What let the request in holds no more, or the account stands where nobody may ask for this.
    #[error(transparent)]
    Withdrawn(#[from] Withdrawn),
    /// A record refers to a blob that is not there, or says of it what it is not.
    #[error(transparent)]
    Blob(highwater_pds::blob::ReferenceError),
    /// `swapCommit` is not the newest commit, which is this one.
    #[error("the repository's newest commit is another one")]
    SwapCommit {
        /// The newest commit.
        commit: Option<Cid>,
    },
    /// `swapRecord` is not what the record is now.
    #[error("the record at {path} is another one")]
    SwapRecord {
        /// The key.
        path: String,
        /// What it names.
        record: Option<Cid>,
    },
    /// The writes themselves.
    #[error(transparent)]
    Write(WriteError),
    /// A write without a record, or one with a record that must have none.
    #[error("{0}")]
    Invalid(String),
    /// A tree or block that is there could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// It did not become part of the log.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
}

/// Why something stored was not read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The account.
    #[error(transparent)]
    Account(#[from] Unserved),
    /// A block that is not here.
    #[error("block {0} is not here")]
    NoBlock(Cid),
    /// Too many repositories are exported at once.
    #[error("as many repositories are exported as the server exports at once: try again later")]
    Busy,
    /// What is stored is not what was written.
    #[error("stored bytes are damaged: {0}")]
    Damaged(String),
    /// The tree is not whole.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl ReadError {
    /// The same, of a block that the repository itself names: that such a block is not here is damage.
    #[must_use]
    pub(crate) fn of_repository(self) -> Self {
        match self {
            Self::NoBlock(cid) => Self::Damaged(format!("block {cid} is missing")),
            other => other,
        }
    }
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Self {
        Self::Read(error.of_repository())
    }
}

impl From<ReadError> for WriteRefused {
    fn from(error: ReadError) -> Self {
        Self::Read(error.of_repository())
    }
}

/// Why nobody follows the stream from a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CursorRefused {
    /// It lies above every number that this server could have handed out.
    #[error("the cursor {cursor} lies above the newest number, {ceiling}")]
    Future {
        /// The cursor.
        cursor: u64,
        /// The highest number that could have been handed out.
        ceiling: u64,
    },
    /// The server stopped.
    #[error("the server takes no more subscribers: {0}")]
    Stopped(String),
}

/// Why a server was not opened. Its files are as they were.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A later program made the directory.
    #[error("{} has version {layout}, which this program does not know: a later program made it. It is not damaged; use that program", path.display())]
    Layout {
        /// The file that says so.
        path: PathBuf,
        /// Its version.
        layout: u16,
    },
    /// The file that says what the directory is does not read.
    #[error("{} is damaged: {what}. Restore it, or the whole directory, from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Data without the file that says whose it is, or a directory of something else.
    #[error("{} holds `{name}` and no file named `pds.layout`: it is no directory of accounts, or an incomplete copy of one", path.display())]
    NoLayout {
        /// The directory.
        path: PathBuf,
        /// A name in it.
        name: String,
    },
    /// There are no accounts where there were some.
    #[error(
        "{} holds no accounts, and {what}. An empty server would give out their numbers again, which relays refuse, and might give out their \
         names; nothing was made or changed. If another volume belongs here, mount it and start again; if the accounts are lost, `highwater \
         pds restore` puts a backup here; if they are given up for good, `highwater pds forget` begins without them, above all their numbers",
        directory.display()
    )]
    AccountsGone {
        /// The directory of accounts.
        directory: PathBuf,
        /// Who says so.
        what: String,
    },
    /// The accounts have their names in another zone.
    #[error(
        "{} holds {accounts} accounts of the zone {theirs}, and the server was to start in the zone {zone}, where nobody could resolve their \
         DIDs or believe what they sign. A DID is for good, and so is the zone from the first account on, with the port behind localhost. Their \
         data is whole, and nothing was made or sent. Set pds.zone = \"{theirs}\" and start again{listen}; for the zone {zone} take another \
         data directory",
        directory.display(),
        listen = theirs.strip_prefix("localhost").map_or(String::new(), |port| format!(" with a listener on 127.0.0.1{port}"))
    )]
    ZoneOther {
        /// The directory of accounts.
        directory: PathBuf,
        /// Accounts in it, erased ones included.
        accounts: u64,
        /// The zone in which the first of them got its name.
        theirs: String,
        /// The zone of the settings.
        zone: String,
    },
    /// The settings are wrong.
    #[error("{0}")]
    Settings(String),
    /// Keys are encrypted under another key, or under none.
    #[error("{0}")]
    Key(String),
    /// The log is gone.
    #[error("{} has lost its log: what was acknowledged since the last checkpoint is missing. Restore the directory `log` with the rest of the copy", .0.display())]
    LogMissing(PathBuf),
    /// The log does not open.
    #[error("the log does not open: {0}")]
    Log(#[from] highwater_wal::OpenError),
    /// What the log held is not all there.
    #[error(
        "the log is damaged in segment {segment}, at byte {offset}: something that was acknowledged is lost. Nothing was changed; \
         restore a copy of the whole directory"
    )]
    LogDamaged {
        /// The segment.
        segment: u64,
        /// Where in it, in bytes.
        offset: u64,
    },
    /// The log's own record of itself is gone.
    #[error(
        "the file `state` of the log is lost, so that nobody knows whether the log is whole. Restore a copy of the whole directory"
    )]
    LogStateLost,
    /// The files are of different times.
    #[error(
        "the checkpoint covers record {applied} and the log ends at {log_end}: these files were copied while the server ran. \
         Nothing was changed. Copy a stopped server's directory, a snapshot of the volume, or make a copy with `highwater pds backup`"
    )]
    CopiedLive {
        /// The record that the checkpoint covers.
        applied: u64,
        /// The newest record of the log.
        log_end: u64,
    },
    /// Records between the checkpoint and the log are missing.
    #[error(
        "the newest checkpoint that reads covers record {applied} and the log begins at {log_begin}: what lies between is lost. No file was \
         removed. Restore a copy of the whole directory"
    )]
    Gap {
        /// The record that the checkpoint covers.
        applied: u64,
        /// The oldest record of the log behind it.
        log_begin: u64,
    },
    /// The store does not open.
    #[error("the store does not open: {0}")]
    Store(#[from] highwater_store::OpenError),
    /// A record of the log is none, or contradicts what was before it.
    #[error("record {lsn} of the log: {what}")]
    Record {
        /// Its number.
        lsn: u64,
        /// What is wrong.
        what: String,
    },
    /// The directory of blobs cannot be gone through.
    #[error("the directory `blobs`: {0}")]
    Blobs(String),
    /// The restore cannot go on. The marker stays.
    #[error("the restore stopped: {0}. The marker stays, and the next start tries again where this one stopped")]
    Restore(String),
    /// Something could not be written at the start.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
    /// The system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
}

impl OpenError {
    /// Whether a server has the directory open.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Log(highwater_wal::OpenError::Locked(_)))
    }

    /// Whether a later program wrote what this one does not know: nothing is damaged then.
    #[must_use]
    pub fn is_later_version(&self) -> bool {
        matches!(
            self,
            Self::Layout { .. }
                | Self::Log(highwater_wal::OpenError::Version { .. })
                | Self::Store(highwater_store::OpenError::Version { .. })
        )
    }

    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        |error| Self::Io { path, error }
    }
}
