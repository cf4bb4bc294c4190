//! Data files that are mostly dead give their space back.

use crate::world::{DIRECTORY, World, disk as new_disk, small};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_disk::{Disk, SimDisk};
use highwater_store::ReadError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ten objects of 60,000 bytes, of which every third stays; what stays is spread over all files.
fn mostly_dead(disk: &SimDisk) -> World {
    let mut world = World::new(disk, small());
    for object in 0..10 {
        world.append(object, 60_000);
    }
    world.checkpoint().expect("sound");
    for object in (0..10).filter(|object| object % 3 != 0) {
        world.remove(object);
    }
    world.checkpoint().expect("sound");
    world
}

#[test]
fn a_file_that_is_mostly_dead_is_rewritten_and_its_space_given_back() {
    let disk = new_disk(1);
    let mut world = mostly_dead(&disk);
    let before = world.store.status();
    assert!(world.store.compaction_due() && before.file_bytes > 2 * before.stored_bytes, "{before:?}");
    let copied = world.compact_all();
    assert!(copied > 0 && copied <= before.dead_bytes, "{copied} bytes copied for {} dead ones", before.dead_bytes);
    let after = world.store.status();
    assert_eq!(after.stored_bytes, before.stored_bytes);
    assert!(after.file_bytes < after.stored_bytes * 3 / 2, "{after:?}");
    world.check_payload();
    world.log.free_all();
    let world = world.reopen().expect("sound");
    assert_eq!(world.store.status().file_bytes, after.file_bytes, "a start knows the same");
    assert!(!world.store.compaction_due());
}

/// A reader keeps its plan while the file goes, and the next plan finds the bytes.
#[test]
fn a_reader_of_a_rewritten_file_plans_again_and_gets_the_same_bytes() {
    let mut world = mostly_dead(&new_disk(1));
    let plan = world.plan(0, 0, 60_000);
    let bytes = world.reader.read(&plan).expect("readable");
    let checkpoint = world.begin_compaction(1 << 20);
    let result = checkpoint.run(&*world.log);
    assert_eq!(world.reader.read(&plan).expect("the old place is there until the index says otherwise"), bytes);
    world.end(result).expect("sound");
    assert!(matches!(world.reader.read(&plan), Err(ReadError::Moved)));
    assert_eq!(world.read(0, 0, 60_000).expect("the new place"), bytes);
}

/// Copied, a bad block would get a good checksum.
#[test]
fn a_damaged_extent_stays_where_it_is_and_the_others_move() {
    let disk = new_disk(1);
    let mut world = mostly_dead(&disk);
    // The first bytes of object 0, which is the first of the first file.
    disk.flip_bit(&Path::new(DIRECTORY).join("data-00000001"), 4096 + 100).expect("a byte");
    world.compact_all();
    assert!(!world.store.compaction_due(), "the damaged file is not tried for ever");
    assert!(matches!(world.read(0, 0, 100), Err(ReadError::Damaged { .. })));
    for object in [3, 6, 9] {
        assert_eq!(world.read(object, 0, 60_000).expect("moved").len(), 60_000);
    }
    let names = disk.list(Path::new(DIRECTORY)).expect("a folder");
    assert!(names.contains(&"data-00000001".into()) && !names.contains(&"data-00000002".into()), "{names:?}");
}

#[test]
fn what_is_removed_or_grows_while_its_file_is_rewritten_is_neither_brought_back_nor_lost() {
    for fails in [false, true] {
        let disk = new_disk(1);
        let mut world = mostly_dead(&disk);
        world.append(3, 500);
        let checkpoint = world.begin_compaction(1 << 20);
        world.remove(0);
        world.append(0, 70);
        world.append(3, 30);
        world.append(6, 10_000);
        world.remove(9);
        if fails {
            disk.fail_next(highwater_disk::sim::Operation::Sync, "index-");
        }
        let result = checkpoint.run(&*world.log);
        assert_eq!(world.end(result).is_err(), fails);
        world.check_payload();
        world.checkpoint().expect("sound");
        world.compact_all();
        world.log.free_all();
        world.reopen().expect("sound").check_payload();
    }
}

