//! The commit path: admission, the record, its confirmation or its cut.

use super::{
    AppendFailed, CommitShape, Engine, LogPosition, PageNumber, Refused, StopCode, StopReason, Synchronous, lock,
};
use crate::engine::pages::{Change, PageTable};
use crate::log::{Appending, Entry};
use crate::record::{Encoder, Header, lock_page};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The database file grows in steps of this many bytes at least, so that small commits reserve rarely.
const RESERVE_BYTES: u64 = 256 << 10;

/// What the writer of a database keeps between commits.
pub(super) struct CommitState {
    pub table: PageTable,
    /// The change of the unconfirmed record.
    staged: Option<Change>,
    /// The host synced the unconfirmed record.
    pub synced_by_host: bool,
    /// The database file has space up to here.
    pub reserved_end: u64,
    /// Pages that a growth brought in unwritten, with the end of the record that did: they are zero whatever an
    /// earlier shrink left there, which the next checkpoint sees to.
    pub gaps: BTreeMap<PageNumber, LogPosition>,
}

impl CommitState {
    pub fn new(table: PageTable, length: u64) -> Self {
        Self { table, staged: None, synced_by_host: false, reserved_end: length, gaps: BTreeMap::new() }
    }

    /// Whether the unconfirmed record writes a page that came in unwritten.
    pub fn staged_writes_gap(&self) -> bool {
        let staged = self.staged.as_ref();
        staged.is_some_and(|change| change.hashes.iter().any(|(number, _)| self.gaps.contains_key(number)))
    }

    /// Applies the staged change; its record ends at `end`.
    fn confirm(&mut self, end: LogPosition) {
        let Some(change) = self.staged.take() else { return };
        let (before, after) = (self.table.pages(), change.pages_after);
        drop(self.gaps.split_off(&after.saturating_add(1)));
        let mut written = change.hashes.iter().map(|(number, _)| *number).peekable();
        if after > before {
            while written.next_if(|number| *number <= before).is_some() {}
            let (lock, mut next) = (lock_page(self.table.page_size()), before + 1);
            for number in written.by_ref().chain([after + 1]) {
                self.gaps.extend((next..number).filter(|gap| *gap != lock).map(|gap| (gap, end)));
                next = number + 1;
            }
        }
        if !self.gaps.is_empty() {
            for (number, _) in &change.hashes {
                self.gaps.remove(number);
            }
        }
        self.table.apply(change);
    }
}

/// The numbers of a commit's pages that go into its record, as a range of the list and the one left out of it.
struct Kept {
    range: Range<usize>,
    lock: PageNumber,
    count: u32,
}

impl Kept {
    fn of(commit: &CommitShape<'_>) -> Result<Self, AppendFailed> {
        let ascending = commit.pages.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || commit.pages.first() == Some(&0) || commit.pages_after == 0 {
            return Err(AppendFailed::Shape);
        }
        let end = commit.pages.partition_point(|number| *number <= commit.pages_after);
        let lock = lock_page(commit.page_size);
        let has_lock = commit.pages[..end].binary_search(&lock).is_ok();
        Ok(Self { range: 0..end, lock, count: (end - usize::from(has_lock)) as u32 })
    }
}

fn full_or_io(error: io::Error) -> AppendFailed {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => AppendFailed::Full,
        _ => AppendFailed::Io(error),
    }
}

impl Engine {
    /// Asked at the first write of a transaction.
    ///
    /// A single commit may pass the limit while the backlog is below it: what a reset can discard is the limit and
    /// one commit.
    /// # Errors
    /// `BacklogFull`, or `Stopped`.
    pub fn admit_write(&self) -> Result<(), Refused> {
        if let Some(reason) = self.stop_reason() {
            return Err(Refused::Stopped(reason));
        }
        let pending_bytes = self.backlog_bytes();
        let max_pending_bytes = self.options.max_pending_bytes;
        if pending_bytes >= max_pending_bytes {
            return Err(Refused::BacklogFull { pending_bytes, max_pending_bytes });
        }
        Ok(())
    }

