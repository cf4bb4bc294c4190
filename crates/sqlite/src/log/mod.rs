//! The commit log: segments of records, the only durable place of a commit until the database file holds it.
//!
//! One writer appends (SQLite's write lock sees to it), anyone reads confirmed bytes, and syncs run beside both. The
//! order of positions is `synced <= written` and `confirmed <= written`; between `confirmed` and `written` lies at most
//! one record, which its transaction may still take back. `docs/formats/commit-log.md` has the bytes.

mod index;
mod scan;
mod segment;

pub use index::{Entry, Index};
pub use scan::{Damage, Scanned, read_records, scan};
pub use segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::engine::{Layout, LogPosition};
use crate::guard::lock;
use highwater_base::planted::{Bug, active};
use highwater_disk::{Disk, File, OpenMode};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Bytes after which a segment takes no further record.
///
/// Large enough that making one (two syncs) is rare, small enough that space comes back soon after an acknowledgement.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Bytes of zeros that are written ahead of the log's end, at first and at most.
///
/// A sync of bytes inside the file's length costs one write to the disk; one that makes the file longer costs a
/// journal commit of the file system besides, which doubled a FULL commit (115 against 265 µs for 9 KB on ext4). The
/// first step keeps a small database small; the largest one is written once for a hundred usual commits.
const ZEROS_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 20;
/// Bytes of one read and write while the end of a log is written anew.
const REWRITE_BYTES: u64 = 1 << 20;

/// A log that is open for appending.
pub struct Log {
    disk: Arc<dyn Disk>,
    layout: Layout,
    lineage: [u8; 16],
    segment_bytes: u64,
    state: Mutex<State>,
    /// Held during a sync, so that one that begins while another runs covers what that one missed; whether one failed.
    syncing: Mutex<bool>,
}

struct State {
    /// Where the kept segments start, ascending; the last one is the tail.
    segments: VecDeque<LogPosition>,
    tail: Arc<dyn File>,
    /// Where the zeros ahead of the end stop, in bytes from the start of the tail's file.
    zeroed: u64,
    /// Bytes of zeros that are written ahead next time.
    zeros_bytes: u64,
    /// The segment last read that is not the tail.
    read_last: Option<(LogPosition, Arc<dyn File>)>,
    index: Index,
    written: LogPosition,
    synced: LogPosition,
    /// Segments with bytes that may not be on the disk, ascending.
    unsynced: Vec<(LogPosition, Arc<dyn File>)>,
    directory_unsynced: bool,
    unconfirmed: Option<(LogPosition, Entry)>,
}

impl State {
    /// Keeps zeros ahead of `end`, in bytes from the start of the tail's file. Only the one writer gets here.
    fn write_zeros(&mut self, end: u64) {
        if end < self.zeroed {
            return;
        }
        let zeros = vec![0; self.zeros_bytes as usize];
        // They only make syncs cheaper: the record that was just written stands without them, and where they find no
        // space they are not tried again in this segment. Any other trouble meets the next record or sync as well.
        let written = self.tail.write_at(&zeros, end);
        self.zeroed = if written.is_ok() { end + self.zeros_bytes } else { u64::MAX };
        self.zeros_bytes = (self.zeros_bytes * 2).min(*ZEROS_BYTES.end());
    }
}

/// A record that is being written at the end of the log.
pub struct Appending {
    file: Arc<dyn File>,
    segment: LogPosition,
    /// Its first byte.
    pub start: LogPosition,
    /// The byte after the last one written.
    pub end: LogPosition,
    /// Every log byte below was synced when it was begun.
    pub synced: LogPosition,
    /// Its lsn.
    pub lsn: u64,
}

impl Appending {
    /// Writes its next bytes.
    /// # Errors
    /// The system's; [`Log::abandon`] is due then.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(bytes, SEGMENT_HEADER_BYTES + self.end.since(self.segment))?;
        self.end = self.end.plus(bytes.len() as u64);
        Ok(())
    }
}

