//! The server's disk is lost, and comes back from a backup.

use crate::bed::{Server, folder, highwater, highwater_with, text, wait_for};
use crate::content::stock;
use crate::session::{Session, bound, published};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

fn base(server: &Server) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

/// Any data file of a group of streams below a folder.
fn data_file(folder: &Path) -> PathBuf {
    let groups = fs::read_dir(folder.join("store")).expect("the stores").map(|entry| entry.expect("readable").path());
    let files =
        groups.flat_map(|group| fs::read_dir(group).expect("a store")).map(|file| file.expect("readable").path());
    let is_data = |path: &PathBuf| text(path).contains("/store/g") && text(path).contains("/data-");
    files.into_iter().find(is_data).expect("something is stored")
}

/// Write, back up, write more, lose the disk, restore: the stream is what the backup holds, under another token, and the
/// database that had written more learns that the server went back in time.
#[test]
fn a_lost_server_comes_back_from_its_backup_and_who_had_written_more_is_told() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let (url, notes) = (server.url("apps/one"), server.url("notes"));
    let file = bound(folder.path(), &url);
    let mut owner = Session::on(&file);
    owner.all(&["CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (1)"]);
    owner.synced(&file);
    highwater(["stream", "create", &notes]).ok();
    highwater_with(["stream", "append", &notes], b"before").ok();
    let before = highwater(["stream", "head", &notes, "--json"]).json();

    let backup = folder.path().join("backup");
    highwater(["backup", &base(&server), text(&backup)]).ok();
    highwater_with(["stream", "append", &notes], b" and after").ok();
    owner.all(&["INSERT INTO t VALUES (2)"]);
    owner.synced(&file);

    server.kill();
    fs::remove_dir_all(&server.data).expect("the disk is lost");
    highwater(["restore", text(&backup), "--data", text(&server.data)]).ok();
    highwater(["restore", text(&backup), "--data", text(&server.data)]).fails(1, &["not empty"]);
    server.restart();

    assert_eq!(highwater(["stream", "read", &notes]).ok(), "before");
    let after = highwater(["stream", "head", &notes, "--json"]).json();
    assert_ne!(after["incarnation"], before["incarnation"], "the token of before would hide the loss");
    owner.all(&["INSERT INTO t VALUES (3)"]);
    let stopped =
        wait_for("the owner to be told", || published(&file).filter(|page| page["ownership"]["state"] == "stopped"));
    assert_eq!(stopped["ownership"]["reason"], "history", "{stopped}");
    owner.finish();
    assert_eq!(stock(&file, "SELECT count(*) FROM t"), "3\n", "the database keeps every commit");
}

#[test]
fn a_stopped_server_is_backed_up_with_what_its_log_alone_holds() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let notes = server.url("notes");
    highwater(["stream", "create", &notes]).ok();
    highwater_with(["stream", "append", &notes], b"in the log").ok();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    highwater(["backup", "--data", text(&server.data), text(&first)]).fails(5, &["a server runs on"]);
    server.kill();
    highwater(["backup", "--data", text(&server.data), text(&first)]).ok();
    highwater(["backup", "--data", text(&server.data), text(&first)]).fails(1, &["not empty"]);
    let none = folder.path().join("none");
    highwater(["backup", "--data", text(&none), text(&second)]).fails(3, &["no data directory"]);
    assert!(!none.exists(), "nothing is made of a name that was mistyped");
    highwater(["backup", &base(&server), text(&second)]).fails(5, &["is the server running?"]);
    fs::remove_dir_all(&server.data).expect("the disk is lost");
    highwater(["restore", text(&first), "--data", text(&server.data)]).ok();
    server.restart();
    assert_eq!(highwater(["stream", "read", &notes]).ok(), "in the log");
}

