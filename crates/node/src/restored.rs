//! What a data directory says about having been put back from an older copy (docs/formats/restored.md).
//!
//! Two small files beside the cluster file. The *mark* is the operator's word that the directory was restored: it
//! stays until every group has recorded a new history for it. The *place* remembers the number that the file system
//! gave to that very file, which a copy does not have: a directory whose place is not itself looks restored, and is
//! warned about. Each start writes a new one, so that an older copy is noticed also where it was laid over the files that
//! were there. Nothing follows from the look alone.

use crate::cluster_file::{ClusterFile, ClusterFileError};
use bytes::Bytes;
use highwater_base::Random;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_disk::{Disk, File, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// The mark's name in the data directory.
pub const NAME_MARK: &str = "restored";
/// The place's name in the data directory.
pub const NAME_PLACE: &str = "place";
pub(crate) const NAME_MARK_TEMPORARY: &str = "restored.tmp";
const NAME_PLACE_TEMPORARY: &str = "place.tmp";

const MAGIC_MARK: &[u8; 8] = b"HWRESTOR";
const MAGIC_PLACE: &[u8; 8] = b"HWPLACE\0";
const VERSION: u16 = 1;
/// Magic, version, one number and a digest.
const FILE_BYTES: usize = 8 + 2 + 8 + blake3::OUT_LEN;

/// Why a directory could not be marked, or its mark not be read. Nothing but what is named was changed.
#[derive(Debug, Error)]
pub enum RestoredError {
    /// A server runs on it.
    #[error("{} is in use by a running highwater server: stop it first, then mark the directory and start it again", .0.display())]
    InUse(PathBuf),
    /// It is no data directory.
    #[error("{} is no data directory: it has no file named `cluster`", .0.display())]
    NoDataDirectory(PathBuf),
    /// The cluster file.
    #[error(transparent)]
    ClusterFile(#[from] ClusterFileError),
    /// The mark is there and does not read.
    #[error(
        "{path} does not read: {reason}. The directory was marked as restored, and with which number is not known: run \
         `highwater mark-restored` on it again"
    )]
    Mark {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system failed.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The operator's word that a directory was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Drawn for each mark: two restores of one copy must not end in one history.
    pub nonce: u64,
}

/// A directory that was marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The cluster whose copy it is.
    pub cluster_id: String,
    /// Its groups, each of which records a new history at the next start.
    pub groups: u32,
    /// Whether an earlier mark was still there; the new one is in its place.
    pub again: bool,
}

/// What a directory looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is the one that it was, or nothing can be said.
    Same,
    /// Its files are a copy of those that it says it has.
    Other,
}

/// Marks a stopped server's directory as restored from an older copy, durably. The next start gives every stream a new
/// history before it serves.
/// # Errors
/// [`RestoredError`].
pub fn mark(disk: &dyn Disk, data: &Path, random: &mut dyn Random) -> Result<Marked, RestoredError> {
    let (cluster, _lock) = stopped(disk, data)?;
    let path = data.join(NAME_MARK);
    let again = disk.exists(&path).map_err(failed(&path))?;
    write_mark(disk, data, random).map_err(failed(&path))?;
    take_place(disk, data).map_err(failed(&data.join(NAME_PLACE)))?;
    Ok(Marked { cluster_id: cluster.cluster_id, groups: cluster.groups, again })
}

/// Writes the mark of a directory that is not yet a data directory, or of one that is locked; durable.
pub(crate) fn write_mark(disk: &dyn Disk, data: &Path, random: &mut dyn Random) -> io::Result<()> {
    write(disk, data, NAME_MARK_TEMPORARY, NAME_MARK, &encode(MAGIC_MARK, random.next_u64()))
}

/// Takes note that a stopped server's directory was moved as a whole, so that it no longer looks restored.
/// # Errors
/// [`RestoredError`].
pub fn moved(disk: &dyn Disk, data: &Path) -> Result<ClusterFile, RestoredError> {
    let (cluster, _lock) = stopped(disk, data)?;
    take_place(disk, data).map_err(failed(&data.join(NAME_PLACE)))?;
    Ok(cluster)
}

