//! The store of one owner, as the thread that applies its commands uses it.

use crate::checkpoint::{After, Checkpoint, CheckpointDone, CheckpointError, LogExtents, Work};
use crate::compaction::Plan;
use crate::extent::{self, FileExtent, LogExtent};
use crate::files::Files;
use crate::index::{self, Position};
use crate::log::LogSource;
use crate::options::Options;
use crate::plan::{PIECES_MAX, Piece, ReadPlan};
use crate::reader::StoreReader;
use crate::residence::KnownAbsent;
use crate::residents::Residents;
use crate::runs::Active;
use crate::sweep::Sweep;
use crate::usage::{Laid, Usage};
use bytes::Bytes;
use highwater_base::limits::READ_BYTES_MAX;
use highwater_wal::Location;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Where the payload of one owner's objects lies.
///
/// Memory holds places, never payload, and of resident objects alone: for each 24 bytes an extent and about 50 more, and 10
/// for one that has records in a delta; for each append that was not moved yet about 40 bytes. Any other object takes about
/// one and a half bytes ([`crate::residence`]).
pub struct Store {
    pub(crate) files: Arc<Files>,
    pub(crate) options: Options,
    /// Objects in memory, with their extents in data files.
    pub(crate) residents: Residents,
    /// What was appended since the last checkpoint was begun.
    fresh: LogExtents,
    fresh_bytes: u64,
    /// Objects removed since then; one of them may have been made again.
    removed: BTreeSet<u64>,
    /// Fronts of objects that were released since then, and are not durable yet.
    fronts: BTreeMap<u64, u64>,
    /// States that a failed checkpoint did not get to store.
    carried: BTreeMap<u64, Option<Bytes>>,
    /// Objects that came into being and have no record in the index yet.
    pub(crate) created: BTreeSet<u64>,
    /// Objects with records in deltas: the base does not say the newest of them.
    pub(crate) touched: BTreeSet<u64>,
    /// Objects that a lookup did not find in this base, although its table could not tell.
    pub(crate) known_absent: KnownAbsent,
    /// What each data file holds that memory or the index on disk names.
    pub(crate) usage: Usage,
    /// Files with a damaged extent, which therefore cannot be emptied.
    pub(crate) stuck: BTreeSet<u32>,
    /// Whether a compaction would free something; judged whenever `usage` changed.
    pub(crate) compaction_due: bool,
    /// What memory names no more, and the index on disk still does.
    dying: Vec<FileExtent>,
    orphans: Vec<u32>,
    pub(crate) index: Position,
    pub(crate) active: Option<Active>,
    pub(crate) next_file: u32,
    pub(crate) applied: u64,
    pub(crate) torn_bytes: u64,
    in_flight: Option<InFlight>,
}

/// A checkpoint that was begun.
struct InFlight {
    moving: Arc<LogExtents>,
    moving_bytes: u64,
    /// What it stores: the states of changed objects, which are gone, and the fronts of those that are not whole any more.
    changed: BTreeMap<u64, Option<Bytes>>,
    removed: BTreeSet<u64>,
    fronts: BTreeMap<u64, u64>,
    /// Objects removed since it was begun: what it does about them is void.
    removed_since: BTreeSet<u64>,
    /// The objects of which it writes records, in order, and whether they are there after it.
    recorded: Vec<(u64, bool)>,
    dying: Vec<FileExtent>,
}

/// What changed since the last checkpoint was begun.
struct Changes<'a> {
    states: &'a BTreeMap<u64, Option<Bytes>>,
    removed: &'a BTreeSet<u64>,
    fronts: &'a BTreeMap<u64, u64>,
    moving: &'a LogExtents,
}

/// The objects of which a checkpoint writes records, and whether they are there after it.
fn recorded(work: &[Work]) -> Vec<(u64, bool)> {
    let mut recorded: Vec<(u64, bool)> = Vec::with_capacity(work.len());
    for work in work {
        let (key, alive) = match work {
            Work::Remove { key } => (*key, false),
            Work::Store { key, .. } => (*key, true),
        };
        match recorded.last_mut() {
            Some(last) if last.0 == key => last.1 = alive,
            _ => recorded.push((key, alive)),
        }
    }
    recorded
}

