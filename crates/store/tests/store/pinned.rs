//! A checkpoint's files can be copied while the store goes on.

use crate::world::{DIRECTORY, World, disk as new_disk, owner, small};
use highwater_disk::{Disk, OpenMode};
use highwater_store::{Pin, verify};
use std::path::Path;
use std::sync::Arc;

/// Copies what is pinned into a store of another disk, in small pieces, with `between` called after each.
fn copy(pin: &Pin, mut between: impl FnMut()) -> highwater_disk::SimDisk {
    let disk = new_disk(9);
    disk.create_directory(Path::new(DIRECTORY)).expect("create");
    for file in pin.files() {
        let copy = disk.open(&Path::new(DIRECTORY).join(&file.name), OpenMode::CreateNew).expect("create");
        let mut at = 0;
        while at < file.bytes {
            let bytes = pin.read(&file.name, at, 50_000).expect("pinned");
            copy.write_at(&bytes, at).expect("write");
            at += bytes.len() as u64;
            between();
        }
        assert!(pin.read(&file.name, at, 1).expect("the end").is_empty());
    }
    disk
}

#[test]
fn a_pinned_checkpoint_is_copied_whole_while_streams_grow_go_and_move() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, small());
    for object in 0..10 {
        world.append(object, 60_000);
    }
    world.checkpoint().expect("sound");
    let (log, commands) = (world.log.clone(), world.commands.clone());
    let pin = world.store.pin().expect("no checkpoint is under way");
    let mut round = 0;
    let copied = copy(&pin, || {
        round += 1;
        world.append(round % 10, 3000);
        if round % 4 == 0 {
            world.remove(round % 10);
        }
        (20..60).for_each(|object| world.append(object, 10));
        world.compact(100_000).expect("sound");
    });
    assert!(round > 10);
    let mut restored = World::open(Arc::new(copied.clone()), small(), log, commands).expect("a whole store");
    assert_eq!((restored.store.unmoved_bytes(), restored.store.status().applied), (0, pin.applied()));
    restored.check_payload();
    let verified = verify(Arc::new(copied), Path::new(DIRECTORY), owner(), &mut |_| true).expect("an index");
    assert_eq!(verified.faults, []);
    // With the pin, what was kept for it goes.
    let kept = disk.list(Path::new(DIRECTORY)).expect("a folder").len();
    drop(pin);
    (20..60).for_each(|object| world.append(object, 10));
    for _ in 0..20 {
        (20..60).for_each(|object| world.append(object, 10));
        world.checkpoint().expect("sound");
    }
    let names = disk.list(Path::new(DIRECTORY)).expect("a folder");
    assert!(names.len() < kept, "{names:?}, {kept} before");
    assert_eq!(names.len() as u64, world.store.status().files + 1, "{names:?}");
    world.reopen().expect("sound").check_payload();
}

/// The story: a checkpoint opened the file that was written on, found no room in it, and left it; from then on the file
/// counted as longer than it was, by a part of a page, and every backup of it ended early.
#[test]
fn a_file_that_was_opened_and_left_unwritten_is_pinned_with_the_bytes_that_it_has() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, small());
    world.append(1, 200_001);
    world.checkpoint().expect("sound");
    world.append(2, 100_000);
    world.checkpoint().expect("sound");
    let pin = world.store.pin().expect("no checkpoint is under way");
    assert_eq!(pin.files().len(), 3, "an index and two data files");
    for file in pin.files() {
        let bytes = pin.read(&file.name, 0, file.bytes).unwrap_or_else(|error| panic!("{}: {error}", file.name));
        assert_eq!(bytes.len() as u64, file.bytes);
    }
}

#[test]
fn nothing_is_pinned_while_a_checkpoint_may_replace_the_index() {
    let mut world = World::new(&new_disk(1), small());
    world.append(1, 10);
    let checkpoint = world.begin();
    assert!(world.store.pin().is_none());
    let result = checkpoint.run(&*world.log);
    world.end(result).expect("sound");
    let pin = world.store.pin().expect("it ended");
    assert!(pin.read("index-0000000000000001", 0, 10).is_ok() && pin.read("../../cluster", 0, 10).is_err());
}
