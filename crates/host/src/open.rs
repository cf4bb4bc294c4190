//! Opening a directory of accounts: every byte that was acknowledged is found, or the server says what is wrong and changes nothing.

use crate::blobs::BlobFiles;
use crate::boot::{self, Boot};
use crate::checkpoint::Helper;
use crate::error::OpenError;
use crate::host::Host;
use crate::layout::{self, Paths};
use crate::options::{Options, Seams};
use crate::ring::Ring;
use crate::shared::{EVENTS, Naming, Shared, row_object, with_object, zone};
use crate::slot::{Slots, lock};
use crate::witness::Witnesses;
use crate::worker::{End, RECORD, Worker, is_crowded};
use highwater_base::OwnerId;
use highwater_disk::Disk;
use highwater_pds::names::Zone;
use highwater_pds::state::Effect;
use highwater_pds::{AccountId, Record, State};
use highwater_store::{Keep, Opening, Store, StoreReader, Visited};
use highwater_wal::{Log, Recovered, ReplayError, ReplayedFrame, Verdict};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};

/// What a directory holds, once it is known to be whole.
pub(crate) struct Loaded {
    pub log: Log,
    pub state: State,
    pub store: Store,
    /// The newest record.
    pub lsn: u64,
    /// The record that the checkpoint covers.
    pub applied: u64,
    /// Records that were read from the log.
    pub replayed: u64,
}

impl Host {
    /// Opens a directory, or makes one of an empty one; then, before it returns, does what a start owes to relays, and what a
    /// restore does. Nothing of it is sent before somebody subscribes.
    /// # Errors
    /// [`OpenError`].
    pub fn open(options: Options, seams: Seams) -> Result<(Self, Worker, Boot), OpenError> {
        let paths = Paths::new(&options.directory);
        let Seams { disk, clock, mut random, sealer } = seams;
        let witnesses = Witnesses::read(&*disk, &options);
        layout::enter(&*disk, &paths, sealer.as_ref().map(|sealer| sealer.id()), &witnesses)?;
        let identity = options.log.identity_new.unwrap_or_else(|| random.next_u64());
        let loaded = load(&disk, &paths, &options, identity)?;
        let Loaded { log, state, store, lsn, applied, replayed } = loaded;
        let marked = disk.exists(&paths.marker()).map_err(OpenError::io(&paths.marker()))?;
        if state.accounts.is_empty() && !marked {
            witnesses.refuse_gone(&paths.directory)?;
        }
        same_zone(&options, &paths, &state)?;
        let reader = store.reader(log.reader());
        let sequence = state.sequence.clone();
        let crowded = state.accounts.values().filter(|account| is_crowded(&account.blocks)).map(|account| account.id);
        let crowded = crowded.collect();
        let monotonic = clock.monotonic();
        let seams = Seams { disk, clock, random, sealer };
        let shared = share(options, seams, (state, store, reader), witnesses)?;
        let mut worker = Worker {
            shared: Arc::clone(&shared),
            log,
            sequence,
            lsn,
            helper: None::<Helper>,
            making_spare: false,
            checkpointed: (applied, monotonic),
            trimmed: monotonic,
            checkpoint_waits: Vec::new(),
            checkpoint_answers: Vec::new(),
            checkpoint_failed: false,
            crowded,
            _end: End(Arc::clone(&shared)),
        };
        {
            let mut figures = lock(&shared.figures);
            (figures.lsn, figures.log) = (worker.lsn, worker.log.metrics());
        }
        let boot = boot::run(&mut worker, replayed)?;
        Ok((Self { shared, owner: false }, worker, boot))
    }
}

/// Refuses a zone in which nobody finds the accounts that are there. The first account decides: its zone is the server's.
fn same_zone(options: &Options, paths: &Paths, state: &State) -> Result<(), OpenError> {
    let zone = zone(options)?;
    match state.accounts.values().next().and_then(|first| Zone::of(&first.did)) {
        Some(theirs) if theirs != zone => Err(OpenError::ZoneOther {
            directory: paths.directory.clone(),
            accounts: state.accounts.len() as u64,
            theirs: theirs.to_string(),
            zone: zone.to_string(),
        }),
        _ => Ok(()),
    }
}

/// What is shared of a directory that was read.
pub(crate) fn share(
    options: Options,
    seams: Seams,
    (state, store, reader): (State, Store, StoreReader),
    witnesses: Witnesses,
) -> Result<Arc<Shared>, OpenError> {
    let Seams { disk, clock, mut random, sealer } = seams;
    let paths = Paths::new(&options.directory);
    Ok(Arc::new(Shared {
        zone: zone(&options)?,
        blob_files: Arc::new(BlobFiles::new(Arc::clone(&disk), paths.blobs())),
        paths,
        disk,
        clock,
        clock_id: (random.next_u64() & 0x3ff) as u16,
        random: Mutex::new(random),
        sealer,
        witnesses,
        ring: Ring::new(state.events.count),
        state: RwLock::new(state),
        store: Mutex::new(store),
        reader,
        slots: Slots::default(),
        queue: Default::default(),
        naming: Mutex::new(Naming::default()),
        naming_turn: Mutex::default(),
        exports: crate::export::Exports::new(options.exports_max),
        figures: Mutex::default(),
        log_long: AtomicBool::default(),
        instant: AtomicU64::new(0),
        options,
    }))
}

