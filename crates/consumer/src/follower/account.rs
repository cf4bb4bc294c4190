//! What is held of one account, and what an event of it changes.

use super::verify::{self, Found};
use super::{Cause, Options, Output};
use crate::frame::{AccountFrame, CommitFrame, Frame, IdentityFrame, Position, Status, SyncFrame};
use crate::violation::Violation;
use bytes::Bytes;
use highwater_base::Millis;
use highwater_repo::key::PublicKey;
use highwater_repo::syntax::{Did, Handle};
use highwater_repo::{Cid, Commit, Tid};
use std::collections::{BTreeMap, VecDeque};

/// Events of an account that wait for its key or its repository; what comes beyond is dropped, and found to be missing later.
const WAITING_MAX: usize = 1_000;

/// Who, when and how.
pub(super) struct Context<'a> {
    pub did: &'a Did,
    pub now: Millis,
    pub options: Options,
}

/// The newest commit that was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its revision.
    pub rev: Tid,
    /// Its name.
    pub commit: Cid,
    /// The root of its tree.
    pub data: Cid,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub cid: Cid,
    /// Its bytes, if they are kept.
    pub bytes: Option<Bytes>,
}

/// What an account's events could not be verified for want of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacks {
    /// The key that its DID document names.
    Key,
    /// The repository as a whole.
    Repository,
}

/// Events of an account that are neither right nor wrong yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unverified {
    /// What is missing.
    pub lacks: Lacks,
    /// How many events.
    pub events: u64,
}

/// A repository that is not what the server has.
#[derive(Debug, Clone, Default)]
struct Lost {
    /// The newest revision that must be in the repository: that of a `#sync`, or of the commit that showed the loss.
    wanted: Option<Tid>,
    /// While the repository is asked for, what it must not be older than.
    asked: Option<Option<Tid>>,
    /// Commits that came since.
    waiting: VecDeque<CommitFrame>,
}

/// What is held of one account.
#[derive(Debug, Clone, Default)]
pub struct Account {
    position: Option<Position>,
    handle: Option<Handle>,
    head: Option<Head>,
    /// `None` before the first commit that is held as a whole, and once the account was deleted.
    records: Option<BTreeMap<String, Record>>,
    key: Option<PublicKey>,
    /// Whether the key was asked for.
    resolving: bool,
    /// Events that wait for the key, and all that came behind them.
    waiting: VecDeque<Frame>,
    /// How many came when no more could wait.
    dropped: u64,
    /// A repository that waits for the key.
    archive: Option<Bytes>,
    lost: Option<Lost>,
    /// Whether events may have been missed since the last one that was applied.
    gap: bool,
    /// The revision at which a repository was last taken as a whole.
    fetched: Option<Tid>,
}

impl Account {
    /// Where it stands, once an `#account` said so.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// Its handle, as the last `#identity` said it.
    #[must_use]
    pub fn handle(&self) -> Option<&Handle> {
        self.handle.as_ref()
    }

    /// The newest commit that was verified.
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    /// Its records by key; `None` if they are not known, or gone with the account.
    #[must_use]
    pub fn records(&self) -> Option<&BTreeMap<String, Record>> {
        self.records.as_ref()
    }

    /// Whether what is held is what the server has, as far as it told.
    #[must_use]
    pub fn is_synchronized(&self) -> bool {
        self.lost.is_none() && self.waiting.is_empty()
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.lost.as_ref().is_some_and(|lost| lost.asked.is_none())
    }

    /// What came and was not verified, because what it is verified with was not to be had.
    pub(super) fn unverified(&self) -> Option<Unverified> {
        let waiting = (self.waiting.len() as u64).saturating_add(self.dropped);
        if waiting > 0 {
            return Some(Unverified { lacks: Lacks::Key, events: waiting });
        }
        // The event that showed the loss may be a `#sync`, which is not kept.
        let lost = self.lost.as_ref()?;
        Some(Unverified { lacks: Lacks::Repository, events: (lost.waiting.len() as u64).max(1) })
    }

    pub(super) fn missed(&mut self) {
        self.gap = true;
    }

    /// An event. What needs the key waits for it, and what came later waits behind it.
    pub(super) fn take(&mut self, context: &Context<'_>, event: Frame, out: &mut Vec<Output>) {
        let of_repository = matches!(event, Frame::Commit(_) | Frame::Sync(_));
        if !self.waiting.is_empty() || of_repository && self.key.is_none() {
            if of_repository && self.waiting.len() >= WAITING_MAX {
                self.dropped = self.dropped.saturating_add(1);
                return self.resolve(context, out);
            }
            self.waiting.push_back(event);
            return self.resolve(context, out);
        }
        match event {
            Frame::Account(frame) => self.stand(context, &frame, out),
            Frame::Identity(frame) => self.identify(context, frame, out),
            Frame::Commit(frame) => self.commit(context, frame, out),
            Frame::Sync(frame) => self.sync(context, &frame, out),
            Frame::Outdated(_) | Frame::Error(_) => {}
        }
    }

