//! A way in for fuzzers.

use crate::{expiry, fields, json, path, query};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Reads a request's target and header fields as the handlers read them, and forgets what they say.
///
/// Fields that are no HTTP at all never reach a handler, and are left out.
pub fn parse_anything(target: &str, header: &[(&str, &[u8])]) {
    let (encoded, asked) = target.split_once('?').unwrap_or((target, ""));
    drop(path::parse(encoded));
    drop(query::parse(asked));
    let mut headers = HeaderMap::new();
    for (name, value) in header {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    drop(fields::incarnation(&headers));
    drop(fields::closes(&headers));
    drop(fields::content_type(&headers));
    drop(fields::stream_seq(&headers));
    drop(fields::producer(&headers));
    drop(expiry::parse(&headers));
    let _matches = fields::none_match(&headers, "\"tag\"");
    let _waits = fields::expects_continue(&headers);
}

/// Takes the messages out of a JSON body, and answers a read with them: `None` for a body that holds none.
#[must_use]
pub fn json_anything(body: &[u8]) -> Option<Vec<u8>> {
    json::split(body).ok().map(|messages| json::array(&messages))
}
