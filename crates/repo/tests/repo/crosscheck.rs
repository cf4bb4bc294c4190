//! Against an implementation that others wrote: `atrium-repo`.

use crate::plain;
use crate::repository::{Repository, record};
use atrium_repo::Repository as Theirs;
use atrium_repo::blockstore::{CarStore, MemoryBlockStore};
use atrium_repo::mst::Tree as TheirTree;
use highwater_repo::export::{self, Export};
use highwater_repo::mst::layer_of;
use highwater_repo::write::{Change, Write};
use highwater_repo::{Cid, Codec, Tree};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Cursor;
use std::pin::pin;
use std::str::FromStr;
use std::task::{Context, Poll, Waker};

/// Their calls wait for nothing when everything is in memory.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("memory does not wait"),
    }
}

/// A name as they hold it, and back.
fn renamed<T: FromStr>(cid: impl Display) -> T {
    cid.to_string().parse().ok().expect("a CID")
}

/// Keys of all layers up to 5 in one small set, so that trees are deep and have empty nodes between.
fn keys() -> Vec<String> {
    let mut rest = [40usize, 20, 10, 6, 3, 2];
    let take = |key: &String| {
        let rest = rest.get_mut(layer_of(key) as usize)?;
        *rest = rest.checked_sub(1)?;
        Some(())
    };
    let mut take = take;
    let mut keys: Vec<_> = (0u64..12_000).map(|n| format!("com.example.kind/{n:07}")).collect();
    keys.retain(|key| take(key).is_some());
    keys
}

fn value(number: u64) -> Cid {
    Cid::of(Codec::DagCbor, &record(number))
}

#[derive(Debug, Clone)]
struct Touch {
    key: prop::sample::Index,
    value: u64,
    delete: bool,
}

fn touches() -> impl Strategy<Value = Vec<Touch>> {
    let touch = (any::<prop::sample::Index>(), 0u64..4, prop::bool::weighted(0.4));
    prop::collection::vec(touch.prop_map(|(key, value, delete)| Touch { key, value, delete }), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_tree_is_what_the_specification_says_after_every_operation(touches in touches()) {
        let (keys, none) = (keys(), BTreeMap::new());
        let (mut ours, mut there) = (Tree::new(), BTreeMap::new());
        for touch in touches {
            let key = touch.key.get(&keys).as_str();
            let value = value(touch.value);
            if touch.delete {
                prop_assert_eq!(ours.remove(key, &none), Ok(there.remove(key)));
            } else {
                prop_assert_eq!(ours.put(key, value, &none), Ok(there.insert(key.to_owned(), value)));
            }
            prop_assert_eq!(ours.seal().0, plain::root(&there));
        }
    }

    /// They get the keys in order: one that belongs far above the others, and comes late, they put elsewhere (version 0.2.0),
    /// where the plain tree of the test above agrees with ours.
    #[test]
    fn the_other_implementation_finds_the_same_root_in_any_order(
        order in Just((0..81usize).collect::<Vec<_>>()).prop_shuffle(), count in 0..81usize
    ) {
        let keys = keys();
        let mut sorted = order[..count].to_vec();
        sorted.sort_unstable();
        let mut theirs = now(TheirTree::create(MemoryBlockStore::new())).expect("an empty tree");
        let mut ours = Tree::new();
        for at in &order[..count] {
            ours.put(&keys[*at], value(*at as u64), &BTreeMap::new()).expect("in memory");
        }
        for at in sorted {
            now(theirs.add(&keys[at], renamed(value(at as u64)))).expect("it fits");
        }
        prop_assert_eq!(ours.seal().0.to_string(), theirs.root().to_string());
    }
}

/// A repository over all those keys, with some of them deleted again.
fn repository() -> Repository {
    let mut repository = Repository::new();
    let writes: Vec<_> = (0..).zip(keys()).collect();
    for some in writes.chunks(7) {
        let create = |(n, path): &(u64, String)| Write { path: path.clone(), change: Change::Create(record(*n)) };
        let before = repository.tree.name().expect("sealed");
        let prepared = repository.write(&some.iter().map(create).collect::<Vec<_>>()).expect("a commit");
        repository.read(&prepared, before);
    }
    for some in writes.chunks(4).step_by(3) {
        let delete = |(_, path): &(u64, String)| Write { path: path.clone(), change: Change::Delete };
        let before = repository.tree.name().expect("sealed");
        let prepared = repository.write(&some.iter().map(delete).collect::<Vec<_>>()).expect("a commit");
        repository.read(&prepared, before);
    }
    repository
}

#[test]
fn the_other_implementation_reads_an_export_and_finds_every_record_in_it() {
    let repository = repository();
    let (cid, block) = repository.commit.clone().expect("a commit");
    let mut archive = Vec::new();
    let more = Export::new(&cid, &block, &repository.tree).fill(&mut archive, usize::MAX, &repository.blocks);
    assert_eq!(more, Ok(false));
    let store = now(CarStore::open(Cursor::new(archive))).expect("an archive");
    assert_eq!(store.roots().map(|root| root.to_string()).collect::<Vec<_>>(), [cid.to_string()]);
    let mut theirs = now(Theirs::open(store, renamed(cid))).expect("a repository");
    assert_eq!(theirs.commit().data().to_string(), repository.tree.name().expect("sealed").to_string());
    for key in keys() {
        let found = now(theirs.tree().get(&key)).expect("whole");
        assert_eq!(found.map(renamed), repository.records.get(&key).copied(), "{key}");
    }
    let blocks: std::collections::BTreeSet<String> =
        now(theirs.export()).expect("whole").map(|cid| cid.to_string()).collect();
    let reachable = export::reachable(&repository.tree, &repository.blocks).expect("whole");
    let ours = reachable.keys().chain([&cid]).map(Cid::to_string).collect();
    assert_eq!(blocks, ours);
}

#[test]
fn the_other_implementation_finds_a_record_in_its_proof_and_misses_one_that_is_absent() {
    let repository = repository();
    let (cid, block) = repository.commit.clone().expect("a commit");
    for key in keys() {
        let archive = export::record(&cid, &block, &repository.tree, &key, &repository.blocks).expect("whole");
        let store = now(CarStore::open(Cursor::new(archive))).expect("an archive");
        let mut theirs = now(Theirs::open(store, renamed(cid))).expect("a repository");
        let found = now(theirs.tree().get(&key)).expect("the proof suffices");
        assert_eq!(found.map(renamed), repository.records.get(&key).copied(), "{key}");
    }
}
