//! `highwater stream …` and `highwater db …`, as a person or a script calls them.

use crate::bed::{Server, folder, free_port, highwater, highwater_with, program, text, wait_for};
use crate::content::{assert_same, stock_write};
use crate::session::{Session, bound};
use std::fs;
use std::io::Read as _;
use std::process::Stdio;
use std::time::SystemTime;

/// `--json` used to print other numbers than the stream holds, one of two members of one name, and to end in a panic where
/// a message had a number that no float can hold.
#[test]
fn what_a_json_stream_holds_is_printed_to_the_byte_as_json_too() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("exact");
    highwater(["stream", "create", url, "--content-type", "application/json"]).ok();
    let texts = r#"{"b":1,"a":2,"b":3,"n":12345678901234567890123,"f":0.10,"g":9007199254740993.0},1e400,-0"#;
    highwater_with(["stream", "append", url], format!("[{texts}]").as_bytes()).ok();
    let printed = highwater(["stream", "read", url, "--json"]).ok();
    assert!(printed.contains(&format!("\"messages\":[{texts}]")), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

/// Without an offset a read of a stream whose first bytes are gone was refused, and nothing said where to begin.
#[test]
fn a_read_begins_at_the_first_byte_that_is_still_there_and_an_offset_before_it_is_told_where_that_is() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("kept");
    highwater(["stream", "create", url, "--content-type", "text/plain"]).ok();
    highwater_with(["stream", "append", url], b"0123456789").ok();
    let put = |part: &str| {
        let answer = ureq::put(&format!("{url}/{part}")).header("content-type", "text/plain").send("state");
        assert_eq!(answer.expect("an answer").status().as_u16(), 204, "{part}");
    };
    put("snapshot/6");
    put("retention/6");
    let read = highwater(["stream", "read", url]);
    assert!(read.stderr.contains("the bytes before 6 are gone"), "{}", read.stderr);
    assert_eq!(read.ok(), "6789");
    highwater(["stream", "read", url, "--offset", "2"]).fails(3, &["STREAM_GONE", "--offset 6"]);
}

#[test]
fn a_stream_is_made_written_read_closed_and_deleted() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("notes/today");
    assert!(highwater(["stream", "create", url, "--content-type", "text/plain"]).ok().contains("created"));
    assert!(highwater(["stream", "create", url, "--content-type", "text/plain"]).ok().contains("was there already"));
    highwater(["stream", "create", url]).fails(1, &["STREAM_ALREADY_EXISTS_CONFLICT", "nothing was done"]);

    assert!(highwater_with(["stream", "append", url], b"one\n").ok().contains("4 bytes appended"));
    let file = folder.path().join("input");
    fs::write(&file, "two\n").expect("the input can be written");
    highwater(["stream", "append", url, text(&file)]).ok();
    assert_eq!(highwater(["stream", "read", url]).ok(), "one\ntwo\n");
    assert_eq!(highwater(["stream", "read", url, "--offset", "4", "--leader"]).ok(), "two\n");
    let part = highwater(["stream", "read", url, "--offset", "4", "--json"]).json();
    assert_eq!(part, serde_json::json!({ "offset": 4, "next_offset": 8, "bytes_hex": "74776f0a", "messages": null }));
    highwater(["stream", "read", url, "--offset", "9"]).fails(1, &["OFFSET_OUT_OF_RANGE"]);
    highwater(["stream", "append", url, "--content-type", "text/html", text(&file)])
        .fails(1, &["CONTENT_TYPE_MISMATCH"]);

    assert!(highwater(["stream", "close", url]).ok().contains("closed"));
    assert!(highwater(["stream", "head", url]).ok().contains("closed           true"));
    highwater_with(["stream", "append", url], b"three\n").fails(1, &["STREAM_CLOSED"]);

    highwater_with(["stream", "delete", url], b"tomorrow\n").fails(1, &["nothing was deleted", "Type today"]);
    assert_eq!(highwater_with(["stream", "delete", url], b"today\n").status, 0);
    highwater(["stream", "read", url]).fails(3, &["STREAM_NOT_FOUND"]);
    highwater(["stream", "head", url]).fails(3, &["404"]);
    highwater(["stream", "delete", url, "--yes"]).fails(3, &["404"]);
}

