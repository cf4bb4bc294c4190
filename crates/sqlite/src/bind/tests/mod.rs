mod crash;

use super::fresh::empty_page;
use super::*;
use crate::engine::{Engine, OpenOptions};
use highwater_disk::OsDisk;
use rusqlite::Connection;

fn stream(url: &str) -> BoundStream {
    BoundStream {
        url: url.into(),
        incarnation: Incarnation::new(1 << 52).expect("in range"),
        cluster_id: "one".into(),
        protocol: 11,
        end: Offset(0),
    }
}

const URL: &str = "http://127.0.0.1:4437/v1/stream/shop/orders";

fn quiet() -> OpenOptions {
    OpenOptions { timer: false, ..OpenOptions::default() }
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(OsDisk::new())
}

fn bind_to(path: &Path, options: BindOptions, url: &str) -> Result<Bound, BindError> {
    bind(&disk(), path, options, &stream(url), &mut |_, _| ())
}

fn integrity(connection: &Connection) -> String {
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("integrity_check")
}

/// A new database is what SQLite itself writes for an empty one that is switched to WAL; only the version of the
/// writing program and the change counter may differ.
#[test]
fn a_new_file_is_the_empty_database_that_sqlite_writes() {
    for auto_vacuum in 0..=2u8 {
        for page_size in [512, 1024, 4096, 16_384, 65_536] {
            let folder = tempfile::tempdir().expect("a folder");
            let theirs = folder.path().join("theirs.db");
            let connection = Connection::open(&theirs).expect("open");
            connection.pragma_update(None, "synchronous", "OFF").expect("synchronous");
            connection.pragma_update(None, "page_size", page_size).expect("page size");
            connection.pragma_update(None, "auto_vacuum", auto_vacuum).expect("auto_vacuum");
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).expect("WAL");
            drop(connection);
            let mut theirs = std::fs::read(&theirs).expect("read");
            let ours = empty_page(page_size, auto_vacuum);
            assert_eq!(theirs.len(), ours.len(), "{page_size} {auto_vacuum}");
            for range in [24..28, 92..100] {
                theirs[range.clone()].copy_from_slice(&ours[range]);
            }
            let differ: Vec<_> = (0..ours.len()).filter(|at| ours[*at] != theirs[*at]).collect();
            assert!(differ.is_empty(), "{page_size} {auto_vacuum}: {differ:?}");
        }
    }
}

#[test]
fn stock_sqlite_reads_and_writes_a_newly_bound_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    let options = BindOptions { page_size: 1024, auto_vacuum: 2 };
    assert_eq!(bind_to(&path, options, URL).expect("bind"), Bound::Created);
    let connection = Connection::open(&path).expect("open");
    assert_eq!(integrity(&connection), "ok");
    let ask = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).expect("pragma");
    assert_eq!((ask("page_size"), ask("auto_vacuum"), ask("page_count")), (1024, 2, 1));
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).expect("mode");
    assert_eq!(mode, "wal");
    connection.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").expect("write");
    assert_eq!(integrity(&connection), "ok");
}

#[test]
fn binding_twice_to_one_url_is_fine_and_to_another_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    assert_eq!(bind_to(&path, BindOptions::default(), URL).expect("bind"), Bound::Created);
    assert_eq!(bind_to(&path, BindOptions::default(), URL).expect("bind"), Bound::Already);
    let error = bind_to(&path, BindOptions::default(), "http://other/v1/stream/x").expect_err("another stream");
    assert_eq!(error.code(), "bound_elsewhere");
    assert!(error.to_string().contains(URL) && error.to_string().contains("VACUUM INTO"), "{error}");
    assert_eq!(bound_to(&*disk(), &path).expect("bound").map(|binding| binding.url), Some(URL.into()));
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).expect("link");
    assert!(Engine::is_bound(&*disk(), &link).expect("ask"), "another name of the same file");
    assert_eq!(bind_to(&link, BindOptions::default(), URL).expect("bind"), Bound::Already);
}

