//! The shard in production: its core behind a lock, driven by whoever brings it something.
//!
//! To hand a request to another thread and the answer back costs two wake-ups, each longer than everything that is done
//! between them. So nobody hands over: what is asked is posted, and whoever finds the core free takes everything that was
//! posted, does a turn, and looks again. While one thread does that, the others leave their requests and go on, so that
//! turns get larger the more comes. A write that is alone is also written to the log and synced where it is.

use super::{Loud, Mail, Reply, Shared, Work, refusal_code};
use crate::shard::{Answer, Input, Load, Now, Output, ShardCore};
use highwater_base::GroupId;
use highwater_wal::{Frame, WriterHandle};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::Duration;

/// Milliseconds of a tick: the unit of elections and heartbeats.
const TICK_MS: u64 = 100;

/// Ticks between two searches for space on a full disk.
const SPACE_TICKS: u32 = 5;

/// Inputs of one turn. Enough that one batch serves everyone who has come, and few enough that the first of them does
/// not wait for long: a turn of this many writes takes a few milliseconds.
const INPUTS_MAX: usize = 4_096;

/// Turns that a caller does for others behind its own, before the shard's thread goes on with them. A caller has
/// something of its own to do.
const TURNS_MAX: u32 = 4;

/// Buckets that are counted at each tick, for quotas: with this many in all, a count is a tenth of a second old. A bucket
/// is looked up in every group, which takes a few microseconds.
const BUCKETS_COUNTED: usize = 500;

/// Milliseconds that a shutdown waits for what is under way.
const DRAIN_MS_MAX: u64 = 10_000;

/// One shard of a running node.
pub(crate) struct Shard {
    shared: Arc<Shared>,
    writer: WriterHandle,
    inbox: Mutex<Vec<Mail>>,
    /// Gone when the shard has ended.
    engine: Mutex<Option<Engine>>,
    /// Monotonic milliseconds at which the shard's thread looks in by itself.
    wakes_at: AtomicU64,
    thread: OnceLock<Thread>,
}

/// The core and what drives it.
struct Engine {
    core: ShardCore<Reply>,
    work: Sender<Work>,
    loads: Sender<(GroupId, Load)>,
    /// Told once, when every group serves or the log failed.
    started: Sender<Result<(), String>>,
    tick_at: u64,
    ticks: u32,
    stop_at: Option<u64>,
    mails: Vec<Mail>,
    out: Vec<Output<Reply>>,
    /// What the buckets of accounts hold, as far as this pass over them has come.
    counted: BTreeMap<String, u64>,
}

/// What is left to do when the core is free again.
#[derive(Default)]
struct Due {
    answers: Vec<(Reply, Answer)>,
    frames: Option<Vec<Frame>>,
    /// The turn is not over: somebody has to do the rest.
    unfinished: bool,
}

/// Who drives the core.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// Somebody with a request.
    Caller,
    /// The thread of the log, which should go back to it.
    Log,
    /// The shard's own thread.
    Shard,
}

impl Shard {
    /// The shard, which does nothing before [`Self::run`].
    pub fn new(
        core: ShardCore<Reply>,
        shared: Arc<Shared>,
        (work, loads): (Sender<Work>, Sender<(GroupId, Load)>),
        started: Sender<Result<(), String>>,
    ) -> Arc<Self> {
        let engine = Engine {
            core,
            work,
            loads,
            started,
            tick_at: 0,
            ticks: 0,
            stop_at: None,
            mails: Vec::new(),
            out: Vec::new(),
            counted: BTreeMap::new(),
        };
        let writer = shared.writer.clone();
        let (inbox, engine) = (Mutex::default(), Mutex::new(Some(engine)));
        Arc::new(Self { shared, writer, inbox, engine, wakes_at: AtomicU64::new(0), thread: OnceLock::new() })
    }

    /// What the threads of the node share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Leaves something for the shard, and sees to it if nobody else does. May write and sync the log.
    pub fn post(self: &Arc<Self>, mail: Mail) {
        self.post_as(mail, Driver::Caller);
    }

    fn post_as(self: &Arc<Self>, mail: Mail, driver: Driver) {
        self.inbox().push(mail);
        self.drive(driver);
    }

    /// The shard's thread: starts the groups, lets time pass, and takes over from callers. Ends with the shard.
    pub fn run(self: &Arc<Self>) {
        // Before everything else that a panic drops: whoever waits hears of it from a node that already says so.
        let _loud = Loud { shard: Arc::clone(self), name: "shard" };
        self.thread.get_or_init(std::thread::current);
        if let Some(engine) = self.engine().as_mut() {
            let now = self.now();
            engine.tick_at = now.monotonic + TICK_MS;
            engine.core.start(now, &mut engine.out);
        }
        loop {
            self.drive(Driver::Shard);
            if self.engine().is_none() {
                return;
            }
            let wait_ms = self.wakes_at.load(Ordering::Relaxed).saturating_sub(self.now().monotonic);
            if self.inbox().is_empty() && wait_ms > 0 {
                std::thread::park_timeout(Duration::from_millis(wait_ms));
            }
        }
    }

