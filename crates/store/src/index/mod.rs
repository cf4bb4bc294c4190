//! The index file: which objects there are, their state, and where their payload lies.

mod block;
mod fold;
mod record;
mod scan;
#[cfg(test)]
mod tests;

pub use block::VERSION;
pub(crate) use fold::fold;
pub(crate) use record::{Head, Image, Record};
pub(crate) use scan::ScanError;

use block::{ALIGNMENT, BlockWriter, Identity, Kind};
use highwater_base::OwnerId;
use highwater_base::codec::DecodeError;
use highwater_disk::{Disk, File, OpenMode};
use scan::Scan;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "index-";
const TEMPORARY: &str = ".tmp";

/// The path of the index file of a generation.
pub(crate) fn path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{generation:016x}"))
}

/// The path under which that file is written.
pub(crate) fn temporary_path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{generation:016x}{TEMPORARY}"))
}

/// What a name in the folder is to the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Generation(u64),
    Temporary,
    Other,
}

/// Reads a file's name.
pub(crate) fn name(text: &str) -> Name {
    let Some(rest) = text.strip_prefix(PREFIX) else { return Name::Other };
    let (digits, temporary) = rest.strip_suffix(TEMPORARY).map_or((rest, false), |digits| (digits, true));
    let canonical = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match u64::from_str_radix(digits, 16) {
        Ok(generation) if canonical && !temporary => Name::Generation(generation),
        Ok(_) if canonical => Name::Temporary,
        _ => Name::Other,
    }
}

/// Which index file counts, and how far it is known to be whole and synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    pub generation: u64,
    /// Number of the last checkpoint in it.
    pub checkpoint: u64,
    /// Bytes of the base.
    pub base_bytes: u64,
    /// Number of the checkpoint that the base contains.
    pub base_checkpoint: u64,
    /// Position behind the last whole delta.
    pub end: u64,
    /// Whether deltas may be appended: false after a failed sync, until a new base takes the file's place.
    pub appendable: bool,
    /// Other generations whose names may still be there.
    pub stale: Vec<u64>,
}

impl Position {
    /// Bytes of deltas after one more of `added` bytes.
    pub fn delta_bytes(&self, added: u64) -> u64 {
        self.end.next_multiple_of(ALIGNMENT) + added - self.base_bytes
    }
}

/// All that an index file holds.
#[derive(Debug)]
pub(crate) struct Contents {
    pub objects: BTreeMap<u64, Image>,
    pub head: Head,
    pub position: Position,
    /// Position of the last whole checkpoint's first block; 0 if that is the base.
    pub last_start: u64,
    /// Bytes behind the last whole delta, which are no part of the index.
    pub torn_bytes: u64,
}

/// Takes one record into the images.
fn apply(objects: &mut BTreeMap<u64, Image>, record: Record) -> Result<(), ScanError> {
    match record {
        Record::Object { key, state, front, added } => objects.entry(key).or_default().apply(state, front, &added)?,
        Record::Removed { key } => drop(objects.remove(&key)),
        Record::Checkpoint(_) => return Err(DecodeError::Invalid("record kind").into()),
    }
    Ok(())
}

/// Reads a whole index file.
/// # Errors
/// As [`Scan`] says.
pub(crate) fn load(file: &dyn File, owner: OwnerId, generation: u64) -> Result<Contents, ScanError> {
    let scan = Scan::new(file, Identity { owner, generation })?;
    let mut objects = BTreeMap::new();
    let base = scan.base(&mut |record| match record {
        Record::Removed { .. } => Err(DecodeError::Invalid("record kind").into()),
        record => apply(&mut objects, record),
    })?;
    let (base_bytes, base_checkpoint) = (base.end, base.checkpoint);
    let reached = scan.deltas(base, &mut |record| apply(&mut objects, record))?;
    let position = Position {
        generation,
        checkpoint: reached.checkpoint,
        base_bytes,
        base_checkpoint,
        end: reached.end,
        appendable: true,
        stale: Vec::new(),
    };
    let torn_bytes = scan.file_bytes() - reached.end;
    Ok(Contents { objects, head: reached.head, position, last_start: reached.start, torn_bytes })
}

