//! A scrub finds damage that nobody has read yet.

use crate::world::{DIRECTORY, World, disk as new_disk, owner, small};
use highwater_disk::sim::Operation;
use highwater_disk::{Disk, SimDisk};
use highwater_store::{Fault, ScrubCursor, verify};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn file(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

fn world(disk: &SimDisk) -> World {
    let mut world = World::new(disk, small());
    world.append(1, 200_000);
    world.append(2, 100);
    world.append(3, 300_000);
    world.checkpoint().expect("sound");
    world.append(3, 5000);
    world.checkpoint().expect("sound");
    world
}

/// A whole scrub in slices of `bytes_max`; the bytes of payload in them, and what was found.
fn scrub(world: &World, bytes_max: u64) -> (u64, Vec<Fault>) {
    let (mut faults, mut bytes, mut cursor) = (Vec::new(), 0, Some(ScrubCursor::default()));
    while let Some(from) = cursor {
        let slice = world.store.plan_scrub(from, bytes_max);
        let scrubbed = world.reader.scrub(&slice, &mut |_| true, &mut faults);
        assert!(scrubbed.payload_bytes <= bytes_max.max(256 << 10), "an extent is never above a file");
        bytes += scrubbed.payload_bytes;
        assert!(scrubbed.next.is_none_or(|next| next > from), "it comes to an end");
        cursor = scrubbed.next;
    }
    assert!(world.reader.scrub_index(&world.store.plan_index_scrub(), &mut |_| true, &mut faults) > 0);
    (bytes, faults)
}

#[test]
fn a_scrub_reads_every_stored_byte_once_whatever_its_slices() {
    let world = world(&new_disk(1));
    for bytes_max in [1, 5000, 100_000, 1 << 30] {
        assert_eq!(scrub(&world, bytes_max), (world.store.status().stored_bytes, Vec::new()));
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_with_its_place_and_whose_bytes_it_hits() {
    let disk = new_disk(1);
    let world = world(&disk);
    for offset in (4096..4096 + 200_128).step_by(997) {
        let fork = disk.fork(offset);
        fork.flip_bit(&file("data-00000001"), offset).expect("a byte");
        let verified = verify(Arc::new(fork), Path::new(DIRECTORY), owner(), &mut |_| true).expect("an index");
        let [fault] = &verified.faults[..] else { panic!("byte {offset}: {:?}", verified.faults) };
        let place = fault.position..fault.position + 65_536;
        assert!(place.contains(&offset) && matches!(fault.object, Some((1, _))), "byte {offset}: {fault:?}");
    }
    // Byte 1,000 of block 1 of object 1, whose offsets begin at 1,000.
    disk.flip_bit(&file("data-00000001"), 4096 + 65_536 + 1000).expect("a byte");
    let (_, faults) = scrub(&world, 50_000);
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!((&fault.path, fault.position), (&file("data-00000001"), 4096 + 65_536));
    assert_eq!(fault.object, Some((1, 1000 + 65_504..1000 + 2 * 65_504)));
    assert!(fault.what.contains("checksum"), "{fault:?}");
}

#[test]
fn a_file_cut_short_is_one_fault_of_each_object_in_it_and_the_scrub_goes_on() {
    let disk = new_disk(1);
    let world = world(&disk);
    disk.open(&file("data-00000001"), highwater_disk::OpenMode::Write)
        .and_then(|file| file.set_length(4096 + 10_000))
        .expect("cut");
    let (_, faults) = scrub(&world, 1 << 30);
    let objects: Vec<u64> = faults.iter().filter_map(|fault| fault.object.as_ref().map(|(key, _)| *key)).collect();
    assert_eq!(objects, [1, 2], "{faults:?}");
    assert_eq!(faults[0].object, Some((1, 1000..201_000)), "blocks beside each other are one fault");
}

#[test]
fn a_sector_that_cannot_be_read_is_a_fault_of_its_block_alone() {
    let disk = new_disk(1);
    let world = world(&disk);
    // The read of a mebibyte fails, then that of its second block.
    disk.fail(Operation::Read, "data-00000001", 1, 1, highwater_disk::sim::EIO);
    disk.fail(Operation::Read, "data-00000001", 3, 1, highwater_disk::sim::EIO);
    let (_, faults) = scrub(&world, 1 << 30);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(matches!(faults[0].object, Some((1, _))), "{faults:?}");
}

#[test]
fn a_damaged_index_is_found_while_the_store_still_serves() {
    let disk = new_disk(1);
    let mut world = world(&disk);
    disk.flip_bit(&file("index-0000000000000001"), 4096 + 60).expect("a byte of the first delta");
    let (_, faults) = scrub(&world, 1 << 30);
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!((&fault.path, fault.position, &fault.object), (&file("index-0000000000000001"), 4096, &None));
    world.check_payload();
}

#[test]
fn what_was_deleted_since_the_slice_was_made_is_no_damage() {
    let mut world = world(&new_disk(1));
    let (slice, index) = (world.store.plan_scrub(ScrubCursor::default(), 1 << 30), world.store.plan_index_scrub());
    for object in [1, 2, 3] {
        world.remove(object);
    }
    for object in 10..400 {
        world.append(object, 10);
    }
    world.checkpoint().expect("a fold, and all files of before go");
    let mut faults = Vec::new();
    let scrubbed = world.reader.scrub(&slice, &mut |_| true, &mut faults);
    assert!(scrubbed.bytes < scrubbed.payload_bytes, "{scrubbed:?}");
    world.reader.scrub_index(&index, &mut |_| true, &mut faults);
    assert_eq!(faults, []);
}

#[test]
fn a_scrub_that_is_told_to_stop_reads_no_further() {
    let world = world(&new_disk(1));
    let slice = world.store.plan_scrub(ScrubCursor::default(), 1 << 30);
    let mut calls = 0;
    let mut pace = |_| {
        calls += 1;
        calls < 2
    };
    let mut faults = Vec::new();
    let scrubbed = world.reader.scrub(&slice, &mut pace, &mut faults);
    assert!(scrubbed.bytes < scrubbed.payload_bytes, "{scrubbed:?}");
}

#[test]
fn a_store_that_nobody_has_open_is_verified_without_being_changed() {
    let disk = new_disk(1);
    let live = world(&disk);
    let stored = live.store.status().stored_bytes;
    drop(live);
    let check = || verify(Arc::new(disk.clone()), Path::new(DIRECTORY), owner(), &mut |_| true).expect("an index");
    let (before, operations) = (disk.files(), disk.operations());
    let verified = check();
    assert!(verified.faults.is_empty() && verified.bytes > stored && verified.objects.len() == 3, "{verified:?}");
    assert_eq!((disk.files(), disk.operations()), (before, operations));
    disk.flip_bit(&file("data-00000001"), 4096 + 1000).expect("a byte");
    assert!(matches!(&check().faults[..], [Fault { object: Some((1, _)), .. }]));
    disk.remove(&file("data-00000002")).expect("a file");
    assert!(check().faults.iter().any(|fault| fault.what.contains("missing")));
}
