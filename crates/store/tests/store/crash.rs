//! The machine dies at every operation of a life that passes through every step of checkpoints.

use crate::world::{World, disk as new_disk, small};
use highwater_disk::SimDisk;
use std::sync::Arc;

/// How far a life came.
#[derive(Default)]
struct Reported {
    /// Commands that the last checkpoint reported as done covers.
    done: u64,
    /// Those that the one under way would cover.
    begun: u64,
}

/// Small and large appends, a new file, absorbed extents, removed objects, released fronts, dead files, folded indexes.
fn script(world: &mut World, reported: &mut Reported) -> Result<(), String> {
    for round in 0..7u64 {
        for object in 0..4 {
            world.append(object, 300 + object * 2000 + round);
        }
        match round {
            1 => world.append(9, 400_000),
            2 => (world.append(8, 90_000), world.release(9, 900)).1,
            3 => world.remove(9),
            4 => (20..60).for_each(|object| world.append(object, 10)),
            5 => world.remove(2),
            6 => (world.release(8, 800), world.release(3, 1000)).1,
            _ => {}
        }
        reported.begun = world.commands.len() as u64;
        world.checkpoint()?;
        reported.done = reported.begun;
    }
    Ok(())
}

/// Runs the script on a disk that dies at operation `stop`; returns how far it came, and the world unless it did not open.
fn life(disk: &SimDisk, stop: u64) -> (Reported, Option<World>) {
    disk.stop_at(stop);
    let mut reported = Reported::default();
    let opened = World::open(Arc::new(disk.clone()), small(), Arc::default(), Vec::new());
    let Ok(mut world) = opened else { return (reported, None) };
    drop(script(&mut world, &mut reported));
    (reported, Some(world))
}

/// After the crash: one of the two states, whole, and a store that goes on.
fn check_after(disk: &SimDisk, reported: &Reported, dead: Option<World>, context: &str) {
    let (log, commands) = dead.map(|world| (world.log, world.commands)).unwrap_or_default();
    let open = || World::open(Arc::new(disk.clone()), small(), log.clone(), commands.clone());
    // Opening checks states and payload against the commands that the found state covers.
    let mut world = open().unwrap_or_else(|error| panic!("{context}: {error}"));
    let applied = world.store.status().applied;
    assert!(applied == reported.done || applied == reported.begun, "{context}: {applied} is no reported boundary");
    world.check_payload();
    // What an open says is what the caller releases the log by: no later failure may take it back.
    let fork = disk.fork(applied);
    fork.power_loss();
    let again = World::open(Arc::new(fork), small(), log.clone(), commands.clone());
    let again = again.unwrap_or_else(|error| panic!("{context}, and power loss: {error}")).store.status().applied;
    assert_eq!(again, applied, "{context}: an open found it, and the power failed");
    world.append(5, 70_000);
    world.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
    world.check_payload();
    disk.power_loss();
    let mut world = world.reopen().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(world.store.unmoved_bytes(), 0, "{context}: what was reported is there");
    world.check_payload();
}

fn operations() -> u64 {
    let disk = new_disk(0);
    let (reported, world) = life(&disk, u64::MAX);
    let world = world.expect("a sound disk");
    assert_eq!(reported.done, world.commands.len() as u64);
    let status = world.store.status();
    assert!(status.files > 2 && status.checkpoint == 7, "{status:?}");
    disk.operations()
}

#[test]
fn the_power_fails_at_every_operation_and_a_reported_checkpoint_is_there() {
    let total = operations();
    assert!(total > 60, "{total} operations are no matrix");
    for stop in 1..=total {
        for seed in 0..4 {
            let disk = new_disk(seed * 1000 + stop);
            let (reported, dead) = life(&disk, stop);
            assert!(disk.stopped());
            disk.power_loss();
            check_after(&disk, &reported, dead, &format!("operation {stop}, seed {seed}"));
        }
    }
}

/// What the page cache showed to the next process need not be durable: names above all.
#[test]
fn the_process_dies_at_every_operation_and_later_the_power_fails() {
    for stop in 1..=operations() {
        for seed in 0..2 {
            let disk = new_disk(seed * 1000 + stop);
            let (reported, dead) = life(&disk, stop);
            disk.crash_process();
            check_after(&disk, &reported, dead, &format!("operation {stop}, seed {seed}"));
        }
    }
}

#[test]
fn one_seed_gives_one_trace() {
    let trace = |seed| {
        let disk = new_disk(seed);
        let (reported, dead) = life(&disk, 40);
        disk.power_loss();
        check_after(&disk, &reported, dead, "trace");
        disk.trace_hash()
    };
    assert_eq!(trace(5), trace(5));
}
