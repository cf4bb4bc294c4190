//! GET and HEAD of a snapshot.

use super::offset;
use super::range::{Ranged, resolve};
use super::transfer::Transfer;
use crate::answer::set;
use crate::auth;
use crate::error::{Code, Error};
use crate::fields;
use crate::names;
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use highwater_base::{Incarnation, Offset};

/// Does GET and HEAD on a snapshot's path.
pub(crate) async fn read<S: Service>(app: &App<S>, path: String, asked: &str, head: &Parts) -> Result<Response, Error> {
    let offset = offset(asked)?;
    let incarnation = fields::incarnation(&head.headers)?;
    answer(app, path, incarnation, offset, head, names::NO_STORE, |_| ()).await
}

/// Answers with the snapshot at an offset, or the part of it that is asked for. `cache` is what caches may do with it,
/// and `mark` adds to its headers.
///
/// # Errors
/// `SNAPSHOT_NOT_FOUND` for any but the latest, `RANGE_NOT_SATISFIABLE`.
pub(crate) async fn answer<S: Service>(
    app: &App<S>,
    path: String,
    incarnation: Option<Incarnation>,
    offset: Offset,
    head: &Parts,
    cache: HeaderValue,
    mark: impl FnOnce(&mut HeaderMap),
) -> Result<Response, Error> {
    let scope = app.service.snapshot(&path, incarnation, offset).await??;
    let mut headers = HeaderMap::new();
    set(&mut headers, names::STREAM_SNAPSHOT_OFFSET, scope.head.offset);
    set(&mut headers, names::STREAM_SNAPSHOT_DIGEST, scope.head.digest);
    set(&mut headers, names::STREAM_NEXT_OFFSET, scope.head.offset);
    set(&mut headers, names::STREAM_INCARNATION, scope.incarnation);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, cache);
    mark(&mut headers);
    // The token is part of it, so that a stream made again never confirms what was another one's.
    let tag = format!("\"{}:{}\"", scope.incarnation, scope.head.digest);
    set(&mut headers, header::ETAG, &tag);
    if fields::none_match(&head.headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let total = scope.length;
    let (status, range) = match resolve(&head.headers, total) {
        Ranged::Whole => (StatusCode::OK, 0..total),
        Ranged::Part(range) => {
            set(&mut headers, header::CONTENT_RANGE, format_args!("bytes {}-{}/{total}", range.start, range.end - 1));
            (StatusCode::PARTIAL_CONTENT, range)
        }
        Ranged::Unsatisfiable => {
            return Err(Error::new(Code::RangeNotSatisfiable, format!("the snapshot has {total} bytes"))
                .with(header::CONTENT_RANGE, format_args!("bytes */{total}"))
                .with(header::ACCEPT_RANGES, "bytes")
                .with(names::STREAM_INCARNATION, scope.incarnation));
        }
    };
    set(&mut headers, header::CONTENT_TYPE, &scope.content_type);
    if head.method == Method::HEAD {
        set(&mut headers, header::CONTENT_LENGTH, range.end - range.start);
        return Ok((status, headers).into_response());
    }
    Ok((status, headers, Body::new(Transfer::new(app, auth::room_of(head), path, &scope, &range))).into_response())
}
