//! The one writer of the log in production.
//!
//! Group commit is natural: while a sync runs, submissions pile up, and the next batch takes all of them. A lone
//! submission never waits for company, nor for another thread: whoever brings it may write and sync it where it is
//! ([`WriterHandle::write_here`]). There is still one writer at a time, the thread or that caller.

mod worker;

use crate::log::{Log, SpareDone};
use crate::types::{AppendError, Frame, Location, Poisoned};
use highwater_base::OwnerId;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use worker::{Round, Worker};

/// What is called once frames are durable, or never will be.
pub type Done = Box<dyn FnOnce(Result<Vec<Location>, AppendError>) + Send>;

/// What is called once an owner is forgotten durably, or could not be.
pub type Forgotten = Box<dyn FnOnce(bool) + Send>;

/// Bytes of payload that one batch takes, but for a single larger submission.
///
/// At 1.7 GB/s it is written and synced in about 3 ms, well inside a round's latency target, and larger batches are
/// no faster per byte. Metric: `bytes / batches`.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Frames that are written where they are brought: one write and what its group has to record with it.
const HERE_FRAMES_MAX: usize = 4;

/// Bytes of payload that are written where they are brought. Writing so much takes a few hundredths of a millisecond,
/// no longer than to wake another thread for it.
const HERE_BYTES_MAX: u64 = 64 << 10;

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    /// `fdatasync` calls for batches.
    pub syncs: u64,
    /// Batches written.
    pub batches: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes of payload written.
    pub bytes: u64,
    /// Submissions refused because the log was full.
    pub refused: u64,
    /// Files made for segments.
    pub segments_made: u64,
    /// Segments given back.
    pub segments_released: u64,
    /// Segments set aside for owners that could not be believed any more.
    pub segments_kept: u64,
    /// Bytes of the segments in use.
    pub log_bytes: u64,
    /// As [`Log::room`].
    pub room: Option<u64>,
}

struct Submission {
    frames: Vec<Frame>,
    done: Answer<Result<Vec<Location>, AppendError>>,
}

/// Whoever waits for a result. One who is dropped unanswered, as a panic does it, hears that the log has stopped.
struct Answer<R: FromEnd>(Option<Box<dyn FnOnce(R) + Send>>);

/// A result that says that the writer's thread is gone.
trait FromEnd {
    fn panicked() -> Self;
}

impl FromEnd for Result<Vec<Location>, AppendError> {
    fn panicked() -> Self {
        Err(panicked().into())
    }
}

impl FromEnd for bool {
    fn panicked() -> Self {
        false
    }
}

impl<R: FromEnd> Answer<R> {
    fn send(mut self, result: R) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl<R: FromEnd> Drop for Answer<R> {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(R::panicked());
        }
    }
}

fn panicked() -> Poisoned {
    Poisoned { reason: "the log's thread panicked".to_owned() }
}

/// What was asked of the writer.
enum Work {
    Submit(Submission),
    Release(OwnerId, u64),
    Abandon(OwnerId),
    Forget(OwnerId, Answer<bool>),
}

#[derive(Default)]
struct Queue {
    /// Oldest first.
    work: VecDeque<Work>,
    retry_space: bool,
    spare: Option<SpareDone>,
    stopping: bool,
    /// Somebody does a round: the thread, or a caller of [`WriterHandle::write_here`].
    busy: bool,
    /// Bytes of file that a batch may take now so that it costs one write and one short sync.
    brief_bytes: u64,
    /// Nobody takes submissions any more, and why.
    ended: Option<Poisoned>,
    metrics: Metrics,
    needs: Vec<(OwnerId, u64)>,
}

impl Queue {
    fn has_work(&self) -> bool {
        !self.work.is_empty() || self.retry_space || self.spare.is_some() || self.stopping
    }

