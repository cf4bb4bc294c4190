//! The word of an operator that a directory was restored: rule R1.

use crate::error::OpenError;
use crate::files;
use crate::layout::{Paths, damaged, decode_layout};
use highwater_disk::{Disk, create_directory_durably};
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
    /// What is to be given up is there.
    #[error(
        "{} holds `{name}`: what is there is not given up by this; move the directory away first, and keep it as long as anybody may miss it",
        directory.display()
    )]
    Held {
        /// The directory.
        directory: std::path::PathBuf,
        /// A name in it.
        name: String,
    },
}

/// Marks a restored directory, before its first start; any older marker is replaced. `id` is drawn for each restore anew; fresh
/// revisions will be above `rev_min`, and numbers above `seq_min`, whatever witnesses say. Returns where the marker lies.
/// # Errors
/// [`MarkError`].
pub fn mark_restored(
    disk: &dyn Disk,
    directory: &Path,
    id: u64,
    (rev_min, seq_min): (Option<Tid>, Option<u64>),
) -> Result<std::path::PathBuf, MarkError> {
    let paths = Paths::new(directory);
    let layout = paths.layout();
    let Some(bytes) = files::read(disk, &layout).map_err(OpenError::io(&layout))? else {
        return Err(MarkError::Nothing(directory.display().to_string()));
    };
    decode_layout(&bytes).map_err(damaged(layout))?;
    write(disk, &paths, Marker { id: Some(id), rev_min, seq_min })
}

/// Gives up accounts that are lost: a directory that is absent or empty is marked, so that the next start makes an empty server of it whose
/// numbers go on above those that witnesses, or `seq_min`, tell of.
/// # Errors
/// [`MarkError`]; `Held` if there is anything in the directory.
pub fn forget(
    disk: &dyn Disk,
    directory: &Path,
    id: u64,
    seq_min: Option<u64>,
) -> Result<std::path::PathBuf, MarkError> {
    let paths = Paths::new(directory);
    match disk.list(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(OpenError::io(directory)(error).into()),
        Ok(names) => {
            let marker = paths.marker();
            if let Some(name) = names.into_iter().find(|name| directory.join(name) != marker) {
                return Err(MarkError::Held { directory: directory.to_path_buf(), name });
            }
        }
    }
    create_directory_durably(disk, directory).map_err(OpenError::io(directory))?;
    write(disk, &paths, Marker { id: Some(id), rev_min: None, seq_min })
}

fn write(disk: &dyn Disk, paths: &Paths, marker: Marker) -> Result<std::path::PathBuf, MarkError> {
    let path = paths.marker();
    files::replace(disk, &path, marker.to_string().as_bytes()).map_err(OpenError::io(&path))?;
    Ok(path)
}
