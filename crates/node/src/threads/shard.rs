//! The shard's thread: drain, step, turn, perform.

use super::{Loud, Mail, Reply, Shared, Work};
use crate::shard::{Input, Now, Output, ShardCore};
use highwater_wal::WriterHandle;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Milliseconds of a tick: the unit of elections and heartbeats.
const TICK_MS: u64 = 100;

/// Ticks between two searches for space on a full disk.
const SPACE_TICKS: u32 = 5;

/// Inputs of one turn. Enough that one batch serves everyone who has come, and few enough that the first of them does
/// not wait for long: a turn of this many writes takes a few milliseconds.
const INPUTS_MAX: usize = 4_096;

/// Milliseconds that a shutdown waits for what is under way.
const DRAIN_MS_MAX: u64 = 10_000;

/// Everything that the thread owns.
pub(crate) struct ShardThread {
    pub core: ShardCore<Reply>,
    pub mail: Receiver<Mail>,
    /// For the log's thread to post to.
    pub own_mail: Sender<Mail>,
    pub writer: WriterHandle,
    pub work: Sender<Work>,
    pub shared: Arc<Shared>,
    /// Told once, when every group serves or the log failed.
    pub started: Sender<Result<(), String>>,
}

/// Runs until it is told to stop and nothing is under way.
pub(crate) fn run(mut thread: ShardThread) {
    // Before everything else that a panic drops: whoever waits hears of it from a node that already says so.
    let _loud = Loud { shared: Arc::clone(&thread.shared), mail: thread.own_mail.clone(), name: "shard" };
    let mut out = Vec::new();
    thread.core.start(thread.now(), &mut out);
    thread.perform(&mut out);
    let mut tick_at = thread.now().monotonic + TICK_MS;
    let mut stop_at = None;
    let mut ticks = 0u32;
    loop {
        let first = thread.wait(tick_at);
        let now = thread.now();
        thread.core.step(now, Input::LogRoom(thread.writer.metrics().room), &mut out);
        for mail in first.into_iter().chain(thread.mail.try_iter().take(INPUTS_MAX)) {
            match mail {
                Mail::Input(input) => thread.core.step(now, input, &mut out),
                Mail::Status(sender) => drop(sender.send((thread.core.status(), thread.core.control_status()))),
                Mail::Stop => {
                    stop_at.get_or_insert(now.monotonic + DRAIN_MS_MAX);
                }
            }
        }
        if now.monotonic >= tick_at {
            // An answer says so too, where one is awaited.
            if let Some(ended) = thread.writer.ended() {
                thread.core.step(now, Input::Failed(ended.to_string()), &mut out);
            }
            ticks = ticks.wrapping_add(1);
            if thread.core.log_room().is_some() && ticks.is_multiple_of(SPACE_TICKS) {
                thread.writer.retry_space();
            }
            thread.core.step(now, Input::Tick, &mut out);
            // After a pause the missed ticks are not made up for: they would look like silence of the others.
            tick_at = now.monotonic + TICK_MS;
        }
        thread.core.turn(now, &mut out);
        thread.perform(&mut out);
        thread.publish();
        if stop_at.is_some_and(|at| thread.core.idle() || now.monotonic >= at) {
            break;
        }
    }
    thread.core.close(&mut out);
    thread.perform(&mut out);
    let groups = (thread.core.status(), thread.core.control_status());
    *thread.shared.groups.lock().unwrap_or_else(PoisonError::into_inner) = groups;
}

impl ShardThread {
    fn now(&self) -> Now {
        Now { monotonic: self.shared.clock.monotonic(), wall: self.shared.clock.wall() }
    }

    /// Waits for mail until the next tick or the next deadline of a reader.
    fn wait(&self, tick_at: u64) -> Option<Mail> {
        let until = self.core.deadline().map_or(tick_at, |deadline| deadline.min(tick_at));
        let wait_ms = until.saturating_sub(self.now().monotonic);
        // The thread holds a sender itself, so that an error is always the end of the wait.
        self.mail.recv_timeout(Duration::from_millis(wait_ms)).ok()
    }

    /// Does what came out: what others wait for first, because an answer costs a wake-up.
    fn perform(&self, out: &mut Vec<Output<Reply>>) {
        let mut answers = Vec::new();
        for output in out.drain(..) {
            match output {
                Output::Answer(reply, answer) => answers.push((reply, answer)),
                Output::Append(frames) => {
                    let mail = self.own_mail.clone();
                    let done = move |result| drop(mail.send(Mail::Input(Input::Appended(result))));
                    self.writer.submit(frames, Box::new(done));
                }
                Output::Publish(view) => drop(self.shared.control.send_replace(Some(view))),
                Output::Checkpoint(group, checkpoint) => self.background(Work::Checkpoint(group, checkpoint)),
                Output::Reclaim(reclaim) => self.background(Work::Reclaim(reclaim)),
                Output::Release(owner, first_needed) => self.writer.release(owner, first_needed),
                Output::Abandon(owner) => self.writer.abandon(owner),
                Output::Failed(reason) => self.shared.fail(reason),
            }
        }
        for (reply, answer) in answers {
            reply.send(answer);
        }
    }

    fn background(&self, work: Work) {
        if self.work.send(work).is_err() {
            let reason = "the thread for checkpoints is gone".to_owned();
            // The thread holds its own mailbox open.
            drop(self.own_mail.send(Mail::Input(Input::Failed(reason))));
        }
    }

    fn publish(&self) {
        let shared = &self.shared;
        shared.uncommitted_bytes.store(self.core.uncommitted_bytes(), Ordering::Relaxed);
        shared.live_reads.store(self.core.live_reads() as u64, Ordering::Relaxed);
        shared.log_room.store(self.core.log_room().unwrap_or(u64::MAX), Ordering::Relaxed);
        shared.log_full.store(self.core.log_full(), Ordering::Relaxed);
        let failed = shared.failed.borrow().clone();
        let ready = self.core.ready();
        // On a full disk the groups cannot lead yet: the node opens all the same, to say so and to make room.
        if ready != shared.ready.load(Ordering::Relaxed) || failed.is_some() || self.core.log_full() {
            shared.ready.store(ready, Ordering::Relaxed);
            let told = self.started.send(failed.map_or(Ok(()), Err));
            // Nobody listens any more once the node has opened.
            drop(told);
        }
    }
}
