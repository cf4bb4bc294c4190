//! What goes wrong, and what an operator does about it.

use super::model::Known;
use super::swarm::FaultKind;
use super::world::{Copied, World};
use crate::invariants::{Checked, Invariant, violated};
use crate::server::Death;
use highwater_base::Random;
use highwater_disk::sim::{EIO, Operation};
use highwater_host::{OpenError, files};
use highwater_pds::restore::Marker;
use highwater_repo::syntax::Did;
use std::collections::BTreeSet;

/// Bytes that a full disk still has, at the most.
const ROOM_BYTES_MAX: u64 = 300 << 10;
/// Operations of the disk among which the one is at which it stops.
const OPERATIONS: u64 = 40;
/// Milliseconds that it takes at least to put a copy back.
const PUT_BACK_MS_MIN: u64 = 120_000;
/// Milliseconds by which a revision may be ahead of the clock, less a margin: a restore with such a clock is done.
const BEHIND_MS_MAX: u64 = 240_000;
/// Milliseconds by which a clock is behind that makes a restore stop, at the most.
const BEHIND_MS_TOO_MUCH: u64 = 3_600_000;

/// What a disk fails; what happens most, most often.
const FAILING: [Operation; 10] = [
    Operation::Write,
    Operation::Write,
    Operation::Sync,
    Operation::Sync,
    Operation::Read,
    Operation::Open,
    Operation::Reserve,
    Operation::SyncDirectory,
    Operation::Rename,
    Operation::Remove,
];

impl World {
    /// Something goes wrong.
    /// # Errors
    /// A promise that broke over it.
    pub(crate) fn fault(&mut self) -> Checked {
        let kind = self.swarm.kinds[self.random.below(self.swarm.kinds.len() as u64) as usize];
        self.note(format_args!("fault: {kind:?}"));
        // What an earlier fault left ends some time.
        match self.random.below(4) {
            0 => self.server.disk.set_capacity(None),
            1 => self.server.clocks.set_behind(0),
            _ => {}
        }
        match kind {
            FaultKind::Crash => self.crash(Death::Process),
            FaultKind::PowerLoss => self.crash(Death::Power),
            FaultKind::Stop if self.server.process.is_some() => self.stop(),
            FaultKind::Stop => Ok(()),
            FaultKind::Eio => {
                let operation = FAILING[self.random.below(FAILING.len() as u64) as usize];
                let after = self.random.below(20);
                // One failed read may pass; two in a row are a lost sector, which is damage and not this fault.
                self.server.disk.clear_faults();
                self.server.disk.fail(operation, "", after, 1, EIO);
                Ok(())
            }
            FaultKind::Full => {
                let room = self.random.below(ROOM_BYTES_MAX);
                self.server.disk.set_capacity(Some(self.server.disk.used_bytes() + room));
                Ok(())
            }
            FaultKind::OldFiles => self.old_files(),
        }
    }

    fn crash(&mut self, death: Death) -> Checked {
        if self.server.process.is_some() && self.random.below(3) == 0 {
            return self.die(death);
        }
        // In the middle of one of the next operations; of those of its next start, if it is down.
        self.server.death_at_stop = death;
        let operation = self.server.disk.operations() + 1 + self.random.below(OPERATIONS);
        self.server.disk.stop_at(operation);
        Ok(())
    }

    /// Takes a copy of the files of a server that is down, or puts an earlier one in their place and says so.
    fn old_files(&mut self) -> Checked {
        if self.server.process.is_some() {
            let death = [Death::Process, Death::Power][self.random.below(2) as usize];
            match self.random.below(2) {
                0 => self.stop()?,
                _ => self.die(death)?,
            }
        }
        // A copy that is older than one that was put back already is of a history that numbers went past.
        if self.copy.is_none() || self.random.below(3) == 0 {
            if !self.restoring {
                let accounts = self.accounts.iter().map(|(id, known)| (*id, known.remembered())).collect();
                let creating = self.creating.iter().map(|(shape, _)| shape.clone()).collect();
                let history = self.seen.history.clone();
                let disk = self.server.copy();
                self.copy = Some(Copied { disk, accounts, creating, history, times: 0 });
            }
            return Ok(());
        }
        self.put_back()
    }

