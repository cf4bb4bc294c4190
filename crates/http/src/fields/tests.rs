use super::*;
use axum::http::HeaderValue;
use proptest::prelude::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a header's value"));
    }
    headers
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Code {
    result.expect_err("a refusal").code()
}

const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn a_token_is_canonical_decimal_below_two_to_the_fifty_three() {
    let parse = |text: &str| incarnation(&headers(&[("stream-incarnation", text)]));
    assert_eq!(parse("4503599627370497").map(|t| t.map(Incarnation::get)).ok(), Some(Some(4_503_599_627_370_497)));
    assert_eq!(parse(" \t1\t ").map(|t| t.map(Incarnation::get)).ok(), Some(Some(1)), "outer whitespace is trimmed");
    for bad in ["", "0", "01", "-1", "+1", "1.0", "9007199254740992", "1 2", "0x1", "é"] {
        assert_eq!(code(parse(bad)), Code::InvalidHeader, "{bad:?}");
    }
    assert_eq!(incarnation(&HeaderMap::new()).ok(), Some(None));
}

#[test]
fn a_repeated_header_is_an_error_even_with_equal_values() {
    let twice = |name| headers(&[(name, "1"), (name, "1")]);
    assert_eq!(code(incarnation(&twice("stream-incarnation"))), Code::InvalidHeader);
    assert_eq!(code(stream_seq(&twice("stream-seq"))), Code::InvalidHeader);
    assert_eq!(code(content_type(&twice("content-type"))), Code::InvalidHeader);
    assert_eq!(code(closes(&twice("stream-closed"))), Code::InvalidHeader);
    for name in ["producer-id", "producer-epoch", "producer-seq"] {
        assert_eq!(code(producer(&twice(name))), Code::InvalidProducer, "{name}");
    }
    assert_eq!(
        code(producer(&headers(&[("producer-digest", DIGEST), ("producer-digest", DIGEST)]))),
        Code::InvalidHeader
    );
}

#[test]
fn a_key_is_whole_or_absent() {
    assert_eq!(producer(&HeaderMap::new()).ok(), Some(None));
    let all = [("producer-id", "w"), ("producer-epoch", "1"), ("producer-seq", "0"), ("producer-digest", DIGEST)];
    assert!(producer(&headers(&all)).is_ok_and(|key| key.is_some_and(|key| key.digest.is_some())));
    assert!(producer(&headers(&all[..3])).is_ok_and(|key| key.is_some_and(|key| key.digest.is_none())));
    for partial in [&all[..1], &all[..2], &all[1..3], &all[1..2], &all[3..], &all[1..], &[all[0], all[2]]] {
        assert_eq!(code(producer(&headers(partial))), Code::InvalidProducer, "{partial:?}");
    }
}

#[test]
fn producer_numbers_tolerate_leading_zeros_and_nothing_else() {
    let parse = |epoch: &str, seq: &str| {
        producer(&headers(&[("producer-id", "w"), ("producer-epoch", epoch), ("producer-seq", seq)]))
            .map(|key| key.map(|key| (key.epoch, key.seq)))
    };
    assert_eq!(parse("007", "00000000000000000000000000009007199254740991").ok(), Some(Some((7, (1 << 53) - 1))));
    assert_eq!(parse("0", "000").ok(), Some(Some((0, 0))));
    for bad in ["", "-1", "+1", "1.5", "1e3", "9007199254740992", "99999999999999999999", "1 2", "٣", "0x1"] {
        assert_eq!(code(parse(bad, "0")), Code::InvalidProducer, "epoch {bad:?}");
        assert_eq!(code(parse("0", bad)), Code::InvalidProducer, "seq {bad:?}");
    }
}

#[test]
fn producer_ids_and_stream_seqs_are_visible_ascii() {
    let key = |id: &str| producer(&headers(&[("producer-id", id), ("producer-epoch", "0"), ("producer-seq", "0")]));
    let longest = "x".repeat(256);
    for good in ["w", "sqlite-ursula-vfs/2", "a b\tc", longest.as_str()] {
        assert!(key(good).is_ok_and(|key| key.is_some_and(|key| key.id == good)), "{good:?}");
        assert_eq!(stream_seq(&headers(&[("stream-seq", good)])).ok().flatten().as_deref(), Some(good));
    }
    let longer = "x".repeat(257);
    for bad in ["", "  ", "é", longer.as_str()] {
        assert_eq!(code(key(bad)), Code::InvalidProducer, "{bad:?}");
        assert_eq!(code(stream_seq(&headers(&[("stream-seq", bad)]))), Code::InvalidHeader, "{bad:?}");
    }
    assert!(key(" w ").is_ok_and(|key| key.is_some_and(|key| key.id == "w")));
}

