//! `com.atproto.admin`: what tools of the protocol do with accounts, with the administrator's password.

use crate::answer;
use crate::call::Call;
use crate::error::{Error, Name, Result};
use highwater_pds::lifecycle::Change;
use highwater_pds::{Account, credentials};
use serde::Deserialize;
use serde_json::{Value as Json, json};

/// The type of a subject that is an account.
const REPO: &str = "com.atproto.admin.defs#repoRef";
/// Accounts of one question at the most: as many as a URL of a usual length names.
const INFOS_MAX: usize = 100;

/// An account by its DID, erased ones included.
fn account(call: &Call, did: &str) -> Result<Account> {
    let row = call.context.host.state(|state| state.by_did(did).cloned());
    row.ok_or_else(|| Error::new(Name::RepoNotFound, "there is no such account here"))
}

fn info(account: &Account) -> Json {
    json!({
        "did": account.did.as_str(),
        "handle": account.handle.as_str(),
        "indexedAt": account.created.to_string(),
        "invitesDisabled": true,
    })
}

/// `com.atproto.admin.getAccountInfo`
pub async fn get_account_info(call: Call) -> Result {
    call.admin()?;
    answer::json(&info(&account(&call, call.query.required("did")?)?))
}

/// `com.atproto.admin.getAccountInfos`: of those that are here.
pub async fn get_account_infos(call: Call) -> Result {
    call.admin()?;
    let dids: Vec<&str> = call.query.all("dids").collect();
    if dids.is_empty() || dids.len() > INFOS_MAX {
        return Err(Error::invalid(format!("the parameter dids stands 1 to {INFOS_MAX} times")));
    }
    let infos =
        call.context.host.state(|state| dids.iter().filter_map(|did| state.by_did(did)).map(info).collect::<Vec<_>>());
    answer::json(&json!({ "infos": infos }))
}

fn status_of(account: &Account) -> Json {
    json!({
        "subject": { "$type": REPO, "did": account.did.as_str() },
        "takedown": { "applied": account.standing.taken_down },
        "deactivated": { "applied": account.standing.deactivated },
    })
}

/// `com.atproto.admin.getSubjectStatus`, of accounts.
pub async fn get_subject_status(call: Call) -> Result {
    call.admin()?;
    let did = call
        .query
        .optional("did")?
        .ok_or_else(|| Error::invalid("this server knows the status of accounts: name a did"))?;
    answer::json(&status_of(&account(&call, did)?))
}

#[derive(Deserialize)]
struct Subject {
    #[serde(rename = "$type")]
    kind: Option<String>,
    did: Option<String>,
}

#[derive(Deserialize)]
struct Applied {
    applied: bool,
}

#[derive(Deserialize)]
struct Update {
    subject: Subject,
    takedown: Option<Applied>,
    deactivated: Option<Applied>,
}

/// `com.atproto.admin.updateSubjectStatus`: takes an account down, or undoes that. Records and blobs are not taken down by
/// themselves.
pub async fn update_subject_status(mut call: Call) -> Result {
    call.admin()?;
    let Update { subject, takedown, deactivated } = call.json().await?;
    let did = subject.did.filter(|_| subject.kind.as_deref().is_none_or(|kind| kind == REPO));
    let did =
        did.ok_or_else(|| Error::invalid("only accounts are taken down: a subject of the type repoRef with a did"))?;
    let id = account(&call, &did)?.id;
    let takedown = takedown.map(|takedown| if takedown.applied { Change::TakeDown } else { Change::Restore });
    let deactivated = deactivated.map(|change| if change.applied { Change::Deactivate } else { Change::Reactivate });
    for change in [takedown, deactivated].into_iter().flatten() {
        call.context.change(id, change).await?;
    }
    answer::json(&status_of(&account(&call, &did)?))
}

#[derive(Deserialize)]
struct Named {
    did: String,
}

/// `com.atproto.admin.deleteAccount`: erases it, for good.
pub async fn delete_account(mut call: Call) -> Result {
    call.admin()?;
    let Named { did } = call.json().await?;
    let id = account(&call, &did)?.id;
    call.context.change(id, Change::Erase).await?;
    Ok(crate::server::nothing())
}

#[derive(Deserialize)]
struct NewPassword {
    did: String,
    password: String,
}

/// `com.atproto.admin.updateAccountPassword`: sessions that are open end.
pub async fn update_account_password(mut call: Call) -> Result {
    call.admin()?;
    let NewPassword { did, password } = call.json().await?;
    let id = account(&call, &did)?.id;
    let hash = call.auth()?.passwords.hash(call.party(), &password, call.context.draw_16()).await?;
    let change = credentials::Change::Password(hash);
    call.context.keep(id, [change]).await?;
    Ok(crate::server::nothing())
}
