//! Deleting the objects of data files that nothing names any more.

use super::outward::MoveError;
use super::{Life, marker};
use crate::reader::StoreReader;
use std::io;

/// What became of an object that nothing needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// It was deleted.
    Deleted,
    /// It was written in another life of the directory, in which it may still be needed: it stays, and is forgotten here.
    Left,
    /// It is needed again, or still.
    Kept,
}

impl StoreReader {
    /// Deletes the object of a data file that no synced index names, then its marker.
    ///
    /// One move, recall or erasure of a store at a time.
    /// # Errors
    /// [`MoveError`]; the marker stays, and the next attempt finds it.
    pub fn erase(&self, file: u32, life: Life) -> Result<Erased, MoveError> {
        let files = &self.files;
        let Some(cold) = files.cold(file).filter(|_| files.may_be_erased(file)) else { return Ok(Erased::Kept) };
        let own = cold.life == life;
        if own {
            let deleted = files.tier()?.delete(&cold.name(files.owner, file));
            deleted.map_err(files.tier_error(file, &cold))?;
        }
        let path = marker::path(&files.directory, file);
        match files.disk.remove(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(|source| MoveError::Io { path, source })?,
        }
        files.forget_cold(file);
        Ok(if own { Erased::Deleted } else { Erased::Left })
    }
}
