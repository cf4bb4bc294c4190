//! What an account does with itself, and how the operator makes one.

use super::session::told_with;
use crate::answer;
use crate::call::{self, Call};
use crate::error::{Error, Name, Result};
use crate::limits::Points;
use axum::http::header;
use highwater_host::read::Counts;
use highwater_host::{NewAccount, ReadError};
use highwater_pds::Authority;
use highwater_pds::credentials::Grant;
use highwater_pds::lifecycle::Change;
use highwater_repo::key::Curve;
use highwater_repo::syntax::Handle;
use serde::Deserialize;
use serde_json::json;

/// `com.atproto.server.activateAccount`
pub async fn activate_account(call: Call) -> Result {
    stand(call, Change::Reactivate).await
}

/// `com.atproto.server.deactivateAccount`
pub async fn deactivate_account(call: Call) -> Result {
    stand(call, Change::Deactivate).await
}

/// What relays hear of one host is limited by the hour, so that one account that changes again and again would silence the others.
async fn stand(call: Call, change: Change) -> Result {
    let access = call.owner()?;
    call.context.limits.write(access.account, [Points::Stand], call.context.clock.wall())?;
    call.context.change(access.asker(), change).await?;
    Ok(super::nothing())
}

/// `com.atproto.server.checkAccountStatus`, which other servers' tools for moving accounts look at.
pub async fn check_account_status(call: Call) -> Result {
    let row = call.row(&call.access()?)?;
    let counting = (call.context.host.for_owner(), row.id);
    let counting = call::reading(&call.context, move || {
        let (host, id) = counting;
        Ok((host.counts(id), host.missing_blobs(id, None, usize::MAX)))
    });
    let (counts, missing) = counting.await?;
    let counts = match counts {
        // It has no repository yet.
        Err(ReadError::Account(_)) => Counts::default(),
        counts => counts?,
    };
    let (expected, preferences) = call.context.host.state(|state| {
        let blobs = state.blobs.get(&row.id);
        (blobs.map_or(0, |blobs| blobs.list(None, None).count()), 0)
    });
    answer::json(&json!({
        "activated": row.standing.may_write(),
        "validDid": true,
        "repoCommit": row.head.map(|head| head.commit.to_string()).unwrap_or_default(),
        "repoRev": row.head.map(|head| head.rev.to_string()).unwrap_or_default(),
        "repoBlocks": counts.blocks,
        "indexedRecords": counts.records,
        "privateStateValues": preferences,
        "expectedBlobs": expected,
        "importedBlobs": expected.saturating_sub(missing?.len()),
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
