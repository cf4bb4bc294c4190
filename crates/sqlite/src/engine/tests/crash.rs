//! The crash matrix: the machine dies at every write, sync, rename and removal of a life of a database, then again
//! during the recovery from that, and what was promised is there.

use super::host::*;
use highwater_base::Random;
use highwater_base::planted::{Bug, plant};
use highwater_base::random::SplitMix;
use highwater_disk::SimDisk;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// How a machine is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The process alone.
    Process,
    /// The power.
    Power,
}

fn lose(disk: &SimDisk, loss: Loss) {
    match loss {
        Loss::Process => disk.crash_process(),
        Loss::Power => disk.power_loss(),
    }
}

/// One step of a life; errors end it.
fn step(host: &mut Host, disk: &SimDisk, seed: u64) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let pages = host.promise.latest().len() as u32;
    let kind = host.random.below(20);
    let pages_after = match host.random.below(6) {
        0 => (pages / 2).max(1),
        1 | 2 => pages + 1 + host.random.below(4) as u32,
        _ => pages,
    };
    let many = if host.random.below(6) == 0 { 40 } else { 4 };
    let grown: Vec<u32> = (pages + 1..=pages_after).filter(|_| host.random.below(8) > 0).collect();
    let mut changed: Vec<u32> =
        (0..host.random.below(many)).map(|_| 1 + host.random.below(pages.into()) as u32).collect();
    changed.extend(grown);
    changed.push(1);
    changed.sort_unstable();
    changed.dedup();
    match kind {
        0..=5 => host.commit(pages_after, &changed, true).map_err(|e| e.to_string()),
        6..=9 => host.commit(pages_after, &changed, false).map_err(|e| e.to_string()),
        10 | 11 => host.cut(pages_after, &changed).map_err(|e| e.to_string()),
        12 => host.sync().map_err(text),
        13 | 14 => {
            let database = host.engine.database();
            host.checkpoint(&*database).map_err(text)
        }
        15 => host.replicate(false).map_err(text),
        16..=18 => host.replicate(true).map_err(text),
        _ => {
            host.engine.close();
            if disk.stopped() {
                return Err("the machine died".into());
            }
            host.promise.durable = host.promise.states.len();
            let engine = open(disk).map_err(|error| error.to_string())?;
            let promise = host.promise.clone();
            *host = Host::new(engine, promise, seed ^ host.random.next_u64());
            Ok(())
        }
    }
}

/// Lives until something fails or `steps` are over; what was promised.
fn live(disk: &SimDisk, seed: u64, steps: usize, bound: Promise) -> (Promise, Result<(), String>) {
    let mut host = match open(disk) {
        Ok(engine) => Host::new(engine, bound, seed),
        Err(error) => return (bound, Err(error.to_string())),
    };
    for _ in 0..steps {
        if let Err(error) = step(&mut host, disk, seed) {
            return (host.promise, Err(error));
        }
    }
    (host.promise, Ok(()))
}

/// Opens after a loss and checks everything that was promised.
fn check(disk: &SimDisk, promise: &Promise, loss: Loss, context: &str) {
    let engine = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    let progress = engine.progress();
    let lsn = progress.last_lsn as usize;
    let least = if loss == Loss::Power { promise.durable } else { promise.states.len() };
    let mut states = promise.states.clone();
    states.extend(promise.attempted.clone());
    assert!((least..=states.len()).contains(&lsn), "{context}: {least} promised, {} made, {lsn} there", states.len());
    let expected = bytes_of(&states[lsn - 1]);
    let found = read_file(disk, Path::new(PATH));
    assert!(found == expected, "{context}: commit {lsn} differs from what it was");
    assert_eq!(engine.confirmed_end(), engine.record_end(progress.last_lsn).expect("the last record"), "{context}");
    let checkpoint = engine.meta_for_test().checkpoint;
    assert_eq!((checkpoint.lsn, checkpoint.position), (progress.last_lsn, progress.confirmed_end), "{context}");
    assert_eq!(checkpoint.checksum, checksum(disk, checkpoint.pages), "{context}");
    if let Some(seal) = promise.seal {
        let kept = progress.in_flight == Some(seal) || progress.in_flight == promise.seal_attempted;
        assert!(kept || progress.acknowledged >= seal.to, "{context}: the seal is gone");
    }
    assert!(progress.acknowledged <= progress.confirmed_end, "{context}");
    let pending = progress.confirmed_end.since(progress.acknowledged);
    let mut log = Vec::new();
    engine.read_log(progress.acknowledged, pending as usize, &mut log).expect("what is pending can be sent");
    engine.close();
}

