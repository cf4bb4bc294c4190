//! Files that earlier programs wrote must open, for good. They lie in `golden/`, one folder per format version, and are
//! never rewritten; `HIGHWATER_WRITE_GOLDEN=1 cargo test -p highwater-wal golden` adds the folder of a new version.

use crate::common::{DIRECTORY, frame, names, survivors};
use highwater_base::OwnerId;
use highwater_disk::{Disk, OpenMode, SimDisk};
use highwater_wal::{LastRun, Log, Options, Verdict};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden(version: u16) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(version.to_string())
}

fn options() -> Options {
    let boot_id = "5e4ae5a5-0000-4000-8000-000000000001".to_owned();
    Options { segment_bytes: 16 << 10, log_bytes_max: 1 << 20, boot_id, ..Options::default() }
}

fn open(disk: &SimDisk) -> (Log, highwater_wal::Recovered) {
    Log::open(Arc::new(disk.clone()), Path::new(DIRECTORY), options()).expect("the log opens")
}

/// A log with three segments, one given back, one owner forgotten, another damaged, and the machine gone down.
fn written_today() -> Vec<(String, Vec<u8>)> {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    for position in 1..=9 {
        log.append(&[frame(1, position, 1500), frame(2, position, 0), frame(3, position, 600)]).expect("append");
        log.sync().expect("sync");
        if position == 6 {
            log.forget(OwnerId(3)).expect("forget");
        }
    }
    for owner in 1..=3 {
        log.release(OwnerId(owner), 4).expect("release");
    }
    drop(log);
    let victim = log_file(3);
    // In the first page of data: the payload of owner 1's frame.
    let file = disk.open(&victim, OpenMode::Write).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4096 + 32 + 40 + 100).expect("read");
    file.write_at(&[byte[0] ^ 1], 4096 + 32 + 40 + 100).expect("write");
    drop(file);
    let (mut log, _) = open(&disk);
    log.append(&[frame(3, 100, 60)]).expect("append");
    log.sync().expect("sync");
    drop(log);
    let files = disk.files().into_iter().map(|(path, bytes)| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, bytes)
    });
    files.filter(|(name, _)| name == "state" || name.ends_with(".segment")).collect()
}

fn log_file(number: u64) -> PathBuf {
    crate::common::segment_path(number)
}

#[test]
fn golden_files_of_version_1_are_still_what_is_written() {
    let today = written_today();
    if std::env::var_os("HIGHWATER_WRITE_GOLDEN").is_some() && !golden(1).exists() {
        fs::create_dir_all(golden(1)).expect("a folder");
        for (name, bytes) in &today {
            fs::write(golden(1).join(name), bytes).expect("write");
        }
    }
    let listed = fs::read_dir(golden(1)).expect("the golden files").count();
    assert_eq!(listed, today.len());
    for (name, bytes) in today {
        assert!(fs::read(golden(1).join(&name)).expect("a golden file") == bytes, "{name} is written differently");
    }
}

#[test]
fn golden_files_of_version_1_open() {
    let disk = SimDisk::new(1);
    disk.create_directory(Path::new(DIRECTORY)).expect("directory");
    for entry in fs::read_dir(golden(1)).expect("the golden files") {
        let entry = entry.expect("an entry");
        let path = Path::new(DIRECTORY).join(entry.file_name());
        let file = disk.open(&path, OpenMode::CreateNew).expect("create");
        file.write_at(&fs::read(entry.path()).expect("read"), 0).expect("write");
    }
    let (mut log, recovered) = open(&disk);
    assert_eq!(recovered.last_run(), &LastRun::Crashed { same_boot: true });
    let found = survivors(&recovered);
    let of = |owner| names(&found.iter().filter(|f| f.owner == OwnerId(owner)).cloned().collect::<Vec<_>>());
    let damaged = Verdict::Damaged { segment: 3, offset: 4128 };
    assert_eq!(recovered.verdict(OwnerId(1)), damaged);
    assert!(recovered.verdict(OwnerId(2)).is_whole() && recovered.verdict(OwnerId(3)).is_whole());
    assert_eq!(of(1), [(1, 3), (1, 4), (1, 6), (1, 7), (1, 8), (1, 9)]);
    assert_eq!(of(2), [(2, 3), (2, 4), (2, 5), (2, 6), (2, 7), (2, 8), (2, 9)]);
    assert_eq!(of(3), [(3, 7), (3, 8), (3, 9), (3, 100)]);
    assert!(found.iter().all(|got| *got == frame(got.owner.0, got.position, got.payload.len())));
    log.append(&[frame(2, 10, 100)]).expect("it goes on");
}
