//! The library as SQLite hosts load it: Debian's shell and Python, with a SQLite of their own.
//!
//! A host that is not there, or cannot load extensions, fails the test, which says what to install.

use highwater_disk::{Disk, OsDisk};
use highwater_sqlite::bind::{BindOptions, bind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

const SHELL: &str = "/usr/bin/sqlite3";
const PYTHON: &str = "/usr/bin/python3";

/// The library beside the test program, as cargo builds it for the same run.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let folder = program.parent().expect("target/debug/deps");
    folder.join(format!("{}highwater_sqlite{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX))
}

/// A folder with a database bound to a stream that nobody serves.
fn bound() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.db");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let mut stream = crate::bed::stream();
    stream.url = "http://127.0.0.1:9/v1/stream/test/app".to_owned();
    bind(&disk, &path, BindOptions::default(), &stream, &mut |_, _| {}).expect("bind");
    (folder, path)
}

fn uri(path: &Path) -> String {
    format!("file:{}?vfs=highwater&sync_close_ms=0", path.display())
}

/// Fails, and says what is missing, unless a host is there and does what the tests need.
fn require(host: &str, probe: &[&str]) {
    let probed = Command::new(host).args(probe).output();
    let works = probed.as_ref().is_ok_and(|output| output.status.success());
    assert!(
        works,
        "{host} is not there or cannot load extensions ({probed:?}). On Debian or Ubuntu: apt-get install sqlite3 \
         python3. Pythons of pyenv and of macOS are built without extension loading."
    );
}

fn require_shell() {
    require(SHELL, &[":memory:", "SELECT 1"]);
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the host runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a Python script of this folder with the library, the database and its URI as arguments.
fn python(script: &str, path: &Path, environment: &[(&str, &str)]) -> String {
    let probe = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    require(PYTHON, &["-c", probe]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vfs/hosts").join(script);
    let mut command = Command::new(PYTHON);
    command.arg(&script).arg(library()).arg(path).arg(uri(path)).envs(environment.iter().copied());
    let output = output(&mut command);
    let shown = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {shown}", script.display());
    text(&output.stdout)
}

#[test]
fn debians_shell_writes_a_bound_database_and_a_stock_one_is_locked_out() {
    require_shell();
    let (_folder, path) = bound();
    let stock = format!(".shell {SHELL} '{}' 'SELECT * FROM t' 2>&1", path.display());
    let load = format!(".load {}", library().display());
    let open = format!(".open {}", uri(&path));
    let sql = "CREATE TABLE t(a); INSERT INTO t VALUES (41); UPDATE t SET a = a + 1; PRAGMA journal_mode";
    let first = output(Command::new(SHELL).args([":memory:", &load, &open, sql, ".vfsname", &stock]));
    let shown = text(&first.stdout);
    assert!(shown.contains("wal\nhighwater\n") && shown.contains("database is locked"), "{first:?}");
    let again = output(Command::new(SHELL).args([":memory:", &load, &open, "SELECT a FROM t"]));
    assert_eq!(text(&again.stdout), "42\n", "{again:?}");
    let stock = output(Command::new(SHELL).args([path.to_str().expect("a path"), "SELECT a FROM t"]));
    assert_eq!(text(&stock.stdout), "42\n", "closed, it is an ordinary file: {stock:?}");
}

#[test]
fn as_the_default_vfs_it_passes_other_databases_through() {
    require_shell();
    let (folder, path) = bound();
    let plain = folder.path().join("plain.db");
    let load = format!(".load {}", library().display());
    let open = |path: &Path| format!(".open {}", path.display());
    let write = "CREATE TABLE t(a); INSERT INTO t VALUES (1); PRAGMA journal_mode=WAL; INSERT INTO t VALUES (2)";
    let mut command = Command::new(SHELL);
    command.env("HIGHWATER_DEFAULT_VFS", "1").args([":memory:", &load, &open(&plain), write, ".vfsname"]);
    let passed = output(&mut command);
    assert_eq!(text(&passed.stdout), "wal\nunix\n", "{passed:?}");
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).expect("list").map(|entry| entry.expect("entry").file_name()).collect();
    assert!(!files.iter().any(|name| name.to_string_lossy().starts_with("plain.db-highwater")), "{files:?}");
    let bound_uri = format!("file:{}?sync_close_ms=0", path.display());
    let mut command = Command::new(SHELL);
    command.env("HIGHWATER_DEFAULT_VFS", "1");
    command.args([
        ":memory:",
        &load,
        &format!(".open {bound_uri}"),
        "CREATE TABLE t(a); PRAGMA journal_mode",
        ".vfsname",
    ]);
    let captured = output(&mut command);
    assert_eq!(text(&captured.stdout), "wal\nhighwater-default\n", "{captured:?}");
}

#[test]
fn python_tells_what_was_refused_and_why() {
    let (_folder, path) = bound();
    let shown = python("refusals.py", &path, &[]);
    assert!(shown.contains("all told"), "{shown}");
}

/// Python's `multiprocessing` and pre-forking servers: the child inherits an open database.
#[test]
fn a_forked_child_leaves_its_parents_database_alone() {
    let (_folder, path) = bound();
    let shown = python("fork.py", &path, &[]);
    assert!(shown.contains("parent and child are well"), "{shown}");
}

/// A worker that outlives the process it was forked from, which is killed and started again.
#[test]
fn a_child_that_lives_on_does_not_keep_its_dead_parents_database_locked() {
    let (_folder, path) = bound();
    let shown = python("fork_lives.py", &path, &[]);
    assert!(shown.contains("opened while the child lives"), "{shown}");
}

#[test]
fn a_python_that_is_killed_has_every_commit_it_was_told_of() {
    let (_folder, path) = bound();
    let shown = python("killed.py", &path, &[]);
    assert!(shown.contains("nothing acknowledged is lost"), "{shown}");
}

/// Rounds of the WAL-reset stress; `HIGHWATER_WAL_RESET_ROUNDS` asks for more or fewer.
const WAL_RESET_ROUNDS: &str = "2000";

/// The WAL-reset bug lives in Debian 12's SQLite 3.40.1, among others: the status says so, and no page is lost.
#[test]
fn checkpoints_and_restarts_of_the_wal_on_an_affected_sqlite_lose_no_page() {
    let (_folder, path) = bound();
    let rounds = std::env::var("HIGHWATER_WAL_RESET_ROUNDS").unwrap_or_else(|_| WAL_RESET_ROUNDS.to_owned());
    let shown = python("wal_reset.py", &path, &[("ROUNDS", &rounds)]);
    assert!(shown.contains("no page lost"), "{shown}");
    assert!(!shown.contains("SQLite 3.40.") || shown.contains("has the bug"), "{shown}");
}
