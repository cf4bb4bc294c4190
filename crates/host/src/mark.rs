//! The word of an operator that a directory was restored: rule R1.

use crate::error::OpenError;
use crate::files;
use crate::layout::{Paths, decode_layout};
use highwater_disk::Disk;
use highwater_pds::restore::Marker;
use highwater_repo::Tid;
use std::path::Path;
use thiserror::Error;

/// Why a directory was not marked.
#[derive(Debug, Error)]
pub enum MarkError {
    /// It is no directory of accounts, or cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is nothing to be marked.
    #[error("{0} holds no accounts: name the data directory that was restored")]
    Nothing(String),
}

/// Marks a restored directory, before its first start; any older marker is replaced. `id` is drawn for each restore anew, and
/// fresh revisions will be above `rev_min`. Returns where the marker lies.
/// # Errors
/// [`MarkError`].
pub fn mark_restored(
    disk: &dyn Disk,
    directory: &Path,
    id: u64,
    rev_min: Option<Tid>,
) -> Result<std::path::PathBuf, MarkError> {
    let paths = Paths::new(directory);
    let layout = paths.layout();
    let Some(bytes) = files::read(disk, &layout).map_err(OpenError::io(&layout))? else {
        return Err(MarkError::Nothing(directory.display().to_string()));
    };
    decode_layout(&bytes).map_err(|error| OpenError::Damaged { path: layout, what: error.to_string() })?;
    let path = paths.marker();
    let marker = Marker { id: Some(id), rev_min };
    files::replace(disk, &path, marker.to_string().as_bytes()).map_err(OpenError::io(&path))?;
    Ok(path)
}
