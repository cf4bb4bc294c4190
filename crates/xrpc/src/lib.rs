//! The HTTP surface of the PDS: XRPC methods, the firehose's socket, and the files by which names are looked up.
//!
//! # Purpose
//! A request becomes a call of the host, an outcome becomes an answer. Nothing is decided here that the machine decides; this
//! crate checks syntax, bounds what it reads and holds, and renders.
//!
//! # Modules
//! - [`error`]: the table of error names and their statuses
//! - [`router`]: from a request to its method; [`methods`]: the table of methods
//! - [`call`]: what a method is asked: its parameters and its body, read within bounds; [`query`]: parameters
//! - [`context`]: what all methods share; [`options`]: limits and timeouts, each with its reason
//! - [`auth`]: whose request it is, and what it may do
//! - [`sessions`]: who opens sessions and what their tokens are worth; `server`, `admin`: what accounts do with themselves, and
//!   the operator with them; `blobs`: uploads, and reading them
//! - [`jose`]: signed tokens, of sessions and for other services; [`passwords`]: what is kept of them
//! - [`limits`]: how often an address or an account may ask; `shares`: how much of what all share it may hold, `held` of answers; `body`: how slowly it
//!   may send
//! - `repo`, `sync`: records, as their owner writes them and anybody reads them; repositories, as relays read them
//! - `firehose`: the stream's sockets
//! - `names`, `pages`: DID documents and handles by the host that is asked; the pages beside the methods
//! - [`anything`]: the readers of requests, for fuzzers
//! - [`operator`]: what an operator asks, behind the keys of the server that mounts it
//! - `answer`, `pieces`, `cors`: what answers have in common, those that are read while they are sent, what browsers are told
//!
//! # Invariants
//! Every method and every error has a row in a table, from which the reference page is made. No body, wait or queue is without
//! a bound. Every refusal has a body of JSON with its name.
//!
//! # Must not depend on
//! `http`, which mounts these routes; `disk`, `wal`, `store`: the host is the only way to what is stored.

mod admin;
mod answer;
pub mod anything;
pub mod auth;
mod blobs;
mod body;
pub mod call;
pub mod context;
mod cors;
pub mod error;
mod firehose;
mod held;
pub mod jose;
pub mod limits;
pub mod methods;
mod names;
pub mod operator;
pub mod options;
mod pages;
pub mod passwords;
mod pieces;
pub mod query;
mod repo;
pub mod router;
mod server;
pub mod sessions;
mod shares;
mod sync;

pub use auth::{Access, Gatekeeper, Scope};
pub use blobs::upkeep;
pub use call::{Call, Peer};
pub use context::{Context, Seams};
pub use error::{Error, Name};
pub use options::Options;
pub use router::router;
pub use sessions::{Auth, AuthError, AuthOptions};
pub use shares::Party;
