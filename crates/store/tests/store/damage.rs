//! Flipped bits, missing files and files of later programs.

use crate::world::{DIRECTORY, World, disk as new_disk, owner, small};
use highwater_disk::{Disk, OpenMode, SimDisk};
use highwater_store::{DataFault, OpenError, Options, ReadError, Store};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn file(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

const INDEX: &str = "index-0000000000000001";

/// A store with two checkpoints in its index and 200,000 bytes of object 1 in its data file.
fn world(seed: u64) -> (SimDisk, World) {
    let disk = new_disk(seed);
    let mut world = World::new(&disk, Options::default());
    world.append(1, 200_000);
    world.checkpoint().expect("sound");
    world.append(2, 100);
    world.checkpoint().expect("sound");
    (disk, world)
}

fn open(disk: &SimDisk) -> Result<u64, OpenError> {
    let opened = Store::open(Arc::new(disk.clone()), Path::new(DIRECTORY), owner(), small());
    opened.map(|(_, loaded)| loaded.applied)
}

#[test]
fn a_flipped_bit_of_payload_is_found_when_it_is_read_and_its_place_is_named() {
    let block = 65_536;
    for (offset, bad_block) in [(4096, 0), (4096 + 40, 0), (4096 + block + 7, 1), (4096 + 2 * block + 65_000, 2)] {
        let (disk, mut world) = world(1);
        disk.flip_bit(&file("data-00000001"), offset).expect("a byte");
        let start = 1000;
        for read in 0..4u64 {
            let answer = world.read(1, start + read * 65_504, 100);
            match answer {
                Err(ReadError::Damaged { path, position, fault: DataFault::Checksum }) if read == bad_block => {
                    assert_eq!((path, position), (file("data-00000001"), 4096 + bad_block * block));
                }
                Ok(bytes) if read != bad_block => assert_eq!(bytes.len(), 100, "other blocks are not read"),
                other => panic!("offset {offset}, block {read}: {other:?}"),
            }
        }
    }
}

/// One bad sector must not keep the log of a whole group from being released.
#[test]
fn a_damaged_extent_that_would_be_merged_stays_where_it_is_and_the_checkpoint_goes_on() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, Options::default());
    world.append(1, 100);
    world.checkpoint().expect("sound");
    disk.flip_bit(&file("data-00000001"), 4096 + 50).expect("a byte");
    world.append(1, 100);
    world.checkpoint().expect("the damage is not the checkpoint's");
    assert_eq!(world.store.unmoved_bytes(), 0);
    let world = world.store;
    let (store, _) = Store::open(Arc::new(disk), Path::new(DIRECTORY), owner(), small()).expect("the index is sound");
    drop(world);
    let reader = store.reader(Arc::new(crate::world::FakeLog::default()));
    let read = |from: u64| reader.read(&store.plan_read(1, from, 100));
    assert!(matches!(read(1000), Err(ReadError::Damaged { position: 4096, .. })));
    assert_eq!(read(1100).expect("the newer bytes").len(), 100);
}

#[test]
fn a_damaged_base_is_refused_with_its_place() {
    let (disk, mut world) = world(1);
    for object in 10..100 {
        world.append(object, 10);
    }
    // A fold puts all of it into the base.
    world.options = small();
    let mut world = world.reopen().expect("sound");
    world.checkpoint().expect("sound");
    drop(world);
    let name = "index-0000000000000002";
    let length = disk.open(&file(name), OpenMode::Read).and_then(|file| file.length()).expect("the fold's base");
    for offset in (0..length).step_by(97) {
        let disk = disk.fork(offset);
        disk.flip_bit(&file(name), offset).expect("a byte");
        match open(&disk) {
            Err(OpenError::Damaged { path, what }) => {
                assert!(path == file(name) && what.starts_with("at byte"), "{what}")
            }
            Err(OpenError::Version { .. }) if (4..6).contains(&offset) => {}
            other => panic!("byte {offset}: {other:?}"),
        }
    }
}

#[test]
fn a_bad_delta_with_a_later_one_behind_it_is_damage_and_not_a_torn_tail() {
    let (disk, _) = world(1);
    disk.flip_bit(&file(INDEX), 4096 + 60).expect("a byte of the first delta");
    let error = open(&disk).expect_err("the second delta stands behind it");
    assert!(error.to_string().contains("at byte 4096"), "{error}");
    assert!(disk.exists(&file("data-00000001")).expect("exists"), "nothing was removed");
}

