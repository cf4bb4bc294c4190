//! Bytes that were made before must be made again: others signed for them, or keep them.

use crate::repository::{Repository, create, path, record};
use highwater_repo::commit::fresh;
use highwater_repo::export::{self, Export};
use highwater_repo::key::{Curve, SigningKey};
use highwater_repo::write::{Change, Write};
use highwater_repo::{Cid, Codec, Tid};
use std::path::Path;

/// Compares with the golden file; writes it if there is none and `HIGHWATER_WRITE_GOLDEN` is set.
fn check(name: &str, bytes: &[u8]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("HIGHWATER_WRITE_GOLDEN").is_some() && !file.exists() {
        std::fs::write(&file, bytes).expect("the folder is there");
    }
    let kept = std::fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(kept == bytes, "{name} would be written otherwise");
}

#[test]
fn commits_and_archives_are_the_bytes_of_the_golden_files() {
    let mut repository = Repository::new();
    repository.write(&(0..40).map(|n| create(n, record(n))).collect::<Vec<_>>()).expect("a commit");
    let writes = [
        create(100, record(7)),
        Write { path: path(3), change: Change::Update(record(3_000_000_000)) },
        Write { path: path(20), change: Change::Delete },
    ];
    let prepared = repository.write(&writes).expect("a commit");
    check("commit.cbor", &prepared.block);
    check("commit.car", &prepared.archive);
    let (cid, block) = repository.commit.clone().expect("a commit");
    let mut archive = Vec::new();
    Export::new(&cid, &block, &repository.tree).fill(&mut archive, usize::MAX, &repository.blocks).expect("whole");
    check("export.car", &archive);
    for (name, number) in [("record.car", 8), ("absence.car", 20)] {
        let archive = export::record(&cid, &block, &repository.tree, &path(number), &repository.blocks);
        check(name, &archive.expect("whole"));
    }
    for (name, curve) in [("sync-k256.car", Curve::K256), ("sync-p256.car", Curve::P256)] {
        let key = SigningKey::from_secret(curve, &[7; 32]).expect("a secret");
        let data = Cid::of(Codec::DagCbor, b"root");
        let fresh =
            fresh("did:web:bot.example".parse().expect("a DID"), Tid::new(1_700_000_000_000_000, 3), data, &key);
        check(name, &fresh.archive);
    }
}
