//! A folder as object store: another disk of the machine, or one that the network brings.

use super::{ColdError, ColdTier, Pieces};
use bytes::Bytes;
use highwater_disk::{Disk, OpenMode, create_directory_durably};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Objects as files below a folder, which somebody made: it is never made here, so that a folder whose disk is not mounted
/// is not taken for an empty one.
pub struct Folder {
    disk: Arc<dyn Disk>,
    root: PathBuf,
}

impl Folder {
    /// The folder `root` of a disk.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> Self {
        Self { disk, root: root.into() }
    }

    fn unreachable(&self, path: &Path, error: &io::Error) -> ColdError {
        ColdError::Unreachable(format!("{}: {error}", path.display()))
    }

    /// Why a name is not there: the object is missing, or the whole folder.
    fn absent(&self, path: &Path, error: &io::Error) -> ColdError {
        let root = self.disk.list(&self.root);
        match (error.kind(), root) {
            (io::ErrorKind::NotFound, Ok(_)) => ColdError::Missing,
            (io::ErrorKind::NotFound, Err(error)) => self.unreachable(&self.root, &error),
            _ => self.unreachable(path, error),
        }
    }

    /// The file that becomes an object when it is whole.
    fn temporary(path: &Path) -> PathBuf {
        path.with_extension("tmp")
    }

    fn write(&self, path: &Path, pieces: Pieces<'_>) -> Result<(), ColdError> {
        let failed = |error: io::Error| self.unreachable(path, &error);
        let (temporary, folder) = (Self::temporary(path), path.parent().unwrap_or(&self.root));
        self.disk.list(&self.root).map_err(|error| self.unreachable(&self.root, &error))?;
        create_directory_durably(&*self.disk, folder).map_err(failed)?;
        let file = self.disk.open(&temporary, OpenMode::Create).map_err(failed)?;
        file.set_length(0).map_err(failed)?;
        let mut at = 0;
        loop {
            let piece = pieces().map_err(|error| ColdError::Source(error.to_string()))?;
            if piece.is_empty() {
                break;
            }
            file.write_at(&piece, at).map_err(failed)?;
            at += piece.len() as u64;
        }
        file.sync_all().map_err(failed)?;
        self.disk.rename(&temporary, path).map_err(failed)?;
        self.disk.sync_directory(folder).map_err(failed)
    }
}

impl ColdTier for Folder {
    fn put(&self, name: &str, _bytes: u64, pieces: Pieces<'_>) -> Result<(), ColdError> {
        let path = self.root.join(name);
        let written = self.write(&path, pieces);
        if written.is_err() {
            // The next attempt writes it anew; a disk that is full is given its space back now.
            drop(self.disk.remove(&Self::temporary(&path)));
        }
        written
    }

    fn read(&self, name: &str, offset: u64, length: u64) -> Result<Bytes, ColdError> {
        let path = self.root.join(name);
        let file = self.disk.open(&path, OpenMode::Read).map_err(|error| self.absent(&path, &error))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = file.read_at(&mut bytes, offset).map_err(|error| self.unreachable(&path, &error))?;
        bytes.truncate(read);
        Ok(bytes.into())
    }

    fn delete(&self, name: &str) -> Result<(), ColdError> {
        let path = self.root.join(name);
        for path in [Self::temporary(&path), path.clone()] {
            match self.disk.remove(&path) {
                Ok(()) => {}
                Err(error) => match self.absent(&path, &error) {
                    ColdError::Missing => {}
                    other => return Err(other),
                },
            }
        }
        let folder = path.parent().unwrap_or(&self.root);
        match self.disk.sync_directory(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.unreachable(folder, &error)),
            _ => Ok(()),
        }
    }

    fn place(&self) -> String {
        format!("file://{}", self.root.display())
    }
}
