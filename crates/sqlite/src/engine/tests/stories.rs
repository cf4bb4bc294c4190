//! What users of comparable systems met, and what happens here.

use super::host::*;
use crate::engine::{
    AppendFailed, ClaimWon, CommitShape, Engine, Layout, LogPosition, OpenError, OpenOptions, Refused, StopCode,
    StopReason, Synchronous, read_status,
};
use highwater_base::{Millis, Offset};
use highwater_disk::sim::Operation;
use highwater_disk::{Disk, OpenMode, SimDisk};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn bound(seed: u64) -> SimDisk {
    let disk = disk(seed);
    bind_new(&disk);
    disk
}

fn layout() -> Layout {
    Layout::of(Path::new(PATH))
}

fn segments(disk: &SimDisk) -> Vec<String> {
    disk.list(&layout().log).expect("list")
}

fn found(disk: &SimDisk) -> Vec<u8> {
    read_file(disk, Path::new(PATH))
}

/// dqlite #309, P16: the disk runs full in the middle of a commit. The commit fails, the database stays usable, and
/// goes on once there is space.
#[test]
fn a_commit_that_does_not_fit_on_the_disk_fails_alone() {
    let disk = bound(1);
    let mut host = Host::fresh(&disk, 1);
    host.commit(3, &[1, 2, 3], true).expect("fits");
    for (round, spare) in [0, 4096, 8192, 16_384].into_iter().enumerate() {
        let (end, lsn) = (host.engine.confirmed_end(), host.engine.progress().last_lsn);
        disk.set_capacity(Some(disk.used_bytes() + spare));
        let pages = 300 * (round as u32 + 1);
        let many: Vec<u32> = (1..=pages).collect();
        assert!(matches!(host.append(pages, &many), Err(AppendFailed::Full)), "{spare} bytes left");
        assert!(host.engine.stop_reason().is_none());
        assert_eq!((host.engine.confirmed_end(), host.engine.progress().last_lsn), (end, lsn));
        disk.set_capacity(None);
        host.commit(4, &[1, 4], true).expect("goes on");
    }
    drop(host.engine);
    disk.crash_process();
    let engine = open(&disk).expect("open");
    assert_eq!(engine.progress().last_lsn, 6, "the failed ones left nothing");
    assert!(found(&disk) == bytes_of(host.promise.latest()));
}

/// lxd #6226: the machine stops with a full disk. The growth of the database file was reserved before the commit was
/// logged, so recovery needs nothing.
#[test]
fn recovery_works_with_zero_free_bytes() {
    let disk = bound(2);
    let mut host = Host::fresh(&disk, 2);
    host.commit(200, &(1..=200).collect::<Vec<_>>(), true).expect("grows");
    host.commit(40, &[1, 40], true).expect("shrinks");
    host.commit(200, &(1..=200).collect::<Vec<_>>(), true).expect("grows again");
    disk.set_capacity(Some(disk.used_bytes()));
    assert!(disk.free_bytes(Path::new("/d")).expect("free") == 0);
    disk.crash_process();
    let engine = open(&disk).expect("open on a full disk");
    assert_eq!(engine.progress().last_lsn, 4);
    assert!(found(&disk) == bytes_of(host.promise.latest()));
}

/// A sync of the log failed, and the process opened the database again. The page cache showed it the commits, the next
/// sync had nothing to do, and the power took commits that the stream already had: the database did not open any more.
#[test]
fn what_opening_shows_after_a_failed_sync_survives_the_power() {
    for seed in 0..20 {
        let disk = bound(seed);
        let mut host = Host::fresh(&disk, seed);
        host.commit(3, &[1, 2, 3], true).expect("commit");
        for _ in 0..4 {
            host.commit(3, &[1, 3], false).expect("commit");
        }
        disk.fail_next(Operation::Sync, ".log");
        host.engine.sync_log().expect_err("the sync fails");
        drop(host);
        disk.crash_process();
        let engine = open(&disk).expect("the process opens it again");
        let shown = (engine.progress().last_lsn, found(&disk));
        drop(engine);
        disk.power_loss();
        let engine = open(&disk).expect("opens after the power came back");
        assert!((engine.progress().last_lsn, found(&disk)) == shown, "seed {seed}");
    }
}