    /// Logs a commit, unconfirmed and unsynced; answers the end of its record. `read_page(i, buffer)` fills in the
    /// image of `commit.pages[i]`, for some `i`, ascending. It must not call the engine.
    ///
    /// The growth of the database file is reserved first, so that recovery needs no free space.
    /// # Errors
    /// See [`AppendFailed`]; the log is cut back.
    pub fn append_commit(
        &self,
        commit: CommitShape<'_>,
        read_page: &mut dyn FnMut(usize, &mut [u8]) -> io::Result<()>,
    ) -> Result<LogPosition, AppendFailed> {
        if let Some(reason) = self.stop_reason() {
            return Err(AppendFailed::Stopped(reason));
        }
        let expected = self.binding.page_size;
        if commit.page_size != expected {
            return Err(AppendFailed::PageSize { expected, found: commit.page_size });
        }
        let kept = Kept::of(&commit)?;
        let mut state = lock(&self.commit);
        if self.log.has_unconfirmed() {
            return Err(AppendFailed::Unconfirmed);
        }
        self.reserve(&mut state, &commit).map_err(full_or_io)?;
        let mut record = self.log.begin().map_err(full_or_io)?;
        match self.encode(&state.table, &commit, &kept, read_page, &mut record) {
            Ok(change) => {
                let entry = Entry { start: record.start, pages_after: change.pages_after, checksum: change.checksum };
                self.log.finish(&record, entry);
                state.staged = Some(change);
                state.synced_by_host = false;
                Ok(record.end)
            }
            Err(failed) => {
                if let Err(error) = self.log.abandon(&record) {
                    drop(state);
                    let error = self.fail("a failed record cannot be cut off the log", error);
                    let reason = self.stop_reason();
                    return Err(reason.map_or(AppendFailed::Io(error), AppendFailed::Stopped));
                }
                Err(failed)
            }
        }
    }

    fn reserve(&self, state: &mut CommitState, commit: &CommitShape<'_>) -> io::Result<()> {
        let needed = u64::from(commit.pages_after) * u64::from(commit.page_size);
        if needed <= state.reserved_end {
            return Ok(());
        }
        let from = state.reserved_end;
        let rounded = needed.next_multiple_of(RESERVE_BYTES);
        match self.database.reserve(from, rounded - from) {
            Ok(()) => state.reserved_end = rounded,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.database.reserve(from, needed - from)?;
                state.reserved_end = needed;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn encode(
        &self,
        table: &PageTable,
        commit: &CommitShape<'_>,
        kept: &Kept,
        read_page: &mut dyn FnMut(usize, &mut [u8]) -> io::Result<()>,
        record: &mut Appending,
    ) -> Result<Change, AppendFailed> {
        let mut encoder = Encoder::take()?;
        encoder.begin(Header {
            lsn: record.lsn,
            synced: record.synced.0,
            page_size: commit.page_size,
            pages_after: commit.pages_after,
            page_count: kept.count,
        });
        let mut sink = |bytes: &[u8]| record.write(bytes);
        let mut hashes = Vec::with_capacity(kept.count as usize);
        let mut leaves_wal = false;
        for (index, number) in commit.pages[kept.range.clone()].iter().enumerate() {
            if *number == kept.lock {
                continue;
            }
            let mut fill = |buffer: &mut [u8]| {
                read_page(index, buffer)?;
                leaves_wal |= *number == 1 && buffer[18..20] != [2, 2];
                Ok(())
            };
            hashes.push((*number, encoder.page(*number, &mut fill, &mut sink).map_err(full_or_io)?));
            if leaves_wal {
                return Err(AppendFailed::LeavesWal);
            }
        }
        let change = table.change(commit.pages_after, hashes, &*self.database)?;
        encoder.finish(change.checksum, &mut sink).map_err(full_or_io)?;
        encoder.give_back();
        Ok(change)
    }

    /// The unconfirmed record stands; nothing happens if there is none.
    pub fn confirm(&self) {
        {
            let mut state = lock(&self.commit);
            let Some(end) = self.log.confirm() else { return };
            state.confirm(end);
            self.commits_synced.store(state.synced_by_host, Ordering::Release);
        }
        if self.synchronous() != Synchronous::Off && self.log.needs_sync() {
            self.schedule_sync();
        }
        let wake = lock(&self.wake).clone();
        if let Some(wake) = wake {
            wake();
        }
        self.status_changed();
    }

    /// The unconfirmed record does not stand: cuts it off and syncs the cut; nothing happens if there is none.
    /// # Errors
    /// The system's; the database is stopped then.
    pub fn cut(&self) -> io::Result<()> {
        let cut = {
            let mut state = lock(&self.commit);
            state.staged = None;
            self.log.cut()
        };
        cut.map_err(|error| self.fail("a record that does not stand cannot be cut off the log", error))
    }

    /// The end of the last confirmed record.
    #[must_use]
    pub fn confirmed_end(&self) -> LogPosition {
        self.log.with_index(|index| index.end())
    }

    /// Bytes of commits that wait for the stream, what bind logged of a populated file included.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.confirmed_end().since(lock(&self.meta).acknowledged)
    }

    /// Bytes that a reset would discard: pending, without what bind logged.
    fn backlog_bytes(&self) -> u64 {
        let end = self.confirmed_end();
        let meta = lock(&self.meta);
        end.since(meta.acknowledged.max(meta.image_end))
    }

    /// Marks the database unusable in this process, as after `fork` in the child; nothing is written.
    pub fn abandon(&self, text: &str) {
        let mut stop = lock(&self.stop);
        stop.get_or_insert_with(|| StopReason::new(StopCode::Closed, text));
        self.stopped.store(true, Ordering::Release);
    }
}
