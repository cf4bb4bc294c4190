//! What a server reads of a tree: records in order, collections, exports, proofs.

use crate::repository::{Repository, create, record};
use bytes::Bytes;
use highwater_repo::car::Reader;
use highwater_repo::export::{self, Export};
use highwater_repo::mst::{Blocks, ENTRIES_MAX, Order, Step, TreeError, Walk, layer_of};
use highwater_repo::write::{Change, Write, WriteError};
use highwater_repo::{Cid, Codec, Commit, Tree};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Blocks that count who is asked for.
struct Counted<'a> {
    blocks: &'a BTreeMap<Cid, Bytes>,
    asked: RefCell<Vec<Cid>>,
}

impl<'a> Counted<'a> {
    fn new(blocks: &'a BTreeMap<Cid, Bytes>) -> Self {
        Self { blocks, asked: RefCell::default() }
    }
}

impl Blocks for Counted<'_> {
    fn block(&self, cid: &Cid) -> Option<Bytes> {
        self.asked.borrow_mut().push(*cid);
        self.blocks.block(cid)
    }
}

/// Blocks of which each is missing the first time that it is asked for.
struct Late<'a> {
    blocks: &'a BTreeMap<Cid, Bytes>,
    asked: RefCell<BTreeSet<Cid>>,
}

impl Blocks for Late<'_> {
    fn block(&self, cid: &Cid) -> Option<Bytes> {
        let first = self.asked.borrow_mut().insert(*cid);
        if first { None } else { self.blocks.block(cid) }
    }
}

fn tree_of(keys: impl Iterator<Item = String>) -> (Tree, BTreeMap<Cid, Bytes>, BTreeMap<String, Cid>) {
    let (mut tree, mut records, mut blocks) = (Tree::new(), BTreeMap::new(), BTreeMap::new());
    for (number, key) in keys.enumerate() {
        let record = record(number as u64);
        let cid = Cid::of(Codec::DagCbor, &record);
        tree.put(&key, cid, &BTreeMap::new()).expect("in memory");
        records.insert(key, cid);
        blocks.insert(cid, record);
    }
    blocks.extend(tree.seal().1);
    tree.keep_layers(0);
    (tree, blocks, records)
}

/// Keys of several collections, some of whose names begin alike.
fn key(number: u64) -> String {
    let collection = ["com.example.a", "com.example.ab", "com.example.a-b.c", "com.example.b"][number as usize % 4];
    format!("{collection}/{:05}", number * 7_919 % 10_000)
}

