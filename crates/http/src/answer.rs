//! What the answers of writes have in common.

use crate::error::Error;
use crate::front::Arrival;
use crate::names;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use highwater_base::Incarnation;
use highwater_node::{Durability, WriteAnswer};
use highwater_stream::{ClosedEpoch, Created, Outcome, Receipt};
use std::fmt::Display;
use std::io::Write as _;

/// Sets a header to what HTTP can carry; every value that comes here is ASCII.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: impl Display) {
    // Numbers and tokens, which are most, go through no string.
    let mut short = [0; 64];
    let mut rest = &mut short[..];
    let fits = write!(rest, "{value}").is_ok();
    let left = rest.len();
    let value = match fits {
        true => HeaderValue::from_bytes(&short[..short.len() - left]),
        false => HeaderValue::try_from(value.to_string()),
    };
    if let Ok(value) = value {
        headers.insert(name, value);
    }
}

/// Headers of an answer to a write, with those that every answer of a stream gets.
const HEADERS_USUAL: usize = 16;

/// Renders the answer to a write.
///
/// Source: the stream contract, answers to a keyed append; rule X2 for a close alone.
pub(crate) fn write(answer: WriteAnswer, head: &Parts) -> Result<Response, Error> {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.reserve(HEADERS_USUAL);
    headers.insert(header::CACHE_CONTROL, names::NO_STORE);
    durability(headers, answer.durability);
    let status = match answer.result? {
        Outcome::Created(stream) => {
            created(headers, &stream, head);
            StatusCode::CREATED
        }
        Outcome::Matched(stream) => {
            created(headers, &stream, head);
            StatusCode::OK
        }
        Outcome::Appended { next, incarnation, closed, .. } => {
            set(headers, names::STREAM_NEXT_OFFSET, next);
            set(headers, names::STREAM_INCARNATION, incarnation);
            if closed {
                headers.insert(names::STREAM_CLOSED, names::TRUE);
            }
            StatusCode::NO_CONTENT
        }
        Outcome::Applied(written) => {
            receipt(headers, &written);
            if written.had_body { StatusCode::OK } else { StatusCode::NO_CONTENT }
        }
        Outcome::Repeated(written) => {
            receipt(headers, &written);
            StatusCode::NO_CONTENT
        }
        Outcome::Evicted { epoch, seq, incarnation, closed } => {
            progress(headers, epoch, seq, incarnation, closed);
            headers.insert(names::PRODUCER_OUTCOME, HeaderValue::from_static("receipt-evicted"));
            StatusCode::NO_CONTENT
        }
        Outcome::PartStaged { part, incarnation } => {
            set(headers, names::STREAM_SNAPSHOT_PART, part);
            set(headers, names::STREAM_INCARNATION, incarnation);
            StatusCode::CREATED
        }
        Outcome::PartsDiscarded { incarnation } => {
            set(headers, names::STREAM_INCARNATION, incarnation);
            StatusCode::NO_CONTENT
        }
        Outcome::Published { snapshot, incarnation } => {
            set(headers, names::STREAM_SNAPSHOT_OFFSET, snapshot.offset);
            set(headers, names::STREAM_SNAPSHOT_DIGEST, snapshot.digest);
            set(headers, names::STREAM_INCARNATION, incarnation);
            StatusCode::NO_CONTENT
        }
        Outcome::Retained { offset, incarnation } => {
            set(headers, names::STREAM_RETAINED_OFFSET, offset);
            set(headers, names::STREAM_INCARNATION, incarnation);
            StatusCode::NO_CONTENT
        }
        // Nobody asks for the others from outside.
        Outcome::Deleted | Outcome::Touched | Outcome::Expired { .. } | Outcome::HistoryBegun | Outcome::Led => {
            StatusCode::NO_CONTENT
        }
    };
    *response.status_mut() = status;
    Ok(response)
}

/// On how many copies the write was on disk when it was answered, out of how many (an RFC 9651 dictionary).
pub(crate) fn durability(headers: &mut HeaderMap, durability: Durability) {
    set(headers, names::HIGHWATER_DURABILITY, format_args!("synced={}, of={}", durability.synced, durability.of));
}

fn created(headers: &mut HeaderMap, stream: &Created, head: &Parts) {
    set(headers, header::CONTENT_TYPE, &stream.content_type);
    set(headers, names::STREAM_NEXT_OFFSET, stream.next);
    set(headers, names::STREAM_INCARNATION, stream.incarnation);
    if stream.closed {
        headers.insert(names::STREAM_CLOSED, names::TRUE);
    }
    if let Some(location) = location(head) {
        set(headers, header::LOCATION, location);
    }
}

/// The stream's absolute URL: below the public one, or else by the name under which the client reached this server.
fn location(head: &Parts) -> Option<String> {
    let Arrival { secure, front, .. } = Arrival::of(&head.extensions);
    if let Some(url) = &front.url_public {
        return Some(format!("{url}{}", head.uri.path()));
    }
    let scheme = if secure { "https" } else { "http" };
    let authority = head.uri.authority().map(|authority| authority.as_str());
    let host = authority.or_else(|| head.headers.get(header::HOST).and_then(|host| host.to_str().ok()))?;
    Some(format!("{scheme}://{host}{}", head.uri.path()))
}

fn receipt(headers: &mut HeaderMap, written: &Receipt) {
    progress(headers, written.epoch, written.seq, written.incarnation, written.closed_epoch);
    set(headers, names::STREAM_OFFSET, written.start);
    set(headers, names::STREAM_NEXT_OFFSET, written.next);
    if written.closed_stream {
        headers.insert(names::STREAM_CLOSED, names::TRUE);
    }
}

fn progress(headers: &mut HeaderMap, epoch: u64, seq: u64, incarnation: Incarnation, closed: Option<ClosedEpoch>) {
    set(headers, names::PRODUCER_EPOCH, epoch);
    set(headers, names::PRODUCER_SEQ, seq);
    set(headers, names::STREAM_INCARNATION, incarnation);
    if let Some(closed) = closed {
        set(headers, names::PRODUCER_CLOSED_EPOCH, closed.epoch);
        set(headers, names::PRODUCER_CLOSED_SEQ, closed.last_seq);
    }
}
