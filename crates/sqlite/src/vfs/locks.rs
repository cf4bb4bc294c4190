//! Who holds which lock of one database, within this process.
//!
//! One process owns a bound database, so its connections need no locks of the operating system among themselves. Every
//! request is answered at once; waiting is the business of SQLite's busy handler.

use crate::ffi::code::SHM_SLOTS;
use std::collections::BTreeMap;

/// One open database file of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The lock on the database file, in the order of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// No lock.
    #[default]
    None,
    /// Reads.
    Shared,
    /// Will write; others read on.
    Reserved,
    /// Waits for readers to leave.
    Pending,
    /// Alone.
    Exclusive,
}

/// The slot of the wal-index that the writer holds.
pub const SLOT_WRITE: usize = 0;
/// The slot that a checkpoint holds.
pub const SLOT_CHECKPOINT: usize = 1;
/// The read marks that a restart of the `-wal` takes all at once: marks 1 to 4.
const RESTART: Slots = Slots(0b1111_0000);

/// A set of the wal-index's lock slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slots(u8);

impl Slots {
    /// The slots `first..first + count`, `None` if there are no such slots.
    #[must_use]
    pub fn range(first: usize, count: usize) -> Option<Self> {
        let end = first.checked_add(count)?;
        if count == 0 || end > SHM_SLOTS {
            return None;
        }
        let mask = ((1_u16 << count) - 1) << first;
        Some(Self(u8::try_from(mask).ok()?))
    }

    /// One slot.
    const fn one(slot: usize) -> Self {
        Self(1 << slot)
    }

    /// Whether `slot` is one of them.
    #[must_use]
    pub fn has(self, slot: usize) -> bool {
        self.meets(Self::one(slot))
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

/// Someone else holds what was asked for; nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    level: Level,
    shared: Slots,
    exclusive: Slots,
}

/// All locks of one database.
///
/// Two rules go beyond SQLite's own locking; they keep a host older than 3.51.3 from acting on a `-wal` header that
/// another connection makes stale between the read and the backfill:
/// (a) nobody takes read marks 1 to 4 together, as a restart does, while another connection checkpoints;
/// (b) nobody begins a checkpoint while another connection holds them.
/// A restart that meets (a) appends instead, and a checkpoint that meets (b) is tried again later.
#[derive(Debug, Default)]
pub struct LockTable {
    held: BTreeMap<ConnectionId, Held>,
}

impl LockTable {
    /// Raises the lock on the file to at least `level`.
    /// # Errors
    /// `Busy`; the lock stays what it was.
    pub fn lock(&mut self, connection: ConnectionId, level: Level) -> Result<(), Busy> {
        let conflict = match level {
            Level::None => return Ok(()),
            Level::Shared => Level::Pending,
            Level::Reserved | Level::Pending => Level::Reserved,
            Level::Exclusive => Level::Shared,
        };
        if self.level(connection) >= level {
            return Ok(());
        }
        if self.others(connection).any(|held| held.level >= conflict) {
            return Err(Busy);
        }
        self.held.entry(connection).or_default().level = level;
        Ok(())
    }

    /// Lowers the lock on the file to at most `level`.
    pub fn unlock(&mut self, connection: ConnectionId, level: Level) {
        if let Some(held) = self.held.get_mut(&connection) {
            held.level = held.level.min(level);
        }
    }

    /// The lock of this connection on the file.
    #[must_use]
    pub fn level(&self, connection: ConnectionId) -> Level {
        self.held.get(&connection).map_or(Level::None, |held| held.level)
    }

    /// Whether any connection intends to write through a rollback journal.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.held.values().any(|held| held.level >= Level::Reserved)
    }

    /// Takes slots of the wal-index for reading.
    /// # Errors
    /// `Busy` if any connection holds one of them exclusively.
    pub fn share(&mut self, connection: ConnectionId, slots: Slots) -> Result<(), Busy> {
        if self.held.values().any(|held| held.exclusive.meets(slots)) {
            return Err(Busy);
        }
        self.held.entry(connection).or_default().shared.add(slots);
        Ok(())
    }

    /// Takes slots of the wal-index for itself.
    ///
    /// A slot that the connection itself shares is refused too, as by SQLite's own VFSs: a checkpoint that took over
    /// its connection's read mark would move the snapshot away under a reader.
    /// # Errors
    /// `Busy` if any connection holds one of them, or by the rules (a) and (b).
    pub fn seize(&mut self, connection: ConnectionId, slots: Slots) -> Result<(), Busy> {
        let restarts = slots.covers(RESTART);
        let checkpoints = slots.has(SLOT_CHECKPOINT);
        let taken = |held: &Held| held.exclusive.meets(slots) || held.shared.meets(slots);
        let stale = |held: &Held| {
            (restarts && held.exclusive.has(SLOT_CHECKPOINT)) || (checkpoints && held.exclusive.covers(RESTART))
        };
        if self.held.values().any(taken) || self.others(connection).any(stale) {
            return Err(Busy);
        }
        self.held.entry(connection).or_default().exclusive.add(slots);
        Ok(())
    }

