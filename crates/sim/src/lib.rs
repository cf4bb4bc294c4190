//! The simulator: one world from one seed, on one thread, in virtual time.
//!
//! # Purpose
//! Runs a whole server (node, log, store) and databases (engine, replicator) on simulated disks behind a simulated
//! network, lets everything go wrong that a seed says, and holds what they say against what must be true. The code that
//! runs is production's; only threads, clocks, entropy, sockets and files are replaced.
//!
//! A run has three phases. In the safety phase faults happen and the invariants are checked after every step. In the
//! liveness phase faults are over and everything must converge. In the durability scan power fails everywhere, and
//! everything that anyone was told must be there.
//!
//! # Modules
//! - [`run`]: a run and its phases; [`world`]: who is there and what happens next; [`schedule`]: virtual time
//! - [`swarm`]: what a run is made of; [`faults`]: what goes wrong
//! - [`server`], [`database`], [`clients`] with [`ops`]: who takes part
//! - [`network`], [`message`], [`wire`], [`exchange`], [`objects`]: what goes between them
//! - [`oracle`], [`invariants`]: what must be true
//! - [`trace`]: what happened, and its hash
//! - [`pds`]: a world of its own, of a server of accounts and of those who follow its stream
//!
//! # Invariants
//! One seed gives one run: nothing here, and nothing that runs here, reads a clock, draws entropy of its own, starts a
//! thread or depends on an order of addresses or hashes. The oracle sees what clients see, and no machine's insides.
//!
//! This crate switches `highwater-base/planted` on, with which a test plants one fault in its own thread. Cargo joins
//! features when it builds several packages together, so that in a build of the whole workspace the other crates hold
//! the switch too; it is off unless a test of this crate turns it on. No crate depends on this one: the released
//! binaries, which are built by themselves, do not hold it.
//!
//! # Must not depend on
//! `http`: the front end has no part in what is simulated. Nothing depends on this crate.

pub mod clients;
pub mod database;
pub mod exchange;
pub mod faults;
pub mod invariants;
pub mod message;
pub mod network;
pub mod objects;
pub mod ops;
pub mod oracle;
pub mod pds;
pub mod run;
pub mod schedule;
pub mod server;
pub mod swarm;
pub mod trace;
pub mod wire;
pub mod world;

pub use invariants::{Invariant, Violation};
pub use run::{Failure, Report, run};
pub use trace::MEETINGS;
