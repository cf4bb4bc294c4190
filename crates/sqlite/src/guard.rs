//! Locks of plain data, taken also after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, whoever panicked with it.
///
/// A panic in one callback must not take the host down with a second one in the next: what these locks protect is
/// consistent between calls, and the VFS stops the database whose callback panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
