//! Highwater's SQLite extension: every commit is logged locally and replicated to a stream.
//!
//! # Purpose
//! A loadable extension (`libhighwater_sqlite.so`) and a Rust library. Databases bound to a stream are opened through
//! its VFS, `file:app.db?vfs=highwater`; a commit is local, and one replicator per database sends it on.
//!
//! # Modules
//! - [`host`]: the SQLite library it is loaded into: entry points, registration, forks, checkpoints of our own
//! - [`ffi`]: SQLite's C interface, written by hand
//! - [`vfs`]: the VFS: files, locks, the wal-index, the capture of commits
//! - [`functions`]: the SQL functions
//! - [`engine`]: one open database: its log, checkpoints, recovery
//! - [`record`], [`log`], [`meta`]: the bytes it keeps
//! - [`bind`]: how a database gets a stream
//! - [`batch`], [`replicator`], [`push`]: what is sent, when, and what each answer means
//! - [`restore`], [`verify`]: a database from its stream, and against it
//! - `guard`: locks that outlive a panic
//!
//! # Invariants
//! A commit is in the log before SQLite shows it to anyone, or it is rolled back. The database file changes in
//! checkpoints only. No callback panics into SQLite, writes to the standard streams, or waits for the network.
//!
//! # Must not depend on
//! `wal`, `store`, `consensus`, `node`: the server's parts. Nor on a SQLite library at build time: the host brings it.

pub mod batch;
pub mod bind;
pub mod engine;
pub mod ffi;
pub mod functions;
mod guard;
pub mod host;
pub mod log;
pub mod meta;
pub mod push;
pub mod record;
pub mod replicator;
pub mod restore;
pub mod verify;
pub mod vfs;
