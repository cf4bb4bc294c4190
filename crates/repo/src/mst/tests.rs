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
fn a_node_is_one_block_in_both_directions() {
    let bytes = block(&[(0, "asdf"), (3, "z")], None);
    let node = Node::decode(bytes.clone()).expect("a node");
    assert_eq!(node.encode(tree::Subtree::name), bytes);
}
