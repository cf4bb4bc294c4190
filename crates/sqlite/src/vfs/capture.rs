//! What the transactions of one database write into the `-wal`, seen frame by frame.
//!
//! SQLite writes each changed page as a frame header and a page, and the page of the last frame, whose header names
//! the size of the database, is the commit. Frames of a large transaction are written early, may then be overwritten
//! in place, and a savepoint's rollback reuses their places for other pages. So the capture is keyed by frame, and a
//! commit takes of each page the highest frame. It holds page numbers only: the images are read back from the `-wal`.

use crate::engine::{LogPosition, PageNumber};
use crate::vfs::locks::ConnectionId;
use thiserror::Error;

/// Bytes of the header of a `-wal`.
pub const HEADER_BYTES: u64 = 32;
/// Bytes of the header of a frame.
pub const FRAME_HEADER_BYTES: u64 = 24;
/// Where SQLite's lock bytes lie; the page around them holds nothing.
const LOCK_BYTES_OFFSET: u32 = 0x4000_0000;
/// Confirmed commits of which positions are kept before those that are in the database file are dropped: 16 KiB.
const POSITIONS_KEPT: usize = 1_024;

/// A write to the `-wal` that SQLite does not make in the course of a captured transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unexpected {
    /// The writer's slot is not held: `locking_mode=EXCLUSIVE` does without it.
    #[error("a write to the -wal outside of a transaction; PRAGMA locking_mode=EXCLUSIVE is not supported")]
    NoTransaction,
    /// Neither a header nor a page, or not at its place.
    #[error("a write of {length} bytes at {offset} of the -wal is neither a frame's header nor its page")]
    Shape {
        /// Where.
        offset: u64,
        /// How many bytes.
        length: usize,
    },
    /// A frame after one that was never written.
    #[error("frame {frame} of the -wal was written after frame {last}")]
    Order {
        /// The frame.
        frame: u32,
        /// The last frame before it.
        last: u32,
    },
    /// A page changed after the transaction's record was logged.
    #[error("frame {frame} of the -wal changed after its commit was logged")]
    AfterCommit {
        /// The frame.
        frame: u32,
    },
    /// The published wal-index names frames that were never captured.
    #[error("the wal-index names {published} frames and {captured} were written")]
    Lost {
        /// Frames of the wal-index.
        published: u32,
        /// Frames seen.
        captured: usize,
    },
}

/// The commit that a frame header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// The last frame.
    pub frame: u32,
    /// Pages of the database after it.
    pub pages_after: u32,
}

/// What a write to the `-wal` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// A header of the file or of a frame, or a page that does not complete a commit.
    Plain,
    /// The page that completes a commit.
    CommitPage(Commit),
}

/// A record that was logged for the running transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    /// The commit it records.
    pub commit: Commit,
    /// The end of its record.
    pub end: LogPosition,
}

#[derive(Debug)]
struct Transaction {
    connection: ConnectionId,
    /// Frames that were published before it.
    base: u32,
    announced: Option<Commit>,
    logged: Option<Logged>,
}

/// The frames of the `-wal` and the running write transaction. There is one of each, whatever the connections.
#[derive(Debug)]
pub struct Capture {
    page_size: u32,
    /// The page of each frame, the first frame first. As long as SQLite's own index of them.
    frames: Vec<PageNumber>,
    transaction: Option<Transaction>,
    /// The last frame and the record's end of confirmed commits, ascending.
    positions: Vec<(u32, LogPosition)>,
    /// Everything below is in the database file, synced or not.
    backfilled: LogPosition,
}

impl Capture {
    /// Nothing written yet, over a database file that holds all of the log below `end`.
    #[must_use]
    pub fn new(page_size: u32, end: LogPosition) -> Self {
        Self { page_size, frames: Vec::new(), transaction: None, positions: Vec::new(), backfilled: end }
    }

    /// The writer's slot was taken; `published` is the last frame of the wal-index.
    /// # Errors
    /// `Lost`.
    pub fn begin(&mut self, connection: ConnectionId, published: u32) -> Result<(), Unexpected> {
        if published as usize > self.frames.len() {
            return Err(Unexpected::Lost { published, captured: self.frames.len() });
        }
        // What lies behind was rolled back, and is written over from here on.
        self.frames.truncate(published as usize);
        self.transaction = Some(Transaction { connection, base: published, announced: None, logged: None });
        Ok(())
    }

    /// Takes note of a write to the `-wal` and says what it is.
    /// # Errors
    /// What SQLite never does in a transaction that can be captured; nothing is noted then.
    pub fn write(&mut self, connection: ConnectionId, bytes: &[u8], offset: u64) -> Result<Piece, Unexpected> {
        let running = self.transaction.as_mut().filter(|running| running.connection == connection);
        let running = running.ok_or(Unexpected::NoTransaction)?;
        let shape = Unexpected::Shape { offset, length: bytes.len() };
        if offset == 0 && bytes.len() as u64 == HEADER_BYTES {
            if word(bytes, 8) != Some(self.page_size) {
                return Err(shape);
            }
            // The `-wal` starts again, which it does only once all of it is in the database file.
            running.base = 0;
            self.frames.clear();
            if let Some((_, end)) = self.positions.last() {
                self.backfilled = *end;
            }
            self.positions.clear();
            return Ok(Piece::Plain);
        }
        let frame_bytes = FRAME_HEADER_BYTES + u64::from(self.page_size);
        let inside = offset.checked_sub(HEADER_BYTES).ok_or(shape)?;
        let frame = u32::try_from(inside / frame_bytes + 1).map_err(|_| shape)?;
        match inside % frame_bytes {
            0 if bytes.len() as u64 == FRAME_HEADER_BYTES => {
                let (page, size) = word(bytes, 0).zip(word(bytes, 4)).ok_or(shape)?;
                Self::frame_header(running, &mut self.frames, frame, page, size)
            }
            FRAME_HEADER_BYTES if bytes.len() == self.page_size as usize => {
                if running.logged.is_some() {
                    return Err(Unexpected::AfterCommit { frame });
                }
                if frame <= running.base || frame as usize > self.frames.len() {
                    return Err(Unexpected::Order { frame, last: running.base });
                }
                let commit = running.announced.filter(|commit| commit.frame == frame);
                Ok(commit.map_or(Piece::Plain, Piece::CommitPage))
            }
            _ => Err(shape),
        }
    }

