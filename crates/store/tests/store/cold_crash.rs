//! The machine dies at every operation of moving files to an object store, of bringing them back, and of deleting them.

use crate::tier::{folder as folder_of, make_folder, names};
use crate::world::{DIRECTORY, World, disk as new_disk};
use highwater_disk::{Disk, SimDisk};
use highwater_store::Options;
use std::path::Path;
use std::sync::Arc;

fn folder(disk: &SimDisk) -> Options {
    Options { file_bytes_max: 128 << 10, ..folder_of(disk) }
}

/// Files move, some die, some come back and are emptied, some move again.
///
/// Returns how many were erased and how many came back.
fn script(world: &mut World) -> Result<(usize, usize), String> {
    let text = |error: highwater_store::MoveError| error.to_string();
    for round in 0..2u64 {
        (0..3).for_each(|object| world.append(object, 40_000));
        world.append(10 + round, 100_000);
        world.checkpoint()?;
        world.move_all().map_err(text)?;
    }
    world.remove(10);
    world.release(0, 900);
    world.release(1, 500);
    world.append(1, 100);
    world.checkpoint()?;
    let mut erased = world.erase_all().map_err(text)?;
    let recalled = world.recall_all().map_err(text)?;
    world.compact(400_000)?;
    erased += world.erase_all().map_err(text)?;
    world.move_all().map_err(text)?;
    Ok((erased, recalled))
}

fn life(disk: &SimDisk, stop: u64) -> Option<World> {
    make_folder(disk);
    disk.stop_at(stop);
    let mut world = World::open(Arc::new(disk.clone()), folder(disk), Arc::default(), Vec::new()).ok()?;
    drop(script(&mut world));
    Some(world)
}

fn operations() -> (u64, u64) {
    let disk = new_disk(0);
    make_folder(&disk);
    let before = disk.operations();
    let mut world = World::open(Arc::new(disk.clone()), folder(&disk), Arc::default(), Vec::new()).expect("sound");
    let (erased, recalled) = script(&mut world).expect("a sound disk");
    assert!(erased > 1 && recalled > 0, "{erased} {recalled}");
    let plan = world.store.plan_cold();
    assert!(plan.cold_files > 1 && world.store.status().checkpoint > 3, "{plan:?}");
    world.check_payload();
    (before, disk.operations())
}

/// Opening checks every byte against the commands that the found state covers, so that a file is in one place at the least.
fn check_after(disk: &SimDisk, dead: Option<World>, context: &str) {
    let (log, commands) = dead.map(|world| (world.log, world.commands)).unwrap_or_default();
    let mut world = World::open(Arc::new(disk.clone()), folder(disk), log, commands)
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    world.check_payload();
    script_rest(&mut world, disk, context);
}

/// The store goes on, and in the end nothing is left that nobody needs.
fn script_rest(world: &mut World, disk: &SimDisk, context: &str) {
    let failed = |error: highwater_store::MoveError| panic!("{context}: {error}");
    world.append(5, 30_000);
    world.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
    world.move_all().unwrap_or_else(failed);
    world.recall_all().unwrap_or_else(failed);
    world.check_payload();
    for object in world.model.objects.keys().copied().collect::<Vec<_>>() {
        world.remove(object);
    }
    world.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
    world.erase_all().unwrap_or_else(failed);
    assert!(names(disk).is_empty(), "{context}: nobody knows of {:?}", names(disk));
    let left = disk.list(Path::new(DIRECTORY)).expect("a folder");
    assert!(left.iter().all(|name| name.starts_with("index-")), "{context}: {left:?}");
}

#[test]
fn the_power_fails_at_every_operation_of_a_move_and_no_byte_is_lost_and_no_object_forgotten() {
    let (before, total) = operations();
    assert!(total - before > 100, "{total} operations are no matrix");
    for stop in before + 1..=total {
        for seed in 0..2 {
            let disk = new_disk(seed * 1000 + stop);
            let dead = life(&disk, stop);
            assert!(disk.stopped());
            disk.power_loss();
            check_after(&disk, dead, &format!("operation {stop}, seed {seed}"));
        }
    }
}

#[test]
fn the_process_dies_at_every_operation_of_a_move_and_later_the_power_fails() {
    let (before, total) = operations();
    for stop in before + 1..=total {
        let disk = new_disk(stop);
        let dead = life(&disk, stop);
        disk.crash_process();
        let (log, commands) = dead.as_ref().map(|w| (w.log.clone(), w.commands.clone())).unwrap_or_default();
        // A start that dies itself: what it tidied may come back.
        drop(World::open(Arc::new(disk.clone()), folder(&disk), log, commands));
        disk.power_loss();
        check_after(&disk, dead, &format!("operation {stop}"));
    }
}