/// A bit that turned over under a synced commit is damage with a place, not a tail to cut; nothing is touched.
#[test]
fn a_flip_in_the_middle_of_the_log_is_refused_with_its_position() {
    let disk = bound(3);
    let mut host = Host::fresh(&disk, 3);
    let mut starts = vec![host.engine.confirmed_end()];
    for _ in 0..6 {
        host.commit(4, &[1, 2, 3, 4], true).expect("commit");
        starts.push(host.engine.confirmed_end());
    }
    drop(host);
    disk.crash_process();
    let length = starts[6].0;
    for (at, lsn) in [(starts[0].0 + 3, 2), (starts[2].0 + 60, 4), (starts[5].0 - 1, 6)] {
        let damaged = disk.fork(at);
        damaged.flip_bit(&layout().segment(LogPosition(0)), 64 + at).expect("flip");
        let before = damaged.files();
        let error = open(&damaged).err().expect("refused");
        assert_eq!(error.code(), "log_damaged");
        let place = starts[lsn - 2];
        assert!(error.to_string().contains(&format!("commit {lsn} at log position {place}")), "{error}");
        let after = damaged.files();
        let log = |files: &[(std::path::PathBuf, Vec<u8>)]| {
            files.iter().filter(|(path, _)| path != &layout().lock).cloned().collect::<Vec<_>>()
        };
        assert!(log(&before) == log(&after), "nothing was changed");
    }
    // Nothing follows the last record: what cannot be told from a torn tail is cut.
    let torn = disk.fork(9);
    torn.flip_bit(&layout().segment(LogPosition(0)), 64 + length - 1).expect("flip");
    assert_eq!(open(&torn).expect("opens").progress().last_lsn, 6);
    // Unless `meta` knows that the stream has it.
    let sealed = bound(4);
    let mut host = Host::fresh(&sealed, 4);
    host.commit(4, &[1, 2, 3, 4], true).expect("commit");
    let last = 63 + host.engine.confirmed_end().0;
    while host.engine.progress().acknowledged < host.engine.confirmed_end() {
        host.replicate(true).expect("acknowledge");
    }
    drop(host);
    sealed.crash_process();
    sealed.flip_bit(&layout().segment(LogPosition(0)), last).expect("flip");
    assert_eq!(open(&sealed).err().expect("refused").code(), "log_damaged");
}

/// Trailing zeros, as a file system leaves them when it made the file longer before it wrote the data.
#[test]
fn trailing_zeros_and_garbage_behind_the_log_are_cut() {
    for garbage in [vec![0; 5000], vec![0x48; 300], b"HWCR and more".to_vec()] {
        let disk = bound(4);
        let mut host = Host::fresh(&disk, 4);
        host.commit(2, &[1, 2], true).expect("commit");
        let end = host.engine.confirmed_end();
        drop(host);
        disk.crash_process();
        let file = disk.open(&layout().segment(LogPosition(0)), OpenMode::Write).expect("open");
        file.write_at(&garbage, 64 + end.0).expect("write");
        drop(file);
        let engine = open(&disk).expect("opens");
        assert_eq!((engine.progress().last_lsn, engine.confirmed_end()), (2, end));
        engine.close();
        assert_eq!(read_file(&disk, &layout().segment(LogPosition(0))).len() as u64, 64 + end.0);
    }
}

#[test]
fn files_of_another_version_or_another_log_are_refused() {
    let disk = bound(5);
    let mut host = Host::fresh(&disk, 5);
    host.commit(2, &[1, 2], true).expect("commit");
    drop(host);
    disk.crash_process();
    let path = layout().segment(LogPosition(0));
    let patched = |at: usize, value: u8, covered: std::ops::Range<usize>| {
        let disk = disk.fork(1);
        let mut bytes = read_file(&disk, &path);
        bytes[at] = value;
        let checksum = crc32c::crc32c(&bytes[covered.clone()]).to_le_bytes();
        bytes[covered.end..covered.end + 4].copy_from_slice(&checksum);
        disk.open(&path, OpenMode::Write).expect("open").write_at(&bytes, 0).expect("write");
        open(&disk).err().expect("refused").to_string()
    };
    let version = patched(8, 2, 0..60);
    assert!(version.contains("version 2"), "{version}");
    let lineage = patched(20, 1, 0..60);
    assert!(lineage.contains("another log"), "{lineage}");
    let start = 64 + Host::fresh(&disk.fork(1), 1).engine.record_end(1).map_or(0, |end| end.0) as usize;
    let record = patched(start + 4, 9, start..start + 44);
    assert!(record.contains("version 9"), "{record}");
}