#[test]
fn a_damaged_backup_is_told_from_a_sound_one_and_not_restored() {
    let folder = folder();
    let server = Server::start(folder.path());
    let notes = server.url("notes");
    highwater(["stream", "create", &notes]).ok();
    highwater_with(["stream", "append", &notes], &[7; 100_000]).ok();
    let (backup, next) = (folder.path().join("backup"), folder.path().join("next"));
    highwater(["backup", &base(&server), text(&backup)]).ok();
    let shared = highwater(["backup", &base(&server), text(&next), "--since", text(&backup), "--json"]).json();
    assert!(shared["shared_bytes"].as_u64() > Some(100_000), "{shared}");
    highwater(["backup", "verify", text(&next)]).ok();
    let file = fs::File::options().write(true).open(data_file(&backup)).expect("a data file");
    file.write_all_at(&[1, 2, 3], 4096 + 500).expect("it can be damaged");
    highwater(["backup", "verify", text(&backup)]).fails(4, &["damaged", "stream notes"]);
    let restored = folder.path().join("restored");
    highwater(["restore", text(&backup), "--data", text(&restored)]).fails(1, &["is damaged", "Use another backup"]);
    let mut half = Server::new(folder.path());
    half.data = restored;
    let refused = Server::command(&half.data, half.port).output().expect("highwater can be run");
    assert!(!refused.status.success(), "a part of a restore is no data directory");
}

/// The story: one damaged group of sixteen made a backup of the others impossible. Now whoever asks for them gets them, and is
/// told each time that something is missing.
#[test]
fn a_backup_without_a_damaged_group_says_so_wherever_it_goes() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let urls: Vec<String> = (0..40).map(|number| server.url(&format!("s{number}"))).collect();
    for url in &urls {
        highwater(["stream", "create", url]).ok();
    }
    let whole = folder.path().join("whole");
    highwater(["backup", &base(&server), text(&whole)]).ok();
    server.kill();
    let index = server.data.join("store/g0/index-0000000000000001");
    let file = fs::File::options().write(true).open(index).expect("it made a checkpoint");
    file.write_all_at(&[1, 2, 3], 20).expect("it can be damaged");

    let part = folder.path().join("part");
    let take = |more: &[&str]| highwater([&["backup", "--data", text(&server.data), text(&part)], more].concat());
    take(&[]).fails(1, &["g0 cannot be backed up", "--except-damaged"]);
    take(&["--except-damaged"]).fails(6, &["does not hold 1 groups", "g0: ", "Keep the damaged directory"]);
    highwater(["backup", "verify", text(&part)]).fails(6, &["g0: "]);
    fs::rename(&server.data, folder.path().join("damaged")).expect("moved");
    let restore = |more: &[&str]| highwater([&["restore", text(&part), "--data", text(&server.data)], more].concat());
    restore(&[]).fails(1, &["does not hold g0", "--except-damaged"]);
    restore(&["--except-damaged"]).fails(6, &["g0: "]);
    server.restart();
    let mut missing = 0;
    for url in &urls {
        let read = highwater(["stream", "read", url]);
        if read.status != 0 {
            missing += 1;
            read.fails(read.status, &["APPLY_STOPPED"]);
        }
    }
    assert!((1..40).contains(&missing), "{missing} streams are refused, and none is said to be gone");
}

/// The keys of a server protect nothing from other users of its machine if they can read the files.
#[test]
fn what_a_server_and_its_backup_and_its_restore_keep_is_their_users_alone_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let data = folder.path().join("data");
    let (backup, restored) = (folder.path().join("backup"), folder.path().join("restored"));
    let binary = env!("CARGO_BIN_EXE_highwater");
    let run = |words: &str| {
        let mut shell = crate::bed::program("/bin/sh");
        shell.args(["-c", &format!("umask 000; {binary} {words}")]);
        crate::bed::Ran::of(&mut shell, b"").ok()
    };
    run(&format!("key create --data {} --scopes admin", text(&data)));
    run(&format!("backup --data {} {}", text(&data), text(&backup)));
    run(&format!("restore {} --data {}", text(&backup), text(&restored)));
    let mut folders = vec![data, backup, restored];
    let mut files = 0;
    while let Some(path) = folders.pop() {
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700, "{}", path.display());
        for entry in fs::read_dir(&path).expect("it can be listed") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 10, "{files} files were looked at");
}
