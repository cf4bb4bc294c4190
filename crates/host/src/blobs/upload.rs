//! A blob on its way in: written to a file of another name while it is hashed.

use super::BlobError;
use highwater_disk::{Disk, File, OpenMode};
use highwater_pds::blob::HEAD_BYTES;
use highwater_pds::{AccountId, Authority};
use highwater_repo::Cid;
use highwater_repo::cid::{CID_BYTES, Codec};
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What an upload announced and has yet to write: other uploads do not count on these bytes.
pub(super) struct Room {
    announced: Arc<Mutex<u64>>,
    left: u64,
}

impl Room {
    /// Of bytes that were added to what is announced.
    pub(super) fn new(announced: Arc<Mutex<u64>>, left: u64) -> Self {
        Self { announced, left }
    }

    /// The disk knows of these by now.
    fn wrote(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        *self.announced.lock().unwrap_or_else(PoisonError::into_inner) -= bytes;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.wrote(self.left);
    }
}

/// An upload. One that is dropped leaves nothing.
pub struct Upload {
    disk: Arc<dyn Disk>,
    account: AccountId,
    authority: Authority,
    path: PathBuf,
    file: Arc<dyn File>,
    hasher: Sha256,
    head: Vec<u8>,
    bytes: u64,
    bytes_max: u64,
    room: Room,
    renamed: bool,
}

/// A blob whose bytes are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Whose.
    pub account: AccountId,
    /// Its name.
    pub cid: Cid,
    /// Its bytes.
    pub bytes: u64,
    /// The first of them, by which its type is told.
    pub head: Vec<u8>,
}

/// The name of bytes with a digest.
pub(super) fn cid_of(hasher: Sha256) -> Option<Cid> {
    let empty = Cid::of(Codec::Raw, b"").to_bytes();
    let mut bytes: [u8; CID_BYTES] = empty;
    let digest = hasher.finalize();
    bytes[CID_BYTES - digest.len()..].copy_from_slice(&digest);
    Cid::from_bytes(&bytes).ok()
}

impl Upload {
    pub(super) fn create(
        disk: Arc<dyn Disk>,
        account: AccountId,
        path: PathBuf,
        room: Room,
    ) -> Result<Self, BlobError> {
        let file = disk.open(&path, OpenMode::Create)?;
        file.set_length(0)?;
        let (authority, hasher, head, bytes_max) = (Authority::Server, Sha256::new(), Vec::new(), room.left);
        Ok(Self { disk, account, authority, path, file, hasher, head, bytes: 0, bytes_max, room, renamed: false })
    }

    /// Takes the next bytes.
    /// # Errors
    /// `TooLarge`, or the system's.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        if self.bytes + bytes.len() as u64 > self.bytes_max {
            return Err(BlobError::TooLarge(self.bytes_max));
        }
        self.file.write_at(bytes, self.bytes)?;
        self.bytes += bytes.len() as u64;
        self.room.wrote(bytes.len() as u64);
        self.hasher.update(bytes);
        let room = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    }

    pub(super) fn asked_by(mut self, authority: Authority) -> Self {
        self.authority = authority;
        self
    }

    /// In whose name it was begun.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Whose it is.
    #[must_use]
    pub fn account(&self) -> AccountId {
        self.account
    }

    /// The name of the bytes so far.
    pub(super) fn cid(&self) -> Result<Cid, BlobError> {
        if self.bytes == 0 {
            return Err(BlobError::Empty);
        }
        cid_of(self.hasher.clone()).ok_or(BlobError::Empty)
    }

    /// Makes the bytes durable, then their name.
    pub(super) fn store(mut self, cid: Cid, path: &Path) -> Result<Stored, BlobError> {
        self.file.sync_all()?;
        self.disk.rename(&self.path, path)?;
        self.renamed = true;
        if let Some(directory) = path.parent() {
            self.disk.sync_directory(directory)?;
        }
        Ok(Stored { account: self.account, cid, bytes: self.bytes, head: std::mem::take(&mut self.head) })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.renamed
            && let Err(error) = self.disk.remove(&self.path)
        {
            tracing::debug!(%error, "the file of an upload that was given up stays until the next start");
        }
    }
}
