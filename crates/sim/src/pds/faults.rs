//! What goes wrong, and what an operator does about it.

use super::swarm::FaultKind;
use super::world::World;
use crate::invariants::{Checked, Invariant, violated};
use crate::server::Death;
use highwater_base::Random;
use highwater_disk::sim::{EIO, Operation};
use highwater_host::OpenError;

/// Bytes that a full disk still has, at the most.
const ROOM_BYTES_MAX: u64 = 300 << 10;
/// Operations of the disk among which the one is at which it stops.
const OPERATIONS: u64 = 40;

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

    pub(crate) fn crash(&mut self, death: Death) -> Checked {
        if self.server.process.is_some() && self.random.below(3) == 0 {
            return self.die(death);
        }
        // In the middle of one of the next operations; of those of its next start, if it is down.
        self.server.death_at_stop = death;
        let operation = self.server.disk.operations() + 1 + self.random.below(OPERATIONS);
        self.server.disk.stop_at(operation);
        Ok(())
    }

    /// Starts the server, and sometimes once more.
    /// # Errors
    /// A promise that broke over it.
    pub(crate) fn start(&mut self) -> Checked {
        self.start_once()?;
        if self.server.process.is_none() || self.random.below(4) > 0 {
            return Ok(());
        }
        let death = [None, Some(Death::Process), Some(Death::Power)][self.random.below(3) as usize];
        self.start_again(death)
    }

    /// Starts the server; whatever its disk does, it starts in the end.
    /// # Errors
    /// A promise that broke over it.
    pub(crate) fn start_once(&mut self) -> Checked {
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
                self.check_start(&boot)
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

    /// Nothing happens, and the server starts again: behind a death, or behind a stop in good order.
    /// # Errors
    /// A promise that broke over it.
    pub(crate) fn start_again(&mut self, death: Option<Death>) -> Checked {
        let Some(before) = self.standing() else { return Ok(()) };
        match death {
            None => self.stop()?,
            Some(death) => self.die(death)?,
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
