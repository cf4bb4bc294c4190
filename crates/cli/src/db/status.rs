//! How far a database is replicated.

use super::disk;
use crate::exit::{self, Status};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_sqlite::engine::{Engine, OpenError, OpenOptions, StatusRead, read_status};
use serde_json::Value;
use std::io;
use std::path::Path;

/// Prints what the owner of `file` last published.
pub fn run(file: &Path, json: bool) -> Result<()> {
    let disk = disk();
    if !Engine::is_bound(disk.as_ref(), file)? {
        let file = file.display();
        let message = format!("{file} is not bound to a stream; bind it with `highwater db bind {file} URL`");
        return Err(exit::with(Status::NotFound, message));
    }
    let read = match read_status(disk.as_ref(), file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Nobody opened it since it was bound. Opening is local, and a database that is closed has a status.
            Engine::open(disk.clone(), file, OpenOptions::default()).map_err(exit::of(OpenError::code))?.close();
            read_status(disk.as_ref(), file)
        }
        read => read,
    };
    let read = read.context("the published status cannot be read")?;
    if json { output::json(&page(read)) } else { print(&read) }
}

/// The published page with what only an observer can add: how old it is, and whether its process lives.
fn page(read: StatusRead) -> Value {
    let mut page = read.status;
    if let Some(object) = page.as_object_mut() {
        object.insert("age_ms".to_owned(), read.age_ms.into());
        object.insert("owner_lives".to_owned(), read.owner_lives.into());
    }
    page
}

fn print(read: &StatusRead) -> Result<()> {
    let at = |pointer: &str| match read.status.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let lives = if read.owner_lives { "open in" } else { "not open; last in" };
    let pending = read.status.pointer("/commits/pending_bytes").and_then(Value::as_u64).unwrap_or(0);
    output::table(&[
        ("path", at("/path")),
        ("stream", at("/url")),
        ("process", format!("{lives} {}", read.pid)),
        ("published", format!("{:.1} s ago", read.age_ms as f64 / 1000.0)),
        ("role", at("/role")),
        ("epoch", at("/epoch")),
        ("commits logged", at("/commits/logged")),
        ("commits acknowledged", at("/commits/acknowledged")),
        ("commits pending", format!("{} ({})", at("/commits/pending"), output::bytes(pending))),
        ("condition", at("/replication/condition")),
        ("last error", at("/replication/last_error")),
        ("ownership", at("/ownership/state")),
        ("reason", at("/ownership/reason")),
        ("explanation", at("/ownership/text")),
    ])
}