/// Figures for a status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStatus {
    /// The position that the last checkpoint covers.
    pub applied: u64,
    /// Number of that checkpoint.
    pub checkpoint: u64,
    /// Whether a checkpoint was begun and not ended.
    pub checkpoint_running: bool,
    /// Objects in memory that have payload in data files.
    pub objects: u64,
    /// Extents of these.
    pub extents: u64,
    /// Data files.
    pub files: u64,
    /// Payload in data files, in bytes; what was removed since the last checkpoint is counted.
    pub stored_bytes: u64,
    /// Bytes of the data files.
    pub file_bytes: u64,
    /// Bytes of the data files that nothing needs, and that compaction gives back.
    pub dead_bytes: u64,
    /// Payload that lies in the log alone, in bytes.
    pub unmoved_bytes: u64,
    /// Bytes of the index file.
    pub index_bytes: u64,
    /// Bytes of a torn checkpoint that opening cut off the index. It was normally never reported; if the log begins above
    /// `applied`, it was, and the owner must not serve.
    pub torn_bytes: u64,
}

/// Data files that nothing names any more; dropping this deletes them. Deleting many takes time: drop it where I/O is
/// done. A crash before that leaves orphans, which the next open removes.
pub struct Reclaim {
    files: Arc<Files>,
    numbers: Vec<u32>,
}

impl Drop for Reclaim {
    fn drop(&mut self) {
        self.files.delete(std::mem::take(&mut self.numbers));
    }
}

impl Store {
    pub(crate) fn new(
        files: Arc<Files>,
        options: Options,
        index: index::Loaded,
        residents: Residents,
        laid: Laid,
        next_file: u32,
    ) -> Self {
        let Laid { usage, active } = laid;
        usage.iter().for_each(|(file, _)| files.name(file));
        // What left, or began to, is not written on.
        let active = active.filter(|active| !files.has_marker(active.file));
        Self {
            files,
            options,
            residents,
            fresh: BTreeMap::new(),
            fresh_bytes: 0,
            removed: BTreeSet::new(),
            fronts: BTreeMap::new(),
            carried: BTreeMap::new(),
            created: BTreeSet::new(),
            touched: index.touched,
            known_absent: KnownAbsent::default(),
            usage,
            stuck: BTreeSet::new(),
            compaction_due: false,
            dying: Vec::new(),
            orphans: Vec::new(),
            index: index.position,
            active,
            next_file,
            applied: 0,
            torn_bytes: 0,
            in_flight: None,
        }
    }

    /// Takes note of bytes appended to an object, at `start` in it: the part `within` of a frame's payload.
    ///
    /// # Panics
    /// If the object's bytes do not end at `start`: a gap or an overlap would be served as data. If the object is stored and
    /// not resident: what it had would not be served.
    pub fn append(&mut self, object: u64, start: u64, source: Location, within: Range<u32>) {
        if within.is_empty() {
            return;
        }
        let end = self.end(object);
        if end.is_none() {
            self.assert_in_memory(object);
        }
        assert!(end.is_none_or(|end| end == start), "object {object} ends at {end:?} and is appended to at {start}");
        let next = LogExtent { start, source, within };
        self.fresh_bytes += next.length();
        let extents = self.fresh.entry(object).or_default();
        if !extents.last_mut().is_some_and(|last| last.join(&next)) {
            extents.push(next);
        }
    }

    /// Forgets an object. Its bytes leave the disk after the next checkpoint.
    ///
    /// # Panics
    /// If it is stored and not resident: its bytes would stay.
    pub fn remove(&mut self, object: u64) {
        self.assert_in_memory(object);
        self.created.remove(&object);
        self.dying.extend(self.residents.remove(object));
        let fresh = self.fresh.remove(&object).unwrap_or_default();
        self.fresh_bytes -= fresh.iter().map(LogExtent::length).sum::<u64>();
        if let Some(flight) = &mut self.in_flight
            && flight.removed_since.insert(object)
        {
            let moving = flight.moving.get(&object).into_iter().flatten();
            flight.moving_bytes -= moving.map(LogExtent::length).sum::<u64>();
        }
        self.carried.remove(&object);
        self.fronts.remove(&object);
        self.removed.insert(object);
    }

    /// Gives up the bytes of an object below the object offset `front`, which no one will read again. Offsets stay as they are.
    ///
    /// They leave the disk with the data files that hold nothing else, after the next checkpoint. Until then, and of the block
    /// that `front` lies in for longer, a read from below may still find them.
    ///
    /// # Panics
    /// As [`Self::remove`].
    pub fn release_front(&mut self, object: u64, front: u64) {
        self.assert_in_memory(object);
        self.residents.change(object, |extents| extent::release(extents, front, |gone| self.dying.push(gone)));
        if let Some(extents) = self.fresh.get_mut(&object) {
            self.fresh_bytes -= extent::release_logged(extents, front);
            if extents.is_empty() {
                self.fresh.remove(&object);
            }
        }
        let known = self.fronts.entry(object).or_default();
        *known = front.max(*known);
    }