    /// Nobody is served any more, because a thread panicked. Whoever waits hears that nobody will answer; the core takes
    /// no further turn, which might panic in its turn.
    pub fn abandon(&self, reason: String) {
        tracing::error!(event = "node_failed", reason, "the node failed and stops");
        self.shared.fail(reason);
        drop(self.engine().take());
        drop(std::mem::take(&mut *self.inbox()));
        self.wake();
    }

    /// Does turns until nothing is left to do, or the core is in other hands: then those look into the inbox again
    /// after they have let go of it.
    fn drive(self: &Arc<Self>, driver: Driver) {
        if std::thread::panicking() {
            // A second panic would end the process.
            return self.wake();
        }
        let _watch = Watch(self);
        let mut writes_here = driver != Driver::Log;
        for _ in 0..TURNS_MAX {
            let guard = match driver {
                Driver::Shard => Ok(self.engine()),
                Driver::Caller | Driver::Log => self.engine.try_lock(),
            };
            let mut guard = match guard {
                Ok(guard) => guard,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            let due = self.turn(&mut guard, driver);
            drop(guard);
            // The disk works while the others are answered.
            if let Some(frames) = due.frames {
                self.append(frames, std::mem::take(&mut writes_here));
            }
            for (reply, answer) in due.answers {
                reply.send(answer);
            }
            if due.unfinished {
                break;
            }
            if self.inbox().is_empty() {
                return;
            }
        }
        self.wake();
    }

    /// One turn with everything that was posted. The log's thread stops where it gets its next batch.
    fn turn(&self, slot: &mut MutexGuard<'_, Option<Engine>>, driver: Driver) -> Due {
        let Some(engine) = slot.as_mut() else {
            drop(std::mem::take(&mut *self.inbox()));
            return Due::default();
        };
        let now = self.now();
        self.take_mails(&mut engine.mails);
        engine.step(now, self);
        let batch = engine.out.iter().any(|output| matches!(output, Output::Append(_)));
        if driver == Driver::Log && batch {
            return Due { unfinished: true, ..self.perform(engine) };
        }
        let waits = engine.core.turn_may_wait();
        if !waits {
            engine.core.turn(now, &mut engine.out);
        }
        let mut due = self.perform(engine);
        self.publish(engine);
        if waits {
            return due;
        }
        let wakes_at = engine.core.deadline().map_or(engine.tick_at, |deadline| deadline.min(engine.tick_at));
        let before = self.wakes_at.swap(wakes_at, Ordering::Relaxed);
        if wakes_at < before {
            self.wake();
        }
        if engine.stop_at.is_some_and(|at| engine.core.idle() || now.monotonic >= at) {
            engine.core.close(&mut engine.out);
            due.answers.append(&mut self.perform(engine).answers);
            let groups = (engine.core.status(), engine.core.control_status());
            *self.shared.groups.lock().unwrap_or_else(PoisonError::into_inner) = groups;
            **slot = None;
            self.wake();
        }
        due
    }

    /// Takes what was posted, and leaves the memory of what was taken before.
    fn take_mails(&self, mails: &mut Vec<Mail>) {
        let mut inbox = self.inbox();
        std::mem::swap(&mut *inbox, mails);
        if mails.len() > INPUTS_MAX {
            inbox.extend(mails.drain(INPUTS_MAX..));
        }
    }

    /// Does what came out, but for what others should not wait for: answers cost wake-ups, and the log a sync.
    fn perform(&self, engine: &mut Engine) -> Due {
        let mut due = Due::default();
        for output in engine.out.drain(..) {
            match output {
                Output::Answer(reply, answer) => due.answers.push((reply, answer)),
                Output::Append(frames) => due.frames = Some(frames),
                Output::Checkpoint(group, checkpoint) => {
                    self.background(&engine.work, Work::Checkpoint(group, checkpoint));
                }
                Output::Load(group, load) => self.background(&engine.loads, (group, load)),
                Output::Publish(view) => drop(self.shared.control.send_replace(Some(view))),
                Output::Reclaim(reclaim) => self.background(&engine.work, Work::Reclaim(reclaim)),
                Output::HistoryRecorded => self.background(&engine.work, Work::Unmark),
                Output::Release(owner, first_needed) => self.writer.release(owner, first_needed),
                Output::Abandon(owner) => self.writer.abandon(owner),
                Output::Failed(reason) => self.shared.fail(reason),
            }
        }
        due
    }

    fn background<W>(&self, work: &Sender<W>, what: W) {
        if work.send(what).is_err() {
            // Whoever does this turn looks into the inbox again.
            self.inbox().push(Mail::Input(Input::Failed("a thread for the disk is gone".to_owned())));
        }
    }

    /// Has frames made durable: here, where that is allowed and quick, or by the log's thread. The core has one batch
    /// under way at a time, so that none overtakes another between the two.
    fn append(self: &Arc<Self>, frames: Vec<Frame>, here: bool) {
        let handed = if here { self.writer.write_here(frames) } else { Err(frames) };
        match handed {
            Ok(result) => self.inbox().push(Mail::Input(Input::Appended(result))),
            Err(frames) => {
                let shard = Arc::clone(self);
                let done = move |result| shard.post_as(Mail::Input(Input::Appended(result)), Driver::Log);
                self.writer.submit(frames, Box::new(done));
            }
        }
    }

    fn publish(&self, engine: &mut Engine) {
        let (shared, core) = (&self.shared, &mut engine.core);
        if core.take_refusals_changed() {
            for (code, refusal) in shared.refusals.iter().zip(core.refusals()) {
                code.store(refusal_code(refusal.as_ref()), Ordering::Relaxed);
            }
        }
        shared.history_pending.store(core.history_pending(), Ordering::Relaxed);
        shared.uncommitted_bytes.store(core.uncommitted_bytes(), Ordering::Relaxed);
        shared.live_reads.store(core.live_reads() as u64, Ordering::Relaxed);
        shared.log_room.store(core.log_room().unwrap_or(u64::MAX), Ordering::Relaxed);
        let log_full = core.log_full();
        shared.log_full.store(log_full, Ordering::Relaxed);
        let failed = shared.failed.borrow().clone();
        let ready = core.ready();
        // On a full disk the groups cannot lead yet: the node opens all the same, to say so and to make room.
        if ready != shared.ready.load(Ordering::Relaxed) || failed.is_some() || log_full {
            shared.ready.store(ready, Ordering::Relaxed);
            let told = engine.started.send(failed.map_or(Ok(()), Err));
            // Nobody listens any more once the node has opened.
            drop(told);
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.shared.clock.monotonic(), wall: self.shared.clock.wall() }
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Mail>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engine(&self) -> MutexGuard<'_, Option<Engine>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Gives the core what has come, and the time that has passed.
    fn step(&mut self, now: Now, shard: &Shard) {
        let (core, out) = (&mut self.core, &mut self.out);
        core.step(now, Input::LogRoom(shard.writer.metrics().room), out);
        for mail in self.mails.drain(..) {
            match mail {
                Mail::Input(input) => core.step(now, input, out),
                Mail::Status(sender) => drop(sender.send((core.status(), core.control_status()))),
                Mail::Ask(question) => question(core),
                Mail::Stop => {
                    self.stop_at.get_or_insert(now.monotonic + DRAIN_MS_MAX);
                }
            }
        }
        if now.monotonic >= self.tick_at {
            // An answer says so too, where one is awaited.
            if let Some(ended) = shard.writer.ended() {
                core.step(now, Input::Failed(ended.to_string()), out);
            }
            self.ticks = self.ticks.wrapping_add(1);
            if core.log_room().is_some() && self.ticks.is_multiple_of(SPACE_TICKS) {
                shard.writer.retry_space();
            }
            core.step(now, Input::Tick, out);
            self.count_buckets(&shard.shared);
            // After a pause the missed ticks are not made up for: they would look like silence of the others.
            self.tick_at = now.monotonic + TICK_MS;
        }
    }
}

impl Engine {
    /// Counts some more of the buckets that accounts have, and publishes the counts once all were.
    fn count_buckets(&mut self, shared: &Shared) {
        let Some(view) = shared.control.borrow().clone() else { return };
        let last = self.counted.last_key_value().map(|(bucket, _)| bucket.clone());
        let mut count = 0;
        for bucket in view.buckets_behind(last.as_deref(), BUCKETS_COUNTED) {
            self.counted.insert(bucket.to_owned(), self.core.stored_bytes(bucket));
            count += 1;
        }
        if count < BUCKETS_COUNTED {
            let counted = std::mem::take(&mut self.counted);
            *shared.stored_bytes.write().unwrap_or_else(PoisonError::into_inner) = counted;
        }
    }
}

/// Sees to it that a core that a panic met in the middle of a turn is never used again, and that everyone hears of it.
struct Watch<'a>(&'a Shard);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() || !self.0.engine.is_poisoned() {
            return;
        }
        let thread = std::thread::current();
        let reason = format!("a turn of the shard panicked on the thread `{}`", thread.name().unwrap_or("?"));
        self.0.abandon(reason);
    }
}