fn populate(path: &Path, page_size: u32) -> Connection {
    let connection = Connection::open(path).expect("open");
    connection.pragma_update(None, "synchronous", "OFF").expect("synchronous");
    connection.pragma_update(None, "page_size", page_size).expect("page size");
    connection
        .execute_batch(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO t SELECT i, randomblob(100) FROM n;",
        )
        .expect("populate");
    connection
}

/// Everything of an existing file is logged as commit 1: a restore from those bytes alone is the same database.
#[test]
fn an_existing_file_is_bound_whole_and_restores_from_its_first_record() {
    for page_size in [512, 4096, 65_536] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.db");
        drop(populate(&path, page_size));
        let mut told = Vec::new();
        let bound = bind(&disk(), &path, BindOptions::default(), &stream(URL), &mut |done, of| told.push((done, of)));
        let bytes = std::fs::read(&path).expect("read");
        let pages = (bytes.len() / page_size as usize) as u32;
        assert_eq!(bound.expect("bind"), Bound::Existing { pages });
        assert_eq!(told.last(), Some(&(u64::from(pages), u64::from(pages))));
        assert_eq!(bytes[18..20], [2, 2]);

        let engine = Engine::open(disk(), &path, quiet()).expect("open");
        let progress = engine.progress();
        assert_eq!((progress.last_lsn, progress.acknowledged_lsn), (1, 0));
        assert!(engine.pending_bytes() > 0 && engine.admit_write().is_ok());
        let mut log = Vec::new();
        engine.read_log(progress.acknowledged, progress.confirmed_end.0 as usize, &mut log).expect("read");
        engine.close();

        let copy = folder.path().join("copy.db");
        let mut restoring = Restoring::begin(&disk(), &copy).expect("begin");
        log.chunks(10_000).for_each(|piece| restoring.push(piece).expect("push"));
        assert_eq!((restoring.lsn(), restoring.pages()), (1, pages));
        assert!(!copy.exists());
        restoring.finish(&stream(URL)).expect("finish");
        assert!(std::fs::read(&copy).expect("read") == bytes, "{page_size}");
        let engine = Engine::open(disk(), &copy, quiet()).expect("open the copy");
        assert_eq!((engine.progress().last_lsn, engine.progress().acknowledged_lsn), (1, 1));
        assert_eq!(engine.pending_bytes(), 0);
        engine.close();
        assert_eq!(integrity(&Connection::open(&copy).expect("open")), "ok");
    }
}

#[test]
fn what_is_not_a_whole_closed_database_is_refused_untouched() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |name: &str, code: &str| {
        let path = folder.path().join(name);
        let before = std::fs::read(&path).expect("read");
        let error = bind_to(&path, BindOptions::default(), URL).expect_err(name);
        assert_eq!(error.code(), code, "{error}");
        assert!(std::fs::read(&path).expect("read") == before);
        assert!(!Engine::is_bound(&*disk(), &path).expect("ask"));
    };
    std::fs::write(folder.path().join("text.db"), "not a database".repeat(100)).expect("write");
    refused("text.db", "not_a_database");
    let half = folder.path().join("half.db");
    drop(populate(&half, 4096));
    let bytes = std::fs::read(&half).expect("read");
    std::fs::write(&half, &bytes[..bytes.len() / 2]).expect("write");
    refused("half.db", "not_a_database");

    drop(populate(&folder.path().join("hot.db"), 4096));
    std::fs::write(folder.path().join("hot.db-journal"), "a transaction").expect("write");
    refused("hot.db", "hot_journal");
    let wal = populate(&folder.path().join("wal.db"), 4096);
    wal.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).expect("WAL");
    wal.execute_batch("INSERT INTO t VALUES (5000, 'x')").expect("write");
    let copy = folder.path().join("copy.db");
    std::fs::copy(folder.path().join("wal.db"), &copy).expect("copy");
    std::fs::copy(folder.path().join("wal.db-wal"), folder.path().join("copy.db-wal")).expect("copy");
    refused("copy.db", "hot_journal");
    assert_eq!(
        bind_to(&folder.path().join("a.db"), BindOptions { page_size: 1000, auto_vacuum: 0 }, URL)
            .expect_err("an odd page size")
            .code(),
        "invalid_option"
    );
}

