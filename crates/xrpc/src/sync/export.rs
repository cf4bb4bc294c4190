//! Archives: of a repository, of a record's proof, of single blocks.

use super::status::account;
use crate::answer;
use crate::call::{self, Call};
use crate::error::{Error, Name, Result};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use highwater_host::{Export, ReadError};
use highwater_repo::syntax::{is_nsid, is_record_key};
use highwater_repo::{Cid, Tid, car};
use hyper::body::Frame;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Blocks of one request at the most: as many as a URL of a usual length names.
const BLOCKS_MAX: usize = 1_000;

/// Pieces of an export that wait for their reader.
const PIECES_AHEAD: usize = 1;

/// `com.atproto.sync.getRepo`
pub async fn get_repo(call: Call) -> Result {
    // Whoever names a revision gets the whole repository, which is more than asked for and permitted: which blocks came since is
    // not kept.
    let _since: Option<Tid> = call.query.parsed_optional("since")?;
    export(call).await
}

/// `com.atproto.sync.getCheckout`, deprecated.
pub async fn get_checkout(call: Call) -> Result {
    export(call).await
}

async fn export(call: Call) -> Result {
    let account = account(&call)?;
    account.served()?;
    let (host, id) = (call.context.host.clone(), account.id);
    let too_many = |_| answer::busy("too many repositories are being exported: try again later".to_owned());
    let begun = call.context.exports.try_acquire().map_err(too_many)?;
    let export = call::blocking(move || host.export(id)).await??;
    drop(begun);
    let tag = format!("\"{}\"", export.head().commit);
    let tag = HeaderValue::try_from(tag).map_err(|error| answer::internal(&error))?;
    let known = call.head.headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    if known.is_some_and(|tags| {
        tags.split(',').any(|known| known.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes())
    }) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let (send, pieces) = mpsc::channel(PIECES_AHEAD);
    tokio::spawn(read(export, send));
    let mut response = answer::archive(Body::new(Pieces(pieces)));
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Reads an export on threads that may wait for the disk, one piece ahead of its reader.
async fn read(mut export: Export, send: mpsc::Sender<std::result::Result<Bytes, ReadError>>) {
    loop {
        // Room first, so that nothing is read for a reader who has gone.
        let Ok(room) = send.reserve().await else { return };
        let read = tokio::task::spawn_blocking(move || {
            let piece = export.chunk();
            (export, piece)
        });
        let Ok((rest, piece)) = read.await else { return room.send(Err(ReadError::Damaged("a thread failed".into()))) };
        export = rest;
        match piece {
            Ok(Some(piece)) => room.send(Ok(piece)),
            Ok(None) => return,
            Err(error) => {
                tracing::error!(event = "export_failed", %error, "an export broke off");
                return room.send(Err(error));
            }
        }
    }
}

/// The body of an export. What goes wrong breaks it off, so that nobody takes a part for the whole.
struct Pieces(mpsc::Receiver<std::result::Result<Bytes, ReadError>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = ReadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, ReadError>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// `com.atproto.sync.getRecord`
pub async fn get_record(call: Call) -> Result {
    let account = account(&call)?;
    account.served()?;
    let (collection, rkey) = (call.query.required("collection")?, call.query.required("rkey")?);
    if !is_nsid(collection) || !is_record_key(rkey) {
        return Err(Error::invalid("collection and rkey name no record"));
    }
    let (host, id, path) = (call.context.host.clone(), account.id, format!("{collection}/{rkey}"));
    let proof = call::blocking(move || host.proof(id, &path)).await??;
    Ok(answer::archive(proof))
}

/// `com.atproto.sync.getBlocks`
pub async fn get_blocks(call: Call) -> Result {
    let account = account(&call)?;
    account.served()?;
    let texts: Vec<&str> = call.query.all("cids").take(BLOCKS_MAX + 1).collect();
    if !(1..=BLOCKS_MAX).contains(&texts.len()) {
        return Err(Error::invalid(format!("the parameter cids stands 1 to {BLOCKS_MAX} times")));
    }
    let cids = texts.iter().map(|text| text.parse::<Cid>().map_err(|error| Error::invalid(format!("cids: {error}"))));
    let cids: BTreeSet<Cid> = cids.collect::<Result<_>>()?;
    let head = account.head.ok_or_else(|| Error::new(Name::RepoNotFound, "the repository has no commit yet"))?;
    let (host, id, cids) = (call.context.host.clone(), account.id, cids.into_iter().collect::<Vec<_>>());
    let blocks = call::blocking(move || host.blocks(id, &cids)).await??;
    // The lexicon leaves the root open; readers of archives want one.
    Ok(answer::archive(car::archive(&head.commit, blocks.iter().map(|(cid, block)| (cid, block)))))
}
