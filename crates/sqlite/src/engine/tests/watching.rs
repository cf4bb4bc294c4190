//! The status page, asked for while commits are logged, synced, checkpointed and acknowledged.

use super::host::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Asks only for what the status is made of, which hits the moment between two locks more often.
fn watch_progress(engine: &crate::engine::Engine, over: &AtomicBool) -> u64 {
    let mut answers = 0;
    while !over.load(Ordering::Relaxed) {
        let progress = engine.progress();
        assert!(progress.acknowledged_lsn <= progress.last_lsn, "{progress:?}");
        assert!(progress.acknowledged <= progress.confirmed_end, "{progress:?}");
        answers += 1;
    }
    answers
}

/// Asks for the status until told to stop; how often it was answered.
fn watch(engine: &crate::engine::Engine, over: &AtomicBool) -> u64 {
    let (mut answers, mut logged_before) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        let status = engine.status();
        let number = |group: &str, name: &str| status[group][name].as_u64().expect("a number");
        let (logged, acknowledged) = (number("commits", "logged"), number("commits", "acknowledged"));
        assert!(acknowledged <= logged, "more acknowledged than logged: {status}");
        assert_eq!(number("commits", "pending"), logged - acknowledged, "{status}");
        assert!(logged >= logged_before, "{status}, {logged_before} before");
        let bytes_max = 1 << 30;
        for (group, name) in [("commits", "pending_bytes"), ("log", "unsynced_bytes"), ("log", "checkpoint_lag_bytes")]
        {
            assert!(number(group, name) < bytes_max, "{group}.{name} is below zero: {status}");
        }
        logged_before = logged;
        answers += 1;
    }
    answers
}

#[test]
fn a_status_beside_commits_never_shows_more_acknowledged_than_logged() {
    let disk = disk(5);
    bind_new(&disk);
    let mut host = Host::fresh(&disk, 5);
    let database = host.engine.database();
    let (over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let (engine, mut commits) = (Arc::clone(&host.engine), 0);
    thread::scope(|scope| {
        let watchers = [scope.spawn(|| watch(&engine, &over)), scope.spawn(|| watch_progress(&engine, &over))];
        let end = Instant::now() + Duration::from_millis(700);
        while Instant::now() < end && watchers.iter().all(|watcher| !watcher.is_finished()) {
            commits += 1;
            host.commit(3, &[1, 2], commits % 3 == 0).expect("commit");
            // All that is logged is acknowledged at once: the next commit is the whole distance.
            while host.engine.progress().acknowledged < host.engine.confirmed_end() {
                host.replicate(true).expect("acknowledge");
            }
            if commits % 7 == 0 {
                host.checkpoint(&*database).expect("checkpoint");
            }
        }
        over.store(true, Ordering::Relaxed);
        for watcher in watchers {
            answers.fetch_add(watcher.join().expect("the watcher is content"), Ordering::Relaxed);
        }
    });
    assert!(commits > 100 && answers.load(Ordering::Relaxed) > 100, "{commits} commits, {answers:?} answers");
}
