//! `/v1/keys`.

use super::{answered, by, change as ordered, internal, invalid, present, read, written};
use crate::error::{Code, Error};
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use highwater_base::Millis;
use highwater_control::{CreateKey, Credential, Key, KeyId, Operation, Outcome, Scope, Scopes};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The header that names a request, so that its repeat makes no second key.
const REQUEST_ID: &str = "request-id";

/// Milliseconds that may pass between the moment from which an end in seconds is counted and the one at which the key
/// counts as made.
const ORDERED_WITHIN_MS: u64 = 60_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    scopes: Vec<String>,
    #[serde(default)]
    prefixes: Vec<String>,
    account: Option<String>,
    expires_ms: Option<u64>,
    expires_in_s: Option<u64>,
    #[serde(default)]
    note: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    #[serde(default, deserialize_with = "present")]
    expires_ms: Option<Option<u64>>,
    expires_in_s: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Revocation {
    #[serde(default)]
    last: bool,
}

/// GET `/v1/keys`.
pub(crate) async fn list<S: Service>(State(app): State<App<S>>) -> Result<Response, Error> {
    let (view, now) = (app.guard.view()?, app.service.wall());
    let keys: Vec<Value> = view.keys().map(|key| describe(key, now)).collect();
    Ok(answered(StatusCode::OK, &json!({ "keyed": view.is_keyed(), "keys": keys })))
}

/// GET `/v1/keys/{id}`.
pub(crate) async fn one<S: Service>(State(app): State<App<S>>, Path(id): Path<String>) -> Result<Response, Error> {
    let view = app.guard.view()?;
    let id = parse_id(&id)?;
    let key = view.key(id).ok_or_else(|| not_found(format!("there is no key {id}")))?;
    Ok(answered(StatusCode::OK, &describe(key, app.service.wall())))
}

/// POST `/v1/keys`: makes a key, whose secret is in this answer and nowhere else.
pub(crate) async fn create<S: Service>(State(app): State<App<S>>, request: Request) -> Result<Response, Error> {
    let (head, body) = request.into_parts();
    let request = request_id(&head.headers)?;
    let new: New = read(&app, &head, body).await?;
    let service = &app.service;
    let credential = Credential::new(KeyId::new(service.draw()), std::array::from_fn(|_| service.draw()));
    let made = request.as_ref().and_then(|request| made_by(&app, request));
    let expires = match (new.expires_ms, new.expires_in_s) {
        (Some(_), Some(_)) => return Err(invalid("expires_ms and expires_in_s say the same: send one".to_owned())),
        (Some(at), None) => Some(Millis(at)),
        (None, Some(seconds)) => {
            let asked_before = made.and_then(|key| end_asked_for(&key, seconds));
            Some(asked_before.unwrap_or_else(|| after(service.wall(), seconds)))
        }
        (None, None) => None,
    };
    let operation = Operation::CreateKey(CreateKey {
        id: credential.id,
        secret: credential.hash(),
        scopes: scopes(&new.scopes)?,
        prefixes: new.prefixes,
        account: new.account,
        expires,
        note: new.note,
        request,
    });
    let (outcome, durability) = ordered(&app, operation).await?;
    let now = service.wall();
    match outcome {
        Outcome::Key(key) => {
            tracing::info!(event = "key_created", key = %key.id, scopes = %key.scopes, by = by(&head), "a key was made");
            let mut value = describe(&key, now);
            value["key"] = credential.with_id(key.id).reveal().into();
            Ok(written(StatusCode::CREATED, &value, durability))
        }
        Outcome::KeyRepeated(key) => Ok(written(StatusCode::OK, &describe(&key, now), durability)),
        Outcome::Account { .. } | Outcome::Plan { .. } | Outcome::AccountDeleted(_) | Outcome::PlanDeleted(_) => {
            Err(internal())
        }
    }
}

