//! The process's sender threads: a few for all databases, none while nothing is to be done.

use crate::host::threads;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Threads at the most. Each is blocked on one request nearly all of its time: at 5 ms a round trip, sixteen carry 3,200
/// appends a second, so that 128 busy databases wait 40 ms for their turns. A server that does not answer holds one for ten
/// seconds, so a handful of such databases leaves the others alone. An idle process has none.
const THREADS_MAX: usize = 16;

/// Time after which a thread with nothing to do ends.
const THREAD_IDLE: Duration = Duration::from_secs(5);

/// What a turn of a task wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Another turn, after the others' turns.
    Again,
    /// A turn at this time, unless one is asked for earlier.
    At(Instant),
    /// Nothing until somebody asks.
    Idle,
}

/// Something that takes turns on the pool's threads; never two turns at once.
pub(super) trait Task: Send + Sync + 'static {
    /// Takes a turn. Does not panic.
    fn turn(&self) -> Next;
    /// The task's place in the pool's books.
    fn schedule(&self) -> &Schedule;
}

/// A task's place in the pool's books; guarded by the pool's lock.
#[derive(Debug, Default)]
pub(super) struct Schedule(Mutex<Standing>);

#[derive(Debug, Default)]
struct Standing {
    queued: bool,
    running: bool,
    again: bool,
    timer: Option<(Instant, u64)>,
}

