//! Groups as they were left: the checkpoint, the log behind it, and the verdict on both.

use super::checkpoint::{CheckpointState, checkpoint_meta};
use super::group::{FRAME_BASE, FRAME_ENTRY, FRAME_HARD_STATE, GroupCore};
use super::hot::{self, Hot};
use super::machine::GroupMachine;
use super::own::Own;
use super::read::Reads;
use super::wait::Waiters;
use super::{Pending, ShardCore, ShardOptions, Slot};
use crate::api::GroupState;
use crate::restored::Mark;
use bytes::Bytes;
use highwater_base::{GroupId, NodeId, OwnerId, Random};
use highwater_consensus::{Base, Entry, Group, GroupOptions, HardState, RecoveredLog};
use highwater_disk::Disk;
use highwater_store::{Store, StoreReader};
use highwater_wal::{AppendError, Frame, Location, LogReader, Poisoned, Recovered, ReplayedFrame, Verdict};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

/// Where the groups of a node come from.
pub struct Recovery<'a> {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory of the groups' stores.
    pub directory: &'a Path,
    /// This node.
    pub node: NodeId,
    /// How many groups the streams have.
    pub groups: u32,
    /// What opening the log found.
    pub recovered: &'a Recovered,
    /// Whether this is the node's first start, so that a group may have no records yet.
    pub first_start: bool,
    /// How the stores are kept.
    pub store: highwater_store::Options,
    /// The directory's mark, if it was restored from an older copy.
    pub mark: Option<Mark>,
    /// Bytes that the streams in memory and the places of their bytes may take, in all groups.
    pub hot_metadata_bytes: u64,
}

impl Recovery<'_> {
    /// How a group's store is kept: what has records in a delta cannot leave memory, and must leave room for others.
    fn store_options(&self) -> highwater_store::Options {
        let mut store = self.store.clone();
        store.index_delta_bytes_max = store.index_delta_bytes_max.min(self.hot_bytes_max() / 2);
        store.index_delta_bytes_min = store.index_delta_bytes_min.min(store.index_delta_bytes_max);
        store
    }

    /// One group's share.
    fn hot_bytes_max(&self) -> u64 {
        self.hot_metadata_bytes / u64::from(self.groups.max(1))
    }
}

/// The owner of the log's frames and of the store of a slot: the control group comes behind those of the streams.
pub(crate) fn owner(number: u32, groups: u32) -> OwnerId {
    if number < groups { OwnerId::group(GroupId(number)) } else { OwnerId::CONTROL }
}

/// The owners of all slots, in order.
fn owners(groups: u32) -> impl Iterator<Item = OwnerId> {
    (0..=groups).map(move |number| owner(number, groups))
}

/// Writes the first record of every group that has none yet, and makes it durable. Once in a node's life.
/// # Errors
/// The log's.
pub fn bootstrap(
    log: &mut highwater_wal::Log,
    recovered: &Recovered,
    node: NodeId,
    groups: u32,
) -> Result<(), AppendError> {
    let base = Base::bootstrap(node);
    let frames: Vec<Frame> = owners(groups)
        .filter(|owner| recovered.owners().get(owner).is_none_or(|o| o.frames == 0))
        .map(|owner| Frame { owner, kind: FRAME_BASE, position: base.index, payload: base.encode() })
        .collect();
    if !frames.is_empty() {
        log.append(&frames)?;
        log.sync().map_err(|error: Poisoned| AppendError::Poisoned(error))?;
    }
    Ok(())
}

/// Writes the first record of one group into a new log, and makes it durable.
/// # Errors
/// The log's.
pub(crate) fn begin_group(log: &mut highwater_wal::Log, owner: OwnerId, node: NodeId) -> Result<(), AppendError> {
    let base = Base::bootstrap(node);
    log.append(&[Frame { owner, kind: FRAME_BASE, position: base.index, payload: base.encode() }])?;
    log.sync().map_err(|error: Poisoned| AppendError::Poisoned(error))
}

/// A group while its records are read.
struct Recovering {
    store: Store,
    machine: GroupMachine,
    log: Option<RecoveredLog>,
    located: VecDeque<(u64, Location)>,
    checkpoint: CheckpointState,
    hot_bytes_max: u64,
}

