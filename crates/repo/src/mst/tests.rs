use super::node::Node;
use super::*;
use crate::cid::Codec;
use crate::data::Encoder;

fn value() -> Cid {
    Cid::of(Codec::DagCbor, b"record")
}

/// A node's block of keys, given as what they share with the one before and the rest.
fn block(entries: &[(u64, &str)], left: Option<Cid>) -> Bytes {
    let mut out = Encoder::default();
    out.map(2).text("e").list(entries.len());
    for (shared, rest) in entries {
        out.map(4).text("k").bytes(rest.as_bytes()).text("p").integer(*shared as i64);
        out.text("t").null().text("v").link(&value());
    }
    out.text("l").optional_link(left.as_ref());
    out.into_vec().into()
}

fn open(block: Bytes) -> Result<Tree, TreeError> {
    let name = Cid::of(Codec::DagCbor, &block);
    Tree::open(name, &BTreeMap::from([(name, block)]))
}

#[test]
fn nodes_in_any_but_the_one_form_are_refused() {
    // Both keys stand at layer 0.
    let (one, other) = ("asdf", "asdz");
    assert_eq!((layer_of(one), layer_of(other)), (0, 0));
    assert!(open(block(&[(0, one), (3, "z")], None)).is_ok());
    let fault = |block: Bytes| match open(block) {
        Err(TreeError::Node(_, fault)) => Some(fault),
        _ => None,
    };
    assert_eq!(fault(block(&[(0, one), (2, "dz")], None)), Some(NodeError::Prefix));
    assert_eq!(fault(block(&[(1, one)], None)), Some(NodeError::Prefix));
    assert_eq!(fault(block(&[(0, one), (5, "z")], None)), Some(NodeError::Prefix));
    assert_eq!(fault(block(&[(0, other), (3, "f")], None)), Some(NodeError::Order));
    assert_eq!(fault(block(&[(0, one), (4, "")], None)), Some(NodeError::Order));
    assert_eq!(fault(block(&[(0, one), (0, "blue")], None)), Some(NodeError::Layer));
    assert_eq!(fault(block(&[(0, one)], Some(value()))), Some(NodeError::Layer));
    assert_eq!(fault(block(&[], Some(value()))), Some(NodeError::Layer));
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    assert_eq!(fault(block(&[(0, &long)], None)), Some(NodeError::Key));
    assert!(matches!(fault(Bytes::from_static(b"\xa0")), Some(NodeError::Data(_))));
}

#[test]
fn a_subtree_that_stands_at_another_layer_is_refused_when_it_is_met() {
    // "blue" stands at layer 1; below it, left of it, may stand layer 0 alone.
    assert_eq!(layer_of("blue"), 1);
    let sound = block(&[(0, "asdf")], None);
    let same = block(&[(0, "2653ae71")], None);
    for (child, taken) in [
        (sound, true),
        (same, layer_of("2653ae71") == 0),
        (block(&[(0, "88bfafc7")], None), false),
        (block(&[], None), false),
    ] {
        let name = Cid::of(Codec::DagCbor, &child);
        let root = block(&[(0, "blue")], Some(name));
        let blocks = BTreeMap::from([(name, child), (Cid::of(Codec::DagCbor, &root), root.clone())]);
        let tree = Tree::open(Cid::of(Codec::DagCbor, &root), &blocks).expect("the root is sound");
        let mut walk = Walk::new(&tree);
        let whole = std::iter::from_fn(|| walk.next(&blocks).transpose()).all(|step| step.is_ok());
        assert_eq!(whole, taken);
    }
}

#[test]
fn a_chain_of_nodes_without_keys_is_as_long_as_the_layers_say() {
    let high = "app.bsky.feed.post/9adeb165882c";
    let low = (0u64..).map(|n| format!("{n:04}")).find(|key| layer_of(key) == 0).expect("three in four");
    assert_eq!((layer_of(high), layer_of(&low)), (8, 0));
    for (length, sound) in [(7, true), (6, false), (8, false), (0, false), (300, false)] {
        let mut blocks = BTreeMap::new();
        let mut keep = |block: Bytes| {
            let name = Cid::of(Codec::DagCbor, &block);
            blocks.insert(name, block);
            name
        };
        let mut child = keep(block(&[(0, &low)], None));
        for _ in 0..length {
            child = keep(block(&[], Some(child)));
        }
        let root = keep(block(&[(0, high)], Some(child)));
        let tree = Tree::open(root, &blocks).expect("the root is sound");
        let mut walk = Walk::new(&tree);
        let whole = std::iter::from_fn(|| walk.next(&blocks).transpose()).all(|step| step.is_ok());
        assert_eq!(whole, sound, "{length}");
        assert_eq!(tree.get(&low, &blocks).is_ok(), sound, "{length}");
        let mut edited = tree.clone();
        assert_eq!(edited.remove(high, &blocks).is_ok(), sound, "{length}");
    }
}

