//! A node without threads: whoever drives it says when what happens. For simulators and tests.

use crate::api::ReadAnswer;
use crate::config::Config;
use crate::open::{OpenError, Opened, open};
use crate::restored::Mark;
use crate::shard::{Answer, Input, Load, Now, ObjectLocated, Output, ReadLocated, ShardCore, Token};
use crate::storage::{Faults, ScrubStatus, scrub_group};
use bytes::Bytes;
use highwater_base::{GroupId, Millis, Random};
use highwater_control::View;
use highwater_disk::{Disk, File};
use highwater_store::{Checkpoint, ReadError, StoreReader};
use highwater_wal::{Frame, Log};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

/// One node, driven step by step on one thread.
///
/// Frames wait in [`Solo::sync`] and checkpoints in [`Solo::checkpoint`] until they are called, so that a test decides
/// what a crash meets.
pub struct Solo<T> {
    cluster_id: String,
    core: ShardCore<T>,
    log: Log,
    readers: Vec<Option<StoreReader>>,
    appends: VecDeque<Vec<Frame>>,
    checkpoints: VecDeque<(GroupId, Checkpoint)>,
    loads: VecDeque<(GroupId, Load)>,
    loads_held: bool,
    answers: Vec<(T, Answer)>,
    control: Option<Arc<View>>,
    failed: Option<String>,
    monotonic: u64,
    wall: Millis,
    disk: Arc<dyn Disk>,
    data: PathBuf,
    _lock: Arc<dyn File>,
}