impl<T> ShardCore<T> {
    /// Makes the groups from what was found. A group that cannot be believed refuses to serve, and says why in the
    /// status; the others serve. Time and memory follow the log behind the checkpoints, never what is stored.
    ///
    /// Returns a reader of each group's bytes; none for a group that refuses.
    pub fn recover(
        options: ShardOptions,
        recovery: &Recovery<'_>,
        log: &LogReader,
        random: &mut dyn Random,
    ) -> (Self, Vec<Option<StoreReader>>) {
        let mut groups: Vec<Result<Recovering, String>> =
            owners(recovery.groups).map(|owner| open_group(recovery, owner)).collect();
        let segment_newest = replay(recovery, &mut groups);
        let mut readers = Vec::new();
        let mut slots = Vec::new();
        for (id, group) in (0..).map(GroupId).zip(groups) {
            let owner = owner(id.0, recovery.groups);
            let up = group.and_then(|group| finish(recovery, id, owner, group, random));
            readers.push(up.as_ref().ok().map(|group| group.store.reader(log.clone())));
            slots.push(match up {
                Ok(group) => Slot::Up(Box::new(group)),
                Err(reason) => {
                    tracing::error!(event = "group_damaged", group = %owner, reason, "a group cannot be believed and refuses to serve");
                    Slot::Down(GroupState::Damaged(reason))
                }
            });
        }
        let core = Self {
            options,
            slots,
            dirty: BTreeSet::new(),
            next: Pending::default(),
            in_flight: None,
            full: None,
            log_room: None,
            segment_newest,
            checkpoint_running: false,
            compaction: Default::default(),
            uncommitted_bytes: 0,
            noted: super::noted::Noted::default(),
            ticks: 0,
            turn_due: false,
            failed: None,
            mark: recovery.mark,
            mark_stays: false,
            refusals_changed: true,
        };
        (core, readers)
    }
}

fn open_group(recovery: &Recovery<'_>, owner: OwnerId) -> Result<Recovering, String> {
    match recovery.recovered.verdict(owner) {
        Verdict::Whole => {}
        verdict if verdict.is_state_lost() => {
            return Err(
                "the log's file wal/state was missing or damaged when a server started here, so that nobody knows \
                        what of its log is missing; its files are kept, and a backup can be restored elsewhere"
                    .to_owned(),
            );
        }
        Verdict::Recovering { segment, offset } => {
            return Err(format!("the end of its log was lost: segment {segment}, byte {offset}"));
        }
        Verdict::Damaged { segment, offset } => {
            return Err(format!("its log is damaged: segment {segment}, byte {offset}"));
        }
    }
    let directory = recovery.directory.join(owner.to_string());
    let opening = Store::opening(Arc::clone(&recovery.disk), &directory, owner, recovery.store_options())
        .map_err(|error| format!("its store does not open: {error}"))?;
    let (applied, meta) = (opening.applied(), opening.meta().clone());
    let unreadable = |error| format!("its checkpoint does not read: {error}");
    let (base, machine_meta) = if meta.is_empty() {
        (recovery.first_start.then(|| Base::bootstrap(recovery.node)), Bytes::new())
    } else {
        let (base, machine_meta) = checkpoint_meta(meta).map_err(unreadable)?;
        (Some(Base::decode(base).map_err(unreadable)?), machine_meta)
    };
    let base_index = base.as_ref().map_or(0, |base| base.index);
    if base_index != applied && applied != 0 {
        return Err(format!("its checkpoint stands at entry {applied} and says {base_index}"));
    }
    // The log gives back only what a checkpoint covered; one that stands behind that lost its end.
    let released = recovery.recovered.owners().get(&owner).map_or(0, |o| o.first_needed);
    if released > base_index + 1 {
        return Err(format!("its checkpoint stands at entry {base_index}, and its log begins at {released}"));
    }
    let hot_bytes_max = recovery.hot_bytes_max();
    let (machine, store) = GroupMachine::open(owner, machine_meta, opening, hot_bytes_max)?;
    let (log, checkpoint) = (base.map(RecoveredLog::new), CheckpointState::default());
    Ok(Recovering { store, machine, log, located: VecDeque::new(), checkpoint, hot_bytes_max })
}

