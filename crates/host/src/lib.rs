//! A running Personal Data Server: its log, its store, and what it answers.
//!
//! # Purpose
//! Takes turns of accounts from any thread, makes them durable together, and shows them only then: to those who wait, to readers,
//! and to the subscribers of the firehose. Keeps blocks and frames, finds them again, and tells relays at a start what they do
//! not know. `docs/formats/pds-directory.md` describes the directory.
//!
//! # Modules
//! - [`options`], [`types`], [`error`]: how it is kept, what is asked, why not
//! - [`pending`]: answers that are still to come
//! - [`blobs`]: files of blobs; [`seal`]: the key file, which encrypts secrets
//! - [`files`], [`layout`]: the small files of the directory: what it is, from which number on, and that it was restored
//!
//! # Invariants
//! Nobody sees a frame, a row or an answer before the log is synced. Turns of an account stand in the log in the order in which
//! they were built. A turn that is refused leaves everything as it was. After a failed write or sync nothing is shown any more.
//!
//! # Must not depend on
//! Any runtime of tasks; `node` and what stands above it; crates that speak HTTP.

pub mod blobs;
pub mod error;
pub mod files;
pub mod layout;
pub mod options;
pub mod pending;
pub mod seal;
pub mod types;

pub use error::{CursorRefused, OpenError, ReadError, Refused, Unserved, Unsettled, WriteRefused};
pub use options::{Announce, Options, Sealer, Seams};
pub use pending::Pending;
pub use types::{Action, List, Listed, NewAccount, RecordWrite, WriteBatch, WriteResult, Written};
