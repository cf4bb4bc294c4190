//! Data files in an object store: what moves, what reads find, and what a bad or absent object store does to it.

use crate::tier::{Fake, LIFE, Wrong, damage, folder, make_folder, names, with};
use crate::world::{DIRECTORY, World, disk as new_disk};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_disk::{Disk, SimDisk};
use highwater_store::{DataFault, Erased, Life, MoveError, OpenError, ReadError};
use std::path::Path;
use std::sync::Arc;

/// A store of five objects in several files of 256 KiB, the last of which is written on.
fn filled(disk: &SimDisk, options: highwater_store::Options) -> World {
    let mut world = World::new(disk, options);
    for _ in 0..3 {
        (0..5).for_each(|object| world.append(object, 70_000));
        world.checkpoint().expect("sound");
    }
    world
}

fn local_files(disk: &SimDisk) -> Vec<String> {
    let names = disk.list(Path::new(DIRECTORY)).expect("a folder");
    names.into_iter().filter(|name| name.starts_with("data-") && !name.contains('.')).collect()
}

#[test]
fn a_moved_file_leaves_the_disk_and_reads_the_same_before_and_after_a_restart() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let mut world = filled(&disk, with(fake.clone()));
    let before = (local_files(&disk).len(), world.store.plan_cold());
    assert!(before.0 > 3 && before.1.cold_files == 0, "{before:?}");
    let moved = world.move_all().expect("a sound object store");
    assert_eq!(moved, before.1.candidates.len());
    assert_eq!(local_files(&disk).len(), before.0 - moved, "what moved is gone from the disk");
    let plan = world.store.plan_cold();
    assert_eq!((plan.cold_files, plan.candidates.len()), (moved as u64, 0));
    assert_eq!(plan.cold_bytes + plan.local_bytes, before.1.local_bytes);
    assert_eq!(fake.objects().values().map(|object| object.len() as u64).sum::<u64>(), plan.cold_bytes);
    world.check_payload();
    let mut world = world.reopen().expect("sound");
    assert_eq!(world.store.plan_cold(), plan);
    assert_eq!(world.store.status().file_bytes, before.1.local_bytes);
    // Life goes on, and what is written on is no file that left.
    (0..5).for_each(|object| world.append(object, 30));
    world.checkpoint().expect("sound");
    world.reopen().expect("sound").check_payload();
}

#[test]
fn an_object_store_that_does_not_keep_what_it_is_given_never_costs_the_file_on_disk() {
    for wrong in [Wrong::Down, Wrong::Loses, Wrong::Truncates, Wrong::Flips, Wrong::AnswersShort, Wrong::BreaksOff] {
        let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
        let mut world = filled(&disk, with(fake.clone()));
        let (before, plan) = (local_files(&disk), world.store.plan_cold());
        fake.set(wrong);
        let error = world.move_all().expect_err("what is wrong is noticed");
        assert!(matches!(error, MoveError::Tier { .. } | MoveError::Differs(_)), "{wrong:?}: {error}");
        assert_eq!((local_files(&disk), world.store.plan_cold()), (before, plan), "{wrong:?}");
        world.check_payload();
        let mut world = world.reopen().expect("sound");
        fake.set(Wrong::Nothing);
        assert!(world.move_all().expect("sound again") > 0);
        world.check_payload();
        // The attempt that failed left no object under another name.
        let plan = world.store.plan_cold();
        assert_eq!(fake.objects().len() as u64, plan.cold_files, "{wrong:?}");
    }
}

#[test]
fn without_its_object_store_a_store_writes_checkpoints_compacts_and_reads_what_is_local() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let mut world = filled(&disk, with(fake.clone()));
    // Small ends of objects, which a later checkpoint would like to merge, leave with their files.
    (20..60).for_each(|object| world.append(object, 900));
    world.checkpoint().expect("sound");
    world.append(9, 250_000);
    world.checkpoint().expect("sound");
    world.move_all().expect("sound");
    fake.set(Wrong::Down);
    let mut world = world.reopen_unchecked();
    (20..60).for_each(|object| world.append(object, 50));
    world.append(9, 1000);
    world.checkpoint().expect("no checkpoint asks the object store");
    world.remove(0);
    (1..4).for_each(|object| world.release(object, 900));
    world.compact_all();
    let refused = world.read(1, 200_000, 10).expect_err("it lies in the object store");
    match refused {
        ReadError::Unreachable { object, why } => {
            assert!(object.starts_with("fake://bucket/life-0000000000000007/g3/data-0000000"), "{object}");
            assert_eq!(why, "connection refused");
        }
        other => panic!("{other}"),
    }
    let plan = world.plan(1, 200_000, 10);
    assert!(world.reader.reaches_out(&plan));
    let end = world.model.objects[&9].end;
    let plan = world.plan(9, end - 1000, 1000);
    assert!(!world.reader.reaches_out(&plan));
    world.read(9, end - 1000, 1000).expect("it lies on the disk");
    fake.set(Wrong::Nothing);
    world.check_payload();
    world.reopen().expect("sound").check_payload();
}

