use super::*;
use proptest::prelude::*;

fn stream(encoded: &str) -> Option<String> {
    match parse(encoded) {
        Ok(Target::Stream(path)) => Some(path),
        _ => None,
    }
}

#[test]
fn a_path_has_any_number_of_segments() {
    for (encoded, path) in [
        ("a", "a"),
        ("a/b/c/d/e/f", "a/b/c/d/e/f"),
        ("yjs/service/docs/a.b/.updates", "yjs/service/docs/a.b/.updates"),
        ("a%20b/%C3%A9", "a b/é"),
        ("100%25", "100%"),
        ("snapshot", "snapshot"),
        ("a/snapshots/1", "a/snapshots/1"),
        ("a/.snapshot/1", "a/.snapshot/1"),
        ("a/incarnation", "a/incarnation"),
        ("retention/5", "retention/5"),
        ("...", "..."),
        ("a+b", "a+b"),
    ] {
        assert_eq!(stream(encoded).as_deref(), Some(path), "{encoded:?}");
    }
}

#[test]
fn what_cannot_name_a_stream_is_refused() {
    for encoded in [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        ".",
        "..",
        "a/..",
        "a/../b",
        "a/%2e%2E/b",
        "a%2Fb",
        "a%00b",
        "a%0Ab",
        "a%7f",
        "a%C2%85",
        "a%",
        "a%2",
        "a%zz",
        "a%ff",
        "a%+1",
        "__ds/x",
        "__ds",
        "__ursula/live",
        "%5F_ds/x",
    ] {
        assert_eq!(parse(encoded).map_err(|error| error.code()), Err(Code::InvalidStreamId), "{encoded:?}");
    }
    assert!(stream(&"x".repeat(PATH_BYTES_MAX)).is_some());
    assert!(stream(&"x".repeat(PATH_BYTES_MAX + 1)).is_none());
    assert!(stream(&"%C3%A9".repeat(PATH_BYTES_MAX / 2)).is_some(), "the decoded length counts");
    assert!(stream("a/__ds").is_some(), "only the first segment is reserved");
}

#[test]
fn tails_of_sub_resources_are_never_streams() {
    let text = str::to_owned;
    let immutable = |rest: &[&str]| Part::Immutable(text("7"), rest.iter().map(|s| text(s)).collect());
    for (encoded, path, part) in [
        ("a/snapshot", "a", Part::BareSnapshot),
        ("a/b/snapshot", "a/b", Part::BareSnapshot),
        ("a/snapshot/5", "a", Part::Snapshot(text("5"))),
        ("a/b/snapshot/x", "a/b", Part::Snapshot(text("x"))),
        ("a/snapshot/5/parts", "a", Part::StageParts(text("5"))),
        ("a/snapshot/parts", "a", Part::DiscardParts),
        ("a/b/retention/00000000000000000005", "a/b", Part::Retention(text("00000000000000000005"))),
        ("a/incarnation/7", "a", immutable(&[])),
        ("a/incarnation/7/chunk/0", "a", immutable(&["chunk", "0"])),
        ("a/incarnation/7/snapshot/0", "a", immutable(&["snapshot", "0"])),
        ("a/b/incarnation/7/anything", "a/b", immutable(&["anything"])),
        ("a/%73napshot", "a", Part::BareSnapshot),
    ] {
        let target = parse(encoded).expect("a part");
        assert_eq!(target, Target::Part(text(path), part), "{encoded:?}");
        assert_eq!(target.stream(), path, "the stream is what a key is judged by");
    }
    let longest = "x".repeat(PATH_BYTES_MAX);
    assert!(parse(&format!("{longest}/snapshot/5/parts")).is_ok(), "a stream's path is as long as it may be");
    assert!(parse(&format!("x{longest}/snapshot/5/parts")).is_err());
}

proptest! {
    #[test]
    fn a_path_parses_to_clean_segments_or_not_at_all(encoded in "[a-c./%20-9F]{0,40}") {
        if let Ok(Target::Stream(path)) = parse(&encoded) {
            prop_assert!(path.split('/').all(|s| !s.is_empty() && s != "." && s != ".." && !s.contains('\0')));
            prop_assert!(path.len() <= PATH_BYTES_MAX);
        }
    }

    #[test]
    fn a_stream_has_one_path_whatever_is_encoded(path in "[a-z]{1,5}(/[a-z .é]{1,5}x){0,3}", every in 1..4usize) {
        let encoded: String = path
            .char_indices()
            .map(|(at, c)| {
                if c == '/' || at % every != 0 { return c.to_string() }
                c.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect()
            })
            .collect();
        prop_assert_eq!(parse(&encoded).ok(), parse(&path).ok());
    }
}

proptest! {
    /// The short way must never take for a stream what the long way takes for a part of one, or refuses.
    #[test]
    fn a_path_that_is_plain_is_the_stream_that_its_segments_name(
        segments in prop::collection::vec(
            prop_oneof![
                "[!-~]{0,6}", Just(".".to_owned()), Just("..".to_owned()), Just("snapshot".to_owned()),
                Just("parts".to_owned()), Just("retention".to_owned()), Just("incarnation".to_owned()),
                Just("__ds".to_owned()), Just("a".to_owned()), Just("7".to_owned()),
            ],
            1..6,
        )
    ) {
        let encoded = segments.join("/");
        if is_plain(&encoded) {
            prop_assert_eq!(parse_segments(&encoded).ok(), Some(Target::Stream(encoded)));
        }
    }
}
