//! Databases that stock SQLite made before they were bound.

use crate::bed::{Server, folder, highwater, text};
use crate::content::{assert_same, stock, stock_write};
use crate::session::Session;
use std::path::Path;

/// Every page size, and each auto-vacuum mode with some of them.
const SHAPES: [(u32, &str); 8] = [
    (512, "full"),
    (1024, "none"),
    (2048, "incremental"),
    (4096, "none"),
    (8192, "full"),
    (16_384, "none"),
    (32_768, "incremental"),
    (65_536, "none"),
];

/// Tables of several kinds, free pages, and rows that overflow their page.
fn populate(file: &Path, page_size: u32, auto_vacuum: &str) {
    stock_write(
        file,
        &format!(
            "PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = {auto_vacuum}; \
             CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT, bytes BLOB); CREATE INDEX i ON t (text); \
             CREATE TABLE w (k TEXT PRIMARY KEY, v) WITHOUT ROWID; CREATE VIRTUAL TABLE f USING fts5 (body); \
             WITH RECURSIVE s (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM s WHERE n < 400) \
               INSERT INTO t SELECT n, 'row ' || (n * 7919 % 400), zeroblob(n * 40) FROM s; \
             INSERT INTO w SELECT text || n, n FROM t; INSERT INTO f SELECT text FROM t; \
             DELETE FROM t WHERE n % 3 = 0; DELETE FROM t WHERE n BETWEEN 200 AND 300;"
        ),
    );
}

#[test]
fn a_file_of_any_page_size_and_vacuum_mode_is_bound_sent_and_restored_equal() {
    let folder = folder();
    let server = Server::start(folder.path());
    for (page_size, auto_vacuum) in SHAPES {
        let name = format!("{page_size}-{auto_vacuum}");
        let (file, copy) = (folder.path().join(format!("{name}.db")), folder.path().join(format!("{name}-copy.db")));
        let url = &server.url(&format!("existing/{name}"));
        populate(&file, page_size, auto_vacuum);
        let before = stock(&file, ".dump");
        let bound = highwater(["db", "bind", text(&file), url, "--json"]).json();
        assert_eq!(bound["bound"], "existing", "{bound}");
        assert_eq!(stock(&file, ".dump"), before, "binding changes no row");
        highwater(["db", "push", text(&file)]).ok();
        highwater(["db", "restore", url, text(&copy)]).ok();
        assert!(std::fs::read(&file).expect("a file") == std::fs::read(&copy).expect("a file"), "{name}: bytes differ");

        // It goes on as any other, VACUUM and all.
        let mut session = Session::on(&file);
        let numbers = ["none", "full", "incremental"];
        assert_eq!(session.value("PRAGMA auto_vacuum"), numbers.iter().position(|n| *n == auto_vacuum).expect("known"));
        session.all(&["DELETE FROM t WHERE n < 100", "PRAGMA incremental_vacuum", "VACUUM"]);
        session.all(&["INSERT INTO f SELECT 'after ' || text FROM t", "INSERT INTO w VALUES ('new', 1)"]);
        assert_eq!(session.value("PRAGMA page_size"), page_size);
        session.synced(&file);
        session.finish();
        highwater(["db", "verify", text(&file), url]).ok();
        std::fs::remove_file(&copy).expect("a file");
        std::fs::remove_dir_all(format!("{}-highwater", copy.display())).expect("a folder");
        highwater(["db", "restore", url, text(&copy)]).ok();
        assert_same(&file, &copy);
    }
}

#[test]
fn a_new_file_has_the_page_size_and_vacuum_mode_that_were_asked_for() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (url, file) = (&server.url("new/shaped"), &folder.path().join("new.db"));
    highwater(["db", "bind", text(file), url, "--page-size", "1000"]).fails(1, &["invalid_option", "power of two"]);
    assert!(!file.exists(), "a refused bind makes no file");
    highwater(["db", "bind", text(file), url, "--page-size", "16384", "--auto-vacuum", "incremental"]).ok();
    let mut session = Session::on(file);
    assert_eq!((session.value("PRAGMA page_size"), session.value("PRAGMA auto_vacuum")), (16_384.into(), 2.into()));
    session.all(&["CREATE TABLE t (n INTEGER)"]);
    session.synced(file);
    session.finish();
    highwater(["db", "verify", text(file), url]).ok();
}

/// A transaction of stock SQLite that was killed waits in a journal; binding without it would lose or break it.
#[test]
fn a_file_with_a_transaction_in_its_journal_is_not_bound_before_stock_sqlite_settled_it() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (url, file) = (&server.url("existing/hot"), &folder.path().join("hot.db"));
    stock_write(file, "PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)");
    let mut writer = Session::python();
    writer.open("main", text(file)).expect("stock SQLite opens it");
    writer.all(&["INSERT INTO t VALUES (2)"]);
    highwater(["db", "bind", text(file), url]).fails(5, &["in_use", "close it there"]);
    writer.kill();
    highwater(["db", "bind", text(file), url]).fails(1, &["hot_journal", "hot.db-wal", "open and close"]);
    stock_write(file, "SELECT count(*) FROM t");
    highwater(["db", "bind", text(file), url]).ok();
    highwater(["db", "push", text(file)]).ok();
    let copy = folder.path().join("copy.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    assert_eq!(stock(&copy, "SELECT group_concat(n) FROM t"), "1,2\n");
}
