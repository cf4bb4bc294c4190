//! Raft groups: what is agreed, and when it may be believed.
//!
//! # Purpose
//! One [`Group`] is one replica of one Raft group, over the crate `raft`. Proposals, ticks and messages go in; entries
//! to store, entries to apply, messages to send and confirmed reads come out. A single node runs the same path with
//! one voter.
//!
//! # Modules
//! - [`group`]: the replica: propose, tick, step, ready, persisted, read index
//! - [`log`]: the entries that are not yet applied, in memory, as the crate `raft` reads them
//! - [`entry`]: entries, hard state, configuration and the base of a log, with their stored form
//! - [`message`]: what replicas tell each other, with its own codec
//! - [`recovery`]: a log as it was found on disk, validated before `raft` sees it
//!
//! # Invariants
//! Everything that the crate `raft` would panic about is checked before it is handed over, and is a typed error.
//! A message that promises durability leaves only after [`Group::persisted`]. Election timeouts follow from the
//! injected seed. A read that cannot be confirmed is reported, never forgotten.
//!
//! # Must not depend on
//! Clocks, randomness of its own, threads, I/O; no type of the crate `raft` is part of the interface.

pub mod entry;
pub mod group;
mod log;
pub mod message;
pub mod recovery;

pub use entry::{Base, ConfState, Entry, EntryKind, HardState};
pub use group::{Batch, Group, GroupOptions, NotLeader, ReadConfirmed, Ready, Role, Standing};
pub use message::{Message, StepError};
pub use recovery::{RecoveredLog, RecoveryError};
