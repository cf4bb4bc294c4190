//! GET: catch-up reads and long-polls.

use crate::answer::set;
use crate::auth;
use crate::cursor;
use crate::error::{Code, Error};
use crate::fields;
use crate::json;
use crate::names;
use crate::pieces::Pieces;
use crate::query::{self, Live, ReadQuery};
use crate::router::App;
use crate::service::Service;
use crate::sse;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use highwater_node::json::is_json;
use highwater_node::rooms::Room;
use highwater_node::{ReadAnswer, ReadRequest};
use highwater_stream::ReadFrom;

/// What a cache may do with bytes that never change.
const CACHEABLE: HeaderValue = HeaderValue::from_static("public, max-age=60, stale-while-revalidate=300");

/// Does GET on a stream's path.
pub(crate) async fn read<S: Service>(app: &App<S>, path: String, head: &Parts) -> Result<Response, Error> {
    let incarnation = fields::incarnation(&head.headers)?;
    let query = query::parse(head.uri.query().unwrap_or_default())?;
    let wait_ms = match query.live {
        Live::LongPoll { wait_ms } => Some(wait_ms),
        Live::No | Live::Sse => None,
    };
    let (from, length_max, leader) = (query.from, query.bytes_max, query.leader);
    let request = ReadRequest { path, incarnation, from, length_max, leader, wait_ms };
    if query.live == Live::Sse {
        return sse::read(app, request, &query, auth::room_of(head)).await;
    }
    let asker = auth::room_of(head);
    let answer = app.read(request.clone(), asker).await??;
    let bytes = if S::READS_HOLD_ROOM { 0 } else { answer.body.len() as u64 };
    let room = app.answers.wait(bytes, asker).await;
    let room = room.ok_or_else(|| Error::new(Code::LiveReadBackpressure, Code::LiveReadBackpressure.row().when))?;
    let rest = Pieces::behind(app, request, asker, &answer);
    Ok(render(answer, room, rest, &query, head))
}

/// Renders an answer, of which `rest` is what its body does not hold.
fn render<S: Service>(
    answer: ReadAnswer,
    room: Room,
    rest: Option<Pieces<S>>,
    query: &ReadQuery,
    head: &Parts,
) -> Response {
    let live = query.live != Live::No;
    let mut headers = HeaderMap::new();
    set(&mut headers, names::STREAM_NEXT_OFFSET, answer.next);
    set(&mut headers, names::STREAM_INCARNATION, answer.incarnation);
    if answer.up_to_date {
        headers.insert(names::STREAM_UP_TO_DATE, names::TRUE);
    }
    if answer.closed {
        headers.insert(names::STREAM_CLOSED, names::TRUE);
    }
    let ends_live = live && answer.body.is_empty() && answer.closed;
    if live && !ends_live {
        set(&mut headers, names::STREAM_CURSOR, cursor::next(cursor::now_s(), query.cursor, cursor::entropy()));
    }
    if live && answer.body.is_empty() {
        headers.insert(header::CACHE_CONTROL, names::NO_STORE);
        return (StatusCode::NO_CONTENT, headers).into_response();
    }
    let now = query.from == ReadFrom::Now;
    // "Nothing yet" is the one answer that soon is wrong, so it is not kept either.
    let fresh = now || query.leader || answer.body.is_empty() || head.headers.contains_key(names::STREAM_INCARNATION);
    headers.insert(header::CACHE_CONTROL, if fresh { names::NO_STORE } else { CACHEABLE });
    if !fresh {
        // A cache must not answer a request with a token from one without: the precondition would be skipped.
        headers.insert(header::VARY, HeaderValue::from_static("stream-incarnation"));
    }
    if !now {
        let tag = entity_tag(&answer);
        set(&mut headers, header::ETAG, &tag);
        if fields::none_match(&head.headers, &tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
    }
    set(&mut headers, header::CONTENT_TYPE, &answer.content_type);
    let body = if is_json(&answer.content_type) { json::array(&answer.body).into() } else { answer.body };
    let first = room.around(body);
    let body = match rest {
        Some(rest) => Body::new(rest.led_by(first)),
        None => Body::from(first),
    };
    (StatusCode::OK, headers, body).into_response()
}

/// Changes with whatever an answer says: the stream's token, the bytes, and whether they reach the end, or the end of
/// a closed stream.
fn entity_tag(answer: &ReadAnswer) -> String {
    let end = if answer.up_to_date { ":u" } else { "" };
    let closed = if answer.closed { ":c" } else { "" };
    format!("\"{}:{}:{}{end}{closed}\"", answer.incarnation, answer.start.0, answer.next.0)
}