    /// The part of an object that a checkpoint under way is moving.
    fn moving(&self, object: u64) -> &[LogExtent] {
        let flight = self.in_flight.as_ref().filter(|flight| !flight.removed_since.contains(&object));
        flight.and_then(|flight| flight.moving.get(&object)).map_or(&[], Vec::as_slice)
    }

    fn parts(&self, object: u64) -> (&[FileExtent], &[LogExtent], &[LogExtent]) {
        let stored = self.residents.extents(object);
        let fresh = self.fresh.get(&object).map_or(&[][..], Vec::as_slice);
        (stored, self.moving(object), fresh)
    }

    /// Object offset behind an object's last byte, if it has bytes.
    fn end(&self, object: u64) -> Option<u64> {
        let (stored, moving, fresh) = self.parts(object);
        let end = fresh.last().or(moving.last()).map(LogExtent::end).or(stored.last().map(FileExtent::end))?;
        // What a checkpoint is moving stays although all of it, and what was behind it, was given up.
        Some(self.fronts.get(&object).map_or(end, |front| end.max(*front)))
    }

    /// Plans a read of up to `length_max` bytes of an object from offset `from` on; touches no disk.
    ///
    /// The plan covers at most [`READ_BYTES_MAX`] bytes and [`PIECES_MAX`] pieces, so that it may stop early. It is empty
    /// if the object has no byte at `from`.
    ///
    /// # Panics
    /// If the object is stored and not resident: nothing would be served for what it has.
    #[must_use]
    pub fn plan_read(&self, object: u64, from: u64, length_max: u64) -> ReadPlan {
        self.assert_in_memory(object);
        let (stored, moving, fresh) = self.parts(object);
        let limit = from.saturating_add(length_max.min(READ_BYTES_MAX));
        let mut plan = ReadPlan { object, range: from..from, pieces: Vec::new() };
        for extent in &stored[extent::find(stored, from, FileExtent::end)..] {
            let range = plan.range.end..extent.end().min(limit);
            if range.is_empty() || extent.start > range.start || plan.pieces.len() == PIECES_MAX {
                return plan;
            }
            plan.range.end = range.end;
            plan.pieces.push(Piece::File { extent: *extent, range });
        }
        for extents in [moving, fresh] {
            for extent in &extents[extent::find(extents, from, LogExtent::end)..] {
                let range = plan.range.end..extent.end().min(limit);
                if range.is_empty() || extent.start > range.start || plan.pieces.len() == PIECES_MAX {
                    return plan;
                }
                plan.range.end = range.end;
                let at = |offset: u64| extent.within.start + (offset - extent.start) as u32;
                plan.pieces.push(Piece::Log { source: extent.source, within: at(range.start)..at(range.end) });
            }
        }
        plan
    }

    /// Whether memory has the newest that is known of an object.
    pub(crate) fn is_resident(&self, object: u64) -> bool {
        self.residents.contains(object) || self.fresh.contains_key(&object) || !self.moving(object).is_empty()
    }

    /// Whether an object changed since the index's base was written, so that the base does not say the newest.
    pub(crate) fn is_changed(&self, object: u64) -> bool {
        let since = self.fresh.contains_key(&object) || self.fronts.contains_key(&object);
        let whole =
            self.created.contains(&object) || self.removed.contains(&object) || self.carried.contains_key(&object);
        let recorded = |flight: &InFlight| flight.recorded.binary_search_by_key(&object, |(key, _)| *key).is_ok();
        since || whole || self.in_flight.as_ref().is_some_and(recorded) || self.touched.contains(&object)
    }

    /// A reader of this store's payload; clones of one reader share their open files.
    #[must_use]
    pub fn reader(&self, log: impl LogSource + 'static) -> StoreReader {
        StoreReader { files: self.files.clone(), log: Arc::new(log) }
    }

    /// Payload that lies in the log alone, in bytes.
    #[must_use]
    pub fn unmoved_bytes(&self) -> u64 {
        self.fresh_bytes + self.in_flight.as_ref().map_or(0, |flight| flight.moving_bytes)
    }

