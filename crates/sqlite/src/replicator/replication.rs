//! The replication of one open database: a machine, a client, and the callers that wait.

use super::errors::{StreamError, SyncedError};
use super::machine::{Action, Environment, Event, Machine, Reply, Snapshot, Start, WaiterId};
use super::perform::Performer;
use super::threads::{Next, Pool, Schedule, Task};
use crate::engine::{Engine, StatusParts, StopCode, StopReason};
use crate::guard::lock;
use highwater_base::Clock;
use highwater_client::{Client, Options as ClientOptions, Stream, StreamUrl, TokenId};
use highwater_disk::{SystemClock, SystemRandom};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Milliseconds after the last request at which the connection is closed and its buffers are freed.
const REST_MS: u64 = 10_000;
/// Milliseconds after which a failed write of the local files is tried again.
const LOCAL_RETRY_MS: u64 = 1_000;

/// How often a caller that waits asks again for a thread that the system refused.
const THREAD_RETRY: Duration = Duration::from_secs(1);

/// Replicates one open database until it is stopped or dropped.
pub struct Replication {
    database: Arc<Database>,
}

struct Database {
    engine: Arc<Engine>,
    performer: Performer,
    clock: SystemClock,
    process: u32,
    schedule: Schedule,
    /// Only the turn that runs locks it, so that nobody waits for a request.
    core: Mutex<Core>,
    inbox: Mutex<Vec<Event>>,
    waiters: Mutex<BTreeMap<WaiterId, Sender<Result<(), StopReason>>>>,
    waiter_last: AtomicU64,
    /// Somebody wrote, called `synced()` or asked for a push since the start.
    wanted: AtomicBool,
    /// Closed once the database is: from then on nothing is written to its files.
    gate: Mutex<Gate>,
    shown: Mutex<Snapshot>,
    shown_changed: Condvar,
}

struct Core {
    machine: Machine,
    random: SystemRandom,
    todo: VecDeque<Action>,
    /// When to close the connection if nothing else is sent.
    rest_at: Option<u64>,
    /// When to try again what the local files refused.
    blocked_until: Option<u64>,
}

#[derive(PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
}

/// The result, or an error when the time is over or nobody will send one any more.
fn await_result<T>(result: &Receiver<T>, timeout: Option<Duration>) -> Result<T, ()> {
    let started = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        let slice = left.map_or(THREAD_RETRY, |left| left.min(THREAD_RETRY));
        match result.recv_timeout(slice) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) if left.is_none_or(|left| left > slice) => Pool::shared().retry(),
            Err(_) => return Err(()),
        }
    }
}

impl Replication {
    /// Starts replicating an open database. Nothing is sent, and no thread started, before the first commit, the first
    /// `synced()` or [`Replication::push`].
    ///
    /// The engine's close drains and stops it.
    /// # Errors
    /// `Url` and `Setup`: nothing of it needs the network.
    pub fn start(engine: Arc<Engine>, client: ClientOptions) -> Result<Arc<Self>, StreamError> {
        let binding = engine.binding();
        let url = StreamUrl::parse(&binding.url)?;
        let stream = Stream::new(Arc::new(Client::new(client)?), url);
        let progress = engine.progress();
        let machine = Machine::new(Start {
            incarnation: binding.incarnation,
            cluster_id: binding.cluster_id,
            lineage: binding.lineage,
            acknowledged: progress.acknowledged,
            acknowledged_lsn: progress.acknowledged_lsn,
            stream_end: progress.stream_end,
            epoch: progress.epoch,
            in_flight: progress.in_flight,
        });
        let shown = machine.snapshot();
        let core = Core { machine, random: SystemRandom, todo: VecDeque::new(), rest_at: None, blocked_until: None };
        let database = Arc::new(Database {
            performer: Performer { stream, incarnation: binding.incarnation },
            engine,
            clock: SystemClock::new(),
            process: std::process::id(),
            schedule: Schedule::default(),
            core: Mutex::new(core),
            inbox: Mutex::default(),
            waiters: Mutex::default(),
            waiter_last: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            gate: Mutex::new(Gate::Open),
            shown: Mutex::new(shown),
            shown_changed: Condvar::new(),
        });
        database.hook();
        Ok(Arc::new(Self { database }))
    }

