use super::*;
use crate::traits::{Disk, File, OpenMode};

fn path(name: &str) -> PathBuf {
    Path::new("/d").join(name)
}

/// A disk with a durable directory `/d`.
fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_directory(Path::new("/d")).expect("create");
    disk.sync_directory(Path::new("/")).expect("sync");
    disk
}

fn contents(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.open(&path(name), OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.length().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    Some(bytes)
}

#[test]
fn what_was_synced_stays_and_what_was_not_may_go() {
    let (mut kept, mut gone) = (0, 0);
    for seed in 0..64 {
        let disk = disk(seed);
        let file = disk.open(&path("a"), OpenMode::CreateNew).expect("create");
        file.write_at(&[1; 10_000], 0).expect("write");
        file.sync_data().expect("sync");
        disk.sync_directory(Path::new("/d")).expect("sync");
        file.write_at(&[2; 10_000], 20_000).expect("write");
        disk.power_loss();
        assert!(file.read_at(&mut [0], 0).is_err(), "a handle of before is dead");
        let bytes = contents(&disk, "a").expect("the name was synced");
        assert_eq!(bytes[..10_000], [1; 10_000]);
        if bytes.get(20_000..) == Some(&[2; 10_000]) {
            kept += 1;
        } else {
            gone += 1;
        }
    }
    assert!(kept > 0 && gone > kept, "{kept} kept, {gone} lost");
}

#[test]
fn what_a_failed_sync_forgot_is_durable_once_it_was_written_again_and_not_before() {
    let (mut lost, bytes) = (0, [7; 6000]);
    for (seed, again) in (0..64).map(|seed| (seed, seed % 2 == 0)) {
        let disk = disk(seed);
        let file = disk.open(&path("a"), OpenMode::CreateNew).expect("create");
        disk.sync_directory(Path::new("/d")).expect("sync");
        file.write_at(&bytes, 0).expect("write");
        disk.fail_next(Operation::Sync, "a");
        file.sync_data().expect_err("it fails once");
        if again {
            file.write_at(&bytes, 0).expect("write");
        }
        file.sync_data().expect("the second one says yes");
        disk.power_loss();
        let whole = contents(&disk, "a").expect("the name was synced") == bytes;
        assert!(whole || !again, "seed {seed}");
        lost += u64::from(!whole);
    }
    assert!(lost > 0, "a second sync alone is no good");
}

/// How often each of these happened over the seeds: what a power loss may do, it does to someone.
fn count_over_seeds(what: impl Fn(&SimDisk) -> &'static str) -> std::collections::BTreeMap<&'static str, u32> {
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..300 {
        *counts.entry(what(&disk(seed))).or_default() += 1;
    }
    counts
}

fn write_new(disk: &SimDisk, name: &str, bytes: &[u8]) -> std::sync::Arc<dyn File> {
    let file = disk.open(&path(name), OpenMode::Create).expect("open");
    file.write_at(bytes, 0).expect("write");
    file
}

fn sync(disk: &SimDisk, file: &dyn File) {
    file.sync_data().expect("sync");
    disk.sync_directory(Path::new("/d")).expect("sync");
}

#[test]
fn an_overwritten_page_is_found_old_new_in_between_or_torn_at_sectors() {
    let counts = count_over_seeds(|disk| {
        let file = write_new(disk, "a", &[1; 4096]);
        sync(disk, &*file);
        for round in 0..30 {
            file.write_at(&[2 + round; 4096], 0).expect("write");
        }
        disk.power_loss();
        let page = contents(disk, "a").expect("the name was synced");
        assert_eq!(page.len(), 4096);
        let sectors = page.as_chunks::<512>().0;
        assert!(sectors.iter().all(|sector| sector.iter().all(|byte| *byte == sector[0])), "a sector is whole");
        match sectors.iter().map(|sector| sector[0]).collect::<std::collections::BTreeSet<_>>() {
            found if found.len() > 1 => "torn",
            found if found.contains(&1) => "old",
            found if found.contains(&31) => "new",
            _ => "between",
        }
    });
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), ["between", "new", "old", "torn"], "{counts:?}");
}

#[test]
fn a_write_in_which_the_machine_dies_tears_between_sectors_only() {
    let counts = count_over_seeds(|disk| {
        let file = write_new(disk, "a", &[1; 4096]);
        sync(disk, &*file);
        disk.stop_at(disk.operations() + 1);
        // It begins and ends within a sector.
        file.write_at(&[2; 3000], 100).expect_err("the machine dies");
        disk.power_loss();
        let page = contents(disk, "a").expect("the name was synced");
        let written = |at: usize| page[at] == 2;
        let changed = |sector: usize| {
            let (start, end) = ((sector * 512).max(100), (sector * 512 + 512).min(3100));
            assert!((start..end).all(|at| written(at) == written(start)), "sector {sector} is torn");
            written(start)
        };
        match (0..7).filter(|sector| changed(*sector)).count() {
            0 => "old",
            7 => "new",
            _ => "torn",
        }
    });
    assert_eq!(counts.len(), 3, "{counts:?}");
}

