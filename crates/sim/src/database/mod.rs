//! One process with one bound database: the real engine and the real replicator, on a simulated disk.

pub mod commit;
pub mod model;
pub mod pages;
pub mod replicate;
pub mod restore;

use crate::invariants::{Checked, Invariant, hold};
use crate::message::Ask;
use crate::oracle::Oracle;
use crate::oracle::batches::Lineage;
use crate::server::Death;
use crate::trace::Trace;
use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_disk::{Disk, SimDisk};
use highwater_sqlite::bind::{BindOptions, BoundStream, bind_as};
use highwater_sqlite::engine::{Engine, OpenError, OpenOptions, StopReason};
use highwater_sqlite::replicator::machine::{Machine, Start};
use model::{Image, Model, Page};
use replicate::Replicator;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Where the database lies on its disk.
pub const FILE: &str = "/db/app.db";

/// What a step of a database needs of the world.
pub struct Context<'a> {
    /// Virtual milliseconds.
    pub now_ms: u64,
    /// The oracle.
    pub oracle: &'a mut Oracle,
    /// The trace.
    pub trace: &'a mut Trace,
    /// Requests to send, each answered later.
    pub asks: &'a mut Vec<Ask>,
}

/// A copy of a database's files, and what the log's history was then.
struct Backup {
    disk: SimDisk,
    images: BTreeMap<u64, Image>,
    last: u64,
    /// What of it the copy holds durably: it holds what was not synced as the original did.
    durable: u64,
}

/// One database.
pub struct Database {
    /// Its number.
    pub index: usize,
    /// Its stream.
    pub stream: String,
    /// Its disk.
    pub disk: SimDisk,
    /// How the machine dies when its disk stops at a chosen operation.
    pub death_at_stop: Death,
    /// The process does nothing before this moment.
    pub paused_until_ms: u64,
    random: SplitMix,
    page_size: u32,
    lineage: Lineage,
    engine: Option<Arc<Engine>>,
    replicator: Option<Replicator>,
    /// What the database file is known to hold, so that a checkpoint writes only what changed.
    on_file: Option<Image>,
    lost_power: bool,
    retired: Option<StopReason>,
    backup: Option<Backup>,
    restored_from: RestoredFrom,
}

/// What the stream held when a log began.
#[derive(Debug, Clone, Copy, Default)]
struct RestoredFrom {
    claims: usize,
    /// Its end, in bytes.
    end: u64,
}

impl Database {
    /// Binds a new database to a stream that exists and is empty.
    ///
    /// # Panics
    /// If binding fails; nothing is wrong yet at this moment.
    #[must_use]
    pub fn bound(
        index: usize,
        path: &str,
        stream: &BoundStream,
        page_size: u32,
        seed: u64,
        oracle: &mut Oracle,
    ) -> Self {
        let mut this = Self::new(index, path, page_size, seed);
        let options = BindOptions { page_size, auto_vacuum: 0 };
        let disk = this.handle();
        make_place(&*disk).expect("a sound disk");
        bind_as(&disk, Path::new(FILE), options, stream, lineage(&mut this.random), &mut |_, _| {})
            .expect("a sound disk");
        let engine = Engine::open(disk, Path::new(FILE), this.options()).expect("a sound disk");
        let image = read_image(&engine).expect("a sound disk");
        this.lineage = engine.binding().lineage;
        let last = engine.progress().last_lsn;
        oracle.databases.insert(this.lineage, Model::new(last, image));
        drop(engine);
        this.disk.crash_process();
        this
    }