    /// Waits until the stream holds every commit logged before the call, and a round trip that started after the call
    /// proved that nothing was written after this process's own commits.
    ///
    /// Never fails for the network's sake. Without a timeout it waits for as long as it takes.
    /// # Errors
    /// `Timeout` when the time is over; `Stopped` on a reset; `Forked` in a child process.
    pub fn synced(&self, timeout: Option<Duration>) -> Result<(), SyncedError> {
        let database = &self.database;
        database.same_process()?;
        if let Some(reason) = database.engine.stop_reason() {
            return Err(SyncedError::Stopped(reason));
        }
        let id = WaiterId(database.waiter_last.fetch_add(1, Ordering::Relaxed) + 1);
        let (done, result) = channel();
        lock(&database.waiters).insert(id, done);
        let target_lsn = database.engine.progress().last_lsn;
        database.post(Event::Synced { id, target_lsn });
        let started = Instant::now();
        let received = await_result(&result, timeout);
        // An answer may come at the very moment at which the time is over.
        let gone = received.is_err() && lock(&database.waiters).remove(&id).is_none();
        match received.or_else(|()| result.try_recv().map_err(|_| ())) {
            Ok(result) => return result.map_err(SyncedError::Stopped),
            // Nobody holds the other end any more: the database stopped.
            Err(()) if gone => return Err(SyncedError::Stopped(database.stop_reason())),
            Err(()) => {}
        }
        database.post(Event::Abandoned { id });
        let shown = self.snapshot();
        let commits = target_lsn.saturating_sub(shown.acknowledged_lsn);
        let waited_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Err(SyncedError::Timeout { commits, waited_ms, trouble: shown.trouble() })
    }

    /// Claims the stream if need be and sends what is pending, as the first commit would.
    pub fn push(&self) {
        self.database.post(Event::Wanted);
    }

    /// Waits until nothing is pending, at most so long; whether nothing is. Returns early where waiting is pointless:
    /// nothing was written since the start, the database stopped, or the next attempt comes later than that.
    #[must_use]
    pub fn drain(&self, at_most: Duration) -> bool {
        self.database.drain(at_most)
    }

    /// Stops replicating. When it returns, nothing touches the database's files any more; what is pending stays there.
    pub fn stop(&self) {
        self.database.stop();
    }

    /// The status page of the database.
    #[must_use]
    pub fn status_json(&self) -> serde_json::Value {
        self.database.engine.status()
    }

    /// What the machine shows.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.database.shown).clone()
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        self.database.stop();
    }
}

impl Database {
    /// The engine tells of commits and of its closing, and asks for the status; it does not keep us alive.
    fn hook(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let wake = move || {
            if let Some(database) = Weak::upgrade(&weak) {
                database.post(Event::Wanted);
            }
        };
        self.engine.on_confirmed(Box::new(wake));
        let weak = Arc::downgrade(self);
        self.engine.on_close(Box::new(move |at_most| {
            weak.upgrade().is_none_or(|database| {
                let drained = database.drain(at_most);
                database.stop();
                drained
            })
        }));
        let weak = Arc::downgrade(self);
        self.engine
            .set_status_source(Arc::new(move || weak.upgrade().map(|database| database.parts()).unwrap_or_default()));
    }

    fn same_process(&self) -> Result<(), SyncedError> {
        // No lock is touched in a child of fork(): the thread that held it may not exist there.
        if std::process::id() == self.process { Ok(()) } else { Err(SyncedError::Forked) }
    }

    fn post(self: &Arc<Self>, event: Event) {
        if self.same_process().is_err() {
            return;
        }
        self.wanted.store(true, Ordering::Release);
        let mut inbox = lock(&self.inbox);
        // One wish is as good as a thousand, and a writer may be faster than the network for long.
        if event != Event::Wanted || inbox.last() != Some(&Event::Wanted) {
            inbox.push(event);
        }
        drop(inbox);
        let task: Arc<dyn Task> = Arc::clone(self) as Arc<dyn Task>;
        Pool::shared().wake(&task);
    }

