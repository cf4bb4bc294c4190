//! Passwords for programs.

use crate::answer;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::passwords::{app_password, keep_app_password};
use highwater_pds::credentials::{APP_PASSWORD_NAME_BYTES_MAX, APP_PASSWORDS_MAX, Change};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct New {
    name: String,
    #[serde(default)]
    privileged: bool,
}

/// `com.atproto.server.createAppPassword`: the answer is the only place where the password ever stands.
pub async fn create_app_password(mut call: Call) -> Result {
    let access = call.owner()?;
    let New { name, privileged } = call.json().await?;
    if !(1..=APP_PASSWORD_NAME_BYTES_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "the name of an app password has 1 to {APP_PASSWORD_NAME_BYTES_MAX} bytes"
        )));
    }
    let row = call.row(&access)?;
    row.may_act()?;
    let taken = || Error::invalid(format!("there is an app password named {name}"));
    if row.credentials.app_passwords.contains_key(&name) {
        return Err(taken());
    }
    if row.credentials.app_passwords.len() >= APP_PASSWORDS_MAX {
        return Err(Error::invalid(format!(
            "an account has {APP_PASSWORDS_MAX} app passwords at the most: revoke one"
        )));
    }
    let password = app_password([call.context.draw(), call.context.draw()]);
    let kept = keep_app_password(&password, call.context.draw_16(), privileged, call.context.host.now());
    let change = Change::AppPasswordCreated(name.clone(), kept.clone());
    call.context.keep(access.asker(), [change]).await?;
    // Somebody else may have taken the name meanwhile.
    if call.row(&access)?.credentials.app_passwords.get(&name) != Some(&kept) {
        return Err(taken());
    }
    let created = kept.created.to_string();
    answer::secret(&json!({ "name": name, "password": password, "createdAt": created, "privileged": privileged }))
}

/// `com.atproto.server.listAppPasswords`
pub async fn list_app_passwords(call: Call) -> Result {
    let row = call.row(&call.owner()?)?;
    let told = row.credentials.app_passwords.iter().map(
        |(name, kept)| json!({ "name": name, "createdAt": kept.created.to_string(), "privileged": kept.privileged }),
    );
    answer::json(&json!({ "passwords": told.collect::<Vec<_>>() }))
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// `com.atproto.server.revokeAppPassword`: sessions that were opened with it end. One that is not there is no error.
pub async fn revoke_app_password(mut call: Call) -> Result {
    let access = call.owner()?;
    let Named { name } = call.json().await?;
    let there = call.row(&access)?.credentials.app_passwords.contains_key(&name);
    call.context.keep(access.asker(), there.then_some(Change::AppPasswordRevoked(name))).await?;
    Ok(super::nothing())
}