/// PATCH `/v1/keys/{id}`: gives a key an end, or takes it away.
pub(crate) async fn change<S: Service>(
    State(app): State<App<S>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Error> {
    let (head, body) = request.into_parts();
    let changes: Changes = read(&app, &head, body).await?;
    let expires = match (changes.expires_ms, changes.expires_in_s) {
        (Some(at), None) => at.map(Millis),
        (None, Some(seconds)) => Some(after(app.service.wall(), seconds)),
        _ => return Err(invalid("send one of expires_ms, which may be null, and expires_in_s".to_owned())),
    };
    let operation = Operation::ExpireKey { id: parse_id(&id)?, expires };
    settle(&app, operation, "key_expiry_changed", by(&head)).await
}

/// DELETE `/v1/keys/{id}`: refuses a key from now on, for good.
pub(crate) async fn revoke<S: Service>(
    State(app): State<App<S>>,
    Path(id): Path<String>,
    query: Query<Revocation>,
    request: Request<Body>,
) -> Result<Response, Error> {
    let (head, _) = request.into_parts();
    let operation = Operation::RevokeKey { id: parse_id(&id)?, last: query.last };
    settle(&app, operation, "key_revoked", by(&head)).await
}

async fn settle<S: Service>(
    app: &App<S>,
    operation: Operation,
    event: &'static str,
    by: String,
) -> Result<Response, Error> {
    let (Outcome::Key(key), durability) = ordered(app, operation).await? else { return Err(internal()) };
    tracing::info!(event, key = %key.id, by, "a key was changed");
    Ok(written(StatusCode::OK, &describe(&key, app.service.wall()), durability))
}

/// A key without its secret, and without the hash of it.
fn describe(key: &Key, now: Millis) -> Value {
    json!({
        "id": key.id.to_string(),
        "scopes": key.scopes.iter().map(Scope::name).collect::<Vec<_>>(),
        "prefixes": key.prefixes,
        "account": key.account,
        "note": key.note,
        "state": match () {
            () if key.revoked.is_some() => "revoked",
            () if key.is_expired(now) => "expired",
            () => "active",
        },
        "created_ms": key.created.0,
        "expires_ms": key.expires.map(|at| at.0),
        "revoked_ms": key.revoked.map(|at| at.0),
    })
}

fn scopes(names: &[String]) -> Result<Scopes, Error> {
    let find = |name: &String| {
        let known = Scope::ALL.iter().find(|scope| scope.name() == name);
        known.copied().ok_or_else(|| {
            let all: Vec<&str> = Scope::ALL.iter().map(|scope| scope.name()).collect();
            invalid(format!("{name:?} is no scope; the scopes are {}", all.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn request_id(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let Some(value) = headers.get(REQUEST_ID) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| !text.is_empty());
    text.map(|text| Some(text.to_owned()))
        .ok_or_else(|| invalid("Request-Id is 1 to 64 visible ASCII characters".to_owned()))
}

fn parse_id(text: &str) -> Result<KeyId, Error> {
    // What was sent in place of an id may be a whole key, and is not repeated.
    let wrong = || not_found("the path names no key: an id is the 12 characters behind hw_".to_owned());
    KeyId::parse(text).ok_or_else(wrong)
}

fn not_found(message: String) -> Error {
    Error::new(Code::KeyNotFound, message)
}

/// The key that a request with this id made before.
fn made_by<S: Service>(app: &App<S>, request: &str) -> Option<Arc<Key>> {
    let view = app.guard.view().ok()?;
    view.keys().find(|key| key.request.as_deref() == Some(request)).cloned()
}

/// The end of `key` if it is the one that was asked for as `seconds` when the key was made. A repeat that counted them
/// from its own moment would ask for another key.
fn end_asked_for(key: &Key, seconds: u64) -> Option<Millis> {
    let meant = after(key.created, seconds);
    key.expires.filter(|end| end.0.abs_diff(meant.0) <= ORDERED_WITHIN_MS)
}

fn after(now: Millis, seconds: u64) -> Millis {
    now.plus(seconds.saturating_mul(1_000))
}