    fn stop(&self) {
        if self.same_process().is_err() {
            return;
        }
        *lock(&self.gate) = Gate::Closed;
        self.leave_last_words();
        // Whoever still waits is told by the end of their channel.
        lock(&self.waiters).clear();
        self.shown_changed.notify_all();
    }

    /// Lets the status page say for good what replication last met: whoever asks about pending commits later needs it.
    fn leave_last_words(&self) {
        let mut replication = self.parts().replication;
        replication["retry_in_ms"] = serde_json::Value::Null;
        replication["synced_waiting"] = 0.into();
        self.engine.set_status_source(Arc::new(move || StatusParts {
            replication: replication.clone(),
            ..StatusParts::default()
        }));
    }

    fn stop_reason(&self) -> StopReason {
        self.engine.stop_reason().unwrap_or_else(|| StopReason::new(StopCode::Closed, "the database was closed"))
    }

    fn drain(&self, at_most: Duration) -> bool {
        if self.same_process().is_err() {
            return false;
        }
        let deadline = Instant::now() + at_most;
        loop {
            let closed = *lock(&self.gate) == Gate::Closed;
            let shown = lock(&self.shown);
            if shown.acknowledged >= self.engine.confirmed_end() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let at_most_ms = self.clock.monotonic().saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            // Nobody asked for a claim, and closing is no reason for one.
            let unwanted = !self.wanted.load(Ordering::Acquire);
            let hopeless = shown.state == "stopped" || shown.retry_at.is_some_and(|at| at > at_most_ms);
            if left.is_zero() || unwanted || hopeless || closed {
                return false;
            }
            // A stop that comes between the look and the wait is seen a moment later.
            let slice = left.min(Duration::from_millis(100));
            drop(self.shown_changed.wait_timeout(shown, slice).unwrap_or_else(PoisonError::into_inner));
            Pool::shared().retry();
        }
    }

    /// One round: the events that arrived, what the machine makes of them, and at most one request.
    fn round(&self, core: &mut Core) -> Next {
        let now = self.clock.monotonic();
        if let Some(reason) = self.engine.stop_reason() {
            self.step(core, Event::Stopped(reason));
        }
        let events = std::mem::take(&mut *lock(&self.inbox));
        for event in events {
            self.step(core, event);
        }
        if core.machine.deadline().is_some_and(|at| at <= now) {
            self.step(core, Event::Timer);
        }
        if core.blocked_until.is_none_or(|until| until <= now) || self.engine.stop_reason().is_some() {
            core.blocked_until = None;
            self.carry_out(core);
        }
        self.show(core);
        self.next(core)
    }

    fn step(&self, core: &mut Core, event: Event) {
        let mut out = Vec::new();
        let mut environment =
            Environment { now_ms: self.clock.monotonic(), log: &*self.engine, random: &mut core.random };
        core.machine.step(event, &mut environment, &mut out);
        core.todo.extend(out);
    }

    /// Carries out what is to be done, in order, up to and including one request.
    fn carry_out(&self, core: &mut Core) {
        while let Some(action) = core.todo.pop_front() {
            if !matches!(action, Action::Resolve { .. })
                && let Some(reason) = self.engine.stop_reason()
            {
                // Nothing is sent or written any more, and whoever waits is told so now.
                self.step(core, Event::Stopped(reason));
                continue;
            }
            if let Action::Send(request) = &action {
                core.rest_at = Some(self.clock.monotonic().saturating_add(REST_MS));
                // Sealing writes to the files; once the gate is closed it must not. A request that is on its way when
                // it closes is settled by the next claim.
                let prepared = {
                    let gate = lock(&self.gate);
                    if *gate == Gate::Closed {
                        return;
                    }
                    self.performer.prepare(request, &self.engine)
                };
                let (token, reply) = match prepared {
                    Ok(body) => self.performer.perform(request, body, &|| self.clock.monotonic()),
                    Err(error) => (TokenId::default(), Reply::Local(error.to_string())),
                };
                self.step(core, Event::Answered { token, reply: Box::new(reply) });
                return;
            }
            if let Err(error) = self.write_down(&action) {
                // The order matters: nothing that comes after may overtake it.
                core.todo.push_front(action);
                if self.engine.stop_reason().is_some() {
                    continue;
                }
                core.blocked_until = Some(self.clock.monotonic().saturating_add(LOCAL_RETRY_MS));
                lock(&self.shown).last_error = format!("local: {error}");
                return;
            }
        }
    }

