//! Objects whose first bytes were given up.

use crate::world::{DIRECTORY, FakeLog, World, disk as new_disk, owner, small};
use highwater_disk::Disk;
use highwater_disk::sim::Operation;
use highwater_store::Store;
use std::path::Path;
use std::sync::Arc;

/// A stream that is trimmed as fast as it grows must not fill the disk.
#[test]
fn an_object_that_is_released_as_it_grows_keeps_its_files_few() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, small());
    let mut files_max = 0;
    for _ in 0..40 {
        world.append(1, 100_000);
        world.checkpoint().expect("sound");
        world.release(1, 900);
        world.checkpoint().expect("sound");
        files_max = files_max.max(world.store.status().files);
        world.check_payload();
    }
    let status = world.store.status();
    assert!(files_max <= 3 && status.extents <= 4, "{files_max} files, {status:?}");
    assert!(status.stored_bytes < 200_000, "{status:?}");
    let names = disk.list(Path::new(DIRECTORY)).expect("a folder");
    assert_eq!(names.iter().filter(|name| name.starts_with("data-")).count() as u64, status.files, "{names:?}");
    disk.power_loss();
    let mut world = world.reopen().expect("sound");
    assert_eq!(world.store.status().files, status.files);
    world.check_payload();
}

#[test]
fn what_is_released_before_its_checkpoint_is_never_stored() {
    let mut world = World::new(&new_disk(1), small());
    for _ in 0..10 {
        world.append(1, 30_000);
    }
    world.release(1, 990);
    assert_eq!(world.store.unmoved_bytes(), 3000);
    world.checkpoint().expect("sound");
    assert_eq!(world.store.status().stored_bytes, 3000);
    world.reopen().expect("sound").check_payload();
}

#[test]
fn an_object_released_to_its_end_has_nothing_and_grows_on_from_there() {
    for fails in [false, true] {
        let disk = new_disk(1);
        let mut world = World::new(&disk, small());
        world.append(1, 250_000);
        world.checkpoint().expect("sound");
        world.release(1, 1000);
        let gone = world.model.objects[&1].end;
        assert!(world.plan(1, 1000, 10).is_empty() && world.plan(1, gone, 10).is_empty());
        if fails {
            disk.fail_next(Operation::Sync, "index-");
            world.checkpoint().expect_err("the sync failed");
        }
        world.checkpoint().expect("sound");
        assert_eq!((world.store.status().files, world.store.status().stored_bytes), (0, 0));
        world.append(1, 500);
        world.checkpoint().expect("sound");
        disk.power_loss();
        let mut world = world.reopen().expect("sound");
        world.check_payload();
        assert_eq!(world.read(1, gone, 1000).expect("readable").len(), 500);
    }
}

/// What a checkpoint is moving was placed by the time at which it was begun.
#[test]
fn a_front_released_while_a_checkpoint_runs_holds_whether_that_ends_well_or_not() {
    for fails in [false, true] {
        let disk = new_disk(1);
        let mut world = World::new(&disk, small());
        world.append(1, 5000);
        world.append(2, 100);
        world.checkpoint().expect("sound");
        world.append(1, 200_000);
        world.append(2, 100);
        if fails {
            disk.fail_next(Operation::Sync, "data-");
        }
        let checkpoint = world.begin();
        world.append(1, 40_000);
        world.release(1, 900);
        world.release(2, 1000);
        world.check_payload();
        let result = checkpoint.run(&*world.log);
        assert_eq!(world.end(result).is_err(), fails);
        world.check_payload();
        disk.power_loss();
        let mut world = world.reopen().expect("sound");
        world.checkpoint().expect("sound");
        world.check_payload();
        let left = world.model.objects[&1].end - world.model.objects[&1].front;
        let stored = world.store.status().stored_bytes;
        assert!((left..left + 65_504).contains(&stored), "{stored} bytes for {left}");
        world.log.free_all();
        world.reopen().expect("sound").check_payload();
    }
}

/// What is being moved stays until the checkpoint ends, so that it looked as if the object ended with it.
#[test]
fn an_object_grows_on_behind_what_was_given_up_while_a_checkpoint_moves_it() {
    let mut world = World::new(&new_disk(1), small());
    world.append(1, 500);
    let checkpoint = world.begin();
    world.append(1, 300);
    world.release(1, 1000);
    world.append(1, 200);
    let result = checkpoint.run(&*world.log);
    world.end(result).expect("sound");
    world.check_payload();
    world.checkpoint().expect("sound");
    assert_eq!(world.store.status().stored_bytes, 200);
    world.reopen().expect("sound").check_payload();
}

/// A part of a snapshot has no state of its own: the stream that it belongs to names it.
#[test]
fn an_object_without_a_state_keeps_its_bytes_and_is_listed_without() {
    let disk = new_disk(1);
    let open = || Store::open(Arc::new(disk.clone()), Path::new(DIRECTORY), owner(), small()).expect("sound");
    let log = Arc::new(FakeLog::default());
    let (mut store, _) = open();
    store.append(7, 0, log.append(vec![7; 1000]), 0..1000);
    store.append(8, 0, log.append(vec![8; 1000]), 0..1000);
    let checkpoint = store.begin_checkpoint(2, Default::default(), vec![(8, Some("state".into()))]);
    drop(store.finish_checkpoint(checkpoint.run(&*log).expect("sound")));
    disk.power_loss();
    let (mut store, loaded) = open();
    assert_eq!(loaded.objects, [(7, Default::default()), (8, "state".into())]);
    let read =
        |store: &Store, object| store.reader(log.clone()).read(&store.plan_read(object, 0, 1000)).expect("readable");
    assert_eq!((read(&store, 7), read(&store, 8)), (vec![7; 1000].into(), vec![8; 1000].into()));
    store.remove(7);
    let checkpoint = store.begin_checkpoint(3, Default::default(), Vec::new());
    drop(store.finish_checkpoint(checkpoint.run(&*log).expect("sound")));
    let (store, _) = open();
    assert!(store.plan_read(7, 0, 1000).is_empty());
    assert_eq!(store.status().stored_bytes, 1000);
}
