//! Reading everything that is stored, to find damage before somebody needs the bytes.
//!
//! A scrub goes through the objects in order of their keys, a slice at a time: the thread that applies commands says where
//! the next bytes lie ([`Store::plan_scrub`]), another thread reads and verifies them ([`StoreReader::scrub`]). What moves
//! in between is verified at its new place by the next scrub, and was verified when it was copied.

use crate::extent::FileExtent;
use crate::files::Files;
use crate::index::{self, Position};
use crate::reader::StoreReader;
use crate::store::Store;
use highwater_disk::OpenMode;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Extents of one slice at the most, so that making it takes the thread that applies commands some microseconds.
const SLICE_EXTENTS_MAX: usize = 1024;

/// Where a scrub goes on. The default is the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ScrubCursor {
    object: u64,
    offset: u64,
}

/// A part of what a scrub reads.
#[derive(Debug)]
pub struct ScrubSlice {
    extents: Vec<(u64, FileExtent)>,
    /// Where the next slice begins; `None` behind the last one.
    pub next: Option<ScrubCursor>,
}

impl ScrubSlice {
    /// Bytes of payload in it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.extents.iter().map(|(_, extent)| u64::from(extent.length)).sum()
    }
}

/// The index file as it is now, to be verified.
#[derive(Debug, Clone)]
pub struct IndexSlice {
    position: Position,
}

/// Bytes that cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub path: PathBuf,
    /// Position in it, in bytes.
    pub position: u64,
    /// What is wrong.
    pub what: String,
    /// Whose bytes they are, and which: the object's key and its offsets. `None` if the index is damaged.
    pub object: Option<(u64, Range<u64>)>,
}

/// Called before bytes are read, with their number: waits as long as they may not be read yet, and says whether to go on.
pub type Pace<'a> = &'a mut dyn FnMut(u64) -> bool;

impl Store {
    /// The next slice of a scrub, of at most `bytes_max` bytes of payload but one extent at the least. Touches no disk.
    #[must_use]
    pub fn plan_scrub(&self, from: ScrubCursor, bytes_max: u64) -> ScrubSlice {
        let mut slice = ScrubSlice { extents: Vec::new(), next: None };
        let mut bytes = 0;
        for (key, _) in self.residents.placed_from(from.object) {
            let offset = if key == from.object { from.offset } else { 0 };
            for extent in self.extents_from(key, offset) {
                let full = bytes + u64::from(extent.length) > bytes_max || slice.extents.len() == SLICE_EXTENTS_MAX;
                if full && !slice.extents.is_empty() {
                    slice.next = Some(ScrubCursor { object: key, offset: extent.start });
                    return slice;
                }
                bytes += u64::from(extent.length);
                slice.extents.push((key, *extent));
            }
        }
        slice
    }

    /// The index as it is now.
    #[must_use]
    pub fn plan_index_scrub(&self) -> IndexSlice {
        IndexSlice { position: self.index.clone() }
    }
}

impl StoreReader {
    /// Reads a slice from the disk, not from the page cache, and verifies every block of it; returns the bytes read.
    ///
    /// What was deleted since the slice was made is passed over.
    pub fn scrub(&self, slice: &ScrubSlice, pace: Pace<'_>, faults: &mut Vec<Fault>) -> u64 {
        check_extents(&self.files, &slice.extents, pace, faults)
    }

    /// Verifies the index file; returns its bytes. An index that was replaced since is passed over.
    pub fn scrub_index(&self, slice: &IndexSlice, pace: Pace<'_>, faults: &mut Vec<Fault>) -> u64 {
        let IndexSlice { position } = slice;
        if !pace(position.end) {
            return 0;
        }
        let path = index::path(&self.files.directory, position.generation);
        let opened = self.files.disk.open(&path, OpenMode::Read);
        let checked = opened.map_err(Into::into).and_then(|file| {
            file.forget_cached(0, position.end)?;
            index::check(&*file, self.files.owner, position)
        });
        let (at, what) = match checked {
            Ok(()) => return position.end,
            Err(index::ScanError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return 0,
            Err(index::ScanError::Damaged { position, what }) => (position, what),
            Err(other) => (0, other.to_string()),
        };
        faults.push(Fault { path, position: at, what, object: None });
        position.end
    }
}

/// Verifies extents; returns the bytes read.
pub(crate) fn check_extents(
    files: &Arc<Files>,
    extents: &[(u64, FileExtent)],
    pace: Pace<'_>,
    faults: &mut Vec<Fault>,
) -> u64 {
    let mut bytes = 0;
    for (object, extent) in extents {
        let mut report = |position: u64, range: Range<u64>, what: String| {
            let path = files.path(extent.file);
            // Blocks beside each other with one fault are one: a lost file is one line and not a thousand.
            if let Some(Fault { path: last, what: said, object: Some((of, known)), .. }) = faults.last_mut()
                && (&*last, &*said, *of, known.end) == (&path, &what, *object, range.start)
            {
                known.end = range.end;
                return;
            }
            faults.push(Fault { path, position, what, object: Some((*object, range)) });
        };
        match files.check(*object, extent, pace, &mut report) {
            Some(read) => bytes += read,
            None => return bytes,
        }
    }
    bytes
}
