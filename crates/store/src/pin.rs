//! Files that must stay as they are while somebody copies them.

use crate::files::{self, Files};
use crate::index;
use crate::store::Store;
use bytes::Bytes;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a pinned store: its bytes up to a length are what the pinned checkpoint consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedFile {
    /// Its name in the store's folder.
    pub name: String,
    /// Bytes of it that belong to the checkpoint; the file may have more.
    pub bytes: u64,
}

/// One checkpoint of a store, kept whole: no file of it is deleted or changed until this is dropped.
///
/// Data files are only ever written behind what a checkpoint names, and the index is only appended to; so this keeps back
/// nothing but deletions, and the store goes on meanwhile.
pub struct Pin {
    store: Arc<Files>,
    applied: u64,
    files: Vec<PinnedFile>,
}

impl Pin {
    /// The position that the checkpoint covers.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Its files; the index comes first.
    #[must_use]
    pub fn files(&self) -> &[PinnedFile] {
        &self.files
    }

    /// The store's folder.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.store.directory
    }

    /// Reads up to `length` bytes of one of its files from `offset` on; fewer only at the end of what belongs to it.
    /// # Errors
    /// `NotFound` for a name that is not one of its files, `UnexpectedEof` for a file that ends early, or the disk's.
    pub fn read(&self, name: &str, offset: u64, length: u64) -> io::Result<Bytes> {
        let Some(file) = self.files.iter().find(|file| file.name == name) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let length = file.bytes.saturating_sub(offset).min(length);
        let mut bytes = vec![0; length as usize];
        let opened = self.store.open_named(name)?;
        opened.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin").field("applied", &self.applied).field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.store.unpin();
    }
}

impl Store {
    /// Pins the last checkpoint. `None` while one is under way, whose end may replace the index.
    #[must_use]
    pub fn pin(&self) -> Option<Pin> {
        if self.checkpoint_running() {
            return None;
        }
        let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let index =
            PinnedFile { name: name(index::path(Path::new(""), self.index.generation())), bytes: self.index.end };
        let data = self.usage.iter().map(|(file, found)| {
            let bytes = self.active.filter(|active| active.file == file).map_or(found.bytes, |a| u64::from(a.end));
            PinnedFile { name: name(files::path(Path::new(""), file)), bytes }
        });
        let files = std::iter::once(index).chain(data).collect();
        self.files.pin();
        Some(Pin { store: self.files.clone(), applied: self.applied, files })
    }
}