fn bounds() -> impl Strategy<Value = Bound<String>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0u64..400).prop_map(|n| Bound::Included(key(n))),
        (0u64..400).prop_map(|n| Bound::Excluded(key(n))),
        "com.example.[ab/]{0,3}".prop_map(Bound::Included),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn records_between_two_bounds_come_in_order(
        numbers in prop::collection::btree_set(0u64..400, 0..200), low in bounds(), high in bounds(), descending: bool
    ) {
        let (tree, blocks, records) = tree_of(numbers.into_iter().map(key));
        let order = if descending { Order::Descending } else { Order::Ascending };
        let found = tree
            .records(low.as_ref().map(String::as_str), high.as_ref().map(String::as_str), order)
            .page(usize::MAX, &blocks)
            .expect("whole");
        let inside = |key: &String| {
            let above = match &low { Bound::Included(low) => key >= low, Bound::Excluded(low) => key > low, Bound::Unbounded => true };
            let below = match &high { Bound::Included(high) => key <= high, Bound::Excluded(high) => key < high, Bound::Unbounded => true };
            above && below
        };
        let mut expected: Vec<_> = records.into_iter().filter(|(key, _)| inside(key)).collect();
        if descending {
            expected.reverse();
        }
        let found: Vec<_> = found.into_iter().map(|(key, cid)| (key.to_string(), cid)).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_collection_is_listed_page_by_page_from_both_ends_and_costs_its_own_nodes() {
    let (tree, blocks, records) = tree_of((0..8_000).map(key));
    let of = |collection: &str| {
        let prefix = format!("{collection}/");
        records.keys().filter_map(|key| key.strip_prefix(&prefix)).map(str::to_owned).collect::<Vec<_>>()
    };
    for order in [Order::Ascending, Order::Descending] {
        let (mut found, mut beyond) = (Vec::new(), None::<String>);
        loop {
            let counted = Counted::new(&blocks);
            let page = tree.records_of("com.example.a", beyond.as_deref(), order).page(50, &counted).expect("whole");
            // Nodes hold about four keys each: a page has a dozen, and two ways down.
            let asked = counted.asked.borrow().len();
            assert!(asked <= 60, "{asked} nodes were loaded for one page");
            let Some((last, _)) = page.last() else { break };
            beyond = Some(last["com.example.a/".len()..].to_owned());
            found.extend(page.iter().map(|(key, _)| key["com.example.a/".len()..].to_owned()));
        }
        let mut expected = of("com.example.a");
        if order == Order::Descending {
            expected.reverse();
        }
        assert_eq!(found, expected);
    }
    let counted = Counted::new(&blocks);
    let collections = tree.collections(100, &counted).expect("whole");
    // In the order of their keys, in which a hyphen stands before a slash.
    assert_eq!(collections, ["com.example.a-b.c", "com.example.a", "com.example.ab", "com.example.b"]);
    assert!(counted.asked.borrow().len() <= 120, "collections are skipped, not read: {}", counted.asked.borrow().len());
    assert_eq!(tree.collections(2, &blocks).expect("whole"), collections[..2]);
    assert_eq!(tree.records_of("com.example", None, Order::Ascending).page(1, &blocks), Ok(Vec::new()));
}

#[test]
fn an_empty_tree_has_nothing_to_list() {
    let (tree, blocks, _) = tree_of(std::iter::empty());
    assert_eq!(tree.collections(100, &blocks), Ok(Vec::new()));
    assert_eq!(tree.records(Bound::Unbounded, Bound::Unbounded, Order::Descending).next(&blocks), Ok(None));
    assert_eq!(tree.prove("com.example.a/1", &blocks).map(|proof| (proof.value, proof.nodes.len())), Ok((None, 1)));
}

fn repository(count: u64) -> Repository {
    let mut repository = Repository::new();
    for batch in 0..count / 100 {
        let writes: Vec<_> = (batch * 100..batch * 100 + 100).map(|n| create(n, record(n % 1_000))).collect();
        repository.write(&writes).expect("a commit");
        repository.tree.keep_layers(1);
    }
    repository
}

fn read(archive: &[u8]) -> Vec<(Cid, Bytes)> {
    let (mut reader, mut found) = (Reader::new(), Vec::new());
    reader.push(archive);
    while let Some(block) = reader.block().expect("an archive") {
        found.push(block);
    }
    assert_eq!(reader.finish(), Ok(vec![found[0].0]));
    found
}

#[test]
fn an_export_goes_before_what_lies_below_holds_a_path_and_survives_blocks_that_come_late() {
    let repository = repository(2_000);
    let (cid, block) = repository.commit.clone().expect("a commit");
    let mut export = Export::new(&cid, &block, &repository.tree);
    let (mut whole, mut pieces) = (Vec::new(), 0);
    loop {
        let mut piece = Vec::new();
        let more = export.fill(&mut piece, 1_000, &repository.blocks).expect("whole");
        whole.extend(piece);
        pieces += 1;
        if !more {
            break;
        }
    }
    assert!(pieces > 50, "{pieces} pieces");

    let late = Late { blocks: &repository.blocks, asked: RefCell::default() };
    let (mut export, mut again, mut failures) = (Export::new(&cid, &block, &repository.tree), Vec::new(), 0);
    loop {
        match export.fill(&mut again, usize::MAX, &late) {
            Ok(more) => break assert!(!more),
            Err(TreeError::Missing(_)) => failures += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(failures > 1_000 && again == whole, "{failures} failures");

    // Whoever reads it knows the name of every block before the block comes.
    let blocks = read(&whole);
    let commit = Commit::decode(blocks[0].1.clone()).expect("a commit");
    let read: BTreeMap<_, _> = blocks.iter().cloned().collect();
    let mut walk = Walk::new(&Tree::open(commit.data, &read).expect("a root"));
    let (mut order, mut pending_max) = (vec![cid], 0);
    while let Some(step) = walk.next(&read).expect("whole") {
        pending_max = pending_max.max(walk.pending());
        order.push(match step {
            Step::Node(cid, _) | Step::Record(_, cid) => cid,
        });
    }
    assert_eq!(order, blocks.iter().map(|(cid, _)| *cid).collect::<Vec<_>>());
    assert!(pending_max < 150, "{pending_max} things wait at once");

    let mut reachable = export::reachable(&repository.tree, &repository.blocks).expect("whole");
    reachable.insert(cid, block.len());
    assert_eq!(reachable, read.iter().map(|(cid, block)| (*cid, block.len())).collect());
}

#[test]
fn a_record_and_the_absence_of_one_are_proven_by_the_blocks_on_the_way() {
    let repository = repository(1_000);
    let (cid, block) = repository.commit.clone().expect("a commit");
    let absent = (0..200).map(|n| format!("com.example.kind/absent{n}"));
    let present = repository.records.keys().step_by(7).cloned();
    for key in present.chain(absent) {
        let archive = export::record(&cid, &block, &repository.tree, &key, &repository.blocks).expect("whole");
        let blocks = read(&archive);
        assert!(blocks.len() < 20, "a path, not a tree");
        let commit = Commit::decode(blocks[0].1.clone()).expect("a commit");
        let known: BTreeMap<_, _> = blocks.iter().cloned().collect();
        let there = Tree::open(commit.data, &known).and_then(|tree| tree.get(&key, &known));
        assert_eq!(there, Ok(repository.records.get(&key).copied()), "{key}");
        if let Some(cid) = repository.records.get(&key) {
            assert_eq!(known[cid], repository.blocks[cid]);
        }
    }
}

#[test]
fn keys_that_were_chosen_to_crowd_one_node_are_refused_before_a_commit_exists() {
    let mut repository = Repository::new();
    let mut keys = (0u64..).map(|n| format!("com.example.kind/{n:08}")).filter(|key| layer_of(key) == 0);
    let mut writes = |count: usize| -> Vec<Write> {
        keys.by_ref().take(count).map(|path| Write { path, change: Change::Create(record(1)) }).collect()
    };
    for count in [200, 200, 200, 200, 200, ENTRIES_MAX - 1_000] {
        repository.write(&writes(count)).expect("a commit");
        repository.tree.keep_layers(0);
    }
    assert_eq!(repository.write(&writes(1)).err(), Some(WriteError::Crowded));
    let root = repository.tree.name().expect("sealed");
    assert!(Tree::open(root, &repository.blocks).is_ok(), "what was written can be read");
    // A key of a higher layer divides the node, so that there is room again.
    let above =
        (0u64..).map(|n| format!("com.example.kind/{n:08}")).find(|key| layer_of(key) == 1).expect("one in four");
    repository.write(&[Write { path: above, change: Change::Create(record(1)) }]).expect("a commit");
}
