//! What the relay holds of a host's accounts, and what it makes of an event.

use crate::follower::{AHEAD_MS_MAX, told_commit};
use crate::frame::{AccountFrame, CommitFrame, Frame, Position, SyncFrame};
use highwater_repo::syntax::Did;
use highwater_repo::{Cid, Tid};
use std::collections::BTreeMap;

/// What the relay holds of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Whether it came when the host had as many accounts as the relay takes: nothing of its repository is handed on.
    pub throttled: bool,
    /// Where it stands at the host, as far as the relay knows.
    pub position: Position,
    /// The revision of the newest commit.
    pub rev: Option<Tid>,
    /// The root of the tree at that commit.
    pub data: Option<Cid>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was handed on.
    Forwarded,
    /// It was handed on with a warning: it does not follow what the relay holds, which others will find.
    Warned,
    /// It was not handed on.
    Dropped(Dropped),
    /// It is no event, and nothing comes of it.
    Noted,
    /// It was `FutureCursor`: the relay leaves the host.
    Cancelled,
}

/// Why an event was not handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The account is one beyond the limit.
    Throttled,
    /// The account is not active, and its host says so too, or does not answer.
    Inactive,
    /// The revision is not newer than the one that is held.
    Old,
    /// The revision is too far ahead of the clock.
    Future,
    /// There is no commit in it, or another one than it says.
    Broken,
    /// A commit that is not the first says nothing of the tree before it.
    NoPreviousData,
}

/// What an event needs.
pub(super) enum Next {
    Done(Verdict),
    /// The host says where the account stands.
    Ask(Did),
}

/// The accounts of one host.
#[derive(Debug)]
pub(super) struct Accounts {
    limit: u64,
    held: BTreeMap<Did, Held>,
    /// In the order in which they came, which is the order in which a raised limit lets them in.
    order: Vec<Did>,
}

impl Accounts {
    pub fn new(limit: u64) -> Self {
        Self { limit, held: BTreeMap::new(), order: Vec::new() }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn count(&self) -> u64 {
        self.order.len() as u64
    }

    pub fn get(&self, did: &Did) -> Option<&Held> {
        self.held.get(did)
    }

    pub fn set_limit(&mut self, limit: u64) {
        let mut room = limit.saturating_sub(self.limit);
        self.limit = limit;
        for did in &self.order {
            let held = self.held.get_mut(did).expect("every account in the order is held");
            if room > 0 && held.throttled && held.position.is_active() {
                held.throttled = false;
                room -= 1;
            }
        }
    }

    fn entry(&mut self, did: &Did) -> &mut Held {
        let throttled = self.count() >= self.limit;
        if !self.held.contains_key(did) {
            self.order.push(did.clone());
        }
        let fresh = Held { throttled, position: Position::ACTIVE, rev: None, data: None };
        self.held.entry(did.clone()).or_insert(fresh)
    }

    /// An event, with what the host answered if it was asked.
    pub fn process(&mut self, now: u64, frame: &Frame, answer: Option<Option<Position>>) -> Next {
        Next::Done(match frame {
            Frame::Account(AccountFrame { did, position, .. }) => {
                self.entry(did).position = *position;
                Verdict::Forwarded
            }
            Frame::Identity(frame) => {
                self.entry(&frame.did);
                Verdict::Forwarded
            }
            Frame::Outdated(_) => Verdict::Noted,
            Frame::Error(error) if error.error == "FutureCursor" => Verdict::Cancelled,
            Frame::Error(_) => Verdict::Noted,
            Frame::Commit(CommitFrame { did, .. }) | Frame::Sync(SyncFrame { did, .. }) => {
                let held = self.entry(did);
                if !held.throttled && !held.position.is_active() {
                    match answer {
                        None => return Next::Ask(did.clone()),
                        Some(Some(position)) => held.position = position,
                        Some(None) => {}
                    }
                }
                match held.of_repository(now, frame) {
                    Ok(verdict) => verdict,
                    Err(dropped) => Verdict::Dropped(dropped),
                }
            }
        })
    }
}

impl Held {
    fn of_repository(&mut self, now: u64, frame: &Frame) -> Result<Verdict, Dropped> {
        if self.throttled {
            return Err(Dropped::Throttled);
        }
        if !self.position.is_active() {
            return Err(Dropped::Inactive);
        }
        let (rev, blocks) = match frame {
            Frame::Commit(frame) => (frame.rev, &frame.blocks),
            Frame::Sync(frame) => (frame.rev, &frame.blocks),
            _ => return Ok(Verdict::Noted),
        };
        // A #sync is taken whatever its revision.
        if matches!(frame, Frame::Commit(_)) && self.rev.is_some_and(|held| rev <= held) {
            return Err(Dropped::Old);
        }
        let commit = told_commit(blocks).filter(|commit| Some(&commit.did) == frame.did() && commit.rev == rev);
        let commit = commit.ok_or(Dropped::Broken)?;
        if (rev.micros() / 1_000).saturating_sub(now) > AHEAD_MS_MAX {
            return Err(Dropped::Future);
        }
        let verdict = match frame {
            Frame::Commit(frame) => self.follows(frame)?,
            _ => Verdict::Forwarded,
        };
        (self.rev, self.data) = (Some(rev), Some(commit.data));
        Ok(verdict)
    }

    /// A chain that is broken is no reason to drop a commit; that it says nothing of its chain is.
    fn follows(&self, frame: &CommitFrame) -> Result<Verdict, Dropped> {
        let Some(rev) = self.rev else { return Ok(Verdict::Forwarded) };
        if frame.previous_data.is_none() {
            return Err(Dropped::NoPreviousData);
        }
        let follows = frame.previous_data == self.data && frame.since == Some(rev);
        Ok(if follows { Verdict::Forwarded } else { Verdict::Warned })
    }
}
