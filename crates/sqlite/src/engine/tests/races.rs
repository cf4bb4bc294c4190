//! Threads that meet at the worst moment.

use super::hooked::Hooks;
use super::host::*;
use crate::engine::timer::own;
use crate::engine::{Acknowledgement, CommitShape, Engine, Layout, OpenOptions, Seal, StopCode, Synchronous, lock};
use crate::host::threads::refusals;
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Offset, Random};
use highwater_disk::SimDisk;
use highwater_disk::sim::Operation;
use highwater_disk::watched::{Call, WatchedDisk};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// A bound database on a disk with hooks.
fn open_hooked(disk: &SimDisk) -> (Arc<Engine>, Arc<Hooks>) {
    open_hooked_with(disk, options())
}

fn open_hooked_with(disk: &SimDisk, options: OpenOptions) -> (Arc<Engine>, Arc<Hooks>) {
    let hooks = Arc::<Hooks>::default();
    let hooked = WatchedDisk::new(disk.clone(), hooks.clone());
    let engine = Engine::open(Arc::new(hooked), Path::new(PATH), options).expect("open");
    (engine, hooks)
}

fn layout() -> Layout {
    Layout::of(Path::new(PATH))
}

/// A database with timer threads.
fn timed(seed: u64) -> (Arc<Engine>, Arc<Hooks>) {
    let disk = disk(seed);
    bind_new(&disk);
    open_hooked_with(&disk, OpenOptions { timer: true, ..options() })
}

/// A commit under NORMAL.
fn commit(engine: &Engine) {
    append_segment(engine, &|| ());
    engine.confirm();
}

