//! The blocking client for durable streams.
//!
//! # Purpose
//! One typed request, one typed answer. A write's answer says what it proves: done, refused, redirected, or unknown.
//! The caller decides what to do next; the client never sends anything twice and never follows a redirect.
//!
//! # Modules
//! - [`stream`]: create, append, claim, close, head, read, delete
//! - [`classify`]: what an answer proves, as a pure function
//! - [`producer`]: receipts, and refusals that speak of a producer's key
//! - [`head`]: identity and state of a stream
//! - [`headers`], [`error_body`], [`retry_after`], [`url`]: strict readers of what arrives and of what people give
//! - [`manage`]: requests about keys, accounts and plans
//! - [`exchange`]: one request over one kept connection
//! - `transport`: giving up for want of progress
//! - [`backup`]: taking a backup
//! - [`websocket`]: streams of messages that a server sends over a WebSocket
//! - [`token`]: the bearer token, reread when its file changes
//!
//! # Invariants
//! - A success without the typed answer of its kind is unknown, never success.
//! - An attempt ends after ten seconds without progress, however long it takes in all while it makes some.
//! - What is read of an answer is bounded; an answer that breaks off is none.
//! - A token is never logged, printed or kept in an error.
//!
//! # Must not depend on
//! Any crate of the workspace but `base`. It holds no async runtime and starts no thread of its own: it lives inside
//! other people's processes.

pub mod backup;
pub mod classify;
pub mod error_body;
pub mod exchange;
pub mod head;
pub mod headers;
pub mod manage;
pub mod producer;
pub mod retry_after;
pub mod stream;
pub mod token;
mod transport;
pub mod url;
pub mod websocket;

pub use backup::{BackupClient, BackupRefused};
pub use classify::{Answer, Outcome, Refusal, WriteKind, Written, classify};
pub use exchange::{Client, Options, SetupError, Unanswered, Why};
pub use head::{Head, Identity, PROTOCOL};
pub use highwater_base::{Incarnation, Offset};
pub use manage::{Managed, Verb};
pub use producer::{ClosedBy, ClosedEpoch, ProducerRefusal, Receipt};
pub use stream::{Append, Create, Expiry, From, HeadAnswer, Key, Piece, Read, Stream};
pub use token::{TokenId, TokenSource};
pub use url::{StreamUrl, UrlError};
