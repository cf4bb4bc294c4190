//! `/v1/accounts`.

use super::{answered, by, change as ordered, internal, read, written};
use crate::error::{Code, Error};
use crate::router::App;
use crate::service::Service;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use highwater_control::{Account, CreateAccount, Operation, Outcome, PatchAccount};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    plan: String,
    #[serde(default)]
    buckets: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    plan: Option<String>,
    buckets: Option<Vec<String>>,
    revoked: Option<bool>,
}

/// GET `/v1/accounts`.
pub(crate) async fn list<S: Service>(State(app): State<App<S>>) -> Result<Response, Error> {
    let view = app.guard.view()?;
    let accounts: Vec<Value> = view.accounts().map(|account| describe(&app, account)).collect();
    Ok(answered(StatusCode::OK, &json!({ "accounts": accounts })))
}

/// GET `/v1/accounts/{name}`.
pub(crate) async fn one<S: Service>(State(app): State<App<S>>, Path(name): Path<String>) -> Result<Response, Error> {
    let view = app.guard.view()?;
    let account = view.account(&name);
    let account = account.ok_or_else(|| Error::new(Code::AccountNotFound, format!("there is no account {name}")))?;
    Ok(answered(StatusCode::OK, &describe(&app, account)))
}

/// POST `/v1/accounts`: makes an account, or finds one with the same plan and buckets.
pub(crate) async fn create<S: Service>(State(app): State<App<S>>, request: Request) -> Result<Response, Error> {
    let (head, body) = request.into_parts();
    let New { name, plan, buckets } = read(&app, &head, body).await?;
    let operation = Operation::CreateAccount(CreateAccount { number: app.service.draw(), name, plan, buckets });
    settle(&app, operation, by(&head)).await
}

/// PATCH `/v1/accounts/{name}`: changes what it names, and nothing else.
pub(crate) async fn change<S: Service>(
    State(app): State<App<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Error> {
    let (head, body) = request.into_parts();
    let Changes { plan, buckets, revoked } = read(&app, &head, body).await?;
    settle(&app, Operation::PatchAccount(PatchAccount { name, plan, buckets, revoked }), by(&head)).await
}

/// DELETE `/v1/accounts/{name}`: removes an account that nothing uses any more.
pub(crate) async fn remove<S: Service>(
    State(app): State<App<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Error> {
    let (head, _) = request.into_parts();
    let (outcome, durability) = ordered(&app, Operation::DeleteAccount { name }).await?;
    let Outcome::AccountDeleted(account) = outcome else { return Err(internal()) };
    tracing::info!(event = "account_deleted", account = account.name, by = by(&head), "an account was deleted");
    let mut was = describe(&app, &account);
    was["state"] = "deleted".into();
    Ok(written(StatusCode::OK, &was, durability))
}

async fn settle<S: Service>(app: &App<S>, operation: Operation, by: String) -> Result<Response, Error> {
    let (Outcome::Account { account, created }, durability) = ordered(app, operation).await? else {
        return Err(internal());
    };
    let revoked = account.revoked.is_some();
    tracing::info!(
        event = "account_set",
        account = account.name,
        plan = account.plan,
        revoked,
        created,
        by,
        "an account was set"
    );
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(written(status, &describe(app, &account), durability))
}

fn describe<S: Service>(app: &App<S>, account: &Account) -> Value {
    json!({
        "name": account.name,
        "plan": account.plan,
        "buckets": account.buckets,
        "state": if account.revoked.is_some() { "revoked" } else { "active" },
        "stored_bytes": app.service.stored_bytes(&account.buckets),
        "created_ms": account.created.0,
        "revoked_ms": account.revoked.map(|at| at.0),
    })
}
