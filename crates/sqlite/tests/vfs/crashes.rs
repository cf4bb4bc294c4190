//! The crash matrix: the machine or the process dies at every operation on the disk. What was acknowledged under
//! `synchronous=FULL` is there afterwards, everything else is whole or absent, and the database goes on.

use crate::bed::{Bed, integrity, number};
use highwater_disk::SimDisk;
use rusqlite::Connection;

/// Rows of one commit: enough for several pages.
const ROWS: i64 = 5;
/// Commits of the script.
const COMMITS: i64 = 9;

/// What a run got to.
#[derive(Debug, Default)]
struct Progress {
    attempted: i64,
    acknowledged: i64,
}

fn prepare(connection: &Connection, synchronous: &str) -> rusqlite::Result<()> {
    connection.execute_batch(&format!("PRAGMA synchronous={synchronous}; PRAGMA cache_size=5"))
}

/// Commits number by number, with a checkpoint of each kind in between, and once a shrink.
fn script(bed: &Bed, synchronous: &str, progress: &mut Progress) -> rusqlite::Result<()> {
    let connection = bed.try_open("app.db")?;
    prepare(&connection, synchronous)?;
    let first = number(&connection, "SELECT coalesce(max(n), 0) FROM done") + 1;
    for commit in first..=COMMITS {
        progress.attempted = commit;
        connection.execute_batch("BEGIN")?;
        for row in 0..ROWS {
            connection.execute("INSERT INTO t VALUES (?1, ?2, randomblob(700))", [commit, row])?;
        }
        connection.execute("INSERT INTO done VALUES (?1)", [commit])?;
        connection.execute_batch("COMMIT")?;
        progress.acknowledged = commit;
        match commit {
            3 => connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)")?,
            5 => connection.execute_batch("DELETE FROM pad; PRAGMA incremental_vacuum")?,
            6 => connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?,
            _ => {}
        }
    }
    Ok(())
}

/// A bound database with a schema, at rest.
fn start(seed: u64) -> SimDisk {
    let bed = Bed::bound(seed, 1_024, 2);
    let connection = bed.open();
    let schema = "CREATE TABLE t(n INT, r INT, b BLOB); CREATE INDEX i ON t(n, r); CREATE TABLE done(n INT);
                  CREATE TABLE pad(b BLOB); INSERT INTO pad SELECT randomblob(900) FROM t RIGHT JOIN
                  (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20) SELECT x FROM c)";
    connection.execute_batch(schema).expect("schema");
    drop(connection);
    bed.disk.clone()
}

/// Opens what a crash left and checks it; the number of commits found.
fn check(disk: &SimDisk, progress: &Progress, durable: bool, context: &str) -> i64 {
    let bed = Bed::on(disk);
    let connection = bed.try_open("app.db").unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(integrity(&connection), "ok", "{context}");
    let last = number(&connection, "SELECT coalesce(max(n), 0) FROM done");
    let least = if durable { progress.acknowledged } else { 0 };
    assert!((least..=progress.attempted).contains(&last), "{context}: {last} of {progress:?}");
    assert_eq!(number(&connection, "SELECT count(*) FROM done"), last, "{context}");
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), last * ROWS, "{context}: whole or absent");
    assert_eq!(number(&connection, "SELECT coalesce(max(n), 0) FROM t"), last, "{context}");
    last
}

#[derive(Clone, Copy)]
enum Death {
    Process,
    Power,
}

/// Runs the script to its death at every `stride`-th operation, and then to its end.
fn matrix(synchronous: &str, death: Death, stride: usize) {
    let base = start(7);
    let dry = base.fork(1);
    let before = dry.operations();
    script(&Bed::on(&dry), synchronous, &mut Progress::default()).expect("a run without a crash");
    let operations = dry.operations() - before;
    assert!(operations > 100, "the script reaches the disk: {operations}");

    // Every operation, and other outcomes of each power loss, with `HIGHWATER_SEEDS`.
    let seeds = std::env::var("HIGHWATER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    let stride = if seeds > 1 { 1 } else { stride };
    for (at, seed) in (1..=operations).step_by(stride).flat_map(|at| (0..seeds).map(move |seed| (at, seed))) {
        let context = format!("{synchronous}, operation {at} of {operations}, seed {seed}");
        let disk = base.fork(at + (seed << 32));
        disk.stop_at(disk.operations() + at);
        let mut progress = Progress::default();
        let ended = script(&Bed::on(&disk), synchronous, &mut progress);
        assert!(disk.stopped() || ended.is_ok(), "{context}: {ended:?}");
        match death {
            Death::Process => disk.crash_process(),
            Death::Power => disk.power_loss(),
        }
        let durable = matches!(death, Death::Process) || synchronous == "FULL";
        let found = check(&disk, &progress, durable, &context);

        // It goes on from there, and survives a second death with nothing lost.
        let mut again = Progress::default();
        script(&Bed::on(&disk), "FULL", &mut again).unwrap_or_else(|error| panic!("{context}: {error}"));
        disk.power_loss();
        let progress = Progress { attempted: COMMITS, acknowledged: COMMITS.max(found) };
        check(&disk, &progress, true, &format!("{context}, again"));
    }
}

#[test]
fn power_fails_at_every_operation_under_full() {
    matrix("FULL", Death::Power, 3);
}

#[test]
fn power_fails_at_every_operation_under_normal() {
    matrix("NORMAL", Death::Power, 7);
}

#[test]
fn the_process_dies_at_every_operation_under_full() {
    matrix("FULL", Death::Process, 7);
}

#[test]
fn the_process_dies_at_every_operation_under_off() {
    matrix("OFF", Death::Process, 7);
}
