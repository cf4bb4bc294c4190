//! What is asked of a server, and what it answers.

use bytes::Bytes;
use highwater_repo::key::Curve;
use highwater_repo::syntax::Handle;
use highwater_repo::{Cid, Tid};

/// An account that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAccount {
    /// Its handle, below the zone; drawn if there is none.
    pub handle: Option<Handle>,
    /// Its password's hash in the PHC string format; without one nobody logs in.
    pub password_hash: Option<String>,
    /// The curve of its key.
    pub curve: Curve,
    /// Whether it is active at once.
    pub activate: bool,
}

/// What to do about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Make it; it must not be there.
    Create,
    /// Make it or replace it; the same bytes are no change.
    Put,
    /// Replace it; it must be there.
    Update,
    /// Remove it; it must be there.
    Delete,
    /// Remove it if it is there.
    Remove,
}

/// One write of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordWrite {
    /// What to do.
    pub action: Action,
    /// The kind of record.
    pub collection: String,
    /// Its key; drawn for a create that has none.
    pub rkey: Option<String>,
    /// The record in its one encoding; none for a delete.
    pub record: Option<Bytes>,
    /// What the key must name now: `Some(None)` for nothing.
    pub swap_record: Option<Option<Cid>>,
}

/// Writes that become one commit, or none at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteBatch {
    /// The writes, 1 to 200.
    pub writes: Vec<RecordWrite>,
    /// What the newest commit must be.
    pub swap_commit: Option<Cid>,
}

/// What became of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteResult {
    /// The key: `kind/record-key`.
    pub path: String,
    /// The record that is there now.
    pub cid: Option<Cid>,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The commit and its revision; none if nothing changed.
    pub commit: Option<(Cid, Tid)>,
    /// One for each write, in their order.
    pub results: Vec<WriteResult>,
}

/// A record as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key in the collection.
    pub rkey: String,
    /// Its name.
    pub cid: Cid,
    /// The record in its one encoding.
    pub record: Bytes,
}

/// Records of a collection, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The records.
    pub records: Vec<Listed>,
    /// It is as long as it may be: there may be more.
    pub full: bool,
}

/// Which records of a collection are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The collection.
    pub collection: String,
    /// Only those behind this key, in the order of the list.
    pub behind: Option<String>,
    /// How many at the most.
    pub limit: usize,
    /// Bytes of records after which the list ends all the same; the last record may go beyond them.
    pub bytes_max: usize,
    /// From the smallest key on; else from the largest.
    pub ascending: bool,
}
