//! Every target over the kept corpus and the golden files, whole, cut and with flipped bits.

use highwater_base::Random as _;
use highwater_base::random::SplitMix;
use std::fs;
use std::path::{Path, PathBuf};

/// A target, and the folders below the work tree's root whose files are its seeds.
type Target = (&'static str, fn(&[u8]), &'static [&'static str]);

const TARGETS: &[Target] = &[
    ("wal_segment", crate::wal_segment, &["crates/wal/golden"]),
    ("store_index", crate::store_index, &["crates/store/golden"]),
    ("stream_command", crate::stream_command, &["crates/stream/golden"]),
    ("stream_state", crate::stream_state, &["crates/stream/golden"]),
    ("consensus_records", crate::consensus_records, &["crates/consensus/golden"]),
    ("commit_record", crate::commit_record, &["crates/sqlite/golden"]),
    ("stream_batches", crate::stream_batches, &["crates/sqlite/golden"]),
    ("sqlite_meta", crate::sqlite_meta, &["crates/sqlite/golden/commit-log-1"]),
    ("sqlite_folder", crate::sqlite_folder, &[]),
    ("wal_folder", crate::wal_folder, &[]),
    ("store_folder", crate::store_folder, &[]),
    ("store_residence", crate::store_residence, &[]),
    ("store_marker", crate::store_marker, &["crates/store/golden/cold"]),
    ("node_restored", crate::node_restored, &["crates/node/golden"]),
    ("node_cluster_file", crate::node_cluster_file, &["crates/node/golden"]),
    ("backup_manifest", crate::backup_manifest, &["crates/node/golden"]),
    ("control_records", crate::control_records, &["crates/control/golden"]),
    ("consumer_frame", crate::consumer_frame, &[]),
    ("repo_archive", crate::repo_archive, &["crates/repo/golden"]),
    ("repo_data", crate::repo_data, &["crates/repo/golden"]),
    ("repo_json", crate::repo_json, &["crates/repo/tests/data/atproto-interop/data-model"]),
    ("repo_commit", crate::repo_commit, &["crates/repo/golden"]),
    ("repo_node", crate::repo_node, &[]),
    ("pds_records", crate::pds_records, &["crates/pds/golden"]),
    ("pds_texts", crate::pds_texts, &[]),
    ("host_files", crate::host_files, &["crates/host/golden"]),
    ("http_request", crate::http_request, &[]),
    ("http_json", crate::http_json, &[]),
    ("client_answer", crate::client_answer, &[]),
    ("host_secret", crate::host_secret, &[]),
    ("xrpc_token", crate::xrpc_token, &[]),
    ("xrpc_request", crate::xrpc_request, &[]),
];

/// Variants of each seed; `HIGHWATER_SEEDS` asks for so many times more.
const VARIANTS: u64 = 200;

/// Seeds longer than this are left to the fuzzer: the log's golden segments are mostly zeros.
const SEED_BYTES_MAX: usize = 128 << 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("fuzz lies in the work tree").to_owned()
}

fn collect(folder: &Path, seeds: &mut Vec<Vec<u8>>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, seeds);
        } else {
            let bytes = fs::read(&path).expect("readable");
            seeds.push(bytes.into_iter().take(SEED_BYTES_MAX).collect());
        }
    }
}

fn variant(seed: &[u8], random: &mut SplitMix) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    let length = bytes.len() as u64;
    if random.below(2) == 0 {
        bytes.truncate(usize::try_from(random.below(length + 1)).expect("a length"));
    }
    for _ in 0..random.below(4) {
        if !bytes.is_empty() {
            let at = usize::try_from(random.below(bytes.len() as u64)).expect("a position");
            bytes[at] ^= 1 << random.below(8);
        }
    }
    if random.below(4) == 0 {
        // The rest is made up.
        let from = usize::try_from(random.below(bytes.len() as u64 + 1)).expect("a position");
        bytes[from..].iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
    }
    bytes
}

#[test]
fn no_decoder_panics_on_damaged_input() {
    let mut random = SplitMix::new(11);
    let more: u64 = std::env::var("HIGHWATER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for (name, target, folders) in TARGETS.iter().copied() {
        let mut seeds = vec![Vec::new()];
        collect(&root().join("fuzz/corpus").join(name), &mut seeds);
        for folder in folders {
            collect(&root().join(folder), &mut seeds);
        }
        assert!(seeds.len() > 1, "{name} has no seed in fuzz/corpus/{name}");
        for seed in &seeds {
            target(seed);
            let variants = if seed.len() > 8 << 10 { VARIANTS / 10 } else { VARIANTS };
            for _ in 0..variants * more {
                target(&variant(seed, &mut random));
            }
        }
    }
}

#[test]
fn every_target_has_a_binary_and_every_binary_a_target() {
    let entries = fs::read_dir(root().join("fuzz/fuzz_targets")).expect("the folder is there");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("readable").path();
        path.file_stem().expect("a name").to_string_lossy().into_owned()
    };
    let mut binaries: Vec<String> = entries.map(name).collect();
    binaries.sort();
    let mut targets: Vec<&str> = TARGETS.iter().map(|(name, ..)| *name).collect();
    targets.sort_unstable();
    assert_eq!(binaries, targets);
}
