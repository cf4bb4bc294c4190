//! PUT: makes a stream, or finds one with the same settings.

use crate::answer;
use crate::body;
use crate::error::{Code, Error};
use crate::expiry;
use crate::fields;
use crate::json::{self, Fault};
use crate::names;
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use highwater_node::json::is_json;
use highwater_stream::{Create, Operation};

/// The content type of a stream whose creator named none.
const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// Does PUT on a stream's path.
pub(crate) async fn create<S: Service>(
    app: &App<S>,
    path: String,
    head: &Parts,
    body: Body,
) -> Result<Response, Error> {
    let headers = &head.headers;
    if fields::names_producer(headers) {
        return Err(Error::new(Code::InvalidProducer, "creating a stream takes no producer headers"));
    }
    let incarnation = fields::incarnation(headers)?;
    let closed = fields::closes(headers)?;
    let content_type = fields::content_type(headers)?.unwrap_or_else(|| CONTENT_TYPE_DEFAULT.to_owned());
    offered(headers)?;
    let expiry = expiry::parse(headers)?;
    app.service.route(&path)?;
    let whole = body::read(body, app, head).await?;
    let body = if is_json(&content_type) { messages(whole.bytes).await? } else { whole.bytes };
    let operation = Operation::Create(Create {
        content_type,
        closed,
        incarnation,
        new_incarnation: app.service.issue_incarnation(),
        expiry,
        body,
    });
    let answer = app.service.write(path, operation, whole.admission).await?;
    answer::write(answer, head)
}

/// The first messages of a JSON stream: none in an empty body or an empty array.
async fn messages(body: Bytes) -> Result<Bytes, Error> {
    if body.is_empty() {
        return Ok(body);
    }
    match json::messages(body).await {
        Ok(messages) => Ok(messages),
        Err(Fault::Empty) => Ok(Bytes::new()),
        Err(fault) => Err(Error::new(Code::InvalidJson, fault.to_string())),
    }
}

/// Refuses settings that would otherwise be dropped in silence.
fn offered(headers: &HeaderMap) -> Result<(), Error> {
    let has = |names: &[_]| names.iter().any(|name| headers.contains_key(name));
    if has(&[names::STREAM_FORKED_FROM, names::STREAM_FORK_OFFSET, names::STREAM_FORK_SUB_OFFSET]) {
        return Err(Error::unsupported("forks yet"));
    }
    Ok(())
}
