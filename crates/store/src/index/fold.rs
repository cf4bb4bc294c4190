//! A new base from the old one, the deltas behind it and one checkpoint more.

use super::block::Identity;
use super::record::{Change, Head, Image, Record};
use super::scan::{Reached, Scan, ScanError};
use super::{Position, path, write_base};
use highwater_base::OwnerId;
use highwater_base::codec::DecodeError;
use highwater_disk::{Disk, OpenMode};
use std::collections::BTreeMap;
use std::path::Path;

type Changes = BTreeMap<u64, Change>;

fn take_in(changes: &mut Changes, record: Record) -> Result<(), ScanError> {
    match record {
        Record::Object { key, state, front, added } => {
            changes.entry(key).or_insert_with(Change::none).apply(state, front, &added)?;
        }
        Record::Removed { key } => changes.entry(key).or_insert_with(Change::none).remove(),
        Record::Checkpoint(_) => return Err(DecodeError::Invalid("record kind").into()),
    }
    Ok(())
}

/// Writes the base of `generation` under its temporary name and syncs it: the index at `old` with `records` and `head` as
/// one checkpoint more. Returns its bytes.
///
/// The old base is merged as it is read; memory holds the deltas, whose size is bounded, and one object.
/// # Errors
/// The disk's, or what is wrong with the old index.
pub(crate) fn fold(
    disk: &dyn Disk,
    directory: &Path,
    owner: OwnerId,
    old: &Position,
    generation: u64,
    records: Vec<Record>,
    head: &Head,
) -> Result<u64, ScanError> {
    let file = disk.open(&path(directory, old.generation), OpenMode::Read)?;
    let scan = Scan::new(&*file, Identity { owner, generation: old.generation })?.up_to(old.end)?;
    let mut changes = Changes::new();
    let base = Reached { checkpoint: old.base_checkpoint, start: 0, end: old.base_bytes, head: Head::default() };
    let reached = scan.deltas(base, &mut |record| take_in(&mut changes, record))?;
    if (reached.checkpoint, reached.end) != (old.checkpoint, old.end) {
        let what = format!("the delta of checkpoint {} is bad", reached.checkpoint + 1);
        return Err(ScanError::Damaged { position: reached.end, what });
    }
    records.into_iter().try_for_each(|record| take_in(&mut changes, record))?;
    write_base(disk, directory, owner, (generation, old.checkpoint + 1), |emit| {
        let mut merge = Merge { changes, current: None, emit };
        scan.base(&mut |record| merge.base_record(record))?;
        merge.finish()?;
        Ok(head.clone())
    })
}

/// The old base's objects, in order of their keys, with the changes laid over them.
struct Merge<'a> {
    changes: Changes,
    current: Option<(u64, Image)>,
    emit: &'a mut dyn FnMut(&Record) -> Result<(), ScanError>,
}

impl Merge<'_> {
    fn base_record(&mut self, record: Record) -> Result<(), ScanError> {
        let Record::Object { key, state, front, added } = record else {
            return Err(DecodeError::Invalid("record kind").into());
        };
        if self.current.as_ref().is_none_or(|(current, _)| *current != key) {
            self.end_object()?;
            self.changes_below(Some(key))?;
            self.current = Some((key, Image::default()));
        }
        if let Some((_, image)) = &mut self.current {
            image.apply(state, front, &added)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), ScanError> {
        self.end_object()?;
        self.changes_below(None)
    }

    /// The base has nothing more of the current object.
    fn end_object(&mut self) -> Result<(), ScanError> {
        let Some((key, image)) = self.current.take() else { return Ok(()) };
        let change = self.changes.remove(&key).unwrap_or_else(Change::none);
        self.lay_down(key, change, Some(image))
    }

    /// Objects that the base does not have, below `key`.
    fn changes_below(&mut self, key: Option<u64>) -> Result<(), ScanError> {
        while let Some(entry) = self.changes.first_entry() {
            if key.is_some_and(|key| *entry.key() >= key) {
                break;
            }
            let (key, change) = entry.remove_entry();
            self.lay_down(key, change, None)?;
        }
        Ok(())
    }

    fn lay_down(&mut self, key: u64, change: Change, base: Option<Image>) -> Result<(), ScanError> {
        match change.over(base)? {
            Some(image) => image.records(key).try_for_each(|record| (self.emit)(&record)),
            None => Ok(()),
        }
    }
}
