//! What goes wrong beside single messages.

use crate::database::Database;
use crate::invariants::Checked;
use crate::message::Party;
use crate::server::Death;
use crate::swarm::{FaultKind, REQUEST_LIMITS};
use crate::world::{Event, World};
use highwater_base::Random;
use highwater_disk::SimDisk;
use highwater_disk::sim::{EIO, Operation};
use highwater_sqlite::bind::BoundStream;

/// Processes that one stream's database has at the most, over a run.
const TAKEOVERS_MAX: usize = 8;

/// Bytes that a full disk still has, at the most.
const ROOM_BYTES_MAX: u64 = 64 << 10;

/// What a disk fails with EIO; what happens most, most often.
const FAILING: [Operation; 14] = [
    Operation::Write,
    Operation::Write,
    Operation::Write,
    Operation::Sync,
    Operation::Sync,
    Operation::Sync,
    Operation::Read,
    Operation::Open,
    Operation::SetLength,
    Operation::Reserve,
    Operation::CreateDirectory,
    Operation::SyncDirectory,
    Operation::Rename,
    Operation::Remove,
];

impl World {
    /// Lets something go wrong, and plans the next.
    /// # Errors
    /// A promise that broke over it.
    pub(crate) fn fault(&mut self) -> Checked {
        if self.healed {
            return Ok(());
        }
        let next_ms = 1 + self.random.below(2 * self.swarm.fault_every_ms);
        self.schedule.after(next_ms, Event::Fault);
        let kind = self.swarm.kinds[self.random.below(self.swarm.kinds.len() as u64) as usize];
        self.trace.note(self.schedule.now_ms(), format_args!("fault: {kind:?}"));
        match kind {
            FaultKind::ServerCrash => self.server_crash(Death::Process),
            FaultKind::ServerPowerLoss => self.server_crash(Death::Power),
            FaultKind::ServerStop => {
                if self.server.is_up() {
                    self.server.stop();
                    self.server_is_down();
                }
                Ok(())
            }
            FaultKind::ServerEio => {
                self.eio(None);
                Ok(())
            }
            FaultKind::ServerFull => {
                self.fill(None);
                Ok(())
            }
            FaultKind::ClockJump => {
                let hours = self.random.below(400) as i64 - 100;
                self.server.jump(hours * 3_600_000);
                self.oracle.clock_jumped();
                Ok(())
            }
            FaultKind::ServerOldFiles => self.old_files(),
            FaultKind::RequestLimit => {
                self.swarm.request_bytes_max = REQUEST_LIMITS[self.random.below(REQUEST_LIMITS.len() as u64) as usize];
                Ok(())
            }
            FaultKind::Cut => {
                if let Some(party) = self.party() {
                    let until_ms = self.schedule.now_ms() + self.random.below(20_000);
                    self.network.cut(party, until_ms);
                }
                Ok(())
            }
            _ => self.database_fault(kind),
        }
    }

    fn server_crash(&mut self, death: Death) -> Checked {
        if self.server.is_up() && self.random.below(3) == 0 {
            return self.server_dies(death, "now");
        }
        // In the middle of one of the next writes, syncs or renames; of those of its next start, if it is down.
        self.server.death_at_stop = death;
        let operation = self.server.disk.operations() + 1 + self.random.below(30);
        self.server.disk.stop_at(operation);
        Ok(())
    }

    /// Takes a copy of the server's files, or puts an earlier one in their place and says so.
    fn old_files(&mut self) -> Checked {
        let taken = match &self.copy {
            Some(taken) if self.random.below(3) > 0 => taken,
            _ => {
                // What is known must be what the files hold.
                if self.oracle.is_settled() && !self.verify_due && !self.server.disk.stopped() {
                    self.copy = Some((self.server.copy(), self.oracle.remember()));
                }
                return Ok(());
            }
        };
        self.trace.mix(self.server.disk.trace_hash());
        self.server.restore(&taken.0)?;
        self.oracle.rewind(&taken.1);
        self.trace.meet("the server's files were old");
        self.trace.note(self.schedule.now_ms(), format_args!("the server's files are those of before"));
        self.server_is_down();
        Ok(())
    }

