//! Scenarios that others met, each named after what went wrong for them.

use crate::bed::{Bed, integrity, number, path};
use highwater_disk::sim::Operation;

/// What a killed process left, opened by the next one.
fn after_kill(bed: &Bed) -> Bed {
    bed.disk.crash_process();
    Bed::on(&bed.disk)
}

fn fill(sql_rows: u32) -> String {
    format!(
        "INSERT INTO t SELECT NULL, randomblob(900) FROM
         (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < {sql_rows}) SELECT x FROM c)"
    )
}

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)";

/// R1: after a spilled commit rewrote checksums in place, the position moved on while bytes were still buffered, and
/// a kill right after COMMIT lost the commit.
#[test]
fn a_spilled_commit_is_there_after_a_kill_right_behind_it() {
    let bed = Bed::bound(1, 1_024, 0);
    let connection = bed.open();
    connection.execute_batch(&format!("PRAGMA cache_size=5; {TABLE}; BEGIN; {}", fill(80))).expect("spill");
    connection.execute_batch("UPDATE t SET b = randomblob(900) WHERE id % 3 = 0; COMMIT").expect("commit");
    let again = after_kill(&bed);
    assert_eq!(number(&again.open(), "SELECT count(*) FROM t"), 80);
    assert_eq!(integrity(&again.open()), "ok");
}

/// R2: a rolled-back spill hid another connection's later frames, because the overlay belonged to a handle.
#[test]
fn a_rolled_back_spill_hides_nothing_of_another_connection() {
    let bed = Bed::bound(2, 1_024, 0);
    let (first, second) = (bed.open(), bed.open());
    first.execute_batch(&format!("PRAGMA cache_size=5; {TABLE}; BEGIN; {}; ROLLBACK", fill(60))).expect("rollback");
    second.execute_batch(&fill(30)).expect("commit");
    assert_eq!(number(&first, "SELECT count(*) FROM t"), 30);
    let again = after_kill(&bed);
    assert_eq!(number(&again.open(), "SELECT count(*) FROM t"), 30);
    assert_eq!(integrity(&again.open()), "ok");
}

/// R3: a local failure after the commit was handed on rolled it back locally while the stream had it.
#[test]
fn a_commit_that_fails_after_its_record_is_cut_off_the_log() {
    let bed = Bed::bound(3, 1_024, 0);
    let connection = bed.open();
    connection.execute_batch(&format!("PRAGMA cache_size=5; {TABLE}; {}", fill(10))).expect("fill");
    let engine = bed.registry.find(&path("app.db")).expect("open").engine.clone();
    let before = engine.confirmed_end();
    // Once the record is logged, SQLite writes the checksums of overwritten frames anew: there it fails.
    connection.execute_batch(&format!("BEGIN; {}; UPDATE t SET b = randomblob(800)", fill(60))).expect("spill");
    let mut failed = false;
    for after in 0.. {
        bed.disk.fail(Operation::Write, "-highwater/wal", after, 1, highwater_disk::sim::EIO);
        failed |= connection.execute_batch("COMMIT").is_err();
        bed.disk.clear_faults();
        if connection.is_autocommit() && engine.confirmed_end() > before {
            break;
        }
        assert_eq!(engine.confirmed_end(), before, "nothing of it stands");
        assert_eq!(number(&bed.open(), "SELECT count(*) FROM t"), 10, "others see nothing of it");
        if connection.is_autocommit() {
            let again = format!("BEGIN; {}; UPDATE t SET b = randomblob(800)", fill(60));
            connection.execute_batch(&again).expect("the database stays usable");
        }
    }
    assert!(failed);
    let rows = number(&connection, "SELECT count(*) FROM t");
    assert_eq!(rows, 70);
    let again = after_kill(&bed);
    assert_eq!(number(&again.open(), "SELECT count(*) FROM t"), rows);
    assert_eq!(integrity(&again.open()), "ok");
}

/// R5: under `synchronous=OFF` the last close checkpointed without a sync and deleted the `-wal`; the power failed.
#[test]
fn a_close_under_off_keeps_what_a_power_loss_would_take() {
    let bed = Bed::bound(5, 1_024, 0);
    let connection = bed.open();
    connection.execute_batch(&format!("PRAGMA synchronous=OFF; {TABLE}; {}", fill(40))).expect("fill");
    drop(connection);
    bed.disk.power_loss();
    let again = Bed::on(&bed.disk);
    assert_eq!(number(&again.open(), "SELECT count(*) FROM t"), 40);
    assert_eq!(integrity(&again.open()), "ok");
}

