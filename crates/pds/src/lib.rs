//! A Personal Data Server of the AT Protocol, as what it remembers and decides.
//!
//! # Purpose
//! Accounts and where they stand, what relays were told of it, the numbers of the stream, and what a restore makes of all of
//! them. Whoever runs it signs, stores and sends; here is decided what.
//!
//! # Modules
//! - [`account`]: an account's row; its standing, and the position that relays are told
//! - [`authority`]: in whose name something is asked, and whether that still stands
//! - [`credentials`], [`blob`]: what an account logs in with; the blobs that it holds
//! - [`record`], [`draft`]: what the log holds of one turn, and what a turn hands over before its frames have numbers
//! - [`frame`]: messages of the firehose
//! - [`lifecycle`], [`turn`]: what is done to an account; a write; what relays have yet to hear
//! - [`boot`], [`restore`]: what a start tells relays; what it makes of a data directory that was restored
//! - [`witness`]: what is remembered outside that directory
//! - [`names`]: DIDs and handles of a zone, each given once
//! - [`sequence`], [`cursor`]: numbers, the ceiling, gaps; where a subscriber starts
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
pub mod authority;
pub mod blob;
pub mod boot;
pub mod credentials;
pub mod cursor;
pub mod draft;
pub mod events;
pub mod frame;
pub mod lifecycle;
pub mod names;
pub mod record;
pub mod restore;
pub mod sequence;
pub mod state;
pub mod time;
pub mod turn;
pub mod witness;

pub use account::{Account, AccountId, Head, Position, Standing, Status, Unserved};
pub use authority::{Asker, Authority, Withdrawn};
pub use draft::{Draft, Part};
pub use record::{Entry, Fact, Record};
pub use sequence::{Seq, Sequence};
pub use state::State;
pub use time::Micros;
pub use turn::{Refused, Signer};
pub use witness::Witness;
