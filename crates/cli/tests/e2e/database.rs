//! What the owner of a bound database sees while the server dies, and what others see of the owner.

use crate::bed::{Ran, Server, folder, highwater, program, text, wait_for};
use crate::content::{SHELL, assert_same, stock, stock_write};
use crate::session::{Session, bound, published, uri};
use serde_json::Value;
use std::path::Path;

fn restored(folder: &Path, url: &str) -> std::path::PathBuf {
    let copy = folder.join("restored.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    copy
}

#[test]
fn commits_go_on_while_the_server_is_dead_and_reach_it_once_after_its_restart() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("apps/outage");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)", "INSERT INTO t VALUES (0, 'before')"]);
    session.synced(file);
    for outage in 1..=3 {
        // Killed while commits are on their way, so that some answer is lost.
        for n in 0..40 {
            session.all(&[&format!("INSERT INTO t VALUES ({}, hex(randomblob(200)))", outage * 100 + n)]);
            if n == 20 {
                server.kill();
            }
        }
        let seen = wait_for("the outage to show", || {
            let outage =
                |page: &Value| page["replication"]["condition"] == "retrying" && page["commits"]["pending"] != 0;
            published(file).filter(outage)
        });
        assert_eq!(seen["owner_lives"], true);
        assert_eq!(seen["pid"], session.pid());
        assert!(seen["replication"]["last_error"].as_str().is_some_and(|text| !text.is_empty()), "{seen}");
        server.restart();
        wait_for("the backlog to drain", || {
            let drained = |page: &Value| page["replication"]["condition"].is_null() && page["commits"]["pending"] == 0;
            published(file).filter(drained)
        });
    }
    session.synced(file);
    session.finish();
    let copy = restored(folder.path(), url);
    assert_same(file, &copy);
    assert_eq!(stock(&copy, "SELECT count(*) FROM t"), "121\n");
    highwater(["db", "verify", text(file), url]).ok();
}

/// A server that stands still keeps its connections; the attempt on its way is answered when it goes on.
#[test]
fn a_server_that_stands_still_stops_no_commit() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("apps/paused");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER)"]);
    session.synced(file);
    server.pause();
    for n in 0..50 {
        let (_, took) = session.timed(&format!("INSERT INTO t VALUES ({n})")).expect("commits go on");
        assert!(took.as_secs() < 5, "a commit took {took:?}");
    }
    let late = session.run(&format!("SELECT highwater_synced('{}', 300)", file.display())).expect_err("it cannot be");
    assert!(late.message.contains("synced_timeout: ") && late.message.contains("replication goes on"), "{late:?}");
    assert_eq!(session.value("SELECT count(*) FROM t"), 50);
    server.resume();
    session.synced(file);
    session.finish();
    assert_same(file, &restored(folder.path(), url));
}

#[test]
fn a_second_process_is_told_whose_the_database_is() {
    let folder = folder();
    let server = Server::start(folder.path());
    let file = &bound(folder.path(), &server.url("apps/owned"));
    let mut owner = Session::on(file);
    owner.all(&["CREATE TABLE t (n INTEGER)"]);
    let mut second = Session::python();
    let refused = second.open("main", &uri(file)).expect_err("it is open elsewhere");
    assert_eq!(refused.name, "SQLITE_BUSY", "{refused:?}");
    assert!(refused.message.contains(&format!("is open in the process {}", owner.pid())), "{refused:?}");
    let stock = Ran::of(program(SHELL).args([text(file), "INSERT INTO t VALUES (1)"]), b"");
    assert!(stock.status != 0 && stock.stderr.contains("locked"), "{}", stock.stderr);
    owner.all(&["INSERT INTO t VALUES (2)"]);
    owner.finish();
    second.open("main", &uri(file)).expect("the owner is gone");
    assert_eq!(second.value("SELECT count(*) FROM t"), 1);
}

#[test]
fn an_owner_that_is_killed_leaves_the_database_to_the_next_process_at_once() {
    let folder = folder();
    let server = Server::start(folder.path());
    let file = &bound(folder.path(), &server.url("apps/orphan"));
    let mut owner = Session::on(file);
    owner.all(&["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"]);
    wait_for("the owner's status", || published(file).filter(|page| page["owner_lives"] == true));
    owner.kill();
    assert_eq!(published(file).expect("a status")["owner_lives"], false);
    let mut next = Session::on(file);
    assert_eq!(next.value("SELECT count(*) FROM t"), 1);
    next.all(&["INSERT INTO t VALUES (2)"]);
    next.synced(file);
    assert_eq!(next.status(file)["commits"]["pending"], 0);
}

#[test]
fn a_file_that_stock_sqlite_wrote_while_it_was_closed_is_explained_and_left_alone() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("apps/foreign");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"]);
    session.synced(file);
    session.finish();
    stock_write(file, "INSERT INTO t VALUES (666)");
    let bytes = std::fs::read(file).expect("the file is there");

    let mut session = Session::python();
    let refused = session.open("main", &uri(file)).expect_err("somebody else wrote");
    for words in ["foreign_write", "was changed by another program while it was closed", "highwater db restore"] {
        assert!(refused.message.contains(words), "{refused:?}");
    }
    let said = highwater(["db", "push", text(file)]);
    said.fails(1, &["foreign_write", "highwater db restore", "bind it under its new name"]);
    assert!(std::fs::read(file).expect("the file is there") == bytes, "the file was touched");

    // Both ways out work.
    let copy = restored(folder.path(), url);
    assert_eq!(stock(&copy, "SELECT group_concat(n) FROM t"), "1\n");
    let kept = folder.path().join("kept.db");
    std::fs::rename(file, &kept).expect("it can be moved");
    let other = &server.url("apps/kept");
    highwater(["db", "bind", text(&kept), other]).ok();
    highwater(["db", "push", text(&kept)]).ok();
    assert_eq!(stock(&kept, "SELECT group_concat(n) FROM t"), "1,666\n");
    highwater(["db", "verify", text(&kept), other]).ok();
}
