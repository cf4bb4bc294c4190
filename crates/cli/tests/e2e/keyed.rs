//! A server with keys, its tools, and a database that replicates to it.

use crate::bed::{Ran, Server, folder, program, text, wait_for};
use crate::session::{PYTHON, Session, uri};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Runs the `highwater` program with a key in its environment.
fn with<S: AsRef<OsStr>>(key: &str, arguments: impl IntoIterator<Item = S>) -> Ran {
    Ran::of(program(env!("CARGO_BIN_EXE_highwater")).env("HIGHWATER_TOKEN", key).args(arguments), b"")
}

/// The condition of the database's replication, and of which code it is.
fn condition(session: &mut Session, file: &Path) -> String {
    session.status(file)["replication"]["condition"].as_str().unwrap_or_default().to_owned()
}

/// A host's key expires in the middle of its work and is replaced later: it goes on by itself, nothing is lost.
#[test]
fn a_database_waits_out_whatever_its_key_and_its_account_are_refused_for() {
    let folder = folder();
    let mut server = Server::new(folder.path());
    // The first key, before the server ever ran.
    let made = with("", ["key", "create", "--data", text(&server.data), "--scopes", "admin"]);
    let admin = made.ok().trim().to_owned();
    server.restart();
    let base = format!("http://127.0.0.1:{}", server.port);
    let manage = |words: &[&str]| with(&admin, words.iter().copied().chain(["--url", &base]));
    let url = &server.url("apps/keyed");
    with("", ["stream", "create", url]).fails(1, &["INVALID_CREDENTIAL"]);

    manage(&["plan", "create", "p"]).ok();
    manage(&["account", "create", "a", "--plan", "p", "--bucket", "apps"]).ok();
    let new = |scopes: &str| manage(&["key", "create", "--scopes", scopes, "--account", "a"]).ok().trim().to_owned();
    let token = folder.path().join("token");
    let first = new("create,append,read,snapshot");
    fs::write(&token, &first).expect("written");
    let file = folder.path().join("app.db");
    with(&first, ["db", "bind", text(&file), url]).ok();
    let mut session = Session::start(PYTHON, "sqlite3", &[("HIGHWATER_TOKEN_FILE", text(&token))]);
    session.open("main", &uri(&file)).expect("the database opens");
    session.all(&["CREATE TABLE t (n INTEGER)"]);
    session.synced(&file);

    let mut rows = 0;
    let mut meet = |session: &mut Session, expected: &str| {
        session.all(&["INSERT INTO t VALUES (1)"]);
        rows += 1;
        wait_for(expected, || (condition(session, &file) == expected).then_some(()));
        rows
    };
    manage(&["key", "revoke", &first[3..15]]).ok();
    meet(&mut session, "unauthorized");
    fs::write(&token, new("create,append,read,snapshot")).expect("written");
    // The next attempt comes within half a minute, on a connection that the server may have closed since.
    session.value(&format!("SELECT highwater_synced('{}', 90000)", file.display()));

    fs::write(&token, new("read")).expect("written");
    meet(&mut session, "forbidden");
    fs::write(&token, new("create,append,read,snapshot")).expect("written");
    // A blocked database asks every half minute; a process that starts asks at once.
    session.finish();
    let mut session = Session::start(PYTHON, "sqlite3", &[("HIGHWATER_TOKEN_FILE", text(&token))]);
    session.open("main", &uri(&file)).expect("the database opens");
    session.synced(&file);

    manage(&["plan", "set", "p", "--storage-bytes-max", "1"]).ok();
    meet(&mut session, "payment_required");
    manage(&["plan", "set", "p", "--storage-bytes-max", "none"]).ok();
    session.finish();
    let mut session = Session::start(PYTHON, "sqlite3", &[("HIGHWATER_TOKEN_FILE", text(&token))]);
    session.open("main", &uri(&file)).expect("the database opens");
    session.synced(&file);

    manage(&["plan", "set", "p", "--requests-per-second", "1", "--requests-burst", "1"]).ok();
    session.all(&["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1)"]);
    session.synced(&file);
    assert_eq!(session.value("SELECT count(*) FROM t"), 5);
    manage(&["plan", "set", "p", "--requests-per-second", "none"]).ok();
    session.finish();
    with(&admin, ["db", "verify", text(&file), url]).ok();

    // Keys and accounts are there again after a crash.
    server.kill();
    server.restart();
    with("", ["stream", "head", url]).fails(1, &["401"]);
    let listed = manage(&["key", "list", "--json"]).json();
    assert_eq!(listed["keys"].as_array().map(Vec::len), Some(5), "{listed}");
    assert!(manage(&["account", "list"]).ok().contains("apps"));
    manage(&["key", "revoke", &admin[3..15]]).fails(1, &["ADMIN_KEY_LAST"]);
    let used = with("", ["key", "create", "--data", text(&server.data), "--scopes", "admin"]);
    used.fails(5, &["in use"]);
}
