//! What the operator is shown.

use highwater_host::Status;
use highwater_pds::{Account, AccountId, Micros, Position, State};
use serde_json::{Value as Json, json};

/// A position in a word: `none` for an account of which relays are not to hear yet.
fn word(position: Option<Position>) -> &'static str {
    match position {
        None => "none",
        Some(Position::Active) => "active",
        Some(Position::Inactive(status)) => status.as_str(),
    }
}

/// An account.
pub(super) fn account(account: &Account, state: &State) -> Json {
    let standing = account.standing;
    let blobs = state.blobs.get(&account.id);
    json!({
        "did": account.did.as_str(),
        "handle": account.handle.as_str(),
        "created": account.created.to_string(),
        "position": word(account.position()),
        "announced": word(account.announced),
        "relaysKnow": account.position() == account.announced,
        "activated": standing.activated,
        "untilFirstWrite": standing.until_first_write,
        "locked": standing.suspended,
        "takenDown": standing.taken_down,
        "deactivated": standing.deactivated,
        "decommissioned": standing.decommissioned,
        "erased": standing.erased,
        "rev": account.head.map(|head| head.rev.to_string()),
        "commit": account.head.map(|head| head.commit.to_string()),
        "keySealed": account.key.sealed,
        "sessions": account.credentials.sessions.len(),
        "appPasswords": account.credentials.app_passwords.len(),
        "blobs": blobs.map_or(0, |blobs| blobs.0.len()),
        "blobBytes": blobs.map_or(0, |blobs| blobs.0.values().map(|blob| blob.bytes).sum::<u64>()),
    })
}

/// Accounts of a page, in the order in which they were made, and the cursor behind them.
pub(super) fn accounts(state: &State, after: u64, limit: usize) -> Json {
    let page: Vec<&Account> =
        state.accounts.range(AccountId(after.saturating_add(1))..).map(|(_, row)| row).take(limit).collect();
    let mut told = json!({ "accounts": page.iter().map(|row| account(row, state)).collect::<Vec<_>>() });
    if let Some(last) = page.last().filter(|_| page.len() == limit) {
        told["cursor"] = last.id.0.to_string().into();
    }
    told
}

/// The server.
pub(super) fn server(status: &Status, subscribers: usize) -> Json {
    let oldest = status.oldest.map(|(seq, at)| json!({ "seq": seq, "time": at.to_string() }));
    let restore = status
        .restore
        .map(|(id, accounts, done)| json!({ "id": format!("{id:016x}"), "accounts": accounts, "done": done }));
    let (frames, bytes) = status.ring;
    json!({
        "ended": status.ended,
        "accounts": status.accounts,
        "stream": {
            "seq": status.seq,
            "ceiling": status.ceiling,
            "oldest": oldest,
            "bytes": status.events_bytes,
            "ringFrames": frames,
            "ringBytes": bytes,
            "framesSent": status.frames_sent,
            "subscribers": subscribers,
            "lags": status.lags,
        },
        "lsn": status.lsn,
        "checkpoints": status.checkpoints,
        "checkpointError": status.checkpoint_error,
        "turnsRefused": status.turns_refused,
        "memoryBytes": status.memory_bytes,
        "restore": restore,
        "relayPokePending": status.relay_poke_pending,
        "newest": Some(status.newest).filter(|newest| *newest > Micros(0)).map(|newest| newest.to_string()),
        "diskFreeBytes": status.disk_free_bytes,
    })
}
