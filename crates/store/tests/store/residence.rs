//! Objects that leave memory and come back.

use crate::world::{DIRECTORY, World, disk as new_disk, owner, payload, small};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_disk::sim::Operation;
use highwater_disk::{Disk, OpenMode, SimDisk};
use highwater_store::{Keep, LookupError, Options, Residence, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Objects whose records make a base of several blocks, all of it written by a fold.
fn folded(disk: &SimDisk) -> World {
    let mut world = World::new(disk, small());
    (0..100).for_each(|object| world.append(object, 10 + object));
    world.checkpoint().expect("a fold");
    world
}

fn evict_all(world: &mut World) {
    let evicted = (0..100).filter(|object| world.store.evict(*object)).count();
    assert!(evicted > 0 && world.store.resident().0 == 0, "{evicted} left, {:?} stay", world.store.resident());
}

fn base(disk: &SimDisk) -> PathBuf {
    let names = disk.list(Path::new(DIRECTORY)).expect("a folder");
    let name = names.iter().find(|name| name.starts_with("index-")).expect("an index");
    Path::new(DIRECTORY).join(name)
}

#[test]
fn an_object_that_left_memory_comes_back_as_it_was() {
    let mut world = folded(&new_disk(1));
    evict_all(&mut world);
    for object in 0..100 {
        assert_eq!(world.store.residence(object), Residence::Stored);
        world.warm(object).expect("sound");
        assert_eq!(world.store.residence(object), Residence::Resident);
        assert!(world.store.evict(object));
    }
    // All at once, in any order, those that are not there too.
    let keys = [77, 3, 5000, 99, 0, 6000];
    let found = world.store.lookup().find(&keys).expect("sound");
    let there: Vec<_> = found.iter().map(|found| (found.key(), found.state().is_some())).collect();
    assert_eq!(there, [(77, true), (3, true), (5000, false), (99, true), (0, true), (6000, false)]);
    world.check_payload();
}

/// A checkpoint that wrote a delta has told the base nothing.
#[test]
fn what_changed_since_the_base_was_written_stays_in_memory_until_the_next_base() {
    let mut world = folded(&new_disk(1));
    world.append(7, 10);
    assert!(!world.store.evict(7), "it was appended to");
    world.checkpoint().expect("a delta");
    assert!(!world.store.evict(7), "the delta says more than the base");
    world.remove(8);
    assert_eq!(world.store.residence(8), Residence::Absent);
    world.checkpoint().expect("a delta");
    assert_eq!(world.store.residence(8), Residence::Absent, "the base still has it, and memory knows better");
    let generation = base_generation(&world);
    while base_generation(&world) == generation {
        (20..90).for_each(|object| world.append(object, 10));
        world.checkpoint().expect("sound");
    }
    assert!(world.store.evict(7));
    assert_eq!((world.store.residence(7), world.store.residence(8)), (Residence::Stored, Residence::Absent));
    world.check_payload();
}

fn base_generation(world: &World) -> String {
    let pin = world.store.pin().expect("no checkpoint is under way");
    pin.files()[0].name.clone()
}

/// The base that was searched is not the one that counts: what it says of an object may be what that was before.
#[test]
fn what_an_older_base_said_is_not_taken_in() {
    let mut world = folded(&new_disk(1));
    evict_all(&mut world);
    let stale = world.store.lookup().find(&[5, 6]).expect("sound");
    world.append(5, 1000);
    world.remove(6);
    world.append(6, 20);
    world.checkpoint().expect("sound");
    let older = base_generation(&world);
    while base_generation(&world) == older {
        (20..90).for_each(|object| world.append(object, 10));
        world.checkpoint().expect("sound");
    }
    assert!(world.store.evict(5) && world.store.evict(6));
    assert_eq!((world.store.residence(5), world.store.residence(6)), (Residence::Stored, Residence::Stored));
    assert!(stale.iter().all(|found| !world.store.admit(found)), "it is of an older base");
    world.check_payload();
    // In the base that counts, twice is no harm.
    assert!(world.store.evict(5));
    let found = world.store.lookup().find(&[5]).expect("sound");
    assert!(world.store.admit(&found[0]) && !world.store.admit(&found[0]));
    world.append(5, 10);
    assert!(!world.store.admit(&found[0]), "it is in memory, and newer");
    world.remove(5);
    assert!(!world.store.admit(&found[0]), "it is gone, and nothing brings it back");
    assert_eq!(world.store.residence(5), Residence::Absent);
}

/// A table lets a few keys pass that are not there; looking one up must end the asking.
#[test]
fn an_object_that_only_seems_to_be_stored_is_absent_once_it_was_looked_up() {
    let mut world = folded(&new_disk(1));
    let seeming = (1000..20_000).find(|key| world.store.residence(*key) == Residence::Stored);
    let seeming = seeming.expect("one in a hundred");
    let found = world.store.lookup().find(&[seeming]).expect("sound");
    assert!(found[0].state().is_none() && world.store.admit(&found[0]));
    assert_eq!(world.store.residence(seeming), Residence::Absent);
    world.append(seeming, 10);
    world.checkpoint().expect("sound");
    world.check_payload();
}

#[test]
#[should_panic(expected = "object 5 is on disk and was not looked up")]
fn an_object_on_disk_is_not_appended_to_as_if_it_were_new() {
    let mut world = folded(&new_disk(1));
    evict_all(&mut world);
    let source = world.log.append(vec![0; 10]);
    world.store.append(5, 0, source, 0..10);
}

/// Every bit of the base, met by a lookup of every object: an error that names the place, or the right answer.
#[test]
fn a_damaged_base_block_is_an_error_with_its_place_and_never_other_bytes() {
    let disk = new_disk(1);
    let mut world = folded(&disk);
    evict_all(&mut world);
    let (path, lookup) = (base(&disk), world.store.lookup());
    let sound = lookup.find(&(0..100).collect::<Vec<_>>()).expect("sound");
    let length = disk.open(&path, OpenMode::Read).and_then(|file| file.length()).expect("length");
    let mut refused = 0;
    for offset in (0..length).step_by(61) {
        disk.flip_bit(&path, offset).expect("a byte");
        let bit_before = refused;
        for (object, sound) in (0..100u64).zip(&sound) {
            match lookup.find(&[object]) {
                Ok(found) => assert_eq!(&found[0], sound, "byte {offset}"),
                Err(LookupError::Damaged { path: at, position, .. }) => {
                    assert!(at == path && position <= offset, "byte {offset}: {position}");
                    refused += 1;
                }
                Err(other) => panic!("byte {offset}: {other}"),
            }
        }
        let hit = refused - bit_before;
        assert!(hit < 60, "byte {offset}: the objects of other blocks are found, {hit} were not");
        restore(&disk, &path, offset);
    }
    assert!(refused > 0);
    assert_eq!(lookup.find(&(0..100).collect::<Vec<_>>()).expect("sound again"), sound);
    disk.fail_next(Operation::Read, "index-");
    assert!(matches!(lookup.find(&[5]), Err(LookupError::Io { .. })));
}

/// Flips the bit back that was flipped: whichever of the eight makes the base sound.
fn restore(disk: &SimDisk, path: &Path, offset: u64) {
    let file = disk.open(path, OpenMode::Write).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    let damaged = byte[0];
    let sound = |disk: &SimDisk| {
        let opened = Store::opening(Arc::new(disk.clone()), Path::new(DIRECTORY), owner(), small());
        opened.is_ok_and(|opening| opening.load(&mut |_| Ok(Keep::Stored)).is_ok())
    };
    for bit in 0..8 {
        file.write_at(&[damaged ^ 1 << bit], offset).expect("write");
        let fork = disk.fork(offset);
        if sound(&fork) {
            return;
        }
    }
    panic!("no bit of byte {offset} makes it sound");
}

/// Files whose live payload belongs to objects that nobody has in memory: they must be emptied all the same.
#[test]
fn files_whose_objects_are_on_disk_alone_give_their_space_back() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, small());
    (0..90).for_each(|object| world.append(object, 20_000));
    world.checkpoint().expect("sound");
    (0..90).filter(|object| object % 3 != 0).for_each(|object| world.remove(object));
    // A fold, behind which everything may leave.
    (100..200).for_each(|object| world.append(object, 1));
    world.checkpoint().expect("sound");
    let before = world.store.status();
    let (mut copied, mut rounds) = (0, 0);
    while world.store.compaction_due() {
        for object in 0..200 {
            world.store.evict(object);
        }
        assert_eq!(world.store.resident().0, 0, "a checkpoint that moved what is on disk alone wrote a new base");
        copied += world.compact(100_000).expect("sound");
        rounds += 1;
        assert!(rounds < 100, "it comes to an end");
    }
    let after = world.store.status();
    assert!(copied > 400_000, "{copied} bytes copied");
    assert_eq!(after.stored_bytes, before.stored_bytes);
    assert!(after.file_bytes < before.file_bytes * 2 / 3, "{before:?} {after:?}");
    let names = disk.list(Path::new(DIRECTORY)).expect("a folder");
    assert_eq!(names.len() as u64, after.files + 1, "{names:?}");
    world.check_payload();
    world.log.free_all();
    disk.power_loss();
    let mut world = world.reopen().expect("sound");
    assert_eq!(world.store.status().stored_bytes, after.stored_bytes);
    world.check_payload();
}

