use super::*;
use proptest::prelude::*;
use serde::de::DeserializeSeed as _;

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

fn bounded(text: &str, bytes_max: usize) -> Result<Result<Value, TooLarge>, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = Bounded { bytes_max }.deserialize(&mut json).map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    Ok(read)
}

/// Thirteen megabytes of nested lists became more than a gigabyte of values before their size was looked at.
#[test]
fn what_comes_behind_the_last_permitted_byte_is_not_even_looked_at() {
    let float = "1.5";
    assert!(bounded(&format!("[{float}]"), 100).expect_err("no data").contains("floats"));
    for long in ["[0,1,2,3", r#"["aaaa""#, r#"[{"aaaa":0}"#, r#"[{"$bytes":"aaaaaa"}"#, "[[[[0]]]", "[1000000"] {
        assert_eq!(bounded(&format!("{long},{float}]"), 4), Ok(Err(TooLarge)), "{long}");
        assert_eq!(bounded(&format!("{long},{{\"a\":{float},\"a\":{float}}}]"), 4), Ok(Err(TooLarge)), "{long}");
        assert!(bounded(&format!("{long},"), 4).is_err(), "it is JSON all the same");
    }
    let link = format!(r#"{{"$link":"{}"}}"#, Cid::of(crate::Codec::Raw, b"x"));
    assert_eq!(bounded(&link, 40), Ok(Err(TooLarge)));
    assert!(bounded(&link, 41).is_ok_and(|value| value.is_ok()));
    // The reader of JSON text has a bound of its own; others need not.
    let nested = |depth: usize| (1..depth).fold(serde_json::json!([]), |inside, _| serde_json::json!([inside]));
    let read = |json: serde_json::Value| Bounded { bytes_max: 1_000 }.deserialize(json).map(|value| value.is_ok());
    assert!(read(nested(DEPTH_MAX)).expect("a value"));
    assert!(read(nested(DEPTH_MAX + 1)).is_err_and(|error| error.to_string().contains("nested")));
}

/// Each key moved all that had come before it. A megabyte of keys in descending order, which any session may send, took a processor
/// most of a minute; the largest body took it for hours.
#[test]
fn an_object_whose_keys_come_in_the_worst_order_is_read_in_one_go() {
    const KEYS: u32 = 600_000;
    let keys = || (0..KEYS).rev().map(|number| format!("{number:06x}"));
    let entries: Vec<String> = keys().map(|key| format!("\"{key}\":0")).collect();
    let read: Value = serde_json::from_str(&format!("{{{}}}", entries.join(","))).expect("an object");
    let collected: Map = keys().map(|key| (key, Value::Integer(0))).collect();
    assert_eq!(read, Value::Map(collected.clone()));
    assert!(collected.iter().map(|(key, _)| key).is_sorted() && collected.len() == KEYS as usize);
    let twice: Map =
        [("b", 1), ("a", 2), ("b", 3)].map(|(key, n)| (key.to_owned(), Value::Integer(n))).into_iter().collect();
    assert_eq!(twice.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(twice.get("b"), Some(&Value::Integer(3)), "the last one counts");
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
        prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("its JSON is a value"), value.clone());
        let encoded = Encoded(encode(&value).into());
        prop_assert_eq!(serde_json::to_string(&encoded).expect("an encoded value is JSON"), text);
    }

    #[test]
    fn json_is_read_up_to_the_bytes_of_its_encoding_and_not_one_more(value in values()) {
        let (text, bytes) = (serde_json::to_string(&value).expect("a value is JSON"), encode(&value).len());
        prop_assert_eq!(bounded(&text, bytes), Ok(Ok(value)));
        for less in [bytes - 1, bytes / 2, 0] {
            prop_assert_eq!(bounded(&text, less), Ok(Err(TooLarge)));
        }
    }

    #[test]
    fn bytes_that_are_a_value_are_its_encoding(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(value) = decode(bytes.clone().into()) {
            prop_assert_eq!(encode(&value), bytes);
        }
    }
}