    fn database_fault(&mut self, kind: FaultKind) -> Checked {
        let count = self.databases.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let index = self.random.below(count) as usize;
        match kind {
            FaultKind::DatabaseCrash => self.database_crash(index, Death::Process),
            FaultKind::DatabasePowerLoss => self.database_crash(index, Death::Power),
            FaultKind::DatabaseEio => self.eio(Some(index)),
            FaultKind::DatabaseFull => self.fill(Some(index)),
            FaultKind::DatabasePause => {
                self.databases[index].paused_until_ms = self.schedule.now_ms() + self.random.below(30_000);
            }
            FaultKind::DatabaseOldFiles => {
                let database = &mut self.databases[index];
                database.die(Death::Process);
                let old = database.put_back(&mut self.oracle);
                if old {
                    self.trace.meet("a database's files were old");
                }
                self.trace.note(self.schedule.now_ms(), format_args!("database {index}: old files {old}"));
                self.database_is_down(index);
            }
            _ => return self.take_over(index),
        }
        Ok(())
    }

    fn database_crash(&mut self, index: usize, death: Death) {
        let database = &mut self.databases[index];
        match self.random.below(4) {
            0 | 1 if !database.is_up() => return,
            0 if death == Death::Process => database.close(&mut self.oracle),
            0 | 1 => database.die(death),
            _ => {
                database.death_at_stop = death;
                let operation = database.disk.operations() + 1 + self.random.below(20);
                database.disk.stop_at(operation);
                return;
            }
        }
        self.database_is_down(index);
    }

    fn database_is_down(&mut self, index: usize) {
        self.forget_request(Party::Database(index));
        self.schedule.after(20 + self.random.below(500), Event::DatabaseStart(index));
    }

    /// Another process restores the database and goes on with it, while the old one may still run.
    pub(crate) fn take_over(&mut self, index: usize) -> Checked {
        let stream = self.databases[index].stream.clone();
        let processes = self.databases.iter().filter(|database| database.stream == stream).count();
        let Some(bound) = self.bound.iter().find(|bound| bound.url == stream).cloned() else { return Ok(()) };
        // The stream may have been told of a restore since the last one.
        let Some(incarnation) = self.oracle.token(&stream) else { return Ok(()) };
        let bound = BoundStream { incarnation, ..bound };
        if processes >= TAKEOVERS_MAX && !self.healed {
            return Ok(());
        }
        let number = self.databases.len();
        let shape = (number, self.swarm.page_size, self.random.next_u64());
        let mut asks = Vec::new();
        let mut context = crate::database::Context {
            now_ms: self.schedule.now_ms(),
            oracle: &mut self.oracle,
            trace: &mut self.trace,
            asks: &mut asks,
        };
        if let Some(database) = Database::restored(shape, &bound, &mut self.server, &mut context)? {
            self.trace.meet("a database was restored");
            self.trace.note(self.schedule.now_ms(), format_args!("database {number} is restored from {stream}"));
            self.databases.push(database);
            self.schedule.after(0, Event::DatabaseStart(number));
            // Some only read for a while; others write at once, and race the owner for the stream.
            let idle_ms = if self.random.below(3) == 0 { 2_000 } else { 30 };
            self.schedule.after(1 + self.random.below(idle_ms), Event::Act(Party::Database(number)));
        }
        Ok(())
    }

    fn party(&mut self) -> Option<Party> {
        let (clients, databases) = (self.clients.len(), self.databases.len());
        let chosen = self.random.below((clients + databases) as u64) as usize;
        match chosen {
            _ if clients + databases == 0 => None,
            index if index < clients => Some(Party::Client(index)),
            index => Some(Party::Database(index - clients)),
        }
    }

    fn disk(&self, database: Option<usize>) -> SimDisk {
        database.map_or_else(|| self.server.disk.clone(), |index| self.databases[index].disk.clone())
    }

    fn eio(&mut self, database: Option<usize>) {
        let operation = FAILING[self.random.below(FAILING.len() as u64) as usize];
        let (disk, after) = (self.disk(database), self.random.below(20));
        if operation == Operation::Read {
            // One failed read may pass; two in a row are a lost sector, which is damage and not this fault.
            disk.clear_faults();
        }
        disk.fail(operation, "", after, 1, EIO);
    }

    fn fill(&mut self, database: Option<usize>) {
        let disk = self.disk(database);
        disk.set_capacity(Some(disk.used_bytes() + self.random.below(ROOM_BYTES_MAX)));
        self.schedule.after(self.random.below(10_000), Event::Space(database));
    }
}
