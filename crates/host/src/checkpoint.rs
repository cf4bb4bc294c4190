//! Checkpoints, spare files and everything else that is done beside the writing: by threads of their own, or by the writer itself
//! where there are none.

use crate::compaction;
use crate::files;
use crate::layout::encode_floor;
use crate::queue::Mail;
use crate::shared::{EVENTS, Shared, blobs_object, row_object, with_object};
use crate::slot::lock;
use crate::worker::Worker;
use highwater_base::OwnerId;
use highwater_pds::AccountId;
use highwater_repo::Cid;
use highwater_store::{Checkpoint, CheckpointDone, CheckpointError, Reclaim};
use highwater_wal::LogReader;
use highwater_wal::log::{SpareDone, SpareJob};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Bytes that a checkpoint moves out of data files that are mostly dead.
const COMPACTION_BYTES_MAX: u64 = 16 << 20;
/// Milliseconds after a failed checkpoint before the next one.
const RETRY_MS: u64 = 5_000;

/// Milliseconds between two looks at the memory that accounts take.
const TRIM_MS: u64 = 1_000;

/// What is done beside the writing.
pub(crate) enum Job {
    Spare(SpareJob),
    /// A checkpoint, the log that it reads, and the floor to be written when it is durable.
    Checkpoint(Box<Checkpoint>, LogReader, u64),
    Reclaim(Reclaim),
    /// Write an account's blocks together.
    Compact(AccountId),
    /// Remove a blob's file, if there is no row of it.
    RemoveBlob(AccountId, Cid),
}

/// Without it no checkpoint ends and the log fills: a panic of it stops the server, which a restart recovers.
struct Loud(Arc<Shared>);

impl Drop for Loud {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = "the helper of the server's writer panicked";
            self.0.queue.end(why);
            self.0.ring.close(why);
        }
    }
}

/// The threads for it. Compactions have one of their own: they wait for turns, which wait for room in the log, which waits for a
/// checkpoint.
pub(crate) struct Helper {
    lanes: Option<[mpsc::Sender<Job>; 2]>,
    threads: Vec<JoinHandle<()>>,
}

impl Helper {
    pub fn spawn(shared: &Arc<Shared>) -> std::io::Result<Self> {
        let (jobs, helper) = lane(shared, "pds-helper")?;
        let (compactions, compactor) = lane(shared, "pds-compactor")?;
        Ok(Self { lanes: Some([jobs, compactions]), threads: vec![helper, compactor] })
    }

    fn give(&self, job: Job) {
        let Some([jobs, compactions]) = &self.lanes else { return };
        let lane = if matches!(job, Job::Compact(_)) { compactions } else { jobs };
        drop(lane.send(job));
    }

    /// Nothing more is given.
    fn close(&mut self) {
        self.lanes = None;
    }

    fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

/// A thread that does what it is given, in order.
fn lane(shared: &Arc<Shared>, name: &str) -> std::io::Result<(mpsc::Sender<Job>, JoinHandle<()>)> {
    let (jobs, queue) = mpsc::channel();
    let shared = Arc::clone(shared);
    let run = move || {
        let _loud = Loud(Arc::clone(&shared));
        while let Ok(job) = queue.recv() {
            if let Some(mail) = run(&shared, job, true) {
                shared.queue.tell(mail);
            }
        }
    };
    Ok((jobs, std::thread::Builder::new().name(name.into()).spawn(run)?))
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(event = "thread_panicked", "a helper of the server of accounts had panicked");
            }
        }
    }
}

/// Does a job; what the writer is to be told of it.
fn run(shared: &Arc<Shared>, job: Job, may_wait: bool) -> Option<Mail> {
    match job {
        Job::Spare(job) => Some(Mail::Spare(job.run())),
        Job::Checkpoint(checkpoint, log, floor) => {
            let result = checkpoint.run(&log);
            if result.is_ok() {
                write_floor(shared, floor);
                shared.witnesses.write(shared);
            }
            Some(Mail::Checkpointed(result))
        }
        Job::Reclaim(reclaim) => {
            drop(reclaim);
            None
        }
        Job::Compact(account) => {
            compaction::compact(shared, account, may_wait);
            None
        }
        Job::RemoveBlob(account, cid) => {
            if let Err(error) = shared.blob_files.settle(account, cid, || shared.holds_blob(account, &cid)) {
                tracing::warn!(event = "blob_not_removed", account = account.0, %cid, %error, "the next start tries again");
            }
            None
        }
    }
}

/// The file beside the log is one source of several: the log and the checkpoint say the same.
fn write_floor(shared: &Shared, floor: u64) {
    let path = shared.paths.floor();
    if let Err(error) = files::replace(&*shared.disk, &path, &encode_floor(floor)) {
        tracing::warn!(event = "floor_not_written", path = %path.display(), %error, "the next checkpoint writes it again");
    }
}

impl Worker {
    /// Has something done beside the writing.
    pub(crate) fn give(&mut self, job: Job) {
        match &self.helper {
            Some(helper) => helper.give(job),
            None => match run(&self.shared, job, false) {
                Some(Mail::Spare(done)) => self.take_spare(done),
                Some(Mail::Checkpointed(result)) => self.end_checkpoint(result),
                Some(Mail::Checkpoint(_)) | None => {}
            },
        }
    }

    pub(crate) fn take_spare(&mut self, done: SpareDone) {
        self.making_spare = false;
        if let Err(poisoned) = self.log.take_spare(done) {
            self.fail(&poisoned.reason);
        }
    }