    fn put_back(&mut self) -> Checked {
        self.trace.mix(self.server.disk.trace_hash());
        let Some(copied) = &mut self.copy else { return Ok(()) };
        copied.times += 1;
        let times = copied.times;
        let accounts = copied.accounts.iter().map(|(id, known)| (*id, known.remembered())).collect();
        let creating = copied.creating.iter().map(|shape| (shape.clone(), None)).collect();
        let history = copied.history.clone();
        let lost = std::mem::replace(&mut self.accounts, accounts);
        self.creating = creating;
        let erased = |known: &Known| known.ahead().standing.erased;
        let revived = lost.iter().filter(|(id, known)| erased(known) && !self.accounts.get(id).is_some_and(erased));
        let revived: BTreeSet<Did> = revived.map(|(_, known)| known.did.clone()).collect();
        self.observers.iter_mut().for_each(|observer| observer.revive(&revived));
        for Known { did, rev, .. } in lost.into_values() {
            let newest = rev.max(self.seen.newest_rev(&did)).max(self.revs_before.get(&did).copied());
            if let Some(newest) = newest {
                self.revs_before.insert(did, newest);
            }
        }
        self.seen.history = history;
        self.server.put_back(&copied.disk);
        (self.restoring, self.restored) = (true, true);
        self.trace.meet(match times {
            1 => "a copy of accounts was put back",
            _ => "a copy of accounts was put back again",
        });
        self.server.clocks.pass(PUT_BACK_MS_MIN + self.random.below(BEHIND_MS_TOO_MUCH));
        self.mark(times == 1)
    }

    /// The operator's step; the machine that the copy was put back on may have another clock.
    fn mark(&mut self, clock_may_be_behind: bool) -> Checked {
        let behind_ms = match self.random.below(5) {
            0 if clock_may_be_behind => self.random.below(BEHIND_MS_MAX),
            1 if clock_may_be_behind => BEHIND_MS_MAX + self.random.below(BEHIND_MS_TOO_MUCH),
            _ => 0,
        };
        self.server.clocks.set_behind(behind_ms);
        if behind_ms > 0 {
            self.clock_was_behind = true;
            self.trace.meet("a restored server's clock was behind");
        }
        let newest = self.revs_before.values().copied().max().max(self.seen.rev_max());
        let id = (self.random.below(2) == 0).then(|| self.random.next_u64());
        let rev_min = newest.filter(|_| behind_ms > 0 || self.random.below(3) == 0);
        let marker = Marker { id, rev_min };
        self.note(format_args!("a copy is put back, the clock is {behind_ms} ms behind, the marker is {marker:?}"));
        let path = self.server.options().directory.join(highwater_pds::restore::MARKER_NAME);
        if let Err(error) = files::replace(&self.server.disk, &path, marker.to_string().as_bytes()) {
            return violated(Invariant::Heals, format!("the marker cannot be written: {error}"));
        }
        if self.random.below(2) == 0 {
            let death = [Death::Process, Death::Power][self.random.below(2) as usize];
            self.crash(death)?;
        }
        Ok(())
    }

    /// Starts the server; whatever its disk does, it starts in the end.
    /// # Errors
    /// A promise that broke over it.
    pub(crate) fn start(&mut self) -> Checked {
        let resumed = self.restoring;
        match self.server.start() {
            Ok(boot) => {
                if self.server.disk.stopped() {
                    return self.die(self.server.death_at_stop);
                }
                // From here on the disk does what it should until the next fault: what is read now must be there.
                self.server.disk.clear_faults();
                self.note(format_args!("the server starts, and adds {} frames", boot.frames));
                if resumed && boot.restored.as_ref().is_some_and(|restored| restored.resumed) {
                    self.trace.meet("a restore was resumed");
                }
                self.check_start(&boot)?;
                if self.random.below(4) == 0 { self.start_again() } else { Ok(()) }
            }
            Err(error) => self.start_failed(error),
        }
    }

    fn start_failed(&mut self, error: OpenError) -> Checked {
        self.note(format_args!("the server does not start: {error}"));
        if self.server.disk.stopped() {
            self.trace.meet("a start of a server of accounts died");
            self.server.die(self.server.death_at_stop);
            return Ok(());
        }
        self.server.die(Death::Process);
        if matches!(error, OpenError::Restore(_)) && self.server.clocks.behind_ms() > 0 {
            self.trace.meet("a restore was refused for the clock");
            self.server.clocks.set_behind(0);
            return Ok(());
        }
        self.server.disk.clear_faults();
        self.server.disk.set_capacity(None);
        match self.server.start() {
            Ok(boot) => self.check_start(&boot),
            Err(again) => violated(Invariant::Heals, format!("it does not start: {error}; nor again: {again}")),
        }
    }

    /// Nothing happens, and the server starts again.
    fn start_again(&mut self) -> Checked {
        let Some(before) = self.standing() else { return Ok(()) };
        match self.random.below(3) {
            0 => self.stop()?,
            1 => self.die(Death::Process)?,
            _ => self.die(Death::Power)?,
        }
        self.server.disk.set_capacity(None);
        match self.server.start() {
            Ok(boot) => {
                self.check_start(&boot)?;
                self.check_silence(&before, &boot)
            }
            Err(error) => violated(Invariant::Heals, format!("it does not start again: {error}")),
        }
    }
}