    /// Takes the oldest work: as many submissions as one batch should have, and behind a forget only others of it. What
    /// was asked for after a forget must not be forgotten with the rest.
    fn take_round(&mut self) -> Round {
        let last = self.stopping && self.work.is_empty() && !self.retry_space && self.spare.is_none();
        let retry_space = std::mem::take(&mut self.retry_space);
        let mut round = Round { retry_space, spare: self.spare.take(), last, ..Round::default() };
        let mut bytes = 0usize;
        while let Some(work) = self.work.pop_front_if(|work| match work {
            Work::Submit(_) => round.forgets.is_empty() && bytes < BATCH_BYTES_MAX,
            Work::Release(..) | Work::Abandon(_) => round.forgets.is_empty(),
            Work::Forget(..) => true,
        }) {
            match work {
                Work::Submit(submission) => {
                    bytes += submission.frames.iter().map(|frame| frame.payload.len()).sum::<usize>();
                    round.submissions.push(submission);
                }
                Work::Release(owner, first_needed) => {
                    let noted = round.releases.entry(owner).or_insert(first_needed);
                    *noted = (*noted).max(first_needed);
                }
                Work::Abandon(owner) => round.abandoned.push(owner),
                Work::Forget(owner, done) => round.forgets.push((owner, done)),
            }
        }
        round
    }
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    /// The log, for whoever set `busy`; gone when the writer has ended.
    worker: Mutex<Option<Worker>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody is served any more: notes why, unless it is known, and tells whoever waits.
    fn end(&self, reason: Poisoned) {
        let mut queue = self.lock();
        let reason = queue.ended.get_or_insert(reason).clone();
        let waiting = std::mem::take(&mut queue.work);
        drop(queue);
        // The thread, if it is not the one that ends here, has nothing to wait for.
        self.work.notify_all();
        for work in waiting {
            match work {
                Work::Submit(submission) => submission.done.send(Err(reason.clone().into())),
                Work::Forget(_, done) => done.send(false),
                Work::Release(..) | Work::Abandon(_) => {}
            }
        }
    }
}

/// The right to write, held by a caller of [`WriterHandle::write_here`].
struct Here<'a>(&'a Shared);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.busy = false;
        let waits = queue.has_work();
        drop(queue);
        if std::thread::panicking() {
            // What the log is in the middle of, nobody knows.
            drop(self.0.worker().take());
            self.0.end(panicked());
        } else if waits {
            self.0.work.notify_one();
        }
    }
}

/// The writer's thread.
pub struct Writer {
    handle: WriterHandle,
    thread: std::io::Result<JoinHandle<Result<(), Poisoned>>>,
}

/// Gives work to the writer; any number of clones.
#[derive(Clone)]
pub struct WriterHandle {
    shared: Arc<Shared>,
}

impl Writer {
    /// Starts the thread. If the system gives none, every submission is answered with an error.
    #[must_use]
    pub fn spawn(log: Log) -> Self {
        let queue = Queue { needs: log.oldest_segment_needs(), ..Queue::default() };
        let worker = Mutex::new(Some(Worker::new(log)));
        let shared = Arc::new(Shared { queue: Mutex::new(queue), work: Condvar::new(), worker });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("wal".to_owned()).spawn(move || worker::run(&of_thread));
        if let Err(error) = &thread {
            shared.lock().ended = Some(Poisoned { reason: format!("the writer has no thread: {error}") });
        }
        Self { handle: WriterHandle { shared }, thread }
    }

    /// A handle.
    #[must_use]
    pub fn handle(&self) -> WriterHandle {
        self.handle.clone()
    }

    /// Finishes what was submitted, closes the log and ends the thread. Later submissions are refused.
    /// # Errors
    /// `Poisoned` if the log had stopped, or did so now.
    pub fn stop(self) -> Result<(), Poisoned> {
        self.handle.shared.lock().stopping = true;
        self.handle.shared.work.notify_all();
        match self.thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(panicked())),
            Err(error) => Err(Poisoned { reason: format!("the writer has no thread: {error}") }),
        }
    }
}

