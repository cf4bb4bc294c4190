//! The index file: which objects there are, their state, and where their payload lies.

mod base;
mod block;
mod fold;
mod load;
mod record;
mod scan;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use base::Base;
pub(crate) use block::Identity;
pub use block::VERSION;
pub(crate) use fold::fold;
pub(crate) use load::{Loaded, Opened, open};
pub(crate) use record::{Head, Image, Record};
pub(crate) use scan::ScanError;

use block::{ALIGNMENT, BlockWriter, DELTA_BODY_BYTES, Kind, Layout};
use highwater_base::OwnerId;
use highwater_disk::{Disk, File, OpenMode};
use scan::Scan;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
#[derive(Debug, Clone)]
pub(crate) struct Position {
    pub base: Arc<Base>,
    /// Number of the last checkpoint in it.
    pub checkpoint: u64,
    /// Position behind the last whole delta.
    pub end: u64,
    /// Whether deltas may be appended: false after a failed sync, until a new base takes the file's place.
    pub appendable: bool,
    /// Other generations whose names may still be there.
    pub stale: Vec<u64>,
}

impl Position {
    /// A new base's.
    pub fn of(base: Arc<Base>, stale: Vec<u64>) -> Self {
        Self { checkpoint: base.checkpoint, end: base.bytes, base, appendable: true, stale }
    }

    pub fn generation(&self) -> u64 {
        self.base.identity.generation
    }

    /// Bytes of deltas after one more of `added` bytes.
    pub fn delta_bytes(&self, added: u64) -> u64 {
        self.end.next_multiple_of(ALIGNMENT) + added - self.base.bytes
    }
}

/// Reads an index file up to a position and verifies all of it.
/// # Errors
/// As [`Scan`] says.
pub(crate) fn check(file: &dyn File, position: &Position) -> Result<(), ScanError> {
    let scan = Scan::new(file, position.base.identity)?.up_to(position.end)?;
    let base = scan.base(&mut |_| Ok(()), &mut |_, _| ())?;
    let reached = scan.deltas(base, &mut |_| Ok(()))?;
    if (reached.checkpoint, reached.end) != (position.checkpoint, position.end) {
        let what = format!("the delta of checkpoint {} is bad", reached.checkpoint + 1);
        return Err(ScanError::Damaged { position: reached.end, what });
    }
    Ok(())
}

/// Writes and syncs an index file with nothing but a base, under its temporary name.
///
/// Its blocks are about `body_bytes` large, so that one is read quickly. The handle that wrote it goes on to read it.
/// # Errors
/// The disk's.
pub(crate) fn write_base(
    disk: &dyn Disk,
    directory: &Path,
    owner: OwnerId,
    (generation, checkpoint): (u64, u64),
    body_bytes: usize,
    fill: impl FnOnce(&mut dyn FnMut(&Record) -> Result<(), ScanError>) -> Result<Head, ScanError>,
) -> Result<Base, ScanError> {
    let temporary = temporary_path(directory, generation);
    // Whatever an earlier attempt left: a file whose sync failed is not written again.
    match disk.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let file = disk.open(&temporary, OpenMode::CreateNew)?;
    let identity = Identity { owner, generation };
    let mut writer = BlockWriter::new(&*file, 0, Layout { kind: Kind::Base, identity, checkpoint, body_bytes });
    let head = fill(&mut |record| Ok(writer.record(record)?))?;
    let (bytes, table) = writer.finish(&head)?;
    file.sync_all()?;
    Ok(Base { identity, checkpoint, bytes, path: path(directory, generation), file, table })
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
    position: &Position,
    records: &[Record],
    head: &Head,
) -> Result<u64, AppendFault> {
    let file = disk.open(&path(directory, position.generation()), OpenMode::Write).map_err(AppendFault::Clean)?;
    let (identity, checkpoint) = (position.base.identity, position.checkpoint + 1);
    let start = position.end.next_multiple_of(ALIGNMENT);
    let layout = Layout { kind: Kind::Delta, identity, checkpoint, body_bytes: DELTA_BODY_BYTES };
    let mut writer = BlockWriter::new(&*file, start, layout);
    let written = records.iter().try_for_each(|record| writer.record(record)).and_then(|()| writer.finish(head));
    match written {
        Ok((end, _)) => file.sync_data().map(|()| end).map_err(AppendFault::Unknown),
        Err(error) => match file.set_length(position.end).and_then(|()| file.sync_all()) {
            Ok(()) => Err(AppendFault::Clean(error)),
            Err(_) => Err(AppendFault::Unknown(error)),
        },
    }
}
