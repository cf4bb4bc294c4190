//! `highwater pds backup`, `restore` and `verify`: copies of the accounts as folders of files.

use super::restored::{self, Lost};
use crate::exit::{self, Status};
use crate::manage::arguments::Target;
use crate::manage::{Server, text};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_client::Verb;
use highwater_disk::{Disk, OpenMode, OsDisk, SystemClock, SystemRandom, create_directory_durably};
use highwater_host::layout::Paths;
use highwater_host::{OpenError, Seams, Secrets, Verified};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// Has a running server copy its accounts.
pub fn backup(to: &Path, target: &Target) -> Result<()> {
    let to = std::path::absolute(to).with_context(|| format!("{} is no folder", to.display()))?;
    let made = Server::new(target)?.change(Verb::Post, "/v1/pds/backup", &json!({ "to": to }))?;
    if target.json {
        return output::json(&made);
    }
    output::table(&[
        ("backup", text(&made["backup"])),
        ("files", text(&made["files"])),
        ("bytes", output::bytes(made["bytes"].as_u64().unwrap_or(0))),
    ])
}

/// Copies a backup into a data directory, and marks it. What is copied was read and checked before anything is written, and is read and
/// checked once more where it lies then.
pub fn restore(backup: &Path, data: &Path, lost: &Lost, encryption_file: Option<&Path>, json: bool) -> Result<()> {
    if !Paths::new(backup).layout().is_file() {
        let words = format!("{} is no backup of accounts: there is no pds.layout in it", backup.display());
        return Err(exit::with(Status::NotFound, words));
    }
    let directory = data.join("pds");
    restored::refuse_in_use(&directory)?;
    if !restored::is_empty(&directory)? {
        let words = format!(
            "{} is not empty: move it away first, and keep it until the restore is proven",
            directory.display()
        );
        return Err(exit::with(Status::Failed, words));
    }
    let found = check(backup, encryption_file).and_then(|found| sound(backup, &found).map(|()| found));
    let found = found.context("nothing was restored, and nothing was changed")?;
    let disk = OsDisk::private_in(data);
    let copied = copied(&disk, backup, &directory);
    let (files, bytes) =
        copied.with_context(|| format!("{} was not restored; what lies there can be removed", directory.display()))?;
    let (id, _) = restored::mark(&directory, lost)?;
    let checked = check(&directory, encryption_file).and_then(|found| sound(&directory, &found));
    if let Err(error) = checked {
        // Without it no server starts on what was written.
        disk.remove(&Paths::new(&directory).layout())?;
        disk.sync_directory(&directory)?;
        let words = format!(
            "{error:#}\nThe backup is whole, and what was written is not: look at the disk of {}. It was not restored; what lies there can \
             be removed",
            directory.display()
        );
        return Err(exit::with(Status::Differs, words));
    }
    let id = format!("{id:016x}");
    if json {
        return output::json(&json!({
            "directory": directory,
            "files": files,
            "bytes": bytes,
            "id": id,
            "accounts": found.accounts,
            "records": found.records,
            "secrets_checked": found.secrets != Secrets::Unchecked,
        }));
    }
    output::table(&[
        ("directory", directory.display().to_string()),
        ("files", files.to_string()),
        ("bytes", output::bytes(bytes)),
        ("accounts", found.accounts.to_string()),
        ("records", found.records.to_string()),
        ("secrets", secrets_of(&found)),
        ("restore", id),
    ])?;
    eprintln!("highwater: start the server, read the restore report, and run highwater pds announce");
    Ok(())
}

/// Copies everything; the file that makes a directory one of accounts comes last. How many files and bytes.
fn copied(disk: &OsDisk, backup: &Path, directory: &Path) -> std::io::Result<(u64, u64)> {
    let mut done = (0, 0);
    copy_below(disk, backup, directory, &mut done)?;
    done.1 += copy(disk, &Paths::new(backup).layout(), &Paths::new(directory).layout())?;
    disk.sync_directory(directory)?;
    Ok((done.0 + 1, done.1))
}

