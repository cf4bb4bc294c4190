use super::*;
use std::fmt::Write;
use std::path::Path;

/// Where the reference page lies.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/errors.md");

/// Set to write the page instead of comparing it.
const WRITE: &str = "HIGHWATER_WRITE_DOCS";

/// The page, made from the table.
fn page() -> String {
    let mut page = String::from(
        "# Error codes\n\n\
         <!-- Made from the table in crates/http/src/error/table.rs; HIGHWATER_WRITE_DOCS=1 cargo test -p highwater-http \
         writes it. -->\n\n\
         Every error of the stream interface has this body, `Content-Type: application/json` and `Cache-Control: no-store`:\n\n\
         ```json\n{\"error\":{\"code\":\"STREAM_NOT_FOUND\",\"message\":\"there is no stream at this path\"}}\n```\n\n\
         Programs match `code` alone. The message is for people and changes freely; unknown members and codes may appear.\n\n\
         What an answer says about a write: every 4xx but 408 proves that it did nothing and never will. At 408 and 5xx only \
         these codes prove it: `BODY_TOO_SLOW` (408), and at 503 all below but `OUTCOME_UNKNOWN`. `OUTCOME_UNKNOWN`, `INTERNAL` \
         and no answer at all prove nothing: repeat the same keyed write, and its receipt tells.\n\n\
         | Code | Status | Headers | When | What to do |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in TABLE {
        let retry = row.retry_after.map_or(String::new(), |seconds| format!("`Retry-After: {seconds}`"));
        let headers: Vec<&str> = [retry.as_str(), row.headers].into_iter().filter(|text| !text.is_empty()).collect();
        let headers = if headers.is_empty() { "–".to_owned() } else { headers.join(", ") };
        writeln!(page, "| `{}` | {} | {headers} | {} | {} |", row.name, row.status, row.when, row.remedy)
            .expect("a string");
    }
    page
}

#[test]
fn the_reference_page_is_made_from_the_table() {
    let path = Path::new(PAGE);
    if std::env::var_os(WRITE).is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        std::fs::write(path, page()).expect("the page is written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page(), "docs/reference/errors.md is not what the table says; {WRITE}=1 cargo test writes it");
}

#[test]
fn codes_are_unique_and_their_rows_are_whole() {
    let mut names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLE.len());
    for row in TABLE {
        assert!(row.name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'), "{}", row.name);
        assert!((400..600).contains(&row.status) && !row.when.is_empty() && !row.remedy.is_empty(), "{}", row.name);
        assert!(!row.when.contains('|') && !row.headers.contains('|') && !row.remedy.contains('|'), "{}", row.name);
    }
}

#[test]
fn only_temporary_refusals_say_when_to_come_back() {
    for row in TABLE {
        let temporary = matches!(row.status, 429 | 503);
        assert!(row.retry_after.is_none() || temporary, "{}", row.name);
        let none = [
            "APPLY_STOPPED",
            "OUTCOME_UNKNOWN",
            "PDS_UNAVAILABLE",
            "PRODUCER_LIMIT",
            "RATE_LIMITED",
            "STAGED_PARTS_LIMIT",
        ]
        .contains(&row.name);
        assert_eq!(row.retry_after.is_none(), none || !temporary, "{}", row.name);
    }
}
