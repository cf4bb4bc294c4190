//! Hooks that a test hangs on calls of the disk.

use highwater_disk::watched::{Call, Watcher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

type Hook = Box<dyn FnOnce() + Send>;

/// What is called once a call has been carried out and before its caller learns of it.
#[derive(Default)]
pub struct Hooks(Mutex<Vec<(Call, PathBuf, Hook)>>);

impl Hooks {
    /// Calls `hook` at the next such call on this file or directory, once.
    pub fn at(&self, call: Call, path: &Path, hook: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((call, path.to_path_buf(), Box::new(hook)));
    }
}

impl Watcher for Hooks {
    fn after(&self, call: Call, path: &Path, _bytes: u64) {
        // The sync of a directory is hooked like that of a file.
        let call = if call == Call::SyncDirectory { Call::Sync } else { call };
        let hook = {
            let mut hooks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            hooks.iter().position(|(on, at, _)| *on == call && at == path).map(|at| hooks.remove(at).2)
        };
        if let Some(hook) = hook {
            hook();
        }
    }
}
