//! What an idle object costs in memory.

use crate::world::{World, disk as new_disk, owner};
use highwater_disk::SimDisk;
use highwater_store::{Options, Store};
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
