//! Replication: how logged commits reach the database's stream, and what `synced()` waits for.
//!
//! [`machine`] decides; [`Replication`] carries out, on a few threads that all databases of the process share; [`bind`]
//! ties a file to a stream in the first place.

mod bind;
pub(crate) mod connect;
pub mod errors;
pub mod machine;
mod perform;
mod replication;
mod threads;

pub use bind::bind;
pub use errors::{StreamError, SyncedError};
pub use perform::batch_bytes;
pub use replication::Replication;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
