//! Copying a backup into a folder.

use super::manifest::{Entry, Manifest};
use super::session::{BackupFile, BackupPlan};
use super::{ManifestError, PIECE_BYTES};
use crate::handle::Handle;
use bytes::Bytes;
use highwater_base::Digest;
use highwater_disk::{Disk, OpenMode, create_directory_durably};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Where the bytes of a backup come from.
pub trait Source {
    /// Up to `length` bytes of a file from `offset` on; fewer only at its end.
    /// # Errors
    /// Why not, for people.
    fn read(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, String>;

    /// The digest of a file.
    /// # Errors
    /// Why not, for people.
    fn digest(&self, path: &str) -> Result<Digest, String>;
}

/// A node of this process, as a source.
#[derive(Debug)]
pub struct Local<'a> {
    /// The node.
    pub handle: &'a Handle,
    /// The backup's id.
    pub id: &'a str,
}

impl Source for Local<'_> {
    fn read(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, String> {
        self.handle.read_backup(self.id, path, offset, length).map_err(|error| error.to_string())
    }

    fn digest(&self, path: &str) -> Result<Digest, String> {
        self.handle.digest_backup(self.id, path).map_err(|error| error.to_string())
    }
}

/// Why a backup was not copied. What was copied has no manifest, and is no backup.
#[derive(Debug, Error)]
pub enum CopyError {
    /// Something is in the folder already.
    #[error("{} is not empty: a backup is made in a folder of its own", .0.display())]
    NotEmpty(PathBuf),
    /// The earlier backup cannot be used.
    #[error("the earlier backup cannot be used: {0}")]
    Since(ManifestError),
    /// The source failed.
    #[error("{path} cannot be read from the server: {why}")]
    Source {
        /// The file.
        path: String,
        /// Its reason.
        why: String,
    },
    /// A file ended before it should.
    #[error("{0} ended early")]
    Short(String),
    /// The system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A backup that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// What it consists of.
    pub manifest: Manifest,
    /// Bytes that came from the source.
    pub copied_bytes: u64,
    /// Bytes of files that an earlier backup has too, and that were not copied again.
    pub shared_bytes: u64,
}

struct Copier<'a> {
    source: &'a dyn Source,
    disk: &'a dyn Disk,
    to: &'a Path,
    since: Option<(&'a Path, Manifest)>,
    progress: &'a mut dyn FnMut(u64),
    done: Copied,
}

/// Copies a backup into the folder `to`, which is empty or made. Files that the backup in `since` has too are not
/// copied but named a second time; each of the two can be deleted without the other.
///
/// `progress` is told how many bytes are through. The manifest is written last.
/// # Errors
/// [`CopyError`].
pub fn copy(
    plan: &BackupPlan,
    source: &dyn Source,
    disk: &dyn Disk,
    to: &Path,
    since: Option<&Path>,
    progress: &mut dyn FnMut(u64),
) -> Result<Copied, CopyError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| CopyError::Io { path, error }
    };
    match disk.list(to) {
        Ok(names) if names.is_empty() => {}
        Ok(_) => return Err(CopyError::NotEmpty(to.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(to)(error)),
    }
    let since = since.map(|path| Manifest::read(disk, path).map(|manifest| (path, manifest))).transpose();
    let since = since.map_err(CopyError::Since)?;
    let folders: BTreeSet<PathBuf> =
        plan.files.iter().filter_map(|f| to.join(&f.path).parent().map(PathBuf::from)).collect();
    for folder in &folders {
        create_directory_durably(disk, folder).map_err(failed(folder))?;
    }
    let manifest = Manifest {
        cluster_id: plan.cluster_id.clone(),
        node: plan.node,
        groups: plan.groups,
        began_ms: plan.began_ms,
        absent: plan.absent.clone(),
        files: Vec::with_capacity(plan.files.len()),
    };
    let done = Copied { manifest, copied_bytes: 0, shared_bytes: 0 };
    let mut copier = Copier { source, disk, to, since, progress, done };
    for file in &plan.files {
        copier.file(file)?;
    }
    let done = copier.done;
    for folder in &folders {
        disk.sync_directory(folder).map_err(failed(folder))?;
    }
    done.manifest.write(disk, to).map_err(failed(to))?;
    Ok(done)
}

impl Copier<'_> {
    fn file(&mut self, file: &BackupFile) -> Result<(), CopyError> {
        let digest = match self.share(file)? {
            Some(digest) => {
                self.done.shared_bytes += file.bytes;
                digest
            }
            None => {
                let digest = self.fetch(file)?;
                self.done.copied_bytes += file.bytes;
                digest
            }
        };
        self.done.manifest.files.push(Entry { path: file.path.clone(), bytes: file.bytes, digest });
        (self.progress)(self.done.copied_bytes + self.done.shared_bytes);
        Ok(())
    }

    /// Names the file of the earlier backup a second time, if it has the same bytes as the source; not if the file system
    /// cannot do that.
    fn share(&self, file: &BackupFile) -> Result<Option<Digest>, CopyError> {
        let Some((folder, manifest)) = &self.since else { return Ok(None) };
        let Some(before) = manifest.file(&file.path).filter(|before| before.bytes == file.bytes) else {
            return Ok(None);
        };
        let why = |why| CopyError::Source { path: file.path.clone(), why };
        // A number and a length are no proof: a directory that came back from an older copy may have given them anew.
        if self.source.digest(&file.path).map_err(why)? != before.digest {
            return Ok(None);
        }
        let linked = self.disk.link(&folder.join(&file.path), &self.to.join(&file.path));
        Ok(linked.is_ok().then_some(before.digest))
    }

    fn fetch(&mut self, file: &BackupFile) -> Result<Digest, CopyError> {
        let path = self.to.join(&file.path);
        let failed = |error| CopyError::Io { path: path.clone(), error };
        let copy = self.disk.open(&path, OpenMode::CreateNew).map_err(failed)?;
        let mut hasher = blake3::Hasher::new();
        let (mut offset, before) = (0, self.done.copied_bytes + self.done.shared_bytes);
        while offset < file.bytes {
            let length = PIECE_BYTES.min(file.bytes - offset);
            let read = self.source.read(&file.path, offset, length);
            let bytes = read.map_err(|why| CopyError::Source { path: file.path.clone(), why })?;
            if bytes.is_empty() || bytes.len() as u64 > length {
                return Err(CopyError::Short(file.path.clone()));
            }
            copy.write_at(&bytes, offset).map_err(failed)?;
            hasher.update(&bytes);
            offset += bytes.len() as u64;
            (self.progress)(before + offset);
        }
        copy.sync_all().map_err(failed)?;
        Ok(Digest(*hasher.finalize().as_bytes()))
    }
}
