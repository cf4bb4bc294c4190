//! The vectors of the Lexicon, as far as they can be judged without one.
//!
//! Nothing here knows a schema, so what a schema alone forbids is taken: all of `lexicon-invalid.json`, and of
//! `record-data-invalid.json` all but the texts of a known format. Whoever builds the validator moves them out of the lists below.

use crate::vectors::{cases, text};
use highwater_repo::data::{decode, encode};
use highwater_repo::syntax::*;
use highwater_repo::{Tid, Value, record};
use serde_json::Value as Json;

const KIND: &str = "example.lexicon.record";

/// A document of the strict data model, whose two forms say the same.
fn document(json: &Json) -> Value {
    let value: Value = serde_json::from_str(&json.to_string()).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(decode(encode(&value).into()).as_ref(), Ok(&value), "{json}");
    value
}

#[test]
fn schemas_are_documents_of_the_strict_data_model() {
    for name in ["permission-set", "procedure", "query", "record", "subscription"] {
        let json: Json = serde_json::from_str(&text(&format!("lexicon/catalog/{name}.json"))).expect("JSON");
        let Value::Map(map) = document(&json) else { panic!("{name} is no map") };
        assert!(matches!(map.get("id"), Some(Value::Text(id)) if is_nsid(id)), "{name}");
    }
    for case in cases("lexicon/lexicon-valid.json", 3) {
        document(&case["lexicon"]);
    }
    // These break the rules of schemas, not those of data.
    for case in cases("lexicon/lexicon-invalid.json", 7) {
        document(&case["lexicon"]);
    }
}

#[test]
fn records_that_a_schema_takes_are_taken() {
    for case in cases("lexicon/record-data-valid.json", 3) {
        assert_eq!(record::check(&document(&case["data"]), KIND), Ok(()), "{}", case["name"]);
        assert!(case["rkey"].as_str().is_some_and(is_record_key));
        for (format, text) in case["data"]["formats"].as_object().into_iter().flatten() {
            assert!(is_format(format, text), "{format} {text}");
        }
    }
}

fn is_format(format: &str, text: &Json) -> bool {
    let text = text.as_str().expect("text");
    match format {
        "aturi" => is_at_uri(text),
        "atidentifier" => is_at_identifier(text),
        "cid" => is_cid_text(text),
        "datetime" => is_datetime(text),
        "did" => is_did(text),
        "handle" => is_handle(text),
        "language" => is_language(text),
        "nsid" => is_nsid(text),
        "recordkey" => is_record_key(text),
        "tid" => text.parse::<Tid>().is_ok(),
        "uri" => is_uri(text),
        _ => panic!("{format} is a format that nothing checks"),
    }
}

#[test]
fn records_that_a_schema_refuses_are_judged_as_far_as_data_goes() {
    let (mut formats, mut waiting) = (0, 0);
    for case in cases("lexicon/record-data-invalid.json", 50) {
        let sound = record::check(&document(&case["data"]), KIND);
        match case["data"]["formats"].as_object() {
            Some(texts) => {
                assert!(texts.iter().all(|(format, text)| !is_format(format, text)), "{}", case["name"]);
                formats += 1;
            }
            None => {
                assert_eq!(sound, Ok(()), "{} needs no schema: count it among the refused", case["name"]);
                waiting += 1;
            }
        }
    }
    assert_eq!((formats, waiting), (11, 39));
}