#[test]
fn objects_that_are_gone_short_or_altered_are_damage_by_name() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let mut world = filled(&disk, with(fake.clone()));
    world.move_all().expect("sound");
    let (first, sound) = fake.objects().first_key_value().map(|(n, o)| (n.clone(), o.clone())).expect("it moved");
    for (fault, altered) in [
        (DataFault::Missing, None),
        (DataFault::Short, Some(sound[..5000].to_vec())),
        (DataFault::Checksum, Some([&sound[..9000], &[0xa5; 16], &sound[9016..]].concat())),
        (DataFault::Misplaced, None),
    ] {
        match (fault, altered) {
            (DataFault::Misplaced, _) => {
                let other = fake.objects().values().nth(1).expect("several moved").clone();
                fake.objects().insert(first.clone(), other);
            }
            (_, Some(altered)) => drop(fake.objects().insert(first.clone(), altered)),
            (_, None) => drop(fake.objects().remove(&first)),
        }
        let found = (0..5).find_map(|object| world.read(object, object % 3 * 1000, 70_000).err());
        match found {
            Some(ReadError::Damaged { path, fault: found, .. }) => {
                assert_eq!((path.display().to_string(), found), (format!("fake://bucket/{first}"), fault));
            }
            other => panic!("{fault:?}: {other:?}"),
        }
    }
    fake.objects().insert(first, sound);
    world.check_payload();
}

#[test]
fn a_folder_that_is_not_there_is_not_taken_for_one_that_lost_its_objects_and_is_never_made() {
    let disk = new_disk(1);
    let mut world = filled(&disk, folder(&disk));
    assert!(matches!(world.move_all(), Err(MoveError::Tier { .. })));
    assert!(names(&disk).is_empty(), "nothing is written where no folder was made");
    make_folder(&disk);
    assert!(world.move_all().expect("sound") > 2);
    world.check_payload();
    let away = new_disk(2);
    let error = highwater_store::ColdTier::read(
        &highwater_store::Folder::new(Arc::new(away), "/unmounted"),
        "life-1/g3/data-00000001-1",
        0,
        10,
    );
    assert!(matches!(error, Err(highwater_store::ColdError::Unreachable(_))), "{error:?}");
}

#[test]
fn a_file_that_is_mostly_dead_comes_back_is_emptied_and_leaves_nothing_behind() {
    let disk = new_disk(1);
    make_folder(&disk);
    let mut world = filled(&disk, folder(&disk));
    world.move_all().expect("sound");
    let objects = names(&disk).len();
    (0..4).for_each(|object| world.release(object, 999));
    (0..4).for_each(|object| world.append(object, 10));
    world.checkpoint().expect("sound");
    world.compact_all();
    let plan = world.store.plan_cold();
    assert!(!plan.recalls.is_empty() && !world.store.compaction_due(), "what is away cannot be emptied: {plan:?}");
    assert_eq!(world.recall_all().expect("sound"), plan.recalls.len());
    world.check_payload();
    assert!(world.store.compaction_due(), "what came back can");
    assert!(world.compact_all() > 0);
    world.erase_all().expect("sound");
    assert!(names(&disk).len() < objects, "{:?}", names(&disk));
    assert_eq!(names(&disk).len() as u64, world.store.plan_cold().cold_files);
    world.check_payload();
    (0..5).for_each(|object| world.remove(object));
    world.checkpoint().expect("sound");
    world.erase_all().expect("sound");
    assert!(names(&disk).is_empty(), "{:?}", names(&disk));
    let left = disk.list(Path::new(DIRECTORY)).expect("a folder");
    assert!(!left.iter().any(|name| name.ends_with(".cold")), "{left:?}");
}

