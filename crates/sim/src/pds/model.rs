//! What accounts were asked to be, and what they may be when answers are missing.

use crate::invariants::{Checked, Invariant, hold, violated};
use highwater_host::{Action, Pending, Refused, Unsettled, WriteRefused, Written};
use highwater_pds::lifecycle::{Announce, Change};
use highwater_pds::{Account, Standing};
use highwater_repo::syntax::Did;
use highwater_repo::{Blocks, Cid, Tid, Tree};
use std::collections::{BTreeMap, VecDeque};

/// What an account is, as far as its owner and its operator know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// What was done to it.
    pub standing: Standing,
    /// Its records.
    pub records: BTreeMap<String, Cid>,
    /// Its password's hash.
    pub password: Option<String>,
}

/// One write of a batch.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What to do.
    pub action: Action,
    /// At which key.
    pub path: String,
    /// The record.
    pub cid: Option<Cid>,
    /// What the key must name.
    pub swap: Option<Option<Cid>>,
}

/// What an account was asked.
#[derive(Debug, Clone)]
pub enum Asked {
    /// To stand elsewhere.
    Change(Change),
    /// To write; never, if the newest commit must be one that does not exist.
    Write(Vec<Wanted>, bool),
    /// To log in with another password.
    Password(String),
}

impl Shape {
    /// A new account.
    #[must_use]
    pub fn new(activate: Option<Announce>) -> Self {
        let shape = Self::default();
        activate.and_then(|announce| shape.after(&Asked::Change(Change::Activate(announce)))).unwrap_or(shape)
    }

    /// The account after what it was asked; `None` if that is refused.
    #[must_use]
    pub fn after(&self, asked: &Asked) -> Option<Self> {
        let mut after = self.clone();
        match asked {
            Asked::Password(_) if self.standing.erased => return None,
            Asked::Password(hash) => after.password = Some(hash.clone()),
            Asked::Change(change) => {
                after.standing = changed(self.standing, *change)?;
                if after.standing.erased {
                    after.password = None;
                }
            }
            Asked::Write(_, wrong) if *wrong || !self.standing.may_write() => return None,
            Asked::Write(wanted, _) => {
                for Wanted { action, path, cid, swap } in wanted {
                    let there = self.records.get(path).copied();
                    let refused = match action {
                        Action::Create => there.is_some(),
                        Action::Update | Action::Delete => there.is_none(),
                        Action::Put | Action::Remove => false,
                    };
                    if refused || swap.is_some_and(|swap| swap != there) {
                        return None;
                    }
                    match cid {
                        Some(cid) => after.records.insert(path.clone(), *cid),
                        None => after.records.remove(path),
                    };
                }
                // Updates of a record to what it is are commits that change nothing but the revision.
                let commits =
                    after.records != self.records || wanted.iter().any(|wanted| wanted.action == Action::Update);
                after.standing.until_first_write &= !commits;
            }
        }
        Some(after)
    }

    /// The name of the tree of its records.
    #[must_use]
    pub fn data(&self) -> Cid {
        let (mut tree, nothing) = (Tree::new(), BTreeMap::new());
        let blocks: &dyn Blocks = &nothing;
        for (path, cid) in &self.records {
            tree.put(path, *cid, blocks).expect("all of the tree is in memory");
        }
        tree.seal().0
    }

    /// Whether a row is this account; what differs, if not.
    /// # Errors
    /// What differs.
    pub fn is(&self, row: &Account) -> Result<(), String> {
        if row.standing != self.standing {
            return Err(format!("it stands at {:?}, and should at {:?}", row.standing, self.standing));
        }
        if row.credentials.password != self.password {
            return Err(format!("its password is {:?}, and should be {:?}", row.credentials.password, self.password));
        }
        match row.head {
            _ if self.standing.erased => Ok(()),
            None if self.records.is_empty() && !self.standing.activated => Ok(()),
            None => Err("it has no repository".to_owned()),
            Some(head) if head.data == self.data() => Ok(()),
            Some(head) => Err(format!("its tree at {} is not that of its {} records", head.rev, self.records.len())),
        }
    }
}

