use crate::repository::{Repository, create, path, record};
use highwater_repo::Tree;
use highwater_repo::mst::{Step, TreeError, Walk};
use highwater_repo::write::{Change, Write, WriteError};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn an_empty_repository_has_the_root_that_everybody_knows() {
    let mut tree = Tree::new();
    assert_eq!(tree.seal().0.to_string(), "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm");
}

#[test]
fn writes_that_do_not_fit_are_refused_and_change_nothing() {
    let mut repository = Repository::new();
    repository.write(&[create(1, record(1))]).expect("a commit");
    let root = repository.tree.name();
    let delete = |number| Write { path: path(number), change: Change::Delete };
    let update = |number| Write { path: path(number), change: Change::Update(record(5)) };
    for (writes, error) in [
        (vec![create(2, record(2)), create(1, record(2))], WriteError::Exists(path(1))),
        (vec![create(2, record(2)), delete(3)], WriteError::Absent(path(3))),
        (vec![update(3)], WriteError::Absent(path(3))),
        (vec![delete(1), create(1, record(2))], WriteError::Twice(path(1))),
    ] {
        assert_eq!(repository.write(&writes).err(), Some(error));
        assert_eq!(repository.tree.name(), root);
    }
    for bad in
        ["", "com.example.kind", "com.example.kind/", "com.example.kind/a/b", "kind/a", "com.example.kind/..", "/a"]
    {
        let write = Write { path: bad.into(), change: Change::Delete };
        assert_eq!(repository.write(&[write]).err(), Some(WriteError::Key(bad.into())));
    }
}

#[test]
fn a_tree_that_keeps_only_its_top_in_memory_loads_the_rest_and_says_what_is_missing() {
    let mut repository = Repository::new();
    for batch in 0..10 {
        repository
            .write(&(batch * 100..batch * 100 + 100).map(|n| create(n, record(n))).collect::<Vec<_>>())
            .expect("a commit");
        repository.tree.keep_layers(1);
    }
    for (path, cid) in &repository.records {
        assert_eq!(repository.tree.get(path, &repository.blocks), Ok(Some(*cid)));
    }
    repository.tree.keep_layers(0);
    let root = repository.tree.name().expect("sealed");
    let missing = repository.tree.get(&path(3), &BTreeMap::new());
    assert_eq!(missing, Err(TreeError::Missing(root)));
    let mut tree = repository.tree.clone();
    assert!(tree.remove(&path(3), &BTreeMap::new()).is_err());
    assert_eq!(tree.name(), Some(root));
}

#[derive(Debug, Clone)]
enum Step2 {
    Put(u64, u64),
    Delete(u64),
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step2>>> {
    let step = prop_oneof![
        3 => (0u64..60, 0u64..5).prop_map(|(key, value)| Step2::Put(key, value)),
        2 => (0u64..60).prop_map(Step2::Delete),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..8), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_commit_can_be_undone_from_its_own_blocks_and_the_tree_depends_on_its_records_alone(batches in steps()) {
        let mut repository = Repository::new();
        for batch in batches {
            let mut writes = BTreeMap::new();
            for step in batch {
                let (number, value) = match step { Step2::Put(key, value) => (key, Some(value)), Step2::Delete(key) => (key, None) };
                let there = repository.records.contains_key(&path(number));
                let change = match (value, there) {
                    (Some(value), true) => Change::Update(record(value)),
                    (Some(value), false) => Change::Create(record(value)),
                    (None, true) => Change::Delete,
                    (None, false) => continue,
                };
                writes.insert(number, Write { path: path(number), change });
            }
            if writes.is_empty() {
                continue;
            }
            let before = repository.tree.name().expect("sealed");
            let prepared = repository.write(&writes.into_values().collect::<Vec<_>>()).expect("a commit");
            repository.read(&prepared, before);
            repository.tree.keep_layers(1);
        }
        let mut afresh = Tree::new();
        for (path, cid) in repository.records.iter().rev() {
            afresh.put(path, *cid, &BTreeMap::new()).expect("in memory");
        }
        prop_assert_eq!(Some(afresh.seal().0), repository.tree.name());
        let (mut walk, mut found) = (Walk::new(&repository.tree), Vec::new());
        while let Some(step) = walk.next(&repository.blocks).expect("whole") {
            if let Step::Record(path, cid) = step {
                found.push((path.to_string(), cid));
            }
        }
        prop_assert_eq!(found, repository.records.into_iter().collect::<Vec<_>>());
    }
}