/// A life in which files die in part and are rewritten, with everything else going on.
fn script(world: &mut World, done: &mut u64, begun: &mut u64) -> Result<(), String> {
    for round in 0..7u64 {
        for object in 0..6 {
            world.append(object * 10 + round, 30_000 + object * 100);
        }
        for object in (0..6).filter(|object| round > 0 && object % 3 != 0) {
            world.remove(object * 10 + round - 1);
        }
        *begun = world.commands.len() as u64;
        world.compact(80_000)?;
        *done = *begun;
    }
    Ok(())
}

fn life(disk: &SimDisk, stop: u64) -> (u64, u64, Option<World>) {
    disk.stop_at(stop);
    let (mut done, mut begun) = (0, 0);
    let opened = World::open(Arc::new(disk.clone()), small(), Arc::default(), Vec::new());
    let Ok(mut world) = opened else { return (0, 0, None) };
    drop(script(&mut world, &mut done, &mut begun));
    (done, begun, Some(world))
}

#[test]
fn the_power_fails_at_every_operation_of_a_compaction_and_nothing_is_lost() {
    let disk = new_disk(0);
    let (done, _, world) = life(&disk, u64::MAX);
    let world = world.expect("a sound disk");
    assert_eq!(done, world.commands.len() as u64);
    let total = disk.operations();
    assert!(total > 60, "{total} operations are no matrix");
    for (stop, seed) in (1..=total).flat_map(|stop| (0..3).map(move |seed| (stop, seed))) {
        let context = format!("operation {stop}, seed {seed}");
        let disk = new_disk(seed * 1000 + stop);
        let (done, begun, dead) = life(&disk, stop);
        match seed {
            0 => disk.crash_process(),
            _ => disk.power_loss(),
        }
        let (log, commands) = dead.map(|world| (world.log, world.commands)).unwrap_or_default();
        let world = World::open(Arc::new(disk.clone()), small(), log, commands);
        // Opening checks states and payload against the commands that the found state covers.
        let mut world = world.unwrap_or_else(|error| panic!("{context}: {error}"));
        let applied = world.store.status().applied;
        assert!(applied == done || applied == begun, "{context}: {applied}");
        world.check_payload();
        world.compact_all();
        disk.power_loss();
        world.reopen().unwrap_or_else(|error| panic!("{context}: {error}")).check_payload();
    }
}

/// Ursula's reports 107 and 111: the log and the journal never shrank, however much was deleted. Here a long life of
/// streams that come, grow and go keeps no more on disk than a small multiple of what lives.
#[test]
fn bytes_on_disk_stay_bounded_by_live_data_over_a_long_life() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, small());
    let mut random = SplitMix::new(7);
    let (mut written, mut copied, mut highest) = (0, 0, 0);
    for round in 0..400u64 {
        for _ in 0..5 {
            let length = 1 + random.next_u64() % 20_000;
            world.append(random.next_u64() % 40, length);
            written += length;
        }
        // Streams live for a random while; a few stay for very long.
        let object = random.next_u64() % 40;
        if object >= 4 && world.model.objects.contains_key(&object) {
            world.remove(object);
        }
        copied += world.compact(200_000).expect("sound");
        if round > 50 {
            let status = world.store.status();
            // Two files' worth stands for the one that is written on and the one that was just left.
            let bound = 2 * status.stored_bytes + 2 * (256 << 10) + status.index_bytes;
            assert!(disk.used_bytes() <= bound + (64 << 10), "round {round}: {} of {bound}", disk.used_bytes());
            highest = highest.max(disk.used_bytes());
        }
    }
    world.check_payload();
    assert!(written > 3 * highest, "{written} bytes written, at most {highest} on disk: the soak is long enough");
    assert!(copied < 2 * written, "{copied} bytes were copied for {written} written");
    let names: Vec<PathBuf> = disk.files().into_iter().map(|(path, _)| path).collect();
    assert_eq!(names.len() as u64, world.store.status().files + 1, "{names:?}");
}
