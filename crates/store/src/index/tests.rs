//! Index files whose checkpoints take several blocks.

use super::*;
use crate::extent::FileExtent;
use bytes::Bytes;
use highwater_base::GroupId;
use highwater_disk::SimDisk;
use highwater_disk::sim::{ENOSPC, Operation};
use std::collections::BTreeMap;

fn owner() -> OwnerId {
    OwnerId::group(GroupId(0))
}

fn directory() -> &'static Path {
    Path::new("/s")
}

fn head(applied: u64) -> Head {
    Head { applied, meta: Bytes::from_static(b"meta"), file_next: 7 }
}

/// States of 300 kB: four of them make a block.
fn record(key: u64, fill: u8) -> Record {
    let extent = FileExtent { start: key, length: 10, file: 1, position: 4096 };
    Record::Object { key, state: Some(vec![fill; 300_000].into()), front: 0, added: vec![extent] }
}

fn new_index(disk: &SimDisk, records: &[Record]) -> Position {
    disk.create_directory(directory()).expect("create");
    let base = write_base(disk, directory(), owner(), (1, 0), BLOCK_BYTES, |emit| {
        records.iter().try_for_each(emit)?;
        Ok(head(1))
    });
    disk.rename(&temporary_path(directory(), 1), &path(directory(), 1)).expect("rename");
    Position::of(Arc::new(base.expect("written")), Vec::new())
}

const BLOCK_BYTES: usize = 1 << 20;

/// What an index file holds.
struct Contents {
    head: Head,
    loaded: Loaded,
    objects: BTreeMap<u64, Image>,
}

fn open(disk: &SimDisk, generation: u64) -> Contents {
    let path = path(directory(), generation);
    let file = disk.open(&path, OpenMode::Write).expect("open");
    let opened = super::open(file, path, owner(), generation).expect("sound");
    let (head, mut objects) = (opened.head.clone(), BTreeMap::new());
    let loaded = opened.read(&mut |key, image, _| {
        objects.insert(key, image);
        Ok(())
    });
    Contents { head, loaded: loaded.expect("sound"), objects }
}

/// The same index on another disk.
fn position_on(disk: &SimDisk, position: &Position) -> Position {
    let file = disk.open(&position.base.path, OpenMode::Write).expect("open");
    let Base { identity, checkpoint, bytes, .. } = *position.base;
    let base = Base { identity, checkpoint, bytes, path: position.base.path.clone(), file, table: Default::default() };
    Position { base: Arc::new(base), ..position.clone() }
}

#[test]
fn a_checkpoint_of_several_blocks_is_there_whole_or_not_at_all() {
    let disk = SimDisk::new(1);
    let base: Vec<_> = (0..10).map(|key| record(key, 1)).collect();
    let position = new_index(&disk, &base);
    let delta: Vec<_> = (5..15).map(|key| record(key, 2)).chain([Record::Removed { key: 0 }]).collect();
    let end = append_delta(&disk, directory(), &position, &delta, &head(2)).expect("written");
    let whole = open(&disk, 1);
    assert_eq!((whole.head.applied, whole.loaded.position.end, whole.loaded.torn_bytes), (2, end, 0));
    assert_eq!(whole.objects.len(), 14);
    let start = position.end.next_multiple_of(ALIGNMENT);
    for cut in (start..end).step_by(100_003).chain([start, start + 1, end - 1]) {
        let disk = disk.fork(cut);
        disk.open(&path(directory(), 1), OpenMode::Write).and_then(|file| file.set_length(cut)).expect("cut");
        let torn = open(&disk, 1);
        assert_eq!((torn.head.applied, torn.loaded.position.end), (1, position.end), "cut at {cut}");
        assert!(torn.objects.values().all(|image| image.state[0] == 1), "nothing of the torn delta");
        torn.loaded.settle().expect("cut");
        assert_eq!(torn.loaded.position.base.file.length().expect("length"), position.end);
    }
}

#[test]
fn a_fold_holds_what_base_and_deltas_held_in_order_of_the_keys() {
    let disk = SimDisk::new(1);
    let base: Vec<_> = (10..14).map(|key| record(key, 1)).collect();
    let mut position = new_index(&disk, &base);
    let delta = [record(3, 2), record(12, 2), Record::Removed { key: 13 }, record(99, 2)];
    position.end = append_delta(&disk, directory(), &position, &delta, &head(2)).expect("written");
    position.checkpoint = 1;
    let last = vec![Record::Removed { key: 3 }, record(13, 3), record(50, 3)];
    let base = fold(&disk, directory(), owner(), &position, (2, BLOCK_BYTES), last, &head(3)).expect("folded");
    disk.rename(&temporary_path(directory(), 2), &path(directory(), 2)).expect("rename");
    let folded = open(&disk, 2);
    let position = &folded.loaded.position;
    assert_eq!((&folded.head, position.checkpoint, position.end), (&head(3), 2, base.bytes));
    assert_eq!(
        position.base.table, base.table,
        "what is learnt of a base is the same when it is written and when it is read"
    );
    let found: Vec<_> = folded.objects.iter().map(|(key, image)| (*key, image.state[0])).collect();
    assert_eq!(found, [(10, 1), (11, 1), (12, 2), (13, 3), (50, 3), (99, 2)]);
}

#[test]
fn a_fold_of_a_damaged_index_fails_and_names_the_place() {
    let disk = SimDisk::new(1);
    let mut position = new_index(&disk, &[record(1, 1)]);
    let start = position.end.next_multiple_of(ALIGNMENT);
    position.end = append_delta(&disk, directory(), &position, &[record(2, 2)], &head(2)).expect("written");
    position.checkpoint = 1;
    for offset in [100, start + 100] {
        let disk = disk.fork(offset);
        disk.flip_bit(&path(directory(), 1), offset).expect("a byte");
        let position = position_on(&disk, &position);
        let folded = fold(&disk, directory(), owner(), &position, (2, BLOCK_BYTES), Vec::new(), &head(3));
        let error = folded.expect_err("a bad block");
        assert!(matches!(error, ScanError::Damaged { .. }), "{error}");
    }
}

#[test]
fn only_names_of_index_files_are_taken_for_them() {
    assert_eq!(name("index-00000000000000ff"), Name::Generation(255));
    assert_eq!(name("index-00000000000000ff.tmp"), Name::Temporary);
    for other in ["index-ff", "index-00000000000000FF", "index-00000000000000ff.bak", "data-00000001"] {
        assert_eq!(name(other), Name::Other, "{other}");
    }
}

/// A write that failed may have written everything; the delta that it left would name payload that is taken away.
#[test]
fn a_delta_whose_write_failed_is_cut_off_durably_before_it_is_called_gone() {
    for seed in 0..64 {
        let disk = SimDisk::new(seed);
        disk.create_directory(directory()).expect("create");
        disk.sync_directory(Path::new("/")).expect("sync");
        let position = new_index(&disk, &[record(1, 1)]);
        disk.sync_directory(directory()).expect("sync");
        disk.fail(Operation::Write, "index-", 0, 1, ENOSPC);
        let result = append_delta(&disk, directory(), &position, &[Record::Removed { key: 1 }], &head(2));
        assert!(matches!(result, Err(AppendFault::Clean(_))), "{result:?}");
        disk.power_loss();
        let Contents { loaded, .. } = open(&disk, 1);
        assert_eq!((loaded.position.checkpoint, loaded.torn_bytes), (0, 0));
        assert_eq!(loaded.position.base.file.length().expect("length"), position.end);
    }
}
