//! What a turn of an account hands over: a write, a repository that is set to a state, and what relays have yet to hear.

use crate::account::{Account, Position};
use crate::blob;
use crate::draft::{Draft, Part};
use crate::frame::{self, FRAME_BYTES_MAX};
use crate::record::Fact;
use crate::time::Micros;
use bytes::Bytes;
use highwater_base::planted::{Bug, active};
use highwater_repo::commit::{self, Fresh};
use highwater_repo::key::SigningKey;
use highwater_repo::write::{OPERATIONS_MAX, Prepared, RECORD_BYTES_MAX};
use highwater_repo::{Cid, Commit, Tid, Tree, car, write};
use thiserror::Error;

/// Bytes of a `#commit` besides its archive and its operations at the most: a DID of 2,048, and keys, numbers and links.
const REST_BYTES_MAX: usize = 4_096;
/// Bytes of an operation besides its key at the most: two links, and names.
const OPERATION_BYTES_MAX: usize = 128;

// Whatever passes the checks of a write fits a frame, so that no signed commit is ever refused for its frame.
const _: () = assert!(
    write::COMMIT_BLOCKS_BYTES_MAX
        + OPERATIONS_MAX * (highwater_repo::mst::KEY_BYTES_MAX + OPERATION_BYTES_MAX)
        + REST_BYTES_MAX
        <= FRAME_BYTES_MAX
);
const _: () = assert!(RECORD_BYTES_MAX < write::COMMIT_BLOCKS_BYTES_MAX);

/// Why a turn makes nothing. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// Relays are not told of the account yet.
    #[error("the account was not activated")]
    NotActivated,
    /// It stands where it may not write.
    #[error("the account is {}", .0.as_str())]
    Inactive(crate::account::Status),
    /// It was erased.
    #[error("the account was erased; its names are not given again")]
    Erased,
    /// It was handed to another host or retired.
    #[error("the account was decommissioned")]
    Decommissioned,
    /// The account has a newer commit by now.
    #[error("the commit's revision {0} is not above the account's newest; stage the write again")]
    Stale(Tid),
    /// The commit's block is needed, and was not given, or is another one.
    #[error("the block {0} of the account's newest commit is missing")]
    HeadBlock(Cid),
    /// The message would be longer than relays take.
    #[error("the message would have {0} bytes, more than {FRAME_BYTES_MAX}; write less at once")]
    FrameTooLarge(usize),
}

/// What signs an account's commits, and numbers them.
#[derive(Debug, Clone, Copy)]
pub struct Signer<'a> {
    /// The account's key.
    pub key: &'a SigningKey,
    /// What tells this server's clock from others, in ten bits.
    pub clock_id: u16,
    /// Every revision is above this one: [`crate::State::rev_min`].
    pub rev_min: Option<Tid>,
}

impl Signer<'_> {
    /// The revision of an account's next commit: the clock's, but above its newest one and above what a lost run minted.
    #[must_use]
    pub fn rev(&self, account: &Account, at: Micros) -> Tid {
        let newest = account.head.map(|head| head.rev);
        Tid::after(newest.max(self.rev_min), at.0, self.clock_id)
    }

    /// A commit over the data that the account has. `None` if it has none yet.
    #[must_use]
    pub fn fresh(&self, account: &Account, at: Micros) -> Option<Fresh> {
        let head = account.head?;
        let rev = if active(Bug::RepeatRevision) { head.rev } else { self.rev(account, at) };
        Some(commit::fresh(account.did.clone(), rev, head.data, self.key))
    }

    /// The first commit of an account, over no records.
    #[must_use]
    pub fn genesis(&self, account: &Account, at: Micros) -> Prepared {
        let mut tree = Tree::new();
        let (data, made) = tree.seal();
        let commit = Commit::sign(account.did.clone(), self.rev(account, at), data, self.key);
        let (cid, block) = commit.block();
        let mut archive = car::header(&cid);
        let start = archive.len();
        car::put_block(&mut archive, &cid, &block);
        for (cid, block) in &made {
            car::put_block(&mut archive, cid, block);
        }
        let stored = start..archive.len();
        Prepared { commit, cid, block, archive: archive.into(), stored, tree, operations: Vec::new(), made }
    }
}