/// Source: atproto account specification; what an operator may do is decided in docs/reference/pds-accounts.md.
fn changed(before: Standing, change: Change) -> Option<Standing> {
    let mut after = before;
    match change {
        Change::Erase => after.erased = true,
        _ if before.erased => return None,
        Change::Activate(_) | Change::Deactivate | Change::Reactivate if before.decommissioned => return None,
        Change::Deactivate | Change::Reactivate if !before.activated => return None,
        Change::Activate(announce) => {
            after.until_first_write |= !before.activated && announce == Announce::OnFirstWrite;
            after.activated = true;
        }
        Change::Lock => after.suspended = true,
        Change::Lift => after.suspended = false,
        Change::TakeDown => after.taken_down = true,
        Change::Restore => after.taken_down = false,
        Change::Deactivate => after.deactivated = true,
        Change::Reactivate => after.deactivated = false,
        Change::Decommission => after.decommissioned = true,
    }
    Some(after)
}

/// An answer that is still to come.
pub enum Waiting {
    /// Of a change.
    Change(Pending<Result<bool, Refused>>),
    /// Of a write.
    Write(Pending<Result<Written, WriteRefused>>),
    /// Of a fact.
    Fact(Pending<Result<(), Refused>>),
    /// It came, while something that was asked before is not answered yet.
    Answered(Answer),
    /// None will come: the process ended first.
    Lost,
}

/// How something was answered.
pub enum Answer {
    /// It is done; what a write came to.
    Done(Option<Written>),
    /// It cannot be done.
    Refused(String),
    /// It was not done, for want of space or time.
    Undone,
    /// Nobody knows.
    Unknown,
}

impl Waiting {
    fn take(&mut self) -> Option<Answer> {
        let unsettled = |why: &Unsettled| match why {
            Unsettled::Stopped(_) => Answer::Unknown,
            Unsettled::Full | Unsettled::Overtaken | Unsettled::Busy | Unsettled::Numbers => Answer::Undone,
        };
        let refused = |refused: Refused| match &refused {
            Refused::Unsettled(why) => unsettled(why),
            // What it builds on could not be read.
            Refused::Read(_) => Answer::Undone,
            other => Answer::Refused(other.to_string()),
        };
        match self {
            Self::Lost => None,
            Self::Answered(_) => match std::mem::replace(self, Self::Lost) {
                Self::Answered(answer) => Some(answer),
                _ => None,
            },
            Self::Change(pending) => {
                pending.try_take().map(|result| result.map_or_else(refused, |_| Answer::Done(None)))
            }
            Self::Fact(pending) => {
                pending.try_take().map(|result| result.map_or_else(refused, |()| Answer::Done(None)))
            }
            Self::Write(pending) => pending.try_take().map(|result| match result {
                Ok(written) => Answer::Done(Some(written)),
                Err(WriteRefused::Unsettled(why)) => unsettled(&why),
                Err(WriteRefused::Read(_)) => Answer::Undone,
                Err(other) => Answer::Refused(other.to_string()),
            }),
        }
    }
}

/// An account that is known of.
pub struct Known {
    /// Its name.
    pub did: Did,
    /// What it surely is, before what is asked.
    pub settled: Shape,
    /// What it was asked and did not answer yet, in order.
    pub asked: VecDeque<(Asked, Waiting)>,
    /// The newest revision that was durable.
    pub rev: Option<Tid>,
    /// Whether something changed since it was looked at.
    pub changed: bool,
}

impl Known {
    /// A new one.
    #[must_use]
    pub fn new(did: Did, settled: Shape) -> Self {
        Self { did, settled, asked: VecDeque::new(), rev: None, changed: true }
    }

    /// What it will be if all that it was asked is done.
    #[must_use]
    pub fn ahead(&self) -> Shape {
        self.asked.iter().fold(self.settled.clone(), |shape, (asked, _)| shape.after(asked).unwrap_or(shape))
    }

    /// The same account without its answers: what a copy of the files knows of it.
    #[must_use]
    pub fn remembered(&self) -> Self {
        let asked = self.asked.iter().map(|(asked, _)| (asked.clone(), Waiting::Lost)).collect();
        Self { did: self.did.clone(), settled: self.settled.clone(), asked, rev: self.rev, changed: true }
    }