    /// Gives slots of the wal-index back.
    pub fn release(&mut self, connection: ConnectionId, slots: Slots) {
        if let Some(held) = self.held.get_mut(&connection) {
            held.shared.remove(slots);
            held.exclusive.remove(slots);
        }
    }

    /// Whether this connection holds `slot` exclusively.
    #[must_use]
    pub fn holds(&self, connection: ConnectionId, slot: usize) -> bool {
        self.held.get(&connection).is_some_and(|held| held.exclusive.has(slot))
    }

    /// Whether any connection holds `slot` exclusively.
    #[must_use]
    pub fn is_slot_taken(&self, slot: usize) -> bool {
        self.held.values().any(|held| held.exclusive.has(slot))
    }

    /// Forgets a connection and all its locks.
    pub fn forget(&mut self, connection: ConnectionId) {
        self.held.remove(&connection);
    }

    fn others(&self, connection: ConnectionId) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |(id, _)| **id != connection).map(|(_, held)| held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    fn slots(first: usize, count: usize) -> Slots {
        Slots::range(first, count).expect("slots")
    }

    #[test]
    fn locks_on_the_file_exclude_each_other_as_sqlite_says() {
        let mut table = LockTable::default();
        assert_eq!(table.lock(A, Level::Shared), Ok(()));
        assert_eq!(table.lock(B, Level::Shared), Ok(()));
        assert_eq!(table.lock(A, Level::Reserved), Ok(()));
        assert!(table.is_reserved());
        assert_eq!(table.lock(B, Level::Reserved), Err(Busy));
        assert_eq!(table.lock(A, Level::Exclusive), Err(Busy));
        assert_eq!(table.level(A), Level::Reserved, "a refused request changes nothing");
        table.unlock(B, Level::None);
        assert_eq!(table.lock(A, Level::Exclusive), Ok(()));
        assert_eq!(table.lock(B, Level::Shared), Err(Busy));
        table.unlock(A, Level::Shared);
        assert_eq!(table.lock(B, Level::Shared), Ok(()));
    }

    #[test]
    fn slots_are_shared_by_readers_and_seized_by_one() {
        let mut table = LockTable::default();
        assert_eq!(table.share(A, slots(4, 1)), Ok(()));
        assert_eq!(table.share(B, slots(4, 1)), Ok(()));
        assert_eq!(table.seize(A, slots(4, 1)), Err(Busy));
        table.release(B, slots(4, 1));
        assert_eq!(table.seize(A, slots(4, 1)), Err(Busy), "its own read mark");
        table.release(A, slots(4, 1));
        assert_eq!(table.seize(A, slots(3, 3)), Ok(()));
        assert_eq!(table.share(B, slots(5, 1)), Err(Busy));
        table.forget(A);
        assert_eq!(table.share(B, slots(5, 1)), Ok(()));
        assert_eq!(Slots::range(7, 2), None);
        assert_eq!(Slots::range(0, 0), None);
        assert_eq!(Slots::range(usize::MAX, 2), None);
    }

    /// SQLite 3.7.0 to 3.51.2: a checkpointer that read the header before another connection restarted the `-wal`
    /// counts pages as backfilled that never were.
    #[test]
    fn a_restart_and_a_checkpoint_of_two_connections_never_overlap() {
        let restart = slots(4, 4);
        let checkpoint = slots(SLOT_CHECKPOINT, 1);
        let mut table = LockTable::default();
        assert_eq!(table.seize(A, checkpoint), Ok(()));
        assert_eq!(table.seize(B, restart), Err(Busy), "rule (a)");
        assert_eq!(table.seize(B, slots(4, 1)), Ok(()), "a single read mark is not a restart");
        table.release(B, slots(4, 1));
        assert_eq!(table.seize(A, restart), Ok(()), "RESTART and TRUNCATE hold both themselves");
        table.forget(A);
        assert_eq!(table.seize(B, restart), Ok(()));
        assert_eq!(table.seize(A, checkpoint), Err(Busy), "rule (b)");
        table.release(B, restart);
        assert_eq!(table.seize(A, checkpoint), Ok(()));
    }
}
