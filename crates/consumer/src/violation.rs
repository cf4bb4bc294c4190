//! What a server did that it must not.

use crate::frame::{FrameError, Position};
use highwater_repo::car::CarError;
use highwater_repo::commit::CommitError;
use highwater_repo::data::DataError;
use highwater_repo::mst::{InvertError, TreeError};
use highwater_repo::record::RecordError;
use highwater_repo::syntax::Did;
use highwater_repo::{Cid, Tid};
use thiserror::Error;

/// A rule that a message, a stream of them or a repository broke, with what shows it.
///
/// Source: atproto sync specification, "Firehose Validation Best Practices"; atproto event stream specification.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Violation {
    /// The message is none.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Something came behind an error.
    #[error("{0} came behind the error that ends a connection")]
    AfterError(&'static str),
    /// A number that is not larger than the last one, or than the cursor that was asked for.
    #[error("its number {told} is not behind {last}")]
    Sequence {
        /// The number before it.
        last: u64,
        /// Its number.
        told: u64,
    },
    /// A revision from the future.
    #[error("its rev {rev} is {ahead_ms} ms ahead of the clock")]
    Future {
        /// The revision.
        rev: Tid,
        /// Milliseconds that it is ahead.
        ahead_ms: u64,
    },
    /// A commit of an account that is not active.
    #[error("the account is {0}: nothing of its repository may be sent")]
    Inactive(Position),
    /// The blocks are no archive, or a block in it does not have its name's bytes.
    #[error("the blocks: {0}")]
    Archive(#[from] CarError),
    /// The archive has another root than the commit.
    #[error("the root of the archive is {found}, not the commit {told}")]
    Root {
        /// What the message says.
        told: Cid,
        /// The first root.
        found: Cid,
    },
    /// The commit's block is not among the blocks.
    #[error("the block of commit {0} is missing")]
    CommitMissing(Cid),
    /// More blocks than the commit's.
    #[error("a #sync holds the commit's block alone, and this one holds {0} blocks")]
    SyncBlocks(usize),
    /// The commit's block is none.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The commit is of another account.
    #[error("the commit is {signed}'s")]
    Account {
        /// Who signed.
        signed: Did,
    },
    /// The commit has another revision than the message.
    #[error("the commit's rev is {signed}, and the message says {told}")]
    Rev {
        /// What the message says.
        told: Tid,
        /// What the commit says.
        signed: Tid,
    },
    /// A commit that names one before it.
    #[error("the commit's prev is {0}, and must be null")]
    Previous(Cid),
    /// The account's key did not sign the commit, or its signature has a high s.
    #[error("the account's key did not sign the commit, or not with a low s")]
    Signature,
    /// A record that was created or updated is not among the blocks.
    #[error("the record {cid} at {path} is missing among the blocks")]
    RecordMissing {
        /// The key.
        path: String,
        /// The record.
        cid: Cid,
    },
    /// A record is no value of the data model.
    #[error("the record at {path}: {error}")]
    RecordData {
        /// The key.
        path: String,
        /// What is wrong.
        error: DataError,
    },
    /// A value is no record of its collection.
    #[error("the record at {path}: {error}")]
    Record {
        /// The key.
        path: String,
        /// What is wrong.
        error: RecordError,
    },
    /// A record that is gone was sent along.
    #[error("the record {cid}, which is no longer at {path}, is among the blocks")]
    RecordGone {
        /// The key.
        path: String,
        /// The record.
        cid: Cid,
    },
    /// The operations cannot be undone from the blocks.
    #[error("the operations cannot be undone: {0}")]
    Inversion(#[from] InvertError),
    /// Undoing the operations leads to another tree than the one that `prevData` names.
    #[error("undoing the operations leads to {found}, not to {told}")]
    Undone {
        /// What the message says: `prevData`, or the empty tree if there is none.
        told: Cid,
        /// Where undoing leads.
        found: Cid,
    },
    /// It does not follow the commit before it.
    #[error("since is {}, and the last rev was {}", shown(told.as_ref()), shown(held.as_ref()))]
    Since {
        /// The last revision.
        held: Option<Tid>,
        /// What the message says.
        told: Option<Tid>,
    },
    /// It does not build on the tree before it.
    #[error("prevData is {}, and the tree was {held}", shown(told.as_ref()))]
    PreviousData {
        /// The root of the tree.
        held: Cid,
        /// What the message says.
        told: Option<Cid>,
    },
    /// A repository that was asked for is not whole, or no tree.
    #[error("the repository: {0}")]
    Tree(#[from] TreeError),
    /// A repository that was asked for is older than what was told of it.
    #[error("the repository is at {found}, and {told} was told")]
    Stale {
        /// The revision that was told.
        told: Tid,
        /// The repository's.
        found: Tid,
    },
}

/// A value, or `null` as a message spells it.
fn shown(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "null".to_owned(), ToString::to_string)
}
