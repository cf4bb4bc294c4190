//! What a fork leaves behind: a child that must not touch its parent's databases.

use crate::engine::{open, timer};
use crate::host::{self, Host, upkeep};
use crate::vfs::registry::Frozen;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, Once};

/// Counts the forks on the way from the process that loaded the extension to this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The process's place in the line of forks. A database opened under another number belongs to an ancestor.
#[must_use]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// The locks held from the moment before a fork until it is over, on both sides.
struct Held(UnsafeCell<Option<Locks>>);

struct Locks {
    _hosts: MutexGuard<'static, Vec<&'static Host>>,
    registry: Frozen<'static>,
    _probed: open::Frozen,
    _upkeep: upkeep::Frozen,
    _timer: timer::Frozen,
}

// SAFETY: written only by the handlers below, by the thread that forks and under the locks it holds.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Installs the handlers, once.
pub fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the handlers are never unloaded, because the library stays mapped.
        unsafe {
            libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child));
        }
    });
}

unsafe extern "C" fn before() {
    // In the order in which they are taken elsewhere, so that no one waits for one of them with another in hand.
    let hosts = host::hosts();
    let (registry, upkeep) = (host::registry().freeze(), upkeep::freeze());
    let (timer, probed) = (timer::freeze(), open::freeze());
    let held = Locks { _hosts: hosts, registry, _probed: probed, _upkeep: upkeep, _timer: timer };
    // SAFETY: the locks were just taken, so no other fork is between its handlers.
    unsafe { *HELD.0.get() = Some(held) };
}

unsafe extern "C" fn after_in_parent() {
    // SAFETY: the lock taken by `before` is still held.
    drop(unsafe { (*HELD.0.get()).take() });
}

unsafe extern "C" fn after_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as in the parent; the child has this one thread only.
    let held = unsafe { (*HELD.0.get()).take() };
    if let Some(held) = &held {
        held.registry.disown();
    }
}
