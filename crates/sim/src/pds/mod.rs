//! The world of accounts: a whole server of them on one simulated disk, and those who follow its stream.
//!
//! A run has the phases of every other world: faults, then healing, then a search for everything that anybody was told. What
//! is special here are histories: a copy of the files is put back and marked, the lost run's frames are no more, and everybody who saw them
//! must end where the restored server is, without a number or a revision that ever means two things.
//!
//! Modules:
//! - [`world`]: who is there and what happens next; [`faults`]: what goes wrong; `copies`: histories that begin again; [`phases`]: a run from its beginning to its end
//! - [`stories`]: short lives, in which every operation of the disk may be the last one
//! - [`swarm`]: what a run is made of
//! - [`server`], [`observer`]: who takes part
//! - [`model`], [`seen`], [`starts`]: what accounts must be, what the stream must show, and what a start may do

mod copies;
pub mod faults;
pub mod model;
pub mod observer;
pub mod phases;
pub mod seen;
pub mod server;
pub mod starts;
pub mod stories;
pub mod swarm;
pub mod world;

pub use phases::run;

/// What runs are meant to meet. A row that changes without its frame is not among it: what the log keeps of a full disk holds a lock of every
/// account here, with its frame. Nor are blocks that are written together, for which a story writes enough.
pub const MEETINGS: [&str; 21] = [
    "a server of accounts died in the middle of an operation",
    "a server of accounts lost power",
    "a start of a server of accounts died",
    "the log of accounts failed",
    "a turn found no space",
    "a turn survived without its answer",
    "a turn was lost without its answer",
    "a checkpoint of accounts was made",
    "frames were given up",
    "a copy of accounts was put back",
    "a copy of accounts was put back again",
    "a copy was put back that is older than one put back before",
    "a restored server's clock was behind",
    "a restore was refused for the clock",
    "a restore was resumed",
    "a restore told of an account that is not active",
    "a start where nothing changed was silent",
    "an account was locked and lifted",
    "an account was erased",
    "a consumer's cursor was outdated",
    "a consumer fetched a repository",
];
