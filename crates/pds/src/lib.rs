//! A Personal Data Server of the AT Protocol, as what it remembers and decides.
//!
//! # Purpose
//! Accounts and where they stand, what relays were told of it, the numbers of the stream, and what a restore makes of all of
//! them. Whoever runs it signs, stores and sends; here is decided what.
//!
//! # Modules
//! - [`account`]: an account's row; its standing, and the position that relays are told
//! - [`credentials`], [`blob`]: what an account logs in with; the blobs that it holds
//! - [`record`], [`draft`]: what the log holds of one turn, and what a turn hands over before its frames have numbers
//! - [`frame`]: messages of the firehose
//! - [`sequence`]: numbers, the ceiling, gaps
//! - [`events`]: which frames are kept, and where they lie
//! - [`state`]: everything, as the log made it
//! - [`time`]: the clock's readings
//!
//! # Invariants
//! A record of the log applies as a whole. A number is used once. What relays were told changes with the frame that tells
//! them, in one record. A row changes whether or not a frame can be numbered.
//!
//! # Must not depend on
//! Any crate of the workspace but `base` and `repo`; clocks, entropy, files.

pub mod account;
pub mod blob;
pub mod credentials;
pub mod draft;
pub mod events;
pub mod frame;
pub mod record;
pub mod sequence;
pub mod state;
pub mod time;

pub use account::{Account, AccountId, Head, Position, Standing, Status};
pub use draft::{Draft, Part};
pub use record::{Entry, Fact, Record};
pub use sequence::{Seq, Sequence};
pub use state::State;
pub use time::Micros;
