//! What others send of repositories: archives, values, commits and nodes.

use bytes::Bytes;
use highwater_repo::data::{decode, encode};
use highwater_repo::mst::{Order, Walk, invert};
use highwater_repo::write::Operation;
use highwater_repo::{Cid, Codec, Commit, Tree, Value, car, record};
use std::collections::BTreeMap;
use std::ops::Bound;

type Contents = (Vec<Cid>, Vec<(Cid, Bytes)>);

fn read(data: &[u8], piece_bytes: usize) -> Result<Contents, car::CarError> {
    let (mut reader, mut blocks) = (car::Reader::new(), Vec::new());
    for piece in data.chunks(piece_bytes) {
        reader.push(piece);
        while let Some(block) = reader.block()? {
            blocks.push(block);
        }
    }
    Ok((reader.finish()?, blocks))
}

/// An archive, whole and in pieces; and as the sections that somebody keeps. A repository in it is read to its end.
pub fn repo_archive(data: &[u8]) {
    for section in car::Sections::new(data).flatten() {
        assert!(section.1.end <= data.len(), "a block lies within the bytes");
    }
    let whole = read(data, usize::MAX);
    assert_eq!(read(data, 7), whole, "an archive is the same however it is cut");
    let Ok((roots, blocks)) = whole else { return };
    if let [root] = &roots[..] {
        let again = car::archive(root, blocks.iter().map(|(cid, block)| (cid, block)));
        assert_eq!(again, data, "one archive has one spelling");
    }
    let blocks: BTreeMap<Cid, Bytes> = blocks.into_iter().collect();
    let commit = roots.first().and_then(|root| Commit::decode(blocks.get(root)?.clone()).ok());
    if let Some(Ok(tree)) = commit.map(|commit| Tree::open(commit.data, &blocks)) {
        explore(&tree, &blocks);
    }
}

/// A value in its one encoding.
pub fn repo_data(data: &[u8]) {
    if let Ok(value) = decode(Bytes::copy_from_slice(data)) {
        assert_eq!(encode(&value), data, "one value has one encoding");
        drop(record::check(&value, "com.example.kind"));
        assert!(serde_json::to_string(&value).is_ok(), "every value has a text");
    }
}

/// A value as clients write it.
pub fn repo_json(data: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<Value>(data) {
        assert_eq!(decode(encode(&value).into()).as_ref(), Ok(&value), "what clients write can be stored");
        let text = serde_json::to_string(&value).expect("every value has a text");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value), "what is stored reads back");
    }
}

/// A commit's block.
pub fn repo_commit(data: &[u8]) {
    if let Ok(commit) = Commit::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(commit.block().1, data, "one commit has one encoding");
    }
}

/// A node's block, as the root of a tree of which nothing else is there.
pub fn repo_node(data: &[u8]) {
    let root = Cid::of(Codec::DagCbor, data);
    let blocks = BTreeMap::from([(root, Bytes::copy_from_slice(data))]);
    let Ok(tree) = Tree::open(root, &blocks) else { return };
    explore(&tree, &blocks);
    let key = "com.example.kind/3jzfcijpj2z2a";
    let mut edited = tree.clone();
    let value = Cid::of(Codec::Raw, data);
    if let Ok(previous) = edited.put(key, value, &blocks) {
        let (after, made) = edited.seal();
        let blocks = made.into_iter().chain(blocks).collect::<BTreeMap<_, _>>();
        let operation = Operation { path: key.into(), cid: Some(value), previous };
        if let Ok(before) = invert(after, &[operation], &blocks) {
            assert_eq!(before, root, "what was done can be undone");
        }
    }
}

/// Reads a tree in all the ways that there are, until something is missing.
fn explore(tree: &Tree, blocks: &BTreeMap<Cid, Bytes>) {
    let mut walk = Walk::new(tree);
    while let Ok(Some(_)) = walk.next(blocks) {}
    for order in [Order::Ascending, Order::Descending] {
        let mut records = tree.records(Bound::Unbounded, Bound::Unbounded, order);
        // A tree that was not walked may name one node a thousand times.
        for _ in 0..2_000 {
            let Ok(Some((key, _))) = records.next(blocks) else { break };
            let _found = tree.get(&key, blocks);
            drop(tree.prove(&key, blocks));
        }
    }
    if let Ok(page) = tree.records(Bound::Included("b"), Bound::Excluded("c"), Order::Ascending).page(10, blocks) {
        assert!(page.iter().all(|(key, _)| key.starts_with('b')), "a page keeps its bounds");
    }
}
