//! GET and HEAD of what never changes: a chunk of a history of a stream, and its snapshot.
//!
//! Token and offset are in the path, spelled as the server spells them, so that one resource has one URL and every cache
//! may keep it for good.
//!
//! Source: the stream contract, reads and snapshots.

use crate::answer::set;
use crate::auth;
use crate::error::{Code, Error};
use crate::fields;
use crate::json;
use crate::names;
use crate::router::App;
use crate::service::Service;
use crate::snapshot;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use highwater_base::{Incarnation, Offset};
use highwater_node::{ReadAnswer, ReadRequest};
use highwater_stream::ReadFrom;

/// Bytes between two lines of the grid at which chunks end.
const CHUNK_BYTES: u64 = 4 << 20;

/// What caches may do with bytes that never change.
const FOR_GOOD: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// Does GET and HEAD on an immutable path; `rest` is what stands behind the token.
pub(crate) async fn read<S: Service>(
    app: &App<S>,
    path: String,
    token: &str,
    rest: &[String],
    head: &Parts,
) -> Result<Response, Error> {
    let [kind, offset] = rest else { return Err(not_found()) };
    if !matches!(kind.as_str(), "chunk" | "snapshot") {
        return Err(not_found());
    }
    if head.uri.query().is_some() {
        return Err(Error::new(Code::QueryNotAccepted, "an immutable path takes no query"));
    }
    let incarnation = Incarnation::parse(token)
        .ok_or_else(|| Error::new(Code::InvalidResource, "the token must be spelled as it was issued"))?;
    let offset = snapshot::offset(offset)
        .ok()
        .filter(|_| offset.len() == 20)
        .ok_or_else(|| Error::new(Code::InvalidResource, "the offset must be 20 decimal digits"))?;
    if kind == "snapshot" {
        let mark = |headers: &mut HeaderMap| drop(headers.insert(names::STREAM_IMMUTABLE, names::TRUE));
        return snapshot::answer(app, path, Some(incarnation), offset, head, FOR_GOOD, mark).await;
    }
    chunk(app, path, incarnation, offset, head).await
}

fn not_found() -> Error {
    Error::new(Code::NotFound, "below a token are chunk/<offset> and snapshot/<offset>")
}

/// The bytes from `offset` to the end of the chunk that it lies in, or to the tail.
async fn chunk<S: Service>(
    app: &App<S>,
    path: String,
    incarnation: Incarnation,
    offset: Offset,
    head: &Parts,
) -> Result<Response, Error> {
    let end = (offset.0 / CHUNK_BYTES).saturating_add(1).saturating_mul(CHUNK_BYTES);
    let room = app.answers.wait(end - offset.0, auth::room_of(head)).await;
    let room = room.ok_or_else(|| Error::new(Code::LiveReadBackpressure, Code::LiveReadBackpressure.row().when))?;
    let answer = read_to(app, path, incarnation, offset, end).await?;
    // Where it ends is for good below the tail, and at the tail once nothing follows.
    let marked = answer.closed || !answer.up_to_date;
    let mut headers = HeaderMap::new();
    set(&mut headers, names::STREAM_INCARNATION, answer.incarnation);
    set(&mut headers, names::STREAM_OFFSET, answer.start);
    set(&mut headers, names::STREAM_NEXT_OFFSET, answer.next);
    if marked {
        headers.insert(names::STREAM_IMMUTABLE, names::TRUE);
    }
    if answer.closed {
        headers.insert(names::STREAM_CLOSED, names::TRUE);
    }
    headers.insert(header::CACHE_CONTROL, if marked { FOR_GOOD } else { names::NO_STORE });
    let closed = if answer.closed { ":c" } else { "" };
    let tag = format!("\"{}:{}:{}{closed}\"", answer.incarnation, answer.start.0, answer.next.0);
    set(&mut headers, header::ETAG, &tag);
    if fields::none_match(&head.headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    set(&mut headers, header::CONTENT_TYPE, &answer.content_type);
    let json = highwater_node::json::is_json(&answer.content_type);
    let body = if json { json::array(&answer.body).into() } else { answer.body };
    if head.method == Method::HEAD {
        set(&mut headers, header::CONTENT_LENGTH, body.len());
        return Ok((StatusCode::OK, headers).into_response());
    }
    Ok((StatusCode::OK, headers, Body::from(room.around(body))).into_response())
}

/// Reads until `end` or the tail, in as many pieces as it takes.
async fn read_to<S: Service>(
    app: &App<S>,
    path: String,
    incarnation: Incarnation,
    offset: Offset,
    end: u64,
) -> Result<ReadAnswer, Error> {
    let request = |from: Offset| ReadRequest {
        path: path.clone(),
        incarnation: Some(incarnation),
        from: ReadFrom::At(from),
        length_max: end - from.0,
        leader: false,
        wait_ms: None,
    };
    let mut answer = app.service.read(request(offset)).await??;
    // A piece of very many small appends ends early, and what follows must not depend on how it was written.
    while answer.next.0 < end && !answer.up_to_date {
        let more = app.service.read(request(answer.next)).await??;
        // Of JSON the next message may reach over the line; then this chunk ends before it.
        if more.next.0 > end || more.body.is_empty() {
            break;
        }
        let mut body = BytesMut::from(answer.body);
        body.extend_from_slice(&more.body);
        answer = ReadAnswer { start: answer.start, body: body.freeze(), ..more };
    }
    Ok(answer)
}