    fn resolve(&mut self, context: &Context<'_>, out: &mut Vec<Output>) {
        if !self.resolving {
            self.resolving = true;
            out.push(Output::Resolve { did: context.did.clone() });
        }
    }

    /// The key, or that there is none to be had now.
    pub(super) fn key(&mut self, context: &Context<'_>, key: Option<PublicKey>, out: &mut Vec<Output>) {
        self.resolving = false;
        self.key = key.or(self.key);
        if self.key.is_none() {
            return;
        }
        if let Some(archive) = self.archive.take() {
            self.repo(context, Some(archive), out);
        }
        for event in std::mem::take(&mut self.waiting) {
            self.take(context, event, out);
        }
        // Only now: what waited is whole, and what follows it is not.
        if std::mem::take(&mut self.dropped) > 0 {
            self.missed();
        }
    }

    fn stand(&mut self, context: &Context<'_>, frame: &AccountFrame, out: &mut Vec<Output>) {
        let AccountFrame { sequence, position, .. } = *frame;
        self.position = Some(position);
        if position.status() == Some(Status::Deleted) {
            // Its revision stays: nothing older may come back.
            (self.records, self.lost) = (None, None);
        }
        out.push(Output::Account { sequence, did: context.did.clone(), position });
    }

    fn identify(&mut self, context: &Context<'_>, frame: IdentityFrame, out: &mut Vec<Output>) {
        let IdentityFrame { sequence, handle, .. } = frame;
        self.key = None;
        self.handle = handle.clone().or(self.handle.take());
        out.push(Output::Identity { sequence, did: context.did.clone(), handle });
    }

    /// Whether an event of the repository may be taken at all.
    fn admits(&self, context: &Context<'_>, sequence: u64, rev: Tid, out: &mut Vec<Output>) -> bool {
        if let Some(position) = self.position.filter(|position| !position.is_active()) {
            if !self.gap {
                out.push(blame(context, sequence, Violation::Inactive(position)));
            }
            return false;
        }
        if let Some(held) = self.head.map(|head| head.rev).filter(|held| rev <= *held) {
            let fetched = self.fetched.is_some_and(|fetched| rev <= fetched);
            out.push(Output::Ignored { sequence, did: context.did.clone(), rev, held, fetched });
            return false;
        }
        let ahead_ms = (rev.micros() / 1_000).saturating_sub(context.now.0);
        if ahead_ms > context.options.ahead_ms_max {
            out.push(blame(context, sequence, Violation::Future { rev, ahead_ms }));
            return false;
        }
        true
    }

    fn commit(&mut self, context: &Context<'_>, frame: CommitFrame, out: &mut Vec<Output>) {
        let (sequence, rev) = (frame.sequence, frame.rev);
        let Some(key) = self.key.filter(|_| self.admits(context, sequence, rev, out)) else { return };
        let (commit, blocks) = match verify::commit(&frame, &key) {
            Ok(verified) => verified,
            Err(violation) => return out.push(blame(context, sequence, violation)),
        };
        if self.lost.is_some() {
            return self.ask(context, Some(frame), out);
        }
        if let Err(violation) = verify::operations(&frame, &commit, &blocks) {
            out.push(blame(context, sequence, violation));
            return self.lose(context, sequence, Cause::Broken, Some(frame), out);
        }
        match self.follows(&frame) {
            Ok(()) => self.apply(context, &frame, &commit, &blocks, out),
            Err((cause, violation)) => {
                out.extend(violation.filter(|_| !self.gap).map(|violation| blame(context, sequence, violation)));
                self.lose(context, sequence, cause, Some(frame), out);
            }
        }
    }

    /// Whether a commit follows what is held.
    fn follows(&self, frame: &CommitFrame) -> Result<(), (Cause, Option<Violation>)> {
        let (since, previous) = (frame.since, frame.previous_data);
        match self.head {
            None if since.is_none() => Ok(()),
            None => Err((Cause::Unknown, None)),
            Some(head) if since != Some(head.rev) => {
                Err((Cause::Chain, Some(Violation::Since { held: Some(head.rev), told: since })))
            }
            Some(head) if previous != Some(head.data) => {
                Err((Cause::Chain, Some(Violation::PreviousData { held: head.data, told: previous })))
            }
            Some(_) if self.records.is_none() => Err((Cause::Unknown, None)),
            Some(_) => Ok(()),
        }
    }

    fn apply(
        &mut self,
        context: &Context<'_>,
        frame: &CommitFrame,
        commit: &Commit,
        blocks: &Found,
        out: &mut Vec<Output>,
    ) {
        let records = self.records.get_or_insert_default();
        for operation in &frame.operations {
            match operation.cid {
                Some(cid) => {
                    let bytes = blocks.get(&cid).filter(|_| context.options.bytes_kept).cloned();
                    records.insert(operation.path.clone(), Record { cid, bytes });
                }
                None => drop(records.remove(&operation.path)),
            }
        }
        self.advance(Head { rev: commit.rev, commit: frame.commit, data: commit.data });
        out.push(Output::Committed {
            sequence: frame.sequence,
            did: context.did.clone(),
            rev: commit.rev,
            data: commit.data,
            operations: frame.operations.clone(),
        });
    }