#[test]
fn input_larger_than_one_request_is_appended_whole() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("large");
    highwater(["stream", "create", url]).ok();
    let bytes: Vec<u8> = (0..9_500_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let appended = highwater_with(["stream", "append", url, "--close", "--json"], &bytes).json();
    assert_eq!(appended, serde_json::json!({ "appended_bytes": 9_500_000, "next_offset": 9_500_000, "closed": true }));
    let read = highwater(["stream", "read", url]);
    read.ok();
    assert!(read.stdout == bytes, "what was read is not what was appended");
}

#[test]
fn a_json_stream_takes_texts_and_prints_a_message_a_line() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("json");
    highwater(["stream", "create", url, "--content-type", "application/json", "--ttl", "3600"]).ok();
    assert!(highwater(["stream", "head", url]).ok().contains("3600 s after it was last read or written"));
    let appended = highwater_with(["stream", "append", url, "--json"], b"{\"a\": 1.50}\n[2, [3]]\n").json();
    assert_eq!((&appended["appended_bytes"], &appended["next_offset"]), (&17.into(), &17.into()));
    assert_eq!(highwater(["stream", "read", url]).ok(), "{\"a\":1.50}\n2\n[3]\n");
    let part = highwater(["stream", "read", url, "--offset", "9", "--json"]);
    part.fails(1, &["NOT_JSON_BOUNDARY"]);
    let part = highwater(["stream", "read", url, "--offset", "11", "--json"]).json();
    let expected = serde_json::json!({ "offset": 11, "next_offset": 17, "bytes_hex": null, "messages": [2, [3]] });
    assert_eq!(part, expected);
    highwater_with(["stream", "append", url], b"4 x").fails(1, &["does not go on as JSON"]);
    highwater_with(["stream", "append", url, "--close"], b"").ok();
    assert_eq!(highwater(["stream", "tail", url, "--offset", "11"]).ok(), "2\n[3]\n");
}

#[test]
fn a_tail_prints_what_comes_until_the_stream_is_closed() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("tailed");
    highwater_with(["stream", "create", url], b"").ok();
    highwater_with(["stream", "append", url], b"before ").ok();
    let mut command = program(env!("CARGO_BIN_EXE_highwater"));
    command.args(["stream", "tail", url, "--offset", "0"]).stdout(Stdio::piped());
    let mut tail = command.spawn().expect("highwater can be run");
    let mut out = tail.stdout.take().expect("it is piped");
    let mut first = [0; 7];
    out.read_exact(&mut first).expect("the tail prints");
    assert_eq!(&first, b"before ");
    highwater_with(["stream", "append", url], b"while ").ok();
    highwater_with(["stream", "append", url, "--close"], b"last").ok();
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the tail prints text");
    assert_eq!(rest, "while last");
    assert!(tail.wait().expect("it ends").success());
}

#[test]
fn without_a_server_a_command_says_so_and_may_be_tried_later() {
    let folder = folder();
    let url = &format!("http://127.0.0.1:{}/v1/stream/nobody/home", free_port());
    highwater(["stream", "head", url]).fails(5, &["no answer", "is the server running?"]);
    highwater(["stream", "head", "nonsense"]).fails(1, &["nonsense is not the URL of a stream"]);
    let file = folder.path().join("app.db");
    highwater(["db", "bind", text(&file), url]).fails(5, &["unreachable"]);
    highwater(["db", "restore", url, text(&file)]).fails(5, &["unreachable"]);
    assert_eq!(fs::read_dir(folder.path()).expect("it can be listed").count(), 0, "a failed command leaves nothing");
}

#[test]
fn a_wrong_command_line_ends_with_2_and_shows_the_usage() {
    highwater(["stream", "create"]).fails(2, &["<URL>", "Usage"]);
    highwater(["db", "bind", "a", "b", "--auto-vacuum", "some"]).fails(2, &["none", "incremental"]);
    highwater(["server"]).fails(2, &["serve"]);
}

