//! Copies of the server's files, and what becomes of the world when one of them is put back.
//!
//! Several are kept, and any of them is put back, however often, whatever was put back before it, and with a clock that is behind: each time
//! a run begins whose numbers and revisions must be above those of all runs that are lost. What lies outside the volume tells of those; where
//! nothing does, and the copy itself is not enough, the operator has asked a relay.

use super::model::{Known, Shape};
use super::seen::History;
use super::world::World;
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::server::Death;
use highwater_base::Random;
use highwater_disk::SimDisk;
use highwater_host::files;
use highwater_pds::AccountId;
use highwater_pds::restore::{MARKER_NAME, Marker};
use highwater_repo::Tid;
use highwater_repo::syntax::Did;
use std::collections::{BTreeMap, BTreeSet};

/// Copies that are kept at the most.
const COPIES_MAX: usize = 3;
/// Milliseconds that it takes at least to put a copy back.
const PUT_BACK_MS_MIN: u64 = 120_000;
/// Milliseconds by which a revision may be ahead of the clock, less a margin: a restore with such a clock is done.
const BEHIND_MS_MAX: u64 = 240_000;
/// Milliseconds by which a clock is behind that makes a restore stop, at the most.
const BEHIND_MS_TOO_MUCH: u64 = 3_600_000;

/// A copy of the server's files, and what was known when it was made.
pub(crate) struct Copied {
    /// In the order in which they were made.
    number: u64,
    disk: SimDisk,
    accounts: BTreeMap<AccountId, Known>,
    creating: Vec<Shape>,
    history: History,
}

/// The copies, and which of them were put back.
#[derive(Default)]
pub(crate) struct Copies {
    kept: Vec<Copied>,
    made: u64,
    /// Numbers of those that were put back, the last one last.
    put_back: Vec<u64>,
    /// Whether an operator ever said which numbers had been given out.
    told: bool,
    /// The newest revisions of the runs that restores took back.
    revs: BTreeMap<Did, Tid>,
}

impl Copies {
    /// The newest revision that a lost run gave to an account.
    pub fn lost_rev(&self, did: &Did) -> Option<Tid> {
        self.revs.get(did).copied()
    }

    /// Whether the copy that was just put back does not tell by itself which numbers lost runs gave out. A run that began with the same copy
    /// gave out fewer than the time that passed makes up for, if the clock is right and the copy says of when it is; one that began with
    /// another copy may be anywhere, and so may one that was told of those.
    fn are_untold(&self, has_time: bool) -> bool {
        let Some((last, before)) = self.put_back.split_last() else { return false };
        before.iter().any(|number| number != last) || !before.is_empty() && (!has_time || self.told)
    }

    /// Whether a copy was put back at least once.
    pub fn is_restored(&self) -> bool {
        !self.put_back.is_empty()
    }
}

impl World {
    /// Takes a copy of the files of a server that is down, or puts an earlier one in their place and says so.
    pub(crate) fn old_files(&mut self) -> Checked {
        if self.server.process.is_some() {
            let death = [Death::Process, Death::Power][self.random.below(2) as usize];
            match self.random.below(2) {
                0 => self.stop()?,
                _ => self.die(death)?,
            }
        }
        if self.copies.kept.is_empty() || self.random.below(3) == 0 {
            // A directory that was put back and not yet started is none to take a copy of.
            if !self.restoring {
                self.take_copy();
            }
            return Ok(());
        }
        let place = self.random.below(self.copies.kept.len() as u64) as usize;
        self.put_back(place)?;
        let repeated =
            self.copies.put_back.iter().rev().skip(1).any(|number| *number == self.copies.kept[place].number);
        self.trace.meet(if repeated {
            "a copy of accounts was put back again"
        } else {
            "a copy of accounts was put back"
        });
        self.mark()
    }

