//! A base and changes, merged in order of the keys: what an open reads, and a new base from an old one.

use super::base::Base;
use super::record::{Change, Head, Image, Record};
use super::scan::{Reached, Scan, ScanError};
use super::table::{Table, TableBuilder};
use super::{Position, write_base};
use highwater_base::OwnerId;
use highwater_base::codec::DecodeError;
use highwater_disk::Disk;
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) type Changes = BTreeMap<u64, Change>;

pub(super) fn take_in(changes: &mut Changes, record: Record) -> Result<(), ScanError> {
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
/// one checkpoint more.
///
/// The old base is merged as it is read; memory holds the deltas, whose size is bounded, and one object.
/// # Errors
/// The disk's, or what is wrong with the old index.
pub(crate) fn fold(
    disk: &dyn Disk,
    directory: &Path,
    owner: OwnerId,
    old: &Position,
    (generation, body_bytes): (u64, usize),
    records: Vec<Record>,
    head: &Head,
) -> Result<Base, ScanError> {
    let scan = Scan::new(&*old.base.file, old.base.identity)?.up_to(old.end)?;
    let mut changes = Changes::new();
    let (checkpoint, end) = (old.base.checkpoint, old.base.bytes);
    let base = Reached { checkpoint, start: 0, end, head: Head::default() };
    let reached = scan.deltas(base, &mut |record| take_in(&mut changes, record))?;
    if (reached.checkpoint, reached.end) != (old.checkpoint, old.end) {
        let what = format!("the delta of checkpoint {} is bad", reached.checkpoint + 1);
        return Err(ScanError::Damaged { position: reached.end, what });
    }
    records.into_iter().try_for_each(|record| take_in(&mut changes, record))?;
    write_base(disk, directory, owner, (generation, old.checkpoint + 1), body_bytes, |emit| {
        merge(&scan, changes, &mut |key, image, _| image.records(key).try_for_each(|record| emit(&record)))?;
        Ok(head.clone())
    })
}

/// Takes an object: its key, all that is known of it, and whether the base says the same.
pub(crate) type Each<'a> = &'a mut dyn FnMut(u64, Image, bool) -> Result<(), ScanError>;

/// Reads the base, lays the changes over it, and hands over every object in order of the keys. Returns where the base's
/// objects lie.
/// # Errors
/// Damage, contradictions, the disk's error, or what `each` returns.
pub(crate) fn merge(scan: &Scan<'_>, changes: Changes, each: Each<'_>) -> Result<Table, ScanError> {
    let mut merge = Merge { changes, current: None, emit: each };
    let table = std::cell::RefCell::new(TableBuilder::default());
    scan.base(
        &mut |record| {
            record.key().into_iter().for_each(|key| table.borrow_mut().key(key));
            merge.base_record(record)
        },
        &mut |position, length| table.borrow_mut().block(position, length),
    )?;
    merge.finish()?;
    Ok(table.into_inner().finish())
}

struct Merge<'a> {
    changes: Changes,
    current: Option<(u64, Image)>,
    emit: Each<'a>,
}

impl Merge<'_> {
    fn base_record(&mut self, record: Record) -> Result<(), ScanError> {
        let Record::Object { key, state, front, added } = record else {
            return Err(DecodeError::Invalid("record kind").into());
        };
        if self.current.as_ref().is_none_or(|(current, _)| *current != key) {
            // A search relies on both.
            if self.current.as_ref().is_some_and(|(current, _)| *current > key) || state.is_none() {
                return Err(DecodeError::Invalid("objects in order").into());
            }
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
        match self.changes.remove(&key) {
            Some(change) => self.lay_down(key, change, Some(image)),
            None => (self.emit)(key, image, true),
        }
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
            Some(image) => (self.emit)(key, image, false),
            None => Ok(()),
        }
    }
}
