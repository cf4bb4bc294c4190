//! Repositories of the AT Protocol: records under keys, in a tree whose root an account signs.
//!
//! # Purpose
//! What a record, a commit and a tree are, byte for byte; what a write makes of them; and how somebody who holds nothing but
//! a commit's blocks verifies it. Whoever serves repositories stores the blocks, orders the commits and tells the world.
//!
//! # Modules
//! - [`cid`], [`data`]: names of blocks; values of the data model, their one encoding and their JSON
//! - [`mst`]: the tree: edits, records in order, proofs, undoing, export order
//! - [`mod@write`]: from writes to a signed commit with the blocks that readers are sent; all limits of size
//! - [`commit`], [`key`]: commits; signing and verifying keys of both curves
//! - [`car`], [`export`]: archives of blocks; those of whole repositories, of one record, and what a repository consists of
//! - [`tid`], [`syntax`]: revisions; the texts that call accounts, kinds and records
//! - [`record`]: what makes a value a record
//!
//! # Invariants
//! The same records make the same tree, in whatever order they came. A value has one encoding, and no other is read. A tree
//! changes as a whole or not at all. Every size is checked before a commit exists. The blocks of a commit suffice to undo it.
//!
//! # Must not depend on
//! Any crate of the workspace but `base`; clocks, entropy, files. No crate that implements the protocol: those check this one,
//! in tests.

pub mod car;
pub mod cid;
pub mod commit;
pub mod data;
pub mod export;
pub mod key;
pub mod mst;
pub mod record;
pub mod syntax;
pub mod tid;
pub mod write;

pub use cid::{Cid, Codec};
pub use commit::Commit;
pub use data::Value;
pub use mst::{Blocks, Tree};
pub use tid::Tid;