#[test]
fn what_is_not_bound_or_not_there_is_told_apart() {
    let folder = folder();
    let server = Server::start(folder.path());
    let file = &folder.path().join("app.db");
    highwater(["db", "status", text(file)]).fails(3, &["not bound", "highwater db bind"]);
    highwater(["db", "push", text(file)]).fails(3, &["not_bound", "highwater db bind"]);
    let url = &server.url("apps/none");
    highwater(["db", "restore", url, text(file)]).fails(3, &["not_found"]);
    highwater(["stream", "create", url, "--content-type", "application/vnd.ursula.sqlite-vfs.v2"]).ok();
    highwater(["db", "restore", url, text(file)]).fails(3, &["empty"]);
    highwater_with(["stream", "append", url], b"something else").ok();
    highwater(["db", "restore", url, text(file)]).fails(1, &["rejected", "choose another address"]);
    highwater(["db", "bind", text(file), url]).fails(1, &["rejected", "choose another address"]);
    highwater(["db", "bind", "/no/such/folder/app.db", url]).fails(1, &["/no/such/folder", "is not there"]);
}

#[test]
fn a_database_is_bound_pushed_restored_and_verified() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (url, other) = (&server.url("apps/one"), &server.url("apps/two"));
    let file = &bound(folder.path(), url);
    assert!(highwater(["db", "bind", text(file), url]).ok().contains("already"));
    highwater(["db", "bind", text(file), other]).fails(1, &["bound_elsewhere", "VACUUM INTO"]);

    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1), (2), (3)"]);
    session.synced(file);
    highwater(["db", "push", text(file)]).fails(5, &["busy", &format!("process {}", session.pid())]);
    highwater(["db", "verify", text(file), url]).fails(5, &["busy"]);
    session.finish();

    assert!(highwater(["db", "push", text(file)]).ok().starts_with("0 commits"));
    let copy = &folder.path().join("copy.db");
    assert!(highwater(["db", "restore", url, text(copy)]).ok().contains("holds commit 3"));
    highwater(["db", "restore", url, text(copy)]).fails(1, &["exists", "a name that is free"]);
    assert_same(file, copy);
    assert!(highwater(["db", "verify", text(file), url]).ok().contains("equals"));
    highwater(["db", "verify", text(file), other]).fails(1, &["other_stream", url]);
    let status = highwater(["db", "status", text(file)]).ok();
    assert!(status.contains("not open; last in") && status.contains("commits pending       0"), "{status}");
}

/// A disk may give back other bytes than it was given, and no program wrote them: size and times are as they were.
#[test]
fn verify_finds_a_page_that_changed_without_anyone_writing_it() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("apps/rot");
    let file = &bound(folder.path(), url);
    let mut session = Session::on(file);
    session.all(&["CREATE TABLE t (n INTEGER, text TEXT)", "INSERT INTO t VALUES (1, 'original')"]);
    session.synced(file);
    session.finish();
    highwater(["db", "verify", text(file), url]).ok();

    let written: SystemTime = fs::metadata(file).and_then(|meta| meta.modified()).expect("the file is there");
    let mut bytes = fs::read(file).expect("it can be read");
    let at = bytes.windows(8).position(|window| window == b"original").expect("the row is in the file");
    bytes[at] = b'O';
    fs::write(file, bytes).expect("it can be written");
    let changed = fs::File::options().write(true).open(file).expect("it can be opened");
    changed.set_modified(written).expect("its time can be set");
    drop(changed);
    let found = highwater(["db", "verify", text(file), url, "--json"]);
    found.fails(4, &["1 pages of", "highwater db restore"]);
}

#[test]
fn a_populated_file_says_what_is_left_to_do_after_its_bind() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (url, file) = (&server.url("apps/old"), &folder.path().join("old.db"));
    stock_write(file, "CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (7)");
    let said = highwater(["db", "bind", text(file), url]).ok();
    assert!(said.contains("its 2 pages are the first commit") && said.contains("highwater db push"), "{said}");
    wait_for("the pages to be sent", || highwater(["db", "push", text(file)]).ok().contains("1 commits").then_some(()));
    highwater(["db", "verify", text(file), url]).ok();
}
