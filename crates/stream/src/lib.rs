//! Durable streams: what an append, a claim, a close or a delete means.
//!
//! # Purpose
//! The pure machine behind `/v1/stream`: a command goes in, the state moves, an outcome comes out. It holds no
//! payload; an append is given its offset here and its bytes are kept by `store`.
//!
//! # Modules
//! - [`command`]: what can be asked, one enum, with its codec
//! - [`outcome`]: what can be answered, refusals included
//! - [`machine`]: the streams of one group, and what each command does to them
//! - `append`: the order in which an append is judged
//! - `producer`: the record of one producer and the key table
//! - `state`: one stream, and the bytes in which it is stored
//!
//! # Invariants
//! Equal states given equal commands end equal, on every node and in every order of maps. A refusal changes nothing.
//! No acknowledged write is ever answered as refused, and none applies twice.
//!
//! # Must not depend on
//! Anything that reads a clock, draws entropy or does I/O; the time and the new token are in the command.

mod append;
pub mod command;
pub mod machine;
pub mod outcome;
mod producer;
mod state;

pub use command::{Append, Command, Create, Operation, ProducerKey};
pub use machine::{Machine, Options};
pub use outcome::{Applied, ClosedEpoch, Created, Effect, Head, Outcome, ReadFrom, ReadScope, Receipt, Refusal};
