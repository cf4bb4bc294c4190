//! The hosts that people load the extension into, each through the same life of a database.

use crate::bed::{Ran, Server, extension, folder, highwater, program, text};
use crate::content::{SHELL, assert_same, assert_sound, stock};
use crate::session::{PYTHON, Session, bound, uri};
use std::path::{Path, PathBuf};

/// Which VFS a host opens the database through.
#[derive(Clone, Copy)]
enum Vfs {
    Named,
    Default,
}

/// Create, write, `synced()`, status, reopen in another process, restore, and go on from the restored file.
fn live(python: &Path, module: &str, vfs: Vfs) {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url(&format!("hosts/{module}"));
    let file = &bound(folder.path(), url);
    let open = |path: &Path| {
        let (environment, name): (&[_], _) = match vfs {
            Vfs::Named => (&[], uri(path)),
            Vfs::Default => (&[("HIGHWATER_DEFAULT_VFS", "1")], text(path).to_owned()),
        };
        let mut session = Session::start(python, module, environment);
        session.open("main", &name).expect("the database opens");
        session
    };

    let mut session = open(file);
    assert_eq!(session.value("PRAGMA journal_mode"), "wal");
    let refused = session.run("PRAGMA journal_mode = DELETE");
    assert!(refused.is_err() || session.value("PRAGMA journal_mode") == "wal", "{refused:?}");
    session.all(&[
        "CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)",
        "BEGIN",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
        "COMMIT",
        "BEGIN",
        "INSERT INTO t VALUES (3, 'never')",
        "ROLLBACK",
    ]);
    session.synced(file);
    let status = session.status(file);
    assert_eq!(status["ownership"]["state"], "owner", "{status}");
    assert_eq!((&status["commits"]["pending"], &status["commits"]["logged"]), (&0.into(), &3.into()), "{status}");
    assert_eq!(status["url"].as_str(), Some(url.as_str()));
    session.finish();

    let mut session = open(file);
    assert_eq!(session.value("SELECT group_concat(text) FROM t"), "one,two");
    session.all(&["INSERT INTO t VALUES (3, 'three')"]);
    session.synced(file);
    session.finish();

    let copy = &folder.path().join("copy.db");
    highwater(["db", "restore", url, text(copy)]).ok();
    assert_same(file, copy);
    let mut session = open(copy);
    session.all(&["UPDATE t SET text = upper(text)"]);
    session.synced(copy);
    session.finish();
    assert_eq!(stock(copy, "SELECT group_concat(text) FROM t"), "ONE,TWO,THREE\n");
    highwater(["db", "verify", text(copy), url]).ok();
}

#[test]
fn debians_python_through_the_named_vfs() {
    live(Path::new(PYTHON), "sqlite3", Vfs::Named);
}

#[test]
fn debians_python_through_the_default_vfs() {
    live(Path::new(PYTHON), "sqlite3", Vfs::Default);
}

#[test]
fn apsw_through_the_named_and_the_default_vfs() {
    let python = apsw();
    live(&python, "apsw", Vfs::Named);
    live(&python, "apsw", Vfs::Default);
}

/// An environment with `apsw`, which brings an SQLite of its own; it is kept for the next run.
fn apsw() -> PathBuf {
    const PACKAGE: &str = "apsw==3.54.1.0";
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("apsw");
    let python = environment.join("bin/python");
    let probe = Ran::try_of(program(&python).args(["-c", "import apsw"]));
    if probe.is_none_or(|probe| probe.status != 0) {
        Ran::of(program(PYTHON).args(["-m", "venv", "--clear", text(&environment)]), b"").ok();
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE];
        let installed = Ran::of(program(&python).args(pip), b"");
        assert_eq!(installed.status, 0, "{PACKAGE} must be installable from PyPI here:\n{}", installed.stderr);
    }
    python
}

/// Runs lines in Debian's shell, as a person types them.
fn shell(lines: &str) -> String {
    let load = format!(".bail on\n.load {}\n", extension().display());
    Ran::of(program(SHELL).arg(":memory:"), format!("{load}{lines}").as_bytes()).ok()
}

#[test]
fn debians_shell_by_name_and_by_default() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("hosts/shell");
    let file = &bound(folder.path(), url);
    let (name, path) = (uri(file), file.display());
    let said = shell(&format!(
        ".open {name}\nCREATE TABLE t (n INTEGER);\nINSERT INTO t VALUES (1);\n\
         SELECT highwater_synced('{path}', 30000);\nSELECT highwater_status('{path}');\n"
    ));
    assert!(said.starts_with("1\n{") && said.contains("\"pending\":0"), "{said}");

    let said = shell(&format!(
        "SELECT highwater_default_vfs(1);\n.open {path}\nSELECT n FROM t;\nINSERT INTO t VALUES (2);\n\
         SELECT highwater_synced('{path}', 30000);\n"
    ));
    assert_eq!(said, "1\n1\n1\n");

    let copy = folder.path().join("copy.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    assert_same(file, &copy);
    assert_eq!(stock(&copy, "SELECT group_concat(n) FROM t"), "1,2\n");
}

/// The shell's own tools work on a bound database: import, dump, backup, VACUUM INTO.
#[test]
fn the_shells_import_dump_and_backup_work_on_a_bound_database() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("hosts/tools");
    let file = &bound(folder.path(), url);
    let (csv, backup, vacuumed) =
        (folder.path().join("in.csv"), folder.path().join("backup.db"), folder.path().join("vacuumed.db"));
    let rows: String = (0..3000).map(|n| format!("{n},row {n}\n")).collect();
    std::fs::write(&csv, rows).expect("it can be written");
    let said = shell(&format!(
        ".open {}\nCREATE TABLE t (n INTEGER, text TEXT);\n.mode csv\n.import {} t\n.backup {}\n\
         VACUUM INTO 'file:{}?vfs=unix';\nVACUUM;\nSELECT count(*) FROM t;\nSELECT highwater_synced('{}', 30000);\n",
        uri(file),
        csv.display(),
        backup.display(),
        vacuumed.display(),
        file.display(),
    ));
    assert_eq!(said.trim().replace('\r', ""), "3000\n1");
    highwater(["db", "verify", text(file), url]).ok();
    assert_sound(&backup);
    assert_same(&backup, &vacuumed);
    assert_same(file, &vacuumed);
}

#[test]
fn a_database_is_bound_from_sql_and_an_unbound_one_is_refused_by_name() {
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("hosts/sql");
    let file = &folder.path().join("app.db");
    let mut session = Session::python();
    let refused = session.open("main", &uri(file)).expect_err("it is not bound");
    assert!(refused.message.contains("not_bound") && refused.message.contains("highwater db bind"), "{refused:?}");
    assert!(!file.exists(), "a refused open makes no file");
    session.open("main", ":memory:").expect("memory");
    let options = r#"{"page_size": 8192, "auto_vacuum": 1}"#;
    session.value(&format!("SELECT highwater_bind('{}', '{url}', '{options}')", file.display()));
    session.open("main", &uri(file)).expect("it is bound");
    assert_eq!((session.value("PRAGMA page_size"), session.value("PRAGMA auto_vacuum")), (8192.into(), 1.into()));
    session.all(&["CREATE TABLE t (n INTEGER)"]);
    session.synced(file);
}
