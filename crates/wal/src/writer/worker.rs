//! Rounds of work on the log, done by the writer's thread or by whoever writes where they are.

use super::{Answer, Shared, Submission, panicked};
use crate::log::{Log, SpareDone, SpareJob};
use crate::types::{AppendError, Frame, Location, Poisoned, ReleaseError};
use crate::writer::Metrics;
use highwater_base::OwnerId;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest sync of a disk that a caller is made to wait for where it is. A thread that serves others too should be
/// back within about a millisecond; behind a slower disk the price of a hand-over does not show.
const SYNC_BRIEF: Duration = Duration::from_millis(1);

/// The log and what is needed to write it.
pub(super) struct Worker {
    log: Log,
    spare_thread: Option<JoinHandle<()>>,
    /// How long the last sync took.
    sync_last: Duration,
}

/// What one round does.
#[derive(Default)]
pub(super) struct Round {
    pub submissions: Vec<Submission>,
    pub releases: BTreeMap<OwnerId, u64>,
    pub abandoned: Vec<OwnerId>,
    pub retry_space: bool,
    pub forgets: Vec<(OwnerId, Answer<bool>)>,
    pub spare: Option<SpareDone>,
    pub last: bool,
}

/// The writer's thread.
pub(super) fn run(shared: &Arc<Shared>) -> Result<(), Poisoned> {
    // Whatever ends this thread, a panic in a callback included, nobody may wait for it in vain, and the log is let go.
    let _end = End(shared);
    let ended = loop {
        let round = match next_round(shared) {
            Ok(round) => round,
            Err(poisoned) => break poisoned,
        };
        let last = round.last;
        let mut slot = shared.worker();
        let Some(worker) = slot.as_mut() else { return Err(panicked()) };
        let poisoned = worker.do_round(round, shared);
        worker.publish(shared);
        if let Some(poisoned) = poisoned {
            break poisoned;
        }
        if last && let Some(mut worker) = slot.take() {
            shared.lock().ended = Some(Poisoned { reason: "the log was closed".to_owned() });
            worker.join_spare_thread();
            return worker.log.close();
        }
    };
    shared.lock().ended = Some(ended.clone());
    // Nobody may be making files in the directory once the log's lock is gone.
    if let Some(mut worker) = shared.worker().take() {
        worker.join_spare_thread();
    }
    Err(ended)
}

/// Waits for work and for the right to do it.
fn next_round(shared: &Shared) -> Result<Round, Poisoned> {
    let mut queue = shared.lock();
    queue.busy = false;
    loop {
        if let Some(ended) = &queue.ended {
            return Err(ended.clone());
        }
        if !queue.busy && queue.has_work() {
            queue.busy = true;
            return Ok(queue.take_round());
        }
        queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Worker {
    pub fn new(log: Log) -> Self {
        Self { log, spare_thread: None, sync_last: Duration::ZERO }
    }

    /// Appends one submission and syncs it.
    pub fn write(&mut self, frames: &[Frame]) -> Result<Vec<Location>, AppendError> {
        let locations = self.log.append(frames)?;
        self.sync()?;
        Ok(locations)
    }

    fn sync(&mut self) -> Result<(), Poisoned> {
        let begun = Instant::now();
        let result = self.log.sync();
        self.sync_last = begun.elapsed();
        result
    }

    /// Does a round; the error that ended the log, if one did.
    fn do_round(&mut self, round: Round, shared: &Arc<Shared>) -> Option<Poisoned> {
        for owner in round.abandoned {
            self.log.abandon(owner);
        }
        if round.retry_space {
            self.log.retry_space();
        }
        let mut poisoned = self.commit(round.submissions, shared);
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
        self.ask_for_spare(shared);
        poisoned
    }

    /// Appends what was submitted, syncs once, and tells everyone.
    fn commit(&mut self, submissions: Vec<Submission>, shared: &Arc<Shared>) -> Option<Poisoned> {
        if submissions.is_empty() {
            return None;
        }
        let mut results = self.append(&submissions);
        let mut poisoned = None;
        if let Err(error) = self.sync() {
            results.iter_mut().for_each(|result| *result = Err(error.clone().into()));
            poisoned = Some(error);
        }
        let refused = results.iter().filter(|result| matches!(result, Err(AppendError::Full { .. }))).count();
        shared.lock().metrics.refused += refused as u64;
        if poisoned.is_none() && self.log.ends_soon() {
            poisoned = self.await_spare(shared).err();
        }
        // Before anyone is told, so that whoever is told finds itself counted, and knows what room there is.
        self.publish(shared);
        for (submission, result) in submissions.into_iter().zip(results) {
            submission.done.send(result);
        }
        poisoned
    }

    fn append(&mut self, submissions: &[Submission]) -> Vec<Result<Vec<Location>, AppendError>> {
        if let [alone] = submissions {
            return vec![self.log.append(&alone.frames)];
        }
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
            Err(_) => {
                let mut refused = BTreeMap::new();
                submissions.iter().map(|submission| self.append_alone(&submission.frames, &mut refused)).collect()
            }
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

    /// Tells how the log stands.
    pub fn publish(&self, shared: &Shared) {
        let (metrics, needs) = (self.log.metrics(), self.log.oldest_segment_needs());
        let brief_bytes = if self.sync_last <= SYNC_BRIEF { self.log.bytes_at_once() } else { 0 };
        let mut queue = shared.lock();
        queue.metrics = Metrics { refused: queue.metrics.refused, ..metrics };
        queue.needs = needs;
        queue.brief_bytes = brief_bytes;
    }

    /// Has the next segment's file made on another thread, so that no append waits for it to be zeroed.
    pub fn ask_for_spare(&mut self, shared: &Arc<Shared>) {
        if self.spare_thread.is_some() {
            return;
        }
        let Some(job) = self.log.prepare() else { return };
        let shared = Arc::clone(shared);
        let make = move |job: SpareJob| {
            let done = job.run();
            shared.lock().spare = Some(done);
            shared.work.notify_one();
        };
        // Without a thread the append that needs the file makes it.
        self.spare_thread = std::thread::Builder::new().name("wal-spare".to_owned()).spawn(move || make(job)).ok();
    }

    /// Waits for the next segment's file: whoever is told after this is not taken by surprise by a full disk. It costs no
    /// more than to wait where the file is needed.
    fn await_spare(&mut self, shared: &Arc<Shared>) -> Result<(), Poisoned> {
        self.ask_for_spare(shared);
        self.join_spare_thread();
        let made = shared.lock().spare.take();
        made.map_or(Ok(()), |done| self.take_spare(done))
    }

    fn take_spare(&mut self, done: SpareDone) -> Result<(), Poisoned> {
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
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        drop(self.0.worker().take());
        self.0.end(panicked());
    }
}
