//! Moving a data file to the object store.

use super::marker::{FileDigest, Marker};
use super::{Cold, ColdError, ColdFile, ColdTier, Life};
use crate::data::{BLOCK_BYTES, BLOCK_HEADER_BYTES, DataFault, PAGE_BYTES};
use crate::data::{check_file_header, is_block, next_block};
use crate::files::Files;
use crate::reader::StoreReader;
use crate::scrub::Pace;
use bytes::Bytes;
use highwater_disk::{File, OpenMode};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Bytes that are read or written at a time.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

/// Why a file was not moved, brought back, or its object not deleted. It is where it was, whole.
#[derive(Debug, Error)]
pub enum MoveError {
    /// The store was opened without an object store.
    #[error("there is no object store")]
    NoStore,
    /// The object store.
    #[error("{object}: {error}")]
    Tier {
        /// The object, with the place of its store.
        object: String,
        /// What it said.
        error: ColdError,
    },
    /// What was read back from the object store is not what was written to it.
    #[error("{0} does not hold what was written to it")]
    Differs(String),
    /// The file on disk is damaged: it stays, where the scrub sees it.
    #[error("{}, byte {position}: {fault}; a damaged file is not moved", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Position in it, in bytes.
        position: u64,
        /// What is wrong.
        fault: DataFault,
    },
    /// The disk.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
}

/// As what a file moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outward {
    /// This life of the directory.
    pub life: Life,
    /// A number drawn for this move. One that was begun and broke off goes on with its own.
    pub nonce: u64,
}

impl Files {
    pub(super) fn tier_error(&self, file: u32, cold: &Cold) -> impl Fn(ColdError) -> MoveError + use<> {
        let object = self.object_place(file, cold);
        move |error| MoveError::Tier { object: object.clone(), error }
    }

    pub(super) fn tier(&self) -> Result<&Arc<dyn ColdTier>, MoveError> {
        self.tier.as_ref().map(|store| &store.0).ok_or(MoveError::NoStore)
    }

    pub(super) fn object(&self, file: u32, cold: &Cold) -> Result<ColdFile, MoveError> {
        let tier = Arc::clone(self.tier()?);
        Ok(ColdFile { tier, name: cold.name(self.owner, file), bytes: cold.bytes })
    }

    pub(super) fn write_marker(&self, file: u32, cold: Cold, digest: FileDigest) -> Result<(), MoveError> {
        let written = Marker { cold, digest }.write(&*self.disk, &self.directory, self.owner, file);
        let path = super::marker::path(&self.directory, file);
        written.map_err(|source| MoveError::Io { path, source })
    }
}

impl StoreReader {
    /// Moves a data file to the object store; returns its bytes, or `None` if it is not to be moved any more. Blocks on the
    /// disk and on the object store; `pace` is asked before bytes are sent or fetched.
    ///
    /// One move, recall or erasure of a store at a time.
    /// # Errors
    /// [`MoveError`]; the file is where it was.
    pub fn move_outward(&self, file: u32, as_: Outward, pace: Pace<'_>) -> Result<Option<u64>, MoveError> {
        let files = &self.files;
        let tier = Arc::clone(files.tier()?);
        let Some(begun) = files.may_leave(file) else { return Ok(None) };
        let path = files.path(file);
        let io = |source| MoveError::Io { path: path.clone(), source };
        let local = match files.disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(io)?,
        };
        let bytes = local.length().map_err(io)?;
        self.survey(file, &*local, bytes)?;
        let digest = digest(&*local, bytes, &mut |_| true).map_err(io)?.ok_or(MoveError::Stopped)?;

        // The name stands in a synced marker before the first byte is sent under it: what a crash leaves behind has an owner.
        let fresh = Cold { life: as_.life, nonce: as_.nonce, bytes: 0, moved: false };
        let under_way = begun.filter(|begun| begun.life == as_.life).unwrap_or(fresh);
        if begun != Some(under_way) {
            files.write_marker(file, under_way, [0; blake3::OUT_LEN])?;
            files.set_cold(file, under_way);
        }
        let failed = files.tier_error(file, &under_way);
        let mut at = 0;
        let mut stopped = false;
        let mut pieces = || {
            let length = PIECE_BYTES.min(bytes - at);
            if length > 0 && !pace(length) {
                stopped = true;
                return Err(io::ErrorKind::Interrupted.into());
            }
            let mut piece = vec![0; length as usize];
            local.read_exact_at(&mut piece, at)?;
            at += length;
            Ok(Bytes::from(piece))
        };
        let put = tier.put(&under_way.name(files.owner, file), bytes, &mut pieces);
        if stopped {
            return Err(MoveError::Stopped);
        }
        put.map_err(&failed)?;