#[test]
fn digests_are_sixty_four_lowercase_digits() {
    let parse = |digest: &str| {
        let all = [("producer-id", "w"), ("producer-epoch", "1"), ("producer-seq", "0"), ("producer-digest", digest)];
        producer(&headers(&all))
    };
    assert!(parse(DIGEST).is_ok());
    for bad in [&DIGEST[1..], &DIGEST.to_uppercase(), "", &format!("{DIGEST}0")] {
        assert_eq!(code(parse(bad)), Code::InvalidHeader, "{bad:?}");
    }
}

#[test]
fn a_close_is_true_in_any_letter_case_and_nothing_else() {
    for (value, expected) in [
        ("true", true),
        ("TRUE", true),
        (" True ", true),
        ("false", false),
        ("yes", false),
        ("1", false),
        ("", false),
        ("é", false),
    ] {
        assert_eq!(closes(&headers(&[("stream-closed", value)])).ok(), Some(expected), "{value:?}");
    }
    assert_eq!(closes(&HeaderMap::new()).ok(), Some(false));
}

#[test]
fn content_types_are_normalised_part_by_part() {
    for (given, normalised) in [
        ("TEXT/Plain", Some("text/plain")),
        ("text/plain;charset=UTF-8", Some("text/plain; charset=utf-8")),
        (" text/plain ;  charset=x ; b ", Some("text/plain; charset=x; b")),
        ("", None),
        ("  ", None),
        (" ; ;", None),
        ("text/plain;", Some("text/plain")),
    ] {
        assert_eq!(
            content_type(&headers(&[("content-type", given)])).ok().flatten().as_deref(),
            normalised,
            "{given:?}"
        );
    }
    let long = format!("text/{}", "x".repeat(256));
    assert_eq!(code(content_type(&headers(&[("content-type", &long)]))), Code::InvalidHeader);
    assert_eq!(code(content_type(&headers(&[("content-type", "text/é")]))), Code::InvalidHeader);
}

#[test]
fn entity_tags_are_compared_weakly_in_lists() {
    let tag = "\"1:0:5:u\"";
    for (field, matches) in [
        (tag, true),
        ("*", true),
        ("W/\"1:0:5:u\"", true),
        ("\"x\", \"1:0:5:u\"", true),
        ("\"x\"", false),
        ("1:0:5:u", false),
        ("", false),
    ] {
        assert_eq!(none_match(&headers(&[("if-none-match", field)]), tag), matches, "{field:?}");
    }
    assert!(none_match(&headers(&[("if-none-match", "\"x\""), ("if-none-match", tag)]), tag));
}

proptest! {
    #[test]
    fn no_value_of_a_header_makes_a_parser_panic(
        values in prop::collection::vec((0..6usize, prop::collection::vec(prop_oneof![Just(9u8), 32..=126u8, 128..=255u8], 0..40)), 0..8)
    ) {
        const NAMES: [&str; 6] =
            ["producer-id", "producer-epoch", "producer-seq", "producer-digest", "stream-incarnation", "content-type"];
        let mut map = HeaderMap::new();
        for (name, value) in &values {
            map.append(NAMES[*name], HeaderValue::from_bytes(value).expect("a header's value"));
        }
        let refused = |code: Code| matches!(code, Code::InvalidHeader | Code::InvalidProducer);
        prop_assert!(producer(&map).map_or_else(|error| refused(error.code()), |_| true));
        prop_assert!(incarnation(&map).map_or_else(|error| refused(error.code()), |_| true));
        prop_assert!(content_type(&map).map_or_else(|error| refused(error.code()), |_| true));
    }

    #[test]
    fn a_number_is_taken_exactly_when_it_is_digits_below_the_bound(text in "[0-9+-]{0,22}") {
        let expected = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u128>().ok()).flatten()
            .filter(|number| *number < 1 << 53);
        prop_assert_eq!(producer_number(&text).map(u128::from), expected);
    }

    #[test]
    fn normalising_a_content_type_twice_changes_nothing(text in "[ -~]{0,60}") {
        let once = content_type(&headers(&[("content-type", &text)])).ok().flatten();
        if let Some(once) = once {
            let again = content_type(&headers(&[("content-type", &once)])).ok().flatten();
            prop_assert_eq!(again, Some(once));
        }
    }
}
