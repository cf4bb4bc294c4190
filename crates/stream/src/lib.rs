//! Durable streams: what an append, a claim, a close or a delete means.
//!
//! # Purpose
//! The pure machine behind `/v1/stream`: a command goes in, the state moves, an outcome comes out. It holds no
//! payload; an append is given its offset here and its bytes are kept by `store`.
//!
//! # Modules
//! - [`command`]: what can be asked, one enum, with its codec
//! - [`outcome`], [`effect`]: what can be answered, refusals included; what changed for the keeper of the bytes
//! - [`machine`]: the streams of one group, and what each command does to them
//! - [`usage`]: what each bucket holds
//! - `append`: the order in which an append is judged
//! - `producer`: the record of one producer and the key table
//! - `history`: the group as a whole, and the tokens of its histories
//! - `record`, `state`: what is stored under a key: a stream, a part, or the name that leads to a stream
//!
//! # Invariants
//! Equal states given equal commands end equal, on every node and in every order of maps. A refusal changes nothing.
//! No acknowledged write is ever answered as refused, and none applies twice. Under one token the byte at an offset
//! never changes. Expiry is judged by the command's or the question's time alone: a stream that is over is as if it
//! were not there, whoever removes it. What is in memory and what is stored alone changes no answer.
//!
//! # Must not depend on
//! Anything that reads a clock, draws entropy or does I/O; the time and the new token are in the command.

mod append;
pub mod command;
pub mod effect;
mod history;
pub mod machine;
pub mod outcome;
mod producer;
mod record;
mod state;
pub mod usage;

pub use command::{
    Append, BodyFault, Command, Create, Expiry, Operation, ProducerKey, PublishSnapshot, SnapshotSource,
};
pub use effect::Effect;
pub use machine::{Due, Holder, Loading, Machine, Options, Resident, Swept};
pub use outcome::{
    Applied, ClosedEpoch, Created, Head, Outcome, ReadFrom, ReadScope, Receipt, Refusal, SnapshotHead, SnapshotPart,
    SnapshotScope, StagedLimit,
};
pub use record::links;
pub use usage::{Usage, bucket_of};
