//! What makes a value a record, whatever its kind asks for beyond.
//!
//! Source: atproto data model specification, "blob Type" and "Important considerations"; Lexicon specification, "$type".

use crate::data::{Map, Value};
use thiserror::Error;

/// Why a value is no record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It is no map.
    #[error("a record is an object")]
    NoMap,
    /// Its `$type` is missing, or the kind that it names is not that of the collection.
    #[error("the record's $type must be {0}")]
    Type(String),
    /// A `$type` somewhere in it that is no text, or empty.
    #[error("$type must be text that is not empty")]
    InnerType,
    /// A blob that is none.
    #[error("a blob has a ref, a mimeType and a size, and nothing else")]
    Blob,
}

/// Whether a value may be a record of the collection: a map whose `$type` names it, and sound inside.
/// # Errors
/// Why it may not.
pub fn check(value: &Value, collection: &str) -> Result<(), RecordError> {
    let Value::Map(map) = value else { return Err(RecordError::NoMap) };
    match map.get("$type") {
        Some(Value::Text(kind)) if kind == collection => check_inside(value),
        _ => Err(RecordError::Type(collection.to_owned())),
    }
}

/// Whether every part of a value is sound: types are named by text, and blobs are whole.
/// # Errors
/// `InnerType` or `Blob`.
pub fn check_inside(value: &Value) -> Result<(), RecordError> {
    match value {
        Value::List(values) => values.iter().try_for_each(check_inside),
        Value::Map(map) => {
            match map.get("$type") {
                Some(Value::Text(kind)) if kind == "blob" => check_blob(map)?,
                Some(Value::Text(kind)) if !kind.is_empty() => {}
                Some(_) => return Err(RecordError::InnerType),
                None => {}
            }
            map.iter().try_for_each(|(_, value)| check_inside(value))
        }
        _ => Ok(()),
    }
}

/// A blob that is there always has a name of raw bytes. One of another kind is not refused here: repositories that others made
/// hold such names, as the published vectors do.
fn check_blob(map: &Map) -> Result<(), RecordError> {
    let reference = matches!(map.get("ref"), Some(Value::Link(_)));
    let mime_type = matches!(map.get("mimeType"), Some(Value::Text(text)) if !text.is_empty());
    let size = matches!(map.get("size"), Some(Value::Integer(size)) if *size >= 0);
    if reference && mime_type && size && map.len() == 4 { Ok(()) } else { Err(RecordError::Blob) }
}
