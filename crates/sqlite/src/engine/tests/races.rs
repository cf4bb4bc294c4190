//! Threads that meet at the worst moment.

use super::hooked::{Call, HookedDisk, Hooks};
use super::host::*;
use crate::engine::{Acknowledgement, CommitShape, Engine, Layout, Seal};
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Offset, Random};
use highwater_disk::SimDisk;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A bound database on a disk with hooks.
fn open_hooked(disk: &SimDisk) -> (Arc<Engine>, Hooks) {
    let hooks = Hooks::default();
    let hooked = HookedDisk { disk: disk.clone(), hooks: hooks.clone() };
    let engine = Engine::open(Arc::new(hooked), Path::new(PATH), options()).expect("open");
    (engine, hooks)
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
        hooks.at(Call::Sync, &Layout::of(Path::new(PATH)).log, move || {
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
