//! The thread that moves data files to the object store, brings back those that are mostly dead, and deletes objects that
//! nothing needs.
//!
//! It alone writes to the object store, one file at a time. When something fails it waits, longer each time, and looks anew.

use super::{Loud, Mail, Reply, Shard, Shared};
use crate::cold::{Cold, ColdOptions, Standing};
use crate::shard::ShardCore;
use highwater_base::GroupId;
use highwater_store::{ColdPlan, Erased, MoveError, Outward, StoreReader};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Milliseconds that it waits after failures in a row.
const RETRY_MS_MIN: u64 = 1_000;
const RETRY_MS_MAX: u64 = 60_000;

/// Time that is owed at the most before it is slept.
const DEBT: Duration = Duration::from_millis(10);

/// How long a shutdown waits for it: an object store that does not answer keeps no server from stopping.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// The thread.
pub(crate) struct Mover {
    stop: mpsc::Sender<()>,
    stopping: Arc<AtomicBool>,
    ended: mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Mover {
    pub fn spawn(
        options: ColdOptions,
        cold: Cold,
        standing: Arc<Standing>,
        shared: Arc<Shared>,
        shard: Arc<Shard>,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let stopping = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stopping);
        let run = move || {
            let _loud = Loud { shard: Arc::clone(&shard), name: "mover" };
            // Dropped when the thread ends, however it does.
            let _end = end;
            let throttle = Throttle {
                bytes_per_second: options.bytes_per_second.max(1),
                debt: Duration::ZERO,
                stopped,
                stopping: flag,
            };
            Moving { options, cold, standing, shard, shared, throttle }.run();
        };
        let thread = std::thread::Builder::new().name("mover".to_owned()).spawn(run)?;
        Ok(Self { stop, stopping, ended, thread })
    }

    /// Stops it. One that waits for an object store which does not answer is left behind; it writes nothing any more.
    pub fn stop(self) {
        self.stopping.store(true, Ordering::Relaxed);
        drop(self.stop);
        match self.ended.recv_timeout(STOP_PATIENCE) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                tracing::warn!(event = "object_store_unreachable", "a move to the object store was left where it was");
            }
            _ if self.thread.join().is_err() => {
                tracing::error!(event = "thread_panicked", "a thread of the node had panicked");
            }
            _ => {}
        }
    }
}

/// Keeps to the bandwidth, and hears of the end.
struct Throttle {
    bytes_per_second: u64,
    debt: Duration,
    stopped: mpsc::Receiver<()>,
    stopping: Arc<AtomicBool>,
}

impl Throttle {
    /// Waits until so many bytes may pass; `false` if it is to stop.
    fn pace(&mut self, bytes: u64) -> bool {
        self.debt += Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        if self.debt < DEBT {
            return !self.stopping.load(Ordering::Relaxed);
        }
        let debt = std::mem::take(&mut self.debt);
        self.sleep(debt)
    }

    fn sleep(&self, time: Duration) -> bool {
        matches!(self.stopped.recv_timeout(time), Err(mpsc::RecvTimeoutError::Timeout))
    }
}

/// Why a look at the files came to no end.
enum Broken {
    Stopped,
    Failed(String),
}

impl From<MoveError> for Broken {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Stopped => Self::Stopped,
            other => Self::Failed(other.to_string()),
        }
    }
}

struct Moving {
    options: ColdOptions,
    cold: Cold,
    standing: Arc<Standing>,
    shard: Arc<Shard>,
    shared: Arc<Shared>,
    throttle: Throttle,
}

/// A group's reader and what may be done in it.
struct Planned {
    reader: StoreReader,
    plan: ColdPlan,
}

impl Moving {
    fn run(mut self) {
        let mut wait_ms = self.options.interval_ms.min(RETRY_MS_MIN);
        let mut retry_ms = RETRY_MS_MIN;
        while self.throttle.sleep(Duration::from_millis(wait_ms)) {
            match self.look() {
                Ok(()) => {
                    (wait_ms, retry_ms) = (self.options.interval_ms, RETRY_MS_MIN);
                    if self.standing.succeeded() {
                        tracing::info!(
                            event = "object_store_recovered",
                            place = self.cold_place(),
                            "the object store is used again"
                        );
                    }
                }
                Err(Broken::Stopped) => return,
                Err(Broken::Failed(error)) => {
                    if self.standing.failed(self.shared.clock.wall().0, &error) {
                        tracing::warn!(event = "object_store_failed", %error, "files stay where they are; it is tried again, at longer and longer intervals");
                    }
                    (wait_ms, retry_ms) = (retry_ms, (retry_ms * 2).min(RETRY_MS_MAX));
                }
            }
        }
    }

    fn cold_place(&self) -> String {
        self.options.store.0.place()
    }

