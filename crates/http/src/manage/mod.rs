//! `/v1/keys`, `/v1/accounts`, `/v1/plans`: what an administrator's key manages.
//!
//! Bodies and answers are JSON; errors are those of the streams. Times are milliseconds since the Unix epoch. That the
//! key may do this was judged before any of it runs.

mod accounts;
mod keys;
mod plans;

use crate::answer;
use crate::auth::Authority;
use crate::body;
use crate::error::{Code, Error};
use crate::names;
use crate::router::App;
use crate::service::Service;
use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use highwater_control::{Operation, Outcome};
use highwater_node::Durability;
use hyper::body::Body as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Bytes of a request's body: an account of 256 buckets with the longest names.
const BODY_BYTES_MAX: u64 = 512 << 10;

/// The routes.
pub(crate) fn routes<S: Service>() -> Router<App<S>> {
    Router::new()
        .route("/v1/keys", only("GET, POST", get(keys::list::<S>).post(keys::create::<S>)))
        .route(
            "/v1/keys/{id}",
            only("GET, PATCH, DELETE", get(keys::one::<S>).patch(keys::change::<S>).delete(keys::revoke::<S>)),
        )
        .route("/v1/accounts", only("GET, POST", get(accounts::list::<S>).post(accounts::create::<S>)))
        .route(
            "/v1/accounts/{name}",
            only(
                "GET, PATCH, DELETE",
                get(accounts::one::<S>).patch(accounts::change::<S>).delete(accounts::remove::<S>),
            ),
        )
        .route("/v1/plans", only("GET, POST", get(plans::list::<S>).post(plans::create::<S>)))
        .route(
            "/v1/plans/{name}",
            only("GET, PATCH, DELETE", get(plans::one::<S>).patch(plans::change::<S>).delete(plans::remove::<S>)),
        )
}

/// A route that names its methods to whoever uses another.
fn only<S: Clone + Send + Sync + 'static>(allow: &'static str, methods: MethodRouter<S>) -> MethodRouter<S> {
    methods.fallback(async move || Error::method_not_allowed(allow))
}

/// Reads a body of JSON. Members that are not known are refused: a limit that is misspelled would bound nothing.
async fn read<S: Service, T: DeserializeOwned>(app: &App<S>, head: &Parts, body: Body) -> Result<T, Error> {
    let too_long = || invalid(format!("a request of this kind has at most {BODY_BYTES_MAX} bytes"));
    if body.size_hint().lower() > BODY_BYTES_MAX {
        return Err(too_long());
    }
    let whole = body::read(body, app, head).await?;
    if whole.bytes.len() as u64 > BODY_BYTES_MAX {
        return Err(too_long());
    }
    serde_json::from_slice(&whole.bytes).map_err(|error| invalid(format!("the body is not what is expected: {error}")))
}

/// Orders a change, and notes in the log who asked for it.
async fn change<S: Service>(app: &App<S>, operation: Operation) -> Result<(Outcome, Durability), Error> {
    let answer = app.service.control(operation).await?;
    Ok((answer.result?, answer.durability))
}

/// Who changes something, for the log.
fn by(head: &Parts) -> String {
    let key = head.extensions.get::<Authority>().and_then(Authority::key_id);
    key.map_or_else(|| "open mode".to_owned(), |id| id.to_string())
}

fn written(status: StatusCode, value: &Value, durability: Durability) -> Response {
    let mut response = answered(status, value);
    answer::durability(response.headers_mut(), durability);
    response
}

fn answered(status: StatusCode, value: &Value) -> Response {
    let kind = (header::CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
    (status, [kind, (header::CACHE_CONTROL, names::NO_STORE)], format!("{value}\n")).into_response()
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidRequest, message)
}

fn internal() -> Error {
    Error::new(Code::Internal, "the change was answered as another one")
}

/// Tells a member that is `null` from one that is absent, inside a default of `None`.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