    fn write_down(&self, action: &Action) -> io::Result<()> {
        let gate = lock(&self.gate);
        if *gate == Gate::Closed {
            return Ok(());
        }
        match action {
            Action::SaveClaim(claim) => self.engine.save_epoch(*claim)?,
            Action::SaveAcknowledged(acknowledged) => self.engine.save_acknowledged(*acknowledged)?,
            Action::Stop(reason) => self.engine.stop(reason.clone()),
            Action::RereadToken => self.performer.stream.client().reread_token(),
            Action::Resolve { id, result } => {
                if let Some(waiter) = lock(&self.waiters).remove(id) {
                    // A caller whose time was over a moment ago has gone.
                    drop(waiter.send(result.clone()));
                }
            }
            Action::Send(_) => {}
        }
        Ok(())
    }

    fn next(&self, core: &mut Core) -> Next {
        if *lock(&self.gate) == Gate::Closed {
            return Next::Idle;
        }
        let now = self.clock.monotonic();
        let due = match core.blocked_until {
            Some(until) => Some(until),
            None if !core.todo.is_empty() => return Next::Again,
            None => core.machine.deadline(),
        };
        if due.is_none() && core.rest_at.is_some_and(|at| at <= now) {
            core.rest_at = None;
            self.performer.stream.client().rest();
        }
        match due.or(core.rest_at) {
            Some(at) => Next::At(Instant::now() + Duration::from_millis(at.saturating_sub(now))),
            None => Next::Idle,
        }
    }

    fn show(&self, core: &Core) {
        // Nobody hears of a stop before it holds: whoever saw it may rely on the database taking nothing any more.
        if core.todo.iter().any(|action| matches!(action, Action::Stop(_))) {
            return;
        }
        let mut snapshot = core.machine.snapshot();
        let mut shown = lock(&self.shown);
        if core.blocked_until.is_some() {
            snapshot.last_error.clone_from(&shown.last_error);
        }
        if *shown != snapshot {
            *shown = snapshot;
            drop(shown);
            self.shown_changed.notify_all();
            self.engine.status_changed();
        }
    }

    /// The replicator's part of the status page.
    fn parts(&self) -> StatusParts {
        if self.same_process().is_err() {
            return StatusParts { role: "forked".to_owned(), ..StatusParts::default() };
        }
        let shown = lock(&self.shown).clone();
        let (now, wall) = (self.clock.monotonic(), self.clock.wall().0);
        let since = shown.condition.map(|(_, since)| wall.saturating_sub(now.saturating_sub(since)));
        StatusParts {
            role: if shown.state == "owner" { "owner" } else { shown.state }.to_owned(),
            replication: json!({
                "condition": shown.condition.map(|(condition, _)| condition.as_str()),
                "since": since,
                "attempts": shown.attempts,
                "retry_in_ms": shown.retry_at.map(|at| at.saturating_sub(now)),
                "last_error": (!shown.last_error.is_empty()).then_some(shown.last_error),
                "batch_bytes_max": shown.batch_bytes,
                "synced_waiting": shown.waiters,
            }),
            ownership: json!({
                "state": shown.state,
                "reason": shown.reason.as_ref().map(|reason| reason.code.as_str()),
                "text": shown.reason.as_ref().map(|reason| reason.text.as_str()),
            }),
        }
    }
}

impl Task for Database {
    fn turn(&self) -> Next {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut core = lock(&self.core);
            if *lock(&self.gate) == Gate::Closed { Next::Idle } else { self.round(&mut core) }
        }));
        outcome.unwrap_or_else(|_| {
            // The host program goes on; this database does not.
            self.engine
                .stop(StopReason::new(StopCode::LogFailed, "an internal error ended replication; reopen the database"));
            self.stop();
            Next::Idle
        })
    }

    fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}
