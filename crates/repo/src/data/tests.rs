use super::*;
use proptest::prelude::*;

fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> =
        text.bytes().filter(|b| *b != b' ').map(|b| (b as char).to_digit(16).expect("hex") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect::<Vec<_>>().into()
}

#[test]
fn only_the_one_encoding_is_taken() {
    for (bytes, error) in [
        ("", DataError::Short),
        ("18 17", DataError::NotMinimal),
        ("19 00ff", DataError::NotMinimal),
        ("1b 00000000ffffffff", DataError::NotMinimal),
        ("78 01 61", DataError::NotMinimal),
        ("5f 41 00 ff", DataError::NotMinimal),
        ("9f ff", DataError::NotMinimal),
        ("fb 3ff8000000000000", DataError::Unsupported),
        ("f9 7e00", DataError::Unsupported),
        ("f7", DataError::Unsupported),
        ("f8 20", DataError::Unsupported),
        ("c0 60", DataError::Unsupported),
        ("d8 2b 40", DataError::Unsupported),
        ("1b 0020000000000000", DataError::Range),
        ("3b 001fffffffffffff", DataError::Range),
        ("61 ff", DataError::Utf8),
        ("a1 01 02", DataError::Keys),
        ("a2 61 62 01 61 61 02", DataError::Keys),
        ("a2 62 6161 01 61 62 02", DataError::Keys),
        ("a2 61 61 01 61 61 02", DataError::Keys),
        ("00 00", DataError::Trailing(1)),
        ("82 00", DataError::Short),
        ("9b ffffffffffffffff", DataError::Short),
        ("d8 2a 41 00", DataError::Link(CidError::Length)),
    ] {
        assert_eq!(decode(hex(bytes)), Err(error), "{bytes}");
    }
    assert_eq!(decode(hex("1b 001fffffffffffff")), Ok(Value::Integer(INTEGER_MAX)));
    assert_eq!(decode(hex("3b 001ffffffffffffe")), Ok(Value::Integer(-INTEGER_MAX)));
}

#[test]
fn nesting_has_a_bound() {
    let nested = |depth: usize| Bytes::from([vec![0x81; depth], vec![0x80]].concat());
    assert!(decode(nested(DEPTH_MAX - 1)).is_ok());
    assert_eq!(decode(nested(DEPTH_MAX)), Err(DataError::Depth));
    assert_eq!(decode(Bytes::from(vec![0x81; 1 << 20])), Err(DataError::Depth));
}

#[test]
fn json_says_what_it_will_not_take() {
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
    assert_eq!(parse("9007199254740991"), Ok(Value::Integer(INTEGER_MAX)));
    assert_eq!(parse("123.0"), Ok(Value::Integer(123)));
    assert_eq!(parse(r#"{"$bytes":"aGk"}"#), parse(r#"{"$bytes":"aGk="}"#));
    for (text, says) in [
        ("9007199254740992", "2^53"),
        ("18446744073709551615", "2^53"),
        ("1.5", "floats"),
        ("1e300", "floats"),
        (r#"{"a":1,"a":2}"#, "twice"),
        (r#"{"$link":"bafy","x":1}"#, "alone"),
        (r#"{"$bytes":"*"}"#, "symbol"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(says), "{text}: {error}");
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-INTEGER_MAX..=INTEGER_MAX).prop_map(Value::Integer),
        ".{0,30}".prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Value::Bytes(bytes.into())),
        any::<u64>().prop_map(|n| Value::Link(Cid::of(crate::Codec::Raw, &n.to_le_bytes()))),
    ];
    leaf.prop_recursive(4, 40, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::List),
            prop::collection::vec(("[a-z]{0,3}", inner), 0..8)
                .prop_map(|entries| Value::Map(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_reads_back_from_both_forms(value in values()) {
        prop_assert_eq!(decode(encode(&value).into()), Ok(value.clone()));
        let text = serde_json::to_string(&value).expect("a value is JSON");
        prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("its JSON is a value"), value);
    }

    #[test]
    fn bytes_that_are_a_value_are_its_encoding(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(value) = decode(bytes.clone().into()) {
            prop_assert_eq!(encode(&value), bytes);
        }
    }
}
