//! Reads of records.

use crate::answer;
use crate::call::{self, Call};
use crate::error::{Error, Name, Result};
use crate::held;
use crate::names;
use axum::http::HeaderValue;
use bytes::Bytes;
use highwater_host::{Host, List};
use highwater_pds::Account;
use highwater_repo::Cid;
use highwater_repo::data::Encoded;
use highwater_repo::syntax::{Did, is_nsid, is_record_key};
use serde::Serialize;
use serde_json::json;

/// Records of a page at the most, and if nothing is said.
const LIMIT_MAX: u64 = 100;
const LIMIT: u64 = 50;

/// Bytes of the records of a page: a page of small ones, and whoever stores large ones does not fill the memory with a hundred.
const PAGE_BYTES_MAX: usize = 2 << 20;
/// Collections that a description names. The lexicon has no pages for them, and nobody uses a hundred.
const COLLECTIONS_MAX: usize = 1_000;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An account that is served, by its DID or its handle.
fn account(call: &Call) -> Result<(Host, Account)> {
    let repo = call.query.required("repo")?;
    let row = call.context.host.state(|state| state.named(repo).cloned());
    let row = row.ok_or_else(|| Error::new(Name::RepoNotFound, "there is no such repository here"))?;
    let host = call.reads(&row)?;
    Ok((host, row))
}

fn collection(call: &Call) -> Result<&str> {
    let collection = call.query.required("collection")?;
    if is_nsid(collection) { Ok(collection) } else { Err(Error::invalid("the parameter collection is no NSID")) }
}

/// A record as it is told, made of its encoding as it is written out.
#[derive(Serialize)]
struct Told {
    uri: String,
    cid: String,
    value: Encoded,
}

fn told(did: &Did, path: &str, cid: &Cid, record: Bytes) -> Told {
    Told { uri: format!("at://{did}/{path}"), cid: cid.to_string(), value: Encoded(record) }
}

#[derive(Serialize)]
struct Page {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    records: Vec<Told>,
}

/// What is written out where it was read: that takes time, of which the others' requests need theirs.
fn written<T: Serialize>(what: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(what).map_err(|error| answer::internal(&error))
}

/// `com.atproto.repo.getRecord`
pub async fn get_record(call: Call) -> Result {
    let ((host, account), collection) = (account(&call)?, collection(&call)?);
    let rkey = call.query.required("rkey")?;
    if !is_record_key(rkey) {
        return Err(Error::invalid("the parameter rkey is no record key"));
    }
    let wanted: Option<Cid> = call.query.parsed_optional("cid")?;
    let path = format!("{collection}/{rkey}");
    let read = call::reading(&call.context, move || {
        let found = host.record(account.id, &path)?.filter(|(cid, _)| wanted.is_none_or(|wanted| wanted == *cid));
        let not_found = || Error::new(Name::RecordNotFound, format!("there is no record at {path}"));
        let (cid, record) = found.ok_or_else(not_found)?;
        written(&told(&account.did, &path, &cid, record))
    });
    let read = read.await?;
    held::answer(&call, JSON, read)
}

/// `com.atproto.repo.listRecords`
pub async fn list_records(call: Call) -> Result {
    let ((host, account), collection) = (account(&call)?, collection(&call)?);
    let limit = call.query.integer("limit", 1..=LIMIT_MAX, LIMIT)? as usize;
    let cursor = call.query.optional("cursor")?.filter(|cursor| !cursor.is_empty());
    if cursor.is_some_and(|cursor| !is_record_key(cursor)) {
        return Err(Error::invalid("the parameter cursor is none of this list"));
    }
    let list = List {
        collection: collection.to_owned(),
        behind: cursor.map(str::to_owned),
        limit,
        bytes_max: PAGE_BYTES_MAX,
        ascending: call.query.boolean("reverse")?,
    };
    let read = call::reading(&call.context, move || {
        let page = host.list(account.id, &list)?;
        // A page that is full may be the last one; the next one is empty then.
        let cursor = page.records.last().filter(|_| page.full).map(|last| last.rkey.clone());
        let path = |rkey: &str| format!("{}/{rkey}", list.collection);
        let records = page.records.into_iter().map(|one| told(&account.did, &path(&one.rkey), &one.cid, one.record));
        written(&Page { records: records.collect(), cursor })
    });
    let read = read.await?;
    held::answer(&call, JSON, read)
}

/// `com.atproto.repo.describeRepo`
pub async fn describe_repo(call: Call) -> Result {
    let (host, account) = account(&call)?;
    let id = account.id;
    let collections = call::reading(&call.context, move || Ok(host.collections(id, COLLECTIONS_MAX)?)).await?;
    let told = json!({
        "handle": account.handle.as_str(),
        "did": account.did.as_str(),
        "didDoc": names::document(&account, &call.context.options),
        "collections": collections,
        "handleIsCorrect": true,
    });
    held::answer(&call, JSON, written(&told)?)
}
