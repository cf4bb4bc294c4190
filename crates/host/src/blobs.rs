//! Files of blobs: one for each, in a directory for each account, under its CID.
//!
//! A blob's bytes are durable under its name before its row is, and its row is gone before its file is. In between stands whoever
//! uploads what somebody else deletes: a name that an upload has taken is removed by nobody, and when the upload has ended the rows
//! decide. So a row never names a file that is not there, and what a crash leaves over is removed at the next start.

mod keep;
mod reader;
mod sweep;
#[cfg(test)]
mod tests;
mod upload;

pub use keep::{KeepError, Kept};
pub use reader::BlobReader;
pub use sweep::Swept;
use upload::Room;
pub use upload::{Stored, Upload};

use highwater_disk::{Disk, OpenMode, create_directory_durably};
use highwater_pds::AccountId;
use highwater_repo::Cid;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// Bytes of the disk that uploads leave free: the log and its checkpoints need them more than anybody needs a picture.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Why a blob is not stored or not read.
#[derive(Debug, Error)]
pub enum BlobError {
    /// It has more bytes than the server takes.
    #[error("the blob has more than {0} bytes")]
    TooLarge(u64),
    /// It was announced with another number of bytes, or has none.
    #[error("the blob is empty")]
    Empty,
    /// The disk has little room left.
    #[error("the disk has little room left, which blobs do not get: make room, and try again")]
    Full,
    /// There is no such file.
    #[error("there is no such blob")]
    Missing,
    /// A row names it, and its file is gone.
    #[error("the file of the blob {0} is gone from the disk: restore it from a copy")]
    Lost(Cid),
    /// The file is not what was stored.
    #[error("the blob {0} is damaged on disk: restore its file from a copy")]
    Damaged(Cid),
    /// The system failed.
    #[error("a file of blobs: {0}")]
    Io(io::Error),
}

impl From<io::Error> for BlobError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull => Self::Full,
            _ => Self::Io(error),
        }
    }
}

/// Names that must not be removed now.
#[derive(Debug, Default)]
struct Busy {
    /// Names that uploads have taken, and how many have.
    uploading: BTreeMap<(AccountId, Cid), usize>,
    /// Copies that are being made of what the rows named a while ago.
    copies: usize,
    /// What was not removed because of a copy.
    waiting: BTreeSet<(AccountId, Cid)>,
}

/// All files of blobs.
pub struct BlobFiles {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    busy: Mutex<Busy>,
    /// Bytes that uploads under way announced and have yet to write.
    announced: Arc<Mutex<u64>>,
    serial: AtomicU64,
}

impl BlobFiles {
    /// Those of a directory, which need not exist yet.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, directory: PathBuf) -> Self {
        Self { disk, directory, busy: Mutex::default(), announced: Arc::default(), serial: AtomicU64::new(0) }
    }

    fn busy(&self) -> MutexGuard<'_, Busy> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory_of(&self, account: AccountId) -> PathBuf {
        self.directory.join(account.0.to_string())
    }

    /// Where a blob's file lies.
    #[must_use]
    pub fn path(&self, account: AccountId, cid: &Cid) -> PathBuf {
        self.directory_of(account).join(cid.to_string())
    }

    /// Begins an upload of at most `bytes_max` bytes.
    /// # Errors
    /// `Full`, or the system's.
    pub fn begin(&self, account: AccountId, bytes_max: u64) -> Result<Upload, BlobError> {
        let directory = self.directory_of(account);
        if !self.disk.exists(&directory)? {
            create_directory_durably(&*self.disk, &directory)?;
        }
        let room = self.room(&directory, bytes_max)?;
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{}{serial:016x}{}", sweep::UPLOAD_PREFIX, sweep::UPLOAD_SUFFIX));
        Upload::create(Arc::clone(&self.disk), account, path, room)
    }

    /// Room for an upload beside what all others have yet to write: each for itself would find the same bytes free.
    fn room(&self, directory: &Path, bytes: u64) -> Result<Room, BlobError> {
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        let together = announced.saturating_add(bytes);
        if self.disk.free_bytes(directory)? < FREE_BYTES_MIN.saturating_add(together) {
            return Err(BlobError::Full);
        }
        *announced = together;
        drop(announced);
        Ok(Room::new(Arc::clone(&self.announced), bytes))
    }

    /// Ends an upload's bytes: the file is durable under the blob's name when this returns, and stays until [`Self::settle`] at
    /// least. Then the row is to be made, and then [`Self::landed`] called, whatever became of it.
    /// # Errors
    /// `Empty`, or the system's; there is no file then, or one that the next start removes.
    pub fn store(&self, upload: Upload) -> Result<Stored, BlobError> {
        let (account, cid) = (upload.account(), upload.cid()?);
        // Taken before the file gets its name, so that nobody who removes the name now removes the new file.
        *self.busy().uploading.entry((account, cid)).or_default() += 1;
        let stored = upload.store(cid, &self.path(account, &cid));
        if stored.is_err() {
            self.release(account, cid);
        }
        stored
    }

    fn release(&self, account: AccountId, cid: Cid) {
        let mut busy = self.busy();
        if let Some(uploads) = busy.uploading.get_mut(&(account, cid)) {
            *uploads -= 1;
            if *uploads == 0 {
                busy.uploading.remove(&(account, cid));
            }
        }
    }

    /// An upload has come to its end; `held` says whether there is a row for the blob.
    /// # Errors
    /// The system's.
    pub fn landed(&self, stored: &Stored, held: impl FnOnce() -> bool) -> Result<(), BlobError> {
        self.release(stored.account, stored.cid);
        self.settle(stored.account, stored.cid, held)
    }

    /// A blob's row is gone, as far as whoever calls knows: removes its file, unless `held` says that there is a row, or somebody
    /// uploads the same bytes, or a copy is being made. It need not be durable: the next start would do it again.
    /// # Errors
    /// The system's.
    pub fn settle(&self, account: AccountId, cid: Cid, held: impl FnOnce() -> bool) -> Result<(), BlobError> {
        let mut busy = self.busy();
        if busy.uploading.contains_key(&(account, cid)) {
            return Ok(());
        }
        if busy.copies > 0 {
            busy.waiting.insert((account, cid));
            return Ok(());
        }
        if held() {
            return Ok(());
        }
        match self.disk.remove(&self.path(account, &cid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// From now on no file is removed, until [`Self::copied`]: what the rows name now can be copied.
    pub fn copying(&self) {
        self.busy().copies += 1;
    }

    /// A copy has come to its end: removes what waited for it, and `held` says of which there is a row again.
    /// # Errors
    /// The first of the system's; the others were tried all the same.
    pub fn copied(&self, held: impl Fn(AccountId, &Cid) -> bool) -> Result<(), BlobError> {
        let waiting = {
            let mut busy = self.busy();
            busy.copies = busy.copies.saturating_sub(1);
            if busy.copies > 0 { BTreeSet::new() } else { std::mem::take(&mut busy.waiting) }
        };
        let settled = waiting.into_iter().map(|(account, cid)| self.settle(account, cid, || held(account, &cid)));
        settled.fold(Ok(()), Result::and)
    }

    /// A blob of so many bytes, for reading.
    /// # Errors
    /// `Missing`, `Damaged` if it has another length, or the system's.
    pub fn open(&self, account: AccountId, cid: Cid, bytes: u64) -> Result<BlobReader, BlobError> {
        let file = self.disk.open(&self.path(account, &cid), OpenMode::Read).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BlobError::Missing,
            _ => error.into(),
        })?;
        BlobReader::new(file, cid, bytes)
    }

    /// Where they all lie.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
