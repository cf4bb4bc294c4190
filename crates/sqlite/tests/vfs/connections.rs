//! Many connections and threads on one database.

use crate::bed::{Bed, integrity, number};
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn patient(bed: &Bed) -> Connection {
    let connection = bed.open();
    connection.busy_timeout(Duration::from_secs(20)).expect("timeout");
    connection
}

#[test]
fn threads_that_write_and_read_see_whole_commits_only() {
    const WRITERS: i64 = 3;
    const COMMITS: i64 = 60;
    let bed = Arc::new(Bed::bound(1, 4_096, 0));
    let setup = "CREATE TABLE t(writer INT, n INT, b BLOB); CREATE TABLE total(n INT); INSERT INTO total VALUES (0)";
    bed.open().execute_batch(setup).expect("schema");
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let bed = bed.clone();
            std::thread::spawn(move || {
                let connection = patient(&bed);
                for n in 0..COMMITS {
                    connection.execute_batch("BEGIN IMMEDIATE").expect("begin");
                    connection.execute("INSERT INTO t VALUES (?1, ?2, randomblob(600))", [writer, n]).expect("insert");
                    connection.execute("UPDATE total SET n = n + 1", []).expect("update");
                    connection.execute_batch("COMMIT").expect("commit");
                }
            })
        })
        .collect();
    let reader = std::thread::spawn({
        let (bed, over) = (bed.clone(), over.clone());
        move || {
            let connection = patient(&bed);
            let mut last = 0;
            while !over.load(Ordering::Relaxed) {
                let (rows, total): (i64, i64) = connection
                    .query_row("SELECT (SELECT count(*) FROM t), (SELECT n FROM total)", [], |row| {
                        Ok((row.get(0)?, row.get(1)?))
                    })
                    .expect("read");
                assert_eq!(rows, total, "a commit is whole");
                assert!(total >= last, "time does not go back");
                last = total;
            }
        }
    });
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    over.store(true, Ordering::Relaxed);
    reader.join().expect("the reader");
    assert_eq!(number(&bed.open(), "SELECT count(*) FROM t"), WRITERS * COMMITS);
    bed.disk.crash_process();
    let again = Bed::on(&bed.disk);
    assert_eq!(number(&again.open(), "SELECT n FROM total"), WRITERS * COMMITS);
    assert_eq!(integrity(&again.open()), "ok");
}

/// SQLite 3.7.0 to 3.51.2 could lose pages where a checkpoint met a restart of the `-wal`.
#[test]
fn checkpoints_and_restarts_of_the_wal_at_full_speed_lose_no_page() {
    let bed = Arc::new(Bed::bound(2, 1_024, 0));
    let setup = "CREATE TABLE t(id INTEGER PRIMARY KEY, v INT, b BLOB);
                 INSERT INTO t SELECT x, 0, randomblob(500) FROM
                 (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 40) SELECT x FROM c)";
    bed.open().execute_batch(setup).expect("schema");
    let over = Arc::new(AtomicBool::new(false));
    let checkpointers: Vec<_> = ["PASSIVE", "PASSIVE", "RESTART"]
        .into_iter()
        .map(|mode| {
            let (bed, over) = (bed.clone(), over.clone());
            std::thread::spawn(move || {
                let connection = bed.open();
                while !over.load(Ordering::Relaxed) {
                    // BUSY is an answer; pages that go missing are not.
                    drop(connection.execute_batch(&format!("PRAGMA wal_checkpoint({mode})")));
                }
            })
        })
        .collect();
    let writer = patient(&bed);
    writer.execute_batch("PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=4").expect("pragmas");
    for round in 1..=400_i64 {
        writer.execute("UPDATE t SET v = ?1, b = randomblob(500) WHERE id % 5 = ?1 % 5", [round]).expect("update");
        let wrong = number(&writer, "SELECT count(*) FROM t WHERE v > 0 AND v % 5 != id % 5");
        assert_eq!(wrong, 0, "round {round}");
    }
    over.store(true, Ordering::Relaxed);
    checkpointers.into_iter().for_each(|thread| thread.join().expect("a checkpointer"));
    assert_eq!(integrity(&writer), "ok");
    assert_eq!(number(&writer, "SELECT min(v) FROM t"), 396);
    bed.disk.crash_process();
    let again = Bed::on(&bed.disk);
    assert_eq!(integrity(&again.open()), "ok");
    assert_eq!(number(&again.open(), "SELECT sum(v) FROM t"), 8 * (396 + 397 + 398 + 399 + 400));
}

#[test]
fn a_database_opened_and_closed_by_many_threads_is_one_database() {
    let bed = Arc::new(Bed::bound(3, 4_096, 0));
    bed.open().execute_batch("CREATE TABLE t(a)").expect("schema");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let bed = bed.clone();
            std::thread::spawn(move || {
                for n in 0..25_i64 {
                    patient(&bed).execute("INSERT INTO t VALUES (?1)", [n]).expect("insert");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    assert_eq!(number(&bed.open(), "SELECT count(*) FROM t"), 100);
}