#[test]
fn pages_of_one_write_survive_in_any_order() {
    let counts = count_over_seeds(|disk| {
        let file = write_new(disk, "a", &[0; 8192]);
        sync(disk, &*file);
        file.write_at(&[1; 8192], 0).expect("write");
        disk.power_loss();
        let bytes = contents(disk, "a").expect("the name was synced");
        match (bytes[..4096] == [1; 4096], bytes[4096..] == [1; 4096]) {
            (true, true) => "both",
            (true, false) => "first",
            (false, true) => "second",
            (false, false) => "neither",
        }
    });
    assert_eq!(counts.len(), 4, "{counts:?}");
}

#[test]
fn a_name_is_there_for_certain_only_after_its_directory_was_synced() {
    let counts = count_over_seeds(|disk| {
        write_new(disk, "a", b"x").sync_all().expect("sync");
        write_new(disk, "b", b"x").sync_all().expect("sync");
        disk.power_loss();
        match disk.list(Path::new("/d")).expect("list").concat().as_str() {
            "ab" => "both",
            "a" => "first",
            "b" => "second",
            _ => "neither",
        }
    });
    assert_eq!(counts.len(), 4, "{counts:?}");
}

#[test]
fn a_rename_is_whole_or_not_at_all() {
    let counts = count_over_seeds(|disk| {
        sync(disk, &*write_new(disk, "a", b"old"));
        sync(disk, &*write_new(disk, "b", b"new"));
        disk.rename(&path("b"), &path("a")).expect("rename");
        assert_eq!(contents(disk, "a").as_deref(), Some(&b"new"[..]));
        disk.power_loss();
        match (contents(disk, "a").as_deref(), contents(disk, "b").as_deref()) {
            (Some(b"new"), None) => "renamed",
            (Some(b"old"), Some(b"new")) => "not",
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(counts.len(), 2, "{counts:?}");
}

#[test]
fn a_removal_may_come_back_and_a_directory_may_go_with_all_it_holds() {
    let counts = count_over_seeds(|disk| {
        sync(disk, &*write_new(disk, "a", b"x"));
        disk.remove(&path("a")).expect("remove");
        disk.create_directory(&path("sub")).expect("create");
        let below = disk.open(&path("sub").join("c"), OpenMode::CreateNew).expect("open");
        below.sync_all().expect("sync");
        disk.sync_directory(&path("sub")).expect("sync");
        disk.power_loss();
        match (contents(disk, "a").is_some(), disk.exists(&path("sub").join("c")).expect("exists")) {
            (true, true) => "both",
            (true, false) => "the removed one",
            (false, true) => "the made one",
            (false, false) => "neither",
        }
    });
    assert_eq!(counts.len(), 4, "{counts:?}");
}

#[test]
fn a_killed_process_loses_no_byte_but_its_handles_and_locks() {
    let disk = disk(1);
    let file = write_new(&disk, "a", b"unsynced");
    assert!(file.try_lock().expect("lock"));
    disk.crash_process();
    assert!(file.write_at(b"x", 0).is_err() && file.try_lock().is_err());
    assert_eq!(contents(&disk, "a").as_deref(), Some(&b"unsynced"[..]));
    let again = disk.open(&path("a"), OpenMode::Write).expect("open");
    assert!(again.try_lock().expect("lock"));
    drop(file);
    assert!(!disk.open(&path("a"), OpenMode::Write).expect("open").try_lock().expect("lock"), "still held");
}

#[test]
fn a_stop_ends_everything_until_the_power_comes_back() {
    let script = |disk: &SimDisk| -> io::Result<()> {
        let file = disk.open(&path("a"), OpenMode::Create)?;
        file.write_at(&[1; 5000], 0)?;
        file.sync_data()?;
        disk.sync_directory(Path::new("/d"))?;
        disk.rename(&path("a"), &path("b"))?;
        disk.sync_directory(Path::new("/d"))
    };
    let whole = disk(0);
    let first = whole.operations();
    script(&whole).expect("nothing fails");
    assert_eq!(whole.operations(), first + 6);
    for stop in first + 1..=first + 6 {
        let disk = disk(stop);
        disk.stop_at(stop);
        script(&disk).expect_err("the machine dies");
        assert!(disk.stopped() && disk.list(Path::new("/d")).is_err() && disk.exists(&path("a")).is_err());
        let operations = disk.operations();
        script(&disk).expect_err("it stays dead");
        assert_eq!(disk.operations(), operations);
        disk.power_loss();
        let found = contents(&disk, "b").or_else(|| contents(&disk, "a"));
        assert!(stop <= first + 4 || found.as_deref() == Some(&[1; 5000][..]), "what was synced before {stop}");
        script(&disk).expect("it works again");
    }
}

#[test]
fn a_disk_is_full_at_its_capacity_and_has_space_again_after_a_removal() {
    let disk = disk(1);
    disk.set_capacity(Some(5 * 4096));
    let file = write_new(&disk, "a", &[1; 3 * 4096]);
    assert_eq!((disk.used_bytes(), disk.free_bytes(&path("a")).expect("free")), (3 * 4096, 2 * 4096));
    file.reserve(0, 4 * 4096).expect("room for one page more");
    let other = disk.open(&path("b"), OpenMode::Create).expect("open");
    let error = other.write_at(&[1; 2 * 4096], 0).expect_err("full");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    file.write_at(&[2; 4 * 4096], 0).expect("reserved space is there");
    drop(other);
    disk.remove(&path("a")).expect("remove");
    disk.remove(&path("b")).expect("remove");
    assert_eq!(disk.used_bytes(), 4 * 4096, "an open handle holds the space");
    drop(file);
    assert_eq!(disk.used_bytes(), 0);
    write_new(&disk, "c", &[1; 5 * 4096]).set_length(4096).expect("cut");
    assert_eq!(disk.used_bytes(), 4096);
}

#[test]
fn faults_hit_what_they_name_and_nothing_else() {
    let disk = disk(1);
    let (a, b) = (write_new(&disk, "a", b"a"), write_new(&disk, "b", b"b"));
    disk.fail(Operation::Write, "d/b", 1, 2, ENOSPC);
    b.write_at(b"b", 0).expect("one succeeds first");
    a.write_at(b"a", 0).expect("another file");
    for _ in 0..2 {
        assert_eq!(b.write_at(b"b", 0).expect_err("it fails").kind(), io::ErrorKind::StorageFull);
    }
    b.write_at(b"b", 0).expect("it is over");
    disk.rename(&path("b"), &path("c")).expect("rename");
    disk.fail_next(Operation::Read, "d/c");
    assert_eq!(b.read_at(&mut [0], 0).expect_err("by its present name").raw_os_error(), Some(EIO));
    disk.flip_bit(&path("c"), 0).expect("flip");
    let mut byte = [0];
    b.read_exact_at(&mut byte, 0).expect("read");
    assert_eq!((byte[0] ^ b'b').count_ones(), 1);
    assert!(disk.flip_bit(&path("c"), 1).is_err() && disk.flip_bit(&path("b"), 0).is_err());
}

#[test]
fn one_seed_gives_one_history() {
    let history = |seed| {
        let disk = disk(seed);
        for round in 0..21u8 {
            let file = write_new(&disk, &format!("f{}", round % 3), &[round; 9000]);
            if round % 4 == 0 {
                sync(&disk, &*file);
            }
            if round % 7 == 6 {
                disk.power_loss();
            }
        }
        (disk.trace_hash(), disk.files())
    };
    assert!(history(5) == history(5));
    assert!((6..16).any(|seed| history(seed) != history(5)));
}

#[test]
fn a_fork_shares_the_past_and_not_the_future() {
    let disk = disk(1);
    let file = write_new(&disk, "a", &[1; 9000]);
    let fork = disk.fork(2);
    file.write_at(&[2; 9000], 0).expect("write");
    assert_eq!(contents(&fork, "a"), Some(vec![1; 9000]));
    write_new(&fork, "a", &[3; 10]);
    assert_eq!(contents(&disk, "a"), Some(vec![2; 9000]));
    fork.power_loss();
    file.sync_data().expect("the other machine still runs");
}

#[test]
fn a_directory_goes_once_it_is_empty_and_not_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let disks: [(Box<dyn Disk>, PathBuf); 2] =
        [(Box::new(disk(1)), path("sub")), (Box::new(crate::OsDisk::new()), folder.path().join("sub"))];
    for (disk, sub) in disks {
        let kind = |result: std::io::Result<()>| result.expect_err("refused").kind();
        assert_eq!(kind(disk.remove_directory(&sub)), std::io::ErrorKind::NotFound);
        disk.create_directory(&sub).expect("create");
        disk.open(&sub.join("a"), OpenMode::Create).expect("open");
        assert_eq!(kind(disk.remove_directory(&sub)), std::io::ErrorKind::DirectoryNotEmpty);
        disk.remove(&sub.join("a")).expect("remove");
        disk.remove_directory(&sub).expect("remove");
        assert!(!disk.exists(&sub).expect("ask"));
    }
}
