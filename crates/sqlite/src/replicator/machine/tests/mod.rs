//! The machine against a model of the log and of the stream's server.

mod claims;
pub(in crate::replicator) mod model;
mod scenario;
mod simulation;
mod table;
