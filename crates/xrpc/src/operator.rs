//! `/v1/pds`: what an operator asks, behind the keys of the server that mounts it.
//!
//! Bodies and answers are JSON; errors are those of that server's other management: `{"error":{"code","message"}}`. That
//! whoever asks may ask was judged before any of it runs.

mod accounts;
mod stream;

pub use stream::status;

pub(crate) use crate::call::blocking;
use crate::context::Context;
use crate::error::{self, Name};
use axum::body::{Body, to_bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use highwater_host::{BackupError, Host, Refused, Unsettled};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes of a request's body: a handle and a password.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What a relay was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The relay.
    pub url: String,
    /// `asked`; `recent` if it was asked a moment ago, and is not asked again; `refused` if it will not; `failed`.
    pub outcome: &'static str,
    /// More, for people.
    pub message: Option<String>,
}

/// Who talks to relays.
pub trait Announcer: Send + Sync + 'static {
    /// Asks each relay to read this server, also those that were asked a moment ago if `force` says so. Waits for their
    /// answers.
    fn announce(&self, host: &Host, force: bool) -> Vec<Asked>;

    /// The relays, for the status: a list of objects.
    fn relays(&self) -> Value;
}

/// What every handler needs.
#[derive(Clone)]
pub(crate) struct Operator {
    pub context: Arc<Context>,
    pub announcer: Arc<dyn Announcer>,
}

/// The routes.
pub fn router(context: Arc<Context>, announcer: Arc<dyn Announcer>) -> Router {
    Router::new()
        .route("/v1/pds/accounts", only("GET, POST", get(accounts::list).post(accounts::create)))
        .route("/v1/pds/accounts/{account}", only("GET", get(accounts::one)))
        .route("/v1/pds/accounts/{account}/{what}", only("POST", post(accounts::change)))
        .route("/v1/pds/status", only("GET", get(stream::status_page)))
        .route("/v1/pds/announce", only("POST", post(stream::announce)))
        .route("/v1/pds/backup", only("POST", post(stream::backup)))
        .fallback(async || Failure::new("NOT_FOUND", "no route serves this path"))
        .with_state(Operator { context, announcer })
}

/// A route that names its methods to whoever uses another.
fn only<S: Clone + Send + Sync + 'static>(allow: &'static str, methods: MethodRouter<S>) -> MethodRouter<S> {
    methods.fallback(async move || {
        let mut response = Failure::new("METHOD_NOT_ALLOWED", format!("this path answers {allow}")).into_response();
        response.headers_mut().insert(header::ALLOW, axum::http::HeaderValue::from_static(allow));
        response
    })
}

/// A refusal, in the form of the server's other management.
#[derive(Debug)]
pub(crate) struct Failure {
    code: &'static str,
    message: String,
}

/// Codes that are sent here, with their statuses; each has a row in the table of the server's errors.
pub const CODES: [(&str, u16); 11] = [
    ("INVALID_REQUEST", 400),
    ("NOT_FOUND", 404),
    ("ACCOUNT_NOT_FOUND", 404),
    ("METHOD_NOT_ALLOWED", 405),
    ("ALREADY_EXISTS", 409),
    ("ACCOUNT_STATE", 409),
    ("INTERNAL", 500),
    ("STORED_BYTES_DAMAGED", 500),
    ("PDS_BUSY", 503),
    ("PDS_UNAVAILABLE", 503),
    ("WAL_DISK_PRESSURE", 503),
];

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Refusals of a moment: nothing was done, and after so many seconds it may be.
const MOMENTARY: [&str; 2] = ["PDS_BUSY", "WAL_DISK_PRESSURE"];
const RETRY_S: u64 = 1;

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = CODES.iter().find(|(code, _)| *code == self.code).map_or(500, |(_, status)| *status);
        let body = Json(json!({ "error": { "code": self.code, "message": self.message } }));
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, [(header::CACHE_CONTROL, "no-store")], body).into_response();
        if MOMENTARY.contains(&self.code) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_S.into());
        }
        response
    }
}

impl From<Unsettled> for Failure {
    fn from(why: Unsettled) -> Self {
        let code = match why {
            Unsettled::Full => "WAL_DISK_PRESSURE",
            Unsettled::Overtaken | Unsettled::Busy => "PDS_BUSY",
            Unsettled::Stopped(_) | Unsettled::Numbers => "PDS_UNAVAILABLE",
        };
        Self::new(code, why.to_string())
    }
}

/// The operator is told which bytes: whoever reads this has the disk.
fn damaged(message: String) -> Failure {
    tracing::error!(
        event = "stored_bytes_damaged",
        message,
        "what an operator asks for needs stored bytes that are damaged"
    );
    Failure::new("STORED_BYTES_DAMAGED", message)
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::NoAccount => Self::new("ACCOUNT_NOT_FOUND", message),
            Refused::Invalid(_) => Self::new("INVALID_REQUEST", message),
            Refused::Turn(highwater_pds::Refused::HeadBlock(_)) | Refused::Read(_) => damaged(message),
            Refused::Turn(highwater_pds::Refused::Stale(_)) => Self::new("PDS_BUSY", message),
            Refused::Turn(_) | Refused::Withdrawn(_) => Self::new("ACCOUNT_STATE", message),
            Refused::Undrawn(_) => Self::new("INTERNAL", message),
            Refused::Taken(_) => Self::new("ALREADY_EXISTS", message),
            Refused::Unsettled(why) => why.into(),
        }
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let code = match error {
            BackupError::NotEmpty(_) => "INVALID_REQUEST",
            BackupError::Checkpoint(_) => "PDS_UNAVAILABLE",
            BackupError::Io { .. } => "INTERNAL",
        };
        Self::new(code, error.to_string())
    }
}

impl From<error::Error> for Failure {
    fn from(error: error::Error) -> Self {
        let code = match error.name() {
            Name::NotEnoughResources => "PDS_BUSY",
            Name::AccountTakedown | Name::AccountDeactivated | Name::ExpiredToken => "ACCOUNT_STATE",
            Name::InternalServerError => "INTERNAL",
            _ => "INVALID_REQUEST",
        };
        Self::new(code, error.message())
    }
}

pub(crate) type Outcome<T = Response> = Result<T, Failure>;

pub(crate) fn answer(value: &Value) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(value)).into_response()
}

/// Reads a body of JSON; members that are not known are refused.
pub(crate) async fn read<T: DeserializeOwned>(body: Body) -> Outcome<T> {
    let bytes = to_bytes(body, BODY_BYTES_MAX).await;
    let bytes = bytes.map_err(|error| Failure::new("INVALID_REQUEST", format!("the body: {error}")))?;
    let whole: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(whole)
        .map_err(|error| Failure::new("INVALID_REQUEST", format!("the body is not what is expected: {error}")))
}
