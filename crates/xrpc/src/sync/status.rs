//! Where accounts stand, exactly as the stream tells it.

use crate::answer;
use crate::call::Call;
use crate::error::{Error, Name, Result};
use highwater_pds::{Account, AccountId, Position};
use serde_json::{Value as Json, json};
use std::ops::Bound;

/// Accounts of a page at the most, and if nothing is said.
const LIMIT_MAX: u64 = 1_000;
const LIMIT: u64 = 500;

/// An account by its DID, in whatever position.
pub(super) fn account(call: &Call) -> Result<Account> {
    let did = call.query.required("did")?;
    if !highwater_repo::syntax::is_did(did) {
        return Err(Error::invalid("the parameter did is no DID"));
    }
    let row = call.context.host.state(|state| state.by_did(did).cloned());
    row.ok_or_else(|| Error::new(Name::RepoNotFound, "there is no such repository here"))
}

/// `com.atproto.sync.getLatestCommit`
pub async fn get_latest_commit(call: Call) -> Result {
    let account = account(&call)?;
    call.reads(&account)?;
    let head = account.head.ok_or_else(|| Error::new(Name::RepoNotFound, "the repository has no commit yet"))?;
    answer::json(&json!({ "cid": head.commit.to_string(), "rev": head.rev.to_string() }))
}

/// `com.atproto.sync.getHead`, deprecated.
pub async fn get_head(call: Call) -> Result {
    let account = account(&call).map_err(|error| match error.name() {
        Name::RepoNotFound => Error::new(Name::HeadNotFound, error.message().to_owned()),
        _ => error,
    })?;
    call.reads(&account)?;
    let head = account.head.ok_or_else(|| Error::new(Name::HeadNotFound, "the repository has no commit yet"))?;
    answer::json(&json!({ "root": head.commit.to_string() }))
}

/// Adds `active` and, if it is not, `status`.
fn stand(mut told: Json, position: Position) -> Json {
    told["active"] = (position == Position::Active).into();
    if let Position::Inactive(status) = position {
        told["status"] = status.as_str().into();
    }
    told
}

/// `com.atproto.sync.getRepoStatus`
pub async fn get_repo_status(call: Call) -> Result {
    let account = account(&call)?;
    let position = account.position();
    let position = position.ok_or_else(|| Error::new(Name::RepoNotFound, "the account is not active yet"))?;
    let mut told = json!({ "did": account.did.as_str() });
    if let (Position::Active, Some(head)) = (position, account.head) {
        told["rev"] = head.rev.to_string().into();
    }
    answer::json(&stand(told, position))
}

/// `com.atproto.sync.listRepos`
///
/// Accounts come in the order in which they were made, so that a new one never changes a page that was read.
pub async fn list_repos(call: Call) -> Result {
    let limit = call.query.integer("limit", 1..=LIMIT_MAX, LIMIT)? as usize;
    let behind = match call.query.optional("cursor")?.filter(|cursor| !cursor.is_empty()) {
        None => 0,
        Some(_) => call.query.integer("cursor", 0..=u64::MAX, 0)?,
    };
    let (rows, last) = call.context.host.state(|state| {
        let behind = (Bound::Excluded(AccountId(behind)), Bound::Unbounded);
        let listed = state.accounts.range(behind).filter_map(|(id, account)| {
            let (position, head) = (account.position()?, account.head?);
            let row =
                json!({ "did": account.did.as_str(), "head": head.commit.to_string(), "rev": head.rev.to_string() });
            Some((*id, stand(row, position)))
        });
        let (ids, rows): (Vec<_>, Vec<_>) = listed.take(limit).unzip();
        (rows, ids.last().copied())
    });
    let mut told = json!({});
    if let Some(last) = last.filter(|_| rows.len() == limit) {
        told["cursor"] = last.0.to_string().into();
    }
    told["repos"] = rows.into();
    answer::json(&told)
}
