//! What a read will fetch, and from where.

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

    /// Whether there is nothing at the offset that was asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}
