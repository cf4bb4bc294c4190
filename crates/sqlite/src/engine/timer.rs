//! The timer threads of a process: they sync logs under `synchronous=NORMAL` and publish status pages.
//!
//! One exists once something was ever due, and sleeps while nothing is; more come while several databases are due at
//! once or a disk takes long, so that nobody waits for another's sync. They hold no database alive. They block all
//! signals, so that the host's handlers run on the host's threads.

use crate::engine::Engine;
use crate::host::{fork, threads};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Threads at the most. At 4 ms a sync, eight carry four hundred busy databases within 200 ms.
const THREADS_MAX: usize = 8;
/// Time without work after which all threads but one end.
const IDLE: Duration = Duration::from_secs(5);

struct Due {
    /// What is due when; the number tells two of one instant apart.
    engines: BTreeMap<(Instant, u64), Weak<Engine>>,
    scheduled: u64,
    /// The generation of the process in which the threads run.
    generation: u64,
    threads: usize,
    /// Threads that are not with an engine.
    free: usize,
}

/// The threads and what they wait for.
pub(super) struct Timer {
    due: Mutex<Due>,
    changed: Condvar,
}

static TIMER: Timer = Timer::new();

/// The timer's lock, held across a fork so that the child finds it free.
pub(crate) struct Frozen(#[expect(dead_code, reason = "held for its lock")] MutexGuard<'static, Due>);

/// Takes the timer's lock across a fork.
pub(crate) fn freeze() -> Frozen {
    Frozen(TIMER.due())
}

/// Has [`Engine::tick`] called at `at`, or a little later; `false` if there is no thread to do it.
#[must_use]
pub(super) fn schedule(engine: Weak<Engine>, at: Instant) -> bool {
    #[cfg(test)]
    if let Some(timer) = own::get() {
        return timer.schedule(engine, at);
    }
    TIMER.schedule(engine, at)
}

impl Timer {
    const fn new() -> Self {
        let due = Due { engines: BTreeMap::new(), scheduled: 0, generation: 0, threads: 0, free: 0 };
        Self { due: Mutex::new(due), changed: Condvar::new() }
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one more thread if none is free; where the system has none to give, those that there are go on alone.
    fn staff(&'static self, due: &mut Due) {
        let run = || self.run();
        if due.free == 0 && due.threads < THREADS_MAX && threads::spawn("highwater-timer", run).is_ok() {
            due.threads += 1;
            due.free += 1;
        }
    }

    fn schedule(&'static self, engine: Weak<Engine>, at: Instant) -> bool {
        let mut due = self.due();
        let generation = fork::generation();
        if due.generation != generation {
            // What the parent of a forked process had to do is the parent's, and so were the threads.
            due.engines.clear();
            (due.generation, due.threads, due.free) = (generation, 0, 0);
        }
        self.staff(&mut due);
        if due.threads == 0 {
            return false;
        }
        due.scheduled += 1;
        let key = (at, due.scheduled);
        let is_first = due.engines.first_key_value().is_none_or(|(first, _)| key < *first);
        due.engines.insert(key, engine);
        if is_first {
            self.changed.notify_all();
        }
        true
    }

    fn run(&'static self) {
        let mut due = self.due();
        let mut worked = Instant::now();
        loop {
            let now = Instant::now();
            let first = due.engines.first_key_value().map(|(key, _)| *key);
            let Some(first) = first.filter(|first| first.0 <= now) else {
                if due.free > 1 && worked.elapsed() >= IDLE {
                    due.threads -= 1;
                    due.free -= 1;
                    return;
                }
                due = self.wait(due, first.map(|first| first.0 - now));
                continue;
            };
            let engine = due.engines.remove(&first).and_then(|engine| engine.upgrade());
            due.free -= 1;
            if due.engines.first_key_value().is_some_and(|(next, _)| next.0 <= now) {
                self.staff(&mut due);
            }
            drop(due);
            if let Some(engine) = engine {
                // A panic must not end the timer of every other database; this one's sync is then overdue, and its
                // next commit schedules it again.
                drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.tick())));
            }
            due = self.due();
            due.free += 1;
            worked = Instant::now();
        }
    }

    /// Waits for something to be due; the last thread of an idle process is not woken at all.
    fn wait<'a>(&self, due: MutexGuard<'a, Due>, first: Option<Duration>) -> MutexGuard<'a, Due> {
        if first.is_none() && due.free == 1 {
            return self.changed.wait(due).unwrap_or_else(PoisonError::into_inner);
        }
        self.changed.wait_timeout(due, first.unwrap_or(IDLE)).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Gives a test a timer that no other test has threads in.
#[cfg(test)]
pub(super) mod own {
    use super::Timer;
    use std::cell::Cell;

    thread_local!(static OWN: Cell<Option<&'static Timer>> = const { Cell::new(None) });

    /// What the calling thread schedules from now on goes to a new timer.
    pub fn make() {
        OWN.set(Some(Box::leak(Box::new(Timer::new()))));
    }

    pub(super) fn get() -> Option<&'static Timer> {
        OWN.get()
    }
}