#[test]
fn an_object_goes_when_a_synced_index_no_longer_names_it_and_nobody_copies_it() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let mut world = filled(&disk, with(fake.clone()));
    world.move_all().expect("sound");
    let before = fake.objects().len();
    (0..5).for_each(|object| world.remove(object));
    assert_eq!(world.store.plan_cold().erasable, [], "the index on disk still names them");
    let pin = world.store.pin().expect("no checkpoint is under way");
    world.checkpoint().expect("sound");
    assert_eq!(world.store.plan_cold().erasable, [], "they are being copied");
    let name = pin.files().iter().find(|file| file.name.starts_with("data-")).expect("a data file");
    assert_eq!(pin.read(&name.name, 0, 6).expect("readable"), &b"HWDATA"[..], "a copy reads through");
    drop(pin);
    assert_eq!(world.store.plan_cold().erasable.len(), before);
    fake.set(Wrong::Down);
    assert!(world.erase_all().is_err());
    let world = world.reopen().expect("sound");
    fake.set(Wrong::Nothing);
    assert_eq!(world.erase_all().expect("sound"), before, "a restart forgets none");
    assert!(fake.objects().is_empty());
    assert_eq!(world.reopen().expect("sound").store.plan_cold().erasable, []);
}

/// Two lives of one directory share one object store: an older copy was restored while the newer one may still run.
#[test]
fn a_life_never_deletes_nor_writes_over_what_another_life_wrote() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let mut world = filled(&disk, with(fake.clone()));
    let first = world.store.plan_cold().candidates[0].file;
    world.move_one(first, LIFE, 1).expect("sound");
    // The copy is taken here; the newer life goes on and moves more.
    let copy = disk.fork(9);
    world.move_all().expect("sound");
    let newer = fake.objects().clone();
    let open = |options| World::open(Arc::new(copy.clone()), options, world.log.clone(), world.commands.clone());
    let mut older = open(with(fake.clone())).expect("sound");
    older.check_payload();
    let life = Life(8);
    for candidate in older.store.plan_cold().candidates {
        older.move_one(candidate.file, life, 2).expect("sound").expect("moved");
    }
    (0..5).for_each(|object| older.remove(object));
    older.checkpoint().expect("sound");
    let mut left = 0;
    for file in older.store.plan_cold().erasable {
        left += usize::from(older.reader.erase(file, life).expect("sound") == Erased::Left);
    }
    assert_eq!(left, 1, "the object that both lives know is the newer one's");
    assert_eq!(*fake.objects(), newer, "what the newer life wrote is there, unaltered, and nothing of the older one");
    world.check_payload();
}

/// As above, but nobody said that the directory was restored: the life is the same.
#[test]
fn a_directory_that_went_back_in_time_unnoticed_writes_over_no_object() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let world = filled(&disk, with(fake.clone()));
    let copy = disk.fork(9);
    world.move_all().expect("sound");
    let newer = fake.objects().clone();
    let open = World::open(Arc::new(copy), with(fake.clone()), world.log.clone(), world.commands.clone());
    let older = open.expect("sound");
    for candidate in older.store.plan_cold().candidates {
        older.move_one(candidate.file, LIFE, 9).expect("sound");
    }
    assert!(newer.iter().all(|(name, object)| fake.objects().get(name) == Some(object)));
    assert_eq!(fake.objects().len(), 2 * newer.len());
}

#[test]
fn a_damaged_file_stays_where_the_scrub_sees_it() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let world = filled(&disk, with(fake.clone()));
    let file = world.store.plan_cold().candidates[0].file;
    damage(&disk, &Path::new(DIRECTORY).join(format!("data-{file:08x}")), 9000);
    let error = world.move_one(file, LIFE, 1).expect_err("its blocks are verified first");
    assert!(matches!(error, MoveError::Damaged { position: 4096, .. }), "{error}");
    assert!(fake.objects().is_empty());
    assert!(!disk.list(Path::new(DIRECTORY)).expect("a folder").iter().any(|name| name.ends_with(".cold")));
}

#[test]
fn a_file_with_the_torn_end_of_a_crash_moves() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let mut world = filled(&disk, with(fake.clone()));
    let candidate = world.store.plan_cold().candidates[0];
    let path = Path::new(DIRECTORY).join(format!("data-{:08x}", candidate.file));
    let end = disk.files().into_iter().find(|(name, _)| *name == path).expect("there").1.len() as u64;
    damage(&disk, &path, end.next_multiple_of(4096));
    assert!(world.move_one(candidate.file, LIFE, 1).expect("sound").is_some());
    world.check_payload();
}