/// Reads every surviving frame once, in the log's order; returns the newest segment.
fn replay(recovery: &Recovery<'_>, groups: &mut [Result<Recovering, String>]) -> u64 {
    let mut newest = 0;
    let numbers: BTreeMap<OwnerId, usize> = owners(recovery.groups).zip(0..).collect();
    let read = recovery.recovered.replay(
        |owner| numbers.contains_key(&owner),
        |frame| -> Result<(), Infallible> {
            newest = newest.max(frame.location.segment);
            let slot = &mut groups[numbers[&frame.owner]];
            if let Ok(group) = slot
                && let Err(reason) = group.take(frame)
            {
                *slot = Err(reason);
            }
            Ok(())
        },
    );
    if let Err(error) = read {
        // The frame's owner is not told, and what follows it was not read.
        for slot in groups.iter_mut() {
            *slot = Err(format!("the log could not be read: {error}"));
        }
    }
    newest
}

impl Recovering {
    fn take(&mut self, frame: ReplayedFrame) -> Result<(), String> {
        let ReplayedFrame { kind, position, location, payload, .. } = frame;
        let says = |what: &str, error| format!("{what} {position} in the log does not read: {error}");
        self.checkpoint.logged(location);
        if kind == FRAME_BASE {
            let base = Base::decode(payload).map_err(|error| says("the first record", error))?;
            self.log.get_or_insert_with(|| RecoveredLog::new(base));
            return Ok(());
        }
        let log = self.log.as_mut().ok_or("its log begins in the middle: the first record is missing")?;
        match kind {
            FRAME_ENTRY => {
                let entry = Entry::decode(position, payload).map_err(|error| says("entry", error))?;
                if entry.index <= log.base().index {
                    return Ok(());
                }
                log.entry(entry).map_err(|error| error.to_string())?;
                while self.located.back().is_some_and(|(last, _)| *last >= position) {
                    self.located.pop_back();
                }
                self.located.push_back((position, location));
                Ok(())
            }
            FRAME_HARD_STATE => {
                log.hard_state(HardState::decode(payload).map_err(|error| says("hard state", error))?);
                self.apply_committed()
            }
            other => Err(format!("its log holds a frame of kind {other}, which needs a later program")),
        }
    }

    /// Applies what is known to be committed, so that a long log is never in memory as a whole.
    fn apply_committed(&mut self) -> Result<(), String> {
        let Some(log) = &mut self.log else { return Ok(()) };
        for entry in log.take_committed() {
            let Some((_, location)) = self.located.pop_front().filter(|(index, _)| *index == entry.index) else {
                return Err(format!("entry {} has no place in the log", entry.index));
            };
            let Some(command) = self.machine.command(&entry)? else { continue };
            loop {
                let missing = self.machine.missing(&command, &self.store);
                if missing.is_empty() {
                    break;
                }
                hot::load_now(&mut self.machine, &mut self.store, missing)?;
            }
            self.machine.apply(command, location, &mut self.store);
            hot::relieve(&mut self.machine, &mut self.store, self.hot_bytes_max);
        }
        Ok(())
    }
}

fn finish<T>(
    recovery: &Recovery<'_>,
    id: GroupId,
    owner: OwnerId,
    group: Recovering,
    random: &mut dyn Random,
) -> Result<GroupCore<T>, String> {
    let Recovering { store, machine, log, located, checkpoint, hot_bytes_max } = group;
    let log = log.ok_or("it has neither a checkpoint nor a first record: its files are not here, or its log is not the one that it wrote")?;
    let raft = Group::open(recovery.node, log, GroupOptions::default(), random).map_err(|error| error.to_string())?;
    let mut group = GroupCore {
        id,
        owner,
        raft,
        machine,
        store,
        state: GroupState::Starting,
        unpublished: true,
        own: Own::new(recovery.mark),
        hot: Hot::new(hot_bytes_max),
        led: false,
        proposals: BTreeMap::new(),
        located,
        reads: Reads::new(),
        waiters: Waiters::new(),
        checkpoint,
        pins: Vec::new(),
        pins_running: Vec::new(),
        compacted_bytes: 0,
    };
    if !group.history_recorded() {
        group.state = GroupState::HistoryPending;
    }
    Ok(group)
}
