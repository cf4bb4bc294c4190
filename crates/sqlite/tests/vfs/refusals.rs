//! What is refused, and what the application is told.

use crate::bed::{Bed, number, path};
use highwater_disk::Disk;
use highwater_sqlite::engine::OpenOptions;
use highwater_sqlite::ffi::code;
use rusqlite::{Connection, Error, ErrorCode};

fn message(result: rusqlite::Result<()>) -> String {
    result.expect_err("refused").to_string()
}

#[test]
fn an_unbound_file_is_an_error_that_says_so() {
    let bed = Bed::bound(1, 4_096, 0);
    let error = bed.try_open("plain.db").expect_err("refused");
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen));
    assert!(error.to_string().contains("not_bound: /sim/plain.db is not bound"), "{error}");
    let attached = bed.open().execute("ATTACH ?1 AS plain", [bed.uri("plain.db")]).expect_err("refused");
    assert_eq!(attached.sqlite_error_code(), Some(ErrorCode::CannotOpen));
    assert!(!bed.disk.exists(&path("plain.db")).expect("exists"), "nothing was made");
}

/// R7: `journal_mode=MEMORY` bypassed the capture.
#[test]
fn a_journal_mode_other_than_wal_is_refused_at_the_pragma() {
    let bed = Bed::bound(2, 4_096, 0);
    let connection = bed.open();
    connection.execute_batch("CREATE TABLE t(a)").expect("create");
    let mode = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
    assert_eq!(mode("PRAGMA journal_mode"), Ok("wal".into()));
    assert_eq!(mode("PRAGMA journal_mode=WAL"), Ok("wal".into()));
    for other in ["DELETE", "memory", "OFF", "TRUNCATE", "PERSIST"] {
        let error = mode(&format!("PRAGMA journal_mode={other}")).expect_err("refused").to_string();
        assert!(error.contains("stays in WAL mode"), "{other}: {error}");
    }
    let error = mode("PRAGMA locking_mode=EXCLUSIVE").expect_err("refused").to_string();
    assert!(error.contains("locking_mode: EXCLUSIVE is not supported"), "{error}");
    connection.execute_batch("INSERT INTO t VALUES (1)").expect("the database is as before");
}

/// A PRAGMA for all databases of a connection is shown to the main one's VFS only.
#[test]
fn an_attached_database_cannot_be_taken_out_of_wal_mode_behind_the_vfs() {
    for (seed, mode) in (30..).zip(["MEMORY", "DELETE", "OFF"]) {
        let bed = Bed::bound(seed, 4_096, 0);
        let main = Connection::open_in_memory().expect("open");
        main.execute("ATTACH ?1 AS app", [bed.uri("app.db")]).expect("attach");
        main.execute_batch("CREATE TABLE app.t(a)").expect("create");
        let changed = main.query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get::<_, String>(0));
        let written = main.execute_batch("INSERT INTO app.t VALUES (1)");
        drop(main);
        assert_eq!(bed.bytes("app.db")[18..20], [2, 2], "{mode}: {changed:?}, {written:?}");
        assert_eq!(number(&bed.open(), "SELECT count(*) FROM t"), i64::from(written.is_ok()), "{mode}");
        bed.disk.crash_process();
        let rows = number(&Bed::on(&bed.disk).open(), "SELECT count(*) FROM t");
        assert_eq!(rows, i64::from(written.is_ok()), "{mode}: what was written is in the log");
    }
}

#[test]
fn exclusive_locking_of_an_attached_database_writes_nothing() {
    let bed = Bed::bound(4, 4_096, 0);
    bed.open().execute_batch("CREATE TABLE t(a)").expect("create");
    let main = Connection::open_in_memory().expect("open");
    main.execute_batch("PRAGMA locking_mode=EXCLUSIVE").expect("of a database in memory");
    main.execute("ATTACH ?1 AS app", [bed.uri("app.db")]).expect("attach");
    let error = main.execute_batch("INSERT INTO app.t VALUES (1)").expect_err("refused");
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure), "{error}");
    let told: String = main.query_row("PRAGMA app.highwater_error", [], |row| row.get(0)).expect("the reason");
    assert!(told.contains("locking_mode=EXCLUSIVE is not supported"), "{told}");
    drop(main);
    assert_eq!(number(&bed.open(), "SELECT count(*) FROM t"), 0);
}

#[test]
fn mapping_is_off_whatever_is_asked() {
    let bed = Bed::bound(5, 4_096, 0);
    let connection = bed.open();
    connection.execute_batch("CREATE TABLE t(a); PRAGMA mmap_size=268435456").expect("ignored");
    assert_eq!(number(&connection, "PRAGMA mmap_size"), 0);
}

#[test]
fn a_full_backlog_refuses_the_first_write_and_nothing_else() {
    let bed = Bed::bound(6, 4_096, 0);
    bed.open().execute_batch("CREATE TABLE t(a, b)").expect("create");
    let options = OpenOptions { timer: false, max_pending_bytes: 1, ..OpenOptions::default() };
    let full = Bed::with(&bed.disk, options);
    let connection = full.open();
    let refused = connection.execute_batch("INSERT INTO t VALUES (1, 2)").expect_err("refused");
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DiskFull), "{refused}");
    let reason: String = connection.query_row("PRAGMA highwater_error", [], |row| row.get(0)).expect("the reason");
    assert!(reason.starts_with("backlog_full: "), "{reason}");
    let refused = connection.execute_batch("BEGIN IMMEDIATE").expect_err("refused");
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DiskFull));
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 0, "reads go on");
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("so do checkpoints");
    assert_eq!(number(&full.open(), "SELECT count(*) FROM t"), 0, "and opens");
}

