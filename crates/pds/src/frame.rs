//! Messages of the firehose, byte for byte: a header and a body, each one map of the data model.
//!
//! Source: atproto event stream specification; lexicon `com.atproto.sync.subscribeRepos`.

use crate::account::Position;
use crate::sequence::Seq;
use crate::time::Micros;
use bytes::Bytes;
use highwater_repo::data::Encoder;
use highwater_repo::syntax::{Did, Handle};
use highwater_repo::write::{Operation, Prepared};
use highwater_repo::{Cid, Tid};
use std::ops::Range;

/// Bytes of a message at the most: relays drop the connection over a longer one.
pub const FRAME_BYTES_MAX: usize = 5_000_000;

/// What a numbered message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Records changed.
    Commit,
    /// A repository was set to a state.
    Sync,
    /// A name or a key may have changed.
    Identity,
    /// Where an account stands.
    Account,
}

impl Kind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Commit => 1,
            Self::Sync => 2,
            Self::Identity => 3,
            Self::Account => 4,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        [Self::Commit, Self::Sync, Self::Identity, Self::Account].into_iter().find(|kind| kind.code() == code)
    }
}

/// A message that has no number yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnumbered {
    /// What it is about.
    pub kind: Kind,
    before: Vec<u8>,
    behind: Vec<u8>,
    /// Where the archive of blocks lies in `behind`.
    archive: usize,
}

impl Unnumbered {
    /// Bytes that the message has at the most, once it has its number.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.before.len() + NUMBER_BYTES_MAX + self.behind.len()
    }

    /// Appends the message with its number. Returns where the archive of a `#commit` or `#sync` begins in it.
    pub fn write(&self, seq: Seq, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let mut number = Encoder::with_capacity(NUMBER_BYTES_MAX);
        number.integer(seq.0 as i64);
        out.extend_from_slice(&self.before);
        out.extend_from_slice(&number.into_vec());
        let behind = out.len();
        out.extend_from_slice(&self.behind);
        behind + self.archive - start
    }
}

/// Bytes of an encoded number at the most.
const NUMBER_BYTES_MAX: usize = 9;

fn header(kind: &str, out: &mut Encoder) {
    out.map(2).text("t").text(kind).text("op").integer(1);
}

/// A commit's message: what it did, with the blocks to check it.
///
/// `since` and `previous` are the revision and the root of the commit before; there are none before the first.
#[must_use]
pub fn commit(prepared: &Prepared, since: Option<Tid>, previous: Option<Cid>, at: Micros) -> Unnumbered {
    let commit = &prepared.commit;
    let mut before = Encoder::with_capacity(512);
    header("#commit", &mut before);
    before.map(if previous.is_some() { 12 } else { 11 }).text("ops").list(prepared.operations.len());
    prepared.operations.iter().for_each(|done| operation(done, &mut before));
    before.text("rev").text(&commit.rev.to_string()).text("seq");
    let mut behind = Encoder::with_capacity(512 + prepared.archive.len());
    behind.text("repo").text(commit.did.as_str()).text("time").text(&at.to_string()).text("blobs").list(0);
    behind.text("since");
    match since {
        Some(since) => behind.text(&since.to_string()),
        None => behind.null(),
    };
    let archive = behind.text("blocks").bytes(&prepared.archive).len() - prepared.archive.len();
    behind.text("commit").link(&prepared.cid).text("rebase").bool(false).text("tooBig").bool(false);
    if let Some(previous) = &previous {
        behind.text("prevData").link(previous);
    }
    Unnumbered { kind: Kind::Commit, before: before.into_vec(), behind: behind.into_vec(), archive }
}

fn operation(done: &Operation, out: &mut Encoder) {
    out.map(if done.previous.is_some() { 4 } else { 3 }).text("cid").optional_link(done.cid.as_ref());
    out.text("path").text(&done.path);
    if let Some(previous) = &done.previous {
        out.text("prev").link(previous);
    }
    out.text("action").text(match (&done.previous, &done.cid) {
        (None, _) => "create",
        (Some(_), Some(_)) => "update",
        (Some(_), None) => "delete",
    });
}

/// A message that sets a repository to a commit, of whose block alone `archive` consists.
#[must_use]
pub fn sync(did: &Did, rev: Tid, archive: &[u8], at: Micros) -> Unnumbered {
    let mut before = Encoder::with_capacity(128);
    header("#sync", &mut before);
    before.map(5).text("did").text(did.as_str()).text("rev").text(&rev.to_string()).text("seq");
    let mut behind = Encoder::with_capacity(128 + archive.len());
    let end = behind.text("time").text(&at.to_string()).text("blocks").bytes(archive).len();
    let archive = end - archive.len();
    Unnumbered { kind: Kind::Sync, before: before.into_vec(), behind: behind.into_vec(), archive }
}

/// A message that lets others look an account's names and key up again.
#[must_use]
pub fn identity(did: &Did, handle: &Handle, at: Micros) -> Unnumbered {
    let mut before = Encoder::with_capacity(128);
    header("#identity", &mut before);
    before.map(4).text("did").text(did.as_str()).text("seq");
    let mut behind = Encoder::with_capacity(128);
    behind.text("time").text(&at.to_string()).text("handle").text(handle.as_str());
    Unnumbered { kind: Kind::Identity, before: before.into_vec(), behind: behind.into_vec(), archive: 0 }
}

/// A message that says where an account stands.
#[must_use]
pub fn account(did: &Did, position: Position, at: Micros) -> Unnumbered {
    let mut before = Encoder::with_capacity(128);
    header("#account", &mut before);
    before.map(if position == Position::Active { 4 } else { 5 }).text("did").text(did.as_str()).text("seq");
    let mut behind = Encoder::with_capacity(128);
    behind.text("time").text(&at.to_string()).text("active").bool(position == Position::Active);
    if let Position::Inactive(status) = position {
        behind.text("status").text(status.as_str());
    }
    Unnumbered { kind: Kind::Account, before: before.into_vec(), behind: behind.into_vec(), archive: 0 }
}

/// The message that a cursor lies before what is kept. It has no number.
#[must_use]
pub fn outdated_cursor(message: &str) -> Bytes {
    let mut out = Encoder::with_capacity(128);
    header("#info", &mut out);
    out.map(2).text("name").text("OutdatedCursor").text("message").text(message);
    out.into_vec().into()
}

/// A message behind which the connection closes.
#[must_use]
pub fn error(name: &str, message: &str) -> Bytes {
    let mut out = Encoder::with_capacity(128);
    out.map(1).text("op").integer(-1);
    out.map(2).text("error").text(name).text("message").text(message);
    out.into_vec().into()
}

/// The part of a message's archive that a server keeps, from where the archive begins in the message.
#[must_use]
pub fn stored(archive: usize, stored: &Range<usize>) -> Range<usize> {
    archive + stored.start..archive + stored.end
}
