//! Comparing a database with its stream.

use super::disk;
use crate::exit::{self, Status};
use crate::output::{self, Progress};
use anyhow::Result;
use highwater_client::Options;
use highwater_sqlite::restore::RestoreProgress;
use highwater_sqlite::verify::{self, VerifyError};
use serde_json::json;
use std::path::Path;

/// Compares `file` with the stream at `url`, page by page.
pub fn run(file: &Path, url: &str, json: bool) -> Result<()> {
    let mut progress = Progress::new("comparing");
    let mut report = |at: RestoreProgress| progress.set(at.bytes, at.bytes_total);
    let found = verify::verify(&disk(), file, url, Options::from_environment(), &mut report)
        .map_err(exit::of(VerifyError::code))?;
    drop(progress);
    if json {
        output::json(&json!({
            "path": file, "url": url, "acknowledged": found.acknowledged_lsn, "commit": found.lsn,
            "pages": found.pages, "different": found.different, "different_pages": found.different_pages,
            "stopped": found.stopped.as_ref().map(|stopped| stopped.reason.code.as_str()),
        }))?;
    } else if let Some(stopped) = &found.stopped {
        println!("the database stopped: {}", stopped.reason);
        println!("{} pages compared; the stream ends at commit {}", found.pages, found.lsn);
    } else {
        let pending = found.lsn - found.acknowledged_lsn;
        println!("{} pages compared at commit {}, {pending} commits of them pending", found.pages, found.lsn);
    }
    if found.different > 0 && found.stopped.is_some() {
        let file = file.display();
        let message = format!(
            "{} pages of {file} differ from the stream, the first: {:?}. {file} holds every commit that was made here. To go on \
             from it, bind a copy of it to a new stream (`cp {file} KEPT; highwater db bind KEPT NEW-URL`); to go on from the \
             stream, restore it to another path (`highwater db restore {url} FILE`)",
            found.different, found.different_pages
        );
        return Err(exit::with(Status::Differs, message));
    }
    if found.different > 0 {
        let message = format!(
            "{} pages of {} differ from the stream, the first: {:?}. Keep both; the stream can be restored to another \
             path with `highwater db restore {url} FILE`",
            found.different,
            file.display(),
            found.different_pages
        );
        return Err(exit::with(Status::Differs, message));
    }
    if !json {
        println!("the file equals its stream");
    }
    Ok(())
}