    /// Looks after what is due.
    pub(crate) fn keep_house(&mut self) {
        if self.shared.queue.ended().is_some() {
            return;
        }
        if !self.making_spare
            && let Some(job) = self.log.prepare()
        {
            self.making_spare = true;
            self.give(Job::Spare(job));
        }
        let now = self.shared.clock.monotonic();
        if now.saturating_sub(self.trimmed) >= TRIM_MS {
            self.trimmed = now;
            let memory = self.shared.slots.trim(self.shared.options.memory_bytes_max);
            lock(&self.shared.figures).memory_bytes = memory;
        }
        for account in std::mem::take(&mut self.crowded) {
            self.give(Job::Compact(account));
        }
        self.shared.log_long.store(self.is_log_long(), Ordering::Release);
        if self.is_checkpoint_due() {
            self.begin_checkpoint();
        }
    }

    /// Before the log is full: what it holds can be given back only behind a checkpoint.
    fn is_log_long(&self) -> bool {
        self.log.bytes() > self.shared.options.log.log_bytes_max / 2
    }

    fn is_checkpoint_due(&self) -> bool {
        let store = lock(&self.shared.store);
        if store.checkpoint_running() {
            return false;
        }
        if !self.checkpoint_waits.is_empty() {
            return true;
        }
        let since = self.shared.clock.monotonic().saturating_sub(self.checkpointed.1);
        let changed = self.lsn > self.checkpointed.0;
        let options = &self.shared.options;
        let due = self.is_log_long()
            || store.unmoved_bytes() >= options.checkpoint_bytes
            || since >= options.checkpoint_seconds * 1_000;
        changed && due && !(self.checkpoint_failed && since < RETRY_MS)
    }

    /// Everything up to now, to be stored.
    fn checkpoint(&mut self) -> Job {
        let now = self.shared.now();
        let options = &self.shared.options;
        let mut state = self.shared.state_mut();
        let mut store = lock(&self.shared.store);
        if let Some(front) = state.expire(now, options.retention_seconds, options.events_bytes_max) {
            with_object(&mut store, EVENTS).release_front(EVENTS, front);
        }
        let changed = state.take_changed();
        let rows = changed.rows.into_iter().map(|(account, row)| (row_object(account), Some(row)));
        let lists = changed.blobs.into_iter().map(|(account, list)| (blobs_object(account), list));
        let changed = rows.chain(lists).collect();
        let (meta, floor) = (state.encode_rest(), state.sequence.ceiling());
        let checkpoint = store.begin_compaction(self.lsn, meta, changed, COMPACTION_BYTES_MAX);
        Job::Checkpoint(Box::new(checkpoint), self.log.reader(), floor)
    }

    pub(crate) fn begin_checkpoint(&mut self) {
        self.checkpointed.1 = self.shared.clock.monotonic();
        // Whoever asks while it runs may have been told of writes that it does not hold, and waits for the next one.
        self.checkpoint_answers.append(&mut self.checkpoint_waits);
        let job = self.checkpoint();
        self.give(job);
    }

    pub(crate) fn end_checkpoint(&mut self, result: Result<CheckpointDone, CheckpointError>) {
        let result = match result {
            Ok(done) => {
                self.checkpointed.0 = done.applied();
                let reclaim = lock(&self.shared.store).finish_checkpoint(done);
                self.give(Job::Reclaim(reclaim));
                // A full disk keeps the segments; the next checkpoint tries again.
                if let Err(highwater_wal::ReleaseError::Poisoned(poisoned)) =
                    self.log.release(OwnerId::PDS, self.checkpointed.0 + 1)
                {
                    self.fail(&poisoned.reason);
                }
                self.log.retry_space();
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                if error.is_damage() {
                    tracing::error!(event = "checkpoint_failed", why, "stored bytes are damaged: restore a copy");
                } else {
                    tracing::warn!(event = "checkpoint_failed", why, "the log keeps everything; it is tried again");
                }
                lock(&self.shared.store).fail_checkpoint(error);
                Err(why)
            }
        };
        self.checkpoint_failed = result.is_err();
        let mut figures = lock(&self.shared.figures);
        figures.checkpoints += u64::from(result.is_ok());
        figures.checkpoint_error = result.clone().err();
        figures.log = self.log.metrics();
        drop(figures);
        for done in std::mem::take(&mut self.checkpoint_answers) {
            done(result.clone());
        }
    }

    /// Ends in order: everything that is durable is stored, and the log is closed.
    /// # Errors
    /// Why not; the next start finds everything in the log.
    pub fn stop(mut self) -> Result<(), String> {
        self.shared.queue.stop();
        self.shared.log_long.store(false, Ordering::Release);
        if let Some(helper) = &mut self.helper {
            helper.close();
        }
        loop {
            // It may wait for turns of its own, so that they are done while it ends.
            let ended = self.helper.as_ref().is_none_or(Helper::has_ended);
            let batch = self.shared.queue.take();
            let last = batch.last;
            self.read_mail(batch.mail);
            self.commit(batch.turns);
            if ended && last || self.shared.queue.ended().is_some() {
                break;
            }
            if !ended {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        self.helper = None;
        if let Some(why) = self.shared.queue.ended() {
            return Err(why);
        }
        if self.lsn > self.checkpointed.0 || !self.checkpoint_waits.is_empty() {
            self.begin_checkpoint();
        }
        let failed = lock(&self.shared.figures).checkpoint_error.clone();
        self.shared.queue.end("it was stopped");
        self.shared.ring.close("the server stops");
        let Self { log, .. } = self;
        log.close().map_err(|poisoned| poisoned.reason)?;
        failed.map_or(Ok(()), Err)
    }
}
