//! The tree as the specification's text says it, from the sorted list of its keys, without a line of the crate's own tree.
//!
//! Source: atproto repository specification, "MST Structure".

use highwater_repo::{Cid, Codec};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Leading zeros of the key's hash, counted in two-bit chunks, rounding down.
fn depth(key: &str) -> usize {
    let bits: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:08b}")).collect();
    bits.find('1').unwrap_or(bits.len()) / 2
}

/// The name of the tree with these records.
pub fn root(records: &BTreeMap<String, Cid>) -> Cid {
    let records: Vec<_> = records.iter().map(|(key, cid)| (key.as_str(), *cid)).collect();
    let top = records.iter().map(|(key, _)| depth(key)).max();
    top.and_then(|top| node(&records, top)).unwrap_or_else(|| named(&entries_and_left(&[], None)))
}

/// The node of these keys at a layer, which is there even if all of them lie deeper.
fn node(records: &[(&str, Cid)], layer: usize) -> Option<Cid> {
    if records.is_empty() {
        return None;
    }
    let below = |part: &[(&str, Cid)]| if layer == 0 { None } else { node(part, layer - 1) };
    let here: Vec<usize> = (0..records.len()).filter(|at| depth(records[*at].0) == layer).collect();
    let left = below(&records[..here.first().copied().unwrap_or(records.len())]);
    let mut entries = Vec::new();
    let mut before = "";
    for (place, at) in here.iter().enumerate() {
        let (key, value) = records[*at];
        let right = below(&records[at + 1..here.get(place + 1).copied().unwrap_or(records.len())]);
        let shared = (0..=key.len().min(before.len())).rev().find(|n| key.as_bytes()[..*n] == before.as_bytes()[..*n]);
        let shared = shared.expect("nothing is shared at least");
        let mut entry = vec![0xa4, 0x61, b'k'];
        head(&mut entry, 2, key.len() - shared);
        entry.extend(&key.as_bytes()[shared..]);
        entry.extend([0x61, b'p']);
        head(&mut entry, 0, shared);
        entry.extend([0x61, b't']);
        link(&mut entry, right);
        entry.extend([0x61, b'v']);
        link(&mut entry, Some(value));
        entries.push(entry);
        before = key;
    }
    Some(named(&entries_and_left(&entries, left)))
}

fn entries_and_left(entries: &[Vec<u8>], left: Option<Cid>) -> Vec<u8> {
    let mut block = vec![0xa2, 0x61, b'e'];
    head(&mut block, 4, entries.len());
    block.extend(entries.concat());
    block.extend([0x61, b'l']);
    link(&mut block, left);
    block
}

fn head(out: &mut Vec<u8>, kind: u8, number: usize) {
    match number {
        0..24 => out.push(kind << 5 | number as u8),
        24..256 => out.extend([kind << 5 | 24, number as u8]),
        _ => out.extend([kind << 5 | 25, (number >> 8) as u8, number as u8]),
    }
}

fn link(out: &mut Vec<u8>, cid: Option<Cid>) {
    match cid {
        Some(cid) => out.extend([&[0xd8, 42, 0x58, 37, 0][..], &cid.to_bytes()].concat()),
        None => out.push(0xf6),
    }
}

fn named(block: &[u8]) -> Cid {
    Cid::of(Codec::DagCbor, block)
}