    fn new(index: usize, stream: &str, page_size: u32, seed: u64) -> Self {
        Self {
            index,
            stream: stream.to_owned(),
            disk: SimDisk::new(seed),
            death_at_stop: Death::Power,
            paused_until_ms: 0,
            random: SplitMix::new(seed ^ 0xdb),
            page_size,
            lineage: Lineage::default(),
            engine: None,
            replicator: None,
            on_file: None,
            lost_power: false,
            retired: None,
            backup: None,
            restored_from: RestoredFrom::default(),
        }
    }

    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.clone())
    }

    fn options(&self) -> OpenOptions {
        OpenOptions { max_pending_bytes: 256 << 10, sync_close_ms: 0, timer: false, segment_bytes: 64 << 10 }
    }

    /// The name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        format!("database {}", self.index)
    }

    /// The local log's name.
    #[must_use]
    pub fn lineage(&self) -> Lineage {
        self.lineage
    }

    /// Whether its process runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// Why it serves no more, for good.
    #[must_use]
    pub fn retired(&self) -> Option<&StopReason> {
        self.retired.as_ref()
    }

    /// Whether it serves no more, for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let stopped = self.engine.as_ref().and_then(|engine| engine.stop_reason());
        self.retired.is_some() || stopped.is_some_and(|reason| reason.code.is_reset())
    }

    fn model<'a>(&self, oracle: &'a mut Oracle) -> &'a mut Model {
        oracle.databases.entry(self.lineage).or_default()
    }

    /// Opens the engine; nothing if it does not open now, or never will again.
    fn open(&mut self, context: &mut Context<'_>) -> Checked<Option<Arc<Engine>>> {
        let mut again = false;
        loop {
            let error = match Engine::open(self.handle(), Path::new(FILE), self.options()) {
                Ok(engine) => return Ok(Some(engine)),
                Err(OpenError::Reset { reason, .. }) => {
                    context.trace.note(context.now_ms, format_args!("{} is reset: {reason}", self.name()));
                    self.retired = Some(reason);
                    return Ok(None);
                }
                Err(error) => error,
            };
            context.trace.note(context.now_ms, format_args!("{} does not start: {error}", self.name()));
            if self.disk.stopped() {
                self.die(self.death_at_stop);
                return Ok(None);
            }
            self.disk.crash_process();
            if matches!(error, OpenError::Io { .. }) {
                return Ok(None);
            }
            // Whatever it believes of its files, a disk that works must convince it otherwise.
            hold(Invariant::ConfirmedSurvives, !again, || format!("{}: {error}", self.name()))?;
            self.disk.clear_faults();
            again = true;
        }
    }

    /// Starts the process: recovery, and a replicator that has sent nothing yet.
    /// # Errors
    /// `ConfirmedSurvives` if it does not come back as it must.
    pub fn start(&mut self, context: &mut Context<'_>) -> Checked {
        if self.is_up() || self.retired.is_some() {
            return Ok(());
        }
        let Some(engine) = self.open(context)? else { return Ok(()) };
        let progress = engine.progress();
        let Ok(image) = read_image(&engine) else {
            // The disk fails again; the next start looks.
            drop(engine);
            self.disk.crash_process();
            return Ok(());
        };
        let (name, lost_power) = (self.name(), self.lost_power);
        let before = self.model(context.oracle).last;
        self.model(context.oracle).recovered(&name, progress.last_lsn, lost_power, &image)?;
        if lost_power {
            context.trace.meet("a database was recovered after a loss of power");
        }
        if progress.last_lsn < before {
            context.trace.meet("a database lost commits that nobody had");
        }
        if progress.last_lsn > before {
            context.trace.meet("an unconfirmed commit survived");
        }
        self.check_ahead(context.oracle, progress.last_lsn)?;
        self.lost_power = false;
        self.on_file = Some(image);
        let binding = engine.binding();
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
        let line =
            format_args!("{name} is up with {} commits, {} acknowledged", progress.last_lsn, progress.acknowledged_lsn);
        context.trace.note(context.now_ms, line);
        self.replicator = Some(Replicator::new(machine, self.random.next_u64()));
        self.engine = Some(engine);
        Ok(())
    }

    /// Whatever the stream holds of this log, the log must still hold.
    fn check_ahead(&self, oracle: &Oracle, last: u64) -> Checked {
        let Some(batches) = oracle.batches(&self.stream) else { return Ok(()) };
        let model = oracle.databases.get(&self.lineage);
        if model.is_none_or(|model| model.rewound) || batches.owner_of(batches.lsn()) != Some(self.lineage) {
            return Ok(());
        }
        hold(Invariant::ConfirmedSurvives, batches.lsn() <= last, || {
            format!("{} came back with {last} commits, its stream has {}", self.name(), batches.lsn())
        })
    }

    /// The process or the machine dies.
    pub fn die(&mut self, death: Death) {
        self.engine = None;
        self.replicator = None;
        self.on_file = None;
        match death {
            Death::Process => self.disk.crash_process(),
            Death::Power => {
                self.disk.power_loss();
                self.lost_power = true;
            }
        }
    }

    /// Whether the process must end now: the disk stopped, or the engine says to open it again.
    #[must_use]
    pub fn must_die(&self) -> Option<Death> {
        let engine = self.engine.as_ref()?;
        match (self.disk.stopped(), engine.stop_reason()) {
            (true, _) => Some(self.death_at_stop),
            (false, Some(reason)) if !reason.code.is_reset() => Some(Death::Process),
            (false, _) => None,
        }
    }

    /// Ends the process in good order.
    pub fn close(&mut self, oracle: &mut Oracle) {
        if let Some(engine) = self.engine.take() {
            engine.close();
            let sound = !self.disk.stopped();
            drop(engine);
            if sound {
                self.model(oracle).cut();
            }
        }
        self.die(Death::Process);
    }

    /// Takes a copy of the files, as a backup program would of a database that is closed or crashed.
    pub fn back_up(&mut self, oracle: &Oracle) {
        let Some(model) = oracle.databases.get(&self.lineage) else { return };
        let disk = self.disk.fork(self.random.next_u64());
        self.backup = Some(Backup { disk, images: model.images().clone(), last: model.last, durable: model.durable });
    }

    /// Puts the copy in the place of the files; `false` if there is none. The process must be down.
    pub fn put_back(&mut self, oracle: &mut Oracle) -> bool {
        let Some(backup) = self.backup.take() else { return false };
        self.disk = backup.disk;
        self.lost_power = false;
        self.model(oracle).rewind(backup.images, backup.last, backup.durable);
        true
    }

    /// Whether nothing is pending and nobody waits, as the engine and the replicator see it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let (Some(engine), Some(replicator)) = (&self.engine, &self.replicator) else { return false };
        let progress = engine.progress();
        progress.acknowledged_lsn == progress.last_lsn && replicator.promises() == 0
    }

    /// One line about it.
    #[must_use]
    pub fn describe(&self) -> String {
        let progress = self.engine.as_ref().map(|engine| engine.progress());
        let machine = self.replicator.as_ref().map(Replicator::describe);
        format!("{}: {progress:?}, {machine:?}, retired: {:?}", self.name(), self.retired)
    }
}

/// A name for a new log.
fn lineage(random: &mut SplitMix) -> Lineage {
    let mut lineage = Lineage::default();
    lineage.chunks_mut(8).for_each(|half| half.copy_from_slice(&random.next_u64().to_le_bytes()));
    lineage
}

/// Makes the directory that the database lies in, durably: that is not the database's own business.
fn make_place(disk: &dyn Disk) -> std::io::Result<()> {
    disk.create_directory(Path::new("/db"))?;
    disk.sync_directory(Path::new("/"))
}

/// Reads the database file page by page.
fn read_image(engine: &Engine) -> std::io::Result<Image> {
    let file = engine.database();
    let size = u64::from(engine.page_size());
    let pages = file.length()? / size;
    let read = |number: u64| {
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, number * size)?;
        Ok(Page::from(bytes))
    };
    (0..pages).map(read).collect::<std::io::Result<Vec<Page>>>().map(Arc::new)
}
