//! `/v1/plans`.

use super::{answered, by, change as ordered, internal, present, read, written};
use crate::error::{Code, Error};
use crate::router::App;
use crate::service::Service;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use highwater_control::{Change, Operation, Outcome, Plan, PlanChanges};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    storage_bytes_max: Option<u64>,
    requests_per_second: Option<u64>,
    requests_burst: Option<u64>,
    append_bytes_per_second: Option<u64>,
    replicas: Option<u64>,
}

/// A limit that is absent stays, one that is `null` goes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    #[serde(default, deserialize_with = "present")]
    storage_bytes_max: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    requests_per_second: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    requests_burst: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    append_bytes_per_second: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    replicas: Option<Option<u64>>,
}

/// GET `/v1/plans`.
pub(crate) async fn list<S: Service>(State(app): State<App<S>>) -> Result<Response, Error> {
    let view = app.guard.view()?;
    let plans: Vec<Value> = view.plans().map(|plan| describe(plan)).collect();
    Ok(answered(StatusCode::OK, &json!({ "plans": plans })))
}

/// GET `/v1/plans/{name}`.
pub(crate) async fn one<S: Service>(State(app): State<App<S>>, Path(name): Path<String>) -> Result<Response, Error> {
    let view = app.guard.view()?;
    let plan = view.plan(&name);
    let plan = plan.ok_or_else(|| Error::new(Code::PlanNotFound, format!("there is no plan {name}")))?;
    Ok(answered(StatusCode::OK, &describe(plan)))
}

/// POST `/v1/plans`: makes a plan, or finds one with the same limits.
pub(crate) async fn create<S: Service>(State(app): State<App<S>>, request: Request) -> Result<Response, Error> {
    let (head, body) = request.into_parts();
    let new: New = read(&app, &head, body).await?;
    let set = |limit: Option<u64>| limit.map_or(Change::Keep, Change::Set);
    let limits = PlanChanges {
        storage_bytes_max: set(new.storage_bytes_max),
        requests_per_second: set(new.requests_per_second),
        requests_burst: set(new.requests_burst),
        append_bytes_per_second: set(new.append_bytes_per_second),
        replicas: set(new.replicas),
    };
    let operation = Operation::CreatePlan { number: app.service.draw(), name: new.name, limits };
    settle(&app, operation, by(&head)).await
}

/// PATCH `/v1/plans/{name}`: changes the limits that it names, at once and for every account of the plan.
pub(crate) async fn change<S: Service>(
    State(app): State<App<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Error> {
    let (head, body) = request.into_parts();
    let changes: Changes = read(&app, &head, body).await?;
    let set = |limit: Option<Option<u64>>| match limit {
        None => Change::Keep,
        Some(None) => Change::Clear,
        Some(Some(limit)) => Change::Set(limit),
    };
    let limits = PlanChanges {
        storage_bytes_max: set(changes.storage_bytes_max),
        requests_per_second: set(changes.requests_per_second),
        requests_burst: set(changes.requests_burst),
        append_bytes_per_second: set(changes.append_bytes_per_second),
        replicas: set(changes.replicas),
    };
    settle(&app, Operation::PatchPlan { name, limits }, by(&head)).await
}

/// DELETE `/v1/plans/{name}`: removes a plan that no account has.
pub(crate) async fn remove<S: Service>(
    State(app): State<App<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Error> {
    let (head, _) = request.into_parts();
    let (outcome, durability) = ordered(&app, Operation::DeletePlan { name }).await?;
    let Outcome::PlanDeleted(plan) = outcome else { return Err(internal()) };
    tracing::info!(event = "plan_deleted", plan = plan.name, by = by(&head), "a plan was deleted");
    Ok(written(StatusCode::OK, &describe(&plan), durability))
}

async fn settle<S: Service>(app: &App<S>, operation: Operation, by: String) -> Result<Response, Error> {
    let (Outcome::Plan { plan, created }, durability) = ordered(app, operation).await? else { return Err(internal()) };
    tracing::info!(event = "plan_set", plan = plan.name, created, by, "a plan was set");
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(written(status, &describe(&plan), durability))
}

fn describe(plan: &Plan) -> Value {
    let limits = plan.limits;
    json!({
        "name": plan.name,
        "storage_bytes_max": limits.storage_bytes_max,
        "requests_per_second": limits.requests_per_second,
        "requests_burst": limits.requests_burst,
        "append_bytes_per_second": limits.append_bytes_per_second,
        "replicas": limits.replicas,
        "created_ms": plan.created.0,
    })
}
