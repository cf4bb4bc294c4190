//! A node with its threads.

use crate::config::Config;
use crate::handle::Handle;
use highwater_base::{Clock, Random};
use highwater_disk::Disk;
use std::sync::Arc;
use thiserror::Error;

/// Why a node did not open. Nothing that was on disk is changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The threads are not there yet.
    #[error("this build has no server")]
    Unfinished,
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    handle: Handle,
}

impl Node {
    /// Opens a data directory, makes it if it is empty, recovers what it holds, and serves.
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        _config: Config,
        _disk: Arc<dyn Disk>,
        _clock: Arc<dyn Clock>,
        _random: Box<dyn Random>,
    ) -> Result<Self, OpenError> {
        Err(OpenError::Unfinished)
    }

    /// The front ends' way in.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops taking requests, lets what is in flight finish, and closes the log cleanly.
    /// # Errors
    /// That of a log that had failed.
    pub fn shutdown(self) -> Result<(), OpenError> {
        Ok(())
    }
}
