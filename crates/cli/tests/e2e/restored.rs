//! A server whose data directory was put back from an older copy.

use crate::bed::{Server, copy_folder, folder, highwater, highwater_with, text, wait_for};
use crate::content::stock;
use crate::session::{Session, bound, published};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The database's stream.
const DATABASE: &str = "apps/history";

/// Puts an older copy of the data directory in the place of the present one, as an operator does.
fn put_back(copy: &Path, data: &Path) {
    fs::remove_dir_all(data).expect("the newer directory is gone");
    copy_folder(copy, data);
}

fn status(server: &Server) -> Value {
    let url = format!("http://127.0.0.1:{}/v1/admin/status", server.port);
    let text = ureq::get(&url).call().expect("it serves").body_mut().read_to_string().expect("it is text");
    let status: Value = serde_json::from_str(&text).expect("the status is JSON");
    status["node"].clone()
}

/// A server with a database that has sent one row, stopped, and a copy of its data directory.
fn copied(folder: &Path) -> (Server, PathBuf, Session, PathBuf) {
    let mut server = Server::start(folder);
    let file = bound(folder, &server.url(DATABASE));
    let mut owner = Session::on(&file);
    owner.all(&["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"]);
    owner.synced(&file);
    server.terminate();
    let copy = folder.join("backup");
    copy_folder(&server.data, &copy);
    (server, file, owner, copy)
}

/// Inserts `n` until the owner has stopped; its status then.
fn stops(owner: &mut Session, file: &Path, n: u32) -> Value {
    wait_for("the owner to stop", || {
        // A refusal is what is waited for.
        owner.run(&format!("INSERT INTO t VALUES ({n})")).ok();
        published(file).filter(|page| page["ownership"]["state"] == "stopped")
    })
}

/// Was told on the runbook's page as the one thing not to do: the stream rewound without a word, the owner's next write
/// met a gap, and two owners could each be told that their commits are safe. Marked, the owner stops with `history`
/// before anything of its own comes to lie on the older stream, and keeps its files.
#[test]
fn an_owner_learns_of_an_older_copy_that_was_marked_and_stops_with_history() {
    let folder = folder();
    let (mut server, file, mut owner, copy) = copied(folder.path());
    let url = server.url(DATABASE);
    server.restart();
    owner.all(&["INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)"]);
    owner.synced(&file);
    server.kill();
    put_back(&copy, &server.data);
    let marked = highwater(["mark-restored", "--data", text(&server.data)]).ok();
    assert!(marked.contains("marked as restored"), "{marked}");
    server.restart();

    assert_eq!(stops(&mut owner, &file, 4)["ownership"]["reason"], "history");
    owner.finish();
    // Nothing of the owner's later commits is on the stream: a restore gives the copy's state.
    let restored = folder.path().join("restored.db");
    highwater(["db", "restore", &url, text(&restored)]).ok();
    assert_eq!(stock(&restored, "SELECT group_concat(n) FROM t"), "1\n");
    // And the file still has all of it, which is what verifying a stopped database tells.
    let kept: String = stock(&file, "SELECT group_concat(n) FROM t");
    assert!(kept.starts_with("1,2,3,4"), "{kept}");
    let found = highwater(["db", "verify", text(&file), &url, "--json"]);
    found.fails(4, &["differ", "bind a copy", "holds every commit"]);
    let found: Value = serde_json::from_slice(&found.stdout).expect("its findings");
    assert_eq!(found["stopped"], "history", "{found}");
    let kept_file = folder.path().join("kept.db");
    std::fs::copy(&file, &kept_file).expect("it can be copied");
    highwater(["db", "bind", text(&kept_file), &server.url("apps/kept")]).ok();
    highwater(["db", "push", text(&kept_file)]).ok();
    let told = server.log();
    assert!(told.contains("marked as restored") && told.contains("begun a new history"), "{told}");
    let status = status(&server);
    assert_eq!((&status["history_pending"], &status["looks_restored"]), (&Value::Bool(false), &Value::Bool(false)));
    assert!(!server.data.join("restored").exists(), "the mark is gone once it was acted on");
}

/// An owner whose commits are all on the restored stream cannot know that yet: it stops too, and has everything.
#[test]
fn an_owner_that_lost_nothing_stops_with_history_too_and_keeps_everything() {
    let folder = folder();
    let (mut server, file, mut owner, copy) = copied(folder.path());
    put_back(&copy, &server.data);
    highwater(["mark-restored", "--data", text(&server.data)]).ok();
    server.restart();
    assert_eq!(stops(&mut owner, &file, 2)["ownership"]["reason"], "history");
    owner.finish();
    let kept: String = stock(&file, "SELECT group_concat(n) FROM t");
    assert!(kept.starts_with("1,2"), "{kept}");
}

/// A directory that was copied is warned about, and nothing more: it may be the newest there is.
#[test]
fn a_directory_that_looks_restored_is_warned_about_until_someone_says_what_it_is() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = server.url("notes");
    highwater(["stream", "create", &url, "--content-type", "text/plain"]).ok();
    let token = |url: &str| highwater(["stream", "head", url, "--json"]).json()["incarnation"].clone();
    let before = token(&url);
    server.terminate();
    assert!(!server.log().contains("looks like a copy"), "{}", server.log());
    let copy = folder.path().join("backup");
    copy_folder(&server.data, &copy);
    put_back(&copy, &server.data);
    server.restart();
    assert!(server.log().contains("looks like a copy") && server.log().contains("mark-restored"), "{}", server.log());
    assert_eq!(status(&server)["looks_restored"], true);
    assert_eq!(token(&url), before, "a look changes nothing");
    highwater(["mark-restored", "--data", text(&server.data)]).fails(5, &["in use", "stop it first"]);
    server.terminate();
    highwater(["mark-restored", "--data", text(&server.data), "--moved"]).ok();
    server.restart();
    assert_eq!(status(&server)["looks_restored"], false);
    assert_eq!(token(&url), before, "it was moved, not restored");
    server.terminate();
    highwater(["mark-restored", "--data", text(&server.data)]).ok();
    let again = highwater(["mark-restored", "--data", text(&server.data), "--json"]).json();
    assert_eq!(again["replaced"], true);
    server.restart();
    assert_ne!(token(&url), before);
    let elsewhere = folder.path().join("elsewhere");
    highwater(["mark-restored", "--data", text(&elsewhere)]).fails(3, &["no data directory"]);
}

/// A plain writer is told too: its bytes behind the copy's end are gone, and its next append says so if it names the
/// token that it knows.
#[test]
fn a_reader_at_a_lost_offset_is_told_of_the_new_history() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let url = server.url("events");
    highwater(["stream", "create", &url, "--content-type", "text/plain"]).ok();
    highwater_with(["stream", "append", &url], b"kept").ok();
    server.terminate();
    let copy = folder.path().join("backup");
    copy_folder(&server.data, &copy);
    server.restart();
    highwater_with(["stream", "append", &url], b" and lost").ok();
    let token = highwater(["stream", "head", &url, "--json"]).json()["incarnation"].clone();
    server.kill();
    put_back(&copy, &server.data);
    highwater(["mark-restored", "--data", text(&server.data)]).ok();
    server.restart();
    let asked = ureq::get(format!("{url}?offset=4&live=long-poll"))
        .header("stream-incarnation", token.as_str().expect("a token"))
        .call();
    assert!(matches!(asked, Err(ureq::Error::StatusCode(412))), "{asked:?}");
    assert_eq!(highwater(["stream", "read", &url]).ok(), "kept");
}