/// Litestream #1083 and #422: with acknowledgements and checkpoints the log stays small; while a long reader keeps
/// checkpoints away it grows, and shrinks when the reader ends.
#[test]
fn log_segments_go_once_the_file_and_the_stream_have_them() {
    let disk = bound(6);
    let mut host = Host::fresh(&disk, 6);
    let database = host.engine.database();
    let acknowledge = |host: &mut Host| {
        while host.engine.progress().acknowledged < host.engine.confirmed_end() {
            host.replicate(true).expect("acknowledge");
        }
    };
    for _ in 0..60 {
        host.commit(6, &[1, 2, 3, 4, 5, 6], false).expect("commit");
        acknowledge(&mut host);
        host.checkpoint(&*database).expect("checkpoint");
        assert!(segments(&disk).len() <= 2);
    }
    for _ in 0..60 {
        host.commit(6, &[1, 2, 3, 4, 5, 6], false).expect("commit");
        acknowledge(&mut host);
    }
    let grown = segments(&disk).len();
    assert!(grown > 4, "{grown}");
    host.checkpoint(&*database).expect("checkpoint");
    assert!(segments(&disk).len() <= 2);
    for _ in 0..60 {
        host.commit(6, &[1, 2, 3, 4, 5, 6], false).expect("commit");
    }
    host.checkpoint(&*database).expect("checkpoint");
    assert!(segments(&disk).len() > 4, "the stream does not have them");
    acknowledge(&mut host);
    assert!(segments(&disk).len() <= 2);
    assert!(host.engine.log.bytes() < 20_000);
    drop(host);
    disk.power_loss();
    assert_eq!(open(&disk).expect("open").progress().last_lsn, 181);
}

/// The backlog is judged on exact sizes, before a transaction, and one commit may pass it.
#[test]
fn a_full_backlog_refuses_the_next_write_and_nothing_else() {
    let disk = bound(7);
    let mut options = options();
    options.max_pending_bytes = 4_000;
    let engine = Engine::open(dynamic(&disk), Path::new(PATH), options).expect("open");
    let mut host = Host::new(engine, promise(&disk), 7);
    host.commit(30, &(1..=30).collect::<Vec<_>>(), false).expect("one commit larger than the limit");
    let pending = host.engine.pending_bytes();
    assert!(pending >= 4_000);
    let refused = host.engine.admit_write().expect_err("full");
    assert_eq!(refused, Refused::BacklogFull { pending_bytes: pending, max_pending_bytes: 4_000 });
    assert_eq!(refused.code(), "backlog_full");
    let mut log = Vec::new();
    host.engine.read_log(LogPosition(0), pending as usize, &mut log).expect("reads go on");
    while host.engine.pending_bytes() >= 4_000 {
        host.replicate(true).expect("acknowledge");
    }
    host.engine.admit_write().expect("there is room");
}

