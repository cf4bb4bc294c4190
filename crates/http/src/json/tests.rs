use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn stored(body: &str) -> String {
    String::from_utf8(split(body.as_bytes()).expect(body)).expect("text")
}

fn refused(body: &[u8]) -> Fault {
    split(body).expect_err(&String::from_utf8_lossy(body))
}

#[test]
fn an_array_is_flattened_by_exactly_one_level() {
    for (body, messages) in [
        ("1", "1\n"),
        ("{}", "{}\n"),
        ("[1,2]", "1\n2\n"),
        ("[[1,2],[3]]", "[1,2]\n[3]\n"),
        ("[[]]", "[]\n"),
        ("[[[1]]]", "[[1]]\n"),
        ("[{\"a\":[1,2]},null]", "{\"a\":[1,2]}\nnull\n"),
        ("\"\"", "\"\"\n"),
    ] {
        assert_eq!(stored(body), messages, "{body}");
    }
}

#[test]
fn white_space_goes_from_between_and_stays_inside_strings() {
    assert_eq!(stored(" \r\n\t[ 1 ,\n {\"a b\" : \" c\\n \" , \"d\":[ ] } ] \n"), "1\n{\"a b\":\" c\\n \",\"d\":[]}\n");
}

#[test]
fn what_is_significant_is_kept_to_the_byte() {
    for text in [
        "1.0",
        "-0",
        "1e400",
        "-12.340E+05",
        "123456789012345678901234567890.0000",
        "\"\\u0041\\/\\ud800\"",
        "\"\u{2028}\u{1f600}\"",
        "{\"a\":1,\"a\":2,\"\":3}",
    ] {
        assert_eq!(stored(text), format!("{text}\n"));
    }
}

#[test]
fn an_empty_array_is_told_from_what_is_no_json() {
    for body in ["[]", " [ \n] "] {
        assert_eq!(refused(body.as_bytes()), Fault::Empty);
    }
    for body in [
        "",
        " ",
        "[",
        "]",
        "[]]",
        "[1",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "{",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{1:2}",
        "{\"a\" 1}",
        "01",
        "-",
        "-01",
        "1.",
        ".5",
        "+1",
        "1e",
        "1e+",
        "1.e5",
        "0x1",
        "tru",
        "True",
        "nul",
        "NaN",
        "Infinity",
        "truefalse",
        "1 2",
        "{}{}",
        "\"",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\u{1}\"",
        "\"a\nb\"",
        "'a'",
        "\u{feff}1",
        "// c\n1",
        "[1]x",
        "1,2",
        "\u{a0}1",
    ] {
        assert!(matches!(refused(body.as_bytes()), Fault::Invalid { .. }), "{body:?}");
    }
    for body in [&b"\"\xff\""[..], b"\"\xed\xa0\x80\"", b"\xff", b"1\0", b"\0"] {
        assert!(matches!(refused(body), Fault::Invalid { .. }), "{body:?}");
    }
}

#[test]
fn a_fault_says_where() {
    assert_eq!(refused(b"[1, 2, x]"), Fault::Invalid { at: 7, what: "no value begins with this" });
    assert_eq!(refused(b"{\"a\": 01}"), Fault::Invalid { at: 6, what: "a number with a leading zero" });
}

/// A message that can be stored must not make an answer that common parsers refuse.
#[test]
fn depth_is_bounded_where_parsers_stop() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (depth, fits) in [(1, false), (2, true), (127, true), (128, false), (100_000, false)] {
        // The outer array is flattened away, and comes back in the answer.
        let messages = split(nested(depth).as_bytes());
        assert_eq!(messages.is_ok(), fits, "{depth}");
        if let Ok(messages) = messages {
            assert!(serde_json::from_slice::<Value>(&array(&messages)).is_ok(), "{depth}");
        }
    }
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    assert!(split(objects(126).as_bytes()).is_ok());
    assert!(split(objects(127).as_bytes()).is_err());
    let mixed = |depth: usize| format!("{}{}", "{\"a\":[".repeat(depth), "]}".repeat(depth));
    assert_eq!(stored(&mixed(63)), format!("{}\n", mixed(63)));
}

#[test]
fn messages_come_back_as_one_array() {
    for (stored, answer) in [("", "[]"), ("1\n", "[1]"), ("1\n{\"a\":\"\\n\"}\n[]\n", "[1,{\"a\":\"\\n\"},[]]")] {
        assert_eq!(String::from_utf8_lossy(&array(stored.as_bytes())), answer);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_stored_comes_back_the_same(values in prop::collection::vec(any_json(), 1..6), pretty in any::<bool>()) {
        let body = Value::from(values);
        let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) };
        let messages = split(text.expect("text").as_bytes()).expect("valid");
        prop_assert_eq!(messages.split_inclusive(|byte| *byte == BOUNDARY).count(), body.as_array().map_or(0, Vec::len));
        let answer = String::from_utf8(array(&messages)).expect("text");
        prop_assert_eq!(answer, serde_json::to_string(&body).expect("text"));
    }

    /// The judge is another parser, which knows numbers out of range and lone surrogates where it makes values of them.
    #[test]
    fn what_is_json_is_judged_as_others_do(text in "[\\[\\]{}:,\"\\\\0-9eE+. ntrufalse\\-a-]{0,24}") {
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        let ours = !matches!(split(text.as_bytes()), Err(Fault::Invalid { .. }));
        prop_assert_eq!(ours, theirs, "{:?}", text);
    }

    #[test]
    fn no_bytes_make_the_scanner_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(messages) = split(&bytes) {
            prop_assert!(serde_json::from_slice::<Vec<serde::de::IgnoredAny>>(&array(&messages)).is_ok());
        }
    }
}
