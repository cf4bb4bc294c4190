use super::*;
use highwater_base::random::SplitMix;
use highwater_disk::{OsDisk, SimDisk};

const DATA: &str = "/data";

/// A directory in memory as a server leaves it.
fn directory() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_directory(Path::new(DATA)).expect("made");
    let cluster = ClusterFile { bootstrapped: true, ..ClusterFile::draw(4, &mut SplitMix::new(1)) };
    cluster.write(&disk, Path::new(DATA)).expect("written");
    disk
}

#[test]
fn a_mark_reads_back_until_it_is_removed() {
    let (disk, data) = (directory(), Path::new(DATA));
    assert_eq!(Mark::read(&disk, data).expect("readable"), None);
    let marked = mark(&disk, data, &mut SplitMix::new(7)).expect("marked");
    assert_eq!((marked.groups, marked.again), (4, false));
    let first = Mark::read(&disk, data).expect("readable").expect("there is one");
    // A copy that holds a mark may be restored again: then it must not end in the same history twice.
    let again = mark(&disk, data, &mut SplitMix::new(8)).expect("marked");
    assert!(again.again);
    assert_ne!(Mark::read(&disk, data).expect("readable"), Some(first));
    Mark::remove(&disk, data).expect("removed");
    assert_eq!(Mark::read(&disk, data).expect("readable"), None);
}

#[test]
fn only_a_stopped_servers_directory_is_marked() {
    let (disk, data) = (directory(), Path::new(DATA));
    let lock = disk.open(&data.join("lock"), OpenMode::Create).expect("opened");
    assert!(lock.try_lock().expect("asked"));
    assert!(matches!(mark(&disk, data, &mut SplitMix::new(7)), Err(RestoredError::InUse(_))));
    assert_eq!(Mark::read(&disk, data).expect("readable"), None);
    drop(lock);
    assert!(mark(&disk, data, &mut SplitMix::new(7)).is_ok());
    let other = Path::new("/other");
    disk.create_directory(other).expect("made");
    assert!(matches!(mark(&disk, other, &mut SplitMix::new(7)), Err(RestoredError::NoDataDirectory(_))));
    assert_eq!(disk.list(other).expect("listed"), [""; 0], "nothing is left in a directory of something else");
}

#[test]
fn the_bytes_of_version_1_are_those_of_the_golden_files_and_no_others_are_read() {
    for (magic, golden) in [
        (MAGIC_MARK, &include_bytes!("../../golden/restored-1.bin")[..]),
        (MAGIC_PLACE, &include_bytes!("../../golden/place-1.bin")[..]),
    ] {
        assert_eq!(encode(magic, 0x0123_4567_89ab_cdef), golden);
        assert_eq!(decode(magic, Bytes::from_static(golden)), Ok(0x0123_4567_89ab_cdef));
        for bit in 0..golden.len() * 8 {
            let mut flipped = golden.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(magic, flipped.into()).is_err(), "bit {bit}");
        }
        for cut in 0..golden.len() {
            assert!(decode(magic, Bytes::from_static(&golden[..cut])).is_err(), "cut at {cut}");
        }
    }
    let mut later = encode(MAGIC_MARK, 1);
    later.truncate(FILE_BYTES - blake3::OUT_LEN);
    later[8] = 2;
    let digest = blake3::hash(&later);
    later.extend_from_slice(digest.as_bytes());
    assert!(decode(MAGIC_MARK, later.into()).is_err_and(|reason| reason.contains("version 2")));
}

/// A mark that does not read is not passed over: without its number no history can be begun.
#[test]
fn a_damaged_mark_stops_the_start_and_says_what_to_do() {
    let (disk, data) = (directory(), Path::new(DATA));
    let file = disk.open(&data.join(NAME_MARK), OpenMode::Create).expect("opened");
    file.write_at(b"HWRESTOR and then something else", 0).expect("written");
    let refused = Mark::read(&disk, data).expect_err("damaged").to_string();
    assert!(refused.contains("mark-restored"), "{refused}");
}

/// A directory that was copied says so; one that was left where it was, or of whose copy the operator spoke, does not.
#[test]
fn a_copy_of_a_directory_looks_restored() {
    let base = std::env::temp_dir().join(format!("highwater-place-{}", std::process::id()));
    let (original, copy) = (base.join("original"), base.join("copy"));
    let disk = OsDisk::new();
    for directory in [&original, &copy] {
        std::fs::create_dir_all(directory).expect("made");
    }
    ClusterFile::draw(1, &mut SplitMix::new(1)).write(&disk, &original).expect("written");
    for _ in 0..2 {
        assert_eq!(Place::check(&disk, &original).expect("checked"), Place::Same);
    }
    for name in ["cluster", NAME_PLACE] {
        std::fs::copy(original.join(name), copy.join(name)).expect("copied");
    }
    for _ in 0..2 {
        assert_eq!(Place::check(&disk, &copy).expect("checked"), Place::Other, "a look changes nothing");
    }
    moved(&disk, &copy).expect("noted");
    assert_eq!(Place::check(&disk, &copy).expect("checked"), Place::Same);
    assert_eq!(Place::check(&disk, &original).expect("checked"), Place::Same);
    std::fs::remove_dir_all(base).expect("removed");
}

/// The story: yesterday's files were copied over today's, each into the file that was there. The place kept its inode, so
/// that nothing was said, and the streams had silently gone back a day.
#[test]
fn an_older_copy_that_is_laid_over_a_directory_looks_restored() {
    let data = std::env::temp_dir().join(format!("highwater-laid-over-{}", std::process::id()));
    let disk = OsDisk::new();
    std::fs::create_dir_all(&data).expect("made");
    ClusterFile::draw(1, &mut SplitMix::new(1)).write(&disk, &data).expect("written");
    assert_eq!(Place::check(&disk, &data).expect("checked"), Place::Same);
    let yesterday = std::fs::read(data.join(NAME_PLACE)).expect("readable");
    for _ in 0..3 {
        // The clock of a file system goes in steps of some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(Place::check(&disk, &data).expect("checked"), Place::Same, "another start");
        let today = std::fs::read(data.join(NAME_PLACE)).expect("readable");
        std::fs::write(data.join(NAME_PLACE), &yesterday).expect("laid over");
        assert_eq!(Place::check(&disk, &data).expect("checked"), Place::Other);
        std::fs::write(data.join(NAME_PLACE), &today).expect("put right");
        assert_eq!(disk.list(&data).expect("listed"), ["cluster", NAME_PLACE], "nothing is left beside it");
    }
    std::fs::remove_dir_all(data).expect("removed");
}
