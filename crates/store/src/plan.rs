//! What a read will fetch, and from where.

use crate::data::BLOCK_PAYLOAD_BYTES;
use crate::extent::FileExtent;
use highwater_wal::Location;
use std::ops::Range;

/// Pieces of one plan at the most; a read that needs more answers less.
///
/// A piece is about 48 bytes, so a plan stays below 200 KB; 4,096 appends of 256 bytes are an answer of 1 MiB.
pub const PIECES_MAX: usize = 4096;

/// A contiguous part of a plan that lies in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// These object offsets, in a data file.
    File { extent: FileExtent, range: Range<u64> },
    /// This part of a frame's payload.
    Log { source: Location, within: Range<u32> },
}

/// Which bytes of an object a read fetches, and where they lay when it was planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPlan {
    pub(crate) object: u64,
    pub(crate) range: Range<u64>,
    pub(crate) pieces: Vec<Piece>,
}

impl ReadPlan {
    /// The object.
    #[must_use]
    pub fn object(&self) -> u64 {
        self.object
    }

    /// Object offset of the first byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.range.start
    }

    /// Object offset behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.range.end
    }

    /// Bytes that the read answers.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Bytes of memory that the read takes while it is fetched: of the log whole frames are read, to check them.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let whole = |piece: &Piece| match piece {
            Piece::File { range, .. } => range.end - range.start,
            Piece::Log { source, .. } => u64::from(source.length),
        };
        // One frame at a time is read besides the answer itself.
        let frame = self.pieces.iter().map(whole).max().unwrap_or(0);
        let alone = matches!(self.pieces[..], [Piece::Log { .. }]);
        if alone { frame.max(self.length()) } else { self.length() + frame }
    }

    /// Cuts the plan behind about `length` bytes, at a place where what follows reads nothing a second time: at the end of a
    /// block, which is the last one within `length` unless that leaves nothing, or of a frame's part, which is read whole.
    pub fn cut(&mut self, length: u64) {
        let stop = self.range.start.saturating_add(length.max(1));
        let (mut at, mut kept) = (self.range.start, 0);
        for piece in &mut self.pieces {
            if at >= stop {
                break;
            }
            kept += 1;
            match piece {
                Piece::File { extent, range } if range.end > stop => {
                    let block = BLOCK_PAYLOAD_BYTES as u64;
                    let within = extent.start + (stop - extent.start) / block * block;
                    let end = if within > range.start { within } else { within + block };
                    range.end = range.end.min(end);
                    at = range.end;
                    break;
                }
                Piece::File { range, .. } => at = range.end,
                Piece::Log { within, .. } => at += u64::from(within.end - within.start),
            }
        }
        self.pieces.truncate(kept);
        self.range.end = at;
    }

    /// Whether there is nothing at the offset that was asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_cut_where_nothing_is_read_twice() {
        const BLOCK: u64 = BLOCK_PAYLOAD_BYTES as u64;
        let extent = FileExtent { start: 0, length: 3 * BLOCK as u32, file: 1, position: 4096 };
        let source = Location { segment: 1, offset: 4096, length: 60 };
        let (file, log) = (|end| Piece::File { extent, range: 40..end }, Piece::Log { source, within: 5..55 });
        let whole = ReadPlan { object: 1, range: 40..3 * BLOCK + 50, pieces: vec![file(3 * BLOCK), log.clone()] };
        for (length, end, pieces) in [
            (0, BLOCK, vec![file(BLOCK)]),
            (BLOCK - 41, BLOCK, vec![file(BLOCK)]),
            (BLOCK - 40, BLOCK, vec![file(BLOCK)]),
            (2 * BLOCK - 41, BLOCK, vec![file(BLOCK)]),
            (2 * BLOCK - 40, 2 * BLOCK, vec![file(2 * BLOCK)]),
            (3 * BLOCK - 40, 3 * BLOCK, vec![file(3 * BLOCK)]),
            (3 * BLOCK - 39, 3 * BLOCK + 50, whole.pieces.clone()),
            (u64::MAX, 3 * BLOCK + 50, whole.pieces.clone()),
        ] {
            let mut plan = whole.clone();
            plan.cut(length);
            assert_eq!((plan.end(), plan.pieces), (end, pieces), "{length}");
        }
        let mut logged = ReadPlan { object: 1, range: 0..100, pieces: vec![log.clone(), log.clone()] };
        logged.cut(10);
        assert_eq!((logged.end(), logged.pieces), (50, vec![log]), "a frame is not cut");
    }
}