#[test]
fn a_store_with_files_away_does_not_open_without_its_object_store_or_with_a_marker_that_does_not_read() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let world = filled(&disk, with(fake.clone()));
    let moved = world.move_all().expect("sound");
    let open = |disk: &SimDisk, options| {
        World::open(Arc::new(disk.clone()), options, world.log.clone(), world.commands.clone()).err()
    };
    let error = open(&disk, crate::world::small());
    assert!(matches!(error, Some(OpenError::NoObjectStore { files, .. }) if files == moved), "{error:?}");
    let marker = disk.list(Path::new(DIRECTORY)).expect("a folder").into_iter().find(|name| name.ends_with(".cold"));
    let marker = Path::new(DIRECTORY).join(marker.expect("it moved"));
    let damaged = disk.fork(1);
    damage(&damaged, &marker, 30);
    let error = open(&damaged, with(fake.clone()));
    assert!(matches!(&error, Some(OpenError::Damaged { path, .. }) if *path == marker), "{error:?}");
    let later = disk.fork(1);
    later.open(&marker, highwater_disk::OpenMode::Write).expect("there").write_at(&[2], 8).expect("write");
    let error = open(&later, with(fake.clone()));
    assert!(matches!(&error, Some(OpenError::Version { path, version: 2 }) if *path == marker), "{error:?}");
}

/// The newest file that is left is in the object store, and nothing is written on there.
#[test]
fn after_a_restart_no_file_is_written_on_that_left() {
    let (disk, fake) = (new_disk(1), Arc::new(Fake::default()));
    let mut world = World::new(&disk, with(fake.clone()));
    world.append(1, 300_000);
    world.checkpoint().expect("sound");
    world.append(2, 250_000);
    world.checkpoint().expect("sound");
    world.move_all().expect("sound");
    world.remove(2);
    world.checkpoint().expect("sound");
    let mut world = world.reopen().expect("sound");
    world.erase_all().expect("sound");
    for round in 0..4 {
        world.append(1, 20);
        world.append(3, 100);
        world.checkpoint().unwrap_or_else(|error| panic!("round {round}: {error}"));
        world.check_payload();
    }
    world.reopen().expect("sound").check_payload();
}

/// Everything at once, in random order, through restarts and losses of power, with an object store that fails now and then.
#[test]
fn random_lives_with_a_failing_object_store_lose_nothing_and_leave_no_orphan() {
    for seed in 0..8 {
        let (mut random, disk) = (SplitMix::new(seed), new_disk(seed));
        let fake = Arc::new(Fake::default());
        let mut world = World::new(&disk, with(fake.clone()));
        for step in 0..100 {
            let object = random.next_u64() % 6;
            let wrong = [Wrong::Down, Wrong::Flips, Wrong::Truncates, Wrong::BreaksOff, Wrong::Loses];
            match random.next_u64() % 16 {
                0..6 => world.append(object, 1 + random.next_u64() % 60_000),
                6 => world.release(object, random.next_u64() % 1001),
                7 if world.model.objects.contains_key(&object) => world.remove(object),
                8 | 9 => world.checkpoint().expect("sound"),
                10 => drop(world.compact(200_000).expect("sound")),
                11 | 12 => {
                    fake.set(wrong[random.next_u64() as usize % 5]);
                    // What fails now is tried again later.
                    drop((world.move_all(), world.recall_all(), world.erase_all()));
                    fake.set(Wrong::Nothing);
                }
                13 => drop((world.move_all(), world.recall_all(), world.erase_all())),
                14 => {
                    disk.power_loss();
                    world = world.reopen().unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                }
                _ => world.check_payload(),
            }
        }
        world.checkpoint().expect("sound");
        world.check_payload();
        world.recall_all().expect("sound");
        world.compact_all();
        world.checkpoint().expect("sound");
        world.move_all().expect("sound");
        world.erase_all().expect("sound");
        let plan = world.store.plan_cold();
        let held: Vec<_> = fake.objects().keys().cloned().collect();
        // Objects of files that came back stay until these are deleted.
        assert!(held.len() as u64 >= plan.cold_files, "seed {seed}");
        for object in 0..6 {
            if world.model.objects.contains_key(&object) {
                world.remove(object);
            }
        }
        world.checkpoint().expect("sound");
        world.erase_all().expect("sound");
        assert!(fake.objects().is_empty(), "seed {seed}: {:?}", fake.objects().keys());
        assert!(fake.written.lock().expect("no test panics with it").len() > 1, "seed {seed} moved something");
    }
}