/// What moves on the checkpoint's thread is nobody's until it ends; meanwhile its objects may come, change and go.
#[test]
fn objects_that_come_change_and_go_while_their_payload_moves_keep_their_bytes() {
    for (seed, fails) in (0..40).map(|seed| (seed, seed % 4 == 3)) {
        let disk = new_disk(seed);
        let mut world = World::new(&disk, small());
        (0..30).for_each(|object| world.append(object, 20_000));
        (100..180).for_each(|object| world.append(object, 1));
        world.checkpoint().expect("a fold");
        (0..30).filter(|object| object % 3 != 0).for_each(|object| world.remove(object));
        world.checkpoint().expect("sound");
        for object in 0..30 {
            world.store.evict(object);
        }
        let before = world.store.lookup().find(&[0, 3, 6, 9]).expect("sound");
        let checkpoint = world.begin_compaction(1 << 20);
        let mut random = SplitMix::new(seed);
        for object in (0..30).step_by(3) {
            match random.next_u64() % 6 {
                0 => world.append(object, 500),
                1 => world.remove(object),
                2 => world.release(object, 700),
                3 => (world.remove(object), world.append(object, 70)).1,
                4 => world.warm(object).expect("sound"),
                _ => {}
            }
        }
        if fails {
            disk.fail_next(Operation::Sync, "index-");
        }
        let result = checkpoint.run(&*world.log);
        assert_eq!(world.end(result).is_err(), fails, "seed {seed}");
        if !fails {
            assert!(before.iter().all(|found| !world.store.admit(found)), "the places are those of before");
        }
        world.check_payload();
        world.checkpoint().expect("sound");
        world.compact_all();
        world.check_payload();
        world.log.free_all();
        let stored = world.store.status().stored_bytes;
        let mut world = world.reopen().expect("sound");
        assert_eq!(world.store.status().stored_bytes, stored, "seed {seed}: a start counts the same");
        world.check_payload();
    }
}

