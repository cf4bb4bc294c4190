//! Blobs: uploaded by their owners, read by everybody once a record refers to them.

use crate::answer;
use crate::body::{self, Arriving};
use crate::call::{self, Call};
use crate::context::Context;
use crate::error::{Error, Name, Result};
use crate::pieces::{self, Source};
use crate::shares::Party;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use highwater_host::blobs::{BlobError, BlobReader, KeepError, Upload};
use highwater_pds::Account;
use highwater_repo::{Cid, Tid};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The method that service tokens for uploads name.
const UPLOAD: &str = "com.atproto.repo.uploadBlob";
/// Bytes that are gathered before they are written: a thread is asked once for each of these.
const PIECE_BYTES: usize = 256 << 10;

/// What is answered with every blob, so that no browser takes one for a page of this server.
const GUARDS: [(HeaderName, HeaderValue); 3] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
];

impl From<BlobError> for Error {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::TooLarge(_) => Self::new(Name::BlobTooLarge, error.to_string()),
            BlobError::Empty => Self::invalid(error.to_string()),
            BlobError::Full => answer::busy(error.to_string()),
            BlobError::Missing => Self::new(Name::BlobNotFound, error.to_string()),
            BlobError::Damaged(_) | BlobError::Lost(_) => answer::damaged(&error),
            BlobError::Io(_) => answer::internal(&error),
        }
    }
}

impl From<KeepError> for Error {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::File(error) => error.into(),
            KeepError::Row(refused) => refused.into(),
            KeepError::Temporary | KeepError::ListFull => Self::invalid(error.to_string()),
        }
    }
}

async fn write(mut upload: Upload, piece: Bytes) -> Result<Upload> {
    Ok(call::blocking(move || upload.write(&piece).map(|()| upload)).await??)
}

/// `com.atproto.repo.uploadBlob`
pub async fn upload_blob(mut call: Call) -> Result {
    let access = call.access_or_service(UPLOAD)?;
    let context = Arc::clone(&call.context);
    let bytes_max = context.options.blob_bytes_max;
    let declared = body::declared(&call.head)?;
    if declared.is_some_and(|declared| declared > bytes_max) {
        return Err(BlobError::TooLarge(bytes_max).into());
    }
    let _place = context.uploads.take(Party::Account(access.account), 1)?;
    let host = context.host.clone();
    let upload =
        call::blocking(move || host.begin_blob(access.asker(), declared.unwrap_or(bytes_max).max(1))).await??;
    let upload = receive(&mut call.body, upload, &context).await?;
    let said = call.media_type();
    let host = context.host.clone();
    let kept = call::blocking(move || host.keep_blob(upload, said.as_deref())).await??;
    let reference = json!({ "$type": "blob", "ref": { "$link": kept.cid.to_string() }, "mimeType": kept.media_type, "size": kept.bytes });
    answer::json(&json!({ "blob": reference }))
}

/// Writes a body into an upload as it comes.
async fn receive(body: &mut Body, mut upload: Upload, context: &Context) -> Result<Upload> {
    let mut arriving = Arriving::new(body, &context.options);
    let mut piece = BytesMut::with_capacity(PIECE_BYTES);
    while let Some(data) = arriving.next().await? {
        piece.extend_from_slice(&data);
        if piece.len() >= PIECE_BYTES {
            upload = write(upload, piece.split().freeze()).await?;
        }
    }
    write(upload, piece.freeze()).await
}

/// The account whose blobs are asked for, if it is served.
fn served(call: &Call) -> Result<Account> {
    let did = call.query.required("did")?;
    let row = call.context.host.state(|state| state.by_did(did).cloned());
    let row = row.ok_or_else(|| Error::new(Name::RepoNotFound, "there is no such repository here"))?;
    call.reads(&row)?;
    Ok(row)
}

/// `com.atproto.sync.getBlob`
pub async fn get_blob(call: Call) -> Result {
    let row = served(&call)?;
    let cid: Cid = call.query.parsed("cid")?;
    let (host, id) = (call.context.host.clone(), row.id);
    let found = call::blocking(move || host.open_blob(id, &cid)).await??;
    let not_found = || Error::new(Name::BlobNotFound, "the account has no such blob that a record refers to");
    let (reader, bytes, media_type) = found.ok_or_else(not_found)?;
    let media_type = HeaderValue::try_from(media_type).unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let length = HeaderValue::from(bytes);
    let mut response: Response = pieces::body(reader, "a blob").into_response();
    response.headers_mut().extend(GUARDS);
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    Ok(response)
}

impl Source for BlobReader {
    type Error = BlobError;

    fn piece(&mut self) -> std::result::Result<Option<Bytes>, BlobError> {
        self.read()
    }
}

/// `com.atproto.sync.listBlobs`
pub async fn list_blobs(call: Call) -> Result {
    let row = served(&call)?;
    let limit = call.query.integer("limit", 1..=1_000, 500)? as usize;
    let after: Option<Cid> = call.query.parsed_optional("cursor")?;
    let since: Option<Tid> = call.query.parsed_optional("since")?;
    let cids: Vec<String> = call.context.host.state(|state| {
        let blobs = state.blobs.get(&row.id);
        blobs.map_or_else(Vec::new, |blobs| blobs.list(after, since).take(limit).map(Cid::to_string).collect())
    });
    let mut told = json!({ "cids": cids });
    if let Some(last) = cids.last().filter(|_| cids.len() == limit) {
        told["cursor"] = last.as_str().into();
    }
    answer::json(&told)
}

/// `com.atproto.repo.listMissingBlobs`: those that records of the account refer to and that are not here.
pub async fn list_missing_blobs(call: Call) -> Result {
    let row = call.row(&call.access()?)?;
    let limit = call.query.integer("limit", 1..=1_000, 500)? as usize;
    let after: Option<Cid> = call.query.parsed_optional("cursor")?;
    let (host, id) = (call.context.host.clone(), row.id);
    let missing = call::blocking(move || host.missing_blobs(id, after, limit)).await??;
    let blobs = missing
        .iter()
        .map(|(cid, record)| json!({ "cid": cid.to_string(), "recordUri": format!("at://{}/{record}", row.did) }));
    let mut told = json!({ "blobs": blobs.collect::<Vec<_>>() });
    if let Some((last, _)) = missing.last().filter(|_| missing.len() == limit) {
        told["cursor"] = last.to_string().into();
    }
    answer::json(&told)
}

/// Lets temporary blobs go that nobody referred to in time. Once in a while, for as long as the server runs.
pub async fn upkeep(context: Arc<Context>) {
    let pause = Duration::from_secs(context.options.blob_temporary_seconds / 8).max(Duration::from_secs(1));
    loop {
        tokio::select! {
            () = context.closing() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let (host, seconds) = (context.host.clone(), context.options.blob_temporary_seconds);
        match call::blocking(move || host.expire_blobs(host.now(), seconds)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(blobs)) => {
                tracing::info!(event = "blobs_expired", blobs, "uploads that no record referred to in time")
            }
            Ok(Err(error)) => tracing::warn!(event = "blobs_not_expired", %error, "tried again later"),
            Err(error) => tracing::warn!(event = "blobs_not_expired", error = error.message(), "tried again later"),
        }
    }
}
