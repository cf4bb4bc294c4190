//! Copies of a running server, and checking them.
//!
//! A copy is a checkpoint with its data files, and no log: what it holds ends with the checkpoint. A note in it says so, so that a
//! directory that lost its log is never taken for one.

use crate::error::OpenError;
use crate::files;
use crate::host::Host;
use crate::layout::{Paths, damaged, encode_floor, encode_layout, sealed, unsealed};
use crate::pending::pending;
use crate::queue::Mail;
use crate::slot::lock;
use crate::worker::Worker;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader};
use highwater_disk::{Disk, OpenMode, create_directory_durably};
use highwater_pds::{AccountId, Draft, Fact, Micros};
use highwater_repo::Cid;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The version of the note in a copy.
pub const NOTE_VERSION: u16 = 1;
const NOTE_MAGIC: [u8; 8] = *b"HWPDSCPY";
/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 4 << 20;
/// Attempts at a moment without a checkpoint under way.
const PIN_ATTEMPTS: usize = 16;

/// What a copy says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The record that its checkpoint covers.
    pub applied: u64,
    /// When it was made, in microseconds since 1970.
    pub at: u64,
}

/// The note's bytes.
#[must_use]
pub fn encode_note(note: &Note) -> Vec<u8> {
    sealed(NOTE_MAGIC, NOTE_VERSION, |out| {
        out.u64(note.applied).u64(note.at);
    })
}

/// Reads it.
/// # Errors
/// What is wrong with it.
pub fn decode_note(bytes: &Bytes) -> Result<Note, DecodeError> {
    let mut input: Reader = unsealed(bytes, NOTE_MAGIC, NOTE_VERSION)?;
    let note = Note { applied: input.u64()?, at: input.u64()? };
    input.finish()?;
    Ok(note)
}

pub(crate) fn read_note(disk: &dyn Disk, paths: &Paths) -> Result<Option<Note>, OpenError> {
    let path = paths.note();
    let Some(bytes) = files::read(disk, &path).map_err(OpenError::io(&path))? else { return Ok(None) };
    decode_note(&bytes).map(Some).map_err(damaged(path))
}

/// A copy that is opened gets a log; only then its note goes. The log's first record is of the time at which the copy was made: how old that
/// is counts in a restore's raise, and in what a start warns of.
pub(crate) fn begin_log(worker: &mut Worker) -> Result<(), OpenError> {
    let shared = worker.shared.clone();
    let Some(note) = read_note(&*shared.disk, &shared.paths)? else { return Ok(()) };
    let nonce = shared.random_u64();
    worker.settle(vec![Draft::new(Micros(note.at)).fact(Fact::Booted(nonce))])?;
    let path = shared.paths.note();
    files::remove(&*shared.disk, &path).map_err(OpenError::io(&path))
}

/// Why no copy was made. What is in the folder has no note, and is no copy.
#[derive(Debug, Error)]
pub enum BackupError {
    /// Something is in the folder already.
    #[error("{} is not empty: a copy is made in a folder of its own", .0.display())]
    NotEmpty(PathBuf),
    /// No checkpoint could be made.
    #[error("no checkpoint could be made: {0}")]
    Checkpoint(String),
    /// The system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A copy that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The record that it ends with.
    pub applied: u64,
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BackupError + use<> {
    let path = path.to_path_buf();
    |error| BackupError::Io { path, error }
}

impl Host {
    /// Makes a checkpoint now, and waits for it. Needs the writer's thread.
    /// # Errors
    /// Why there is none.
    pub fn checkpoint(&self) -> Result<(), String> {
        if let Some(why) = self.ended() {
            return Err(why);
        }
        let (answer, waiting) = pending(|| Err("the server's writer ended".to_owned()));
        self.shared.queue.tell(Mail::Checkpoint(Box::new(|result| answer.send(result))));
        waiting.wait()
    }

    /// Has a checkpoint made as soon as the writer comes to it, such as after room was made on the disk.
    pub fn checkpoint_soon(&self) {
        self.shared.queue.tell(Mail::Checkpoint(Box::new(|_| ())));
    }

