//! How much a request's head may hold.
//!
//! HTTP/1.1 is bounded by its parser, which answers without a body and ends the connection. HTTP/2 has no bound on the
//! number of headers, and none on bytes that clients get told; there the head is judged here.

use crate::error::{Code, Error};
use axum::http::request::Parts;

/// Bytes of a request's head: a path of a kibibyte, every header of the contract, and room for a browser's own.
pub(crate) const HEAD_BYTES_MAX: u32 = 64 << 10;

/// Headers of a request's head; over HTTP/1.1 it is the parser's own bound.
const HEADERS_MAX: usize = 100;

/// Whether a head keeps its bounds.
///
/// # Errors
/// `REQUEST_HEADERS_TOO_LARGE`.
pub(crate) fn check_head(head: &Parts) -> Result<(), Error> {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    let target = head.uri.path().len() + head.uri.query().map_or(0, str::len);
    if head.headers.len() <= HEADERS_MAX && fields + target <= HEAD_BYTES_MAX as usize {
        return Ok(());
    }
    let message = format!("a request's head has at most {HEADERS_MAX} headers and {HEAD_BYTES_MAX} bytes");
    Err(Error::new(Code::RequestHeadersTooLarge, message))
}
