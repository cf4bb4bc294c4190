//! What browsers are told: any page may ask, because what it sends and reads is a token of its user, never a cookie.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Answer headers that a page may read.
const EXPOSED: &str = "DPoP-Nonce, WWW-Authenticate, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, \
    RateLimit-Policy, Retry-After, ETag, Atproto-Repo-Rev, Atproto-Content-Labelers";

/// Request headers that a page may send if it does not say which it wants to.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, DPoP, Atproto-Proxy, Atproto-Accept-Labelers, If-None-Match",
);

/// The answer to a preflight.
pub fn preflight(asked: &HeaderMap) -> Response {
    let wanted = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(REQUEST_HEADERS);
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST, OPTIONS")),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, wanted),
        (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400")),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Marks every answer.
pub fn mark(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
