//! Sending what is pending.

use super::disk;
use crate::exit::{self, Status};
use crate::output::{self, Progress};
use anyhow::Result;
use highwater_client::Options;
use highwater_sqlite::push::{self, PushError, PushProgress};
use highwater_sqlite::replicator::SyncedError;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Sends what the last process of `file` left pending and waits for the stream to have it.
pub fn run(file: &Path, timeout_s: Option<u64>, json: bool) -> Result<()> {
    let mut progress = Progress::new("sending");
    let mut most = 0;
    let mut report = |at: &PushProgress| {
        most = most.max(at.pending_bytes);
        progress.set(most - at.pending_bytes, most);
    };
    let timeout = timeout_s.map(Duration::from_secs);
    let result = push::push(disk(), file, Options::from_environment(), timeout, &mut report);
    drop(progress);
    let pushed = match result {
        Err(PushError::Synced(SyncedError::Timeout { commits, waited_ms, trouble })) => {
            let message = late(commits, waited_ms, &trouble);
            return Err(exit::with(Status::Later, message));
        }
        result => result.map_err(exit::of(PushError::code))?,
    };
    if json {
        return output::json(&json!({
            "path": file, "commits": pushed.commits, "bytes": pushed.bytes, "commit": pushed.lsn,
            "followed": pushed.followed,
        }));
    }
    let sent = output::bytes(pushed.bytes);
    println!("{} commits ({sent}) sent; the stream holds commit {}", pushed.commits, pushed.lsn);
    if pushed.followed {
        println!(
            "bytes that this database did not write follow it: another owner has the stream, or will have to go on there"
        );
    }
    Ok(())
}

/// What is said when the time is over: this process ends, so that nothing goes on by itself.
fn late(commits: u64, waited_ms: u64, trouble: &str) -> String {
    let why = if trouble.is_empty() { "no answer came yet" } else { trouble };
    format!(
        "synced_timeout: {commits} pending after {waited_ms} ms: {why}. They stay in the log; run the same command again \
         when the cause is gone"
    )
}