    /// Copies the server as it is into an empty folder, while it runs: everything that was acknowledged before is in the copy.
    /// # Errors
    /// [`BackupError`].
    pub fn backup(&self, to: &Path) -> Result<Backup, BackupError> {
        let disk = &*self.shared.disk;
        match disk.list(to) {
            Ok(names) if names.is_empty() => {}
            Ok(_) => return Err(BackupError::NotEmpty(to.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(to)(error)),
        }
        // No blob that the checkpoint names goes before it is copied.
        self.shared.blob_files.copying();
        let copied = self.copy_all(to);
        if let Err(error) = self.shared.blob_files.copied(|account, cid| self.shared.holds_blob(account, cid)) {
            tracing::warn!(event = "blobs_not_removed", %error, "the next start tries again");
        }
        copied
    }

    fn copy_all(&self, to: &Path) -> Result<Backup, BackupError> {
        let disk = &*self.shared.disk;
        // Not above what the checkpoint holds, though writes go on: a copy's floor above its numbers would look like a lost log.
        let floor = self.state(|state| state.sequence.ceiling());
        let pin = (0..PIN_ATTEMPTS).find_map(|_| match self.checkpoint() {
            Ok(()) => lock(&self.shared.store).pin().map(Ok),
            Err(why) => Some(Err(why)),
        });
        let pin = pin.unwrap_or_else(|| Err("checkpoints follow each other without a pause".into()));
        let pin = pin.map_err(BackupError::Checkpoint)?;
        let paths = Paths::new(to);
        create_directory_durably(disk, &paths.store()).map_err(failed(to))?;
        let mut done = Backup { applied: pin.applied(), files: 0, bytes: 0 };
        for file in pin.files() {
            let path = paths.store().join(&file.name);
            let read = |offset| pin.read(&file.name, offset, PIECE_BYTES);
            done.bytes += copy(disk, &path, file.bytes, read).map_err(failed(&path))?;
            done.files += 1;
        }
        disk.sync_directory(&paths.store()).map_err(failed(&paths.store()))?;
        self.copy_blobs(&paths, &mut done)?;
        let key = self.shared.sealer.as_ref().map(|sealer| sealer.id());
        let note = Note { applied: done.applied, at: self.now().0 };
        for (path, bytes) in [
            (paths.floor(), encode_floor(floor)),
            (paths.layout(), encode_layout(key)),
            (paths.note(), encode_note(&note)),
        ] {
            files::replace(disk, &path, &bytes).map_err(failed(&path))?;
        }
        Ok(done)
    }

    /// Blobs never change, and none goes meanwhile: what lies there holds everything that the checkpoint names.
    fn copy_blobs(&self, paths: &Paths, done: &mut Backup) -> Result<(), BackupError> {
        let disk = &*self.shared.disk;
        let list = |path: &Path| match disk.list(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.map_err(failed(path)),
        };
        let from = self.shared.paths.blobs();
        for name in list(&from)? {
            let Ok(account) = name.parse().map(AccountId) else { continue };
            let cids: Vec<Cid> = list(&from.join(&name))?.iter().filter_map(|name| name.parse().ok()).collect();
            let folder = paths.blobs_of(account);
            create_directory_durably(disk, &folder).map_err(failed(&folder))?;
            for cid in cids {
                let from = self.shared.paths.blob(account, &cid);
                let file = disk.open(&from, OpenMode::Read).map_err(failed(&from))?;
                let length = file.length().map_err(failed(&from))?;
                let read = |offset: u64| {
                    let mut piece = vec![0; PIECE_BYTES.min(length - offset) as usize];
                    file.read_exact_at(&mut piece, offset).map(|()| Bytes::from(piece))
                };
                let path = paths.blob(account, &cid);
                done.bytes += copy(disk, &path, length, read).map_err(failed(&path))?;
                done.files += 1;
            }
            disk.sync_directory(&folder).map_err(failed(&folder))?;
        }
        Ok(())
    }
}

/// Writes a file piece by piece, durably but for its name.
fn copy(disk: &dyn Disk, path: &Path, bytes: u64, read: impl Fn(u64) -> io::Result<Bytes>) -> io::Result<u64> {
    let file = disk.open(path, OpenMode::CreateNew)?;
    let mut offset = 0;
    while offset < bytes {
        let piece = read(offset)?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_at(&piece, offset)?;
        offset += piece.len() as u64;
    }
    file.sync_all()?;
    Ok(bytes)
}
