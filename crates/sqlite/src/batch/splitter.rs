//! A stream's bytes, cut into batches.

use super::codec::{Batch, Body, Claim, Fault, HEADER_BYTES, Header};
use bytes::Bytes;

/// Cuts bytes that arrive in any pieces into batches; holds one batch at the most.
#[derive(Debug, Default)]
pub struct Splitter {
    held: Vec<u8>,
    /// The stream offset of the first byte held.
    offset: u64,
}

impl Splitter {
    /// A splitter for bytes from `offset` on, where a batch starts.
    #[must_use]
    pub fn at(offset: u64) -> Self {
        Self { held: Vec::new(), offset }
    }

    /// The offset up to which whole batches were given out.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes held of a batch that is not whole yet.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Takes from the front of `bytes` what the next batch still lacks, and gives that batch out if it is whole.
    /// Call again until nothing is given out and `bytes` is empty.
    /// # Errors
    /// What is wrong with the batch at [`Splitter::offset`]; the splitter is of no more use.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Batch>, Fault> {
        self.take(bytes, HEADER_BYTES);
        let Some(header) = self.held.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(header)?;
        self.take(bytes, header.batch_bytes());
        if self.held.len() < header.batch_bytes() {
            return Ok(None);
        }
        let whole = Bytes::from(std::mem::take(&mut self.held));
        let batch = header.with_payload(whole.slice(HEADER_BYTES..))?;
        self.offset += whole.len() as u64;
        Ok(Some(batch))
    }

    fn take(&mut self, bytes: &mut &[u8], upto: usize) {
        let wanted = upto.saturating_sub(self.held.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at(wanted);
        self.held.extend_from_slice(taken);
        *bytes = rest;
    }
}

/// What the first bytes of a stream show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// Nothing: the stream is empty.
    Empty,
    /// A database's stream of this format.
    Ours(Claim),
    /// Anything else.
    Foreign(Fault),
}

/// Looks at a stream's first bytes, of which at least one claim's should be given if the stream has so many.
#[must_use]
pub fn opening(bytes: &[u8]) -> Opening {
    if bytes.is_empty() {
        return Opening::Empty;
    }
    let mut rest = bytes;
    match Splitter::at(0).next(&mut rest) {
        Ok(Some(Batch { body: Body::Claim(claim), .. })) => Opening::Ours(claim),
        Ok(_) => Opening::Foreign(Fault::Magic),
        Err(fault) => Opening::Foreign(fault),
    }
}
