//! The write-ahead log: one per data directory, shared by everyone who must not lose what was acknowledged.
//!
//! # Purpose
//! Appends frames of many owners in batches, makes them durable with one `fdatasync` for all that wait, finds out after
//! a crash what of it stands, and gives space back once its owners need it no longer. `docs/formats/wal.md` describes
//! every byte.
//!
//! # Modules
//! - `format`: the bytes; `files`: the directory; `scan`, `merge`: what stands of a segment, and of the whole log
//! - [`types`]: frames, locations, options and errors
//! - [`log`]: the log itself, blocking and without threads or clocks
//! - [`recovered`]: what opening found: each owner's verdict, and the surviving frames
//! - [`reader`]: frames by location, from any thread
//! - [`writer`]: the one writer in production: a thread, or a lone caller where it is
//!
//! # Invariants
//! `write_pos >= record_pos >= flush_pos`. A frame that was reported durable is found by every later open, or its owner
//! is marked. After the first failed write or sync nothing is written again. The record that justifies the end of a
//! segment is durable before the segment ends.
//!
//! # Must not depend on
//! Any crate of the workspace but `base` and `disk`; it knows nothing of what a frame says.

mod files;
mod format;
pub mod log;
mod merge;
pub mod reader;
pub mod recovered;
mod scan;
pub mod types;
pub mod writer;

pub use log::Log;
pub use reader::LogReader;
pub use recovered::{LastRun, OwnerRecovery, Recovered, ReplayError, ReplayedFrame, Verdict};
pub use types::{AppendError, Frame, Location, OpenError, Options, Poisoned, ReadError, ReleaseError, Released};
pub use writer::{Done, Metrics, Writer, WriterHandle};

/// Hands bytes to every decoder of the log's format, for fuzzers, and says how many take them for something. None may
/// panic.
#[doc(hidden)]
#[must_use]
pub fn decode_anything(bytes: &[u8], offset: u64) -> usize {
    format::decode_anything(bytes, offset)
}