/// A commit larger than what is left of the limit is taken: the limit is asked at a transaction's first write.
#[test]
fn one_commit_may_be_larger_than_the_backlog() {
    let disk = Bed::bound(7, 4_096, 0);
    disk.open().execute_batch("CREATE TABLE t(b)").expect("create");
    let pending = disk.registry.find(&path("app.db")).map_or(0, |database| database.engine.pending_bytes());
    let options = OpenOptions { timer: false, max_pending_bytes: pending + 8_192, ..OpenOptions::default() };
    let bed = Bed::with(&disk.disk, options);
    let connection = bed.open();
    connection.execute_batch("INSERT INTO t VALUES (randomblob(200000))").expect("taken");
    let refused = connection.execute_batch("INSERT INTO t VALUES (1)").expect_err("refused");
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DiskFull));
}

#[test]
fn a_second_process_is_told_who_has_the_database() {
    let first = Bed::bound(8, 4_096, 0);
    let connection = first.open();
    connection.execute_batch("CREATE TABLE t(a)").expect("create");
    let second = Bed::on(&first.disk);
    let error = second.try_open("app.db").expect_err("refused");
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(connection);
    second.try_open("app.db").expect("once the first is closed");
}

#[test]
fn a_stopped_database_fails_every_read_and_write_with_its_reason() {
    use highwater_sqlite::engine::{StopCode, StopReason};
    let bed = Bed::bound(9, 4_096, 0);
    let connection = bed.open();
    connection.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1)").expect("create");
    let database = bed.registry.find(&path("app.db")).expect("open");
    database.engine.stop(StopReason::new(StopCode::LogFailed, "the disk is gone"));
    let read = connection.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0)).expect_err("refused");
    assert_eq!(read.sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
    let write = connection.execute_batch("INSERT INTO t VALUES (2)").expect_err("refused");
    assert_eq!(write.sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
    let reason: String = connection.query_row("PRAGMA highwater_error", [], |row| row.get(0)).expect("the reason");
    assert!(reason.contains("the disk is gone"), "{reason}");
}

#[test]
fn functions_are_not_for_schemas() {
    let bed = Bed::bound(10, 4_096, 0);
    let connection = bed.open();
    connection.execute_batch("CREATE VIEW v AS SELECT highwater_default_vfs(1)").expect("a view");
    let error = message(connection.execute_batch("SELECT * FROM v"));
    assert!(error.contains("unsafe use of highwater_default_vfs"), "{error}");
    let Err(Error::SqliteFailure(failure, Some(text))) =
        connection.query_row("SELECT highwater_status('/nowhere/x.db')", [], |row| row.get::<_, String>(0))
    else {
        panic!("an error with a text");
    };
    assert_eq!(failure.extended_code, code::ERROR);
    assert!(text.starts_with("not_bound: "), "{text}");
}

#[test]
fn a_fault_of_our_own_stops_the_database_and_not_the_host() {
    let bed = Bed::bound(11, 4_096, 0);
    let connection = bed.open();
    connection.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1)").expect("create");
    bed.panic_at_next_write();
    let failed = connection.execute_batch("INSERT INTO t VALUES (2)").expect_err("the call that panicked");
    assert_eq!(failed.sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
    let read = connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).expect_err("stopped");
    assert_eq!(read.sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
    let reason: String = connection.query_row("PRAGMA highwater_error", [], |row| row.get(0)).expect("the reason");
    assert!(reason.contains("a fault in the extension"), "{reason}");
    drop(connection);
    let again = bed.open();
    assert_eq!(number(&again, "SELECT count(*) FROM t"), 1, "opened again, it recovers");
    again.execute_batch("INSERT INTO t VALUES (3)").expect("and goes on");
}

/// The disk is full: a commit is an error, and nothing of it comes back, whichever file it was that did not fit.
#[test]
fn a_commit_that_does_not_fit_is_rolled_back_and_fits_later() {
    let bed = Bed::bound(12, 1_024, 0);
    let connection = bed.open();
    connection.execute_batch("CREATE TABLE t(b); INSERT INTO t VALUES (randomblob(3000))").expect("create");
    let mut refused = 0;
    for room in (0..40).map(|pages| pages * 4_096) {
        bed.disk.set_capacity(Some(bed.disk.used_bytes() + room));
        let result = connection.execute_batch("INSERT INTO t VALUES (randomblob(30000))");
        if let Err(error) = result {
            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{room}: {error}");
            refused += 1;
            assert_eq!(number(&connection, "SELECT count(*) FROM t"), 1, "{room}: reads go on");
        }
        bed.disk.set_capacity(None);
        connection.execute_batch("DELETE FROM t WHERE length(b) > 3000").expect("delete");
    }
    assert!(refused > 5, "{refused}");
    connection.execute_batch("INSERT INTO t VALUES (randomblob(30000))").expect("with room again");
    bed.disk.crash_process();
    let again = Bed::on(&bed.disk);
    assert_eq!(number(&again.open(), "SELECT count(*) FROM t"), 2);
    assert_eq!(crate::bed::integrity(&again.open()), "ok");
}