#[test]
fn a_torn_tail_is_cut_and_reported() {
    let (disk, world) = world(1);
    let length = disk.open(&file(INDEX), OpenMode::Read).and_then(|file| file.length()).expect("length");
    for cut in (1..length - 8192).step_by(7) {
        let disk = disk.fork(cut);
        disk.open(&file(INDEX), OpenMode::Write).and_then(|file| file.set_length(length - cut)).expect("cut");
        let mut again = World::open(Arc::new(disk), small(), world.log.clone(), world.commands.clone()).expect("cut");
        assert_eq!(again.store.status().applied, 1);
        assert!(again.store.status().torn_bytes > 0);
        again.check_payload();
    }
}

/// A torn tail that came back after newer blocks were written in its place could be taken for their continuation.
#[test]
fn a_torn_tail_that_was_cut_does_not_come_back() {
    for seed in 0..32 {
        let (disk, world) = world(seed);
        let index = disk.open(&file(INDEX), OpenMode::Write).expect("open");
        let whole = index.length().expect("length");
        index.write_at(&[0xaa; 20_000], whole).and_then(|()| index.sync_all()).expect("a torn third delta");
        drop(index);
        let world = world.reopen().expect("cut");
        assert!(world.store.status().torn_bytes > 0);
        disk.power_loss();
        let length = disk.open(&file(INDEX), OpenMode::Read).and_then(|file| file.length()).expect("length");
        assert_eq!(length, whole, "seed {seed}");
        assert_eq!(world.reopen().expect("sound").store.status().torn_bytes, 0);
    }
}

#[test]
fn an_index_of_a_later_version_is_refused_and_nothing_is_touched() {
    let (disk, _) = world(1);
    let index = disk.open(&file(INDEX), OpenMode::Write).expect("open");
    index.write_at(&[4, 0], 4).expect("write");
    let before = disk.files();
    assert!(matches!(open(&disk), Err(OpenError::Version { version: 4, .. })));
    assert_eq!(disk.files(), before);
}

#[test]
fn a_data_file_of_a_later_version_is_refused_when_it_is_read() {
    let (disk, world) = world(1);
    let world = world.reopen();
    let data = disk.open(&file("data-00000001"), OpenMode::Write).expect("open");
    drop(world);
    data.write_at(&[2, 0], 8).expect("write");
    let (store, _) = Store::open(Arc::new(disk), Path::new(DIRECTORY), owner(), small()).expect("the index is sound");
    let reader = store.reader(Arc::new(crate::world::FakeLog::default()));
    let error = reader.read(&store.plan_read(1, 1000, 10)).expect_err("a later version");
    assert!(matches!(error, ReadError::Damaged { fault: DataFault::Version(2), .. }), "{error}");
}

#[test]
fn a_missing_data_file_is_refused_by_name() {
    let (disk, _) = world(1);
    disk.remove(&file("data-00000001")).expect("remove");
    let error = open(&disk).expect_err("a file is missing");
    assert!(error.to_string().contains("data-00000001"), "{error}");
}

#[test]
fn data_files_without_an_index_are_no_new_store() {
    let (disk, _) = world(1);
    disk.remove(&file(INDEX)).expect("remove");
    assert!(matches!(open(&disk), Err(OpenError::Damaged { .. })));
    assert!(disk.exists(&file("data-00000001")).expect("exists"));
}

#[test]
fn the_store_of_another_owner_is_refused() {
    let (disk, _) = world(1);
    let other = highwater_base::OwnerId::group(highwater_base::GroupId(4));
    let opened = Store::open(Arc::new(disk), Path::new(DIRECTORY), other, small());
    assert!(matches!(opened, Err(OpenError::Damaged { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..Default::default() })]

    #[test]
    fn an_index_of_random_bytes_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..500), magic: bool) {
        let disk = new_disk(0);
        disk.create_directory(Path::new(DIRECTORY)).expect("create");
        let index = disk.open(&file(INDEX), OpenMode::CreateNew).expect("create");
        index.write_at(&bytes, 0).expect("write");
        if magic {
            index.write_at(b"HWIX\x03\0\x01\x01", 0).expect("write");
        }
        prop_assert!(open(&disk).is_err());
    }

    /// Whatever is changed in an index, it is read as what it was, refused, or read without its last delta.
    #[test]
    fn a_changed_index_is_never_read_as_something_else(at in any::<prop::sample::Index>(), with in prop::collection::vec(any::<u8>(), 1..40)) {
        let (disk, world) = world(1);
        let index = disk.open(&file(INDEX), OpenMode::Write).expect("open");
        let length = index.length().expect("length");
        index.write_at(&with, at.index(length as usize) as u64).expect("write");
        if let Ok(again) = World::open(Arc::new(disk), small(), world.log.clone(), world.commands.clone()) {
            let applied = again.store.status().applied;
            prop_assert!(applied == 2 || (applied == 1 && again.store.status().torn_bytes > 0), "{}", applied);
        }
    }
}
