//! What the store asks of the log: a frame's payload.

use bytes::Bytes;
use highwater_wal::{Location, LogReader, ReadError};
use std::sync::Arc;
use thiserror::Error;

/// Why the log did not give a frame's payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LogError {
    /// The segment was freed since: what it held lies in data files now.
    #[error("the log's segment was freed")]
    Reclaimed,
    /// The log's own reason.
    #[error("the log cannot be read: {0}")]
    Failed(String),
}

/// A log whose frames can be read by their place. Reads verify the frame's checksums.
pub trait LogSource: Send + Sync {
    /// The payload of a frame, whole.
    /// # Errors
    /// As [`LogError`] says.
    fn read(&self, location: Location) -> Result<Bytes, LogError>;
}

impl<T: LogSource + ?Sized> LogSource for Arc<T> {
    fn read(&self, location: Location) -> Result<Bytes, LogError> {
        (**self).read(location)
    }
}

impl LogSource for LogReader {
    fn read(&self, location: Location) -> Result<Bytes, LogError> {
        LogReader::read(self, location).map_err(|error| match error {
            ReadError::Reclaimed(_) => LogError::Reclaimed,
            other => LogError::Failed(other.to_string()),
        })
    }
}
