//! What a start does before anybody is served: what a [`restore`](crate::restore) leaves to do, and rule A2.

use crate::blocks::AccountBlocks;
use crate::error::{OpenError, Unsettled};
use crate::layout::read_floor;
use crate::restore;
use crate::worker::{BATCH_TURNS, Worker};
use bytes::Bytes;
use highwater_pds::boot::{self, Warning};
use highwater_pds::{Account, Draft, Fact};
use std::path::PathBuf;

/// A restore that this start did, or went on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Its number.
    pub id: u64,
    /// Accounts of which relays are told now.
    pub accounts: u64,
    /// Whether an earlier start had begun it.
    pub resumed: bool,
    /// Where the report lies: every account that was announced active, so that those that had been erased are erased again.
    pub report: PathBuf,
}

/// What a start did, and what its operator should know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Boot {
    /// Records that were read from the log.
    pub replayed: u64,
    /// Frames that were added to the stream.
    pub frames: u64,
    /// Accounts of which relays had something yet to hear.
    pub announced: u64,
    /// The restore, if there was a marker.
    pub restored: Option<Restored>,
    /// What does not fit together. The server acts on none of it.
    pub warnings: Vec<String>,
    /// Relays have to be asked to crawl: run `highwater pds announce`, or let the server do it.
    pub relay_poke_pending: bool,
    /// Files of blobs that no account had.
    pub blobs_removed: u64,
}

/// Does it.
pub(crate) fn run(worker: &mut Worker, replayed: u64) -> Result<Boot, OpenError> {
    let shared = worker.shared.clone();
    let before = shared.state().events.count;
    let mut boot = Boot { replayed, ..Boot::default() };
    let floor = read_floor(&*shared.disk, &shared.paths)?;
    // Of the newest record's time: it makes a copy no younger.
    let missed = {
        let state = shared.state();
        boot::floor(&state.sequence, floor, state.newest)
    };
    if let Some(draft) = missed {
        worker.settle(vec![draft])?;
    }
    crate::backup::begin_log(worker)?;
    warn(worker, &mut boot)?;
    boot.restored = restore::run(worker, &mut boot)?;
    // After a restore that ended here nothing is left; one that an earlier start ended may have left something.
    boot.announced += announce_if_room(worker, &mut boot)?;
    let swept = shared.blob_files.sweep(&shared.state().blobs);
    let swept = swept.map_err(|error| OpenError::Blobs(error.to_string()))?;
    boot.blobs_removed = swept.removed;
    if let Some((account, cid)) = swept.missing.first() {
        boot.warnings.push(format!(
            "{} files of blobs are missing, the first one {cid} of account {}: restore the directory `blobs` from a copy",
            swept.missing.len(),
            account.0
        ));
    }
    bear_witness(worker)?;
    let state = shared.state();
    boot.frames = state.events.count - before;
    boot.relay_poke_pending = state.poke_pending;
    let told = state.accounts.values().filter(|account| account.position().is_some()).count() as u64;
    if told > shared.options.account_limit {
        boot.warnings.push(format!(
            "{told} accounts have a position, and relays accept {} of one host: ask them for a higher limit",
            shared.options.account_limit
        ));
    }
    drop(state);
    log(&boot);
    Ok(boot)
}

fn log(boot: &Boot) {
    for warning in &boot.warnings {
        tracing::warn!(event = "boot_warning", warning, "see the runbook of restores");
    }
    if let Some(restored) = &boot.restored {
        tracing::info!(
            event = "restored",
            id = %format!("{:016x}", restored.id),
            accounts = restored.accounts,
            resumed = restored.resumed,
            report = %restored.report.display(),
            "the restore is done: read the report, erase again what had been erased, and run `highwater pds announce`"
        );
    }
    if boot.relay_poke_pending {
        tracing::info!(event = "relay_poke_pending", "relays have to be asked to crawl: run `highwater pds announce`");
    }
    tracing::info!(
        event = "pds_opened",
        replayed = boot.replayed,
        frames = boot.frames,
        announced = boot.announced,
        "accounts are open"
    );
}

/// Rule A2, but for a full disk: rows are as they are, and the next change or start tells of them (rule A3). How many accounts it
/// told of.
fn announce_if_room(worker: &mut Worker, boot: &mut Boot) -> Result<u64, OpenError> {
    match announce(worker) {
        Err(OpenError::Unsettled(Unsettled::Full)) => {
            let due = boot::due(&worker.shared.state()).count();
            boot.warnings.push(format!(
                "the disk is full, so that relays are not told yet where {due} accounts stand: make room, and start again"
            ));
            Ok(0)
        }
        told => told,
    }
}

/// Rule A2. How many accounts it told of.
pub(crate) fn announce(worker: &mut Worker) -> Result<u64, OpenError> {
    let shared = worker.shared.clone();
    let due: Vec<Account> = boot::due(&shared.state()).cloned().collect();
    for accounts in due.chunks(BATCH_TURNS) {
        let mut drafts = Vec::with_capacity(accounts.len());
        for account in accounts {
            let block = head_block(worker, account)?;
            let draft = boot::draft(account, block.as_ref(), shared.now());
            // Only a block that is not its commit's: a start without a marker must not speak of a restore.
            let damaged = |error: highwater_pds::Refused| OpenError::Damaged {
                path: shared.paths.store(),
                what: format!("{}: {error}", account.did),
            };
            drafts.extend(draft.map_err(damaged)?);
        }
        worker.settle(drafts)?;
    }
    Ok(due.len() as u64)
}

/// The block of an account's newest commit, if a frame must tell of that.
fn head_block(worker: &Worker, account: &Account) -> Result<Option<Bytes>, OpenError> {
    let Some(cid) = account.head_untold() else { return Ok(None) };
    let slot = worker.shared.slots.get(account.id);
    let blocks = AccountBlocks::open(&worker.shared, &slot, account.blocks).and_then(|blocks| blocks.get(&cid));
    blocks.map(Some).map_err(|error| OpenError::Damaged { path: worker.shared.paths.store(), what: error.to_string() })
}

/// What the clock and the witnesses say. None of it stops a start, nor does a witness that cannot be read.
fn warn(worker: &Worker, boot: &mut Boot) -> Result<(), OpenError> {
    let shared = &worker.shared;
    boot.warnings.extend(shared.witnesses.unread());
    let marked = shared.disk.exists(&shared.paths.marker()).map_err(OpenError::io(&shared.paths.marker()))?;
    let witnesses = shared.witnesses.outside().into_iter().chain(shared.witnesses.beside());
    for warning in boot::warnings(&shared.state(), witnesses, shared.now()) {
        // With a marker the operator said so already.
        if !marked || matches!(warning, Warning::ClockBehind(_)) {
            boot.warnings.push(warning.to_string());
        }
    }
    Ok(())
}

/// Notes this start in the log and outside the volume, if there is a witness there. Without one a start leaves no trace in the log.
fn bear_witness(worker: &mut Worker) -> Result<(), OpenError> {
    let shared = worker.shared.clone();
    if shared.options.witness_path.is_some() {
        let nonce = shared.random_u64();
        match worker.settle(vec![Draft::new(shared.now()).fact(Fact::Booted(nonce))]) {
            // The witness keeps the start before, which the directory knows.
            Ok(()) | Err(Unsettled::Full) => {}
            Err(error) => return Err(error.into()),
        }
    }
    shared.witnesses.write(&shared);
    Ok(())
}
