//! Threads that meet at the worst moment.

use super::hooked::{HookedDisk, Hooks};
use super::host::*;
use crate::engine::{CommitShape, Engine, Layout};
use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_disk::SimDisk;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

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
    let mut random = SplitMix::new(1);
    let shape = CommitShape { page_size: PAGE as u32, pages_after: 40, pages: &pages };
    let mut fill = |index: usize, page: &mut [u8]| {
        if index == 0 {
            begun();
        }
        page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
        Ok(())
    };
    engine.append_commit(shape, &mut fill).expect("append");
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
        hooks.at_sync(&Layout::of(Path::new(PATH)).log, move || {
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
