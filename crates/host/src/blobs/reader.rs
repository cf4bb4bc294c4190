//! A blob on its way out.

use super::BlobError;
use super::upload::cid_of;
use bytes::Bytes;
use highwater_disk::File;
use highwater_repo::Cid;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// Bytes that are read at once.
const CHUNK_BYTES: u64 = 64 << 10;

/// A blob that is read front to back. Its last bytes come only if all of them are what was stored, so that nobody takes other bytes
/// for the blob.
pub struct BlobReader {
    file: Arc<dyn File>,
    cid: Cid,
    bytes: u64,
    at: u64,
    hasher: Sha256,
}

impl BlobReader {
    pub(super) fn new(file: Arc<dyn File>, cid: Cid, bytes: u64) -> Result<Self, BlobError> {
        if file.length()? != bytes {
            return Err(BlobError::Damaged(cid));
        }
        Ok(Self { file, cid, bytes, at: 0, hasher: Sha256::new() })
    }

    /// The next bytes; none at the end.
    /// # Errors
    /// `Damaged`, or the system's.
    pub fn read(&mut self) -> Result<Option<Bytes>, BlobError> {
        if self.at == self.bytes {
            return Ok(None);
        }
        let mut chunk = vec![0; CHUNK_BYTES.min(self.bytes - self.at) as usize];
        self.file.read_exact_at(&mut chunk, self.at)?;
        self.at += chunk.len() as u64;
        self.hasher.update(&chunk);
        if self.at == self.bytes && cid_of(self.hasher.clone()) != Some(self.cid) {
            return Err(BlobError::Damaged(self.cid));
        }
        Ok(Some(chunk.into()))
    }
}
