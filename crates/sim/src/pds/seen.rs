//! What anybody saw of the stream, and what follows from it for whoever sees it again.

use crate::invariants::{Checked, Invariant, hold, violated};
use bytes::Bytes;
use highwater_consumer::Frame;
use highwater_consumer::frame::Position;
use highwater_pds::Micros;
use highwater_repo::syntax::Did;
use highwater_repo::{Cid, Tid};
use std::collections::{BTreeMap, BTreeSet};

/// What a frame is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `#identity`.
    Identity,
    /// `#account`, and where the account stands.
    Account(Position),
    /// `#commit`, and its revision.
    Commit(Tid),
    /// `#sync`, and its revision.
    Sync(Tid),
}

/// A frame that was seen.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The message.
    pub bytes: Bytes,
    /// Whom it is about.
    pub did: Did,
    /// What it is.
    pub kind: Kind,
    /// When it was made, as it says: these texts sort as their times do.
    pub time: String,
}

/// What is true of one history: a copy of the files takes a copy of it.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Frames that must be replayed while they are not too old.
    pub window: BTreeMap<u64, Shown>,
    /// The newest `#account` of each account.
    pub told: BTreeMap<Did, Position>,
    /// Accounts that became active again, and of which the next frame must be a `#sync`.
    owed: BTreeSet<Did>,
    /// Above which number the frames of the newest restore lie, and when it began.
    pub restored: Option<(u64, Micros)>,
}

/// When frames may be gone.
#[derive(Debug, Clone, Copy)]
pub struct Keeping {
    /// Frames that are not newer may be gone.
    pub before: Micros,
    /// Whether older ones may be gone all the same, because they are many.
    pub capped: bool,
}

/// Everything that was seen, over all histories.
#[derive(Debug, Default)]
pub struct Seen {
    /// What holds now.
    pub history: History,
    /// What each number meant.
    ever: BTreeMap<u64, Bytes>,
    /// What each revision meant.
    revs: BTreeMap<(Did, Tid), Cid>,
}

impl Seen {
    /// The highest number that was ever seen.
    #[must_use]
    pub fn newest_ever(&self) -> Option<u64> {
        self.ever.keys().next_back().copied()
    }

    /// Numbers that were ever seen.
    #[must_use]
    pub fn numbers(&self) -> Vec<u64> {
        self.ever.keys().copied().collect()
    }

    /// The newest revision that was ever seen of an account.
    #[must_use]
    pub fn newest_rev(&self, did: &Did) -> Option<Tid> {
        let end = (did.clone(), Tid::from_bits(u64::MAX >> 1).unwrap_or(Tid::MIN));
        self.revs.range((did.clone(), Tid::MIN)..=end).next_back().map(|((_, rev), _)| *rev)
    }

    /// The newest revision of all.
    #[must_use]
    pub fn rev_max(&self) -> Option<Tid> {
        self.revs.keys().map(|(_, rev)| *rev).max()
    }

    /// A revision was seen, and what it means.
    /// # Errors
    /// [`Invariant::NumbersOnce`] if it meant another commit before.
    pub fn rev(&mut self, did: &Did, rev: Tid, commit: Cid) -> Checked {
        let known = *self.revs.entry((did.clone(), rev)).or_insert(commit);
        hold(Invariant::NumbersOnce, known == commit, || format!("{rev} of {did} was {known} and is {commit}"))
    }

    /// A frame that came live.
    /// # Errors
    /// What it breaks.
    pub fn take(&mut self, message: Bytes) -> Checked<u64> {
        let (seq, shown) = read(message)?;
        let newest = self.history.window.keys().next_back().copied().unwrap_or_default();
        hold(Invariant::NumbersOnce, seq > newest, || format!("{seq} came behind {newest}"))?;
        self.note(seq, shown)?;
        Ok(seq)
    }

