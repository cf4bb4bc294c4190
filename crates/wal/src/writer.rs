//! The one thread that appends in production.
//!
//! Group commit is natural: while a sync runs, submissions pile up, and the next batch takes all of them. A lone
//! submission never waits for company.

use crate::log::{Log, SpareJob};
use crate::types::{AppendError, Frame, Location, Poisoned, ReleaseError};
use highwater_base::OwnerId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What is called once frames are durable, or never will be.
pub type Done = Box<dyn FnOnce(Result<Vec<Location>, AppendError>) + Send>;

/// What is called once an owner is forgotten durably, or could not be.
pub type Forgotten = Box<dyn FnOnce(bool) + Send>;

/// Bytes of payload that one batch takes, but for a single larger submission.
///
/// At 1.7 GB/s it is written and synced in about 3 ms, well inside a round's latency target, and larger batches are
/// no faster per byte. Metric: `bytes / batches`.
const BATCH_BYTES_MAX: usize = 4 << 20;

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
    spare: Option<crate::log::SpareDone>,
    stopping: bool,
    /// Nobody takes submissions any more, and why.
    ended: Option<Poisoned>,
    metrics: Metrics,
    needs: Vec<(OwnerId, u64)>,
}

impl Queue {
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

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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
        let shared = Arc::new(Shared::default());
        shared.lock().needs = log.oldest_segment_needs();
        let worker = Worker { log, shared: shared.clone(), spare_thread: None };
        let thread = std::thread::Builder::new().name("wal".to_owned()).spawn(move || worker.run());
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

struct Worker {
    log: Log,
    shared: Arc<Shared>,
    spare_thread: Option<JoinHandle<()>>,
}

/// What one round does.
#[derive(Default)]
struct Round {
    submissions: Vec<Submission>,
    releases: BTreeMap<OwnerId, u64>,
    abandoned: Vec<OwnerId>,
    retry_space: bool,
    forgets: Vec<(OwnerId, Answer<bool>)>,
    spare: Option<crate::log::SpareDone>,
    last: bool,
}

impl Worker {
    fn run(mut self) -> Result<(), Poisoned> {
        let shared = self.shared.clone();
        // Whatever ends this thread, a panic in a callback included, nobody may wait for it in vain.
        let _end = End(shared);
        loop {
            let round = self.next_round();
            let last = round.last;
            let poisoned = self.do_round(round);
            self.publish();
            if let Some(poisoned) = poisoned {
                self.end(poisoned.clone());
                return Err(poisoned);
            }
            if last {
                self.end(Poisoned { reason: "the log was closed".to_owned() });
                return self.log.close();
            }
        }
    }

