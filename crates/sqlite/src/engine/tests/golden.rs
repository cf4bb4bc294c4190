//! Files of every version that was ever released open, and say what they said then.
//!
//! `HIGHWATER_GOLDEN=write` makes the files of a new version; those that are there are never rewritten.

use super::host::*;
use crate::engine::{ClaimWon, Layout};
use highwater_base::Offset;
use highwater_disk::{Disk, OpenMode, SimDisk};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/commit-log-1")
}

/// A database that was left by a crash: a checkpoint behind its log, a batch in flight, a record partly acknowledged.
fn life() -> (SimDisk, Vec<u8>) {
    let disk = disk(1);
    bind_new(&disk);
    let mut host = Host::fresh(&disk, 1);
    let claim = ClaimWon { epoch: 3, stream_end: Offset(100), resume: Default::default(), next_seq: 1 };
    host.engine.save_epoch(claim).expect("claim");
    let database = host.engine.database();
    host.commit(3, &[1, 2, 3], true).expect("commit");
    host.checkpoint(&*database).expect("checkpoint");
    host.commit(12, &[1, 4, 5, 6, 7, 8, 9, 10, 11, 12], true).expect("grow");
    host.replicate(true).expect("acknowledge");
    host.replicate(false).expect("in flight");
    host.commit(5, &[1, 2], true).expect("shrink");
    host.commit(6, &[1, 6], false).expect("grow by one");
    let expected = bytes_of(host.promise.latest());
    disk.crash_process();
    (disk, expected)
}

fn names() -> [(&'static str, PathBuf); 3] {
    let layout = Layout::of(Path::new(PATH));
    [("app.db", PathBuf::from(PATH)), ("meta", layout.meta.clone()), ("0.log", layout.segment(Default::default()))]
}

#[test]
fn version_1_opens_and_recovers() {
    if std::env::var("HIGHWATER_GOLDEN").is_ok_and(|value| value == "write") && !folder().exists() {
        let (disk, expected) = life();
        std::fs::create_dir_all(folder()).expect("create");
        for (name, path) in names() {
            std::fs::write(folder().join(name), read_file(&disk, &path)).expect("write");
        }
        std::fs::write(folder().join("expected.db"), expected).expect("write");
    }
    let golden = |name: &str| std::fs::read(folder().join(name)).expect("the golden file is there");
    let disk = disk(2);
    disk.create_directory(&Layout::of(Path::new(PATH)).log).expect("create");
    for (name, path) in names() {
        disk.open(&path, OpenMode::CreateNew).expect("create").write_at(&golden(name), 0).expect("write");
    }
    let engine = open(&disk).expect("a golden database opens");
    assert!(read_file(&disk, Path::new(PATH)) == golden("expected.db"));
    let progress = engine.progress();
    assert_eq!((progress.last_lsn, progress.epoch, progress.next_seq), (5, 3, 2));
    let seal = progress.in_flight.expect("a batch in flight");
    assert_eq!((seal.from, seal.epoch, seal.seq), (progress.acknowledged, 3, 2));
    assert_eq!(engine.binding().url, stream().url);
    assert_eq!(engine.binding().page_size, PAGE as u32);
}