    /// Whether a checkpoint was begun and neither finished nor failed.
    #[must_use]
    pub fn checkpoint_running(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Begins a checkpoint of everything up to `applied`: the payload appended so far, `meta`, and the states of the objects
    /// that changed since the last one was begun (`None`: the object is gone). Does no I/O.
    ///
    /// # Panics
    /// If one is under way.
    #[must_use]
    pub fn begin_checkpoint(&mut self, applied: u64, meta: Bytes, changed: Vec<(u64, Option<Bytes>)>) -> Checkpoint {
        self.begin_compaction(applied, meta, changed, 0)
    }

    /// As [`Self::begin_checkpoint`]; moreover the checkpoint moves about `bytes_max` bytes of payload out of data files
    /// that are mostly dead, so that these can be deleted.
    ///
    /// # Panics
    /// If one is under way.
    #[must_use]
    pub fn begin_compaction(
        &mut self,
        applied: u64,
        meta: Bytes,
        changed: Vec<(u64, Option<Bytes>)>,
        bytes_max: u64,
    ) -> Checkpoint {
        assert!(self.in_flight.is_none(), "one checkpoint at a time");
        let mut all = std::mem::take(&mut self.carried);
        for (key, state) in changed {
            if state.is_none() && self.end(key).is_some() {
                self.remove(key);
            }
            all.insert(key, state);
        }
        for (key, _) in all.iter().filter(|(_, state)| state.is_some()) {
            self.residents.ensure(*key);
        }
        let (removed, fronts) = (std::mem::take(&mut self.removed), std::mem::take(&mut self.fronts));
        for key in &removed {
            all.entry(*key).or_insert(None);
        }
        let moving = Arc::new(std::mem::take(&mut self.fresh));
        let (compaction, more) = self.plan_compaction(bytes_max);
        let work =
            self.work(Changes { states: &all, removed: &removed, fronts: &fronts, moving: &moving }, &compaction);
        let recorded = recorded(&work);
        let sweep = more.then(|| {
            let except: BTreeSet<u64> =
                recorded.iter().map(|(key, _)| *key).chain(self.touched.iter().copied()).collect();
            Box::new(Sweep { plan: compaction, except: except.into_iter().collect() })
        });
        self.in_flight = Some(InFlight {
            moving: moving.clone(),
            moving_bytes: std::mem::take(&mut self.fresh_bytes),
            changed: all,
            removed,
            fronts,
            removed_since: BTreeSet::new(),
            recorded,
            dying: std::mem::take(&mut self.dying),
        });
        Checkpoint {
            files: self.files.clone(),
            options: self.options.clone(),
            index: self.index.clone(),
            active: self.active,
            next_file: self.next_file,
            applied,
            meta,
            work,
            sweep,
            moving,
        }
    }

    /// What a checkpoint does, in order of the keys.
    fn work(&self, changes: Changes<'_>, compaction: &Plan) -> Vec<Work> {
        let Changes { states, removed, fronts, moving } = changes;
        let changed = states.keys().chain(moving.keys()).chain(fronts.keys()).copied();
        let keys: BTreeSet<u64> = changed.chain(compaction.objects()).collect();
        let away = self.files.away();
        let mut work = Vec::with_capacity(keys.len());
        for key in keys {
            let state = states.get(&key);
            let moved = moving.get(&key);
            let gone = state.is_some_and(Option::is_none) && moved.is_none();
            // One that was made again is another object: the index must not join the two.
            if gone || removed.contains(&key) {
                work.push(Work::Remove { key });
            }
            if !gone {
                let stored = self.residents.extents(key);
                let added: u64 = moved.into_iter().flatten().map(LogExtent::length).sum();
                let kept = if added > 0 { extent::kept(stored, added) } else { stored.len() };
                // What lies in an object store is not fetched to be merged.
                let kept = stored.iter().rposition(|e| away.contains(&e.file)).map_or(kept, |last| kept.max(last + 1));
                let (state, front) = (state.cloned().flatten(), fronts.get(&key).copied().unwrap_or_default());
                let (relaid, absorbed) = (compaction.relaid(key, &stored[..kept]), stored[kept..].to_vec());
                work.push(Work::Store { key, state, front, relaid, absorbed });
            }
        }
        work
    }

    fn take_in(&mut self, after: After) {
        self.index = after.index;
        self.active = after.active;
        self.next_file = after.next_file;
        self.orphans.extend(after.orphans);
        for (file, bytes) in after.grown {
            self.usage.grown(file, bytes);
        }
    }

    /// Takes a durable checkpoint in. Afterwards the log may be released up to [`CheckpointDone::applied`].
    ///
    /// Plans of before stay good for data files until the returned value is dropped, and beyond that answer
    /// [`crate::ReadError::Moved`].
    ///
    /// # Panics
    /// If none is under way.
    pub fn finish_checkpoint(&mut self, done: CheckpointDone) -> Reclaim {
        let flight = self.in_flight.take().expect("a checkpoint is under way");
        let mut released = flight.dying;
        for placed in done.placed {
            for extent in &placed.added {
                self.usage.add(extent);
                self.files.name(extent.file);
            }
            if flight.removed_since.contains(&placed.key) {
                self.dying.extend(placed.added);
                continue;
            }
            if let Some(replaced) = placed.replaced
                && !self.residents.contains(placed.key)
            {
                released.extend(replaced);
                continue;
            }
            let from = placed.added.first().map_or(u64::MAX, |first| first.start);
            let mut added = placed.added;
            // What was given up since it was begun went to where it had no names any more.
            if let Some(front) = self.fronts.get(&placed.key) {
                extent::release(&mut added, *front, |gone| self.dying.push(gone));
            }
            self.residents.ensure(placed.key);
            self.residents.change(placed.key, |extents| {
                let kept = extents.partition_point(|extent| extent.end() <= from);
                released.extend(extents.drain(kept..));
                if extents.is_empty() {
                    *extents = added;
                    extents.shrink_to_fit();
                } else {
                    extents.extend(added);
                }
            });
        }
        self.applied = done.applied;
        let folded = !Arc::ptr_eq(&self.index.base, &done.after.index.base);
        self.take_in(done.after);
        self.note_recorded(&flight.recorded, folded);
        released.iter().for_each(|extent| self.usage.release(extent));
        // The file that is written on goes too once nothing lives in it: a deleted stream gives all its bytes back.
        self.active = self.active.filter(|active| self.usage.get(active.file).is_some_and(|file| file.payload > 0));
        let mut numbers = self.usage.take_dead(self.active.map(|active| active.file));
        numbers.append(&mut self.orphans);
        self.stuck.extend(done.stuck);
        for file in &numbers {
            self.files.forget(*file);
            self.stuck.remove(file);
        }
        self.judge_files();
        Reclaim { files: self.files.clone(), numbers }
    }

    /// Takes note of the objects that the index has records of now, in a delta or in a new base.
    fn note_recorded(&mut self, recorded: &[(u64, bool)], folded: bool) {
        for (key, _) in recorded.iter().filter(|(_, alive)| *alive) {
            self.created.remove(key);
        }
        if folded {
            self.touched.clear();
            self.known_absent.clear();
        } else {
            self.touched.extend(recorded.iter().map(|(key, _)| *key));
        }
    }

    /// Takes a failed checkpoint back: everything is as before it was begun, and the next one does its work too.
    ///
    /// # Panics
    /// If none is under way.
    pub fn fail_checkpoint(&mut self, error: CheckpointError) {
        let flight = self.in_flight.take().expect("a checkpoint is under way");
        self.take_in(*error.after);
        self.fresh_bytes += flight.moving_bytes;
        let moving = Arc::try_unwrap(flight.moving).unwrap_or_else(|shared| (*shared).clone());
        for (key, mut extents) in moving {
            if !flight.removed_since.contains(&key) {
                let fresh = self.fresh.entry(key).or_default();
                extents.append(fresh);
                *fresh = extents;
                let front = self.fronts.get(&key).copied().unwrap_or_default();
                self.fresh_bytes -= extent::release_logged(fresh, front);
                if fresh.is_empty() {
                    self.fresh.remove(&key);
                }
            }
        }
        for (key, front) in flight.fronts {
            if !flight.removed_since.contains(&key) {
                let known = self.fronts.entry(key).or_default();
                *known = front.max(*known);
            }
        }
        self.dying.extend(flight.dying);
        self.removed.extend(flight.removed);
        self.carried = flight.changed;
        self.carried.retain(|key, _| !flight.removed_since.contains(key));
    }

    /// Figures for a status page.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        StoreStatus {
            applied: self.applied,
            checkpoint: self.index.checkpoint,
            checkpoint_running: self.in_flight.is_some(),
            objects: self.residents.placed_count(),
            extents: self.residents.extent_count(),
            files: self.usage.files(),
            stored_bytes: self.usage.payload_bytes(),
            file_bytes: self.usage.file_bytes(),
            dead_bytes: self.usage.dead_bytes(),
            unmoved_bytes: self.unmoved_bytes(),
            index_bytes: self.index.end,
            torn_bytes: self.torn_bytes,
        }
    }
}
