//! The one timer thread of a process: it syncs logs under `synchronous=NORMAL` and publishes status pages.
//!
//! It exists once something was ever due, sleeps while nothing is, and holds no database alive. It blocks all signals,
//! so that the host's handlers run on the host's threads.

use crate::engine::Engine;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

struct Due {
    /// What is due when; the number tells two of one instant apart.
    engines: BTreeMap<(Instant, u64), Weak<Engine>>,
    scheduled: u64,
    running: bool,
}

static DUE: Mutex<Due> = Mutex::new(Due { engines: BTreeMap::new(), scheduled: 0, running: false });
static CHANGED: Condvar = Condvar::new();

fn due() -> MutexGuard<'static, Due> {
    DUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has [`Engine::tick`] called at `at`, or a little later.
pub(super) fn schedule(engine: Weak<Engine>, at: Instant) {
    let mut due = due();
    due.scheduled += 1;
    let key = (at, due.scheduled);
    let is_first = due.engines.first_key_value().is_none_or(|(first, _)| key < *first);
    due.engines.insert(key, engine);
    if !due.running {
        due.running = spawn();
    }
    if is_first {
        CHANGED.notify_one();
    }
}

/// Starts the thread; `false` where the system has none to give, and the next schedule tries again.
fn spawn() -> bool {
    // SAFETY: both sets are plain data that the calls fill in; the mask of this thread is restored at once.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let spawned = std::thread::Builder::new().name("highwater-timer".into()).spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        spawned.is_ok()
    }
}

fn run() {
    let mut guard = due();
    loop {
        let now = Instant::now();
        let Some(first) = guard.engines.first_key_value().map(|(key, _)| *key) else {
            guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        if first.0 > now {
            let wait = CHANGED.wait_timeout(guard, first.0 - now);
            guard = wait.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let engine = guard.engines.remove(&first).and_then(|engine| engine.upgrade());
        drop(guard);
        if let Some(engine) = engine {
            // A panic must not end the timer of every other database; this one's sync is then overdue, and its next
            // commit schedules it again.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.tick())));
        }
        guard = due();
    }
}
