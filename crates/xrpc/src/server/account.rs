//! What an account does with itself, and how the operator makes one.

use super::session::told_with;
use crate::answer;
use crate::call::{self, Call};
use crate::error::{Error, Name, Result};
use axum::http::header;
use highwater_host::{Host, List, NewAccount, ReadError};
use highwater_pds::credentials::Grant;
use highwater_pds::lifecycle::Change;
use highwater_pds::{AccountId, Authority, Position};
use highwater_repo::key::Curve;
use highwater_repo::syntax::Handle;
use serde::Deserialize;
use serde_json::json;

/// `com.atproto.server.activateAccount`
pub async fn activate_account(call: Call) -> Result {
    let access = call.owner()?;
    call.context.change(access.asker(), Change::Reactivate).await?;
    Ok(super::nothing())
}

/// `com.atproto.server.deactivateAccount`
pub async fn deactivate_account(call: Call) -> Result {
    let access = call.owner()?;
    call.context.change(access.asker(), Change::Deactivate).await?;
    Ok(super::nothing())
}

/// Records of a page while they are counted.
const PAGE: usize = 1_000;

/// Records of an account, by reading them all.
fn count_records(host: &Host, account: AccountId) -> std::result::Result<u64, ReadError> {
    let mut count = 0;
    for collection in host.collections(account)? {
        let mut list = List { collection, behind: None, limit: PAGE, ascending: true };
        loop {
            let page = host.list(account, &list)?;
            count += page.len() as u64;
            match page.into_iter().nth(PAGE - 1) {
                Some(last) => list.behind = Some(last.rkey),
                None => break,
            }
        }
    }
    Ok(count)
}

/// `com.atproto.server.checkAccountStatus`, which other servers' tools for moving accounts look at. `repoBlocks` counts the records
/// alone: nodes of the tree are not counted one by one.
pub async fn check_account_status(call: Call) -> Result {
    let row = call.row(&call.access()?)?;
    let host = &call.context.host;
    let (stored, temporary) = host.state(|state| {
        let blobs = state.blobs.get(&row.id);
        blobs.map_or((0, 0), |blobs| (blobs.0.len(), blobs.temporary()))
    });
    let served = row.position() == Some(Position::Active);
    let (counting, id) = (host.clone(), row.id);
    let records = match served {
        true => call::blocking(move || count_records(&counting, id)).await??,
        false => 0,
    };
    answer::json(&json!({
        "activated": row.standing.may_write(),
        "validDid": true,
        "repoCommit": row.head.map(|head| head.commit.to_string()).unwrap_or_default(),
        "repoRev": row.head.map(|head| head.rev.to_string()).unwrap_or_default(),
        "repoBlocks": records,
        "indexedRecords": records,
        "privateStateValues": 0,
        "expectedBlobs": stored - temporary,
        "importedBlobs": stored,
    }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct New {
    handle: String,
    password: Option<String>,
    did: Option<String>,
}

/// A handle that an account of this server may have.
fn handle(call: &Call, text: &str) -> Result<Handle> {
    let text = text.to_ascii_lowercase();
    if text.parse::<Handle>().is_err() {
        return Err(Error::new(Name::InvalidHandle, "this is no handle"));
    }
    call.context.host.zone().handle(&text).map_err(|error| Error::new(Name::UnsupportedDomain, error.to_string()))
}

/// `com.atproto.server.createAccount`: the operator's, with the administrator's password.
pub async fn create_account(mut call: Call) -> Result {
    let basic =
        call.head.headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"Basic "));
    if !basic {
        let message = "accounts of this server are made by its operator; nobody signs up";
        return Err(Error::new(Name::Forbidden, message));
    }
    call.admin()?;
    let new: New = call.json().await?;
    if new.did.is_some() {
        return Err(Error::new(
            Name::IncompatibleDidDoc,
            "this server gives its accounts their DIDs; none can be brought",
        ));
    }
    let handle = handle(&call, &new.handle)?;
    let password = new.password.ok_or_else(|| Error::new(Name::InvalidPassword, "a password is needed"))?;
    let hash = call.auth()?.passwords.hash(call.party(), &password, call.context.draw_16()).await;
    let hash = hash.map_err(|error| match error.name() {
        Name::InvalidRequest => Error::new(Name::InvalidPassword, error.message().to_owned()),
        _ => error,
    })?;
    let host = &call.context.host;
    let new = NewAccount { handle: Some(handle), password_hash: Some(hash), curve: Curve::K256, activate: true };
    let making = host.clone();
    let id = call::blocking(move || making.create_account(new)).await?.await?;
    let did = host.state(|state| state.accounts.get(&id).map(|account| account.did.to_string()));
    let (account, tokens) = call.context.open_session(&did.unwrap_or_default(), Grant::Full, Authority::Server).await?;
    told_with(&call, &account, &tokens)
}
