//! The operator's own methods, which `highwater pds` calls.

use super::view;
use crate::answer;
use crate::call::{self, Call};
use crate::error::{Error, Name, Result};
use crate::passwords::app_password;
use crate::server::handle;
use highwater_host::NewAccount;
use highwater_pds::lifecycle::Change;
use highwater_pds::{AccountId, Position};
use highwater_repo::key::Curve;
use serde::Deserialize;
use serde_json::json;
use std::path::PathBuf;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct New {
    handle: Option<String>,
    password: Option<String>,
    #[serde(default)]
    curve: CurveName,
    #[serde(default = "yes")]
    activate: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum CurveName {
    #[default]
    K256,
    P256,
}

/// `highwater.pds.createAccount`: draws what is not given. The answer is the only place where a drawn password ever stands.
pub async fn create_account(mut call: Call) -> Result {
    call.admin()?;
    let new: New = call.json().await?;
    let handle = new.handle.as_deref().map(|text| handle(&call, text)).transpose()?;
    let drawn = new.password.is_none();
    let password = new.password.unwrap_or_else(|| {
        let draw = || app_password([call.context.draw(), call.context.draw()]);
        format!("{}-{}", draw(), draw())
    });
    let hash = call.auth()?.passwords.hash(&password, call.context.draw_16()).await?;
    let curve = match new.curve {
        CurveName::K256 => Curve::K256,
        CurveName::P256 => Curve::P256,
    };
    let host = &call.context.host;
    let new = NewAccount { handle, password_hash: Some(hash), curve, activate: new.activate };
    let id = host.create_account(new).await?;
    let mut told = told(&call, id)?;
    if drawn {
        told["password"] = password.into();
    }
    answer::json(&told)
}

fn told(call: &Call, id: AccountId) -> Result<serde_json::Value> {
    let told = call.context.host.state(|state| state.accounts.get(&id).map(|row| view::account(row, state)));
    told.ok_or_else(|| Error::new(Name::RepoNotFound, "there is no such account here"))
}

/// `highwater.pds.getAccount`, by DID or handle.
pub async fn get_account(call: Call) -> Result {
    call.admin()?;
    let id = find(&call, call.query.required("account")?)?;
    answer::json(&told(&call, id)?)
}

/// An account by its DID or its handle, erased ones included.
fn find(call: &Call, name: &str) -> Result<AccountId> {
    let found = call.context.host.state(|state| state.by_did(name).or_else(|| state.by_handle(name)).map(|row| row.id));
    found.ok_or_else(|| Error::new(Name::RepoNotFound, format!("there is no account {name} here")))
}

/// `highwater.pds.listAccounts`
pub async fn list_accounts(call: Call) -> Result {
    call.admin()?;
    let limit = call.query.integer("limit", 1..=1_000, 500)? as usize;
    let after = call.query.integer("cursor", 0..=u64::MAX, 0)?;
    answer::json(&call.context.host.state(|state| view::accounts(state, after, limit)))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum ChangeName {
    Activate,
    Lock,
    Lift,
    TakeDown,
    Restore,
    Deactivate,
    Reactivate,
    Erase,
    Decommission,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changed {
    account: String,
    change: ChangeName,
}

/// `highwater.pds.changeAccount`: `changed` says whether it stood elsewhere before.
pub async fn change_account(mut call: Call) -> Result {
    call.admin()?;
    let Changed { account, change } = call.json().await?;
    let id = find(&call, &account)?;
    let host = &call.context.host;
    let change = match change {
        ChangeName::Activate => Change::Activate(host.options().announce),
        ChangeName::Lock => Change::Lock,
        ChangeName::Lift => Change::Lift,
        ChangeName::TakeDown => Change::TakeDown,
        ChangeName::Restore => Change::Restore,
        ChangeName::Deactivate => Change::Deactivate,
        ChangeName::Reactivate => Change::Reactivate,
        ChangeName::Erase => Change::Erase,
        ChangeName::Decommission => Change::Decommission,
    };
    let changed = host.change(id, change).await?;
    let mut told = told(&call, id)?;
    told["changed"] = changed.into();
    answer::json(&told)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Announce {
    /// One account; all active ones without it.
    account: Option<String>,
    /// Only says how many frames it would be.
    #[serde(default)]
    dry_run: bool,
}

/// `highwater.pds.announce`: tells relays of active accounts once more, each in two frames. Nothing is signed.
pub async fn announce(mut call: Call) -> Result {
    call.admin()?;
    let Announce { account, dry_run } = call.json().await?;
    let one = account.map(|account| find(&call, &account)).transpose()?;
    let host = call.context.host.clone();
    let active: Vec<AccountId> = host.state(|state| {
        let rows = state.by_did_order().filter(|row| row.position() == Some(Position::Active) && row.head.is_some());
        rows.map(|row| row.id).filter(|id| one.is_none_or(|one| one == *id)).collect()
    });
    let accounts = active.len();
    if dry_run {
        return answer::json(&json!({ "accounts": accounts, "frames": accounts * 2, "sent": false }));
    }
    let told = call::blocking(move || {
        // All are handed over before one is waited for, so that they share syncs; an account that was locked meanwhile is left out.
        let waiting: Vec<_> = active.into_iter().map(|id| host.resync(id)).collect();
        waiting.into_iter().map(|waiting| u64::from(waiting.wait().is_ok())).sum::<u64>()
    });
    let told = told.await?;
    answer::json(&json!({ "accounts": told, "frames": told * 2, "sent": true }))
}

/// `highwater.pds.status`
pub async fn status(call: Call) -> Result {
    call.admin()?;
    let host = call.context.host.clone();
    let status = call::blocking(move || host.status()).await?;
    answer::json(&view::server(&status, call.context.subscribers()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Backup {
    directory: PathBuf,
}

/// `highwater.pds.backup`: copies everything into an empty directory of the server's machine, while it runs.
pub async fn backup(mut call: Call) -> Result {
    call.admin()?;
    let Backup { directory } = call.json().await?;
    if !directory.is_absolute() {
        return Err(Error::invalid("the directory is an absolute path on the server's machine"));
    }
    let host = call.context.host.clone();
    let to = directory.clone();
    let made = call::blocking(move || host.backup(&to)).await?;
    let made = made.map_err(|error| Error::new(Name::InternalServerError, error.to_string()))?;
    answer::json(&json!({ "directory": directory, "record": made.applied, "files": made.files, "bytes": made.bytes }))
}