    /// Takes the answers that are there.
    /// # Errors
    /// [`Invariant::AccountsStay`] if one contradicts what was acknowledged before.
    pub fn take_answers(&mut self) -> Checked {
        while let Some((asked, waiting)) = self.asked.front_mut() {
            let Some(answer) = waiting.take() else { break };
            let after = self.settled.after(asked);
            self.changed = true;
            let seen = |what: &str| format!("{}: {asked:?} was {what}, and it is {:?}", self.did, self.settled);
            match (answer, after) {
                (Answer::Done(written), Some(after)) => {
                    let told = written.as_ref().is_none_or(|written| {
                        written.results.iter().all(|result| after.records.get(&result.path).copied() == result.cid)
                    });
                    hold(Invariant::AccountsStay, told, || format!("{}: {written:?} is not what was asked", self.did))?;
                    self.settled = after;
                }
                (Answer::Refused(_), None) | (Answer::Undone, _) => {}
                (Answer::Unknown, _) => {
                    *waiting = Waiting::Lost;
                    break;
                }
                (Answer::Done(_), None) => return violated(Invariant::AccountsStay, seen("done")),
                (Answer::Refused(why), Some(_)) => {
                    return violated(Invariant::AccountsStay, seen(&format!("refused: {why}")));
                }
            }
            self.asked.pop_front();
        }
        self.look_ahead()
    }

    /// Looks for answers that came before those of what was asked earlier. What they rest on may be undone by a power cut, unless it is
    /// what was acknowledged: then an account may be told that it cannot be done, and nothing else.
    /// # Errors
    /// [`Invariant::AnswersAreDurable`].
    fn look_ahead(&mut self) -> Checked {
        for (asked, waiting) in self.asked.iter_mut().skip(1) {
            let Some(answer) = waiting.take() else { continue };
            let early = match &answer {
                Answer::Done(_) => Some("done".to_owned()),
                Answer::Refused(why) if self.settled.after(asked).is_some() => Some(format!("refused: {why}")),
                Answer::Refused(_) | Answer::Undone | Answer::Unknown => None,
            };
            hold(Invariant::AnswersAreDurable, early.is_none(), || {
                format!("{}: {asked:?} was {}, and it is {:?}", self.did, early.unwrap_or_default(), self.settled)
            })?;
            *waiting = Waiting::Answered(answer);
        }
        Ok(())
    }

    /// The process ended: no answer comes any more. What was refused, or could not be done, is over.
    pub fn lose_answers(&mut self) {
        self.asked.retain(|(_, waiting)| !matches!(waiting, Waiting::Answered(Answer::Refused(_) | Answer::Undone)));
        self.asked.iter_mut().for_each(|(_, waiting)| *waiting = Waiting::Lost);
        self.changed = true;
    }

    /// After a start: the account is what was acknowledged and the first so many of what was asked.
    /// # Errors
    /// [`Invariant::AccountsStay`] if it is none of these.
    pub fn resolve(&mut self, row: &Account) -> Checked<usize> {
        let mut shape = self.settled.clone();
        let differs = shape.is(row).err();
        let mut found = differs.is_none().then(|| (0, shape.clone()));
        for (count, (asked, _)) in self.asked.iter().enumerate() {
            if found.is_some() {
                break;
            }
            if let Some(after) = shape.after(asked) {
                shape = after;
            }
            if shape.is(row).is_ok() {
                found = Some((count + 1, shape.clone()));
            }
        }
        let asked = self.asked.len();
        self.asked.clear();
        self.changed = true;
        let rev = row.head.map(|head| head.rev);
        hold(Invariant::AccountsStay, rev >= self.rev, || {
            format!("{} went from {:?} back to {rev:?}", self.did, self.rev)
        })?;
        match found {
            Some((survived, shape)) => {
                self.settled = shape;
                Ok(survived)
            }
            None => violated(
                Invariant::AccountsStay,
                format!("{}: {differs:?}, nor is it any of {asked} states that were asked for", self.did),
            ),
        }
    }
}
