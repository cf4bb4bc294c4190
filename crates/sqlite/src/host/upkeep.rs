//! Checkpoints of our own, for databases whose connections do not keep up with them.
//!
//! SQLite copies the `-wal` into the database file after every 1,000 pages, in the connection that commits. Where the
//! application turned that off, or readers always keep it from ending, the `-wal` and the log would grow without end.
//! One thread per process looks after them; it is there only while there is something to do.

use crate::ffi::{Api, code};
use crate::host::threads;
use crate::vfs::database::Database;
use crate::vfs::registry::Registry;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of the `-wal` not copied, or of log not in the file, from which on the thread helps: four times what SQLite's
/// own checkpoints let pile up with pages of 4 KiB.
pub const LAG_BYTES: u64 = 16 << 20;
/// Bytes of the `-wal` from which on writers wait for a moment, so that it can start again.
const WAL_BYTES: u64 = 64 << 20;
/// Between two attempts at a database that a reader holds back.
const RETRY: Duration = Duration::from_millis(500);
/// How long the thread waits for more to do before it ends.
const IDLE: Duration = Duration::from_secs(5);

/// A database that lags, and how to open it.
struct Work {
    api: Api,
    vfs: &'static CStr,
    registry: Arc<Registry>,
    path: PathBuf,
}

#[derive(Default)]
struct Queue {
    work: Vec<Work>,
    /// The generation of the process in which the thread runs.
    running: Option<u64>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { work: Vec::new(), running: None });
static WAKE: Condvar = Condvar::new();

/// The queue's lock, held across a fork so that the child finds it free.
pub struct Frozen(#[expect(dead_code, reason = "held for its lock")] MutexGuard<'static, Queue>);

/// Takes the queue's lock across a fork.
#[must_use]
pub fn freeze() -> Frozen {
    Frozen(queue())
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the thread has something to do for this database.
#[must_use]
pub fn lags(database: &Database) -> bool {
    database.undurable_bytes() > LAG_BYTES || database.unbackfilled_bytes() > LAG_BYTES
}

/// Has the thread look after a database soon. `vfs` is the name under which connections of `api` reach it.
pub fn look_after(api: Api, vfs: &'static CStr, registry: &Arc<Registry>, path: &Path) {
    if !api.is_threadsafe() {
        return;
    }
    let mut queue = queue();
    let generation = super::fork::generation();
    if queue.running != Some(generation) {
        // What the parent of a forked process had to do is the parent's.
        queue.work.clear();
        if threads::spawn("highwater-upkeep", run).is_err() {
            return;
        }
        queue.running = Some(generation);
    }
    if !queue.work.iter().any(|work| work.path == path && Arc::ptr_eq(&work.registry, registry)) {
        queue.work.push(Work { api, vfs, registry: registry.clone(), path: path.to_path_buf() });
        WAKE.notify_all();
    }
}

fn run() {
    let mut held_back = Vec::new();
    loop {
        let mut queue = queue();
        queue.work.append(&mut held_back);
        if queue.work.is_empty() {
            let waited = WAKE.wait_timeout_while(queue, IDLE, |queue| queue.work.is_empty());
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let work = std::mem::take(&mut queue.work);
        if work.is_empty() {
            queue.running = None;
            return;
        }
        drop(queue);
        held_back = work.into_iter().filter(|work| !settle(work)).collect();
        if !held_back.is_empty() {
            std::thread::sleep(RETRY);
        }
    }
}

/// Checkpoints one database; whether there is nothing more to do for now.
fn settle(work: &Work) -> bool {
    let Some(database) = work.registry.find(&work.path) else { return true };
    // On its own connection, closed again at once: it must not keep the application from closing the database.
    let Ok(connection) = work.api.open(&uri(&work.path), work.vfs) else { return true };
    // Without having read once, a connection has no -wal to copy from, and its checkpoint does nothing.
    if connection.run(c"PRAGMA schema_version") != code::OK {
        return database.usable().is_err();
    }
    let mut result = connection.checkpoint(code::CHECKPOINT_PASSIVE, 0);
    if result == code::OK && database.wal_bytes() > WAL_BYTES {
        database.without_writers(|| result = connection.checkpoint(code::CHECKPOINT_PASSIVE, 0));
    }
    // A reader may have held it back, or writers kept adding: what was copied counts all the same.
    let synced = database.sync_backfilled();
    drop(connection);
    match (result, synced) {
        (code::OK, Ok(())) => !lags(&database),
        (_, Err(failure)) => {
            database.refused(&failure.text);
            database.usable().is_err()
        }
        _ => database.usable().is_err(),
    }
}

/// The URI of a database that tells our VFS that it is the upkeep who opens it.
fn uri(path: &Path) -> CString {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?highwater_upkeep=1");
    CString::new(uri).unwrap_or_default()
}

/// The parameter of [`uri`].
pub const PARAMETER: &CStr = c"highwater_upkeep";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_its_uri() {
        let uri = uri(Path::new("/tmp/ö ?#%&.db"));
        assert_eq!(uri.to_str(), Ok("file:/tmp/%C3%B6%20%3F%23%25%26.db?highwater_upkeep=1"));
    }
}
