//! Sessions: opened, refreshed, looked at, ended.

use crate::answer;
use crate::call::Call;
use crate::error::{Error, Name, Result};
use crate::limits::Whom;
use crate::names;
use crate::passwords::{fits_app_password, is_app_password};
use crate::sessions::Tokens;
use highwater_pds::credentials::{AppPassword, Change, Grant, Refresh};
use highwater_pds::{Account, AccountId, Asker, Authority};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// What a session's answers have in common: the account's names and where it stands.
fn told(call: &Call, account: &Account) -> Json {
    let mut told = json!({
        "did": account.did.as_str(),
        "handle": account.handle.as_str(),
        "didDoc": names::document(account, &call.context.options),
        "active": !account.standing.deactivated,
    });
    if account.standing.deactivated {
        told["status"] = "deactivated".into();
    }
    told
}

pub(super) fn told_with(call: &Call, account: &Account, tokens: &Tokens) -> Result {
    let mut told = told(call, account);
    told["accessJwt"] = tokens.access.as_str().into();
    told["refreshJwt"] = tokens.refresh.as_str().into();
    answer::secret(&told)
}

#[derive(Deserialize)]
struct Login {
    identifier: String,
    password: String,
}

/// What is compared at a login.
#[derive(Default)]
struct Kept {
    id: Option<AccountId>,
    did: String,
    hash: Option<String>,
    app_passwords: BTreeMap<String, AppPassword>,
}

fn kept(call: &Call, identifier: &str) -> Kept {
    let kept = call.context.host.state(|state| {
        let account = state.named(identifier.trim_start_matches('@'))?;
        let credentials = &account.credentials;
        let (hash, app_passwords) = (credentials.password.clone(), credentials.app_passwords.clone());
        Some(Kept { id: Some(account.id), did: account.did.to_string(), hash, app_passwords })
    });
    kept.unwrap_or_default()
}

/// `com.atproto.server.createSession`
///
/// Unknown names and wrong passwords get the same answer after the same work. That an account is locked is told only to whoever
/// knows its password.
pub async fn create_session(mut call: Call) -> Result {
    let login: Login = call.json().await?;
    let kept = kept(&call, &login.identifier);
    let whom = Whom::named(&login.identifier, kept.id);
    call.context.limits.session(call.peer, whom, call.context.clock.wall())?;
    let looked_like = is_app_password(&login.password);
    let app_password = kept.app_passwords.iter().filter(|_| looked_like);
    let (grant, authority) = match app_password.into_iter().find(|(_, kept)| fits_app_password(&login.password, kept)) {
        Some((name, kept)) => (
            Grant::AppPassword { name: name.clone(), privileged: kept.privileged },
            Authority::AppPassword(name.clone(), kept.clone()),
        ),
        None => {
            let passwords = &call.auth()?.passwords;
            let fits = passwords.verify(call.party(), &login.password, kept.hash.as_deref()).await?;
            let hash = kept.hash.filter(|_| fits);
            let wrong = || Error::new(Name::AuthenticationRequired, "the name or the password is wrong");
            (Grant::Full, Authority::Password(hash.ok_or_else(wrong)?))
        }
    };
    let (account, tokens) = call.context.open_session(&kept.did, grant, authority).await?;
    told_with(&call, &account, &tokens)
}

/// `com.atproto.server.refreshSession`
///
/// A token that was used gives the same next one for two hours, so that a lost answer logs nobody out.
pub async fn refresh_session(call: Call) -> Result {
    let (auth, host) = (call.auth()?, &call.context.host);
    let claims = auth.refresh_claims(&call.context, &call.head)?;
    let over =
        || Error::new(Name::ExpiredToken, "the session has ended, or the token was replaced long ago: log in again");
    let row = || host.state(|state| state.by_did(&claims.subject).cloned()).ok_or_else(over);
    let mut account = row()?;
    account.may_have_sessions()?;
    let now = host.now();
    let (id, from) = (claims.session, claims.generation);
    let issued = match account.credentials.refresh(id, from, now).map_err(|_| over())? {
        Refresh::Gave(issued) => issued,
        Refresh::Rotates => {
            let change = Change::SessionRotated { id, from, at: now };
            let authority = Authority::Session(id);
            call.context.keep(Asker { account: account.id, authority }, [change]).await?;
            // Somebody else may have rotated first, or ended the session since.
            account = row()?;
            let session = account.credentials.sessions.get(&id).ok_or_else(over)?;
            session.after(from).ok_or_else(over)?
        }
    };
    let tokens = auth.tokens(&call.context, &account, id, issued)?;
    told_with(&call, &account, &tokens)
}

/// `com.atproto.server.getSession`
pub async fn get_session(call: Call) -> Result {
    let access = call.access()?;
    answer::json(&told(&call, &call.row(&access)?))
}

/// `com.atproto.server.deleteSession`, with the refresh token. What ended already has ended.
pub async fn delete_session(call: Call) -> Result {
    let claims = call.auth()?.refresh_claims(&call.context, &call.head)?;
    let host = &call.context.host;
    let open = host.state(|state| {
        let account = state.by_did(&claims.subject)?;
        account.credentials.sessions.contains_key(&claims.session).then_some(account.id)
    });
    if let Some(id) = open {
        call.context.keep(id, [Change::SessionClosed(claims.session)]).await?;
    }
    Ok(super::nothing())
}
