//! Who reads a firehose: one that follows the specification to the letter, and one that behaves as the network's relay does.
//!
//! # Purpose
//! What a server of accounts sends is verified here, message by message, by rules that are written down independently of the
//! server: its tests, its simulator and a command that follows a stream hold it to them. Errors name what was wrong.
//!
//! # Modules
//! - [`frame`]: one message, decoded strictly; this crate cannot encode one
//! - [`follower`]: who follows a stream by the sync specification and holds each repository's records
//! - [`relay`]: the network's relay in virtual time: its limits, its workers, and when it gives up
//! - [`violation`]: what a server did that it must not
//!
//! # Invariants
//! Nothing is taken that was not verified. A message that breaks a rule changes nothing but what it says of itself. The same
//! inputs make the same outputs.
//!
//! # Must not depend on
//! Whatever encodes messages or serves them; clocks, entropy, sockets. The caller brings the time, the keys and the
//! repositories that are asked for.

pub mod follower;
pub mod frame;
pub mod relay;
pub mod violation;

pub use follower::{Follower, Input, Output};
pub use frame::{Frame, FrameError};
pub use violation::Violation;
