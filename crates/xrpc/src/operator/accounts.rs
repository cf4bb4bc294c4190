//! Accounts, as their operator makes, sees and stops them.

use super::{Failure, Operator, Outcome, answer, blocking, read};
use crate::shares::Party;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use highwater_host::{Change, Host, NewAccount};
use highwater_pds::credentials::Grant;
use highwater_pds::{Account, AccountId, Authority, Position, Standing};
use highwater_repo::key::Curve;
use highwater_repo::syntax::Handle;
use serde::Deserialize;
use serde_json::{Value, json};

/// What of a label of a password is drawn from: no two that look alike.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Where an account stands, in a word.
fn state(standing: Standing) -> &'static str {
    match standing {
        Standing { erased: true, .. } => "erased",
        Standing { activated: false, .. } => "provisioned",
        Standing { taken_down: true, .. } => "taken down",
        Standing { suspended: true, .. } => "locked",
        Standing { decommissioned: true, .. } => "decommissioned",
        Standing { deactivated: true, .. } => "deactivated",
        Standing { until_first_write: true, .. } => "active, until its first write untold",
        _ => "active",
    }
}

fn position(position: Option<Position>) -> Value {
    match position {
        None => Value::Null,
        Some(Position::Active) => json!({ "active": true, "status": null }),
        Some(Position::Inactive(status)) => json!({ "active": false, "status": status.as_str() }),
    }
}

/// An account, as its operator sees it.
pub(super) fn describe(account: &Account) -> Value {
    json!({
        "did": account.did.as_str(),
        "handle": account.handle.as_str(),
        "state": state(account.standing),
        "position": position(account.position()),
        "announced": position(account.announced),
        "head": account.head.map(|head| head.commit.to_string()),
        "rev": account.head.map(|head| head.rev.to_string()),
        "created_ms": account.created.0 / 1_000,
    })
}

/// `GET /v1/pds/accounts`
pub(super) async fn list(State(operator): State<Operator>) -> Response {
    let accounts: Vec<Value> = operator.context.host.state(|state| state.accounts.values().map(describe).collect());
    answer(&json!({ "accounts": accounts }))
}

/// Which account a path names: by its DID, its handle, or the first label of its handle, as accounts are made by one, too.
fn find(host: &Host, name: &str) -> Outcome<AccountId> {
    let whole = if name.contains(['.', ':']) { name.to_owned() } else { format!("{name}.{}", host.zone().host()) };
    let found = host.state(|state| state.named(&whole).map(|account| account.id));
    found.ok_or_else(|| Failure::new("ACCOUNT_NOT_FOUND", format!("there is no account {name}; list them")))
}

fn row(host: &Host, id: AccountId) -> Outcome<Value> {
    let row = host.state(|state| state.accounts.get(&id).map(describe));
    row.ok_or_else(|| Failure::new("ACCOUNT_NOT_FOUND", "there is no such account"))
}

/// `GET /v1/pds/accounts/{account}`
pub(super) async fn one(State(operator): State<Operator>, Path(name): Path<String>) -> Outcome {
    let host = &operator.context.host;
    Ok(answer(&row(host, find(host, &name)?)?))
}

/// `POST /v1/pds/accounts/{account}/{what}`
pub(super) async fn change(State(operator): State<Operator>, Path((name, what)): Path<(String, String)>) -> Outcome {
    let host = operator.context.host.clone();
    let change = match what.as_str() {
        "activate" => Change::Activate(host.options().announce),
        "lock" => Change::Lock,
        "lift" => Change::Lift,
        "takedown" => Change::TakeDown,
        "untakedown" => Change::Restore,
        "erase" => Change::Erase,
        "decommission" => Change::Decommission,
        other => return Err(Failure::new("NOT_FOUND", format!("nothing of the name {other} is done to an account"))),
    };
    let id = find(&host, &name)?;
    // A turn is built where the disk may be waited for.
    let building = host.clone();
    let changed = blocking(move || building.change(id, change)).await?.await?;
    let mut row = row(&host, id)?;
    row["changed"] = changed.into();
    tracing::info!(
        event = "account_changed",
        did = row["did"].as_str(),
        what,
        changed,
        "an operator changed an account"
    );
    Ok(answer(&row))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    handle: Option<String>,
    password: Option<String>,
    #[serde(default = "yes")]
    activate: bool,
}

fn yes() -> bool {
    true
}

/// A handle that is given whole, or as its first label.
fn handle(host: &Host, text: &str) -> Outcome<Handle> {
    let text = text.to_ascii_lowercase();
    let whole = if text.contains('.') { text } else { format!("{text}.{}", host.zone().host()) };
    host.zone().handle(&whole).map_err(|error| Failure::new("INVALID_REQUEST", error.to_string()))
}

/// A password of twenty letters and digits, in four groups: 100 random bits.
fn draw_password(host: &Host) -> String {
    let drawn = u128::from(host.random_u64()) << 64 | u128::from(host.random_u64());
    let letter = |place: usize| char::from(LETTERS[(drawn >> (5 * place)) as usize % LETTERS.len()]);
    let groups = (0..4).map(|group| (0..5).map(|place| letter(group * 5 + place)).collect::<String>());
    groups.collect::<Vec<_>>().join("-")
}

/// `POST /v1/pds/accounts`
pub(super) async fn create(State(operator): State<Operator>, body: Body) -> Outcome {
    let New { handle: wanted, password, activate } = read(body).await?;
    let context = &operator.context;
    let host = context.host.clone();
    let wanted = wanted.map(|text| handle(&host, &text)).transpose()?;
    let password = password.unwrap_or_else(|| draw_password(&host));
    let hash = context.auth()?.passwords.hash(Party::Operator, &password, context.draw_16()).await?;
    let new = NewAccount { handle: wanted, password_hash: Some(hash), curve: Curve::K256, activate };
    let making = host.clone();
    let id = blocking(move || making.create_account(new)).await?.await?;
    let row = row(&host, id)?;
    let did = row["did"].as_str().unwrap_or_default();
    // An account that has yet to begin has no sessions.
    let tokens = if activate { Some(context.open_session(did, Grant::Full, Authority::Server).await?.1) } else { None };
    let (access, refresh) = tokens.map(|tokens| (tokens.access, tokens.refresh)).unzip();
    tracing::info!(event = "account_created", did = row["did"].as_str(), activate, "an operator made an account");
    Ok(answer(&json!({
        "did": row["did"],
        "handle": row["handle"],
        "service": context.options.public_url,
        "password": password,
        "accessJwt": access,
        "refreshJwt": refresh,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_of_what_was_done_is_the_word_for_where_an_account_stands() {
        let active = Standing { activated: true, ..Standing::default() };
        assert_eq!(state(Standing::default()), "provisioned");
        assert_eq!(state(active), "active");
        assert_eq!(state(Standing { suspended: true, ..active }), "locked");
        assert_eq!(state(Standing { suspended: true, taken_down: true, ..active }), "taken down");
        assert_eq!(state(Standing { erased: true, taken_down: true, ..active }), "erased");
        assert_eq!(position(active.position())["active"], true);
        let locked = Standing { suspended: true, ..active };
        assert_eq!(position(locked.position()), json!({ "active": false, "status": "suspended" }));
        assert_eq!(position(None), Value::Null);
    }
}