fn copy_below(disk: &OsDisk, from: &Path, to: &Path, done: &mut (u64, u64)) -> std::io::Result<()> {
    create_directory_durably(disk, to)?;
    for name in disk.list(from)? {
        let (source, target) = (from.join(&name), to.join(&name));
        if source.is_dir() {
            copy_below(disk, &source, &target, done)?;
        } else if source != Paths::new(from).layout() {
            done.1 += copy(disk, &source, &target)?;
            done.0 += 1;
        }
    }
    disk.sync_directory(to)
}

fn copy(disk: &OsDisk, from: &Path, to: &Path) -> std::io::Result<u64> {
    let (source, target) = (disk.open(from, OpenMode::Read)?, disk.open(to, OpenMode::CreateNew)?);
    let (length, mut offset) = (source.length()?, 0);
    while offset < length {
        let mut piece = vec![0; PIECE_BYTES.min(length - offset) as usize];
        source.read_exact_at(&mut piece, offset)?;
        target.write_at(&piece, offset)?;
        offset += piece.len() as u64;
    }
    target.sync_all()?;
    Ok(length)
}

/// Reads all of a directory; nothing of it changes.
fn check(directory: &Path, encryption_file: Option<&Path>) -> Result<Verified> {
    let sealer = encryption_file.map(crate::serve::pds::sealer).transpose()?;
    // Which zone it gives names in is no matter of what it holds.
    let options = highwater_host::Options::new(directory, "localhost:1");
    let seams = Seams {
        disk: Arc::new(OsDisk::new()),
        clock: Arc::new(SystemClock::new()),
        random: Box::new(SystemRandom),
        sealer,
    };
    highwater_host::verify(options, seams).map_err(|error| {
        let status = match &error {
            error if error.is_in_use() => {
                let words = format!("{} is in use: a server has it open; stop it first", directory.display());
                return exit::with(Status::Later, words);
            }
            OpenError::Key(_) => Status::Wrong,
            error if error.is_later_version() => Status::Failed,
            _ => Status::Differs,
        };
        exit::with(status, format!("{}: {error}", directory.display()))
    })
}

/// An error that names every fault, if there is one.
fn sound(directory: &Path, found: &Verified) -> Result<()> {
    if found.faults.is_empty() {
        return Ok(());
    }
    let list: String = found.faults.iter().map(|fault| format!("\n  {fault}")).collect();
    let words = format!("{} is damaged in {} places:{list}", directory.display(), found.faults.len());
    Err(exit::with(Status::Differs, words))
}

fn secrets_of(found: &Verified) -> String {
    match found.secrets {
        Secrets::Opened(count) => format!("{count}, each can be used"),
        Secrets::Unchecked => {
            "NOT CHECKED: they are encrypted, and --encryption-file names no key to open them with".to_owned()
        }
    }
}

/// Reads a backup, or a stopped server's accounts, and checks all of it.
pub fn verify(directory: &Path, encryption_file: Option<&Path>, json: bool) -> Result<()> {
    let directory: PathBuf = restored::directory(directory)?;
    let found = check(&directory, encryption_file)?;
    if json {
        let opened = match found.secrets {
            Secrets::Opened(count) => Some(count),
            Secrets::Unchecked => None,
        };
        output::json(&json!({
            "directory": directory,
            "accounts": found.accounts,
            "repositories": found.repositories,
            "records": found.records,
            "events": found.frames,
            "ceiling": found.ceiling,
            "blobs": found.blobs,
            "secrets_checked": opened.is_some(),
            "secrets": opened,
            "faults": found.faults,
        }))?;
    } else {
        output::table(&[
            ("directory", directory.display().to_string()),
            ("accounts", found.accounts.to_string()),
            ("repositories", found.repositories.to_string()),
            ("records", found.records.to_string()),
            ("events", found.frames.to_string()),
            ("highest number", found.ceiling.to_string()),
            ("blobs", found.blobs.to_string()),
            ("secrets", secrets_of(&found)),
            ("faults", found.faults.len().to_string()),
        ])?;
    }
    sound(&directory, &found)
}
