//! What a command changed, for those who keep bytes and those who wait.

use highwater_base::Offset;

/// A change of what a stream holds. An object is the key under which `store` keeps bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A new stream; its first `length` bytes are the command's body.
    Created {
        /// The stream's object.
        object: u64,
        /// Bytes of the body; may be zero.
        length: u64,
    },
    /// The command's body is the stream's bytes from `start`, or the stream was closed, or both.
    Append {
        /// The stream's object.
        object: u64,
        /// Where the bytes begin.
        start: Offset,
        /// Bytes of the body; zero for a close alone.
        length: u64,
        /// Whether the stream is closed now.
        closed: bool,
    },
    /// The stream is gone, and its bytes with it.
    Removed {
        /// The stream's object.
        object: u64,
    },
    /// The command's body is an object of its own: a staged part, or a whole snapshot.
    Part {
        /// The part's object.
        object: u64,
        /// Bytes of the body; may be zero.
        length: u64,
    },
    /// A part is gone, and its bytes with it.
    PartRemoved {
        /// The part's object.
        object: u64,
    },
    /// The stream has a new latest snapshot.
    Published {
        /// The stream's object.
        object: u64,
        /// The snapshot's offset.
        offset: Offset,
    },
    /// The stream's bytes below the offset are given up.
    Retained {
        /// The stream's object.
        object: u64,
        /// The first offset that stays.
        offset: Offset,
    },
    /// The stream's window began anew.
    Touched {
        /// The stream's object.
        object: u64,
    },
    /// Every stream of the group has another token now.
    HistoryBegun,
    /// Every sliding expiry has a whole window from here.
    Led,
}

impl Effect {
    /// Whether a reader at the tail of the stream may have an answer now.
    #[must_use]
    pub fn wakes(&self) -> bool {
        matches!(self, Self::Created { .. } | Self::Append { .. } | Self::Removed { .. })
    }
}
