//! Bringing a data file back from the object store.

use super::marker::{Marker, temporary_path};
use super::outward::{MoveError, PIECE_BYTES};
use super::{Cold, cause};
use crate::reader::StoreReader;
use crate::scrub::Pace;
use highwater_disk::{File, OpenMode};
use std::io;

impl StoreReader {
    /// Brings a data file back, so that what lives of it can be copied out of it; returns its bytes, or `None` if it is not
    /// in the object store or nothing names it any more. Its object stays until the file is deleted.
    ///
    /// One move, recall or erasure of a store at a time.
    /// # Errors
    /// [`MoveError`]; the file is where it was.
    pub fn bring_back(&self, file: u32, pace: Pace<'_>) -> Result<Option<u64>, MoveError> {
        let files = &self.files;
        let Some(cold) = files.cold(file).filter(|cold| cold.moved && files.is_named(file)) else { return Ok(None) };
        let marker_path = super::marker::path(&files.directory, file);
        let marker = Marker::read(&*files.disk, &files.directory, files.owner, file)
            .map_err(|error| MoveError::Io { path: marker_path, source: io::Error::other(error) })?;
        let object = files.object(file, &cold)?;
        let failed = files.tier_error(file, &cold);
        let (path, temporary) = (files.path(file), temporary_path(&files.directory, file));
        let io = |source| MoveError::Io { path: path.clone(), source };

        let local = files.disk.open(&temporary, OpenMode::Create).map_err(io)?;
        local.set_length(0).map_err(io)?;
        let mut hasher = blake3::Hasher::new();
        let (mut at, mut piece) = (0, Vec::new());
        while at < cold.bytes {
            let length = PIECE_BYTES.min(cold.bytes - at);
            if !pace(length) {
                return Err(MoveError::Stopped);
            }
            piece.resize(length as usize, 0);
            let read = object.read_at(&mut piece, at).map_err(|error| match cause(&error) {
                Some(cause) => failed(cause.clone()),
                None => io(error),
            })?;
            hasher.update(&piece[..read]);
            local.write_at(&piece[..read], at).map_err(io)?;
            at += length;
        }
        if *hasher.finalize().as_bytes() != marker.digest {
            drop(files.disk.remove(&temporary));
            return Err(MoveError::Differs(files.object_place(file, &cold)));
        }
        local.sync_all().map_err(io)?;
        files.disk.rename(&temporary, &path).map_err(io)?;
        files.disk.sync_directory(&files.directory).map_err(io)?;
        // Until this is synced the file on disk is superfluous, and a start removes it.
        let back = Cold { bytes: 0, moved: false, ..cold };
        files.write_marker(file, back, [0; blake3::OUT_LEN])?;
        files.set_cold(file, back);
        files.note_recalled();
        Ok(Some(cold.bytes))
    }
}
