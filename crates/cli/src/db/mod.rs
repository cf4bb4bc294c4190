//! `highwater db …`: a database and its stream.

mod bind;
mod push;
mod restore;
mod status;
mod verify;

use crate::arguments::DbCommand;
use anyhow::{Context as _, Result};
use highwater_disk::{Disk, OsDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs one command.
pub fn run(command: DbCommand) -> Result<()> {
    match command {
        DbCommand::Bind { file, url, page_size, auto_vacuum, json } => {
            bind::run(&absolute(&file)?, &url, page_size, auto_vacuum.as_deref(), json)
        }
        DbCommand::Status { file, json } => status::run(&absolute(&file)?, json),
        DbCommand::Push { file, timeout_s, json } => push::run(&absolute(&file)?, timeout_s, json),
        DbCommand::Restore { url, file, json } => restore::run(&url, &absolute(&file)?, json),
        DbCommand::Verify { file, url, json } => verify::run(&absolute(&file)?, &url, json),
    }
}

/// The operating system's disk.
fn disk() -> Arc<dyn Disk> {
    Arc::new(OsDisk::new())
}

/// The file's real path, whether or not the file is there: its directory must be.
fn absolute(file: &Path) -> Result<PathBuf> {
    if let Ok(real) = file.canonicalize() {
        return Ok(real);
    }
    let name = file.file_name().with_context(|| format!("{} does not name a file", file.display()))?;
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().with_context(|| format!("the directory {} is not there", folder.display()))?;
    Ok(folder.join(name))
}
