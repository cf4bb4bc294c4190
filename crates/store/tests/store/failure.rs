//! The disk fails or is full, and the store goes on.

use crate::world::{DIRECTORY, World, disk as new_disk, small};
use highwater_disk::Disk;
use highwater_disk::sim::{EIO, ENOSPC, Operation};
use std::path::Path;

/// One life with a failure after `after` operations of a kind: what failed is tried again, and nothing is lost.
fn life(seed: u64, operation: Operation, after: u64, times: u64, error: i32) -> u32 {
    let context = format!("{operation:?} {after} {times} {error}");
    let disk = new_disk(seed);
    let mut world = World::new(&disk, small());
    disk.fail(operation, "", after, times, error);
    let mut failures = 0;
    for round in 0..6u64 {
        for object in 0..3 {
            world.append(object, 500 + object * 3000 + round * 7);
        }
        match round {
            1 => world.append(9, 400_000),
            2 => world.release(9, 700),
            3 => world.remove(9),
            4 => (20..60).for_each(|object| world.append(object, 10)),
            _ => {}
        }
        while let Err(error) = world.checkpoint() {
            failures += 1;
            assert!(failures < 10, "{context}: {error}");
            world.check_payload();
            world.append(1, 100);
            world.release(2, 300);
            if failures % 2 == 0 {
                world.remove(20 + u64::from(failures));
                world.append(20 + u64::from(failures), 50);
            }
        }
        world.check_payload();
    }
    disk.clear_faults();
    assert_eq!(world.store.unmoved_bytes(), 0);
    let covered = world.commands.len() as u64;
    disk.power_loss();
    let mut world = world.reopen().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(world.store.status().applied, covered, "{context}: what was reported is there");
    world.check_payload();
    failures
}

#[test]
fn whatever_fails_once_or_twice_is_survived_and_nothing_reported_is_lost() {
    let operations = [
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::SetLength,
        Operation::SyncDirectory,
        Operation::Rename,
        Operation::Remove,
    ];
    let mut failures = 0;
    for operation in operations {
        for after in 0..14 {
            for (times, error) in [(1, EIO), (2, EIO), (3, ENOSPC)] {
                failures += life(after, operation, after, times, error);
            }
        }
    }
    assert!(failures > 100, "{failures} failures are no matrix");
}

/// After a failed sync the kernel may have dropped the pages and taken them for written: syncing the same file again
/// would succeed and make nothing durable.
#[test]
fn a_data_file_whose_sync_failed_is_not_written_again() {
    for seed in 0..16 {
        let disk = new_disk(seed);
        let mut world = World::new(&disk, small());
        world.append(1, 1000);
        world.checkpoint().expect("sound");
        world.append(1, 90_000);
        disk.fail_next(Operation::Sync, "data-");
        let error = world.checkpoint().expect_err("the sync failed");
        assert!(error.contains("data-00000001"), "the place is named: {error}");
        world.checkpoint().expect("a new file");
        let names = disk.list(Path::new(DIRECTORY)).expect("a folder");
        assert!(names.contains(&"data-00000002".into()), "{names:?}");
        disk.power_loss();
        world.log.free_all();
        world.reopen().expect("sound").check_payload();
    }
}

/// The sync failed, the process died, and the next one wrote into the longer file that the page cache showed it: its sync made
/// the pages durable and not the length, which the failed one had taken for written.
#[test]
fn a_data_file_that_a_failed_sync_left_longer_is_cut_before_it_is_written_again() {
    for seed in 0..16 {
        let disk = new_disk(seed);
        let mut world = World::new(&disk, small());
        world.append(1, 1000);
        world.checkpoint().expect("sound");
        world.append(1, 90_000);
        disk.fail_next(Operation::Sync, "data-");
        world.checkpoint().expect_err("the sync failed");
        disk.crash_process();
        let mut world = world.reopen().expect("sound");
        world.release(1, 900);
        world.checkpoint().expect("sound");
        disk.power_loss();
        world.log.free_all();
        world.reopen().expect("sound").check_payload();
    }
}