impl<T: Token> Solo<T> {
    /// Opens a data directory and starts its groups; they serve after the next [`Self::sync`].
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: &Config, disk: &Arc<dyn Disk>, random: &mut dyn Random) -> Result<Self, OpenError> {
        Self::open_at(config, disk, random, Millis(0))
    }

    /// As [`Self::open`], at a time of the wall clock.
    /// # Errors
    /// [`OpenError`].
    pub fn open_at(
        config: &Config,
        disk: &Arc<dyn Disk>,
        random: &mut dyn Random,
        wall: Millis,
    ) -> Result<Self, OpenError> {
        let Opened { cluster, lock, log, core, readers, .. } = open(config, disk, random)?;
        let mut solo = Self {
            cluster_id: cluster.cluster_id,
            core,
            log,
            readers,
            appends: VecDeque::new(),
            checkpoints: VecDeque::new(),
            loads: VecDeque::new(),
            loads_held: false,
            answers: Vec::new(),
            control: None,
            failed: None,
            monotonic: 0,
            wall,
            disk: Arc::clone(disk),
            data: config.data.clone(),
            _lock: lock,
        };
        let mut out = Vec::new();
        solo.core.start(solo.now(), &mut out);
        solo.take(out);
        Ok(solo)
    }

    /// The cluster's identity.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The core.
    #[must_use]
    pub fn core(&self) -> &ShardCore<T> {
        &self.core
    }

    /// Gives the core inputs, as one turn, and what is not in memory for them, unless that is held back.
    pub fn turn(&mut self, inputs: impl IntoIterator<Item = Input<T>>) {
        self.turn_once(inputs);
        if !self.loads_held {
            self.load();
        }
    }

    /// Holds trips to the index back until [`Self::load`], or does not any more.
    pub fn hold_loads(&mut self, hold: bool) {
        self.loads_held = hold;
    }

    /// Does the trips to the index that wait, and those that they lead to; returns how many.
    pub fn load(&mut self) -> usize {
        let mut done = 0;
        while let Some((group, load)) = self.loads.pop_front() {
            done += 1;
            let result = load.run();
            self.turn_once([Input::Loaded { group, result, took_us: 0 }]);
        }
        done
    }

    /// Whether a trip to the index waits for [`Self::load`].
    #[must_use]
    pub fn loads_waiting(&self) -> bool {
        !self.loads.is_empty()
    }

    fn turn_once(&mut self, inputs: impl IntoIterator<Item = Input<T>>) {
        let (now, mut out) = (self.now(), Vec::new());
        for input in inputs {
            self.core.step(now, input, &mut out);
        }
        self.core.turn(now, &mut out);
        self.take(out);
    }

    /// Sets the wall clock, by which streams expire; [`Self::pass`] moves it on.
    pub fn set_wall(&mut self, wall: Millis) {
        self.wall = wall;
    }

    /// Lets time pass, a tick at each 100 ms.
    pub fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 100 {
            self.monotonic += 100;
            self.wall = self.wall.plus(100);
            self.turn([Input::Tick]);
        }
    }

    /// Appends and syncs what waits for it, and what that leads to, until nothing waits; a full log stays waiting.
    pub fn sync(&mut self) {
        while let Some(frames) = self.appends.pop_front() {
            let appended = self.log.append(&frames);
            let result = appended.and_then(|locations| match self.log.sync() {
                Ok(()) => Ok(locations),
                Err(poisoned) => Err(poisoned.into()),
            });
            self.turn([Input::Appended(result)]);
        }
    }

    /// Makes the log's next file ahead of its need, as its thread does, and tells the core what room there is.
    pub fn make_spare(&mut self) {
        self.log.retry_space();
        if let Some(job) = self.log.prepare()
            && let Err(error) = self.log.take_spare(job.run())
        {
            tracing::debug!(%error, "no file was made");
        }
        self.turn([Input::LogRoom(self.log.room())]);
    }

    /// Batches that wait for [`Self::sync`].
    #[must_use]
    pub fn appends_waiting(&self) -> usize {
        self.appends.len()
    }

    /// Runs the checkpoints that wait, and what they lead to; returns how many succeeded.
    pub fn checkpoint(&mut self) -> usize {
        let mut succeeded = 0;
        while let Some((group, checkpoint)) = self.checkpoints.pop_front() {
            let result = checkpoint.run(&self.log.reader());
            succeeded += usize::from(result.is_ok());
            self.turn([Input::Checkpointed { group, result }]);
        }
        succeeded
    }

    /// Answers since the last call.
    pub fn answers(&mut self) -> Vec<(T, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// What the control plane last published, once it serves.
    #[must_use]
    pub fn control(&self) -> Option<&Arc<View>> {
        self.control.as_ref()
    }

    /// Why the node stopped for good, if it did.
    #[must_use]
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Bytes of the log's segments in use.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Fetches the bytes of a read that was located.
    /// # Errors
    /// `Moved` if it must be located again, or what is wrong.
    pub fn fetch(&self, located: ReadLocated) -> Result<ReadAnswer, ReadError> {
        let reader = self.readers.get(located.group.0 as usize).and_then(Option::as_ref);
        located.fetch(reader)
    }

    /// Fetches bytes of a snapshot's part that were located.
    /// # Errors
    /// `Moved` if they must be located again, or what is wrong.
    pub fn fetch_object(&self, located: &ObjectLocated) -> Result<Bytes, ReadError> {
        let reader = self.readers.get(located.group.0 as usize).and_then(Option::as_ref);
        let missing = || ReadError::Log("the group's files were not opened".to_owned());
        reader.ok_or_else(missing)?.read(&located.plan)
    }

    /// Scrubs everything that is stored; what is damaged, with the streams concerned.
    #[must_use]
    pub fn scrub(&self) -> ScrubStatus {
        let known = Faults::new(0);
        known.began(self.monotonic);
        for (number, reader) in (0..).zip(&self.readers) {
            if let Some(reader) = reader {
                let whole = scrub_group(GroupId(number), reader, &self.core, &mut |_| true, &known);
                debug_assert!(whole.is_some(), "the core answers");
            }
        }
        known.ended(self.monotonic);
        known.status()
    }

    /// Closes the log cleanly.
    /// # Errors
    /// What the log had failed with.
    pub fn close(self) -> Result<(), String> {
        self.log.close().map_err(|poisoned| poisoned.to_string())
    }

    fn now(&self) -> Now {
        Now { monotonic: self.monotonic, wall: self.wall }
    }

    fn take(&mut self, out: Vec<Output<T>>) {
        for output in out {
            match output {
                Output::Answer(token, answer) => self.answers.push((token, answer)),
                Output::Append(frames) => self.appends.push_back(frames),
                Output::Publish(view) => self.control = Some(view),
                Output::Checkpoint(group, checkpoint) => self.checkpoints.push_back((group, checkpoint)),
                Output::Load(group, load) => self.loads.push_back((group, load)),
                Output::Reclaim(reclaim) => drop(reclaim),
                Output::HistoryRecorded => {
                    // One that stays does nothing at the next start.
                    if let Err(error) = Mark::remove(self.disk.as_ref(), &self.data) {
                        tracing::debug!(%error, "the mark was not removed");
                    }
                }
                Output::Release(owner, first_needed) => {
                    // A release that fails is repeated by the next one; a log that failed says so at the next append.
                    if let Err(error) = self.log.release(owner, first_needed) {
                        tracing::debug!(%error, "the log gave nothing back");
                    }
                }
                Output::Abandon(owner) => self.log.abandon(owner),
                Output::Failed(reason) => self.failed = Some(reason),
            }
        }
    }
}
