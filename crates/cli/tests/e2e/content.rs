//! What a database holds, read by stock SQLite without the extension.

use crate::bed::{Ran, program, text};
use std::path::Path;

/// Debian's shell.
pub const SHELL: &str = "/usr/bin/sqlite3";

/// What the stock shell prints for `sql` on a file that nobody has open; the file is not touched.
#[track_caller]
pub fn stock(path: &Path, sql: &str) -> String {
    let uri = format!("file:{}?mode=ro&immutable=1", path.display());
    Ran::of(program(SHELL).args(["-bail", &uri, sql]), b"").ok()
}

/// Runs `sql` on a file with the stock shell, as a person would who knows nothing of the extension.
#[track_caller]
pub fn stock_write(path: &Path, sql: &str) {
    Ran::of(program(SHELL).args(["-bail", text(path), sql]), b"").ok();
}

/// Fails unless the file is a sound database.
#[track_caller]
pub fn assert_sound(path: &Path) {
    assert_eq!(stock(path, "PRAGMA integrity_check"), "ok\n", "{}", path.display());
}

/// Fails unless two files that nobody has open are sound and hold the same.
#[track_caller]
pub fn assert_same(one: &Path, other: &Path) {
    assert_sound(one);
    assert_sound(other);
    let (left, right) = (stock(one, ".dump"), stock(other, ".dump"));
    assert!(left == right, "{} and {} hold different rows", one.display(), other.display());
}
