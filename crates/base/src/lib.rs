//! The words every other crate of Highwater speaks.
//!
//! # Purpose
//! Identifiers, stream offsets, incarnation tokens, digests, the byte codec, the limits with their reasons, and the
//! seams through which time and entropy enter.
//!
//! # Modules
//! - [`id`]: nodes, Raft groups and the owners of log frames
//! - [`offset`]: a position in a stream, with its two spellings
//! - [`incarnation`]: the token of one history of a stream
//! - [`digest`]: BLAKE3-256 and its spelling
//! - [`codec`]: the one byte codec of records that are stored or sent
//! - [`clock`], [`random`]: what production reads from the machine and the simulator makes up
//! - [`limits`]: every bound, and why it has that value
//! - [`planted`]: faults for the simulator to find
//!
//! # Invariants
//! Nothing here performs I/O, reads a clock or draws entropy; a decoder never allocates more than its input is long.
//!
//! # Must not depend on
//! Any other crate of the workspace.

pub mod clock;
pub mod codec;
pub mod digest;
pub mod id;
pub mod incarnation;
pub mod limits;
pub mod offset;
pub mod planted;
pub mod random;

pub use clock::{Clock, Millis};
pub use digest::Digest;
pub use id::{GroupId, NodeId, OwnerId};
pub use incarnation::Incarnation;
pub use offset::Offset;
pub use random::Random;
