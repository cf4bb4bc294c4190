//! Counts the memory that the program holds, and the processor time of a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

static HELD: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

struct Counting;

/// What an allocator hands out for so many bytes: in steps of 16, with 8 of its own before each.
fn cost(bytes: usize) -> i64 {
    (bytes + 8).next_multiple_of(16) as i64
}

fn count(bytes: i64) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are plain numbers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(cost(layout.size()));
        // SAFETY: the caller's duties are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-cost(layout.size()));
        // SAFETY: the caller's duties are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that the program holds.
pub fn held() -> i64 {
    HELD.load(Ordering::Relaxed)
}

/// The most that `work` held above what was held before it.
pub fn peak_of(work: impl FnOnce()) -> i64 {
    let before = held();
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

/// Nanoseconds for which this thread ran; a machine that is busy with others does not count.
pub fn ran_ns() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    status.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
