//! Many connections of one process, on an SQLite that has the WAL-reset bug.

use crate::bed::{Ran, Server, extension, folder, highwater, program, script, text};
use crate::content::assert_same;
use crate::session::{PYTHON, bound};

/// Hermes 69784, ruflo 2736: databases damaged by checkpoints against restarts of the WAL. The lock rules of the VFS
/// keep the two apart, so hosts with such an SQLite are safe here.
///
/// `HIGHWATER_STRESS_SECONDS` runs it for longer.
#[test]
fn checkpoints_against_restarts_of_the_wal_lose_no_page_on_an_affected_sqlite() {
    let seconds = std::env::var("HIGHWATER_STRESS_SECONDS").unwrap_or_else(|_| "12".to_owned());
    let folder = folder();
    let server = Server::start(folder.path());
    let url = &server.url("stress/reset");
    let file = &bound(folder.path(), url);
    let mut command = program(PYTHON);
    let said = Ran::of(command.arg(script("stress.py")).arg(extension()).arg(file).arg(&seconds), b"").ok();
    println!("{said}");
    assert!(said.contains("nothing is missing"), "{said}");
    let restarts = said.split("WAL restarts ").nth(1).and_then(|rest| rest.lines().next());
    let restarts: u64 = restarts.and_then(|number| number.parse().ok()).expect("the script counts restarts");
    assert!(restarts > 20, "the WAL was hardly ever restarted, so nothing was shown: {said}");
    highwater(["db", "verify", text(file), url]).ok();
    let copy = folder.path().join("copy.db");
    highwater(["db", "restore", url, text(&copy)]).ok();
    assert_same(file, &copy);
}