impl Schedule {
    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Guard = MutexGuard<'static, State>;

/// The threads and their queue.
pub(super) struct Pool {
    process: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<dyn Task>>,
    timers: BTreeMap<(Instant, u64), Weak<dyn Task>>,
    timers_made: u64,
    threads: usize,
    /// Threads that wait.
    waiting: usize,
    /// One of them waits for the first timer rather than for work alone.
    minded: bool,
}

impl Pool {
    /// The pool of this process. A child of `fork()` has its own: of its parent's it inherited the memory, but neither
    /// the threads nor whoever was to release the locks.
    pub(super) fn shared() -> &'static Pool {
        static SHARED: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());
        loop {
            let seen = SHARED.load(Ordering::Acquire);
            // SAFETY: the pointer is null or comes from `Box::leak` below, which nothing ever frees.
            match unsafe { seen.as_ref() } {
                Some(pool) if pool.process == std::process::id() => return pool,
                _ => {}
            }
            let pool = Box::new(Pool { process: std::process::id(), state: Mutex::default(), changed: Condvar::new() });
            let fresh = Box::into_raw(pool);
            if SHARED.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: `fresh` came from `Box::into_raw` above and was given to nobody.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    /// Asks for a turn of `task`, soon.
    pub(super) fn wake(&'static self, task: &Arc<dyn Task>) {
        let mut state = self.lock();
        self.enqueue(&mut state, task);
    }

    fn enqueue(&'static self, state: &mut State, task: &Arc<dyn Task>) {
        let mut standing = task.schedule().lock();
        if standing.running {
            standing.again = true;
            return;
        }
        if std::mem::replace(&mut standing.queued, true) {
            drop(standing);
            self.staff(state);
            return;
        }
        if let Some(timer) = standing.timer.take() {
            state.timers.remove(&timer);
        }
        drop(standing);
        state.ready.push_back(Arc::clone(task));
        if state.waiting > 0 {
            self.changed.notify_one();
        } else if state.threads < THREADS_MAX {
            self.spawn(state);
        }
    }

    /// Asks for a thread once more if the system had none for a task that is queued.
    pub(super) fn retry(&'static self) {
        let mut state = self.lock();
        if !state.ready.is_empty() {
            self.staff(&mut state);
        }
    }

    fn staff(&'static self, state: &mut State) {
        if state.threads == 0 {
            self.spawn(state);
        }
    }

    fn spawn(&'static self, state: &mut State) {
        let spawned = threads::spawn("highwater-send", || self.work());
        // Without a thread the task stays queued, and the next wake, or whoever waits for the task, tries again.
        state.threads += usize::from(spawned.is_ok());
    }

    fn work(&'static self) {
        let mut state = self.lock();
        loop {
            let (now, task) = self.take(state);
            state = now;
            let Some(task) = task else { break };
            drop(state);
            let next = task.turn();
            state = self.lock();
            self.settle(&mut state, &task, next);
        }
        state.threads -= 1;
    }

    /// The next task that is due; waits for one, and gives up when nothing is to be waited for.
    fn take(&'static self, mut state: Guard) -> (Guard, Option<Arc<dyn Task>>) {
        loop {
            self.fire(&mut state, Instant::now());
            if let Some(task) = state.ready.pop_front() {
                let mut standing = task.schedule().lock();
                standing.queued = false;
                standing.running = true;
                drop(standing);
                return (state, Some(task));
            }
            // One thread minds the timers; the others end when they have been idle for a while.
            let first = state.timers.keys().next().map(|&(at, _)| at).filter(|_| !state.minded);
            let wait = first.map_or(THREAD_IDLE, |at| at.saturating_duration_since(Instant::now()));
            state.waiting += 1;
            state.minded |= first.is_some();
            let (now, result) = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
            state = now;
            state.waiting -= 1;
            if first.is_some() {
                state.minded = false;
            }
            let covered = state.timers.is_empty() || state.minded;
            if result.timed_out() && first.is_none() && state.ready.is_empty() && covered {
                return (state, None);
            }
        }
    }

    fn fire(&'static self, state: &mut State, now: Instant) {
        while let Some(entry) = state.timers.first_entry()
            && entry.key().0 <= now
        {
            if let Some(task) = entry.remove().upgrade() {
                task.schedule().lock().timer = None;
                self.enqueue(state, &task);
            }
        }
    }

    fn settle(&'static self, state: &mut State, task: &Arc<dyn Task>, next: Next) {
        let mut standing = task.schedule().lock();
        standing.running = false;
        let again = std::mem::take(&mut standing.again);
        match next {
            Next::At(at) if !again => {
                state.timers_made += 1;
                let timer = (at, state.timers_made);
                standing.timer = Some(timer);
                state.timers.insert(timer, Arc::downgrade(task));
                // Whoever minds the timers may be waiting for a later one, and nobody may be minding them yet.
                self.changed.notify_all();
            }
            Next::Idle if !again => {}
            _ => {
                drop(standing);
                self.enqueue(state, task);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    #[derive(Default)]
    struct Counting {
        schedule: Schedule,
        turns: AtomicU32,
        running: AtomicU32,
        overlaps: AtomicU32,
        timed: AtomicU32,
    }

    impl Task for Counting {
        fn turn(&self) -> Next {
            self.overlaps.fetch_max(self.running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            self.turns.fetch_add(1, Ordering::SeqCst);
            self.running.fetch_sub(1, Ordering::SeqCst);
            match self.timed.load(Ordering::SeqCst) {
                0 => Next::Idle,
                left => {
                    self.timed.store(left - 1, Ordering::SeqCst);
                    Next::At(Instant::now() + Duration::from_millis(5))
                }
            }
        }

        fn schedule(&self) -> &Schedule {
            &self.schedule
        }
    }

    fn eventually(what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < Duration::from_secs(10), "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_task_takes_one_turn_at_a_time_and_none_is_lost() {
        let tasks: Vec<Arc<Counting>> = (0..20).map(|_| Arc::default()).collect();
        for _ in 0..50 {
            for task in &tasks {
                Pool::shared().wake(&(Arc::clone(task) as Arc<dyn Task>));
            }
        }
        for task in &tasks {
            let before = task.turns.load(Ordering::SeqCst);
            Pool::shared().wake(&(Arc::clone(task) as Arc<dyn Task>));
            eventually("a turn after the last wake", || task.turns.load(Ordering::SeqCst) > before);
            assert_eq!(task.overlaps.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn a_thread_that_the_system_refused_is_asked_for_again_at_the_next_wake() {
        for again in [Pool::wake as fn(&'static Pool, &Arc<dyn Task>), |pool, _| pool.retry()] {
            let pool = Pool { process: std::process::id(), state: Mutex::default(), changed: Condvar::new() };
            let pool: &'static Pool = Box::leak(Box::new(pool));
            let counting: Arc<Counting> = Arc::default();
            let task = Arc::clone(&counting) as Arc<dyn Task>;
            threads::refusals::set(1);
            pool.wake(&task);
            assert_eq!(pool.lock().threads, 0, "refused");
            again(pool, &task);
            eventually("a turn", || counting.turns.load(Ordering::SeqCst) == 1);
        }
    }

    #[test]
    fn a_timer_set_while_other_threads_idle_is_not_left_to_them() {
        // Several threads are idle when one of them sets a timer and goes to wait as well.
        let busy: Vec<Arc<Counting>> = (0..8).map(|_| Arc::default()).collect();
        for _ in 0..20 {
            for task in &busy {
                Pool::shared().wake(&(Arc::clone(task) as Arc<dyn Task>));
            }
            thread::sleep(Duration::from_millis(5));
            let timed: Arc<Counting> = Arc::default();
            timed.timed.store(1, Ordering::SeqCst);
            let started = Instant::now();
            Pool::shared().wake(&(Arc::clone(&timed) as Arc<dyn Task>));
            eventually("the turn that the timer asks for", || timed.turns.load(Ordering::SeqCst) >= 2);
            assert!(started.elapsed() < THREAD_IDLE / 2, "{:?}", started.elapsed());
        }
    }

    #[test]
    fn timers_fire_and_threads_are_few() {
        let tasks: Vec<Arc<Counting>> = (0..50).map(|_| Arc::default()).collect();
        for task in &tasks {
            task.timed.store(3, Ordering::SeqCst);
            Pool::shared().wake(&(Arc::clone(task) as Arc<dyn Task>));
        }
        let started = Instant::now();
        for task in &tasks {
            eventually("three timers and the first turn", || task.turns.load(Ordering::SeqCst) >= 4);
        }
        // Far less than an idle thread waits: somebody always minds the next timer.
        assert!(started.elapsed() < THREAD_IDLE / 2, "{:?}", started.elapsed());
        assert!(Pool::shared().lock().threads <= THREADS_MAX);
    }
}
