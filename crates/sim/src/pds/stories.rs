//! Short lives in which each operation of the disk is the last one in turn, so that no place in them is left to chance.

use super::phases::{converge, heal, read_everything, scan};
use super::swarm::{EVENTS_BYTES_UNBOUND, Swarm};
use super::world::World;
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::server::Death;
use highwater_pds::AccountId;
use highwater_pds::lifecycle::{Announce, Change};
use highwater_pds::restore::Marker;
use highwater_repo::key::Curve;

/// Rounds of a life.
const ROUNDS: u64 = 8;
/// Milliseconds between two of them: some of them pass a checkpoint.
const ROUND_MS: u64 = 2_000;
/// Writes after which an account's blocks are written together, at the most.
const WRITES_MAX: usize = 400;
/// Writes behind that.
const WRITES_BEHIND: u64 = 3;
/// Starts until one of them must have succeeded.
const STARTS_MAX: usize = 3;

/// A world in which nothing goes wrong by chance.
fn shape(accounts_max: usize, witness: bool) -> Swarm {
    Swarm {
        steps: 0,
        accounts_max,
        observers: 2,
        keys: 3,
        record_bytes_max: 200,
        announce: Announce::OnActivation,
        retention_seconds: 72 * 3_600,
        events_bytes_max: EVENTS_BYTES_UNBOUND,
        checkpoint_bytes: 64 << 10,
        checkpoint_seconds: 5,
        memory_bytes_max: 64 << 20,
        segment_bytes: 128 << 10,
        log_segments: 16,
        step_ms_max: 50,
        witness,
        fault_every: 0,
        kinds: Vec::new(),
    }
}

impl World {
    /// The server runs, after a death at the operation that is its last one if that lies in a start.
    fn up(&mut self, last: Option<u64>) -> Checked {
        for _ in 0..STARTS_MAX {
            self.stop_at(last);
            if self.server.process.is_some() {
                return Ok(());
            }
            self.start_once()?;
        }
        self.stop_at(last);
        hold(Invariant::Heals, self.server.process.is_some(), || format!("it does not start, having died at {last:?}"))
    }

    fn stop_at(&mut self, last: Option<u64>) {
        if let Some(last) = last.filter(|last| self.server.disk.operations() < *last) {
            self.server.disk.stop_at(last);
        }
    }
}

/// Accounts are made, written to and changed, and consumers read; the server dies at the operation `last` of its disk, counted from the
/// first one of its first start, and goes on. Returns how many operations there are.
/// # Errors
/// The promise that broke.
pub fn life(last: Option<u64>, death: Death) -> Checked<u64> {
    let mut world = World::with(shape(3, false), 5, false);
    world.server.death_at_stop = death;
    let begin = world.server.disk.operations();
    let last = last.map(|last| begin + last);
    for round in 0..ROUNDS {
        world.up(last)?;
        world.server.clocks.pass(ROUND_MS);
        if round < 3 {
            world.create();
        }
        for _ in 0..world.accounts.len() {
            world.write()?;
        }
        if round > 2 && !world.accounts.is_empty() {
            world.change()?;
        }
        world.pump()?;
        world.observe()?;
        world.observe()?;
        world.bury()?;
    }
    let operations = world.server.disk.operations() - begin;
    heal(&mut world)?;
    converge(&mut world)?;
    scan(&mut world)?;
    Ok(operations)
}

/// An account is written to until its blocks are written together, and a little longer; the server dies at the operation `last` of its disk.
/// Returns how many operations there are until then.
/// # Errors
/// The promise that broke.
pub fn crowded(last: Option<u64>, death: Death) -> Checked<u64> {
    let shape = Swarm { record_bytes_max: 60 << 10, segment_bytes: 512 << 10, ..shape(1, false) };
    let mut world = World::with(shape, 7, false);
    world.server.death_at_stop = death;
    let begin = world.server.disk.operations();
    let last = last.map(|last| begin + last);
    let (mut together, mut left) = (None, WRITES_BEHIND);
    for _ in 0..WRITES_MAX {
        world.up(last)?;
        world.create();
        world.pump()?;
        if !world.accounts.is_empty() {
            world.write()?;
        }
        world.pump()?;
        let written = world.server.host().is_some_and(|host| host.status().compactions > 0);
        together = together.or(written.then(|| world.server.disk.operations() - begin));
        world.bury()?;
        left -= u64::from(together.is_some());
        if left == 0 {
            break;
        }
    }
    heal(&mut world)?;
    converge(&mut world)?;
    scan(&mut world)?;
    match together {
        Some(operations) => Ok(operations),
        None => violated(Invariant::Heals, "the blocks were not written together"),
    }
}

/// A server of so many active accounts, and of one each that is locked, erased, gone elsewhere and not active yet, is copied, goes on and
/// is lost; the copy is put back, with a clock that is right. The first starts die at these operations of theirs, the one behind them
/// does not, and one more comes before anybody read a frame. Returns how many operations the start took that did not die.
/// # Errors
/// The promise that broke.
pub fn restore(active: u64, dying: &[u64], death: Death) -> Checked<u64> {
    let mut world = World::with(shape(active as usize + 4, true), 9, false);
    world.start_once()?;
    accounts(&mut world, active)?;
    read_everything(&mut world)?;
    world.stop()?;
    world.take_copy();
    world.start_once()?;
    go_on(&mut world)?;
    read_everything(&mut world)?;
    world.die(Death::Power)?;
    world.put_back(0)?;
    world.write_marker(&Marker::default())?;
    for operation in dying {
        world.server.death_at_stop = death;
        world.server.disk.stop_at(world.server.disk.operations() + operation);
        world.start_once()?;
        hold(Invariant::Heals, world.server.process.is_none(), || format!("a start did not come to {operation}"))?;
    }
    world.start_once()?;
    let operations = world.server.start_operations;
    world.start_again(Some(death))?;
    converge(&mut world)?;
    scan(&mut world)?;
    Ok(operations)
}

fn accounts(world: &mut World, active: u64) -> Checked {
    let Some(host) = world.server.host().cloned() else { return violated(Invariant::Heals, "it does not run") };
    for number in 0..active + 4 {
        world.make(&host, number > 0, Curve::K256);
        world.pump()?;
    }
    for _ in 0..active + 4 {
        world.write()?;
    }
    let ids: Vec<AccountId> = world.accounts.keys().copied().collect();
    for (id, change) in ids.into_iter().skip(1).zip([Change::Lock, Change::Erase, Change::Decommission]) {
        world.ask_change(&host, id, change)?;
    }
    world.settle()
}

/// What the lost run does: everybody writes, and what was locked is active.
fn go_on(world: &mut World) -> Checked {
    let Some(host) = world.server.host().cloned() else { return violated(Invariant::Heals, "it does not run") };
    for id in world.accounts.keys().copied().collect::<Vec<_>>() {
        world.ask_change(&host, id, Change::Lift)?;
    }
    world.write_everywhere()?;
    world.settle()
}
