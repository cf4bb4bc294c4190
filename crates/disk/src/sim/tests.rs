use super::*;

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
