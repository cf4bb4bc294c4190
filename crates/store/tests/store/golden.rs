//! Files of today's format versions open, and those of before are refused by their version.

use crate::world::{DIRECTORY, World, disk as new_disk, small};
use highwater_disk::{Disk, OpenMode, SimDisk};
use highwater_store::OpenError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The life whose files were kept.
fn life(disk: &SimDisk) -> World {
    let mut world = World::new(disk, small());
    world.append(1, 70_000);
    world.append(2, 20);
    world.append(5, 3);
    world.checkpoint().expect("sound");
    world.remove(5);
    world.release(1, 950);
    world.append(2, 30);
    world.append(4, 5000);
    world.checkpoint().expect("sound");
    // A base of several blocks, and a delta behind it.
    (10..80).for_each(|object| world.append(object, 20));
    world.checkpoint().expect("sound");
    world.remove(10);
    world.append(11, 30);
    world.checkpoint().expect("sound");
    world
}

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(version)
}

const FILES: [&str; 2] = ["data-00000001", "index-0000000000000002"];

const BEFORE: &str = "index-0000000000000001";

#[test]
fn the_files_of_version_3_open_and_hold_what_was_put_in() {
    let today = life(&new_disk(0));
    let disk = new_disk(0);
    disk.create_directory(Path::new(DIRECTORY)).expect("create");
    for name in FILES {
        let bytes = std::fs::read(golden("v3").join(name)).expect("a golden file");
        let file = disk.open(&Path::new(DIRECTORY).join(name), OpenMode::CreateNew).expect("create");
        file.write_at(&bytes, 0).expect("write");
    }
    let mut world = World::open(Arc::new(disk), small(), today.log, today.commands).expect("version 3");
    assert_eq!(world.store.status().checkpoint, 4);
    world.check_payload();
}

/// No release wrote them, so that nothing reads them any more.
#[test]
fn indexes_of_versions_1_and_2_are_refused_by_their_version() {
    for before in [1, 2] {
        let disk = new_disk(0);
        disk.create_directory(Path::new(DIRECTORY)).expect("create");
        let bytes = std::fs::read(golden(&format!("v{before}")).join(BEFORE)).expect("a golden file");
        let file = disk.open(&Path::new(DIRECTORY).join(BEFORE), OpenMode::CreateNew).expect("create");
        file.write_at(&bytes, 0).expect("write");
        let error = World::open(Arc::new(disk), small(), Arc::default(), Vec::new()).err().expect("refused");
        assert!(matches!(error, OpenError::Version { version, .. } if version == before), "{error}");
    }
}

/// Fails when the bytes change without a new version. To add the files of a new one, copy them from the folder named.
#[test]
fn todays_files_are_those_of_version_3() {
    let disk = new_disk(0);
    life(&disk);
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store-golden");
    std::fs::create_dir_all(&made).expect("create");
    for name in FILES {
        let file = disk.open(&Path::new(DIRECTORY).join(name), OpenMode::Read).expect("open");
        let mut bytes = vec![0; file.length().expect("length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("read");
        std::fs::write(made.join(name), &bytes).expect("write");
    }
    for name in FILES {
        let read = |folder: PathBuf| std::fs::read(folder.join(name)).unwrap_or_default();
        assert!(read(golden("v3")) == read(made.clone()), "{name} differs; today's is in {}", made.display());
    }
}
