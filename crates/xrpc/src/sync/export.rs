//! Archives: of a repository, of a record's proof, of single blocks.

use super::status::account;
use crate::answer;
use crate::call::{self, Call};
use crate::error::{Error, Name, Result};
use crate::held;
use crate::limits::network;
use crate::pieces::{self, Source};
use crate::shares::Party;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use highwater_host::export::Wanted;
use highwater_host::{Export, ReadError};
use highwater_repo::syntax::{is_nsid, is_record_key};
use highwater_repo::{Cid, Tid, car};
use std::collections::BTreeSet;

/// Blocks of one request at the most: as many as a URL of a usual length names.
const BLOCKS_MAX: usize = 1_000;

/// Bytes of the blocks of one request at the most: those of two commits. They stand in memory until they are taken; whoever wants
/// more exports the repository.
const BLOCKS_BYTES_MAX: u64 = 4 << 20;

/// `com.atproto.sync.getRepo`
pub async fn get_repo(call: Call) -> Result {
    let since = call.query.parsed_optional("since")?;
    export(call, since).await
}

/// `com.atproto.sync.getCheckout`, deprecated.
pub async fn get_checkout(call: Call) -> Result {
    export(call, None).await
}

async fn export(call: Call, since: Option<Tid>) -> Result {
    let account = account(&call)?;
    let (host, id) = (call.reads(&account)?, account.id);
    let begun = call.context.exports.take(Party::Address(network(call.peer)), 1)?;
    let wanted = Wanted { since, whose: network(call.peer) };
    let export = call::blocking(move || {
        // It goes with the thread: whoever hangs up does not make room for another wait.
        let _begun = begun;
        host.export_wanted(id, wanted)
    });
    let export = export.await??;
    let tag = format!("\"{}\"", export.head().commit);
    let tag = HeaderValue::try_from(tag).map_err(|error| answer::internal(&error))?;
    let known = call.head.headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    if known.is_some_and(|tags| {
        tags.split(',').any(|known| known.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes())
    }) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let mut response = answer::archive(pieces::body(export, "a repository"));
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

impl Source for Export {
    type Error = ReadError;

    fn piece(&mut self) -> std::result::Result<Option<Bytes>, ReadError> {
        self.chunk()
    }
}

/// `com.atproto.sync.getRecord`
pub async fn get_record(call: Call) -> Result {
    let account = account(&call)?;
    let host = call.reads(&account)?;
    let (collection, rkey) = (call.query.required("collection")?, call.query.required("rkey")?);
    if !is_nsid(collection) || !is_record_key(rkey) {
        return Err(Error::invalid("collection and rkey name no record"));
    }
    let (id, path) = (account.id, format!("{collection}/{rkey}"));
    let proof = call::reading(&call.context, move || Ok(host.proof(id, &path)?)).await?;
    held::answer(&call, answer::CAR, proof)
}

/// `com.atproto.sync.getBlocks`
pub async fn get_blocks(call: Call) -> Result {
    let account = account(&call)?;
    let host = call.reads(&account)?;
    let texts: Vec<&str> = call.query.all("cids").take(BLOCKS_MAX + 1).collect();
    if !(1..=BLOCKS_MAX).contains(&texts.len()) {
        return Err(Error::invalid(format!("the parameter cids stands 1 to {BLOCKS_MAX} times")));
    }
    let cids = texts.iter().map(|text| text.parse::<Cid>().map_err(|error| Error::invalid(format!("cids: {error}"))));
    let cids: BTreeSet<Cid> = cids.collect::<Result<_>>()?;
    let head = account.head.ok_or_else(|| Error::new(Name::RepoNotFound, "the repository has no commit yet"))?;
    let (id, cids) = (account.id, cids.into_iter().collect::<Vec<_>>());
    let read = call::reading(&call.context, move || {
        let bytes = host.blocks_bytes(id, &cids)?;
        if bytes > BLOCKS_BYTES_MAX {
            let message =
                format!("these blocks have {bytes} bytes, more than {BLOCKS_BYTES_MAX}: ask for fewer at once");
            return Err(Error::invalid(message));
        }
        let blocks = host.blocks(id, &cids)?;
        // The lexicon leaves the root open; readers of archives want one.
        Ok(car::archive(&head.commit, blocks.iter().map(|(cid, block)| (cid, block))))
    });
    let read = read.await?;
    held::answer(&call, answer::CAR, read)
}
