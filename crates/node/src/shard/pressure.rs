//! Whether there is room for a write: in memory, in the log's bound, on the disk.

use super::{ShardCore, Token};
use crate::api::Unavailable;

/// Bytes of the largest record that is proposed: it fits into a segment with its pages' checksums and all around it.
#[must_use]
pub const fn frame_bytes_max(wal_segment_bytes: u64) -> u64 {
    wal_segment_bytes / 4 * 3
}

/// Bytes of file that a batch with so many bytes of records takes at most: the marks and headers, and whole pages.
const fn laid_out_bytes(bytes: u64) -> u64 {
    bytes + bytes / 64 + 2 * 4_096
}

impl<T: Token> ShardCore<T> {
    /// What a write of `bytes` is refused with now, if it is. One that makes room may use the log's reserve.
    #[must_use]
    pub fn pressure(&self, bytes: u64, makes_room: bool) -> Option<Unavailable> {
        if self.failed.is_some() {
            return Some(Unavailable::ApplyStopped);
        }
        if self.log_refuses(bytes, makes_room) || bytes > frame_bytes_max(self.options.wal_segment_bytes) {
            return Some(Unavailable::WalDiskPressure);
        }
        (self.uncommitted_bytes + bytes > self.options.uncommitted_bytes_max && self.uncommitted_bytes > 0)
            .then_some(Unavailable::RaftUncommittedBackpressure)
    }

    /// Whether the log has no room for a further write, however small.
    #[must_use]
    pub fn log_full(&self) -> bool {
        self.log_refuses(0, false)
    }

    /// Bytes of the largest write that the log has room for behind what is in flight, where the disk bounds it.
    #[must_use]
    pub fn log_room(&self) -> Option<u64> {
        let taken = laid_out_bytes(self.uncommitted_bytes) + self.reserve_bytes(false);
        self.log_room.map(|room| room.saturating_sub(taken) / 65 * 64)
    }

    /// Whether the log may have no room for what is in flight and `bytes` more: nothing of that is proposed then, so
    /// that it is an answer and not a wait.
    fn log_refuses(&self, bytes: u64, makes_room: bool) -> bool {
        // Of the bound, two segments stay free for what is already proposed and for the groups' own records. A delete
        // is smaller than any of these, and leaves one.
        let segments = if makes_room { 1 } else { 2 };
        let bound = self.log_bytes() + segments * self.options.wal_segment_bytes > self.options.wal_bytes_max;
        let needed = laid_out_bytes(self.uncommitted_bytes + bytes) + self.reserve_bytes(makes_room);
        self.full.is_some() || bound || self.log_room.is_some_and(|room| needed > room)
    }

    /// Bytes of the last segment that a full disk has room for and that a write must leave: an eighth for deletes, of
    /// which they leave an eighth for the groups' own records.
    fn reserve_bytes(&self, makes_room: bool) -> u64 {
        self.options.wal_segment_bytes / if makes_room { 64 } else { 8 }
    }

    /// Bytes of the segments that hold what is still needed, as far as is known here.
    fn log_bytes(&self) -> u64 {
        let span = self.segment_oldest().map_or(0, |oldest| self.segment_newest.saturating_sub(oldest) + 1);
        span.saturating_mul(self.options.wal_segment_bytes)
    }

    /// Bytes proposed and not yet applied.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> u64 {
        self.uncommitted_bytes
    }
}