/// A delta whose sync failed may be on disk and name what its checkpoint wrote: neither may that go, nor may a later attempt
/// write over it, until a newer index is durable.
#[test]
fn an_index_whose_sync_failed_is_replaced_before_anything_is_reported_or_written_over() {
    let mut found = [0; 4];
    for (seed, stop) in (0..160).map(|number| (number, number % 20)) {
        let disk = new_disk(seed);
        let mut world = World::new(&disk, small());
        world.append(2, 1000);
        world.checkpoint().expect("sound");
        world.append(1, 30_000);
        world.append(3, 300_000);
        disk.fail_next(Operation::Sync, "index-");
        world.checkpoint().expect_err("the sync failed");
        // The next attempt lays other bytes down first.
        world.append(0, 7000);
        disk.stop_at(disk.operations() + stop);
        let done = world.checkpoint().is_ok();
        disk.power_loss();
        let world = world.reopen().unwrap_or_else(|error| panic!("seed {seed}, stop {stop}: {error}"));
        let applied = world.store.status().applied as usize;
        assert!([1, 3, 4].contains(&applied) && (!done || applied == 4), "{applied}, done: {done}");
        found[applied - 1] += 1;
    }
    assert!(found[0] > 0 && found[2] > 0 && found[3] > 0, "{found:?}: every outcome was met");
}

#[test]
fn what_was_removed_before_a_failed_checkpoint_is_freed_by_the_next() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, small());
    world.append(1, 250_000);
    world.append(2, 250_000);
    world.checkpoint().expect("sound");
    world.remove(1);
    disk.fail_next(Operation::Sync, "index-");
    world.checkpoint().expect_err("the sync failed");
    world.checkpoint().expect("a new base");
    assert_eq!((world.store.status().files, world.store.status().stored_bytes), (1, 250_000));
    assert!(!disk.exists(&Path::new(DIRECTORY).join("data-00000001")).expect("exists"));
    world.reopen().expect("sound").check_payload();
}

/// The kernel takes pages of a failed sync for written: the next process reads the delta from the page cache, and a mere
/// sync of it does nothing.
#[test]
fn a_delta_found_after_a_failed_sync_and_a_dead_process_is_made_durable_by_the_open() {
    let mut found = 0;
    for seed in 0..16 {
        let disk = new_disk(seed);
        let mut world = World::new(&disk, small());
        world.append(1, 1000);
        world.checkpoint().expect("sound");
        world.append(1, 5000);
        disk.fail_next(Operation::Sync, "index-");
        world.checkpoint().expect_err("the sync failed");
        disk.crash_process();
        let world = world.reopen().expect("sound");
        let applied = world.store.status().applied;
        found += u64::from(applied == 2);
        disk.power_loss();
        let mut world = world.reopen().expect("sound");
        assert_eq!(world.store.status().applied, applied, "seed {seed}: the log was released by it");
        world.check_payload();
    }
    assert!(found > 0);
}

#[test]
fn a_full_disk_leaves_no_trace_and_a_later_checkpoint_does_the_work() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, small());
    world.append(1, 100_000);
    world.checkpoint().expect("sound");
    let (used, names) = (disk.used_bytes(), disk.list(Path::new(DIRECTORY)).expect("a folder"));
    world.append(1, 900_000);
    world.append(2, 10);
    for spare in [0, 4096, 100_000, 500_000, 800_000] {
        disk.set_capacity(Some(used + spare));
        let error = world.begin().run(&*world.log).expect_err("no space");
        assert!(error.is_full(), "{error}");
        world.end(Err(error)).expect_err("no space");
        assert!(disk.used_bytes() <= used + 4096, "{} of {used} bytes", disk.used_bytes());
        assert_eq!(disk.list(Path::new(DIRECTORY)).expect("a folder"), names);
        world.check_payload();
    }
    disk.set_capacity(None);
    world.checkpoint().expect("there is space again");
    world.log.free_all();
    world.reopen().expect("sound").check_payload();
}
