//! Highwater over HTTP: the axum adapters, and the only place where errors become HTTP.
//!
//! # Purpose
//! A request becomes a command of the node, an outcome becomes an answer. Nothing is decided here that a machine
//! decides; this crate checks syntax, bounds what it reads and holds, and renders.
//!
//! # Modules
//! - [`service`]: what a handler asks of the node, as a trait, so that faults can be played in tests
//! - [`error`]: the table of error codes and the mapping of every refusal to status, code and headers
//! - [`options`]: limits and timeouts of the listener
//! - [`server`]: listeners, graceful shutdown; `connection`: TLS, HTTP/1.1 and HTTP/2; `timed`: stalls; `places`: how
//!   many connections; `traffic`: what is counted of them; [`closing`]: the moment from which nobody waits;
//!   [`lanes`]: the threads that serve them; `head_timer`: how long a head may take
//! - [`front`]: what a listener offers and to whom; [`network`]: addresses; [`tls`]: certificates that change
//! - `names`, `fields`, `expiry`, `path`, `query`: the syntax of headers, paths and queries
//! - `create`, `append`, `read`, `head`, `delete`: one operation each; `answer` renders what writes have in common;
//!   `pieces` sends a long answer as it is read
//! - `json`: the messages of JSON streams; `sse`: reads that go on as events
//! - `bounds`, `body`, `drain`: bounds of heads, bounded reading of bodies, and what happens to those nobody read
//! - `access`, `cors`: who may ask in open mode, and what browsers are told
//! - `auth`: who asks with which key, what that key may do, and what its account's plan allows
//! - `manage`: the routes of keys, accounts and plans
//! - [`mount`]: what lives beside the node and is served through the same listeners
//! - `anything`: the readers of requests, for fuzzers
//! - `admin`, `storage`: health, readiness, metrics and status; `metrics`: what is counted and how it is written;
//!   `observe`: what is told of a request; `backup`: taking one
//!
//! # Invariants
//! No body is larger than the request limit, no queue or wait is without a bound. A refusal is sent whole: the body
//! that belongs to it is read away afterwards. `NO_LEADER` proves that nothing was proposed, `OUTCOME_UNKNOWN` never
//! does. Every HEAD of a stream's path names the server to those whom it does not refuse. No request reaches the node before
//! its key, its scope and its path were judged.
//!
//! # Must not depend on
//! `disk`, `wal`, `store`, `consensus`: the node is the only way to what is stored.

mod access;
mod admin;
mod answer;
mod anything;
mod append;
mod auth;
mod backup;
mod body;
mod bounds;
pub mod closing;
mod connection;
mod cors;
mod create;
mod cursor;
mod delete;
mod drain;
pub mod error;
mod expiry;
mod fields;
pub mod front;
mod head;
mod head_timer;
mod immutable;
mod json;
pub mod lanes;
mod manage;
mod metrics;
pub mod mount;
mod names;
pub mod network;
mod observe;
pub mod options;
mod path;
mod pieces;
mod places;
mod query;
mod read;
mod retention;
mod router;
pub mod server;
pub mod service;
mod snapshot;
mod sse;
mod storage;
mod timed;
pub mod tls;
mod traffic;

pub use anything::{json_anything, parse_anything};
pub use closing::Closing;
pub use error::{Code, Error};
pub use front::{Front, Services};
pub use lanes::Lanes;
pub use mount::Mounted;
pub use network::Network;
pub use options::HttpOptions;
pub use router::router;
pub use server::{Listener, ServeError, Server, serve};
pub use service::Service;
pub use tls::{Reloaded, Standing, Tls, TlsError, Validity};
