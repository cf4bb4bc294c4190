//! HEAD: a stream's settings and ends, and who serves it.

use crate::answer::set;
use crate::error::Error;
use crate::expiry;
use crate::fields;
use crate::names;
use crate::router::App;
use crate::service::Service;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use highwater_base::limits;
use highwater_node::Identity;
use highwater_stream::Refusal;

/// Does HEAD on a stream's path.
pub(crate) async fn head<S: Service>(app: &App<S>, path: &str, head: &Parts) -> Result<Response, Error> {
    let asked = fields::incarnation(&head.headers)?;
    let stream = app.service.head(path).await??;
    if asked.is_some_and(|asked| asked != stream.incarnation) {
        return Err(Refusal::IncarnationMismatch { current: Some(stream.incarnation) }.into());
    }
    let mut response = StatusCode::OK.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, names::NO_STORE);
    set(headers, header::CONTENT_TYPE, &stream.content_type);
    set(headers, names::STREAM_NEXT_OFFSET, stream.next);
    set(headers, names::STREAM_RETAINED_OFFSET, stream.retained);
    set(headers, names::STREAM_INCARNATION, stream.incarnation);
    if stream.closed {
        headers.insert(names::STREAM_CLOSED, names::TRUE);
    }
    expiry::tell(headers, stream.expiry);
    if let Some((previous, inherited)) = stream.previous {
        set(headers, names::STREAM_PREVIOUS_INCARNATION, previous);
        set(headers, names::STREAM_INHERITED_OFFSET, inherited);
    }
    if let Some(snapshot) = stream.snapshot {
        set(headers, names::STREAM_SNAPSHOT_OFFSET, snapshot.offset);
        set(headers, names::STREAM_SNAPSHOT_DIGEST, snapshot.digest);
    }
    set(headers, names::URSULA_MAX_REQUEST_BYTES, app.options.request_bytes_max);
    set(headers, names::URSULA_MAX_SNAPSHOT_BYTES, limits::SNAPSHOT_BYTES_MAX);
    Ok(response)
}

/// Names the server, as every answer to HEAD does: a client tells a stream that is gone from a name that leads
/// elsewhere.
pub(crate) fn identify(headers: &mut HeaderMap, identity: &Identity) {
    set(headers, names::URSULA_PROTOCOL, identity.protocol);
    set(headers, names::URSULA_CLUSTER_ID, &identity.cluster_id);
}
