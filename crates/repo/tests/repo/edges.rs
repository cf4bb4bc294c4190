//! Sizes and shapes at their bounds, and one beyond.

use crate::plain;
use crate::repository::{Repository, create, path, record};
use bytes::Bytes;
use highwater_repo::car::section_bytes;
use highwater_repo::mst::{Walk, layer_of};
use highwater_repo::write::{COMMIT_BLOCKS_BYTES_MAX, Change, OPERATIONS_MAX, RECORD_BYTES_MAX, Write, WriteError};

fn sized(bytes: usize) -> Bytes {
    Bytes::from(vec![0x60; bytes])
}

#[test]
fn a_commit_has_200_operations_and_not_201() {
    let mut repository = Repository::new();
    let many = |count: usize| (0..count as u64).map(|n| create(n, record(n))).collect::<Vec<_>>();
    assert_eq!(repository.write(&many(OPERATIONS_MAX + 1)).err(), Some(WriteError::Count(201)));
    assert_eq!(repository.write(&[]).err(), Some(WriteError::Count(0)));
    let before = repository.tree.name().expect("sealed");
    let prepared = repository.write(&many(OPERATIONS_MAX)).expect("a commit");
    repository.read(&prepared, before);
}

#[test]
fn a_record_has_1_000_000_bytes_and_not_one_more() {
    let mut repository = Repository::new();
    let large = |bytes| [create(1_000, sized(bytes))];
    let error = WriteError::RecordTooLarge { path: path(1_000), bytes: 1_000_001 };
    assert_eq!(repository.write(&large(RECORD_BYTES_MAX + 1)).err(), Some(error));
    assert_eq!(repository.rev, None, "nothing was signed");
    for bytes in [RECORD_BYTES_MAX - 1, RECORD_BYTES_MAX] {
        let [Write { path, .. }] = large(bytes);
        let change =
            if bytes == RECORD_BYTES_MAX { Change::Update(sized(bytes)) } else { Change::Create(sized(bytes)) };
        repository.write(&[Write { path, change }]).expect("a commit");
    }
}

/// What readers are sent is counted with the nodes that undoing needs, and with room for the largest commit block.
#[test]
fn blocks_have_2_000_000_bytes_and_not_one_more() {
    let mut repository = Repository::new();
    for batch in 0..5 {
        repository
            .write(&(batch * 100..batch * 100 + 100).map(|n| create(n, record(n))).collect::<Vec<_>>())
            .expect("a commit");
    }
    let two = |second| [create(2_000, Bytes::from(vec![0x61; RECORD_BYTES_MAX])), create(2_001, sized(second))];
    let counted = |repository: &mut Repository, second| match repository.write(&two(second)) {
        Err(WriteError::CommitTooLarge { bytes }) => bytes,
        other => panic!("{other:?}"),
    };
    let fits = RECORD_BYTES_MAX - (counted(&mut repository, RECORD_BYTES_MAX) - COMMIT_BLOCKS_BYTES_MAX);
    assert!(
        section_bytes(RECORD_BYTES_MAX) + section_bytes(fits) < COMMIT_BLOCKS_BYTES_MAX - 3_000,
        "nodes are counted"
    );
    let root = repository.tree.name();
    assert_eq!(counted(&mut repository, fits + 1), 2_000_001);
    assert_eq!(repository.tree.name(), root);
    let prepared = repository.write(&two(fits)).expect("a commit");
    repository.read(&prepared, root.expect("sealed"));
    let bytes = prepared.archive.len();
    assert!((1_997_600..=COMMIT_BLOCKS_BYTES_MAX).contains(&bytes), "{bytes}");
}

#[test]
fn a_record_key_has_512_bytes_and_not_513() {
    let mut repository = Repository::new();
    let kind = format!("com.{}.{}.{}.{}.kind", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(63));
    for (bytes, taken) in [(1, true), (512, true), (513, false), (0, false)] {
        let path = format!("{kind}/{}", "k".repeat(bytes));
        let written = repository.write(&[Write { path: path.clone(), change: Change::Create(record(1)) }]);
        assert_eq!(written.as_ref().err(), (!taken).then_some(&WriteError::Key(path)), "{bytes}");
    }
}

/// The first key of a layer from a number on.
fn key_at(layer: u32, from: u64) -> String {
    let key = |n| format!("com.example.kind/{n:07}");
    (from..).map(key).find(|key| layer_of(key) == layer).expect("there is one")
}

/// A key of a high layer among low ones: whatever lies between is a chain of nodes without keys.
#[test]
fn a_deep_tree_keeps_its_empty_nodes_and_loses_them_with_the_key_that_needed_them() {
    let high = key_at(6, 1_000);
    let number: u64 = high[high.len() - 7..].parse().expect("a number");
    let (before, behind) = (key_at(0, 0), key_at(0, number));
    let mut repository = Repository::new();
    let mut step = |path: &String, change: Change, nodes: usize| {
        let root = repository.tree.name().expect("sealed");
        let prepared = repository.write(&[Write { path: path.clone(), change }]).expect("a commit");
        repository.read(&prepared, root);
        repository.tree.keep_layers(0);
        assert_eq!(repository.tree.name(), Some(plain::root(&repository.records)));
        let mut walk = Walk::new(&repository.tree);
        let steps = std::iter::from_fn(|| walk.next(&repository.blocks).expect("whole")).count();
        assert_eq!(steps - repository.records.len(), nodes, "nodes with {:?}", repository.records.keys());
    };
    step(&before, Change::Create(record(1)), 1);
    step(&high, Change::Create(record(2)), 7);
    step(&behind, Change::Create(record(3)), 13);
    step(&before, Change::Delete, 7);
    step(&before, Change::Create(record(1)), 13);
    step(&high, Change::Delete, 1);
    step(&high, Change::Create(record(2)), 13);
    step(&behind, Change::Delete, 7);
    step(&before, Change::Delete, 1);
    step(&high, Change::Delete, 1);
}