#[test]
fn what_a_scrub_finds_does_not_depend_on_what_is_in_memory() {
    let disk = new_disk(1);
    let mut world = folded(&disk);
    evict_all(&mut world);
    disk.flip_bit(&Path::new(DIRECTORY).join("data-00000001"), 4096 + 40).expect("a byte of object 0");
    let (mut faults, mut cursor, mut payload) = (Vec::new(), Some(Default::default()), 0);
    while let Some(from) = cursor {
        let scrubbed = world.reader.scrub(&world.store.plan_scrub(from, 500), &mut |_| true, &mut faults);
        (cursor, payload) = (scrubbed.next, payload + scrubbed.payload_bytes);
    }
    assert_eq!(payload, world.store.status().stored_bytes);
    assert!(matches!(&faults[..], [fault] if matches!(fault.object, Some((0, _)))), "{faults:?}");
}

/// One object with records in several blocks, beside others.
#[test]
fn an_object_larger_than_a_block_is_found_whole() {
    let disk = new_disk(1);
    let options = Options { index_block_bytes: 64, ..small() };
    let mut world = World::new(&disk, options);
    for round in 0..60 {
        world.append(5, 60_000);
        world.append(round % 4, 10);
        world.checkpoint().expect("sound");
    }
    (100..180).for_each(|object| world.append(object, 1));
    world.checkpoint().expect("a fold");
    assert!(world.store.evict(5));
    let end = world.model.objects[&5].end;
    let bytes = world.read(5, end - 100, 100).expect("sound");
    assert_eq!(bytes, payload(5 ^ world.model.objects[&5].salt << 8, end - 100..end));
    world.check_payload();
}
