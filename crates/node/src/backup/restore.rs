//! Putting a backup into an empty directory.

use super::PIECE_BYTES;
use super::manifest::{Entry, Manifest, ManifestError};
use crate::cluster_file::{self, ClusterFile, ClusterFileError};
use crate::restored;
use highwater_base::{Digest, NodeId, OwnerId, Random};
use highwater_disk::{Disk, OpenMode, create_directory_durably};
use highwater_wal::Log;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Names that may be in a directory that something is restored into.
const HARMLESS: [&str; 2] = ["lock", "lost+found"];

/// Why a backup was not restored. What was written is no data directory: no server starts on it.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// Something is in the directory already.
    #[error(
        "{} is not empty (it holds `{name}`): a backup is restored into an empty directory. Move what is there away, and \
         keep it until the restored server runs",
        directory.display()
    )]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
        /// A name in it.
        name: String,
    },
    /// The manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// It leaves groups out, and nobody said that this is known.
    #[error(
        "the backup does not hold {}: they were damaged when it was taken, and a server on it refuses their streams. Use another \
         backup, or restore what this one has with --except-damaged",
        absent.join(", ")
    )]
    Absent {
        /// The groups.
        absent: Vec<String>,
    },
    /// It is another cluster's.
    #[error(
        "the backup's cluster file names {cluster} groups and its manifest {manifest}: they do not belong together"
    )]
    Groups {
        /// By the cluster file.
        cluster: u32,
        /// By the manifest.
        manifest: u32,
    },
    /// A file of the backup is not what it was.
    #[error("{} is damaged: {what}. Use another backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The backup's cluster file.
    #[error(transparent)]
    ClusterFile(#[from] ClusterFileError),
    /// The log could not be made.
    #[error("the log could not be made: {0}")]
    Log(String),
    /// The system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A backup that was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What it consisted of.
    pub manifest: Manifest,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RestoreError + use<> {
    let path = path.to_owned();
    |error| RestoreError::Io { path, error }
}

/// Puts a backup into the directory `data`, which is empty or made, and marks it as restored: when a server starts on it,
/// every stream gets a new history, and whoever had written more than the backup holds learns of it.
///
/// Every file is checked while it is copied. The file that makes it a data directory comes last, so that no server
/// starts on a part. `progress` is told how many bytes are through. A backup that leaves groups out is restored only with
/// `except_damaged`: a server on it serves the others, and refuses these. One without the control group gets an empty one:
/// there are no keys and no accounts then.
/// # Errors
/// [`RestoreError`].
pub fn restore(
    disk: &Arc<dyn Disk>,
    backup: &Path,
    data: &Path,
    except_damaged: bool,
    random: &mut dyn Random,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored, RestoreError> {
    let manifest = Manifest::read(&**disk, backup)?;
    if !manifest.absent.is_empty() && !except_damaged {
        return Err(RestoreError::Absent {
            absent: manifest.absent.iter().map(|absent| absent.group.clone()).collect(),
        });
    }
    check_empty(&**disk, data)?;
    let mut cluster = ClusterFile::read(&**disk, backup)?.ok_or_else(|| RestoreError::Damaged {
        path: backup.join(cluster_file::NAME),
        what: "the file is missing".to_owned(),
    })?;
    if cluster.groups != manifest.groups {
        return Err(RestoreError::Groups { cluster: cluster.groups, manifest: manifest.groups });
    }
    let stores = manifest.files.iter().filter(|entry| entry.path != cluster_file::NAME);
    let folders: BTreeSet<PathBuf> =
        stores.clone().filter_map(|e| data.join(&e.path).parent().map(PathBuf::from)).collect();
    for folder in &folders {
        create_directory_durably(&**disk, folder).map_err(failed(folder))?;
    }
    let mut through = 0;
    for entry in stores {
        copy(&**disk, backup, data, entry, &mut |bytes| {
            through += bytes;
            progress(through);
        })?;
    }
    for folder in &folders {
        disk.sync_directory(folder).map_err(failed(folder))?;
    }
    let control = OwnerId::CONTROL.to_string();
    let anew = manifest.absent.iter().any(|absent| absent.group == control).then_some(cluster.node);
    make_log(disk, &data.join("wal"), anew, random)?;
    restored::write_mark(&**disk, data, random).map_err(failed(data))?;
    cluster.bootstrapped = true;
    cluster.write(&**disk, data).map_err(failed(&data.join(cluster_file::NAME)))?;
    Ok(Restored { manifest })
}

fn check_empty(disk: &dyn Disk, data: &Path) -> Result<(), RestoreError> {
    let names = match disk.list(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(failed(data))?,
    };
    match names.into_iter().find(|name| !HARMLESS.contains(&name.as_str())) {
        Some(name) => Err(RestoreError::NotEmpty { directory: data.to_owned(), name }),
        None => Ok(()),
    }
}

/// Copies one file and checks it on its way.
fn copy(
    disk: &dyn Disk,
    backup: &Path,
    data: &Path,
    entry: &Entry,
    progress: &mut dyn FnMut(u64),
) -> Result<(), RestoreError> {
    let (from, to) = (backup.join(&entry.path), data.join(&entry.path));
    let damaged = |what: &str| RestoreError::Damaged { path: from.clone(), what: what.to_owned() };
    let source = disk.open(&from, OpenMode::Read).map_err(failed(&from))?;
    if source.length().map_err(failed(&from))? != entry.bytes {
        return Err(damaged("it has another length than it had"));
    }
    let file = disk.open(&to, OpenMode::CreateNew).map_err(failed(&to))?;
    let mut hasher = blake3::Hasher::new();
    let (mut offset, mut piece) = (0, Vec::new());
    while offset < entry.bytes {
        piece.resize(PIECE_BYTES.min(entry.bytes - offset) as usize, 0);
        source.read_exact_at(&mut piece, offset).map_err(failed(&from))?;
        hasher.update(&piece);
        file.write_at(&piece, offset).map_err(failed(&to))?;
        offset += piece.len() as u64;
        progress(piece.len() as u64);
    }
    if Digest(*hasher.finalize().as_bytes()) != entry.digest {
        return Err(damaged("its bytes are not those that were copied into the backup"));
    }
    file.sync_all().map_err(failed(&to))
}

/// An empty log: what the checkpoints cover needs none. With `control_anew` it begins an empty control group on that node.
fn make_log(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    control_anew: Option<NodeId>,
    random: &mut dyn Random,
) -> Result<(), RestoreError> {
    let options = highwater_wal::Options { identity_new: Some(random.next_u64()), ..Default::default() };
    let (mut log, _) =
        Log::open(Arc::clone(disk), directory, options).map_err(|error| RestoreError::Log(error.to_string()))?;
    if let Some(node) = control_anew {
        crate::shard::begin_group(&mut log, OwnerId::CONTROL, node)
            .map_err(|error| RestoreError::Log(error.to_string()))?;
    }
    log.close().map_err(|error| RestoreError::Log(error.to_string()))
}
