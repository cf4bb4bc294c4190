//! What browsers are told: one layer around all routes, and one around the streams.

use crate::names;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Methods of a stream, as `Allow` and the preflight name them.
pub(crate) const METHODS: &str = "GET, HEAD, PUT, POST, DELETE, OPTIONS";

/// Request headers that a page may send.
const REQUEST_HEADERS: &str = "Content-Type, Authorization, If-None-Match, Range, Expect, Cache-Control, \
    Stream-Seq, Stream-TTL, Stream-Expires-At, Stream-Closed, Stream-Incarnation, Stream-Forked-From, \
    Stream-Fork-Offset, Stream-Fork-Sub-Offset, Stream-Snapshot-Parts, Stream-Snapshot-Digest, \
    Producer-Id, Producer-Epoch, Producer-Seq, Producer-Digest";

/// Answer headers that a page may read. With `*` alone some would stay hidden from older browsers.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Stream-Next-Offset, Stream-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, \
    Stream-Seq, Stream-Last-Seq, Stream-TTL, Stream-Expires-At, Stream-Incarnation, Stream-Previous-Incarnation, \
    Stream-Inherited-Offset, Stream-Retained-Offset, Stream-Snapshot-Offset, Stream-Snapshot-Digest, \
    Stream-Snapshot-Part, Stream-Immutable, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, \
    Producer-Outcome, Producer-Closed-Epoch, Producer-Closed-Seq, Producer-Expected-Seq, Producer-Received-Seq, \
    Ursula-Protocol, Ursula-Cluster-Id, Ursula-Max-Request-Bytes, Ursula-Max-Snapshot-Bytes, \
    ETag, Location, Retry-After, Highwater-Durability",
);

/// Seconds that a browser may remember a preflight.
const PREFLIGHT_S: &str = "600";

/// The answer to OPTIONS on a stream's path.
pub(crate) fn preflight() -> Response {
    let headers = [
        (header::ALLOW, METHODS),
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_S),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Which pages of browsers may read an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pages {
    /// All: a key that the page must know protects what is read, or nothing says that a page asks.
    All,
    /// Those of the origin that asks, which is this machine's or a stated one.
    Origin(HeaderValue),
    /// None: a page of another site asks a server in open mode.
    None,
}

/// Checked once, when this is compiled: an answer copies what stands here.
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");
const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
const CROSS_ORIGIN: HeaderValue = HeaderValue::from_static("cross-origin");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Marks every answer of the streams, refusals included, as readable by the pages that may.
///
/// The policy of documents keeps a stream of HTML, opened as a page, from running with this server's origin.
pub(crate) fn mark_stream(headers: &mut HeaderMap, pages: &Pages) {
    headers.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    vary_by_origin(headers);
    let origin = match pages {
        Pages::All => ANY_ORIGIN,
        Pages::Origin(origin) => origin.clone(),
        Pages::None => return,
    };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.insert(names::CROSS_ORIGIN_RESOURCE_POLICY, CROSS_ORIGIN);
}

/// Marks an answer that any page may read: the AT Protocol's are, and their secrets travel in a header that pages must know.
pub(crate) fn mark_shared(headers: &mut HeaderMap) {
    headers.insert(names::CROSS_ORIGIN_RESOURCE_POLICY, CROSS_ORIGIN);
}

/// What a cache keeps for one page must not be shown to another.
fn vary_by_origin(headers: &mut HeaderMap) {
    let kept = headers.get(header::CACHE_CONTROL).is_some_and(|value| value.as_bytes().starts_with(b"public"));
    if !kept {
        return;
    }
    let varied = headers.get(header::VARY).and_then(|value| value.to_str().ok());
    let all = varied.map_or_else(|| "origin".to_owned(), |varied| format!("{varied}, origin"));
    crate::answer::set(headers, header::VARY, all);
}

/// Marks every answer of this server.
pub(crate) fn mark(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    if !headers.contains_key(names::CROSS_ORIGIN_RESOURCE_POLICY) {
        headers.insert(names::CROSS_ORIGIN_RESOURCE_POLICY, SAME_ORIGIN);
    }
}