    /// Looks at every group once and does what there is to do.
    fn look(&mut self) -> Result<(), Broken> {
        let mut groups = self.plans().ok_or(Broken::Stopped)?;
        let (plans, of) =
            (&groups, |of: fn(&ColdPlan) -> u64, plans: &[Planned]| plans.iter().map(|p| of(&p.plan)).sum());
        let mut local: u64 = of(|plan| plan.local_bytes, plans);
        {
            let mut status = self.standing.lock();
            status.local_bytes = local;
            status.files = of(|plan| plan.cold_files, plans);
            status.bytes = of(|plan| plan.cold_bytes, plans);
            status.erasures_held = self.shared.looks_restored;
        }
        let wanted = |p: &Planned| !p.plan.erasable.is_empty() || !p.plan.recalls.is_empty();
        if local <= self.options.local_bytes_max && !groups.iter().any(wanted) {
            // Even so it should be known whether it answers, before it is needed.
            return if self.cold.tier.is_ours() { Ok(()) } else { self.claim() };
        }
        self.claim()?;
        for Planned { reader, plan } in &mut groups {
            // What looks like a copy may share objects with the original.
            for file in plan.erasable.drain(..).filter(|_| !self.shared.looks_restored) {
                self.erase(reader, file)?;
            }
            for file in plan.recalls.drain(..) {
                local += self.recall(reader, file)?;
            }
        }
        self.move_oldest(groups, local)
    }

    fn claim(&self) -> Result<(), Broken> {
        self.cold.tier.claim().map_err(|error| Broken::Failed(error.to_string()))
    }

    fn erase(&self, reader: &StoreReader, file: u32) -> Result<(), Broken> {
        match reader.erase(file, self.cold.life)? {
            Erased::Deleted => self.standing.lock().erased_objects += 1,
            Erased::Left => {
                tracing::info!(
                    event = "object_left",
                    file,
                    "an object of an earlier life is not needed here any more and was left"
                );
            }
            Erased::Kept => {}
        }
        Ok(())
    }

    fn recall(&mut self, reader: &StoreReader, file: u32) -> Result<u64, Broken> {
        let throttle = &mut self.throttle;
        let Some(bytes) = reader.bring_back(file, &mut |bytes| throttle.pace(bytes))? else { return Ok(0) };
        self.standing.lock().recalled_files += 1;
        tracing::info!(event = "file_recalled", file, bytes, "a mostly dead file came back from the object store");
        Ok(bytes)
    }

    /// Moves the oldest files of all groups until what is left is within its bound.
    fn move_oldest(&mut self, groups: Vec<Planned>, mut local: u64) -> Result<(), Broken> {
        let mut candidates = Vec::new();
        if local > self.options.local_bytes_max {
            for (group, Planned { reader, plan }) in groups.iter().enumerate() {
                candidates.extend(plan.candidates.iter().map(|c| (reader.changed_ns(c.file), c.file, group)));
            }
        }
        candidates.sort_unstable();
        let mut kept = 0;
        for (_, file, group) in candidates {
            if local <= self.options.local_bytes_max {
                break;
            }
            let nonce = self.shared.random.lock().unwrap_or_else(PoisonError::into_inner).next_u64();
            let outward = Outward { life: self.cold.life, nonce };
            let throttle = &mut self.throttle;
            match groups[group].reader.move_outward(file, outward, &mut |bytes| throttle.pace(bytes)) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    local = local.saturating_sub(bytes);
                    let mut status = self.standing.lock();
                    status.moved_files += 1;
                    status.moved_bytes += bytes;
                    status.files += 1;
                    status.bytes += bytes;
                    status.local_bytes = local;
                    drop(status);
                    tracing::info!(event = "file_moved", group, file, bytes, "a data file moved to the object store");
                }
                // The scrub and the reads tell of it; here it only means that this file does not move.
                Err(MoveError::Damaged { .. }) => kept += 1,
                Err(error) => return Err(error.into()),
            }
        }
        self.standing.lock().files_kept = kept;
        Ok(())
    }

    /// What may be done in each group that is up; `None` if the shard has ended.
    fn plans(&self) -> Option<Vec<Planned>> {
        let mut plans = Vec::new();
        for (id, reader) in (0..).map(GroupId).zip(&self.shared.readers) {
            let Some(reader) = reader.clone() else { continue };
            let (sender, receiver) = mpsc::channel();
            let question = move |core: &ShardCore<Reply>| drop(sender.send(core.cold_plan(id)));
            self.shard.post(Mail::Ask(Box::new(question)));
            if let Some(plan) = receiver.recv().ok()? {
                plans.push(Planned { reader, plan });
            }
        }
        Some(plans)
    }
}
