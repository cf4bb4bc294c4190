//! The one timer thread of a process: it syncs logs under `synchronous=NORMAL` and publishes status pages.
//!
//! It exists once something was ever due, sleeps while nothing is, and holds no database alive. It blocks all signals,
//! so that the host's handlers run on the host's threads.

use crate::engine::Engine;
use crate::host::{fork, threads};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

struct Due {
    /// What is due when; the number tells two of one instant apart.
    engines: BTreeMap<(Instant, u64), Weak<Engine>>,
    scheduled: u64,
    /// The generation of the process in which the thread runs.
    running: Option<u64>,
}

static DUE: Mutex<Due> = Mutex::new(Due { engines: BTreeMap::new(), scheduled: 0, running: None });
static CHANGED: Condvar = Condvar::new();

/// The timer's lock, held across a fork so that the child finds it free.
pub(crate) struct Frozen(#[expect(dead_code, reason = "held for its lock")] MutexGuard<'static, Due>);

/// Takes the timer's lock across a fork.
pub(crate) fn freeze() -> Frozen {
    Frozen(due())
}

fn due() -> MutexGuard<'static, Due> {
    DUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has [`Engine::tick`] called at `at`, or a little later.
pub(super) fn schedule(engine: Weak<Engine>, at: Instant) {
    let mut due = due();
    let generation = fork::generation();
    if due.running != Some(generation) {
        // What the parent of a forked process had to do is the parent's. Where the system has no thread to give, the
        // next schedule tries again.
        due.engines.clear();
        due.running = threads::spawn("highwater-timer", run).is_ok().then_some(generation);
    }
    due.scheduled += 1;
    let key = (at, due.scheduled);
    let is_first = due.engines.first_key_value().is_none_or(|(first, _)| key < *first);
    due.engines.insert(key, engine);
    if is_first {
        CHANGED.notify_one();
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
