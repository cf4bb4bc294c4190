//! `/v1/admin/backups`: taking a backup of the node.
//!
//! `POST` begins one and says what it consists of; its files are read by range; `DELETE` ends it. Whoever may do this
//! may read everything: it is administration.

use crate::error::{Code, Error};
use crate::names;
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use highwater_base::limits::READ_BYTES_MAX;
use highwater_node::backup::BackupError;
use highwater_node::rooms::Asker;
use serde::Deserialize;

pub(crate) fn routes<S: Service>() -> Router<App<S>> {
    let not_get = || async { Error::method_not_allowed("GET, HEAD") };
    Router::new()
        .route("/v1/admin/backups", post(begin::<S>).fallback(async || Error::method_not_allowed("POST")))
        .route("/v1/admin/backups/{id}", delete(end::<S>).fallback(async || Error::method_not_allowed("DELETE")))
        .route("/v1/admin/backups/{id}/files/{*path}", get(read::<S>).fallback(not_get))
        .route("/v1/admin/backups/{id}/digests/{*path}", get(digest::<S>).fallback(not_get))
}

/// How a backup is taken.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manner {
    /// Leave damaged groups out, and name them.
    #[serde(default)]
    except_damaged: bool,
}

async fn begin<S: Service>(State(app): State<App<S>>, manner: Asked<Manner>) -> Result<Response, Error> {
    let Query(manner) = manner.map_err(|error| malformed(&error))?;
    let plan = app.service.begin_backup(manner.except_damaged).await?;
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, names::NO_STORE)], Json(plan)).into_response())
}

/// A query that may be malformed; then the answer is an error like any other.
type Asked<T> = Result<Query<T>, QueryRejection>;

fn malformed(error: &QueryRejection) -> Error {
    Error::new(Code::InvalidQuery, error.body_text())
}

/// Which bytes of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    #[serde(default)]
    offset: u64,
    length: Option<u64>,
}

async fn read<S: Service>(
    State(app): State<App<S>>,
    Path((id, path)): Path<(String, String)>,
    range: Asked<Range>,
) -> Result<Response, Error> {
    let Query(range) = range.map_err(|error| malformed(&error))?;
    let length = range.length.unwrap_or(READ_BYTES_MAX).min(READ_BYTES_MAX);
    // What waits for a slow reader counts like the answer to a read of a stream.
    let busy = || Error::new(Code::LiveReadBackpressure, "the answers for slow readers hold all the memory they may");
    let room = app.answers.wait(length, Asker::NOBODY).await.ok_or_else(busy)?;
    let bytes = blocking(move || app.service.read_backup(&id, &path, range.offset, length)).await?;
    let octets = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((octets, Body::from(room.around(bytes))).into_response())
}

async fn digest<S: Service>(
    State(app): State<App<S>>,
    Path((id, path)): Path<(String, String)>,
) -> Result<Response, Error> {
    let digest = blocking(move || app.service.digest_backup(&id, &path)).await?;
    Ok(([(header::CACHE_CONTROL, names::NO_STORE)], format!("{digest}\n")).into_response())
}

async fn end<S: Service>(State(app): State<App<S>>, Path(id): Path<String>) -> Result<Response, Error> {
    let ended = blocking(move || Ok(app.service.end_backup(&id))).await?;
    if ended { Ok(StatusCode::NO_CONTENT.into_response()) } else { Err(BackupError::Unknown.into()) }
}

/// Runs what waits for the disk where it holds nobody up.
async fn blocking<R: Send + 'static>(
    run: impl FnOnce() -> Result<R, BackupError> + Send + 'static,
) -> Result<R, Error> {
    let done = tokio::task::spawn_blocking(run).await;
    Ok(done.map_err(|_| Error::new(Code::Internal, "the backup could not be read"))??)
}

impl From<BackupError> for Error {
    fn from(error: BackupError) -> Self {
        let message = error.to_string();
        match error {
            BackupError::Group { why, .. } => Self::from(why).saying(message),
            BackupError::Unknown => Self::new(Code::NotFound, message),
            BackupError::TooMany => Self::new(Code::BackupsLimit, message),
            BackupError::Io { .. } => Self::new(Code::Internal, message),
        }
    }
}