/// Looking at a file that this very process has open in stock SQLite must not take that connection's locks away, as
/// closing any descriptor of the file would.
#[test]
fn a_file_that_is_open_elsewhere_is_refused_and_keeps_its_locks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    let open = populate(&path, 4096);
    open.execute_batch("BEGIN IMMEDIATE").expect("a write lock");
    for _ in 0..2 {
        let error = bind_to(&path, BindOptions::default(), URL).expect_err("open");
        assert_eq!(error.code(), "in_use");
    }
    let other = Connection::open(&path).expect("open");
    assert!(other.execute_batch("BEGIN IMMEDIATE").is_err(), "the first connection holds its lock still");
    open.execute_batch("COMMIT").expect("commit");
    drop((open, other));
    assert!(matches!(bind_to(&path, BindOptions::default(), URL), Ok(Bound::Existing { .. })));
}

/// The file is locked while it is bound and open: stock SQLite in this or another process finds it busy.
#[test]
fn stock_sqlite_is_locked_out_while_the_engine_has_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    bind_to(&path, BindOptions::default(), URL).expect("bind");
    let engine = Engine::open(disk(), &path, quiet()).expect("open");
    let stock = Connection::open(&path).expect("open is lazy");
    assert!(stock.execute_batch("CREATE TABLE t(x)").is_err());
    engine.close();
    stock.execute_batch("CREATE TABLE t(x)").expect("free again");
}

/// The story: someone fixes a row with the sqlite3 shell while the application is down. SQLite in WAL mode may leave
/// length and header as they were, so the time of change and then the rolling checksum have to tell.
#[test]
fn a_write_by_stock_sqlite_while_closed_is_found_and_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    drop(populate(&path, 4096));
    bind_to(&path, BindOptions::default(), URL).expect("bind");
    Engine::open(disk(), &path, quiet()).expect("open").close();
    let stock = Connection::open(&path).expect("open");
    stock.execute_batch("UPDATE t SET body = x'00' WHERE id = 77").expect("write");
    drop(stock);
    let bytes = std::fs::read(&path).expect("read");
    let error = Engine::open(disk(), &path, quiet()).err().expect("refused");
    assert_eq!(error.code(), "foreign_write");
    assert!(error.to_string().contains("restore") && error.to_string().contains(URL), "{error}");
    assert!(std::fs::read(&path).expect("read") == bytes, "nothing was touched");
}

#[test]
fn a_file_that_was_only_touched_is_verified_and_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    drop(populate(&path, 4096));
    bind_to(&path, BindOptions::default(), URL).expect("bind");
    let bytes = std::fs::read(&path).expect("read");
    std::fs::write(&path, &bytes).expect("the same bytes, a new time");
    Engine::open(disk(), &path, quiet()).expect("open").close();
}

#[test]
fn a_journal_left_beside_a_bound_file_is_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    bind_to(&path, BindOptions::default(), URL).expect("bind");
    std::fs::write(folder.path().join("app.db-wal"), "frames").expect("write");
    assert_eq!(Engine::open(disk(), &path, quiet()).err().expect("refused").code(), "foreign_write");
}

#[test]
fn a_restore_refuses_a_taken_name_and_an_empty_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    std::fs::write(&path, "precious").expect("write");
    assert_eq!(Restoring::begin(&disk(), &path).err().expect("taken").code(), "exists");
    assert_eq!(std::fs::read(&path).expect("read"), b"precious");
    let other = folder.path().join("other.db");
    let restoring = Restoring::begin(&disk(), &other).expect("begin");
    assert_eq!(restoring.finish(&stream(URL)).expect_err("nothing").code(), "empty_stream");
    assert!(!other.exists() && !Engine::is_bound(&*disk(), &other).expect("ask"));
}
