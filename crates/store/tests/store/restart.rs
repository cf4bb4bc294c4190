//! What a start reads, and how the index grows.

use crate::world::{DIRECTORY, World, disk as new_disk, owner, small};
use highwater_disk::Disk;
use highwater_disk::watched::{Call, WatchedDisk, Watcher};
use highwater_store::{Options, Store};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is read and written.
#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Watcher for Counts {
    fn after(&self, call: Call, _path: &Path, bytes: u64) {
        match call {
            Call::Read => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
            }
            Call::Write => drop(self.bytes_written.fetch_add(bytes, Ordering::Relaxed)),
            Call::Open | Call::Sync | Call::SyncDirectory => {}
        }
    }
}

/// Reads and bytes of a start with `objects` objects of `length` bytes each.
fn start(objects: u64, length: u64) -> (u64, u64) {
    let disk = new_disk(1);
    let mut world = World::new(&disk, Options::default());
    for object in 0..objects {
        world.append(object, length);
    }
    world.checkpoint().expect("sound");
    drop(world);
    let counts = Arc::<Counts>::default();
    let counting = WatchedDisk::new(disk, counts.clone());
    Store::open(Arc::new(counting), Path::new(DIRECTORY), owner(), Options::default()).expect("sound");
    (counts.reads.load(Ordering::Relaxed), counts.bytes_read.load(Ordering::Relaxed))
}

#[test]
fn a_start_reads_the_index_and_none_of_the_payload() {
    let (reads, bytes) = start(20, 100);
    let (reads_large, bytes_large) = start(20, 500_000);
    // The states say the objects' lengths in decimal, hence the few bytes.
    assert_eq!(reads, reads_large);
    assert!(bytes_large < bytes + 20 * 8, "{bytes} bytes with 2 kB of payload, {bytes_large} with 10 MB");
    // Once to load it, and once more its last delta, which is written again.
    assert!(bytes_large < 20_000, "{bytes_large}");
}

#[test]
fn a_checkpoint_of_one_object_does_not_rewrite_the_index_of_all() {
    let counts = Arc::<Counts>::default();
    let disk = new_disk(1);
    let counting = Arc::new(WatchedDisk::new(disk, counts.clone()));
    let mut world = World::open(counting, Options::default(), Arc::default(), Vec::new()).expect("sound");
    for object in 0..2000 {
        world.append(object, 1);
    }
    world.checkpoint().expect("sound");
    let before = counts.bytes_written.load(Ordering::Relaxed);
    for _ in 0..10 {
        world.append(7, 1);
        world.checkpoint().expect("sound");
    }
    let each = (counts.bytes_written.load(Ordering::Relaxed) - before) / 10;
    assert!(each < 1000, "{each} bytes for one byte more; the index has {}", world.store.status().index_bytes);
}

#[test]
fn deltas_are_folded_into_a_new_base_before_they_outgrow_it() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, small());
    for round in 0..200 {
        world.append(round % 10, 1);
        world.checkpoint().expect("sound");
        assert!(world.store.status().index_bytes < 40_000, "{:?}", world.store.status());
    }
    let indexes = disk.list(Path::new(DIRECTORY)).expect("a folder");
    assert_eq!(indexes.iter().filter(|name| name.starts_with("index-")).count(), 1);
    assert!(!indexes.contains(&"index-0000000000000001".into()));
    world.reopen().expect("sound").check_payload();
}
