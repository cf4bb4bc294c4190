//! Reads that were planned before things moved.

use crate::world::{World, disk as new_disk, small};
use highwater_store::ReadError;

#[test]
fn a_plan_made_before_the_log_was_freed_says_moved_and_the_next_one_answers() {
    let mut world = World::new(&new_disk(1), small());
    world.append(1, 500);
    let plan = world.plan(1, 1000, 500);
    world.checkpoint().expect("sound");
    assert_eq!(world.reader.read(&plan).expect("the log is still there").len(), 500);
    world.log.free_all();
    assert!(matches!(world.reader.read(&plan), Err(ReadError::Moved)));
    assert_eq!(world.read(1, 1000, 500).expect("the data file").len(), 500);
}

#[test]
fn a_plan_of_a_deleted_file_says_moved_and_not_damaged() {
    let mut world = World::new(&new_disk(1), small());
    world.append(1, 250_000);
    world.checkpoint().expect("sound");
    world.append(2, 250_000);
    world.checkpoint().expect("sound");
    let plan = world.plan(1, 1000, 500);
    world.remove(1);
    world.reader.read(&plan).expect("the file goes with the next checkpoint only");
    world.append(2, 1);
    world.checkpoint().expect("sound");
    assert!(matches!(world.reader.read(&plan), Err(ReadError::Moved)));
    assert!(world.plan(1, 1000, 500).is_empty());
}

/// Deleting what an index on disk still names would make that index refuse to open after a crash.
#[test]
fn a_dead_file_stays_until_an_index_without_it_is_synced() {
    for stored_before in [true, false] {
        let disk = new_disk(1);
        let mut world = World::new(&disk, small());
        world.append(1, 250_000);
        if stored_before {
            world.checkpoint().expect("sound");
        }
        world.append(2, 250_000);
        let checkpoint = world.begin();
        world.remove(1);
        let result = checkpoint.run(&*world.log);
        world.end(result).expect("sound");
        let before = world.store.status();
        assert_eq!((before.files, before.stored_bytes), (2, 500_000), "the index still names object 1");
        disk.power_loss();
        let mut world = world.reopen().expect("sound");
        world.checkpoint().expect("sound");
        let after = world.store.status();
        assert_eq!((after.files, after.stored_bytes), (1, 250_000));
    }
}

/// A removed object must not come back when the checkpoint that was moving it ends.
#[test]
fn an_object_removed_and_made_again_while_a_checkpoint_runs_keeps_its_new_bytes_only() {
    for fails in [false, true] {
        let disk = new_disk(1);
        let mut world = World::new(&disk, small());
        world.append(1, 5000);
        world.checkpoint().expect("sound");
        world.append(1, 5000);
        world.append(4, 5000);
        if fails {
            disk.fail_next(highwater_disk::sim::Operation::Sync, "data-");
        }
        let checkpoint = world.begin();
        world.remove(1);
        world.append(1, 70);
        world.remove(4);
        let result = checkpoint.run(&*world.log);
        assert_eq!(world.end(result).is_err(), fails);
        assert_eq!(world.store.unmoved_bytes(), 70);
        world.check_payload();
        assert!(world.plan(4, 1000, 10).is_empty());
        world.checkpoint().expect("sound");
        world.check_payload();
        let mut world = world.reopen().expect("sound");
        world.check_payload();
        assert_eq!(world.store.status().stored_bytes, 70);
    }
}

#[test]
fn a_plan_is_bounded_in_bytes_and_pieces() {
    let mut world = World::new(&new_disk(1), small());
    for _ in 0..5000 {
        world.append(0, 1);
    }
    assert_eq!(world.plan(0, 0, u64::MAX).length(), 4096);
    world.append(3, 9 << 20);
    assert_eq!(world.plan(3, 0, u64::MAX).length(), 8 << 20);
    world.checkpoint().expect("sound");
    assert_eq!(world.plan(0, 0, u64::MAX).length(), 5000, "one run now");
    assert_eq!(world.read(3, 0, u64::MAX).expect("readable").len(), 8 << 20);
}
