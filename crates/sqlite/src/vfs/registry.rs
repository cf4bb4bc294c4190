//! The databases that are open in this process.

use crate::engine::{Engine, Layout, OpenError, OpenOptions};
use crate::ffi::code;
use crate::guard::lock;
use crate::host::fork;
use crate::replicator::Replication;
use crate::vfs::database::Database;
use crate::vfs::failure::Failure;
use highwater_client::{Options as ClientOptions, TokenSource};
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

/// How a database is opened, beside its path; the first of those who open it decides.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `max_pending_bytes`, instead of the registry's.
    pub max_pending_bytes: Option<u64>,
    /// `sync_close_ms`, instead of the registry's.
    pub sync_close_ms: Option<u64>,
    /// `token_file`, instead of what the environment says.
    pub token_file: Option<PathBuf>,
    /// `ca_file`, instead of what the environment says.
    pub ca_file: Option<PathBuf>,
}

impl Settings {
    fn options(&self, registry: &OpenOptions) -> OpenOptions {
        OpenOptions {
            max_pending_bytes: self.max_pending_bytes.unwrap_or(registry.max_pending_bytes),
            // The wait at close is this registry's, which gives it up for an open; the engine has none of its own.
            sync_close_ms: 0,
            ..registry.clone()
        }
    }

    fn client(&self) -> ClientOptions {
        let mut options = ClientOptions::from_environment();
        if let Some(file) = &self.token_file {
            options.token = TokenSource::file(file);
        }
        if self.ca_file.is_some() {
            options.ca_file.clone_from(&self.ca_file);
        }
        options
    }
}

/// Whether commits are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// To the stream the database is bound to.
    ToStream,
    /// Nowhere: they stay in the log, as when the stream cannot be reached.
    Nowhere,
}

/// Databases by process generation and real path: a forked child starts with none, whatever it inherited, and two names
/// of one file are one database.
type Key = (u64, PathBuf);

struct Open {
    database: Arc<Database>,
    replication: Option<Arc<Replication>>,
    drain_ms: u64,
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
    sending: Sending,
    maps: Mutex<Maps>,
}

/// The registry's lock, held across a fork so that the child finds it free.
pub struct Frozen<'a>(MutexGuard<'a, Maps>);

impl Frozen<'_> {
    /// In the child: gives up the descriptors of the locks on the parent's databases, which the child would otherwise
    /// keep locked after the parent has gone.
    pub fn disown(&self) {
        self.0.open.values().for_each(|database| database.engine.disown());
    }
}

impl Registry {
    /// The databases of `disk`, opened with `options`.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, options: OpenOptions, sending: Sending) -> Self {
        Self { disk, options, sending, maps: Mutex::default() }
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Opens the bound database at `path`, or joins those who have it open. Never waits for the network.
    /// # Errors
    /// `SQLITE_BUSY` where another process owns it, with its process id; what recovery found; the system's.
    pub fn open(&self, path: &Path, settings: &Settings) -> Result<Arc<Database>, Failure> {
        let slot = self.slot(path);
        let mut state = lock(&slot.state);
        if let Some(open) = &state.open {
            let database = open.database.clone();
            state.applications += 1;
            return Ok(database);
        }
        let engine = Engine::open(self.disk.clone(), path, settings.options(&self.options));
        let engine = engine.map_err(|error| open_failure(&error))?;
        let open = self.complete(&engine, settings).inspect_err(|_| engine.close())?;
        let database = open.database.clone();
        let key = key(path);
        lock(&self.maps).open.insert(key, database.clone());
        state.open = Some(open);
        state.applications += 1;
        Ok(database)
    }

    fn complete(&self, engine: &Arc<Engine>, settings: &Settings) -> Result<Open, Failure> {
        let database = Arc::new(Database::new(self.disk.clone(), engine.clone()));
        let replication = match self.sending {
            Sending::ToStream => {
                let started = Replication::start(engine.clone(), settings.client());
                Some(started.map_err(|error| Failure::new(code::CANTOPEN, error.to_string()))?)
            }
            Sending::Nowhere => None,
        };
        let drain_ms = settings.sync_close_ms.unwrap_or(self.options.sync_close_ms);
        Ok(Open { database, replication, drain_ms })
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
        if lock(&self.maps).open.is_empty() {
            // Every journal and `-wal` of other databases is asked about here, too.
            return None;
        }
        let key = key(path);
        lock(&self.maps).open.get(&key).cloned()
    }

    /// The replication of the database at `path`, if it is open and replicates.
    #[must_use]
    pub fn replication(&self, path: &Path) -> Option<Arc<Replication>> {
        let slot = self.slot(path);
        let state = lock(&slot.state);
        state.open.as_ref().and_then(|open| open.replication.clone())
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
        let drain = state.open.as_ref().map(|open| (open.replication.clone(), Duration::from_millis(open.drain_ms)));
        drop(state);
        // Whoever opens the database meanwhile need not wait for this.
        if let Some((Some(replication), at_most)) = drain {
            // What is left stays in the log, and the status page says so.
            let _drained: bool = replication.drain(at_most);
        }

        let mut state = lock(&slot.state);
        if state.applications > 0 || state.upkeep > 0 {
            return;
        }
        // Whoever drained longest finds it closed, or opened anew, by another.
        let Some(open) = state.open.take_if(|open| Arc::ptr_eq(&open.database, database)) else { return };
        let key = key(database.path());
        lock(&self.maps).open.remove(&key);
        if let Some(replication) = open.replication {
            replication.stop();
        }
        open.database.engine.close();
    }

    /// Takes the registry's lock across a fork.
    #[must_use]
    pub fn freeze(&self) -> Frozen<'_> {
        Frozen(lock(&self.maps))
    }

    fn slot(&self, path: &Path) -> Arc<Slot> {
        let key = key(path);
        lock(&self.maps).slots.entry(key).or_default().clone()
    }
}

fn key(path: &Path) -> Key {
    (fork::generation(), Layout::of(path).database)
}

fn open_failure(error: &OpenError) -> Failure {
    let result = match error.code() {
        "busy" | "in_use" => code::BUSY,
        "not_bound" | "database_missing" => code::CANTOPEN,
        _ => code::IOERR,
    };
    Failure::new(result, error.to_string())
}
