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

    /// Appends the payload of a frame, whole, to `out`; `scratch` is memory that is used again.
    /// # Errors
    /// As [`LogError`] says; `out` is then as it was.
    fn read_into(&self, location: Location, out: &mut Vec<u8>, _scratch: &mut Vec<u8>) -> Result<(), LogError> {
        out.extend_from_slice(&self.read(location)?);
        Ok(())
    }
}

impl<T: LogSource + ?Sized> LogSource for Arc<T> {
    fn read(&self, location: Location) -> Result<Bytes, LogError> {
        (**self).read(location)
    }

    fn read_into(&self, location: Location, out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<(), LogError> {
        (**self).read_into(location, out, scratch)
    }
}

impl LogSource for LogReader {
    fn read(&self, location: Location) -> Result<Bytes, LogError> {
        LogReader::read(self, location).map_err(LogError::from)
    }

    fn read_into(&self, location: Location, out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<(), LogError> {
        LogReader::read_into(self, location, out, scratch).map_err(LogError::from)
    }
}

impl From<ReadError> for LogError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reclaimed(_) => Self::Reclaimed,
            other => Self::Failed(other.to_string()),
        }
    }
}