#[test]
fn one_subtree_under_two_keys_is_found_on_the_way_and_does_not_multiply() {
    let child = block(&[(0, "asdf")], None);
    let name = Cid::of(Codec::DagCbor, &child);
    let mut out = Encoder::default();
    let mut keys: Vec<String> = (0..9_999).map(|n| format!("{n:04}")).filter(|key| layer_of(key) == 1).collect();
    keys.truncate(100);
    out.map(2).text("e").list(keys.len());
    let mut before = "";
    for key in &keys {
        let shared = before.bytes().zip(key.bytes()).take_while(|(one, other)| one == other).count();
        out.map(4).text("k").bytes(&key.as_bytes()[shared..]).text("p").integer(shared as i64);
        out.text("t").link(&name).text("v").link(&value());
        before = key;
    }
    out.text("l").null();
    let root = Bytes::from(out.into_vec());
    let root_name = Cid::of(Codec::DagCbor, &root);
    let blocks = BTreeMap::from([(name, child), (root_name, root)]);
    let mut walk = Walk::new(&Tree::open(root_name, &blocks).expect("the root is sound"));
    let steps: Vec<_> = std::iter::from_fn(|| walk.next(&blocks).transpose()).take(10).collect();
    assert_eq!(steps.iter().position(Result::is_err), Some(4), "{steps:?}");
}

#[test]
fn keys_out_of_order_over_two_nodes_are_found_on_the_way() {
    // The child left of "blue" holds a key beyond it.
    let child = block(&[(0, "zzy")], None);
    assert_eq!(layer_of("zzy"), 0);
    let name = Cid::of(Codec::DagCbor, &child);
    let root = block(&[(0, "blue")], Some(name));
    let root_name = Cid::of(Codec::DagCbor, &root);
    let blocks = BTreeMap::from([(name, child), (root_name, root)]);
    let mut walk = Walk::new(&Tree::open(root_name, &blocks).expect("the root is sound"));
    let last = std::iter::from_fn(|| walk.next(&blocks).transpose()).find(Result::is_err);
    assert_eq!(last, Some(Err(TreeError::Node(root_name, NodeError::Order))));
}

#[test]
fn a_node_with_more_keys_than_there_may_be_is_refused_before_they_are_read() {
    let keys: Vec<String> =
        (0..).map(|n| format!("{n:06}")).filter(|key| layer_of(key) == 0).take(ENTRIES_MAX + 1).collect();
    let of = |count: usize| {
        let (mut entries, mut before) = (Vec::new(), "");
        for key in &keys[..count] {
            let shared = before.bytes().zip(key.bytes()).take_while(|(one, other)| one == other).count();
            entries.push((shared as u64, &key[shared..]));
            before = key;
        }
        block(&entries, None)
    };
    assert!(open(of(ENTRIES_MAX)).is_ok());
    let error = open(of(ENTRIES_MAX + 1)).expect_err("too many");
    assert!(matches!(error, TreeError::Node(_, NodeError::Entries(1025))), "{error}");
    // A count alone, with nothing behind it, asks for no memory.
    let count = Bytes::from_static(b"\xa2\x61e\x9b\x00\x00\x00\xff\xff\xff\xff\xff");
    assert!(matches!(open(count), Err(TreeError::Node(_, NodeError::Entries(0xff_ffff_ffff)))));
}

#[test]
fn a_key_of_1024_bytes_is_the_longest_of_a_tree() {
    let of = |bytes: usize| {
        let key = "k".repeat(bytes);
        let mut tree = Tree::new();
        tree.put(&key, value(), &BTreeMap::new()).expect("in memory");
        let (root, made) = tree.seal();
        Tree::open(root, &made.into_iter().collect::<BTreeMap<_, _>>())
    };
    assert!(of(KEY_BYTES_MAX).is_ok());
    assert!(matches!(of(KEY_BYTES_MAX + 1), Err(TreeError::Node(_, NodeError::Key))));
}

#[test]
fn a_node_is_one_block_in_both_directions() {
    let bytes = block(&[(0, "asdf"), (3, "z")], None);
    let node = Node::decode(bytes.clone()).expect("a node");
    assert_eq!(node.encode(tree::Subtree::name), bytes);
}
