//! An object, read like a file.

use super::{ColdError, ColdTier};
use highwater_disk::File;
use std::io;
use std::sync::Arc;

/// A data file that lies in an object store. It is never written.
pub(crate) struct ColdFile {
    pub tier: Arc<dyn ColdTier>,
    pub name: String,
    pub bytes: u64,
}

/// What an object store said, if an error is its.
pub(crate) fn cause(error: &io::Error) -> Option<&ColdError> {
    error.get_ref()?.downcast_ref()
}

impl File for ColdFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.tier.read(&self.name, offset, buffer.len() as u64);
        let bytes = read.map_err(io::Error::other)?;
        // An object store that answers more than it was asked for has answered something else.
        let fits = buffer.get_mut(..bytes.len());
        fits.ok_or_else(|| io::Error::other(ColdError::Unreachable("it answered too many bytes".to_owned())))?
            .copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_all(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_length(&self, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn reserve(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
