//! What a start reads, and how the index grows.

use crate::world::{DIRECTORY, World, disk as new_disk, owner, small};
use highwater_disk::{Disk, File, OpenMode, SimDisk};
use highwater_store::{Options, Store};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is read and written below.
#[derive(Clone, Default)]
struct Counts {
    reads: Arc<AtomicU64>,
    bytes_read: Arc<AtomicU64>,
    bytes_written: Arc<AtomicU64>,
}

struct Counting<T: ?Sized>(Counts, Arc<T>);

impl Disk for Counting<SimDisk> {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Counting(self.0.clone(), self.1.open(path, mode)?)))
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.1.create_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.1.sync_directory(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.1.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.1.remove(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.1.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.1.exists(path)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.1.free_bytes(path)
    }
}

impl File for Counting<dyn File> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = self.1.read_at(buffer, offset)?;
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        self.0.bytes_read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.1.write_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.1.sync_all()
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.1.set_length(length)
    }
    fn length(&self) -> io::Result<u64> {
        self.1.length()
    }
    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        self.1.reserve(offset, length)
    }
    fn try_lock(&self) -> io::Result<bool> {
        self.1.try_lock()
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
    let counts = Counts::default();
    let counting = Counting(counts.clone(), Arc::new(disk));
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
    let counts = Counts::default();
    let disk = new_disk(1);
    let counting = Arc::new(Counting(counts.clone(), Arc::new(disk)));
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