/// Reads an index file up to a position and verifies all of it.
/// # Errors
/// As [`Scan`] says.
pub(crate) fn check(file: &dyn File, owner: OwnerId, position: &Position) -> Result<(), ScanError> {
    let scan = Scan::new(file, Identity { owner, generation: position.generation })?.up_to(position.end)?;
    let base = scan.base(&mut |_| Ok(()))?;
    let reached = scan.deltas(base, &mut |_| Ok(()))?;
    if (reached.checkpoint, reached.end) != (position.checkpoint, position.end) {
        let what = format!("the delta of checkpoint {} is bad", reached.checkpoint + 1);
        return Err(ScanError::Damaged { position: reached.end, what });
    }
    Ok(())
}

/// Makes durable what [`load`] found, and nothing else of the file.
///
/// The process before may have died with its last delta in the page cache alone, even after a sync of it failed: the kernel
/// takes such pages for written. So the delta is written again as it is, and then synced. All before it was synced well:
/// after a failed sync nothing is appended.
/// # Errors
/// The disk's.
pub(crate) fn settle(file: &dyn File, contents: &Contents) -> io::Result<()> {
    let end = contents.position.end;
    if contents.torn_bytes > 0 {
        file.set_length(end)?;
    }
    if contents.last_start > 0 {
        let mut delta = vec![0; (end - contents.last_start) as usize];
        file.read_exact_at(&mut delta, contents.last_start)?;
        file.write_at(&delta, contents.last_start)?;
    }
    file.sync_all()
}

/// Writes and syncs an index file with nothing but a base, under its temporary name; returns its bytes.
/// # Errors
/// The disk's.
pub(crate) fn write_base(
    disk: &dyn Disk,
    directory: &Path,
    owner: OwnerId,
    (generation, checkpoint): (u64, u64),
    fill: impl FnOnce(&mut dyn FnMut(&Record) -> Result<(), ScanError>) -> Result<Head, ScanError>,
) -> Result<u64, ScanError> {
    let path = temporary_path(directory, generation);
    // Whatever an earlier attempt left: a file whose sync failed is not written again.
    match disk.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let file = disk.open(&path, OpenMode::CreateNew)?;
    let mut writer = BlockWriter::new(&*file, 0, Kind::Base, Identity { owner, generation }, checkpoint);
    let head = fill(&mut |record| Ok(writer.record(record)?))?;
    let end = writer.finish(&head)?;
    file.sync_all()?;
    Ok(end)
}

/// Where appending a delta stopped.
#[derive(Debug)]
pub(crate) enum AppendFault {
    /// The delta is certainly not there.
    Clean(io::Error),
    /// It may or may not be there.
    Unknown(io::Error),
}

/// Appends a delta behind `position` and syncs it; returns the position behind it.
///
/// A failed write is cut off again, and the cut synced. After a failed sync the file must not be written again.
/// # Errors
/// Whether the delta can be there.
pub(crate) fn append_delta(
    disk: &dyn Disk,
    directory: &Path,
    owner: OwnerId,
    position: &Position,
    records: &[Record],
    head: &Head,
) -> Result<u64, AppendFault> {
    let path = path(directory, position.generation);
    let file = disk.open(&path, OpenMode::Write).map_err(AppendFault::Clean)?;
    let identity = Identity { owner, generation: position.generation };
    let start = position.end.next_multiple_of(ALIGNMENT);
    let mut writer = BlockWriter::new(&*file, start, Kind::Delta, identity, position.checkpoint + 1);
    let written = records.iter().try_for_each(|record| writer.record(record)).and_then(|()| writer.finish(head));
    match written {
        Ok(end) => file.sync_data().map(|()| end).map_err(AppendFault::Unknown),
        Err(error) => match file.set_length(position.end).and_then(|()| file.sync_all()) {
            Ok(()) => Err(AppendFault::Clean(error)),
            Err(_) => Err(AppendFault::Unknown(error)),
        },
    }
}