/// R3: the local commit failed after its record was logged. It is cut off, durably, and no reader of the log sees it.
#[test]
fn a_record_that_was_not_confirmed_is_never_sent() {
    let disk = bound(8);
    let mut host = Host::fresh(&disk, 8);
    let woken = Arc::new(AtomicU64::new(0));
    let counter = woken.clone();
    host.engine.on_confirmed(Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    host.commit(2, &[1, 2], true).expect("commit");
    let end = host.engine.confirmed_end();
    host.append(3, &[1, 3]).expect("append");
    assert_eq!(host.engine.confirmed_end(), end);
    let mut log = Vec::new();
    assert!(host.engine.read_log(end, 1, &mut log).is_err());
    host.engine.cut().expect("cut");
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    drop(host);
    disk.power_loss();
    assert_eq!(open(&disk).expect("open").confirmed_end(), end);
}

/// A page that a growth brings in without writing it is zero, on the primary after its next checkpoint and after a
/// recovery alike, whatever an earlier shrink left in the file.
#[test]
fn a_page_that_comes_back_unwritten_is_zero() {
    for recover in [false, true] {
        let disk = bound(9);
        let mut host = Host::fresh(&disk, 9);
        let database = host.engine.database();
        host.commit(9, &(1..=9).collect::<Vec<_>>(), true).expect("commit");
        host.checkpoint(&*database).expect("checkpoint");
        host.commit(4, &[1], true).expect("shrink");
        host.commit(8, &[1, 6], true).expect("grow, without 5, 7 and 8");
        let image = bytes_of(host.promise.latest());
        assert!(image[4 * PAGE..5 * PAGE].iter().all(|byte| *byte == 0));
        if recover {
            drop((host, database));
            disk.crash_process();
            drop(open(&disk).expect("open"));
        } else {
            host.checkpoint(&*database).expect("checkpoint");
            let checkpoint = host.engine.meta_for_test().checkpoint;
            assert_eq!(checkpoint.checksum, checksum(&disk, 8));
        }
        assert!(found(&disk) == image, "recover {recover}");
    }
}

#[test]
fn a_second_owner_is_told_who_the_first_one_is() {
    let disk = bound(10);
    let first = open(&disk).expect("open");
    match open(&disk) {
        Err(error @ OpenError::Busy { pid, .. }) => {
            assert_eq!(pid, std::process::id());
            assert!(error.to_string().contains(&pid.to_string()) && error.is_busy(), "{error}");
        }
        other => panic!("{:?}", other.err()),
    }
    first.close();
    first.close();
    assert_eq!(first.stop_reason().map(|reason| reason.code), Some(StopCode::Closed));
    assert!(first.admit_write().is_err());
    open(&disk).expect("free again").close();
}

#[test]
fn a_reset_outlives_the_process_and_a_failed_sync_does_not() {
    let disk = bound(11);
    let mut host = Host::fresh(&disk, 11);
    disk.fail_next(Operation::Sync, "/log/");
    host.commit(2, &[1, 2], false).expect("not synced");
    assert!(host.engine.sync_log().is_err());
    assert_eq!(host.engine.stop_reason().map(|reason| reason.code), Some(StopCode::LogFailed));
    assert!(matches!(host.append(2, &[1]), Err(AppendFailed::Stopped(_))));
    host.engine.close();
    let engine = open(&disk).expect("recovery looks at it anew");
    assert_eq!(engine.progress().last_lsn, 2);
    engine.stop(StopReason::new(StopCode::Fenced, "another process claimed epoch 9"));
    engine.stop(StopReason::new(StopCode::History, "later, and not noted"));
    engine.close();
    disk.power_loss();
    let error = open(&disk).err().expect("refused");
    assert_eq!(error.code(), "fenced");
    assert!(error.to_string().contains("epoch 9") && error.to_string().contains("restore"), "{error}");
}

/// A database was stopped because its stream had been made anew. Its file was copied without the folder, as the runbook
/// says, and held none of the commits since the last checkpoint: they lay in the log alone, which no command read.
#[test]
fn the_file_of_a_stopped_database_holds_every_commit_that_was_logged() {
    for dies in [false, true] {
        let disk = bound(11);
        let mut host = Host::fresh(&disk, 11);
        for pages in 2..40 {
            host.commit(pages, &[1, pages], true).expect("logged");
        }
        host.engine.stop(StopReason::new(StopCode::Recreated, "the stream was made anew"));
        if dies {
            drop(host.engine);
            disk.crash_process();
            assert_eq!(open(&disk).err().expect("refused").code(), "recreated");
        } else {
            host.engine.close();
        }
        assert!(found(&disk) == bytes_of(host.promise.latest()), "dies: {dies}");
    }
}

#[test]
fn commits_that_no_replica_could_apply_are_refused() {
    let disk = bound(12);
    let engine = open(&disk).expect("open");
    let append = |page_size, pages_after, pages: &[u32], version: u8| {
        let mut fill = |_: usize, buffer: &mut [u8]| {
            buffer.fill(version);
            Ok(())
        };
        engine.append_commit(CommitShape { page_size, pages_after, pages }, &mut fill)
    };
    assert!(matches!(append(1024, 2, &[1, 2], 2), Err(AppendFailed::PageSize { expected: 512, found: 1024 })));
    assert!(matches!(append(512, 2, &[2, 1], 2), Err(AppendFailed::Shape)));
    assert!(matches!(append(512, 2, &[0, 1], 2), Err(AppendFailed::Shape)));
    assert!(matches!(append(512, 0, &[1], 2), Err(AppendFailed::Shape)));
    assert!(matches!(append(512, 2, &[1, 2], 1), Err(AppendFailed::LeavesWal)));
    let end = append(512, 2, &[1, 2, 3, 9], 2).expect("pages past the end are left out");
    assert!(matches!(append(512, 2, &[1], 2), Err(AppendFailed::Unconfirmed)));
    engine.confirm();
    assert_eq!(engine.confirmed_end(), end);
}

/// R5: under `synchronous=OFF` nothing is synced, so a loss of power may take anything that the stream does not have;
/// but what opens is a state that once was, or it is refused.
#[test]
fn with_synchronous_off_a_loss_of_power_is_told_and_never_served_torn() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..150 {
        let disk = bound(seed);
        disk.power_loss();
        let mut host = Host::fresh(&disk, seed);
        host.engine.set_synchronous(Synchronous::Off).expect("off");
        let database = host.engine.database();
        for round in 0..6 {
            host.commit(5, &[1, 2, 3, 4, 5], false).expect("commit");
            if round % 2 == 1 {
                host.checkpoint(&*database).expect("checkpoint");
            }
        }
        if seed % 3 == 0 {
            host.engine.close();
        }
        disk.power_loss();
        match open(&disk) {
            Ok(engine) => {
                let lsn = engine.progress().last_lsn as usize;
                let (is, should) = (found(&disk), bytes_of(&host.promise.states[lsn - 1]));
                let differ = is.iter().zip(&should).position(|(a, b)| a != b);
                assert!(is == should, "seed {seed} lsn {lsn} {} {} {differ:?}", is.len(), should.len());
                assert!(seed % 3 != 0 || lsn == 7, "closed means synced");
                opened += 1;
            }
            Err(error) => {
                assert!(seed % 3 != 0, "seed {seed}: {error}");
                assert_eq!(error.code(), "foreign_write", "seed {seed}");
                refused += 1;
            }
        }
    }
    assert!(opened > 50 && refused > 0, "{opened} opened, {refused} refused");
}