    fn next_round(&self) -> Round {
        let mut queue = self.shared.lock();
        loop {
            if !queue.work.is_empty() || queue.retry_space || queue.spare.is_some() || queue.stopping {
                return queue.take_round();
            }
            queue = self.shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does a round; the error that ended the log, if one did.
    fn do_round(&mut self, round: Round) -> Option<Poisoned> {
        for owner in round.abandoned {
            self.log.abandon(owner);
        }
        if round.retry_space {
            self.log.retry_space();
        }
        let mut poisoned = self.commit(round.submissions);
        for (owner, first_needed) in round.releases {
            // A full disk keeps the segment; the owner's next release tries again.
            if let Err(ReleaseError::Poisoned(error)) = self.log.release(owner, first_needed) {
                poisoned = Some(error);
            }
        }
        for (owner, done) in round.forgets {
            let forgotten = self.log.forget(owner);
            done.send(forgotten.is_ok());
            if let Err(ReleaseError::Poisoned(error)) = forgotten {
                poisoned = Some(error);
            }
        }
        if let Some(done) = round.spare
            && let Err(error) = self.take_spare(done)
        {
            poisoned = Some(error);
        }
        self.ask_for_spare();
        poisoned
    }

    /// Appends what was submitted, syncs once, and tells everyone.
    fn commit(&mut self, submissions: Vec<Submission>) -> Option<Poisoned> {
        if submissions.is_empty() {
            return None;
        }
        let mut results = self.append(&submissions);
        let mut poisoned = None;
        if let Err(error) = self.log.sync() {
            results.iter_mut().for_each(|result| *result = Err(error.clone().into()));
            poisoned = Some(error);
        }
        let refused = results.iter().filter(|result| matches!(result, Err(AppendError::Full { .. }))).count();
        self.shared.lock().metrics.refused += refused as u64;
        if poisoned.is_none() && self.log.ends_soon() {
            poisoned = self.await_spare().err();
        }
        // Before anyone is told, so that whoever is told finds itself counted, and knows what room there is.
        self.publish();
        for (submission, result) in submissions.into_iter().zip(results) {
            submission.done.send(result);
        }
        poisoned
    }

    fn append(&mut self, submissions: &[Submission]) -> Vec<Result<Vec<Location>, AppendError>> {
        let all: Vec<Frame> = submissions.iter().flat_map(|submission| &submission.frames).cloned().collect();
        match self.log.append(&all) {
            Ok(mut locations) => {
                let mut results = Vec::with_capacity(submissions.len());
                for submission in submissions {
                    let rest = locations.split_off(submission.frames.len());
                    results.push(Ok(std::mem::replace(&mut locations, rest)));
                }
                results
            }
            // One that does not fit must not take the others with it.
            Err(_) if submissions.len() > 1 => {
                let mut refused = BTreeMap::new();
                submissions.iter().map(|submission| self.append_alone(&submission.frames, &mut refused)).collect()
            }
            Err(error) => vec![Err(error)],
        }
    }

    /// Appends one submission, unless an earlier one of an owner of its was refused: a smaller one may fit where that
    /// did not, and the owner's frames would have a hole.
    fn append_alone(
        &mut self,
        frames: &[Frame],
        refused: &mut BTreeMap<OwnerId, AppendError>,
    ) -> Result<Vec<Location>, AppendError> {
        let earlier = frames.iter().find_map(|frame| refused.get(&frame.owner).cloned());
        let result = earlier.map_or_else(|| self.log.append(frames), Err);
        if let Err(error) = &result {
            refused.extend(frames.iter().map(|frame| (frame.owner, error.clone())));
        }
        result
    }

    fn publish(&self) {
        let (metrics, needs) = (self.log.metrics(), self.log.oldest_segment_needs());
        let mut queue = self.shared.lock();
        queue.metrics = Metrics { refused: queue.metrics.refused, ..metrics };
        queue.needs = needs;
    }

    /// Has the next segment's file made on another thread, so that no append waits for it to be zeroed.
    fn ask_for_spare(&mut self) {
        if self.spare_thread.is_some() {
            return;
        }
        let Some(job) = self.log.prepare() else { return };
        let shared = self.shared.clone();
        let make = move |job: SpareJob| {
            let done = job.run();
            shared.lock().spare = Some(done);
            shared.work.notify_one();
        };
        // Without a thread the append that needs the file makes it.
        self.spare_thread = std::thread::Builder::new().name("wal-spare".to_owned()).spawn(move || make(job)).ok();
    }

    /// Nobody may be making files in the directory once the log's lock is gone.
    fn end(&mut self, reason: Poisoned) {
        self.shared.lock().ended = Some(reason);
        self.join_spare_thread();
    }

    /// Waits for the next segment's file: whoever is told after this is not taken by surprise by a full disk. It costs no
    /// more than to wait where the file is needed.
    fn await_spare(&mut self) -> Result<(), Poisoned> {
        self.ask_for_spare();
        self.join_spare_thread();
        let made = self.shared.lock().spare.take();
        made.map_or(Ok(()), |done| self.take_spare(done))
    }

    fn take_spare(&mut self, done: crate::log::SpareDone) -> Result<(), Poisoned> {
        self.join_spare_thread();
        self.log.take_spare(done).map(drop)
    }

    fn join_spare_thread(&mut self) {
        if let Some(thread) = self.spare_thread.take() {
            // A panic there leaves an unfinished file, which the next open removes.
            drop(thread.join());
        }
    }
}

/// Answers whoever still waits when the thread ends.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        let reason = queue.ended.get_or_insert_with(panicked).clone();
        let waiting = std::mem::take(&mut queue.work);
        drop(queue);
        for work in waiting {
            match work {
                Work::Submit(submission) => submission.done.send(Err(reason.clone().into())),
                Work::Forget(_, done) => done.send(false),
                Work::Release(..) | Work::Abandon(_) => {}
            }
        }
    }
}
