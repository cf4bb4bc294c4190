//! Where the payload and the state of one owner live, whatever their size.
//!
//! # Purpose
//! The log is for durability; this is the storage behind it. A [`Store`] knows where each byte of an object lies, in the
//! log or in data files; a [`Checkpoint`] moves applied payload from the log into data files and records the places
//! in an index, so that the log can be released. `docs/formats/store.md` describes every byte.
//!
//! # Modules
//! - [`store`]: the store as the thread that applies commands uses it; no I/O
//! - [`open`]: reading the index, cutting its torn tail, removing leftovers
//! - [`checkpoint`], `moving`: all the I/O of a checkpoint, for any thread
//! - `compaction`, `sweep`, `usage`: which files are mostly dead, and what moves out of them
//! - [`residence`], `residents`: which objects are in memory, and how others get there
//! - [`plan`], [`reader`]: what a read will fetch; fetching and verifying it, for any thread; `buffers`: its memory
//! - [`cold`]: data files that lie in an object store
//! - [`scrub`], [`mod@verify`]: reading everything, of a store in use and of one that nobody has open
//! - [`pin`]: a checkpoint's files, kept while they are copied
//! - [`log`]: what is asked of the log
//! - [`options`]: sizes and bounds
//! - `extent`, `data`, `runs`, `files`, `index`: places, and the files that hold payload and places
//!
//! # Invariants
//! Payload is never held in memory. The order of a checkpoint is payload, sync, names, sync, index, sync, report; so a
//! crash anywhere leaves the state of the last one that was reported or of the one under way. A data file is deleted only
//! when a synced index no longer names it, and its object in an object store likewise. No checkpoint, and nothing that a
//! command waits for, asks an object store for anything. A file whose sync failed is not written again.
//!
//! # A checkpoint's course
//! [`Store::begin_checkpoint`], then [`Checkpoint::run`] on a thread for I/O, then [`Store::finish_checkpoint`] or, with the
//! error, [`Store::fail_checkpoint`]; a failed one loses nothing, the next one does its work too. After a finished one the
//! log may be released up to [`CheckpointDone::applied`], and the returned [`Reclaim`] is dropped on the thread for I/O.
//!
//! # Must not depend on
//! Any crate of the workspace but `base`, `disk` and `wal`; it knows nothing of what states and payload say.

mod buffers;
pub mod checkpoint;
pub mod cold;
mod compaction;
mod data;
mod extent;
mod files;
mod index;
pub mod log;
mod moving;
pub mod open;
pub mod options;
pub mod pin;
pub mod plan;
pub mod reader;
pub mod residence;
mod residents;
mod runs;
pub mod scrub;
pub mod store;
mod sweep;
mod usage;
pub mod verify;

pub use checkpoint::{Checkpoint, CheckpointDone, CheckpointError, CheckpointFault};
pub use cold::{
    ColdCandidate, ColdError, ColdPlan, ColdStore, ColdTier, Erased, Folder, Life, MoveError, Outward, moved_files,
};
pub use data::DataFault;
pub use log::{LogError, LogSource};
pub use open::{Loaded, OpenError, Opening};
pub use options::Options;
pub use pin::{Pin, PinnedFile};
pub use plan::ReadPlan;
pub use reader::{ReadError, StoreReader};
pub use residence::{Found, Keep, Lookup, LookupError, Residence, Visited};
pub use scrub::{Fault, IndexSlice, ScrubCursor, ScrubSlice, Scrubbed};
pub use store::{Reclaim, Store, StoreStatus};
pub use verify::{Verified, verify};

/// The format version of data files.
pub const DATA_VERSION: u16 = data::VERSION;
/// The format version of index files.
pub const INDEX_VERSION: u16 = index::VERSION;
