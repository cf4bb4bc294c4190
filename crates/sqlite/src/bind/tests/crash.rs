//! The machine dies at every operation of a bind or a restore: the file is unbound and as it was, or bound and whole.

use crate::bind::{BindError, BindOptions, BoundStream, Restoring, bind};
use crate::engine::pages::PageTable;
use crate::engine::{CommitShape, Engine, OpenOptions};
use highwater_base::{Incarnation, Offset};
use highwater_disk::{Disk, OpenMode, SimDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn stream() -> BoundStream {
    BoundStream {
        url: "http://127.0.0.1:4437/v1/stream/shop/orders".into(),
        incarnation: Incarnation::new(1 << 52).expect("in range"),
        cluster_id: "one".into(),
        protocol: 11,
        end: Offset(77),
    }
}

fn path() -> PathBuf {
    PathBuf::from("/d/app.db")
}

fn dynamic(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_directory(Path::new("/d")).expect("create");
    disk.sync_directory(Path::new("/")).expect("sync");
    disk
}

fn contents(disk: &SimDisk) -> Option<Vec<u8>> {
    disk.files().into_iter().find(|(name, _)| *name == path()).map(|(_, bytes)| bytes)
}

fn open(disk: &SimDisk) -> Arc<Engine> {
    let options = OpenOptions { timer: false, ..OpenOptions::default() };
    Engine::open(dynamic(disk), &path(), options).expect("a bound database opens")
}

/// A database of some pages in rollback mode, as far as binding looks at it.
fn populated(pages: u32) -> Vec<u8> {
    let mut bytes = crate::bind::fresh::empty_page(512, 0);
    bytes[18..20].copy_from_slice(&[1, 1]);
    bytes[28..32].copy_from_slice(&pages.to_be_bytes());
    for number in 2..=pages {
        bytes.extend(std::iter::repeat_n(number as u8, 512));
    }
    bytes
}

/// The file as it is once it is in WAL mode: its counter moved too, which is SQLite's way of saying so.
fn same_but_for_the_mode(found: &[u8], original: &[u8]) -> bool {
    let mut original = original.to_vec();
    if found.get(18..20) == Some(&[2, 2]) {
        original[18..20].copy_from_slice(&[2, 2]);
        original[24..28].copy_from_slice(&found[24..28]);
        original[92..96].copy_from_slice(&found[92..96]);
    }
    found == original
}

/// Runs `attempt` on forks of `before`, dying at each of its operations; `check` looks at what is left, and the
/// attempt must then succeed.
fn every_death(
    before: &SimDisk,
    attempt: &dyn Fn(&SimDisk) -> Result<(), BindError>,
    check: &dyn Fn(&SimDisk, &str),
) -> u64 {
    let whole = before.fork(0);
    attempt(&whole).expect("without a fault");
    let operations = whole.operations() - before.operations();
    for stop in 1..=operations {
        for seed in 0..6 {
            let disk = before.fork(seed * 1000 + stop);
            disk.stop_at(disk.operations() + stop);
            drop(attempt(&disk));
            assert!(disk.stopped());
            if seed == 0 {
                disk.crash_process()
            } else {
                disk.power_loss()
            }
            let context = format!("stop {stop} of {operations}, seed {seed}");
            check(&disk, &context);
            if !Engine::is_bound(&disk, &path()).expect("ask") {
                attempt(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            }
            check(&disk, &context);
            assert!(Engine::is_bound(&disk, &path()).expect("ask"));
            disk.power_loss();
            check(&disk, &context);
        }
    }
    operations
}

#[test]
fn a_new_file_appears_bound_or_not_at_all() {
    let attempt = |disk: &SimDisk| {
        let options = BindOptions { page_size: 512, auto_vacuum: 0 };
        bind(&dynamic(disk), &path(), options, &stream(), &mut |_, _| ()).map(drop)
    };
    let check = |disk: &SimDisk, context: &str| {
        if Engine::is_bound(disk, &path()).expect("ask") {
            let engine = open(disk);
            assert_eq!((engine.progress().last_lsn, engine.progress().stream_end), (1, Offset(77)), "{context}");
            assert!(contents(disk) == Some(crate::bind::fresh::empty_page(512, 0)), "{context}");
            engine.close();
        } else {
            assert!(contents(disk).is_none_or(|bytes| bytes.is_empty()), "{context}");
        }
    };
    assert!(every_death(&disk(1), &attempt, &check) > 15);
}

#[test]
fn an_existing_file_is_bound_whole_or_left_alone() {
    let before = disk(2);
    let original = populated(150);
    let file = before.open(&path(), OpenMode::CreateNew).expect("create");
    file.write_at(&original, 0).and_then(|()| file.sync_all()).expect("write");
    drop(file);
    before.sync_directory(Path::new("/d")).expect("sync");
    let attempt =
        |disk: &SimDisk| bind(&dynamic(disk), &path(), BindOptions::default(), &stream(), &mut |_, _| ()).map(drop);
    let check = |disk: &SimDisk, context: &str| {
        let found = contents(disk).expect("it was there");
        assert!(same_but_for_the_mode(&found, &original), "{context}");
        if Engine::is_bound(disk, &path()).expect("ask") {
            let engine = open(disk);
            assert_eq!(found[18..20], [2, 2], "{context}");
            let mut log = Vec::new();
            let end = engine.progress().confirmed_end;
            engine.read_log(Default::default(), end.0 as usize, &mut log).expect("the image is there to be sent");
            engine.close();
        }
    };
    assert!(every_death(&before, &attempt, &check) > 15);
}

/// Some commits, as log bytes, the database after each, and where each ends.
fn history() -> (Vec<u8>, Vec<Vec<u8>>, Vec<usize>) {
    let disk = disk(3);
    bind(&dynamic(&disk), &path(), BindOptions { page_size: 512, auto_vacuum: 0 }, &stream(), &mut |_, _| ())
        .expect("bind");
    let engine = open(&disk);
    let (mut states, mut ends) = (vec![contents(&disk).expect("bound")], vec![engine.confirmed_end().0 as usize]);
    for (round, pages_after) in [5u32, 9, 3, 40, 40].into_iter().enumerate() {
        let pages: Vec<u32> = (1..=pages_after).filter(|n| *n == 1 || n % 2 == round as u32 % 2).collect();
        let mut state = states.last().expect("bound").clone();
        state.resize(pages_after as usize * 512, 0);
        let mut fill = |index: usize, buffer: &mut [u8]| {
            buffer.fill(if index == 0 { 2 } else { 16 * round as u8 + 3 });
            let start = (pages[index] as usize - 1) * 512;
            state[start..start + 512].copy_from_slice(buffer);
            Ok(())
        };
        engine.append_commit(CommitShape { page_size: 512, pages_after, pages: &pages }, &mut fill).expect("append");
        engine.confirm();
        states.push(state);
        ends.push(engine.confirmed_end().0 as usize);
    }
    let mut log = Vec::new();
    engine.read_log(Default::default(), *ends.last().expect("some"), &mut log).expect("read");
    (log, states, ends)
}

#[test]
fn a_restored_database_appears_whole_or_not_at_all() {
    let (log, states, _) = history();
    let last = states.last().expect("some").clone();
    let attempt = |disk: &SimDisk| {
        let mut restoring = Restoring::begin(&dynamic(disk), &path())?;
        log.chunks(300).try_for_each(|piece| restoring.push(piece))?;
        restoring.finish(&stream())
    };
    let check = |disk: &SimDisk, context: &str| {
        if Engine::is_bound(disk, &path()).expect("ask") {
            let engine = open(disk);
            assert_eq!((engine.progress().last_lsn, engine.progress().acknowledged_lsn), (6, 6), "{context}");
            assert!(contents(disk).as_ref() == Some(&last), "{context}");
            engine.close();
        } else {
            assert!(contents(disk).is_none(), "{context}");
        }
    };
    assert!(every_death(&disk(4), &attempt, &check) > 20);
}

/// A restore ends with any commit, whatever came of the next one: a part of it that a claim voided, or nothing.
#[test]
fn a_voided_run_leaves_no_trace_in_a_restore() {
    let (log, states, ends) = history();
    for lsn in 0..=states.len() {
        for cut in [1, 47, 60, 200] {
            let disk = disk(5);
            let mut restoring = Restoring::begin(&dynamic(&disk), &path()).expect("begin");
            let whole = lsn.checked_sub(1).map_or(0, |index| ends[index]);
            restoring.push(&log[..whole]).expect("whole records");
            let next = ends.get(lsn).copied().unwrap_or(log.len() + 1);
            let run = &log[whole..(whole + cut).min(next - 1)];
            restoring.push(run).expect("a part");
            assert_eq!((restoring.lsn(), restoring.partial_bytes()), (lsn as u64, run.len() as u64));
            restoring.void();
            if lsn < states.len() {
                restoring.push(&log[whole..ends[lsn]]).expect("the record from its first byte");
                let after = ends.get(lsn + 1).copied().unwrap_or(log.len() + 1);
                restoring.push(&log[ends[lsn]..(ends[lsn] + cut).min(after - 1)]).expect("a part, and no more");
            }
            let expected = lsn.min(states.len() - 1);
            restoring.finish(&stream()).expect("finish");
            assert!(contents(&disk).as_ref() == Some(&states[expected]), "lsn {lsn}, cut {cut}");
            let engine = open(&disk);
            assert_eq!(engine.progress().last_lsn, expected as u64 + 1);
            let file = engine.database();
            let table = PageTable::new(512, (states[expected].len() / 512) as u32, 0);
            assert_eq!(table.compute(&*file).expect("read"), engine.meta_for_test().checkpoint.checksum);
        }
    }
}

#[test]
fn a_record_too_large_for_memory_goes_through_a_file() {
    let disk = disk(6);
    bind(&dynamic(&disk), &path(), BindOptions::default(), &stream(), &mut |_, _| ()).expect("bind");
    let engine = open(&disk);
    let mut random = highwater_base::random::SplitMix::new(1);
    let mut fill = |index: usize, buffer: &mut [u8]| {
        for word in buffer.chunks_exact_mut(8) {
            word.copy_from_slice(&highwater_base::Random::next_u64(&mut random).to_le_bytes());
        }
        if index == 0 {
            buffer[18..20].copy_from_slice(&[2, 2]);
        }
        Ok(())
    };
    let pages: Vec<u32> = (1..=2500).collect();
    let shape = CommitShape { page_size: 4096, pages_after: 2500, pages: &pages };
    let end = engine.append_commit(shape, &mut fill).expect("append");
    engine.confirm();
    let mut log = Vec::new();
    engine.read_log(Default::default(), end.0 as usize, &mut log).expect("read");
    assert!(log.len() > 10_000_000);
    let copy = Path::new("/d/copy.db");
    let mut restoring = Restoring::begin(&dynamic(&disk), copy).expect("begin");
    let mut spilled = false;
    for piece in log.chunks(1 << 20) {
        restoring.push(piece).expect("push");
        spilled |= disk.exists(Path::new("/d/copy.db-highwater/record.new")).expect("ask");
    }
    assert!(spilled);
    restoring.finish(&stream()).expect("finish");
    assert!(!disk.exists(Path::new("/d/copy.db-highwater/record.new")).expect("ask"));
    engine.close();
    drop(engine);
    open(&disk).close();
    let files = disk.files();
    let bytes = |name: &Path| files.iter().find(|(path, _)| path == name).map(|(_, bytes)| bytes);
    assert!(bytes(copy) == bytes(&path()));
}

/// The bytes of one commit were changed on the way: the checksum it carries tells.
#[test]
fn a_restore_refuses_a_commit_that_does_not_follow() {
    let (log, _, ends) = history();
    let disk = disk(7);
    let mut restoring = Restoring::begin(&dynamic(&disk), &path()).expect("begin");
    restoring.push(&log[..ends[0]]).expect("the first");
    let error = restoring.push(&log[ends[1]..]).expect_err("the second is missing");
    assert!(error.to_string().contains("commit 3 follows commit 1"), "{error}");
    let mut restoring = Restoring::begin(&dynamic(&disk), Path::new("/d/other.db")).expect("begin");
    let mut log = log;
    log[ends[0] + 100] ^= 1;
    let error = restoring.push(&log).expect_err("damaged");
    assert!(error.to_string().contains("commit 2 of the stream"), "{error}");
}