/// A claim inside a run of parts: the partly sent record starts over.
#[test]
fn a_claim_moves_sending_back_to_the_start_of_the_voided_record() {
    let disk = bound(13);
    let mut host = Host::fresh(&disk, 13);
    host.commit(30, &(1..=30).collect::<Vec<_>>(), false).expect("commit");
    while host.engine.progress().acknowledged_lsn < 1
        || host.engine.record_start(host.engine.progress().acknowledged) == Some(host.engine.progress().acknowledged)
    {
        host.replicate(true).expect("acknowledge");
    }
    let progress = host.engine.progress();
    assert!(progress.acknowledged < progress.confirmed_end, "the middle of commit 2");
    let resume = host.engine.record_start(progress.acknowledged).expect("in the log");
    assert_eq!(resume, host.engine.record_end(1).expect("the record before"));
    let claim = ClaimWon { epoch: 5, stream_end: Offset(90_000), resume, next_seq: 1 };
    host.engine.save_epoch(claim).expect("save");
    let after = host.engine.progress();
    assert_eq!((after.acknowledged, after.acknowledged_lsn, after.epoch, after.next_seq), (resume, 1, 5, 1));
    drop(host);
    disk.power_loss();
    assert_eq!(open(&disk).expect("open").progress(), after);
}

#[test]
fn the_status_page_is_published_by_rename_and_read_from_outside() {
    let disk = bound(14);
    let mut host = Host::fresh(&disk, 14);
    host.commit(2, &[1, 2], true).expect("commit");
    assert!(read_status(&disk, Path::new(PATH)).is_err());
    host.engine.publish_status(Millis(1)).expect("publish");
    let read = read_status(&disk, Path::new(PATH)).expect("read");
    assert!(read.owner_lives && read.age_ms > 1_000 && read.pid == std::process::id());
    assert_eq!(read.status["commits"]["logged"], 2);
    assert_eq!(read.status["commits"]["pending"], 2);
    assert_eq!(read.status["commits"]["pending_bytes"], host.engine.pending_bytes());
    for key in ["path", "url", "role", "epoch", "commits", "replication", "stream", "ownership"] {
        assert!(read.status.get(key).is_some(), "{key}");
    }
    assert!(!disk.exists(&layout().status_new).expect("ask"));
}

/// `synchronous=NORMAL` on the real disk and with the real timer: no commit waits for a sync, and 200 ms later nothing
/// is unsynced.
#[test]
fn the_timer_syncs_the_log_of_a_normal_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk: Arc<dyn Disk> = Arc::new(highwater_disk::OsDisk::new());
    let path = folder.path().join("app.db");
    crate::bind::bind(&disk, &path, crate::bind::BindOptions::default(), &stream(), &mut |_, _| ()).expect("bind");
    let engine = Engine::open(disk.clone(), &path, OpenOptions::default()).expect("open");
    let mut fill = |_: usize, buffer: &mut [u8]| {
        buffer.fill(2);
        Ok(())
    };
    engine.append_commit(CommitShape { page_size: 4096, pages_after: 1, pages: &[1] }, &mut fill).expect("append");
    engine.confirm();
    assert!(engine.log.needs_sync());
    let started = std::time::Instant::now();
    while engine.log.needs_sync() || !engine.layout().status.exists() {
        assert!(started.elapsed().as_secs() < 10, "the timer does not run");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    engine.close();
    let read = read_status(&*disk, &path).expect("the last page stays");
    assert_eq!(read.status["ownership"]["state"], "closed");
}
