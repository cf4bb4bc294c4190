//! Two owners of one stream: the later one goes on, the earlier one is told and keeps its files.

use crate::bed::{Server, copy_folder, folder, highwater, text, wait_for};
use crate::content::stock;
use crate::session::{Session, bound, published, uri};
use std::path::{Path, PathBuf};

/// A database with two acknowledged rows, its owner, and a copy restored while the owner lives.
struct Pair {
    folder: tempfile::TempDir,
    server: Server,
    url: String,
    file: PathBuf,
    owner: Session,
    copy: PathBuf,
}

fn pair(name: &str) -> Pair {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = server.url(name);
    let file = bound(folder.path(), &url);
    let mut owner = Session::on(&file);
    owner.all(&["CREATE TABLE t (who TEXT)", "INSERT INTO t VALUES ('first'), ('first')"]);
    owner.synced(&file);
    let copy = folder.path().join("copy.db");
    highwater(["db", "restore", &url, text(&copy)]).ok();
    Pair { folder, server, url, file, owner, copy }
}

/// The bytes of a database's log, in order, without the zeros that lie ahead in its last file.
fn log(file: &Path) -> Vec<u8> {
    let folder = PathBuf::from(format!("{}-highwater/log", file.display()));
    let entries = std::fs::read_dir(folder).expect("the log is there");
    let mut segments: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    segments.sort();
    let mut bytes: Vec<u8> = segments.iter().flat_map(|path| std::fs::read(path).expect("it can be read")).collect();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    bytes
}

#[test]
fn who_only_reads_a_copy_fences_nobody() {
    let mut pair = pair("apps/reader");
    let mut reader = Session::on(&pair.copy);
    assert_eq!(reader.value("SELECT count(*) FROM t"), 2);
    reader.finish();
    pair.owner.all(&["INSERT INTO t VALUES ('first')"]);
    pair.owner.synced(&pair.file);
    assert_eq!(pair.owner.status(&pair.file)["ownership"]["state"], "owner");
}

#[test]
fn the_owner_of_before_is_fenced_by_the_first_write_elsewhere_and_keeps_its_files() {
    let mut pair = pair("apps/fenced");
    let mut second = Session::on(&pair.copy);
    second.all(&["INSERT INTO t VALUES ('second')"]);
    second.synced(&pair.copy);

    // It does not know yet, and synced() is what it asks before anyone outside relies on it.
    let first = pair.owner.run("INSERT INTO t VALUES ('lost')");
    let synced = pair.owner.run(&format!("SELECT highwater_synced('{}', 20000)", pair.file.display()));
    let failed = synced.expect_err("another process owns the stream");
    assert!(first.is_ok() && failed.message.contains("fenced"), "{first:?} {failed:?}");
    let before = log(&pair.file);
    assert!(pair.owner.run("SELECT count(*) FROM t").is_err(), "a fenced database must not be read");
    assert!(pair.owner.run("INSERT INTO t VALUES ('late')").is_err(), "a fenced database must not be written");
    let told = pair.owner.status(&pair.file);
    assert_eq!(told["ownership"]["state"], "stopped", "{told}");
    let page = wait_for("the reason to be published", || {
        published(&pair.file).filter(|page| page["ownership"]["state"] == "stopped")
    });
    assert_eq!(page["ownership"]["reason"], "fenced", "{page}");
    pair.owner.finish();
    assert!(log(&pair.file) == before, "a fenced database's log is kept as it was");
    assert_eq!(stock(&pair.file, "SELECT group_concat(who) FROM t"), "first,first,lost\n", "for people to look at");

    // It stays fenced, and says what to do.
    let mut again = Session::python();
    let refused = again.open("main", &uri(&pair.file)).expect_err("it is fenced");
    assert!(refused.message.contains("fenced") && refused.message.contains("highwater db restore"), "{refused:?}");
    highwater(["db", "push", text(&pair.file)]).fails(1, &["fenced", "highwater db restore"]);

    second.all(&["INSERT INTO t VALUES ('second')"]);
    second.synced(&pair.copy);
    second.finish();
    let third = pair.folder.path().join("third.db");
    highwater(["db", "restore", &pair.url, text(&third)]).ok();
    assert_eq!(stock(&third, "SELECT group_concat(who) FROM t"), "first,first,second,second\n");
    highwater(["db", "verify", text(&pair.copy), &pair.url]).ok();
}

/// The second owner dies and the server restarts in between: the fence is the stream's, not a process's.
#[test]
fn a_fence_holds_through_the_death_of_the_owner_that_set_it_and_of_the_server() {
    let mut pair = pair("apps/fence-holds");
    let mut second = Session::on(&pair.copy);
    second.all(&["INSERT INTO t VALUES ('second')"]);
    second.synced(&pair.copy);
    second.kill();
    pair.server.kill();
    pair.server.restart();
    pair.owner.all(&["INSERT INTO t VALUES ('lost')"]);
    let synced = pair.owner.run(&format!("SELECT highwater_synced('{}', 20000)", pair.file.display()));
    let failed = synced.expect_err("another process owned the stream last");
    assert!(failed.message.contains("fenced"), "{failed:?}");
    let mut third = Session::on(&pair.copy);
    third.all(&["INSERT INTO t VALUES ('third')"]);
    third.synced(&pair.copy);
    assert_eq!(third.value("SELECT group_concat(who) FROM t"), "first,first,second,third");
}

/// Files copied aside and put back later hold an old position: their commits must not follow what came after it.
#[test]
fn files_put_back_from_a_backup_do_not_write_over_what_came_after_them() {
    let pair = pair("apps/backup");
    let beside = PathBuf::from(format!("{}-highwater", pair.file.display()));
    let backup = pair.folder.path().join("backup");
    pair.owner.finish();
    copy_folder(&beside, &backup.join("folder"));
    std::fs::copy(&pair.file, backup.join("file")).expect("it can be copied");
    let mut later = Session::on(&pair.file);
    later.all(&["INSERT INTO t VALUES ('after the backup')"]);
    later.synced(&pair.file);
    later.finish();

    std::fs::remove_dir_all(&beside).expect("it can be removed");
    std::fs::copy(backup.join("file"), &pair.file).expect("it can be put back");
    copy_folder(&backup.join("folder"), &beside);
    let mut old = Session::python();
    if old.open("main", &uri(&pair.file)).is_ok() {
        let written = old.run("INSERT INTO t VALUES ('from the backup')");
        let synced = old.run(&format!("SELECT highwater_synced('{}', 20000)", pair.file.display()));
        assert!(written.is_err() || synced.is_err(), "a commit of old files was acknowledged");
    }
    old.kill();
    let third = pair.folder.path().join("third.db");
    highwater(["db", "restore", &pair.url, text(&third)]).ok();
    assert_eq!(stock(&third, "SELECT group_concat(who) FROM t"), "first,first,after the backup\n");
}
