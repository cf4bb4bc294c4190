//! A running Personal Data Server: its log, its store, and what it answers.
//!
//! # Purpose
//! Takes turns of accounts from any thread, makes them durable together, and shows them only then: to those who wait, to readers,
//! and to the subscribers of the firehose. Keeps blocks and frames, finds them again, and tells relays at a start what they do
//! not know. `docs/formats/pds-directory.md` describes the directory.
//!
//! # Modules
//! - [`options`], [`types`], [`error`]: how it is kept, what is asked, why not; [`pending`]: answers that are still to come
//! - [`host`]: the handle; [`change`], [`mod@write`], [`read`], [`export`]: accounts, records, whole repositories
//! - [`subscription`], `ring`: following the stream
//! - [`worker`], `queue`, `turn`, `slot`: how a turn is built, becomes durable and is shown
//! - `blocks`, `index`, `windows`, `compaction`: where blocks are, and keeping few that nobody needs
//! - `checkpoint`: what is done beside the writing
//! - [`open`], [`boot`], `restore`: a start; what it tells relays; what it does with a directory that was put back
//! - [`witness`]: what is remembered where it does not go back with the directory
//! - [`backup`], [`verify`]: copies of a running server, and whether a directory is whole; [`mark`]: the word that it was restored
//! - [`blobs`]: files of blobs; [`seal`]: the key file, which encrypts secrets
//! - [`files`], [`layout`]: the small files of the directory; [`status`]: figures
//! - [`share`]: who holds how much of what all share
//!
//! # Invariants
//! Nobody sees a frame, a row or an answer before the log is synced. Turns of an account stand in the log in the order in which
//! they were built. A turn that is refused leaves everything as it was. After a failed write or sync nothing is shown any more.
//!
//! # Must not depend on
//! Any runtime of tasks; `node` and what stands above it; crates that speak HTTP.

pub mod backup;
pub mod blobs;
mod blocks;
pub mod boot;
pub mod change;
mod checkpoint;
mod compaction;
pub mod error;
pub mod export;
pub mod files;
pub mod host;
mod index;
pub mod layout;
pub mod mark;
pub mod open;
pub mod options;
pub mod pending;
mod queue;
pub mod read;
mod restore;
mod ring;
pub mod seal;
pub mod share;
mod shared;
mod slot;
pub mod status;
pub mod subscription;
mod turn;
pub mod types;
pub mod verify;
mod windows;
pub mod witness;
pub mod worker;
pub mod write;

pub use backup::{Backup, BackupError};
pub use boot::{Boot, Restored};
pub use error::{CursorRefused, OpenError, ReadError, Refused, Unsettled, WriteRefused};
pub use export::Export;
pub use highwater_pds::lifecycle::{Announce, Change};
pub use highwater_pds::{Asker, Authority, Unserved, Withdrawn};
pub use host::Host;
pub use mark::{MarkError, forget, mark_restored};
pub use options::{Options, Sealer, Seams};
pub use pending::Pending;
pub use status::{Status, Subscriber};
pub use subscription::{Delivery, Subscription};
pub use types::{Action, List, Listed, NewAccount, Page, RecordWrite, WriteBatch, WriteResult, Written};
pub use verify::{Secrets, Verified, verify};
pub use worker::{Running, Worker};