fn eventually_synced(engine: &Engine) {
    let started = Instant::now();
    while engine.log.needs_sync() {
        assert!(started.elapsed() < Duration::from_secs(10), "the log is not synced in the background");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Logs pages 2 to 40, which do not compress: more than a segment takes. `begun` is called once the record is begun.
fn append_segment(engine: &Engine, begun: &dyn Fn()) {
    let pages: Vec<u32> = (2..=40).collect();
    let shape = CommitShape { page_size: PAGE as u32, pages_after: 40, pages: &pages };
    let mut fill = |index: usize, page: &mut [u8]| {
        if index == 0 {
            begun();
        }
        page.copy_from_slice(&page_of_segment(pages[index]));
        Ok(())
    };
    engine.append_commit(shape, &mut fill).expect("append");
}

fn page_of_segment(number: u32) -> Vec<u8> {
    let mut random = SplitMix::new(u64::from(number));
    (0..PAGE / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

/// The stream takes everything.
fn acknowledge(engine: &Engine) {
    let progress = engine.progress();
    let (from, to) = (progress.acknowledged, progress.confirmed_end);
    let incarnation = engine.binding().incarnation;
    let seal = Seal {
        incarnation,
        epoch: progress.epoch,
        seq: progress.next_seq,
        from,
        to,
        digest: Digest::of(b"all of it"),
        stream_offset: progress.stream_end,
    };
    engine.save_seal(seal).expect("seal");
    let stream_end = Offset(progress.stream_end.0 + to.since(from));
    engine.save_acknowledged(Acknowledgement { upto: to, stream_end, next_seq: seal.seq + 1 }).expect("acknowledge");
}

/// A FULL commit begins a segment while another thread's sync of the log is under way: the segment's name is synced
/// with the commit, and not taken for synced with what that thread saw.
#[test]
fn a_segment_that_begins_during_another_threads_sync_keeps_its_name_when_the_power_fails() {
    for seed in 0..16 {
        let disk = disk(seed);
        bind_new(&disk);
        let (engine, hooks) = open_hooked(&disk);
        // Two full segments: the next record begins the third, and the second one's name waits for a sync.
        for _ in 0..2 {
            append_segment(&engine, &|| ());
            engine.confirm();
        }
        let ((start, started), (begun, begins), (finish, finishes)) = (channel(), channel(), channel::<()>());
        hooks.at(Call::Sync, &layout().log, move || {
            start.send(()).expect("a writer");
            begins.recv().expect("a record that is begun");
        });
        let committing = engine.clone();
        let writer = thread::spawn(move || {
            started.recv().expect("a sync under way");
            append_segment(&committing, &|| {
                begun.send(()).expect("the sync");
                finishes.recv().expect("the end of the sync");
            });
            committing.sync_log().expect("the sync of a FULL commit");
            committing.confirm();
        });
        engine.sync_log().expect("sync");
        finish.send(()).expect("a writer");
        writer.join().expect("a commit");
        let committed = engine.progress().last_lsn;
        drop(engine);
        disk.power_loss();
        assert_eq!(open(&disk).expect("open").progress().last_lsn, committed, "seed {seed}");
    }
}

/// The upkeep notes its checkpoint while a connection notes a later one: the later one stands, for the log below it is
/// gone, and the next open finds all that it needs.
#[test]
fn of_two_checkpoints_at_once_the_later_one_stands_and_the_database_opens_again() {
    let disk = disk(1);
    bind_new(&disk);
    let (engine, hooks) = open_hooked(&disk);
    let ends = [(); 4].map(|()| {
        append_segment(&engine, &|| ());
        engine.confirm();
        engine.confirmed_end()
    });
    acknowledge(&engine);
    let file = engine.database();
    for number in 2..=40 {
        file.write_at(&page_of_segment(number), u64::from(number - 1) * PAGE as u64).expect("write");
    }
    file.sync_data().expect("sync");
    let (done, finished) = channel();
    let (earlier, later) = (ends[1], ends[3]);
    let connection = engine.clone();
    // The look at the file is the last step before the position is noted.
    hooks.at(Call::Read, Path::new(PATH), move || {
        thread::spawn(move || {
            connection.checkpointed(later).expect("checkpoint");
            drop(connection);
            done.send(()).expect("the test");
        });
        // Time for the other one to overtake, if it can.
        thread::sleep(Duration::from_millis(200));
    });
    engine.checkpointed(earlier).expect("checkpoint");
    finished.recv().expect("the other checkpoint");
    assert_eq!(engine.meta_for_test().checkpoint.position, later);
    drop((engine, file));
    disk.crash_process();
    let engine = open(&disk).expect("nothing is wrong with it");
    assert_eq!(engine.progress().last_lsn, 5);
    engine.close();
}

/// SQLite has published a commit whose writer has not left yet, and another connection's checkpoint has copied its pages:
/// one that had come back unwritten before is not taken for an old shrink's remains and zeroed.
#[test]
fn a_checkpoint_leaves_the_pages_alone_that_a_commit_not_yet_confirmed_writes() {
    let disk = disk(1);
    bind_new(&disk);
    let mut host = Host::fresh(&disk, 1);
    let file = host.engine.database();
    host.commit(5, &[1, 2, 3, 4, 5], true).expect("grow");
    host.commit(2, &[1], true).expect("shrink");
    host.commit(5, &[1, 5], true).expect("grow, and leave two pages out");
    let before = host.engine.confirmed_end();
    host.append(5, &[1, 3]).expect("append");
    let page = host.promise.attempted.as_ref().and_then(|image| image[2].clone()).expect("page 3");
    file.write_at(&page, 2 * PAGE as u64).expect("the other connection's copy");
    host.engine.checkpointed(before).expect("checkpoint");
    host.confirm();
    let mut found = vec![0; PAGE];
    file.read_exact_at(&mut found, 2 * PAGE as u64).expect("read");
    assert!(found == *page, "page 3 is what was committed");
    host.checkpoint(&*file).expect("checkpoint");
    assert_eq!(host.engine.meta_for_test().checkpoint.position, host.engine.confirmed_end());
    assert!(read_file(&disk, Path::new(PATH)) == bytes_of(host.promise.latest()));
}

/// The system has no thread for the timer: a commit under NORMAL is not left unsynced, and the next one asks again.
#[test]
fn without_a_thread_for_the_timer_a_normal_commit_is_synced_at_once_and_the_next_one_asks_again() {
    own::make();
    let (engine, _) = timed(1);
    // Once for the sync, once for the status page.
    refusals::set(2);
    commit(&engine);
    assert!(!engine.log.needs_sync(), "no timer would sync it");
    commit(&engine);
    assert!(engine.log.needs_sync(), "the timer will");
    eventually_synced(&engine);
    engine.close();
}

/// A disk that hangs in one database's sync does not keep the others from theirs.
#[test]
fn a_sync_that_hangs_leaves_the_background_syncs_of_other_databases_alone() {
    own::make();
    let ((hung, hooks), (other, _)) = (timed(1), timed(2));
    let ((hangs, hanging), (release, released)) = (channel(), channel::<()>());
    let segment = layout().segment(hung.log.tail_for_test());
    hooks.at(Call::Sync, &segment, move || {
        hangs.send(()).expect("the test");
        released.recv().expect("the end");
    });
    hung.append_commit(CommitShape { page_size: PAGE as u32, pages_after: 2, pages: &[2] }, &mut |_, page| {
        page.fill(1);
        Ok(())
    })
    .expect("append");
    hung.confirm();
    hanging.recv_timeout(Duration::from_secs(10)).expect("a sync under way");
    commit(&other);
    eventually_synced(&other);
    release.send(()).expect("the hung sync");
    eventually_synced(&hung);
    hung.close();
    other.close();
}

/// A commit was promised its sync, and the next transaction's writer runs with OFF.
#[test]
fn a_writer_with_off_does_not_cancel_the_sync_that_the_commit_before_was_promised() {
    let disk = disk(1);
    bind_new(&disk);
    let (engine, _) = open_hooked(&disk);
    commit(&engine);
    engine.set_synchronous(Synchronous::Off).expect("off");
    engine.tick();
    assert!(!engine.log.needs_sync());
    commit(&engine);
    engine.tick();
    assert!(engine.log.needs_sync(), "OFF asks for nothing");
}

/// After a failed write or sync, the system may call the next one a success without anything of it being on the disk.
#[test]
fn a_database_that_a_failed_write_of_meta_stopped_writes_nothing_more() {
    let disk = disk(1);
    bind_new(&disk);
    let (engine, _) = open_hooked(&disk);
    commit(&engine);
    disk.fail_next(Operation::Write, "meta");
    let progress = engine.progress();
    let acknowledged =
        Acknowledgement { upto: progress.confirmed_end, stream_end: Offset(9), next_seq: progress.next_seq + 1 };
    engine.save_acknowledged(acknowledged).expect_err("a failed write");
    assert_eq!(engine.stop_reason().map(|reason| reason.code), Some(StopCode::LogFailed));
    let operations = disk.operations();
    engine.save_acknowledged(acknowledged).expect_err("stopped");
    engine.sync_log().expect_err("stopped");
    engine.checkpointed(progress.confirmed_end).expect_err("stopped");
    assert_eq!(disk.operations(), operations, "nothing was tried again");
}

/// Two threads sync the log, and the first one's sync fails: the second one's is not a success, for the system has given
/// up what it could not write.
#[test]
fn a_sync_that_waits_behind_one_that_fails_fails_too() {
    let disk = disk(1);
    bind_new(&disk);
    let (engine, hooks) = open_hooked(&disk);
    commit(&engine);
    let segment = layout().segment(engine.log.tail_for_test());
    disk.fail_next(Operation::Sync, &segment.display().to_string());
    let (second, seconds) = channel();
    let waiting = engine.clone();
    hooks.at(Call::Sync, &segment, move || {
        second.send(thread::spawn(move || waiting.sync_log().is_ok())).expect("the test");
        thread::sleep(Duration::from_millis(100));
    });
    engine.sync_log().expect_err("a failed sync");
    let second = seconds.recv().expect("a thread").join().expect("its result");
    assert!(!second, "what is on the disk is unknown");
}

/// A commit is logged and acknowledged while the status page is being put together: it does not show more acknowledged
/// than logged, which once came out as a pending count below zero.
#[test]
fn what_is_acknowledged_is_never_more_than_what_is_logged() {
    let disk = disk(1);
    bind_new(&disk);
    let (engine, _) = open_hooked(&disk);
    let mut meta = lock(&engine.meta);
    let watched = engine.clone();
    let watcher = thread::spawn(move || watched.progress());
    // Time for it to read whatever it reads without `meta`.
    thread::sleep(Duration::from_millis(100));
    commit(&engine);
    let end = engine.confirmed_end();
    (meta.acknowledged, meta.acknowledged_lsn) = (end, 2);
    drop(meta);
    let progress = watcher.join().expect("progress");
    assert!(progress.acknowledged_lsn <= progress.last_lsn, "{progress:?}");
    assert!(progress.acknowledged <= progress.confirmed_end, "{progress:?}");
}