impl WriterHandle {
    /// Hands frames over. `done` runs on the writer's thread once they are durable, or never will be; it must not wait.
    /// After the writer's end it runs here, with an error.
    ///
    /// Submissions that wait together share a batch. If there is no room for one of them, those of its owners that wait
    /// with it behind it are refused as it is, so that an owner's frames have no hole.
    pub fn submit(&self, frames: Vec<Frame>, done: Done) {
        let mut queue = self.shared.lock();
        if let Some(ended) = queue.ended.clone() {
            drop(queue);
            return done(Err(ended.into()));
        }
        queue.work.push_back(Work::Submit(Submission { frames, done: Answer(Some(done)) }));
        drop(queue);
        self.shared.work.notify_one();
    }

    /// Writes and syncs frames here and now, if that is no slower than to hand them over: nobody else waits or writes,
    /// they are small, and the log's last sync was short. Otherwise gives them back, for [`Self::submit`].
    ///
    /// Blocks for one sync of the disk. What is submitted meanwhile goes to the writer's thread afterwards.
    /// # Errors
    /// The frames, if they were not written.
    pub fn write_here(&self, frames: Vec<Frame>) -> Result<Result<Vec<Location>, AppendError>, Vec<Frame>> {
        let bytes: u64 = frames.iter().map(|frame| frame.payload.len() as u64).sum();
        let mut queue = self.shared.lock();
        // The other half is for headers, checksums and whole pages.
        let small = bytes < HERE_BYTES_MAX.min(queue.brief_bytes / 2) && frames.len() <= HERE_FRAMES_MAX;
        if !small || queue.busy || queue.ended.is_some() || queue.has_work() {
            return Err(frames);
        }
        queue.busy = true;
        drop(queue);
        let _here = Here(&self.shared);
        let mut worker = self.shared.worker();
        let Some(worker) = worker.as_mut() else { return Err(frames) };
        let result = worker.write(&frames);
        worker.ask_for_spare(&self.shared);
        worker.publish(&self.shared);
        if let Err(AppendError::Poisoned(poisoned)) = &result {
            self.shared.end(poisoned.clone());
        }
        Ok(result)
    }

    /// As [`Log::release`], in the background; what a full disk kept from being given back is tried again with the next.
    pub fn release(&self, owner: OwnerId, first_needed: u64) {
        self.ask(Work::Release(owner, first_needed));
        self.shared.work.notify_one();
    }

    /// As [`Log::abandon`], with the next round.
    pub fn abandon(&self, owner: OwnerId) {
        self.ask(Work::Abandon(owner));
    }

    /// Has the log look for space on the disk again, if it had none: somebody may have made some.
    pub fn retry_space(&self) {
        self.shared.lock().retry_space = true;
        self.shared.work.notify_one();
    }

    /// Queues what nobody waits for.
    fn ask(&self, work: Work) {
        let mut queue = self.shared.lock();
        if queue.ended.is_none() {
            queue.work.push_back(work);
        }
    }

    /// As [`Log::forget`], in the background; `done` hears on the writer's thread whether it is durable. Drops what was
    /// submitted before, and nothing that is submitted after.
    pub fn forget(&self, owner: OwnerId, done: Forgotten) {
        let mut queue = self.shared.lock();
        if queue.ended.is_some() {
            drop(queue);
            return done(false);
        }
        queue.work.push_back(Work::Forget(owner, Answer(Some(done))));
        drop(queue);
        self.shared.work.notify_one();
    }

    /// As [`Log::oldest_segment_needs`], as it was after the last batch.
    #[must_use]
    pub fn oldest_segment_needs(&self) -> Vec<(OwnerId, u64)> {
        self.shared.lock().needs.clone()
    }

    /// Why the writer takes nothing any more, if it does not: an error of the disk, a panic, or its end.
    #[must_use]
    pub fn ended(&self) -> Option<Poisoned> {
        self.shared.lock().ended.clone()
    }

    /// What was done so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.lock().metrics
    }
}