/// Dies at every `stride`-th operation of a life, and at a few of the recovery from that; counts the deaths.
fn matrix(seed: u64, steps: usize, stride: u64, cases: &Cell<u64>) {
    let bound = disk(seed);
    bind_new(&bound);
    bound.power_loss();
    let whole = bound.fork(seed);
    live(&whole, seed, steps, promise(&bound)).1.expect("a life without a fault");
    let mut random = SplitMix::new(seed);
    let mut stop = 1 + seed % stride;
    while stop <= whole.operations() - bound.operations() {
        let disk = bound.fork(seed ^ (stop << 20));
        disk.stop_at(disk.operations() + stop);
        let context = format!("seed {seed}, stop {stop}");
        let (promise, _) = live(&disk, seed, steps, promise(&bound));
        assert!(disk.stopped(), "{context}");
        let loss = if random.below(3) == 0 { Loss::Process } else { Loss::Power };
        lose(&disk, loss);
        // The recovery dies too, once or twice; what it had to keep it must still keep.
        let mut worst = loss;
        for _ in 0..random.below(3) {
            disk.stop_at(disk.operations() + 1 + random.below(12));
            drop(open(&disk));
            let again = if random.below(2) == 0 { Loss::Process } else { Loss::Power };
            lose(&disk, again);
            if again == Loss::Power {
                worst = Loss::Power;
            }
        }
        cases.set(cases.get() + 1);
        check(&disk, &promise, worst, &context);
        check(&disk, &promise, worst, &format!("{context}, once more"));
        stop += stride;
    }
}

/// Synced and confirmed commits survive a loss of power at any operation, confirmed ones a crash of the process; any
/// other is there whole or not at all; a recovery that dies in the middle of its page writes starts over (R4).
#[test]
fn promised_commits_survive_a_death_at_every_operation() {
    let seeds = std::env::var("HIGHWATER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(16);
    let cases = Cell::new(0);
    (1..=seeds).for_each(|seed| matrix(seed, 60, 3, &cases));
    assert!(cases.get() > 900, "{cases:?}");
}

/// Deaths until the matrix notices a planted fault.
fn cases_until_found(bug: Bug) -> u64 {
    let cases = Cell::new(0);
    plant(Some(bug));
    let found = (1..=16).any(|seed| catch_unwind(AssertUnwindSafe(|| matrix(seed, 60, 3, &cases))).is_err());
    plant(None);
    assert!(found, "the planted fault is found");
    cases.get()
}

/// A segment whose name goes with the power takes synced commits with it. The matrix above is worth something because
/// it finds this among its own first deaths.
#[test]
fn the_matrix_finds_a_log_that_does_not_sync_its_directory() {
    let cases = cases_until_found(Bug::SkipDirectorySync);
    assert!(cases < 50, "{cases}");
}

/// The process dies after it noted a checkpoint, unsynced, and before it removed the segments below; the next one dies
/// while it removes them, with the power. What the older `meta` still needs must be there.
#[test]
fn segments_go_only_after_what_calls_them_obsolete_is_durable() {
    let before = disk(1);
    bind_new(&before);
    let mut host = Host::fresh(&before, 1);
    for _ in 0..14 {
        host.commit(6, &[1, 2, 3, 4, 5, 6], true).expect("commit");
    }
    while host.engine.progress().acknowledged < host.engine.confirmed_end() {
        host.replicate(true).expect("acknowledge");
    }
    let promise = host.promise;
    drop(host.engine);
    before.power_loss();
    let checkpoint = |disk: &SimDisk| {
        let image = bytes_of(promise.latest());
        let Ok(engine) = open(disk) else { return };
        let Ok(()) = engine.database().write_at(&image, 0).and_then(|()| engine.database().sync_data()) else { return };
        drop(engine.checkpointed(engine.confirmed_end()));
    };
    let whole = before.fork(0);
    checkpoint(&whole);
    let mut cases = 0;
    let operations = whole.operations() - before.operations();
    for stop in operations.saturating_sub(8)..=operations {
        for (again, seed) in (1..40).flat_map(|again| (0..3).map(move |seed| (again, seed))) {
            let disk = before.fork(stop * 1000 + again * 10 + seed);
            disk.stop_at(disk.operations() + stop);
            checkpoint(&disk);
            disk.crash_process();
            disk.stop_at(disk.operations() + again);
            drop(open(&disk));
            if !disk.stopped() {
                break;
            }
            disk.power_loss();
            check(&disk, &promise, Loss::Power, &format!("stop {stop}, then {again}, seed {seed}"));
            cases += 1;
        }
    }
    assert!(cases > 100, "{cases}");
}
