//! POST: appends, claims, closes.

use crate::answer;
use crate::body;
use crate::error::{Code, Error};
use crate::fields;
use crate::json::{self, Fault};
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use highwater_base::Incarnation;
use highwater_node::json::{BOUNDARY, is_json};
use highwater_stream::{Append, BodyFault, Operation, ProducerKey, Refusal};
use hyper::body::Body as _;

/// Bytes of a body from which on its key is looked up before the body is read: sending this much again costs more
/// than asking.
const EARLY_BYTES_MIN: u64 = 64 << 10;

/// What the head of an append says.
struct AppendHead {
    incarnation: Option<Incarnation>,
    producer: Option<ProducerKey>,
    content_type: Option<String>,
    stream_seq: Option<String>,
    close: bool,
}

impl AppendHead {
    fn parse(headers: &HeaderMap) -> Result<Self, Error> {
        Ok(Self {
            incarnation: fields::incarnation(headers)?,
            producer: fields::producer(headers)?,
            content_type: fields::content_type(headers)?,
            stream_seq: fields::stream_seq(headers)?,
            close: fields::closes(headers)?,
        })
    }
}

/// Does POST on a stream's path, in the contract's order: the head, routing, the early answer, pressure, the body,
/// and then whatever the stream says.
///
/// Source: the stream contract, order of evaluation.
pub(crate) async fn append<S: Service>(
    app: &App<S>,
    path: String,
    head: &Parts,
    body: Body,
) -> Result<Response, Error> {
    let asked = AppendHead::parse(&head.headers)?;
    app.service.route(&path)?;
    let worth_asking =
        fields::expects_continue(&head.headers) || body.size_hint().exact().is_some_and(|n| n >= EARLY_BYTES_MIN);
    if let (true, Some(incarnation), Some(key)) = (worth_asking, asked.incarnation, &asked.producer)
        && let Some(earlier) = app.service.early(&path, incarnation, key).await?
    {
        return answer::write(earlier, head);
    }
    let whole = body::read(body, app, head).await?;
    let digest = asked.producer.as_ref().and_then(|key| key.digest);
    let digest_matches = body::digest_matches(&whole.bytes, digest).await;
    let is_json = asked.content_type.as_deref().is_some_and(is_json);
    let (body, fault) = if is_json { messages(whole.bytes).await } else { (whole.bytes, None) };
    let body_fault = if digest_matches { fault.map(Fault::kind) } else { Some(BodyFault::DigestMismatch) };
    let operation = Operation::Append(Append {
        incarnation: asked.incarnation,
        producer: asked.producer,
        body_fault,
        content_type: asked.content_type,
        stream_seq: asked.stream_seq,
        close: asked.close,
        body,
    });
    let answer = app.service.write(path, operation, whole.admission).await?;
    if let (Err(Refusal::InvalidJson), Some(fault)) = (&answer.result, fault) {
        return Err(Error::new(Code::InvalidJson, fault.to_string()));
    }
    answer::write(answer, head)
}

/// The messages of a JSON body, or what is wrong with it. Whether that matters, the stream knows: nothing of such a body
/// goes there but that it was not empty.
async fn messages(body: Bytes) -> (Bytes, Option<Fault>) {
    if body.is_empty() {
        return (body, None);
    }
    match json::messages(body).await {
        Ok(messages) => (messages, None),
        Err(fault) => (Bytes::from_static(&[BOUNDARY]), Some(fault)),
    }
}
