//! The databases that are open in this process.

use crate::engine::{Engine, OpenError, OpenOptions};
use crate::ffi::code;
use crate::host::fork;
use crate::vfs::database::Database;
use crate::vfs::failure::Failure;
use highwater_disk::Disk;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Who opens a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The application: the database is open as long as any such use lasts.
    Application,
    /// A checkpoint of our own, which must not outlive the application's last connection.
    Upkeep,
}

/// What a process keeps beside an open database: replication, in production.
pub trait Companion: Send + Sync {
    /// Sends what is pending for at most so long; whether nothing is left.
    fn drain(&self, at_most: Duration) -> bool;

    /// Ends it; nothing is sent afterwards.
    fn stop(&self);
}

/// Starts the companion of a database that was just opened.
pub type CompanionStart = Box<dyn Fn(&Arc<Engine>) -> Arc<dyn Companion> + Send + Sync>;

/// Databases by process generation and real path: a forked child starts with none, whatever it inherited.
type Key = (u64, PathBuf);

struct Open {
    database: Arc<Database>,
    companion: Option<Arc<dyn Companion>>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    applications: usize,
    upkeep: usize,
}

/// One path's turn: opening (which recovers) and closing happen under its lock, one after the other.
#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct Maps {
    slots: BTreeMap<Key, Arc<Slot>>,
    /// Those that are open, to be found without waiting for a slot.
    open: BTreeMap<Key, Arc<Database>>,
}

/// The open databases of one disk.
pub struct Registry {
    disk: Arc<dyn Disk>,
    options: OpenOptions,
    companion: Option<CompanionStart>,
    maps: Mutex<Maps>,
}

/// The registry's lock, held across a fork so that the child finds it free.
pub struct Frozen<'a>(#[expect(dead_code, reason = "held for its lock")] MutexGuard<'a, Maps>);

/// How often a close that drains looks whether the database is wanted again.
const DRAIN_STEP: Duration = Duration::from_millis(50);

impl Registry {
    /// The databases of `disk`, opened with `options`, each with a companion.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, options: OpenOptions, companion: Option<CompanionStart>) -> Self {
        Self { disk, options, companion, maps: Mutex::default() }
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Opens the bound database at the real path `path`, or joins those who have it open. Never waits for the network.
    /// # Errors
    /// `SQLITE_BUSY` where another process owns it, with its process id; what recovery found; the system's.
    pub fn open(&self, path: &Path) -> Result<Arc<Database>, Failure> {
        let slot = self.slot(path);
        let mut state = lock(&slot.state);
        if let Some(open) = &state.open {
            let database = open.database.clone();
            state.applications += 1;
            return Ok(database);
        }
        let engine =
            Engine::open(self.disk.clone(), path, self.options.clone()).map_err(|error| open_failure(&error))?;
        let database = match Database::new(self.disk.clone(), engine.clone()) {
            Ok(database) => Arc::new(database),
            Err(failure) => {
                engine.close();
                return Err(failure);
            }
        };
        let companion = self.companion.as_ref().map(|start| start(&engine));
        lock(&self.maps).open.insert(key(path), database.clone());
        state.open = Some(Open { database: database.clone(), companion });
        state.applications += 1;
        Ok(database)
    }

    /// Joins a database that is open, for a use that is not the application's.
    #[must_use]
    pub fn join(&self, path: &Path) -> Option<Arc<Database>> {
        let slot = self.slot(path);
        let mut state = lock(&slot.state);
        let database = state.open.as_ref().map(|open| open.database.clone())?;
        if state.applications == 0 {
            return None;
        }
        state.upkeep += 1;
        Some(database)
    }

    /// The database at `path`, if it is open.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<Arc<Database>> {
        lock(&self.maps).open.get(&key(path)).cloned()
    }

    /// The companion of the database at `path`, if it is open.
    #[must_use]
    pub fn companion(&self, path: &Path) -> Option<Arc<dyn Companion>> {
        let slot = self.slot(path);
        let state = lock(&slot.state);
        state.open.as_ref().and_then(|open| open.companion.clone())
    }

    /// Ends a use. The last one drains what is pending for a bounded time, unless someone opens the database again
    /// meanwhile, and closes it.
    pub fn close(&self, database: &Arc<Database>, usage: Use) {
        let slot = self.slot(database.path());
        let mut state = lock(&slot.state);
        if usage == Use::Upkeep {
            state.upkeep -= 1;
            slot.left.notify_all();
            return;
        }
        state.applications -= 1;
        let busy = |state: &mut State| state.applications == 0 && state.upkeep > 0;
        state = slot.left.wait_while(state, busy).unwrap_or_else(PoisonError::into_inner);
        if state.applications > 0 {
            return;
        }
        let companion = state.open.as_ref().and_then(|open| open.companion.clone());
        drop(state);

        if let Some(companion) = companion {
            let mut left = Duration::from_millis(self.options.sync_close_ms);
            while !left.is_zero() && !companion.drain(DRAIN_STEP.min(left)) && lock(&slot.state).applications == 0 {
                left = left.saturating_sub(DRAIN_STEP);
            }
        }

        let mut state = lock(&slot.state);
        if state.applications > 0 || state.upkeep > 0 {
            return;
        }
        // Whoever drained longest finds it closed, or opened anew, by another.
        let Some(open) = state.open.take_if(|open| Arc::ptr_eq(&open.database, database)) else { return };
        lock(&self.maps).open.remove(&key(database.path()));
        if let Some(companion) = open.companion {
            companion.stop();
        }
        open.database.engine.close();
    }

    /// Takes the registry's lock across a fork.
    #[must_use]
    pub fn freeze(&self) -> Frozen<'_> {
        Frozen(lock(&self.maps))
    }

    fn slot(&self, path: &Path) -> Arc<Slot> {
        lock(&self.maps).slots.entry(key(path)).or_default().clone()
    }
}

fn key(path: &Path) -> Key {
    (fork::generation(), path.to_path_buf())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_failure(error: &OpenError) -> Failure {
    let result = match error.code() {
        "busy" => code::BUSY,
        "not_bound" => code::CANTOPEN,
        _ => code::IOERR,
    };
    Failure::new(result, error.to_string())
}
