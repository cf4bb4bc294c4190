//! Publishing a snapshot: at once, or by parts that are staged before.

use super::manifest::{self, MANIFEST_BYTES_MAX};
use super::{check_boundary, offset};
use crate::answer;
use crate::body;
use crate::error::{Code, Error};
use crate::fields;
use crate::names;
use crate::router::App;
use crate::service::{APPLIED_EARLIER, Service};
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Offset};
use highwater_node::{PartsCommit, SnapshotHasher, WriteAnswer};
use highwater_stream::{Operation, PublishSnapshot, SnapshotHead, SnapshotSource};
use hyper::body::Body as _;

/// The content type of a snapshot whose publisher named none.
const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// What the head of a publish says.
struct PublishHead {
    offset: Offset,
    incarnation: Option<Incarnation>,
    content_type: String,
    /// How many parts the body names; absent if it is the snapshot itself.
    parts: Option<usize>,
    digest: Option<Digest>,
}

impl PublishHead {
    fn parse(headers: &HeaderMap, path_offset: &str) -> Result<Self, Error> {
        no_producer(headers)?;
        let parts = fields::snapshot_parts(headers)?;
        let digest = fields::snapshot_digest(headers)?;
        if parts.is_some() && digest.is_none() {
            let message = format!("a commit of parts states {}", names::STREAM_SNAPSHOT_DIGEST);
            return Err(Error::new(Code::InvalidPartsCommit, message));
        }
        Ok(Self {
            offset: offset(path_offset)?,
            incarnation: fields::incarnation(headers)?,
            content_type: fields::content_type(headers)?.unwrap_or_else(|| CONTENT_TYPE_DEFAULT.to_owned()),
            parts,
            digest,
        })
    }
}

/// Nothing here has a key: what is published is told apart by its offset and digest.
fn no_producer(headers: &HeaderMap) -> Result<(), Error> {
    if fields::names_producer(headers) {
        return Err(Error::new(Code::InvalidProducer, "snapshots take no producer headers"));
    }
    Ok(())
}

/// Does PUT on a snapshot's path: with one request, or as a commit of staged parts.
pub(crate) async fn publish<S: Service>(
    app: &App<S>,
    path: String,
    path_offset: &str,
    head: &Parts,
    body: Body,
) -> Result<Response, Error> {
    let asked = PublishHead::parse(&head.headers, path_offset)?;
    if asked.parts.is_some() && body.size_hint().lower() > MANIFEST_BYTES_MAX {
        return Err(Error::new(
            Code::InvalidPartsCommit,
            format!("a list of parts has at most {MANIFEST_BYTES_MAX} bytes"),
        ));
    }
    app.service.route(&path)?;
    if let Some(digest) = asked.digest {
        let named = SnapshotHead { offset: asked.offset, digest };
        if let Some(known) = app.service.check_publish(&path, asked.incarnation, named).await?? {
            return answer::write(WriteAnswer { result: Ok(known), durability: APPLIED_EARLIER }, head);
        }
    }
    let whole = body::read(body, app, head).await?;
    check_boundary(app, &path, asked.incarnation, asked.offset).await?;
    match (asked.parts, asked.digest) {
        (Some(count), Some(digest)) => {
            let parts = manifest::parse(count, &whole.bytes)?;
            let PublishHead { offset, incarnation, content_type, .. } = asked;
            let named = SnapshotHead { offset, digest };
            let commit = PartsCommit { path, incarnation, head: named, content_type, parts };
            answer::write(app.service.commit_parts(commit).await??, head)
        }
        _ => {
            let computed = digest_of(&asked.content_type, &whole.bytes).await?;
            let digest = asked.digest.unwrap_or(computed);
            let operation = Operation::PublishSnapshot(PublishSnapshot {
                incarnation: asked.incarnation,
                offset: asked.offset,
                digest,
                digest_matches: digest == computed,
                content_type: asked.content_type,
                source: SnapshotSource::Body { part: app.service.issue_incarnation(), body: whole.bytes },
            });
            answer::write(app.service.write(path, operation, whole.admission).await?, head)
        }
    }
}

/// Computed where blocking is fine: the largest body takes tens of milliseconds.
async fn digest_of(content_type: &str, body: &Bytes) -> Result<Digest, Error> {
    let (mut hasher, body) = (SnapshotHasher::new(content_type), body.clone());
    let computed = tokio::task::spawn_blocking(move || {
        hasher.update(&body);
        hasher.finish()
    });
    computed.await.map_err(|_| Error::new(Code::Internal, "the snapshot's digest was not computed"))
}

/// Does POST on the parts of a snapshot to come.
pub(crate) async fn stage<S: Service>(
    app: &App<S>,
    path: String,
    path_offset: &str,
    head: &Parts,
    body: Body,
) -> Result<Response, Error> {
    no_producer(&head.headers)?;
    // A part is the stream's and no offset's; what stands there must be one all the same.
    offset(path_offset)?;
    let incarnation = fields::incarnation(&head.headers)?;
    app.service.route(&path)?;
    let whole = body::read(body, app, head).await?;
    if whole.bytes.is_empty() {
        return Err(Error::new(Code::InvalidSnapshot, "a part has at least one byte"));
    }
    let operation = Operation::StagePart { incarnation, part: app.service.issue_incarnation(), body: whole.bytes };
    answer::write(app.service.write(path, operation, whole.admission).await?, head)
}

/// Does DELETE on the staged parts of a stream.
pub(crate) async fn discard<S: Service>(app: &App<S>, path: String, head: &Parts) -> Result<Response, Error> {
    no_producer(&head.headers)?;
    let incarnation = fields::incarnation(&head.headers)?;
    app.service.route(&path)?;
    answer::write(app.service.discard_parts(path, incarnation).await?, head)
}