fn stopped(disk: &dyn Disk, data: &Path) -> Result<(ClusterFile, Arc<dyn File>), RestoredError> {
    let cluster = ClusterFile::read(disk, data)?.ok_or_else(|| RestoredError::NoDataDirectory(data.to_owned()))?;
    let path = data.join("lock");
    let lock = disk.open(&path, OpenMode::Create).map_err(failed(&path))?;
    if lock.try_lock().map_err(failed(&path))? {
        Ok((cluster, lock))
    } else {
        Err(RestoredError::InUse(data.to_owned()))
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RestoredError + use<> {
    let path = path.to_owned();
    |error| RestoredError::Io { path, error }
}

impl Mark {
    /// The directory's mark, if it has one. The caller holds the directory's lock.
    /// # Errors
    /// `Mark` if there is one and it does not read; the system's.
    pub fn read(disk: &dyn Disk, data: &Path) -> Result<Option<Self>, RestoredError> {
        let path = data.join(NAME_MARK);
        let Some(bytes) = read(disk, &path).map_err(failed(&path))? else { return Ok(None) };
        match decode(MAGIC_MARK, bytes) {
            Ok(nonce) => Ok(Some(Self { nonce })),
            Err(reason) => Err(RestoredError::Mark { path, reason }),
        }
    }

    /// Removes the directory's mark, durably: every group has recorded its history.
    /// # Errors
    /// The system's; the mark may still be there, and does nothing at the next start.
    pub fn remove(disk: &dyn Disk, data: &Path) -> io::Result<()> {
        disk.remove(&data.join(NAME_MARK))?;
        disk.sync_directory(data)
    }
}

impl Place {
    /// What the directory looks like; one that is where it was takes its place anew. The caller holds its lock.
    /// # Errors
    /// The system's.
    pub fn check(disk: &dyn Disk, data: &Path) -> io::Result<Self> {
        let path = data.join(NAME_PLACE);
        let noted = read(disk, &path)?.map(|bytes| decode(MAGIC_PLACE, bytes));
        let Some(Ok(noted)) = noted else {
            take_place(disk, data)?;
            return Ok(Self::Same);
        };
        let found = disk.open(&path, OpenMode::Read)?.identity()?;
        if found.is_some_and(|found| found != noted) {
            return Ok(Self::Other);
        }
        // A disk that is full keeps the one that is there, and the server starts.
        if let Err(error) = take_place(disk, data) {
            tracing::warn!(%error, "the directory's place could not be written anew");
        }
        Ok(Self::Same)
    }
}

/// Writes the place file with its own number in it: a new file, so that one that was copied is not taken for itself. The
/// old one stays until the new one is whole.
fn take_place(disk: &dyn Disk, data: &Path) -> io::Result<()> {
    let temporary = data.join(NAME_PLACE_TEMPORARY);
    match disk.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.open(&temporary, OpenMode::Create)?;
    let Some(identity) = file.identity()? else {
        // A disk without such numbers has no use for the file.
        drop(file);
        return disk.remove(&temporary);
    };
    file.write_at(&encode(MAGIC_PLACE, identity), 0)?;
    file.sync_all()?;
    disk.rename(&temporary, &data.join(NAME_PLACE))?;
    disk.sync_directory(data)
}

fn write(disk: &dyn Disk, data: &Path, temporary: &str, name: &str, record: &[u8]) -> io::Result<()> {
    let temporary = data.join(temporary);
    let file = disk.open(&temporary, OpenMode::Create)?;
    file.set_length(0)?;
    file.write_at(record, 0)?;
    file.sync_all()?;
    disk.rename(&temporary, &data.join(name))?;
    disk.sync_directory(data)
}

/// A file's bytes, no more of them than one of these has, and one.
fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Bytes>> {
    let file = match disk.open(path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; FILE_BYTES + 1];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    Ok(Some(bytes.into()))
}

fn encode(magic: &[u8; 8], number: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.raw(magic).u16(VERSION).u64(number);
    let mut bytes = writer.into_vec();
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}

fn decode(magic: &[u8; 8], bytes: Bytes) -> Result<u64, String> {
    let damaged = || "it is damaged".to_owned();
    let body = bytes.len().checked_sub(blake3::OUT_LEN).ok_or_else(damaged)?;
    if bytes.get(..magic.len()) != Some(&magic[..]) || blake3::hash(&bytes[..body]).as_bytes()[..] != bytes[body..] {
        return Err(damaged());
    }
    let number = |mut reader: Reader| match reader.u16()? {
        VERSION => {
            let number = reader.u64()?;
            reader.finish().map(|()| number)
        }
        version => Err(DecodeError::Version(version)),
    };
    number(Reader::new(bytes.slice(magic.len()..body))).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
