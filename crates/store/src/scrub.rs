//! Reading everything that is stored, to find damage before somebody needs the bytes.
//!
//! A scrub goes through the objects in order of their keys, a slice at a time: the thread that applies commands says what it
//! knows ([`Store::plan_scrub`]), another thread finds the objects that are not in memory, reads and verifies
//! ([`StoreReader::scrub`]), and says where the next slice begins. What moves in between is verified at its new place by the
//! next scrub, and was verified when it was copied.

use crate::extent::{FileExtent, find};
use crate::files::Files;
use crate::index::{self, Base, Position};
use crate::reader::StoreReader;
use crate::store::Store;
use highwater_disk::OpenMode;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Objects in memory, and extents of them, in one slice at the most, so that making it takes the thread that applies commands
/// some microseconds.
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
    base: Arc<Base>,
    from: ScrubCursor,
    /// Where it ends at the latest; `None` if it may reach the last object.
    until: Option<ScrubCursor>,
    bytes_max: u64,
    /// Objects of which memory says the newest, in order.
    known: Vec<u64>,
    /// Their extents.
    extents: Vec<(u64, FileExtent)>,
}

/// What became of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scrubbed {
    /// Bytes of data files and of the index that were read.
    pub bytes: u64,
    /// Bytes of payload that were to be read.
    pub payload_bytes: u64,
    /// Where the next slice begins; `None` behind the last one.
    pub next: Option<ScrubCursor>,
}

/// The extents of a slice, those of memory and those of the index together.
struct Gathered {
    extents: Vec<(u64, FileExtent)>,
    payload_bytes: u64,
    index_bytes: u64,
    next: Option<ScrubCursor>,
}

impl Gathered {
    fn push(&mut self, key: u64, extent: FileExtent) {
        self.payload_bytes += u64::from(extent.length);
        self.extents.push((key, extent));
    }

    /// Whether an extent more would be too much.
    fn is_full(&self, extent: &FileExtent, bytes_max: u64) -> bool {
        !self.extents.is_empty() && self.payload_bytes + u64::from(extent.length) > bytes_max
    }
}

impl ScrubSlice {
    /// Finds the objects on disk between those of memory, up to `bytes_max` bytes of payload and as much of the index.
    fn gather(&self, path: &Path, faults: &mut Vec<Fault>) -> Gathered {
        let mut gathered = Gathered { extents: Vec::new(), payload_bytes: 0, index_bytes: 0, next: self.until };
        let mut known = self.extents.iter().copied().peekable();
        let mut objects = self.base.objects_from(self.from.object);
        let behind = |key: u64| self.until.is_some_and(|until| key >= until.object);
        while let Some(object) = objects.next() {
            gathered.index_bytes = objects.bytes_read;
            let (key, image) = match object {
                Ok((key, _)) if behind(key) => break,
                Ok((key, _)) if self.known.binary_search(&key).is_ok() => continue,
                Ok(object) => object,
                Err(error) => {
                    faults.push(index_fault(path, error));
                    continue;
                }
            };
            while let Some((key, extent)) = known.next_if(|(known, _)| *known < key) {
                gathered.push(key, extent);
            }
            let offset = if key == self.from.object { self.from.offset } else { 0 };
            for extent in &image.extents[find(&image.extents, offset, FileExtent::end)..] {
                // Each slice reads the records of a huge object anew, so that it takes more of it.
                let few = image.extents.len() > SLICE_EXTENTS_MAX && gathered.extents.len() < SLICE_EXTENTS_MAX;
                if gathered.is_full(extent, self.bytes_max) && !few {
                    gathered.next = Some(ScrubCursor { object: key, offset: extent.start });
                    return gathered;
                }
                gathered.push(key, *extent);
            }
            if gathered.payload_bytes + gathered.index_bytes > self.bytes_max
                && let Some(object) = key.checked_add(1).filter(|next| !behind(*next))
            {
                gathered.next = Some(ScrubCursor { object, offset: 0 });
                return gathered;
            }
        }
        known.for_each(|(key, extent)| gathered.push(key, extent));
        gathered
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
        let (known, until) = self.known_from(from.object);
        let until = until.map(|object| ScrubCursor { object, offset: 0 });
        let base = Arc::clone(&self.index.base);
        let mut slice = ScrubSlice { base, from, until, bytes_max, known, extents: Vec::new() };
        let mut bytes = 0;
        'slice: for key in &slice.known {
            let offset = if *key == from.object { from.offset } else { 0 };
            for extent in self.extents_from(*key, offset) {
                let full = bytes + u64::from(extent.length) > bytes_max || slice.extents.len() == SLICE_EXTENTS_MAX;
                if full && !slice.extents.is_empty() {
                    slice.until = Some(ScrubCursor { object: *key, offset: extent.start });
                    break 'slice;
                }
                bytes += u64::from(extent.length);
                slice.extents.push((*key, *extent));
            }
        }
        slice
    }

    /// The first objects from a key on of which memory says the newest, and the next one behind them.
    fn known_from(&self, key: u64) -> (Vec<u64>, Option<u64>) {
        let some = SLICE_EXTENTS_MAX + 1;
        let placed = self.residents.placed_from(key).map(|(key, _)| key).take(some);
        let bare = self.residents.bare_from(key).take(some);
        let touched = self.touched.range(key..).copied().take(some);
        let mut known: Vec<u64> = placed.chain(bare).chain(touched).collect();
        known.sort_unstable();
        known.dedup();
        let next = known.get(SLICE_EXTENTS_MAX).copied();
        known.truncate(SLICE_EXTENTS_MAX);
        (known, next)
    }

    /// The index as it is now.
    #[must_use]
    pub fn plan_index_scrub(&self) -> IndexSlice {
        IndexSlice { position: self.index.clone() }
    }
}

impl StoreReader {
    /// Reads a slice from the disk, not from the page cache, and verifies every block of it.
    ///
    /// What was deleted since the slice was made is passed over.
    pub fn scrub(&self, slice: &ScrubSlice, pace: Pace<'_>, faults: &mut Vec<Fault>) -> Scrubbed {
        let Gathered { extents, payload_bytes, index_bytes, next } = slice.gather(&slice.base.path, faults);
        let read = if pace(index_bytes) { check_extents(&self.files, &extents, pace, faults) } else { 0 };
        Scrubbed { bytes: read + index_bytes, payload_bytes, next }
    }

    /// Verifies the index file; returns its bytes. An index that was replaced since is passed over.
    pub fn scrub_index(&self, slice: &IndexSlice, pace: Pace<'_>, faults: &mut Vec<Fault>) -> u64 {
        let IndexSlice { position } = slice;
        if !pace(position.end) {
            return 0;
        }
        let path = position.base.path.clone();
        let opened = self.files.disk.open(&path, OpenMode::Read);
        let checked = opened.map_err(Into::into).and_then(|file| {
            file.forget_cached(0, position.end)?;
            index::check(&*file, position)
        });
        match checked {
            Err(index::ScanError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return 0,
            Err(error) => faults.push(index_fault(&path, error)),
            Ok(()) => {}
        }
        position.end
    }
}

fn index_fault(path: &Path, error: index::ScanError) -> Fault {
    let (position, what) = match error {
        index::ScanError::Damaged { position, what } => (position, what),
        other => (0, other.to_string()),
    };
    Fault { path: path.into(), position, what, object: None }
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
