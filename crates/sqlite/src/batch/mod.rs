//! Batches: what one append to a database's stream carries (`docs/formats/batch.md`).

mod codec;
mod splitter;
mod stream;

pub use codec::{
    Batch, Body, Claim, Fault, HEADER_BYTES, Header, Kind, MAGIC, NONCE_BYTES, PAYLOAD_BYTES_MAX, VERSION,
    encode_claim, encode_data_header,
};
pub use splitter::{Opening, Splitter, opening};
pub use stream::{Sink, StreamFault, StreamReader};

/// The content type of every database's stream.
pub const CONTENT_TYPE: &str = "application/vnd.ursula.sqlite-vfs.v2";

/// The producer under whose key every batch is appended.
pub const PRODUCER_ID: &str = "sqlite-ursula-vfs/2";

/// Bytes of the largest batch that is sealed, its header included.
pub const BATCH_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests;