    fn frame_header(
        running: &mut Transaction,
        frames: &mut Vec<PageNumber>,
        frame: u32,
        page: PageNumber,
        size: u32,
    ) -> Result<Piece, Unexpected> {
        let index = frame as usize - 1;
        if let Some(logged) = running.logged {
            // Checksums are written anew, of frames up to the commit and for the same pages.
            let same = frame <= logged.commit.frame && frames.get(index) == Some(&page);
            return if same { Ok(Piece::Plain) } else { Err(Unexpected::AfterCommit { frame }) };
        }
        if frame <= running.base || index > frames.len() {
            return Err(Unexpected::Order { frame, last: u32::try_from(frames.len()).unwrap_or(u32::MAX) });
        }
        match frames.get_mut(index) {
            Some(known) => *known = page,
            None => frames.push(page),
        }
        running.announced = (size != 0).then_some(Commit { frame, pages_after: size });
        Ok(Piece::Plain)
    }

    /// The pages that a commit changes, ascending, each once, with the frame of its image.
    ///
    /// Pages past the end of the database are left out, and so is the page of SQLite's lock bytes.
    #[must_use]
    pub fn images(&self, commit: Commit) -> Vec<(PageNumber, u32)> {
        let base = self.transaction.as_ref().map_or(0, |running| running.base);
        let lock_page = LOCK_BYTES_OFFSET / self.page_size + 1;
        let stored = |page: PageNumber| page >= 1 && page <= commit.pages_after && page != lock_page;
        let written = self.frames.get(base as usize..commit.frame as usize).unwrap_or_default();
        let numbered = written.iter().copied().zip(base.saturating_add(1)..);
        let mut images: Vec<(PageNumber, u32)> = numbered.filter(|(page, _)| stored(*page)).collect();
        images.sort_unstable_by_key(|(page, frame)| (*page, std::cmp::Reverse(*frame)));
        images.dedup_by_key(|(page, _)| *page);
        images
    }

    /// The record of the running transaction was logged.
    pub fn logged(&mut self, logged: Logged) {
        if let Some(running) = &mut self.transaction {
            running.logged = Some(logged);
        }
    }

    /// The record of the running transaction, if its commit got so far.
    #[must_use]
    pub fn record(&self) -> Option<Logged> {
        self.transaction.as_ref().and_then(|running| running.logged)
    }

    /// The running transaction ends and its record stands; `backfilled` frames are in the database file.
    pub fn confirm(&mut self, logged: Logged, backfilled: u32) {
        self.transaction = None;
        self.frames.truncate(logged.commit.frame as usize);
        if self.positions.len() >= POSITIONS_KEPT {
            let below = self.positions.partition_point(|(frame, _)| *frame <= backfilled);
            self.positions.drain(..below.saturating_sub(1));
        }
        self.positions.push((logged.commit.frame, logged.end));
    }

    /// The running transaction ends without a commit.
    pub fn abandon(&mut self) {
        if let Some(running) = self.transaction.take() {
            self.frames.truncate(running.base as usize);
        }
    }

    /// The `-wal` was cut to `length` bytes.
    pub fn cut(&mut self, length: u64) {
        let whole = length.saturating_sub(HEADER_BYTES) / (FRAME_HEADER_BYTES + u64::from(self.page_size));
        self.frames.truncate(usize::try_from(whole).unwrap_or(usize::MAX));
    }

    /// The `-wal` was deleted, which happens only once all of it is in the database file.
    pub fn deleted(&mut self, end: LogPosition) {
        self.frames.clear();
        self.positions.clear();
        self.backfilled = end;
    }

    /// The first `frames` frames are in the database file: up to where that covers the log.
    pub fn backfill(&mut self, frames: u32) -> LogPosition {
        let below = self.positions.partition_point(|(frame, _)| *frame <= frames);
        if let Some((_, end)) = below.checked_sub(1).and_then(|last| self.positions.get(last)) {
            self.backfilled = self.backfilled.max(*end);
        }
        self.backfilled
    }

    /// Frames in the `-wal`.
    #[must_use]
    pub fn frames(&self) -> u32 {
        u32::try_from(self.frames.len()).unwrap_or(u32::MAX)
    }

    /// Where a frame begins in the `-wal`; its page lies [`FRAME_HEADER_BYTES`] behind.
    #[must_use]
    pub fn frame_offset(&self, frame: u32) -> u64 {
        HEADER_BYTES + u64::from(frame.saturating_sub(1)) * (FRAME_HEADER_BYTES + u64::from(self.page_size))
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.page_size
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests;