    fn advance(&mut self, head: Head) {
        (self.head, self.gap) = (Some(head), false);
    }

    fn sync(&mut self, context: &Context<'_>, frame: &SyncFrame, out: &mut Vec<Output>) {
        let (sequence, rev, did) = (frame.sequence, frame.rev, context.did.clone());
        let Some(key) = self.key.filter(|_| self.admits(context, sequence, rev, out)) else { return };
        let (commit, cid) = match verify::sync(frame, &key) {
            Ok(verified) => verified,
            Err(violation) => return out.push(blame(context, sequence, violation)),
        };
        let head = Head { rev, commit: cid, data: commit.data };
        if let Some(lost) = &mut self.lost {
            lost.wanted = lost.wanted.max(Some(rev));
            return self.ask(context, None, out);
        }
        let held = self.head.map(|head| head.data).filter(|_| self.records.is_some());
        if held == Some(head.data) {
            self.advance(head);
            out.push(Output::Advanced { sequence, did, rev });
        } else if head.data == verify::empty_root() {
            self.records = Some(BTreeMap::new());
            self.advance(head);
            out.push(Output::Resynchronized { did, rev });
        } else {
            self.lost = Some(Lost { wanted: Some(rev), ..Lost::default() });
            self.lose(context, sequence, Cause::Sync, None, out);
        }
    }

    fn lose(
        &mut self,
        context: &Context<'_>,
        sequence: u64,
        cause: Cause,
        frame: Option<CommitFrame>,
        out: &mut Vec<Output>,
    ) {
        out.push(Output::Desynchronized { sequence, did: context.did.clone(), cause });
        // A server sends nothing that its own repository does not hold yet.
        let lost = self.lost.get_or_insert_default();
        lost.wanted = lost.wanted.max(frame.as_ref().map(|frame| frame.rev));
        self.ask(context, frame, out);
    }

    /// Lets an event wait for the repository, which is asked for unless it was.
    fn ask(&mut self, context: &Context<'_>, frame: Option<CommitFrame>, out: &mut Vec<Output>) {
        let lost = self.lost.get_or_insert_default();
        if lost.waiting.len() < WAITING_MAX {
            lost.waiting.extend(frame);
        }
        if lost.asked.is_none() {
            lost.asked = Some(lost.wanted);
            out.push(Output::GetRepo { did: context.did.clone() });
        }
    }

    /// A repository as a whole, or that it is not to be had now: then the next event asks again, or whoever asks by itself.
    pub(super) fn repo(&mut self, context: &Context<'_>, archive: Option<Bytes>, out: &mut Vec<Output>) {
        if self.position.is_some_and(|position| position.status() == Some(Status::Deleted)) {
            return;
        }
        let Some(archive) = archive else {
            self.lost.iter_mut().for_each(|lost| lost.asked = None);
            return;
        };
        let Some(key) = self.key else {
            self.archive = Some(archive);
            return self.resolve(context, out);
        };
        let asked = self.lost.as_mut().and_then(|lost| lost.asked.take()).flatten();
        let told = asked.max(self.head.map(|head| head.rev));
        let whole = verify::whole(&archive, context.did, &key).and_then(|whole| match told {
            Some(told) if whole.commit.rev < told => Err(Violation::Stale { told, found: whole.commit.rev }),
            _ => Ok(whole),
        });
        match whole {
            Ok(whole) => self.regain(context, whole, out),
            Err(violation) => {
                out.push(Output::Violation { sequence: None, did: Some(context.did.clone()), violation });
            }
        }
    }

    fn regain(&mut self, context: &Context<'_>, whole: verify::Whole, out: &mut Vec<Output>) {
        let rev = whole.commit.rev;
        if self.lost.as_ref().is_some_and(|lost| lost.wanted > Some(rev)) {
            // A #sync came after the repository had been asked for.
            return self.ask(context, None, out);
        }
        let kept = |bytes: Bytes| context.options.bytes_kept.then_some(bytes);
        let records = whole.records.into_iter().map(|(path, (cid, bytes))| (path, Record { cid, bytes: kept(bytes) }));
        self.records = Some(records.collect());
        self.fetched = Some(rev);
        self.advance(Head { rev, commit: whole.cid, data: whole.commit.data });
        out.push(Output::Resynchronized { did: context.did.clone(), rev });
        for frame in self.lost.take().map(|lost| lost.waiting).unwrap_or_default() {
            if frame.rev > rev {
                self.commit(context, frame, out);
            }
        }
    }
}

/// A rule that an event broke.
fn blame(context: &Context<'_>, sequence: u64, violation: Violation) -> Output {
    Output::Violation { sequence: Some(sequence), did: Some(context.did.clone()), violation }
}
