//! What must not grow: memory, work and reading, with many streams, many readers and much payload.
//!
//! Memory is counted for the whole process, so that one test runs at a time.

mod counting;
mod host;
mod payload;
mod readers;
mod streams;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps the other tests of this program away.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
