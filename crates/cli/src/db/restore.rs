//! Rebuilding a database from its stream.

use super::disk;
use crate::exit;
use crate::output::{self, Progress};
use anyhow::Result;
use highwater_client::Options;
use highwater_sqlite::replicator::StreamError;
use highwater_sqlite::restore;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Restores the database of the stream at `url` to `file`.
pub fn run(url: &str, file: &Path, json: bool) -> Result<()> {
    let begun = Instant::now();
    let mut progress = Progress::new("restoring");
    let mut report = |at: restore::RestoreProgress| progress.set(at.bytes, at.bytes_total);
    let restored = restore::restore(&disk(), url, file, Options::from_environment(), &mut report)
        .map_err(exit::of(StreamError::code))?;
    drop(progress);
    let seconds = begun.elapsed().as_secs_f64();
    if json {
        return output::json(&json!({
            "path": file, "url": url, "commit": restored.lsn, "epoch": restored.epoch,
            "stream_bytes": restored.bytes, "incomplete_commit": restored.incomplete, "seconds": seconds,
        }));
    }
    let read = output::bytes(restored.bytes);
    println!("{} holds commit {} of {url}; {read} read in {seconds:.1} s", file.display(), restored.lsn);
    if restored.incomplete {
        println!("the stream ends inside a commit that was never acknowledged; it is left out");
    }
    println!("the first write through the extension claims the stream; until then its owner is not disturbed");
    Ok(())
}
