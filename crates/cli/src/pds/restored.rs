//! `highwater pds mark-restored`: the operator's word that the accounts' directory is an older copy.

use crate::exit::{self, Status};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_base::{Clock as _, Random as _};
use highwater_disk::{Disk as _, OsDisk, SystemClock, SystemRandom};
use highwater_host::MarkError;
use highwater_host::layout::Paths;
use highwater_pds::restore::REV_AHEAD_MICROS_MAX;
use highwater_pds::sequence::{RESTORE_RAISE, SEQ_MAX};
use highwater_repo::Tid;
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    directory: PathBuf,
    id: String,
    min_rev: Option<String>,
    min_seq: Option<u64>,
    replaced: bool,
}

/// What an operator knows of a lost run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lost {
    /// The newest revision.
    pub min_rev: Option<Tid>,
    /// The highest number of the stream.
    pub min_seq: Option<u64>,
}

/// What the flags say of it.
///
/// # Errors
/// If that is no revision, or a number above which there are not enough.
pub fn lost(min_rev: Option<&str>, min_seq: Option<u64>) -> Result<Lost> {
    let highest = SEQ_MAX - RESTORE_RAISE - 1;
    if let Some(seq) = min_seq.filter(|seq| *seq > highest) {
        let words = format!(
            "--min-seq: above {seq} there is no room for a restore: numbers end at 2^53, and {highest} is the last to be named"
        );
        return Err(exit::with(Status::Wrong, words));
    }
    let min_rev = revision(min_rev)?;
    let now_micros = SystemClock::new().wall().0.saturating_mul(1_000);
    let ahead = min_rev.map_or(0, |rev| rev.micros().saturating_sub(now_micros));
    if ahead > REV_AHEAD_MICROS_MAX {
        let words = format!(
            "--min-rev lies {} s ahead of this machine's clock, and relays refuse revisions that are more than five minutes ahead: set the \
             clock, or name an earlier one",
            ahead / 1_000_000
        );
        return Err(exit::with(Status::Wrong, words));
    }
    Ok(Lost { min_rev, min_seq })
}

/// The directory of accounts in a data directory, or the directory itself if it is one.
///
/// # Errors
/// If there is none.
pub fn directory(data: &Path) -> Result<PathBuf> {
    let inside = data.join("pds");
    [inside, data.to_path_buf()].into_iter().find(|directory| Paths::new(directory).layout().is_file()).ok_or_else(
        || {
            exit::with(
                Status::NotFound,
                format!("{} has no accounts: there is no pds/pds.layout in it", data.display()),
            )
        },
    )
}

/// Writes the marker. Returns its number, and whether there was one that no start had acted on.
///
/// # Errors
/// If a server has the directory open, or the marker cannot be written.
pub fn mark(directory: &Path, lost: &Lost) -> Result<(u64, bool)> {
    refuse_in_use(directory)?;
    let replaced = Paths::new(directory).marker().exists();
    let id = SystemRandom.next_u64();
    highwater_host::mark_restored(&OsDisk::private_in(directory), directory, id, (lost.min_rev, lost.min_seq))?;
    Ok((id, replaced))
}

/// Refuses a directory that a server has open.
///
/// # Errors
/// If one has.
pub fn refuse_in_use(directory: &Path) -> Result<()> {
    let data = directory.parent().filter(|data| data.join("lock").exists());
    if data.map(crate::serve::data::in_use).transpose()?.unwrap_or(false) {
        let words = format!("{} is in use: a server has it open; stop it first", directory.display());
        return Err(exit::with(Status::Later, words));
    }
    Ok(())
}

/// The revision of a flag.
fn revision(text: Option<&str>) -> Result<Option<Tid>> {
    let parse = |text: &str| {
        text.parse::<Tid>().map_err(|_| {
            exit::with(
                Status::Wrong,
                format!("--min-rev: {text:?} is no revision, which has 13 characters such as 3m5ugaxwn2s2k"),
            )
        })
    };
    text.map(parse).transpose()
}

/// Marks the directory and says what follows.
pub fn run(data: &Path, lost: &Lost, json: bool) -> Result<()> {
    let directory = directory(data)?;
    let (id, replaced) = mark(&directory, lost)?;
    let id = format!("{id:016x}");
    if json {
        let min_rev = lost.min_rev.map(|rev| rev.to_string());
        return output::json(&Report { directory, id, min_rev, min_seq: lost.min_seq, replaced });
    }
    let earlier = if replaced { " (in place of a mark that had not been acted on)" } else { "" };
    println!(
        "{}: marked as restored{earlier}. At the next start the stream's numbers go on above those of the lost run, and relays\n\
         are told of every account anew before anybody is served. Then: highwater pds announce",
        directory.display()
    );
    Ok(())
}

/// Gives up accounts that are lost, so that the server begins without any.
pub fn forget(data: &Path, min_seq: Option<u64>, yes: bool, json: bool) -> Result<()> {
    let directory = data.join(crate::serve::pds::DIRECTORY);
    refuse_in_use(&directory)?;
    if !yes {
        eprintln!("The accounts that were in {} are given up: no start brings them back.", directory.display());
        super::confirm("forget", "nothing was given up")?;
    }
    let id = SystemRandom.next_u64();
    let done = highwater_host::forget(&OsDisk::private_in(data), &directory, id, min_seq);
    done.map_err(|error| match error {
        MarkError::Held { .. } => exit::with(Status::Failed, error.to_string()),
        other => other.into(),
    })?;
    let id = format!("{id:016x}");
    if json {
        return output::json(&json!({ "directory": directory, "id": id, "min_seq": min_seq }));
    }
    println!(
        "{}: the next start makes an empty server of it, whose numbers go on above those that are remembered. Then: highwater pds announce",
        directory.display()
    );
    Ok(())
}

/// Whether a directory is there and empty, or not there at all.
///
/// # Errors
/// The system's.
pub fn is_empty(directory: &Path) -> Result<bool> {
    match OsDisk::new().list(directory) {
        Ok(names) => Ok(names.is_empty()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", directory.display())),
    }
}
