//! POST: appends, claims, closes.

use crate::answer;
use crate::body;
use crate::error::Error;
use crate::fields;
use crate::router::App;
use crate::service::{APPLIED_EARLIER, Service};
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use highwater_base::Incarnation;
use highwater_node::WriteAnswer;
use highwater_stream::{Append, BodyFault, Operation, ProducerKey};
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
        && let Some(result) = app.service.early(&path, incarnation, key).await?
    {
        return answer::write(WriteAnswer { result, durability: APPLIED_EARLIER }, head);
    }
    let whole = body::read(body, &app.service, &app.options).await?;
    let digest = asked.producer.as_ref().and_then(|key| key.digest);
    let operation = Operation::Append(Append {
        incarnation: asked.incarnation,
        producer: asked.producer,
        body_fault: (!body::digest_matches(&whole.bytes, digest).await).then_some(BodyFault::DigestMismatch),
        content_type: asked.content_type,
        stream_seq: asked.stream_seq,
        close: asked.close,
        body: whole.bytes,
    });
    let answer = app.service.write(path, operation, whole.admission).await?;
    answer::write(answer, head)
}