    fn note(&mut self, seq: u64, shown: Shown) -> Checked {
        if let Some(known) = self.ever.insert(seq, shown.bytes.clone()) {
            hold(Invariant::NumbersOnce, known == shown.bytes, || {
                format!(
                    "{seq} was {:?} and is {:?} of {}",
                    read(known.clone()).map(|it| it.1.kind),
                    shown.kind,
                    shown.did
                )
            })?;
        }
        if let Ok(Frame::Commit(frame)) = Frame::decode(shown.bytes.clone()) {
            self.rev(&frame.did, frame.rev, frame.commit)?;
        }
        let did = &shown.did;
        match shown.kind {
            Kind::Sync(_) => drop(self.history.owed.remove(did)),
            kind => {
                let owed = self.history.owed.contains(did);
                hold(Invariant::LiftTellsHead, !owed, || format!("{did} is active again, then came {kind:?}"))?;
            }
        }
        if let Kind::Account(position) = shown.kind {
            let before = self.history.told.insert(did.clone(), position);
            if position.is_active() && before.is_some_and(|before| !before.is_active()) {
                self.history.owed.insert(did.clone());
            }
        }
        self.history.window.insert(seq, shown);
        Ok(())
    }

    /// Everything that is kept was replayed: what was seen must be there. Returns the numbers of the frames that are new.
    /// # Errors
    /// What it breaks.
    pub fn replayed(
        &mut self,
        messages: Vec<Bytes>,
        erased: &dyn Fn(&Did) -> bool,
        keeping: Keeping,
    ) -> Checked<Vec<u64>> {
        let mut kept = BTreeMap::new();
        let mut last = 0;
        for message in messages {
            let (seq, shown) = read(message)?;
            hold(Invariant::FollowersFindNoFault, seq > last, || format!("{seq} is replayed behind {last}"))?;
            last = seq;
            kept.insert(seq, shown);
        }
        let first = kept.keys().next().copied().unwrap_or(u64::MAX);
        let before = keeping.before.to_string();
        for (seq, shown) in &self.history.window {
            match kept.get(seq) {
                Some(found) => {
                    hold(Invariant::FramesStay, found.bytes == shown.bytes, || format!("{seq} has other bytes"))?
                }
                None if erased(&shown.did) && !matches!(shown.kind, Kind::Account(_)) => {}
                None => {
                    let restored = self.history.restored.filter(|(_, begun)| *begun > keeping.before);
                    let protected = restored.is_some_and(|(floor, _)| *seq > floor);
                    let old = *seq < first && !protected && (keeping.capped || shown.time <= before);
                    hold(Invariant::FramesStay, old, || {
                        format!(
                            "{seq}, {:?} of {}, of {}, was seen and is gone: frames begin with {first}",
                            shown.kind, shown.did, shown.time
                        )
                    })?;
                }
            }
        }
        let newest = self.history.window.keys().next_back().copied().unwrap_or_default();
        let window = std::mem::take(&mut self.history.window);
        let mut new = Vec::new();
        for (seq, shown) in kept {
            if window.contains_key(&seq) {
                self.history.window.insert(seq, shown);
            } else if seq > newest {
                new.push(seq);
                self.note(seq, shown)?;
            } else {
                return violated(Invariant::FramesStay, format!("{seq} appears before {newest}, which had been seen"));
            }
        }
        Ok(new)
    }
}

/// What a message of the stream is.
fn read(message: Bytes) -> Checked<(u64, Shown)> {
    let frame = match Frame::decode(message.clone()) {
        Ok(frame) => frame,
        Err(error) => return violated(Invariant::FollowersFindNoFault, error.to_string()),
    };
    let (seq, did, time, kind) = match frame {
        Frame::Commit(frame) => (frame.sequence, frame.did, frame.time, Kind::Commit(frame.rev)),
        Frame::Sync(frame) => (frame.sequence, frame.did, frame.time, Kind::Sync(frame.rev)),
        Frame::Identity(frame) => (frame.sequence, frame.did, frame.time, Kind::Identity),
        Frame::Account(frame) => (frame.sequence, frame.did, frame.time, Kind::Account(frame.position)),
        Frame::Outdated(_) | Frame::Error(_) => {
            return violated(Invariant::FollowersFindNoFault, format!("{frame:?} among frames from the beginning"));
        }
    };
    Ok((seq, Shown { bytes: message, did, kind, time }))
}
