//! The running server: groups, their machines and stores, and the threads that drive them.
//!
//! # Purpose
//! Takes a command from a front end to the group that owns its stream, through consensus and the log, and brings the
//! answer back. [`Node`] is the production shape, [`shard::ShardCore`] what it drives.
//!
//! # Modules
//! - [`api`]: what front ends ask and are answered
//! - [`config`]: the node's settings and limits
//! - [`handle`]: the front ends' way in
//! - [`json`]: where a read of a JSON stream begins and ends
//! - [`rooms`]: memory for what reads answer
//! - [`restored`]: what a data directory says about having been put back from an older copy
//! - [`route`]: which group a stream belongs to
//! - [`snapshot`]: snapshots, whose bytes pass through and are never whole in memory
//! - [`shard`]: all groups of the node, without threads
//! - [`cold`]: the object store, where data files go that the disk is not to keep
//! - [`cluster_file`], [`open`]: the data directory
//! - [`backup`]: taking, checking and restoring backups
//! - [`storage`]: what is known of damage on disk
//! - [`solo`]: a node that a simulator drives step by step
//! - [`node`], `threads`: a node in production
//!
//! # Invariants
//! An answer to a write leaves after its entry is durable on the voters that it counts. Memory is bounded: bodies in
//! flight, proposals that are not applied, waiting readers, answers of reads until their readers took them. No read's bytes are fetched on the shard's thread.
//!
//! # Must not depend on
//! `http`, `peer`, `sqlite`, `client`: nothing here knows how a request arrived.

pub mod api;
pub mod backup;
pub mod cluster_file;
pub mod cold;
pub mod config;
pub mod handle;
pub mod json;
pub mod node;
pub mod open;
pub mod restored;
pub mod rooms;
pub mod route;
pub mod shard;
pub mod snapshot;
pub mod solo;
pub mod storage;
mod threads;

pub use api::{
    ControlAnswer, Durability, GroupState, GroupStatus, HotStatus, Identity, ReadAnswer, ReadRequest, Status,
    StorageBytes, Unavailable, WriteAnswer,
};
pub use cold::{ColdOptions, ColdStatus};
pub use config::Config;
pub use handle::{Admission, Handle};
pub use node::Node;
pub use open::OpenError;
pub use snapshot::{PartsCommit, SnapshotHasher};
pub use storage::{ScrubPass, ScrubStatus, StorageFault};
