//! What the sources must not contain.

use crate::process::root;
use crate::sizes::source_files;
use std::path::PathBuf;

/// Ways to time, entropy, threads, I/O and unordered maps, none of which a crate that decides may take.
const IMPURE: [&str; 12] = [
    "std::fs",
    "std::net",
    "std::time",
    "std::thread",
    "std::env",
    "tokio",
    "SystemTime",
    "Instant::now",
    "thread_rng",
    "HashMap",
    "HashSet",
    "println!",
];

/// Marks of work that is not done.
const UNFINISHED: [&str; 6] = ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!(", "#[ignore"];

fn sources() -> Vec<(PathBuf, String)> {
    let own = PathBuf::from(file!()).file_name().map(ToOwned::to_owned);
    let files = source_files().expect("the work tree can be read");
    let others = files.into_iter().filter(|(path, _)| path.file_name() != own.as_deref());
    others
        .map(|(path, _)| {
            let text = std::fs::read_to_string(&path).expect("readable");
            (path, text)
        })
        .collect()
}

#[test]
fn crates_that_decide_touch_no_clock_entropy_thread_or_file() {
    for (path, text) in sources() {
        let pure = ["base", "stream", "control", "repo", "consumer", "pds", "consensus"]
            .iter()
            .any(|name| path.starts_with(root().join("crates").join(name).join("src")));
        let test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        if !pure || test {
            continue;
        }
        let production = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for line in production.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for word in IMPURE {
                assert!(!line.contains(word), "{}: {word} in: {line}", path.display());
            }
        }
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for (path, text) in sources() {
        for word in UNFINISHED {
            assert!(!text.contains(word), "{} contains {word}", path.display());
        }
    }
}

#[test]
fn every_crate_opens_with_its_front_page() {
    for (path, text) in sources() {
        if !path.ends_with("src/lib.rs") {
            continue;
        }
        for heading in ["# Purpose", "# Modules", "# Invariants", "# Must not depend on"] {
            assert!(text.contains(&format!("//! {heading}")), "{} lacks {heading}", path.display());
        }
    }
}

/// The tests that a page of tables names in its last columns, each looked up in the sources.
fn named_tests(page: &str) -> usize {
    let all: String = sources().into_iter().map(|(_, text)| text).collect();
    let page = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let mut named = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let proof = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default();
        let tests = proof.split('`').skip(1).step_by(2).filter(|name| name.len() > 20 && !name.contains([' ', '(']));
        for test in tests {
            // Some are made from the lines of a table.
            let made = all.contains(&format!("fn {test}()")) || all.contains(&format!("\n    {test}: "));
            assert!(made, "no test is named {test}");
            named += 1;
        }
    }
    named
}

#[test]
fn every_promise_in_the_docs_names_a_test_that_is_there() {
    let named = named_tests("docs/explanation/acknowledgement.md");
    assert!(named > 30, "only {named} promises name a test");
}

#[test]
fn every_report_in_the_docs_names_a_test_that_is_there() {
    let named = named_tests("docs/reference/reports.md");
    assert!(named > 12, "only {named} reports name a test");
}

/// Numbers of the reports about accounts, as their projects filed them.
///
/// Source: docs/reference/reports.md.
const REPORTS_OF_ACCOUNTS: [&str; 25] = [
    "#1231",
    "#341",
    "#1161",
    "#1133",
    "#1185",
    "request 111",
    "#3580",
    "#2400",
    "#169",
    "#1241",
    "#225",
    "#149",
    "#19",
    "4067",
    "#4212",
    "#3637",
    "#158",
    "#514",
    "657",
    "#350",
    "#355",
    "#359",
    "#365",
    "#374",
    "cirrus",
];

/// The rows of a table below a heading, without its own head, as cells.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("there is no {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    lines.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn every_report_about_accounts_has_a_row_that_names_its_test() {
    let rows = rows("docs/reference/reports.md", "Accounts of the AT Protocol");
    for report in REPORTS_OF_ACCOUNTS {
        let row = rows.iter().find(|row| row[0].contains(report)).unwrap_or_else(|| panic!("{report} has no row"));
        assert!(row[2].starts_with('`'), "nothing proves {row:?}");
    }
}

/// Amendments that are built, each with a test; limits, each with its reason beside it.
///
/// Source: docs/reference/pds-conformance.md, "Amendments".
#[test]
fn every_amendment_names_its_test_and_every_limit_its_reason() {
    const PAGE: &str = "docs/reference/pds-conformance.md";
    const AMENDMENTS: [(&str, &str); 22] = [
        ("F1, a", "rule"),
        ("F2, e", "rule"),
        ("F3, k", "rule"),
        ("F4, c", "limit"),
        ("F5", "rule"),
        ("F6", "rule"),
        ("F7, g", "rule and limit"),
        ("F8", "rule and limit"),
        ("F9, d", "limit"),
        ("b", "rule"),
        ("f", "limit"),
        ("h", "rule"),
        ("i", "decision"),
        ("j", "limit"),
        ("l", "rule"),
        ("m", "rule"),
        ("n", "rule"),
        ("o", "rule"),
        ("p", "rule"),
        ("q", "rule"),
        ("r", "rule"),
        ("s", "limit"),
    ];
    let amendments = rows(PAGE, "Amendments");
    let told: Vec<_> = amendments.iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
    assert_eq!(told, AMENDMENTS);
    for row in amendments.iter().chain(&rows(PAGE, "The proposal's own tests")) {
        assert!(row.last().is_some_and(|proof| proof.starts_with('`')), "nothing proves {row:?}");
    }
    for heading in ["Departures", "Limits"] {
        for row in rows(PAGE, heading) {
            let empty = row.iter().skip(2).any(String::is_empty) && !row[2].contains("RepoTakendown");
            assert!(!empty, "a reason is missing: {row:?}");
        }
    }
    assert!(named_tests(PAGE) > 60, "tests are named");
}

/// A line on who can reach what that nothing proves is a hope.
#[test]
fn every_line_of_the_security_page_names_a_test_that_is_there() {
    const PAGE: &str = "docs/explanation/security.md";
    let named = named_tests(PAGE);
    assert!(named > 40, "only {named} lines name a test");
    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page is there");
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    for row in rows.filter(|row| !row.contains("| proven by |")) {
        let proof = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default();
        assert!(proof.trim().starts_with('`'), "nothing proves: {row}");
    }
}
