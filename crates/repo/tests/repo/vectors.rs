//! The vectors' files.

use serde_json::Value;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/atproto-interop").join(name)
}

/// A file's text.
pub fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A file's cases, of which there must be so many.
pub fn cases(name: &str, count: usize) -> Vec<Value> {
    let cases: Vec<Value> = serde_json::from_str(&text(name)).expect("a list of cases");
    assert_eq!(cases.len(), count, "{name}");
    cases
}

/// A file's lines, spaces and all, of which there must be so many; empty ones and comments are none.
pub fn lines(name: &str, count: usize) -> Vec<String> {
    let all = text(name);
    let lines: Vec<_> =
        all.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{name}");
    lines
}
