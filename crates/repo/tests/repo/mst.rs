use crate::vectors::{cases, lines};
use bytes::Bytes;
use highwater_repo::mst::{Step, Walk, invert, layer_of};
use highwater_repo::write::Operation;
use highwater_repo::{Cid, Tree};
use std::collections::BTreeMap;

/// Every order of some things.
pub fn orders<T: Clone>(things: &[T]) -> Vec<Vec<T>> {
    if things.is_empty() {
        return vec![Vec::new()];
    }
    let first = |at: usize| {
        let mut rest = things.to_vec();
        let one = rest.remove(at);
        orders(&rest).into_iter().map(move |order| [vec![one.clone()], order].concat())
    };
    (0..things.len()).flat_map(first).collect()
}

fn texts(list: &serde_json::Value) -> Vec<String> {
    list.as_array().expect("a list").iter().map(|text| text.as_str().expect("text").to_owned()).collect()
}

#[test]
fn keys_stand_at_the_layers_that_the_vectors_say() {
    for case in cases("mst/key_heights.json", 9) {
        let key = case["key"].as_str().expect("text");
        assert_eq!(u64::from(layer_of(key)), case["height"].as_u64().expect("a number"), "{key}");
    }
}

#[test]
fn keys_of_the_vectors_make_one_tree_in_any_order_and_share_what_they_share() {
    let keys = lines("mst/example_keys.txt", 156);
    let value = "bafyreie5cvv4h45feadgeuwhbcutmh6t2ceseocckahdoe6uat64zmz454".parse().expect("a CID");
    let none = BTreeMap::new();
    let build = |keys: &mut dyn Iterator<Item = &String>| {
        let mut tree = Tree::new();
        for key in keys {
            tree.put(key, value, &none).expect("in memory");
        }
        tree.seal()
    };
    let (root, blocks) = build(&mut keys.iter());
    assert_eq!(build(&mut keys.iter().rev()).0, root);
    assert_eq!(build(&mut keys.iter().skip(70).chain(keys.iter().take(70))).0, root);
    // What is read back from the blocks is the tree: decoding checks layers, order and prefixes.
    let blocks: BTreeMap<Cid, Bytes> = blocks.into_iter().collect();
    let (mut walk, mut found) = (Walk::new(&Tree::open(root, &blocks).expect("a root")), Vec::new());
    while let Some(step) = walk.next(&blocks).expect("whole") {
        if let Step::Record(key, _) = step {
            found.push(key.to_string());
        }
    }
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(found, sorted);
    for case in cases("mst/common_prefix.json", 13) {
        let (left, right) = (case["left"].as_str().expect("text"), case["right"].as_str().expect("text"));
        let shared = left.bytes().zip(right.bytes()).take_while(|(one, other)| one == other).count();
        assert_eq!(shared as u64, case["len"].as_u64().expect("a number"));
    }
}

/// The tree changes as the vectors say, the proof holds what they say, and it suffices to undo the change in every order.
#[test]
fn a_commit_proves_itself_as_the_vectors_say() {
    for case in cases("firehose/commit-proof-fixtures.json", 6) {
        let comment = &case["comment"];
        let value: Cid = case["leafValue"].as_str().expect("text").parse().expect("a CID");
        let (keys, adds, deletes) = (texts(&case["keys"]), texts(&case["adds"]), texts(&case["dels"]));
        let (mut tree, none) = (Tree::new(), BTreeMap::new());
        for key in &keys {
            assert_eq!(tree.put(key, value, &none), Ok(None));
        }
        let (before, _) = tree.seal();
        assert_eq!(before.to_string(), case["rootBeforeCommit"].as_str().expect("text"), "{comment}");
        let mut operations = Vec::new();
        for key in &adds {
            assert_eq!(tree.put(key, value, &none), Ok(None));
            operations.push(Operation { path: key.clone(), cid: Some(value), previous: None });
        }
        for key in &deletes {
            assert_eq!(tree.remove(key, &none), Ok(Some(value)));
            operations.push(Operation { path: key.clone(), cid: None, previous: Some(value) });
        }
        let (after, made) = tree.seal();
        assert_eq!(after.to_string(), case["rootAfterCommit"].as_str().expect("text"), "{comment}");
        let mut proof: BTreeMap<Cid, Bytes> = made.into_iter().collect();
        for operation in &operations {
            tree.cover(&operation.path, &none, &mut proof).expect("in memory");
        }
        for named in texts(&case["blocksInProof"]) {
            assert!(proof.contains_key(&named.parse().expect("a CID")), "{comment}: {named} is missing");
        }
        for order in orders(&operations) {
            assert_eq!(invert(after, &order, &proof), Ok(before), "{comment}");
        }
    }
}
