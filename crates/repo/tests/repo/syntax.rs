use crate::vectors::lines;
use highwater_repo::syntax::*;
use highwater_repo::{Cid, Tid};

fn check(name: &str, (valid, invalid): (usize, usize), is: impl Fn(&str) -> bool) {
    for line in lines(&format!("syntax/{name}_syntax_valid.txt"), valid) {
        assert!(is(&line), "{name} {line:?} is refused");
    }
    for line in lines(&format!("syntax/{name}_syntax_invalid.txt"), invalid) {
        assert!(!is(&line), "{name} {line:?} is taken");
    }
}

#[test]
fn texts_that_call_things_are_taken_and_refused_as_the_vectors_say() {
    check("aturi", (23, 72), is_at_uri);
    check("atidentifier", (11, 22), is_at_identifier);
    check("cid", (8, 10), is_cid_text);
    check("did", (24, 18), is_did);
    check("handle", (71, 48), is_handle);
    check("nsid", (25, 27), is_nsid);
    check("recordkey", (16, 11), is_record_key);
    check("tid", (4, 9), |text| text.parse::<Tid>().is_ok());
    check("uri", (9, 12), is_uri);
}

#[test]
fn times_and_languages_are_judged_by_their_form_and_by_their_meaning() {
    check("datetime", (35, 45), is_datetime_text);
    check("datetime", (35, 45), is_datetime);
    for line in lines("syntax/datetime_parse_invalid.txt", 7) {
        assert!(is_datetime_text(&line) && !is_datetime(&line), "{line:?}");
    }
    assert!(is_datetime("2024-02-29T23:59:60Z") && !is_datetime("2023-02-29T00:00:00Z"));
    check("language", (18, 7), is_language_text);
    check("language", (18, 7), is_language);
    for line in lines("syntax/language_parse_invalid.txt", 4) {
        assert!(is_language_text(&line) && !is_language(&line), "{line:?}");
    }
}

#[test]
fn a_link_is_narrower_than_the_text_of_any_cid() {
    let links = lines("syntax/cid_syntax_valid.txt", 8).iter().filter(|line| line.parse::<Cid>().is_ok()).count();
    // The others are of other codecs or bases.
    assert_eq!(links, 0);
}