/// Makes a segment that is to begin at `header.position`, not synced; what an attempt before left there is lost.
pub(crate) fn create_segment(disk: &dyn Disk, layout: &Layout, header: &SegmentHeader) -> io::Result<Arc<dyn File>> {
    let file = disk.open(&layout.segment(header.position), OpenMode::Create)?;
    file.set_length(0)?;
    file.write_at(&header.encode(), 0)?;
    Ok(file)
}

/// Writes what a file holds in `range` once more.
///
/// After a failed sync the system takes the pages that it could not write for written: whoever reads the file sees them,
/// the next sync has nothing to do, and they go with the power. Only writing them makes the next sync true.
fn write_anew(file: &dyn File, range: Range<u64>) -> io::Result<()> {
    let mut chunk = vec![0; REWRITE_BYTES.min(range.end.saturating_sub(range.start)) as usize];
    let mut offset = range.start;
    while offset < range.end {
        let part = &mut chunk[..REWRITE_BYTES.min(range.end - offset) as usize];
        file.read_exact_at(part, offset)?;
        file.write_at(part, offset)?;
        offset += part.len() as u64;
    }
    Ok(())
}

impl Log {
    /// Takes over what a scan found: cuts what it condemned, removes what it no longer needs, writes anew what may not
    /// be on the disk, and syncs all of it.
    ///
    /// Afterwards all of the log is durable.
    /// # Errors
    /// The system's.
    pub fn open(disk: Arc<dyn Disk>, layout: &Layout, lineage: [u8; 16], scanned: Scanned) -> io::Result<Self> {
        let end = scanned.index.end();
        let tail_start = *scanned.segments.back().ok_or(io::ErrorKind::NotFound)?;
        let tail = disk.open(&layout.segment(tail_start), OpenMode::Write)?;
        for start in &scanned.condemned {
            disk.remove(&layout.segment(*start))?;
        }
        let length = SEGMENT_HEADER_BYTES + end.since(tail_start);
        if tail.length()? > length {
            tail.set_length(length)?;
        }
        if !scanned.clean {
            for (index, start) in scanned.segments.iter().enumerate() {
                let file = disk.open(&layout.segment(*start), OpenMode::Write)?;
                let end = SEGMENT_HEADER_BYTES + scanned.segments.get(index + 1).unwrap_or(&end).since(*start);
                let known = SEGMENT_HEADER_BYTES + scanned.durable.since(*start);
                write_anew(&*file, if scanned.durable > *start { known } else { 0 }..end)?;
                file.sync_data()?;
            }
            disk.sync_directory(&layout.log)?;
        }
        // Only now, for what comes after them may have been made by a process that died before it synced.
        for start in &scanned.obsolete {
            disk.remove(&layout.segment(*start))?;
        }
        let state = State {
            segments: scanned.segments,
            tail,
            zeroed: 0,
            zeros_bytes: *ZEROS_BYTES.start(),
            read_last: None,
            index: scanned.index,
            written: end,
            synced: end,
            unsynced: Vec::new(),
            directory_unsynced: false,
            unconfirmed: None,
        };
        let (layout, state) = (layout.clone(), Mutex::new(state));
        Ok(Self { disk, layout, lineage, segment_bytes: SEGMENT_BYTES, state, syncing: Mutex::new(false) })
    }

    /// Lets segments end after `bytes`.
    #[must_use]
    pub fn with_segment_bytes(self, bytes: u64) -> Self {
        Self { segment_bytes: bytes, ..self }
    }

