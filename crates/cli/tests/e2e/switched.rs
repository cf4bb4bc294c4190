//! Another server, another stream or an older one where the database's own used to be.

use crate::bed::{Server, copy_folder, folder, highwater, text, wait_for};
use crate::content::{assert_same, stock};
use crate::session::{Session, bound};
use std::path::Path;

/// The condition or the reason that the status shows, once it shows one of them.
fn shown(session: &mut Session, file: &Path) -> String {
    wait_for("the status to say what is wrong", || {
        let page = session.status(file);
        let text = |pointer: &str| page.pointer(pointer).and_then(|value| value.as_str()).map(str::to_owned);
        text("/ownership/reason").or_else(|| text("/replication/condition").filter(|text| text != "retrying"))
    })
}

/// libsql 2122: one local database used with two servers in turns lost commits.
#[test]
fn another_server_at_the_same_address_is_named_and_switching_back_loses_nothing() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("apps/switched");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"]);
    session.synced(file);

    server.kill();
    let own = std::mem::replace(&mut server.data, folder.path().join("another"));
    server.restart();
    session.all(&["INSERT INTO t VALUES (2)"]);
    assert_eq!(shown(&mut session, file), "wrong_cluster");
    session.all(&["INSERT INTO t VALUES (3)"]);
    highwater(["stream", "head", url]).fails(3, &["404"]);
    highwater(["db", "restore", url, text(&folder.path().join("none.db"))]).fails(3, &["not_found"]);

    server.kill();
    server.data = own;
    server.restart();
    // The condition waits thirty seconds between two attempts; a new process tries at once.
    session.finish();
    highwater(["db", "push", text(file)]).ok();
    let copy = folder.path().join("copy.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    assert_same(file, &copy);
    assert_eq!(stock(&copy, "SELECT group_concat(n) FROM t"), "1,2,3\n");
}

#[test]
fn a_stream_that_was_deleted_and_made_again_stops_the_database_and_keeps_its_commits() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("apps/recreated");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"]);
    session.synced(file);
    highwater(["stream", "delete", url, "--yes"]).ok();
    highwater(["stream", "create", url, "--content-type", "application/vnd.ursula.sqlite-vfs.v2"]).ok();
    session.all(&["INSERT INTO t VALUES (2)"]);
    assert_eq!(shown(&mut session, file), "recreated");
    assert!(session.run("INSERT INTO t VALUES (3)").is_err(), "a stopped database must not be written");
    session.finish();
    assert_eq!(stock(file, "SELECT group_concat(n) FROM t"), "1,2\n", "nothing is deleted");
    let head = highwater(["stream", "head", url, "--json"]).json();
    assert_eq!(head["next_offset"], 0, "nothing was sent to a stream that is not the database's own");
}

/// The server's directory is put back from an older copy: it holds less than it acknowledged.
#[test]
fn a_server_that_lost_acknowledged_commits_is_refused_and_every_local_file_is_kept() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("apps/older");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"]);
    session.synced(file);
    server.terminate();
    let backup = folder.path().join("backup");
    copy_folder(&server.data, &backup);
    server.restart();
    session.all(&["INSERT INTO t VALUES (2)"]);
    session.synced(file);
    server.terminate();
    std::fs::remove_dir_all(&server.data).expect("it can be removed");
    copy_folder(&backup, &server.data);
    server.restart();

    session.all(&["INSERT INTO t VALUES (3)"]);
    assert_eq!(shown(&mut session, file), "rejected");
    let page = session.status(file);
    let said = page["replication"]["last_error"].as_str().unwrap_or_default();
    assert!(said.starts_with("server_lost_data") && said.contains("the local files are kept"), "{page}");
    let synced = session.run(&format!("SELECT highwater_synced('{}', 300)", file.display()));
    assert!(synced.expect_err("it is not acknowledged").message.contains("synced_timeout"));
    session.finish();
    // The process is gone, and the page still says what it met.
    let status = highwater(["db", "status", text(file)]).ok();
    assert!(status.contains("rejected") && status.contains("server_lost_data"), "{status}");
    let before = highwater(["stream", "head", url, "--json"]).json();
    highwater(["db", "verify", text(file), url]).fails(1, &["server_lost_data", "keep the local files"]);
    assert_eq!(stock(file, "SELECT group_concat(n) FROM t"), "1,2,3\n", "the file holds every commit");
    let copy = folder.path().join("copy.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    assert_eq!(stock(&copy, "SELECT group_concat(n) FROM t"), "1\n", "the stream was left alone");
    assert_eq!(highwater(["stream", "head", url, "--json"]).json(), before);
}

/// Nothing is pending, so that nothing would have to be sent: whoever asks wants to know whether the stream has it.
#[test]
fn a_push_with_nothing_to_send_finds_a_stream_that_lost_what_it_acknowledged() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = &server.url("apps/nothing");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER)"]);
    session.synced(file);
    server.terminate();
    let backup = folder.path().join("backup");
    copy_folder(&server.data, &backup);
    server.restart();
    session.all(&["INSERT INTO t VALUES (1)"]);
    session.synced(file);
    session.finish();
    assert!(highwater(["db", "push", text(file)]).ok().contains("0 commits (0 B) sent; the stream holds"));
    server.terminate();
    let held = ["db", "push", text(file), "--timeout-s", "1"];
    highwater(held).fails(5, &["unreachable"]);
    std::fs::remove_dir_all(&server.data).expect("it can be removed");
    copy_folder(&backup, &server.data);
    server.restart();
    highwater(held).fails(1, &["server_lost_data", "keep"]);
    highwater(["stream", "delete", url, "--yes"]).ok();
    highwater(held).fails(3, &["not_found"]);
    highwater(["stream", "create", url, "--content-type", "application/vnd.ursula.sqlite-vfs.v2"]).ok();
    highwater(held).fails(1, &["recreated"]);
    assert_eq!(stock(file, "SELECT group_concat(n) FROM t"), "1\n", "the file holds every commit");
}