        let moved = Cold { bytes, moved: true, ..under_way };
        let object = files.object(file, &moved)?;
        let read_back = digest_of_object(&object, bytes, pace).map_err(&failed)?.ok_or(MoveError::Stopped)?;
        if read_back != digest {
            return Err(MoveError::Differs(files.object_place(file, &moved)));
        }
        if !pace(0) {
            return Err(MoveError::Stopped);
        }
        files.write_marker(file, moved, digest)?;
        // From here on whoever does not find the file looks there.
        files.set_cold(file, moved);
        files.disk.remove(&path).map_err(io)?;
        Ok(Some(bytes))
    }

    /// Verifies the blocks of a file. What a crash left behind the last whole one is no damage.
    fn survey(&self, file: u32, local: &dyn File, bytes: u64) -> Result<(), MoveError> {
        let path = self.files.path(file);
        let io = |source| MoveError::Io { path: path.clone(), source };
        let damaged = |position, fault| MoveError::Damaged { path: path.clone(), position, fault };
        let mut header = [0; BLOCK_HEADER_BYTES];
        let read = local.read_at(&mut header, 0).map_err(io)?;
        check_file_header(&header[..read], self.files.owner, file).map_err(|fault| damaged(0, fault))?;
        let mut window = Window { local, start: 0, bytes: Vec::new() };
        let (mut at, mut bad) = (u64::from(PAGE_BYTES), None);
        while at + (BLOCK_HEADER_BYTES as u64) < bytes {
            let block = window.at(at).map_err(io)?;
            if let Some(next) = next_block(block, file) {
                // Sound bytes behind bad ones: those were not left by a crash.
                if let Some(position) = bad {
                    return Err(damaged(position, DataFault::Checksum));
                }
                at += next;
                continue;
            }
            let padding = block.iter().take(BLOCK_HEADER_BYTES).all(|byte| *byte == 0);
            if !padding {
                let behind = at + BLOCK_BYTES as u64;
                if behind < bytes && is_block(window.at(behind).map_err(io)?, file) {
                    return Err(damaged(bad.unwrap_or(at), DataFault::Checksum));
                }
                bad = bad.or(Some(at));
            }
            at = (at + 1).next_multiple_of(u64::from(PAGE_BYTES));
        }
        Ok(())
    }
}

/// A part of a file, with room for the largest block.
struct Window<'a> {
    local: &'a dyn File,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// The bytes from `at` on: a whole block's at the least, or all to the end of the file.
    fn at(&mut self, at: u64) -> io::Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if at < self.start || at + BLOCK_BYTES as u64 > end {
            self.bytes.resize(16 * BLOCK_BYTES, 0);
            let read = self.local.read_at(&mut self.bytes, at)?;
            self.bytes.truncate(read);
            self.start = at;
        }
        Ok(&self.bytes[(at - self.start) as usize..])
    }
}

/// The digest of a file of `bytes` bytes; `None` if `pace` said to stop.
pub(super) fn digest(file: &dyn File, bytes: u64, pace: Pace<'_>) -> io::Result<Option<FileDigest>> {
    let mut hasher = blake3::Hasher::new();
    let (mut at, mut piece) = (0, Vec::new());
    while at < bytes {
        let length = PIECE_BYTES.min(bytes - at);
        if !pace(length) {
            return Ok(None);
        }
        piece.resize(length as usize, 0);
        let read = file.read_at(&mut piece, at)?;
        hasher.update(&piece[..read]);
        at += length;
    }
    Ok(Some(*hasher.finalize().as_bytes()))
}

fn digest_of_object(object: &ColdFile, bytes: u64, pace: Pace<'_>) -> Result<Option<FileDigest>, ColdError> {
    let read = digest(object, bytes, pace);
    read.map_err(|error| super::cause(&error).cloned().unwrap_or_else(|| ColdError::Unreachable(error.to_string())))
}