    /// Begins a record at the end of the log, in a new segment if the newest is full.
    /// # Errors
    /// The system's; nothing is begun then. `InvalidInput` while a record is unconfirmed.
    pub fn begin(&self) -> io::Result<Appending> {
        let mut state = lock(&self.state);
        if state.unconfirmed.is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the record before is unconfirmed"));
        }
        let lsn = state.index.last_lsn() + 1;
        let mut segment = *state.segments.back().ok_or(io::ErrorKind::NotFound)?;
        if state.written.since(segment) >= self.segment_bytes {
            let header = SegmentHeader { lineage: self.lineage, position: state.written, first_lsn: lsn };
            // The failure is that of a full disk: recovery removes a segment without a whole header.
            state.tail = create_segment(&*self.disk, &self.layout, &header)?;
            segment = state.written;
            state.zeroed = 0;
            state.segments.push_back(segment);
            let file = state.tail.clone();
            state.unsynced.push((segment, file));
            state.directory_unsynced = true;
        }
        let (file, start, synced) = (state.tail.clone(), state.written, state.synced);
        Ok(Appending { file, segment, start, end: start, synced, lsn })
    }

    /// The record is written; it stays unconfirmed until [`Log::confirm`].
    pub fn finish(&self, record: &Appending, entry: Entry) {
        let mut state = lock(&self.state);
        state.written = record.end;
        state.write_zeros(SEGMENT_HEADER_BYTES + record.end.since(record.segment));
        if state.unsynced.last().is_none_or(|(start, _)| *start != record.segment) {
            state.unsynced.push((record.segment, record.file.clone()));
        }
        state.unconfirmed = Some((record.end, entry));
    }

    /// Cuts off what was written of a record that failed.
    /// # Errors
    /// The system's; where the log ends is then unknown.
    pub fn abandon(&self, record: &Appending) -> io::Result<()> {
        lock(&self.state).zeroed = 0;
        record.file.set_length(SEGMENT_HEADER_BYTES + record.start.since(record.segment))
    }

    /// Lets the unconfirmed record stand; its end, or `None` if there is none.
    pub fn confirm(&self) -> Option<LogPosition> {
        let mut state = lock(&self.state);
        let (end, entry) = state.unconfirmed.take()?;
        state.index.push(entry, end);
        Some(end)
    }

    /// Whether a record is unconfirmed.
    #[must_use]
    pub fn has_unconfirmed(&self) -> bool {
        lock(&self.state).unconfirmed.is_some()
    }

    /// Cuts the unconfirmed record off and makes the cut durable.
    /// # Errors
    /// The system's; the record may come back then, and the caller must stop.
    pub fn cut(&self) -> io::Result<()> {
        let mut failed = lock(&self.syncing);
        let mut state = lock(&self.state);
        let Some((_, entry)) = state.unconfirmed.take() else { return Ok(()) };
        let tail = *state.segments.back().ok_or(io::ErrorKind::NotFound)?;
        state.written = entry.start;
        state.synced = state.synced.min(entry.start);
        state.zeroed = 0;
        state.tail.set_length(SEGMENT_HEADER_BYTES + entry.start.since(tail))?;
        let synced = state.tail.sync_data();
        *failed |= synced.is_err();
        synced
    }

    /// Makes everything written durable; free if it is.
    /// # Errors
    /// The system's; what is durable is then unknown, and the caller must stop. Any later sync fails too: the system
    /// would call it a success, for what it could not write it has given up.
    pub fn sync(&self) -> io::Result<()> {
        let mut failed = lock(&self.syncing);
        if *failed {
            return Err(io::Error::other("an earlier sync failed"));
        }
        let synced = self.sync_written();
        *failed = synced.is_err();
        synced
    }

    /// What [`Log::sync`] does under its lock.
    fn sync_written(&self) -> io::Result<()> {
        let (files, directory, tail, upto) = {
            let state = lock(&self.state);
            if state.synced == state.written && state.unsynced.is_empty() && !state.directory_unsynced {
                return Ok(());
            }
            (state.unsynced.clone(), state.directory_unsynced, state.segments.back().copied(), state.written)
        };
        for (_, file) in &files {
            file.sync_data()?;
        }
        if directory && !active(Bug::SkipDirectorySync) {
            self.disk.sync_directory(&self.layout.log)?;
        }
        let mut state = lock(&self.state);
        // A cut takes the same lock, so `upto` still stands; what was finished meanwhile waits for the next sync.
        state.synced = state.synced.max(upto);
        let done = files.last().map(|(start, _)| *start);
        let more = state.written > upto;
        state.unsynced.retain(|(start, _)| Some(*start) > done || (more && Some(*start) == done));
        if directory {
            // A segment begun meanwhile may have been named too late for this sync, whether or not it holds a record.
            state.directory_unsynced = state.segments.back().copied() > tail;
        }
        Ok(())
    }

    /// Whether something written waits for a sync.
    #[must_use]
    pub fn needs_sync(&self) -> bool {
        let state = lock(&self.state);
        state.synced < state.written
    }

    /// Every log byte below is durable.
    #[must_use]
    pub fn synced(&self) -> LogPosition {
        lock(&self.state).synced
    }

    /// Runs `ask` on the index of confirmed records.
    pub fn with_index<T>(&self, ask: impl FnOnce(&Index) -> T) -> T {
        ask(&lock(&self.state).index)
    }

    /// Appends exactly `length` confirmed bytes from `from` on to `into`.
    /// # Errors
    /// `InvalidInput` for a range that is not in the log; the system's.
    pub fn read(&self, from: LogPosition, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let mut at = from;
        let end = from.plus(length as u64);
        let filled = into.len();
        into.resize(filled + length, 0);
        let mut rest = &mut into[filled..];
        while at < end {
            let (file, segment, until) = self.segment_of(at, end)?;
            let (now, later) = rest.split_at_mut(until.since(at) as usize);
            file.read_exact_at(now, SEGMENT_HEADER_BYTES + at.since(segment))?;
            (at, rest) = (until, later);
        }
        Ok(())
    }

    /// The open segment that holds `at`, where it starts, and how far it goes towards `end`.
    fn segment_of(&self, at: LogPosition, end: LogPosition) -> io::Result<(Arc<dyn File>, LogPosition, LogPosition)> {
        let mut state = lock(&self.state);
        let after = state.segments.partition_point(|start| *start <= at);
        if after == 0 || end > state.index.end() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{at}..{end} is not in the log")));
        }
        let segment = state.segments[after - 1];
        let until = state.segments.get(after).map_or(end, |next| end.min(*next));
        let file = match &state.read_last {
            _ if after == state.segments.len() => state.tail.clone(),
            Some((start, file)) if *start == segment => file.clone(),
            _ => self.disk.open(&self.layout.segment(segment), OpenMode::Read)?,
        };
        if after < state.segments.len() {
            state.read_last = Some((segment, file.clone()));
        }
        Ok((file, segment, until))
    }

    /// Whether a segment lies wholly below `needed`, so that [`Log::release`] would remove it.
    #[must_use]
    pub fn can_release(&self, needed: LogPosition) -> bool {
        lock(&self.state).segments.get(1).is_some_and(|next| *next <= needed)
    }

    /// Forgets records and removes segments below `needed`, which `meta` no longer needs durably. If
    /// a segment goes, the one after it must be durable first, its name included: see [`Log::can_release`].
    /// # Errors
    /// The system's; left-overs are removed at the next open.
    pub fn release(&self, needed: LogPosition) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.index.trim(needed);
        while state.segments.get(1).is_some_and(|next| *next <= needed) {
            let start = state.segments[0];
            self.disk.remove(&self.layout.segment(start))?;
            state.segments.pop_front();
            if state.read_last.as_ref().is_some_and(|(read, _)| *read == start) {
                state.read_last = None;
            }
        }
        Ok(())
    }

    /// Bytes that the kept segments hold, headers aside.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let state = lock(&self.state);
        state.segments.front().map_or(0, |first| state.written.since(*first))
    }

    /// Where the newest segment starts.
    #[cfg(test)]
    pub(crate) fn tail_for_test(&self) -> LogPosition {
        *lock(&self.state).segments.back().expect("there is always one")
    }
}
