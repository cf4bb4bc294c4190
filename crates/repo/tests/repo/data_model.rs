use crate::vectors::cases;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use highwater_repo::data::{decode, encode};
use highwater_repo::record::{self, RecordError};
use highwater_repo::{Cid, Codec, Value};

fn value(json: &serde_json::Value) -> Result<Value, String> {
    serde_json::from_str(&json.to_string()).map_err(|error| error.to_string())
}

#[test]
fn values_have_the_bytes_and_the_names_that_the_vectors_say() {
    for case in cases("data-model/data-model-fixtures.json", 3) {
        let bytes = STANDARD_NO_PAD.decode(case["cbor_base64"].as_str().expect("text")).expect("base64");
        let value = value(&case["json"]).expect("a value");
        assert_eq!(encode(&value), bytes);
        assert_eq!(decode(bytes.clone().into()), Ok(value.clone()));
        assert_eq!(Cid::of(Codec::DagCbor, &bytes).to_string(), case["cid"].as_str().expect("text"));
        assert_eq!(serde_json::to_value(&value).expect("JSON"), case["json"]);
    }
}

/// As a record would be judged, but for the kind that it names.
fn judge(json: &serde_json::Value) -> Result<(), String> {
    let value = value(json)?;
    if !matches!(value, Value::Map(_)) {
        return Err(RecordError::NoMap.to_string());
    }
    record::check_inside(&value).map_err(|error| error.to_string())
}

#[test]
fn values_are_taken_and_refused_as_the_vectors_say() {
    for case in cases("data-model/data-model-valid.json", 5) {
        assert_eq!(judge(&case["json"]), Ok(()), "{}", case["note"]);
    }
    for case in cases("data-model/data-model-invalid.json", 12) {
        assert!(judge(&case["json"]).is_err(), "{}", case["note"]);
    }
}

#[test]
fn a_record_names_its_collection() {
    let of = |json: &str| record::check(&serde_json::from_str(json).expect("a value"), "com.example.kind");
    assert_eq!(of(r#"{"$type":"com.example.kind","a":1}"#), Ok(()));
    let wrong = Err(RecordError::Type("com.example.kind".into()));
    assert_eq!(of(r#"{"$type":"com.example.other"}"#), wrong);
    assert_eq!(of(r#"{"a":1}"#), wrong);
    assert_eq!(of("[]"), Err(RecordError::NoMap));
    assert_eq!(of(r#"{"$type":"com.example.kind","a":[{"$type":""}]}"#), Err(RecordError::InnerType));
}
