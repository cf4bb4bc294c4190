//! Health, readiness, metrics and status.

use crate::error::{Code, Error};
use crate::front::Arrival;
use crate::metrics::{self, header_lines, line, number};
use crate::mount::{Number, Told};
use crate::router::App;
use crate::service::Service;
use crate::tls::Tls;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use highwater_base::Millis;
use highwater_node::{GroupState, Status};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `/healthz`: the process answers.
pub(crate) async fn health() -> Response {
    ([(header::CACHE_CONTROL, "no-store")], "ok\n").into_response()
}

/// `/__ursula/live`: something answers here; nothing of the node is looked at.
pub(crate) async fn live() -> Response {
    (StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "no-store")]).into_response()
}

/// `/readyz`: the node serves, or why it does not.
pub(crate) async fn ready<S: Service>(State(app): State<App<S>>, request: Request) -> Response {
    let arrival = Arrival::of(request.extensions());
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    match ask(&app).await {
        Ok(status) if app.service.ready() && serves(&status) => match beside(&app, &arrival) {
            Ok(said) => (no_store, said).into_response(),
            Err(said) => (StatusCode::SERVICE_UNAVAILABLE, no_store, said).into_response(),
        },
        Ok(status) => (StatusCode::SERVICE_UNAVAILABLE, no_store, format!("{}\n", why_not(&status))).into_response(),
        Err(error) => error.into_response(),
    }
}

/// What a node that serves says of what lives beside it. A listener that has nothing else to offer is not ready without it;
/// for the others streams come first, and the sentence is for people.
fn beside<S>(app: &App<S>, arrival: &Arrival) -> Result<String, String> {
    let Some(Err(why)) = app.mounted.as_deref().map(|mounted| &mounted.routers) else {
        return Ok("ready\n".to_owned());
    };
    let services = arrival.front.services;
    if services.xrpc && !services.streams && !services.admin {
        return Err(format!("{why}\n"));
    }
    Ok(format!("ready; the accounts of the AT Protocol are not served: {why}\n"))
}

/// Whether any stream can be served: a node goes on beside damaged groups, and not with nothing else.
fn serves(status: &Status) -> bool {
    status.failed.is_none() && status.groups.iter().any(|group| group.state == GroupState::Serving)
}

/// Asks the node how it is; it may take a moment, so not on a thread that serves others.
async fn ask<S: Service>(app: &App<S>) -> Result<Status, Error> {
    let service = app.service.clone();
    let asked = tokio::task::spawn_blocking(move || service.status()).await;
    asked.map_err(|_| Error::new(Code::Internal, "the node's state could not be asked"))
}

fn why_not(status: &Status) -> String {
    if let Some(failure) = &status.failed {
        return format!("stopped: {failure}");
    }
    let faults = status.groups.iter().filter_map(|group| match &group.state {
        GroupState::Serving => None,
        GroupState::Starting => Some(format!("group {} is starting", group.id)),
        GroupState::HistoryPending => Some(format!("group {} records the history of a restore", group.id)),
        GroupState::Damaged(reason) => Some(format!("group {} is damaged: {reason}", group.id)),
        GroupState::Stopped(reason) => Some(format!("group {} has stopped: {reason}", group.id)),
    });
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() { "starting".to_owned() } else { faults.join("; ") }
}

/// `/v1/admin/status`: the node, its groups and its log, as JSON.
pub(crate) async fn status<S: Service>(State(app): State<App<S>>) -> Result<Response, Error> {
    let now = app.service.wall();
    let status = json!({
        "node": ask(&app).await?,
        "pds": told(&app, |told| told.status()).await?,
        "http": {
            "mode": if app.guard.view()?.is_keyed() { "keyed" } else { "open" },
            "request_bytes_max": app.options.request_bytes_max,
            "certificates": app.certificates.iter().map(|tls| certificate(tls, now)).collect::<Vec<_>>(),
        },
    });
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(status)).into_response())
}

/// Asks what lives beside the node, if anything does; it may take a moment, so not on a thread that serves others.
async fn told<S, T: Send + 'static>(
    app: &App<S>,
    ask: impl FnOnce(&dyn Told) -> T + Send + 'static,
) -> Result<Option<T>, Error> {
    let Some(mounted) = app.mounted.clone() else { return Ok(None) };
    let asked = tokio::task::spawn_blocking(move || ask(&*mounted.told)).await;
    asked.map(Some).map_err(|_| Error::new(Code::Internal, "the state of the accounts could not be asked"))
}

