//! The stream and what is kept, as its operator sees them; copies; relays.

use super::{Announcer, Asked, Failure, Operator, Outcome, accounts, answer, blocking, read};
use crate::context::Context;
use axum::body::Body;
use axum::extract::State;
use highwater_host::{Host, Refused, Subscriber};
use highwater_pds::{AccountId, Refused as Stands, boot};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Accounts of which relays have yet to hear, or did not hear: so many are listed.
const LISTED_MAX: usize = 100;

/// Where an account can stand, in the protocol's words; `none` is one of which relays are not to hear yet.
const POSITIONS: [&str; 6] = ["active", "suspended", "takendown", "deactivated", "deleted", "none"];

/// How everything stands.
pub fn status(context: &Context, announcer: &dyn Announcer) -> Value {
    let host = &context.host;
    let status = host.status();
    let (gaps, events, unannounced, due) = host.state(|state| {
        let due: Vec<AccountId> = boot::due(state).map(|account| account.id).collect();
        let listed = due.iter().take(LISTED_MAX).filter_map(|id| state.accounts.get(id)).map(accounts::describe);
        let oldest = state.events.oldest().map_or(state.events.count, |point| point.ordinal);
        let gaps: Vec<[u64; 2]> = state.sequence.gaps().map(|(below, end)| [below, end]).collect();
        (gaps, state.events.count - oldest, listed.collect::<Vec<_>>(), due.len())
    });
    let by_position: Value = POSITIONS
        .iter()
        .map(|word| ((*word).to_owned(), json!(status.accounts.get(word).copied().unwrap_or(0))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let report = status.restore.map(|restore| host.paths().report(restore.id).display().to_string());
    json!({
        "serving": status.ended.is_none(),
        "failed": status.ended,
        "zone": host.zone().to_string(),
        "public_url": context.options.public_url,
        "accounts": {
            "count": status.accounts.values().sum::<u64>(),
            "active": status.accounts.get("active").copied().unwrap_or(0),
            "by_position": by_position,
            "limit": host.options().account_limit,
            "unannounced": due,
            "unannounced_listed": unannounced,
        },
        "stream": {
            "oldest": status.oldest.map(|oldest| oldest.seq),
            "oldest_ms": status.oldest.map(|oldest| oldest.at.0 / 1_000),
            "newest": status.seq,
            "ceiling": status.ceiling,
            "gaps": gaps,
            "events": events,
            "bytes": status.events_bytes,
            "memory_events": status.ring.frames,
            "memory_bytes": status.ring.bytes,
        },
        "subscribers": status.subscribers.iter().map(|one| subscriber(context, one)).collect::<Vec<_>>(),
        "log": {
            "newest": status.lsn,
            "bytes": status.log.log_bytes,
            "syncs": status.log.syncs,
            "refused": status.turns_refused,
        },
        "memory_bytes": status.memory_bytes,
        "store": {
            "bytes": status.store.file_bytes,
            "dead_bytes": status.store.dead_bytes,
            "index_bytes": status.store.index_bytes,
            "applied": status.store.applied,
            "checkpoints": status.checkpoints,
            "checkpoint_error": status.checkpoint_error,
            "compactions": status.compactions,
            "blobs_expired": status.blobs_expired,
            "disk_free_bytes": status.disk_free_bytes,
        },
        "restore": status.restore.map(|restore| json!({
            "id": format!("{:016x}", restore.id), "accounts": restore.accounts, "done": restore.done, "report": report,
        })),
        "witness": { "path": status.witness, "error": status.witness_error },
        "poke_pending": status.relay_poke_pending,
        "relays": announcer.relays(),
    })
}

/// Somebody who follows the stream. Whoever reads what is kept has the `state` `replay`, whoever takes what comes `live`.
fn subscriber(context: &Context, one: &Subscriber) -> Value {
    json!({
        "address": context.followers.address(one.id).map(|address| address.to_string()),
        "at": one.at,
        "behind": one.behind,
        "state": if one.live { "live" } else { "replay" },
    })
}

/// `GET /v1/pds/status`
pub(super) async fn status_page(State(operator): State<Operator>) -> Outcome {
    Ok(answer(&blocking(move || status(&operator.context, &*operator.announcer)).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Announcement {
    #[serde(default)]
    resync: bool,
    #[serde(default)]
    force: bool,
}

/// `POST /v1/pds/announce`
pub(super) async fn announce(State(operator): State<Operator>, body: Body) -> Outcome {
    let Announcement { resync, force } = read(body).await?;
    let host = operator.context.host.clone();
    let mut told = Told::default();
    if resync {
        let resyncing = host.clone();
        told = blocking(move || tell_again(&resyncing)).await?;
        let (frames, failed) = (told.frames, told.failed);
        tracing::info!(event = "resync", frames, failed, "an operator told of every active account once more");
    }
    let asked = blocking(move || operator.announcer.announce(&host, force)).await?;
    let relays: Vec<Value> = asked
        .into_iter()
        .map(|Asked { url, outcome, message }| json!({ "url": url, "outcome": outcome, "message": message }))
        .collect();
    let listed: Vec<Value> =
        told.failed_listed.into_iter().map(|(did, message)| json!({ "did": did, "message": message })).collect();
    Ok(answer(&json!({ "frames": told.frames, "failed": told.failed, "failed_listed": listed, "relays": relays })))
}

/// What came of telling relays of every active account once more.
#[derive(Default)]
struct Told {
    frames: u64,
    /// Accounts that are to be told of and were not.
    failed: u64,
    /// The first of them, and why.
    failed_listed: Vec<(String, String)>,
}

/// Frames of an account that is told of once more: where it stands, and its newest commit.
const FRAMES_EACH: u64 = 2;
/// Accounts that are told of at once: what waits for the log stays far below what the host takes.
const TOLD_AT_ONCE: usize = 256;

fn tell_again(host: &Host) -> Told {
    let live: Vec<(AccountId, String)> =
        host.state(|state| boot::live(state).map(|account| (account.id, account.did.to_string())).collect());
    let mut told = Told::default();
    for some in live.chunks(TOLD_AT_ONCE) {
        let waiting: Vec<_> = some.iter().map(|(account, _)| host.resync(*account)).collect();
        for ((_, did), waiting) in some.iter().zip(waiting) {
            match waiting.wait() {
                Ok(()) => told.frames += FRAMES_EACH,
                // It was locked meanwhile, and is none to tell of.
                Err(Refused::Turn(
                    Stands::Inactive(_) | Stands::Erased | Stands::Decommissioned | Stands::NotActivated,
                )) => {}
                Err(refused) => {
                    tracing::warn!(event = "resync_failed", did, %refused, "relays were not told of this account once more");
                    told.failed += 1;
                    if told.failed_listed.len() < LISTED_MAX {
                        told.failed_listed.push((did.clone(), refused.to_string()));
                    }
                }
            }
        }
    }
    told
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Copy {
    to: PathBuf,
}

/// `POST /v1/pds/backup`
pub(super) async fn backup(State(operator): State<Operator>, body: Body) -> Outcome {
    let Copy { to } = read(body).await?;
    if !to.is_absolute() {
        return Err(Failure::new(
            "INVALID_REQUEST",
            "the folder is named from the root on: it lies on the server's machine",
        ));
    }
    let host = operator.context.host.clone();
    let folder = to.clone();
    let made = blocking(move || host.backup(&folder)).await??;
    tracing::info!(event = "pds_backup", to = %to.display(), files = made.files, bytes = made.bytes, "a backup was made");
    Ok(answer(&json!({ "backup": to, "applied": made.applied, "files": made.files, "bytes": made.bytes })))
}