/// P1 (Litestream #752): checkpoints of every kind while nothing replicates, then a restart.
#[test]
fn checkpoints_without_a_replicator_lose_nothing() {
    let bed = Bed::bound(11, 1_024, 0);
    let connection = bed.open();
    connection.execute_batch(TABLE).expect("create");
    for mode in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"] {
        connection.execute_batch(&fill(25)).expect("fill");
        connection.execute_batch(&format!("PRAGMA wal_checkpoint({mode})")).expect("checkpoint");
    }
    let engine = bed.registry.find(&path("app.db")).expect("open").engine.clone();
    assert!(engine.pending_bytes() > 50_000, "all of it waits for the stream");
    let (end, mut log) = (engine.confirmed_end(), Vec::new());
    engine.read_log(highwater_sqlite::engine::LogPosition(0), end.0 as usize, &mut log).expect("the log is whole");
    let again = after_kill(&bed);
    assert_eq!(number(&again.open(), "SELECT count(*) FROM t"), 100);
    assert_eq!(integrity(&again.open()), "ok");
}

/// P2 (Litestream #1083): no automatic checkpoints, and the `-wal` used again at the same size.
#[test]
fn a_wal_that_is_used_again_at_the_same_size_is_captured_anew() {
    let bed = Bed::bound(12, 1_024, 0);
    let connection = bed.open();
    connection.execute_batch(&format!("PRAGMA wal_autocheckpoint=0; {TABLE}; {}", fill(8))).expect("fill");
    let engine = bed.registry.find(&path("app.db")).expect("open").engine.clone();
    for round in 0..6 {
        let before = engine.progress();
        connection.execute_batch("UPDATE t SET b = randomblob(900)").expect("update");
        let after = engine.progress();
        assert_eq!(after.last_lsn, before.last_lsn + 1, "round {round}");
        assert!(after.confirmed_end > before.confirmed_end, "round {round}");
        connection.execute_batch("PRAGMA wal_checkpoint(RESTART)").expect("checkpoint");
    }
    let sum = number(&connection, "SELECT sum(length(hex(b)) + id) FROM t");
    let again = after_kill(&bed);
    assert_eq!(number(&again.open(), "SELECT sum(length(hex(b)) + id) FROM t"), sum);
    assert_eq!(integrity(&again.open()), "ok");
}

/// P3 (Litestream PR #1323): a transaction grows the database while another connection checkpoints.
#[test]
fn a_growth_during_a_checkpoint_loses_no_page() {
    let bed = Bed::bound(13, 1_024, 0);
    let (writer, checkpointer) = (bed.open(), bed.open());
    writer.execute_batch(&format!("PRAGMA cache_size=5; {TABLE}; {}", fill(20))).expect("fill");
    for _ in 0..4 {
        writer.execute_batch(&format!("BEGIN; {}", fill(30))).expect("grow, spilled");
        checkpointer.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").expect("checkpoint");
        writer.execute_batch("COMMIT").expect("commit");
        checkpointer.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").expect("checkpoint");
    }
    let again = after_kill(&bed);
    assert_eq!(number(&again.open(), "SELECT count(*) FROM t"), 140);
    assert_eq!(integrity(&again.open()), "ok");
}

/// P6 (Litestream #422): a long read transaction beside bulk writes.
#[test]
fn a_long_reader_keeps_its_snapshot_and_then_lets_the_wal_go() {
    let bed = Bed::bound(14, 1_024, 0);
    let (writer, reader) = (bed.open(), bed.open());
    writer.execute_batch(&format!("{TABLE}; {}", fill(10))).expect("fill");
    reader.execute_batch("BEGIN").expect("begin");
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 10);
    let engine = bed.registry.find(&path("app.db")).expect("open").engine.clone();
    let before = engine.confirmed_end();
    for _ in 0..20 {
        writer.execute_batch(&fill(50)).expect("write");
        writer.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").expect("checkpoint");
    }
    let logged = engine.confirmed_end().since(before);
    assert!(logged < 3_000_000, "1,000 rows of 900 bytes are logged once: {logged} bytes");
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 10, "its snapshot");
    reader.execute_batch("COMMIT").expect("end");
    writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpoint");
    assert_eq!(bed.bytes("app.db-highwater/wal").len(), 0, "it shrinks when the reader ends");
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 1_010);
}

/// P8 (Litestream #772): sorts and temporary tables larger than the cache went through the VFS into the log.
#[test]
fn temporary_files_stay_outside_of_the_log() {
    let bed = Bed::bound(15, 1_024, 0);
    let connection = bed.open();
    let setup = format!("PRAGMA cache_size=5; PRAGMA temp_store=FILE; {TABLE}; {}", fill(300));
    connection.execute_batch(&setup).expect("fill");
    let engine = bed.registry.find(&path("app.db")).expect("open").engine.clone();
    let before = (engine.confirmed_end(), bed.disk.operations());
    connection.execute_batch("PRAGMA temp.cache_size=5; CREATE TEMP TABLE s AS SELECT * FROM t").expect("temp");
    assert_eq!(number(&connection, "SELECT count(*) FROM (SELECT b FROM t ORDER BY b, id LIMIT 299)"), 299);
    assert_eq!(number(&connection, "SELECT count(*) FROM s"), 300);
    assert_eq!((engine.confirmed_end(), bed.disk.operations()), before);
}
