//! What checkpoints let go of, and what they must not.

use crate::bed::{Bed, number, path};
use highwater_disk::sim::Operation;
use highwater_sqlite::engine::{Engine, OpenOptions};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROWS: &str = "INSERT INTO t SELECT randomblob(4000) FROM
                    (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 500) SELECT x FROM c)";

fn engine(bed: &Bed) -> Arc<Engine> {
    bed.registry.find(&path("app.db")).expect("open").engine.clone()
}

/// Syncs of the log and of the database file that a piece of work takes, counted on the disk.
fn syncs(bed: &Bed, work: impl FnOnce()) -> u64 {
    let before = bed.syncs();
    work();
    bed.syncs() - before
}

#[test]
fn a_commit_under_full_is_exactly_one_sync_and_under_normal_none() {
    let bed = Bed::bound(1, 4_096, 0);
    let connection = bed.open();
    connection.execute_batch("PRAGMA synchronous=FULL; CREATE TABLE t(b)").expect("create");
    connection.execute_batch("INSERT INTO t VALUES (0)").expect("insert");
    for round in 0..5 {
        let count = syncs(&bed, || connection.execute_batch("INSERT INTO t VALUES (1)").expect("insert"));
        assert_eq!(count, 1, "round {round}");
    }
    for mode in ["NORMAL", "OFF"] {
        connection.execute_batch(&format!("PRAGMA synchronous={mode}; INSERT INTO t VALUES (2)")).expect("insert");
        let count = syncs(&bed, || connection.execute_batch("INSERT INTO t VALUES (3)").expect("insert"));
        assert_eq!(count, 0, "{mode}");
    }
}

/// SQLite's own default is FULL in most distributions, and no PRAGMA tells us of it: what the status says is what the
/// commits do.
#[test]
fn the_status_says_full_where_it_is_the_default_and_normal_once_commits_are() {
    let bed = Bed::bound(4, 4_096, 0);
    let connection = bed.open();
    let says = |expected: &str| {
        let page: String = connection.query_row("PRAGMA highwater_status", [], |row| row.get(0)).expect("a page");
        assert!(page.contains(&format!("\"synchronous\":\"{expected}\"")), "{expected}: {page}");
    };
    assert_eq!(number(&connection, "PRAGMA synchronous"), 2, "the default of this SQLite");
    connection.execute_batch("CREATE TABLE t(b)").expect("create");
    says("full");
    connection.execute_batch("PRAGMA synchronous=NORMAL; INSERT INTO t VALUES (1)").expect("insert");
    says("normal");
    connection.execute_batch("PRAGMA synchronous=OFF; INSERT INTO t VALUES (1)").expect("insert");
    says("off");
}

/// A loss of power in a checkpoint must not leave the file ahead of the log.
#[test]
fn the_log_is_synced_before_a_checkpoint_writes_the_file() {
    let bed = Bed::bound(2, 4_096, 0);
    let connection = bed.open();
    connection.execute_batch("PRAGMA synchronous=NORMAL; CREATE TABLE t(b); INSERT INTO t VALUES (1)").expect("insert");
    bed.disk.fail_next(Operation::Write, "app.db");
    let failed = connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get::<_, i64>(0));
    assert!(failed.is_err(), "the write of the file fails, after the sync of the log");
    bed.disk.clear_faults();
    bed.disk.power_loss();
    assert_eq!(number(&Bed::on(&bed.disk).open(), "SELECT count(*) FROM t"), 1);
}

/// `wal_autocheckpoint=0`: the application never checkpoints, and neither `-wal` nor lag grows without end.
#[test]
fn a_database_that_is_never_checkpointed_is_looked_after() {
    let options = OpenOptions { max_pending_bytes: 1 << 30, ..OpenOptions::default() };
    let bed = Bed::with(&Bed::bound(3, 4_096, 0).disk, options);
    let connection = bed.open();
    connection.busy_timeout(Duration::from_secs(10)).expect("timeout");
    let setup = "PRAGMA synchronous=OFF; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(b)";
    connection.execute_batch(setup).expect("create");
    let database = bed.registry.find(&path("app.db")).expect("open");
    let mut most = 0;
    for _ in 0..40 {
        connection.execute_batch(&format!("DELETE FROM t; {ROWS}")).expect("write 2 MB");
        most = most.max(database.wal_bytes());
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while database.unbackfilled_bytes() > 16 << 20 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(database.unbackfilled_bytes() <= 16 << 20);
    assert!(database.undurable_bytes() <= 20 << 20, "{}", database.undurable_bytes());
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 500);
    drop(connection);
    drop(database);
    assert!(bed.registry.find(&path("app.db")).is_none(), "the upkeep does not hold it open");
    assert_eq!(number(&bed.open(), "SELECT count(*) FROM t"), 500);
}

#[test]
fn a_close_leaves_nothing_for_recovery_and_no_wal() {
    let bed = Bed::bound(4, 4_096, 0);
    let connection = bed.open();
    connection.execute_batch(&format!("PRAGMA synchronous=NORMAL; CREATE TABLE t(b); {ROWS}")).expect("write");
    let end = engine(&bed).confirmed_end();
    drop(connection);
    let files: Vec<_> = bed.disk.files().into_iter().map(|(path, _)| path.display().to_string()).collect();
    assert!(!files.iter().any(|file| file.ends_with("/wal")), "{files:?}");
    bed.disk.power_loss();
    let before = bed.disk.operations();
    let connection = bed.open();
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 500);
    assert_eq!(engine(&bed).confirmed_end(), end);
    assert!(bed.disk.operations() - before < 20, "nothing was replayed");
}