/// An ordinary write: a `#commit`, and before it whatever relays have yet to hear of the account.
///
/// In an account of which relays hear with its first write, these are `#identity`, `#account`, and `#sync` of the state that the
/// write builds on; after a change that found no room for its frames, those frames. For that the block of the newest commit is
/// needed whenever [`Account::head_untold`] names one.
/// # Errors
/// [`Refused`].
/// Source: atproto sync specification; lexicon `com.atproto.sync.subscribeRepos`, `commit`.
pub fn commit(
    account: &Account,
    prepared: &Prepared,
    blob_changes: Vec<blob::Change>,
    head_block: Option<&Bytes>,
    at: Micros,
) -> Result<Draft, Refused> {
    may_write(account)?;
    let rev = prepared.commit.rev;
    if account.head.is_some_and(|head| rev <= head.rev) {
        return Err(Refused::Stale(rev));
    }
    let draft = begin_telling(Draft::new(at), account);
    let draft = catch_up(draft, account, head_block)?;
    let mut draft = tell_commit(draft, account, prepared)?;
    for change in blob_changes {
        draft = draft.fact(Fact::Blob(account.id, change));
    }
    Ok(draft)
}

/// Whether an account may write now.
/// # Errors
/// Why not.
pub fn may_write(account: &Account) -> Result<(), Refused> {
    match account.standing {
        standing if standing.may_write() => Ok(()),
        standing if standing.erased => Err(Refused::Erased),
        standing if !standing.activated => Err(Refused::NotActivated),
        standing => match standing.shown() {
            Position::Inactive(status) => Err(Refused::Inactive(status)),
            Position::Active => Ok(()),
        },
    }
}

/// With the first write of an account of which relays did not hear until then.
fn begin_telling(draft: Draft, account: &Account) -> Draft {
    if !account.standing.until_first_write {
        return draft;
    }
    let standing = crate::Standing { until_first_write: false, ..account.standing };
    let identity = frame::identity(&account.did, &account.handle, draft.at);
    draft.fact(Fact::Standing(account.id, standing)).frame(account.id, identity)
}

/// What relays have yet to hear of an account that is active.
pub(crate) fn catch_up(mut draft: Draft, account: &Account, head_block: Option<&Bytes>) -> Result<Draft, Refused> {
    if account.announced != Some(Position::Active) {
        draft = tell_position(draft, account, Position::Active);
    }
    match account.head.filter(|head| !head.sent) {
        Some(head) => tell_head(draft, account, head.commit, head_block),
        None => Ok(draft),
    }
}

/// `#account`; from then on it counts as announced.
pub(crate) fn tell_position(draft: Draft, account: &Account, position: Position) -> Draft {
    let frame = frame::account(&account.did, position, draft.at);
    let draft = draft.frame(account.id, frame);
    if active(Bug::ForgetAnnounced) { draft } else { draft.fact(Fact::Announced(account.id, position)) }
}

/// `#sync` of the head that an account has. Nothing is signed.
pub(crate) fn tell_head(draft: Draft, account: &Account, commit: Cid, block: Option<&Bytes>) -> Result<Draft, Refused> {
    let head = account.head.filter(|head| head.commit == commit).ok_or(Refused::HeadBlock(commit))?;
    let block = block.filter(|block| commit.names(block)).ok_or(Refused::HeadBlock(commit))?;
    let frame = frame::sync(&account.did, head.rev, &commit::sync_archive(&commit, block), draft.at);
    let draft = draft.frame(account.id, frame);
    Ok(if head.sent { draft } else { draft.fact(Fact::HeadSent(account.id, head.rev)) })
}

/// `#sync` over a fresh commit.
pub(crate) fn tell_fresh(draft: Draft, account: &Account, fresh: &Fresh) -> Draft {
    let frame = frame::sync(&account.did, fresh.commit.rev, &fresh.archive, draft.at);
    let head = head_of(&fresh.commit, fresh.cid, true);
    draft.frame(account.id, frame).part(Part::Sent { account: account.id, head, stored: fresh.stored.clone() })
}

/// `#commit`.
pub(crate) fn tell_commit(draft: Draft, account: &Account, prepared: &Prepared) -> Result<Draft, Refused> {
    let (since, previous) = (account.head.map(|head| head.rev), account.head.map(|head| head.data));
    let frame = frame::commit(prepared, since, previous, draft.at);
    let bytes = frame.bytes_max();
    if bytes > FRAME_BYTES_MAX {
        return Err(Refused::FrameTooLarge(bytes));
    }
    let head = head_of(&prepared.commit, prepared.cid, true);
    Ok(draft.frame(account.id, frame).part(Part::Sent { account: account.id, head, stored: prepared.stored.clone() }))
}

pub(crate) fn head_of(commit: &Commit, cid: Cid, sent: bool) -> crate::Head {
    crate::Head { commit: cid, rev: commit.rev, data: commit.data, sent }
}