    /// Takes a copy of the files of a server that is down; an older one goes if there are too many.
    pub(crate) fn take_copy(&mut self) {
        if self.copies.kept.len() == COPIES_MAX {
            let place = self.random.below(COPIES_MAX as u64) as usize;
            self.copies.kept.remove(place);
        }
        self.copies.made += 1;
        let accounts = self.accounts.iter().map(|(id, known)| (*id, known.remembered())).collect();
        let creating = self.creating.iter().map(|(shape, _)| shape.clone()).collect();
        let (number, history, disk) = (self.copies.made, self.seen.history.clone(), self.server.copy());
        self.copies.kept.push(Copied { number, disk, accounts, creating, history });
    }

    /// A copy takes the place of the files that there are; what happened since it was made is lost, and whoever saw it remembers.
    pub(crate) fn put_back(&mut self, place: usize) -> Checked {
        self.trace.mix(self.server.disk.trace_hash());
        let copied = &self.copies.kept[place];
        let latest = self.copies.put_back.iter().max();
        if latest.is_some_and(|latest| *latest > copied.number) {
            self.trace.meet("a copy was put back that is older than one put back before");
        }
        self.copies.put_back.push(copied.number);
        let accounts = copied.accounts.iter().map(|(id, known)| (*id, known.remembered())).collect();
        let creating = copied.creating.iter().map(|shape| (shape.clone(), None)).collect();
        let lost = std::mem::replace(&mut self.accounts, accounts);
        self.creating = creating;
        self.seen.history = copied.history.clone();
        let witness = self.server.put_back(&copied.disk);
        self.restoring = true;
        let erased = |known: &Known| known.ahead().standing.erased;
        let revived = lost.iter().filter(|(id, known)| erased(known) && !self.accounts.get(id).is_some_and(erased));
        let revived: BTreeSet<Did> = revived.map(|(_, known)| known.did.clone()).collect();
        self.observers.iter_mut().for_each(|observer| observer.revive(&revived));
        for Known { did, rev, .. } in lost.into_values() {
            let newest = rev.max(self.seen.newest_rev(&did)).max(self.copies.lost_rev(&did));
            self.copies.revs.extend(newest.map(|newest| (did, newest)));
        }
        hold(Invariant::Heals, witness.is_ok(), || format!("what lies outside the volume: {witness:?}"))?;
        let ms = PUT_BACK_MS_MIN + self.random.below(BEHIND_MS_TOO_MUCH);
        self.server.clocks.pass(ms);
        Ok(())
    }

    /// The operator's step; the machine that the copy was put back on may have another clock.
    fn mark(&mut self) -> Checked {
        let behind_ms = match self.random.below(5) {
            0 => self.random.below(BEHIND_MS_MAX),
            1 => BEHIND_MS_MAX + self.random.below(BEHIND_MS_TOO_MUCH),
            _ => 0,
        };
        self.server.clocks.set_behind(behind_ms);
        if behind_ms > 0 {
            self.clock_was_behind = true;
            self.trace.meet("a restored server's clock was behind");
        }
        let newest = self.copies.revs.values().copied().max().max(self.seen.rev_max());
        let id = (self.random.below(2) == 0).then(|| self.random.next_u64());
        let rev_min = newest.filter(|_| behind_ms > 0 || self.random.below(3) == 0);
        // The operator may say more than must be said.
        let untold = !self.swarm.witness && self.copies.are_untold(behind_ms == 0 && !self.accounts.is_empty());
        let told = untold || self.random.below(4) == 0;
        let seq_min = self.seen.newest_ever().filter(|_| told);
        self.copies.told |= told;
        self.write_marker(&Marker { id, rev_min, seq_min })?;
        if self.random.below(2) == 0 {
            let death = [Death::Process, Death::Power][self.random.below(2) as usize];
            self.crash(death)?;
        }
        Ok(())
    }

    /// The directory says that it was restored.
    pub(crate) fn write_marker(&mut self, marker: &Marker) -> Checked {
        let behind_ms = self.server.clocks.behind_ms();
        self.note(format_args!("a copy is put back, the clock is {behind_ms} ms behind, the marker is {marker:?}"));
        let path = self.server.options().directory.join(MARKER_NAME);
        match files::replace(&self.server.disk, &path, marker.to_string().as_bytes()) {
            Ok(()) => Ok(()),
            Err(error) => violated(Invariant::Heals, format!("the marker cannot be written: {error}")),
        }
    }
}