/// A certificate in use, for the status.
fn certificate(tls: &Tls, now: Millis) -> Value {
    let validity = tls.validity();
    json!({
        "file": tls.certificate().display().to_string(),
        "state": validity.map(|validity| validity.at(now).name()),
        "from_ms": validity.map(|validity| validity.from.0),
        "until_ms": validity.map(|validity| validity.until.0),
    })
}

/// The ends of the certificates in use; two listeners may share a file.
fn render_certificates(certificates: &[Tls], out: &mut String) {
    let mut ends = BTreeMap::new();
    for tls in certificates {
        let Some(validity) = tls.validity() else { continue };
        let file = tls.certificate().display().to_string();
        ends.insert(file.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"), validity.until.0 / 1_000);
    }
    if !ends.is_empty() {
        let help = "When the certificate in use ends, since the Unix epoch.";
        header_lines(out, "highwater_tls_certificate_expires_seconds", "gauge", help);
    }
    for (file, end) in ends {
        line(out, &format!("highwater_tls_certificate_expires_seconds{{file=\"{file}\"}} {end}"));
    }
}

/// `/metrics`: OpenMetrics text.
pub(crate) async fn metrics<S: Service>(State(app): State<App<S>>) -> Result<Response, Error> {
    let status = ask(&app).await?;
    let mut out = String::new();
    app.counts.render(&mut out);
    metrics::render_traffic(&app.traffic, &mut out);
    let (name, help) = ("highwater_event_readers", "Readers whose answers go on as events.");
    number(&mut out, name, "gauge", help, app.relays.readers());
    for (name, kind, help, value) in numbers(&status) {
        number(&mut out, name, kind, help, value);
    }
    render_certificates(&app.certificates, &mut out);
    crate::storage::render(&status, &mut out);
    for Number { name, kind, help, value } in told(&app, |told| told.numbers()).await?.unwrap_or_default() {
        number(&mut out, name, kind, help, value);
    }
    line(&mut out, "# EOF");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], out).into_response())
}

fn numbers(status: &Status) -> [(&'static str, &'static str, &'static str, u64); 16] {
    let groups = |of: fn(&highwater_node::GroupStatus) -> u64| status.groups.iter().map(of).sum::<u64>();
    let serving = |group: &highwater_node::GroupStatus| u64::from(group.state == GroupState::Serving);
    [
        ("highwater_ready", "gauge", "Whether the node serves.", u64::from(status.ready)),
        ("highwater_uptime_seconds", "gauge", "Seconds since the node was opened.", status.uptime_ms / 1_000),
        ("highwater_groups", "gauge", "Raft groups of the node.", status.groups.len() as u64),
        ("highwater_groups_serving", "gauge", "Raft groups that serve.", status.groups.iter().map(serving).sum()),
        ("highwater_streams", "gauge", "Streams in all groups.", groups(|group| group.streams)),
        ("highwater_store_bytes", "gauge", "Bytes of data files.", groups(|group| group.store_bytes)),
        ("highwater_wal_bytes", "gauge", "Bytes of the log's segments.", status.wal_bytes),
        ("highwater_wal_syncs", "counter", "Syncs of the log.", status.wal_syncs),
        ("highwater_wal_batches", "counter", "Batches written to the log.", status.wal_batches),
        ("highwater_ingress_bytes", "gauge", "Bytes of request bodies in flight.", status.ingress_bytes),
        (
            "highwater_uncommitted_bytes",
            "gauge",
            "Bytes of writes that are proposed and not yet applied.",
            status.uncommitted_bytes,
        ),
        (
            "highwater_read_bytes_held",
            "gauge",
            "Bytes of answers that their readers have not taken yet.",
            status.read_bytes_held,
        ),
        (
            "highwater_history_pending",
            "gauge",
            "Whether a restore's mark waits for a group.",
            u64::from(status.history_pending),
        ),
        (
            "highwater_looks_restored",
            "gauge",
            "Whether the directory looks restored.",
            u64::from(status.looks_restored),
        ),
        ("highwater_live_reads", "gauge", "Readers that wait for more.", status.live_reads),
        ("highwater_snapshot_commits", "gauge", "Snapshots whose parts are being verified.", status.snapshot_commits),
    ]
}
