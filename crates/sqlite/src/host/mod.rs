//! The SQLite library the extension was loaded into, and what the process keeps for it.
//!
//! Every library in a process has its own list of VFSs: Python's, Node's and a bundled one each load the extension for
//! themselves. They share the open databases, because one process owns a database, not one library.

pub mod entry;
pub mod fork;
pub mod threads;
pub mod upkeep;

use crate::engine::{Engine, OpenOptions};
use crate::ffi::{Api, Vfs, code};
use crate::vfs::registry::{Registry, Sending};
use crate::vfs::{Registered, Unbound};
use highwater_disk::OsDisk;
use std::ffi::{CStr, c_int};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The name of the VFS.
pub const VFS_NAME: &CStr = c"highwater";
/// The name under which it is the default: that one lets databases pass that are not bound.
pub const VFS_DEFAULT_NAME: &CStr = c"highwater-default";
/// Set to `1` when the extension is loaded, makes the VFS the default.
pub const DEFAULT_VFS_VARIABLE: &str = "HIGHWATER_DEFAULT_VFS";

/// One SQLite library in this process.
pub struct Host {
    /// Its place among the libraries of this process.
    pub number: usize,
    /// Its routines.
    pub api: Api,
    /// Its default VFS before the extension came.
    below: *mut Vfs,
    registry: Arc<Registry>,
    passing: OnceLock<Result<Registered, c_int>>,
}

// SAFETY: the VFS below is never written, and SQLite calls it from any thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

/// The open databases of this process.
#[must_use]
pub fn registry() -> &'static Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Arc::new(Registry::new(Arc::new(OsDisk::new()), OpenOptions::default(), Sending::ToStream)))
}

/// SQLite libraries in one process: one per language runtime and one per bundling module, of which few meet.
pub const HOSTS_MAX: usize = 8;

static HOSTS: Mutex<Vec<&'static Host>> = Mutex::new(Vec::new());

fn hosts() -> MutexGuard<'static, Vec<&'static Host>> {
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// The library behind these routines; registers the VFS `highwater` with it the first time.
    /// # Errors
    /// SQLite's result code.
    pub fn of(api: Api) -> Result<&'static Self, c_int> {
        let mut hosts = hosts();
        if let Some(host) = hosts.iter().find(|host| host.api == api) {
            return Ok(host);
        }
        let (number, below) = (hosts.len(), api.vfs_find(None));
        if below.is_null() || number >= HOSTS_MAX {
            return Err(code::ERROR);
        }
        fork::install();
        // SAFETY: the default VFS of a library stays registered.
        unsafe { Registered::new(api, below, VFS_NAME, Unbound::Refused, registry().clone())? };
        let host = Host { number, api, below, registry: registry().clone(), passing: OnceLock::new() };
        let host: &'static Self = Box::leak(Box::new(host));
        hosts.push(host);
        Ok(host)
    }

    /// The library with this number.
    #[must_use]
    pub fn numbered(number: usize) -> Option<&'static Self> {
        hosts().get(number).copied()
    }

    /// Makes the VFS the default of the library, or gives that place back.
    /// # Errors
    /// SQLite's result code.
    pub fn set_default(&self, default: bool) -> Result<(), c_int> {
        if default {
            // SAFETY: as in `of`.
            let passing = self.passing.get_or_init(|| unsafe {
                Registered::new(self.api, self.below, VFS_DEFAULT_NAME, Unbound::PassedThrough, self.registry.clone())
            });
            return (*passing)?.make_default();
        }
        match self.passing.get() {
            Some(Ok(passing)) if passing.is_default() => {
                // SAFETY: it is registered and stays so.
                match unsafe { self.api.vfs_register(self.below, true) } {
                    code::OK => Ok(()),
                    result => Err(result),
                }
            }
            _ => Ok(()),
        }
    }

    /// Registers one more VFS over databases of another disk, for tests that simulate it.
    /// # Errors
    /// SQLite's result code.
    pub fn register(&self, name: &CStr, unbound: Unbound, registry: Arc<Registry>) -> Result<Registered, c_int> {
        // SAFETY: the VFS below stays registered.
        unsafe { Registered::new(self.api, self.below, name, unbound, registry) }
    }
}

/// The status page of a database, with the SQLite library that asks for it.
#[must_use]
pub fn status(api: Api, engine: &Engine) -> String {
    let mut status = engine.status();
    if let Some(status) = status.as_object_mut() {
        let version = api.version();
        let (major, minor, patch) = (version / 1_000_000, version / 1_000 % 1_000, version % 1_000);
        let sqlite = serde_json::json!({
            "version": format!("{major}.{minor}.{patch}"),
            "wal_reset_bug": has_wal_reset_bug(version),
        });
        status.insert("sqlite".to_owned(), sqlite);
    }
    status.to_string()
}

/// Whether a SQLite of this version may lose pages where a checkpoint meets a restart of the `-wal`: 3.7.0 to 3.51.2,
/// but for the fixes in 3.50.7 and 3.44.6. The lock table keeps the two apart, so no bound database is concerned.
fn has_wal_reset_bug(version: c_int) -> bool {
    let fixed = [3_044_006..3_045_000, 3_050_007..3_051_000, 3_051_003..c_int::MAX];
    !fixed.iter().any(|versions| versions.contains(&version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_with_the_wal_reset_bug_are_known() {
        for affected in [3_040_001, 3_044_005, 3_045_003, 3_050_006, 3_051_002] {
            assert!(has_wal_reset_bug(affected), "{affected}");
        }
        for fixed in [3_044_006, 3_050_007, 3_051_003, 3_054_001] {
            assert!(!has_wal_reset_bug(fixed), "{fixed}");
        }
    }
}
