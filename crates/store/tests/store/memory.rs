//! What an idle object costs in memory.

use crate::world::{World, disk as new_disk, owner};
use highwater_disk::SimDisk;
use highwater_store::{Keep, Options, Store};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

/// Counts the bytes that each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn note(bytes: i64) {
    // A thread that ends frees memory after its counter is gone.
    HELD.try_with(|held| held.set(held.get() + bytes)).ok();
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn an_idle_object_costs_less_than_a_hundred_bytes() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, Options::default());
    let objects = 4000u64;
    for object in 0..objects {
        // Keys are random tokens in life.
        world.append(object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12, 100);
    }
    world.checkpoint().expect("sound");
    drop(world);
    let disk: Arc<SimDisk> = Arc::new(disk);
    let before = HELD.get();
    let (store, loaded) =
        Store::open(disk, Path::new(crate::world::DIRECTORY), owner(), Options::default()).expect("sound");
    assert_eq!(loaded.objects.len() as u64, objects);
    drop(loaded);
    let each = (HELD.get() - before) as f64 / objects as f64;
    assert!((24.0..100.0).contains(&each), "{each} bytes for each object");
    drop(store);
}

#[test]
fn payload_is_not_kept_in_memory() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, Options::default());
    world.append(0, 8 << 20);
    let before = HELD.get();
    world.checkpoint().expect("sound");
    world.log.free_all();
    // The simulated disk now holds what the log held; nobody holds it twice.
    let grown = HELD.get() - before;
    assert!(grown < 1 << 20, "{grown} bytes more");
}

/// What stays of an object that is on disk alone: the table of the index's base. Beside it the store has nothing that grows
/// with the objects, and what a start takes meanwhile is a block and the table.
#[test]
fn an_object_on_disk_alone_costs_less_than_two_bytes() {
    let disk = new_disk(1);
    let mut world = World::new(&disk, Options { index_delta_bytes_min: 0, ..Options::default() });
    let objects = 20_000u64;
    for object in 0..objects {
        world.append(object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1, 100);
    }
    world.checkpoint().expect("a base");
    drop(world);
    let disk: Arc<SimDisk> = Arc::new(disk);
    let empty: Arc<SimDisk> = Arc::new(new_disk(1));
    let path = Path::new(crate::world::DIRECTORY);
    let open = |disk: Arc<SimDisk>| {
        let before = HELD.get();
        let opening = Store::opening(disk, path, owner(), Options::default()).expect("sound");
        let (mut seen, mut most) = (0, 0);
        let store = opening.load(&mut |visited| {
            assert!(visited.evictable);
            seen += 1;
            most = most.max(HELD.get() - before);
            Ok(Keep::Stored)
        });
        (store.expect("sound"), seen, HELD.get() - before, most)
    };
    // The first open of an empty folder makes files, which the disk holds in memory.
    drop(open(Arc::clone(&empty)));
    let (_, _, bare, _) = open(empty);
    let (store, seen, held, most) = open(disk);
    assert_eq!((seen, store.resident()), (objects, (0, 0)));
    let each = (held - bare) as f64 / objects as f64;
    println!("{each:.2} bytes for each object, {} of them in the table", store.table_bytes());
    assert!((1.2..2.0).contains(&each), "{each} bytes for each object");
    assert!(most < bare + (1 << 20), "{most} bytes while it was opened");
}