/// Reads everything, and judges whether all of it is there. Writes nothing but what tidies up after a crash.
pub(crate) fn load(disk: &Arc<dyn Disk>, paths: &Paths, options: &Options, identity: u64) -> Result<Loaded, OpenError> {
    let backup = crate::backup::read_note(&**disk, paths)?;
    let exists = |path: &std::path::Path| disk.exists(path).map_err(OpenError::io(path));
    if backup.is_none() && exists(&paths.store())? && !exists(&paths.log())? {
        return Err(OpenError::LogMissing(paths.log()));
    }
    let log_options = highwater_wal::Options { identity_new: Some(identity), ..options.log.clone() };
    let (log, recovered) = Log::open(Arc::clone(disk), &paths.log(), log_options)?;
    judge(&recovered)?;
    let (opening, mut state) = begin_store(disk, paths, options)?;
    let applied = opening.applied();
    // A copy that was made from a running server has no log at all: what it holds ends with its checkpoint.
    let known = recovered.owners().get(&OwnerId::PDS);
    let released = known.map_or(0, |owner| owner.first_needed).saturating_sub(1);
    let log_end = recovered.positions(OwnerId::PDS).max().unwrap_or(0).max(released);
    if log_end < applied && !(backup.is_some() && log_end == 0) {
        return Err(OpenError::CopiedLive { applied, log_end });
    }
    // Before the store tidies up: a newest checkpoint that does not read any more is taken for one that was never made, and files that
    // only it names would go.
    let next = recovered.positions(OwnerId::PDS).filter(|position| *position > applied).min();
    let next = next.or_else(|| (released > applied).then_some(released + 1));
    if let Some(log_begin) = next.filter(|next| *next > applied + 1) {
        return Err(OpenError::Gap { applied, log_begin });
    }
    let mut store = opening.load(&mut |visited| load_object(&mut state, visited))?;
    let mut lsn = applied;
    let mut replayed = 0;
    let read = recovered.replay(
        |owner| owner == OwnerId::PDS,
        |frame| {
            if frame.position <= applied {
                return Ok(());
            }
            if frame.position != lsn + 1 || frame.kind != RECORD {
                return Err(OpenError::Gap { applied: lsn, log_begin: frame.position });
            }
            lsn = frame.position;
            replayed += 1;
            replay(&mut state, &mut store, frame)
        },
    );
    read.map_err(|error| match error {
        ReplayError::Read(error) => OpenError::Record { lsn: lsn + 1, what: error.to_string() },
        ReplayError::Given(error) => error,
    })?;
    Ok(Loaded { log, state, store, lsn, applied, replayed })
}

/// The store, before its objects are read, and what the checkpoint says beside them.
pub(crate) fn begin_store(
    disk: &Arc<dyn Disk>,
    paths: &Paths,
    options: &Options,
) -> Result<(Opening, State), OpenError> {
    let opening = Store::opening(Arc::clone(disk), &paths.store(), OwnerId::PDS, options.store.clone())?;
    let state = match opening.meta() {
        meta if meta.is_empty() && opening.applied() == 0 => State::default(),
        meta => State::decode_rest(meta.clone()).map_err(layout::damaged(paths.store()))?,
    };
    Ok((opening, state))
}

/// Whether the log has everything that it ever said it has.
fn judge(recovered: &Recovered) -> Result<(), OpenError> {
    let verdict = recovered.verdict(OwnerId::PDS);
    match verdict {
        _ if verdict.is_state_lost() => Err(OpenError::LogStateLost),
        Verdict::Whole => Ok(()),
        Verdict::Recovering { segment, offset } | Verdict::Damaged { segment, offset } => {
            Err(OpenError::LogDamaged { segment, offset })
        }
    }
}

pub(crate) fn load_object(state: &mut State, visited: Visited) -> Result<Keep, String> {
    let Visited { key, state: bytes, .. } = visited;
    // A slice of a block of the index: what is kept of it would keep all of it.
    let bytes = bytes::Bytes::copy_from_slice(&bytes);
    let loaded = match key & 3 {
        _ if key == EVENTS => Ok(()),
        2 => match state.load_row(bytes) {
            Ok(account) if account.0 << 2 | 2 == key => Ok(()),
            Ok(account) => return Err(format!("it holds the row of account {}", account.0)),
            Err(error) => Err(error),
        },
        3 => state.load_blobs(AccountId(key >> 2), bytes),
        _ => return Err("no object of accounts has this key".into()),
    };
    loaded.map(|()| Keep::Resident).map_err(|error| error.to_string())
}

/// Applies a record that the checkpoint does not cover.
fn replay(state: &mut State, store: &mut Store, frame: ReplayedFrame) -> Result<(), OpenError> {
    let ReplayedFrame { position: lsn, location, payload, .. } = frame;
    let wrong = |what: String| OpenError::Record { lsn, what };
    let record = Record::decode(payload).map_err(|error| wrong(error.to_string()))?;
    for effect in state.apply(&record).map_err(|error| wrong(error.to_string()))? {
        match effect {
            Effect::EventKept { offset, place } => with_object(store, EVENTS).append(EVENTS, offset, location, place),
            Effect::BlocksKept { account, offset, place } => {
                let object = row_object(account);
                with_object(store, object).append(object, offset, location, place);
            }
            Effect::BlocksReleased { account, front } => {
                let object = row_object(account);
                with_object(store, object).release_front(object, front);
            }
            // The file is looked for once everything is known.
            Effect::BlobRemoved(..) => {}
        }
    }
    Ok(())
}
