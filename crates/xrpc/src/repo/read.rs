//! Reads of records.

use crate::answer;
use crate::call::{self, Call};
use crate::error::{Error, Name, Result};
use crate::names;
use bytes::Bytes;
use highwater_host::{Host, List};
use highwater_pds::Account;
use highwater_repo::syntax::{is_nsid, is_record_key};
use highwater_repo::{Cid, Value, data};
use serde_json::{Value as Json, json};

/// Records of a page at the most, and if nothing is said.
const LIMIT_MAX: u64 = 100;
const LIMIT: u64 = 50;

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

fn told(account: &Account, path: &str, cid: &Cid, record: Bytes) -> Result<Json> {
    let value: Value = data::decode(record).map_err(|error| answer::internal(&error))?;
    Ok(json!({ "uri": format!("at://{}/{path}", account.did), "cid": cid.to_string(), "value": value }))
}

/// `com.atproto.repo.getRecord`
pub async fn get_record(call: Call) -> Result {
    let ((host, account), collection) = (account(&call)?, collection(&call)?);
    let rkey = call.query.required("rkey")?;
    if !is_record_key(rkey) {
        return Err(Error::invalid("the parameter rkey is no record key"));
    }
    let wanted: Option<Cid> = call.query.parsed_optional("cid")?;
    let (path, id) = (format!("{collection}/{rkey}"), account.id);
    let read = call::blocking({
        let path = path.clone();
        move || host.record(id, &path)
    });
    let found = read.await??.filter(|(cid, _)| wanted.is_none_or(|wanted| wanted == *cid));
    let (cid, record) =
        found.ok_or_else(|| Error::new(Name::RecordNotFound, format!("there is no record at {path}")))?;
    answer::json(&told(&account, &path, &cid, record)?)
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
        ascending: call.query.boolean("reverse")?,
    };
    let id = account.id;
    let listed = call::blocking(move || host.list(id, &list)).await??;
    let records =
        listed.iter().map(|one| told(&account, &format!("{collection}/{}", one.rkey), &one.cid, one.record.clone()));
    let mut answer = json!({ "records": records.collect::<Result<Vec<_>>>()? });
    // A page that is full may be the last one; the next one is empty then.
    if let Some(last) = listed.last().filter(|_| listed.len() == limit) {
        answer["cursor"] = last.rkey.clone().into();
    }
    answer::json(&answer)
}

/// `com.atproto.repo.describeRepo`
pub async fn describe_repo(call: Call) -> Result {
    let (host, account) = account(&call)?;
    let id = account.id;
    let collections = call::blocking(move || host.collections(id)).await??;
    answer::json(&json!({
        "handle": account.handle.as_str(),
        "did": account.did.as_str(),
        "didDoc": names::document(&account, &call.context.options),
        "collections": collections,
        "handleIsCorrect": true,
    }))
}
