//! What a start does before anybody is served: rules R1 to R4 of a restore, and A2.

use crate::blocks::AccountBlocks;
use crate::error::{OpenError, Unsettled};
use crate::files;
use crate::layout::{encode_floor, read_floor, sealed, unsealed};
use crate::turn::key;
use crate::worker::Worker;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader};
use highwater_base::planted::{Bug, active};
use highwater_pds::boot::{self, Warning, Witness};
use highwater_pds::restore::{self, Announced, Marker, Plan};
use highwater_pds::{Account, Draft, Fact, Part, Signer};
use std::path::PathBuf;

/// Turns that share one sync: enough that signing, not the disk, takes the time.
const BATCH_TURNS: usize = 256;
/// The version of the witness file.
pub const WITNESS_VERSION: u16 = 1;
const WITNESS_MAGIC: [u8; 8] = *b"HWPDSWIT";

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
    let missed = boot::floor(&shared.state().sequence, floor, shared.now());
    if let Some(draft) = missed {
        worker.settle(vec![draft])?;
    }
    crate::backup::begin_log(worker)?;
    warn(worker, &mut boot)?;
    boot.restored = restore(worker, &mut boot)?;
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
fn announce(worker: &mut Worker) -> Result<u64, OpenError> {
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

/// Rules R2 to R4, if there is a marker.
fn restore(worker: &mut Worker, boot: &mut Boot) -> Result<Option<Restored>, OpenError> {
    let shared = worker.shared.clone();
    let path = shared.paths.marker();
    let Some(bytes) = files::read(&*shared.disk, &path).map_err(OpenError::io(&path))? else { return Ok(None) };
    let stop = |error: String| OpenError::Restore(error);
    let mut marker = Marker::parse(&bytes).map_err(|error| stop(error.to_string()))?;
    let id = match marker.id {
        Some(id) => id,
        None => {
            // Stamped before anything else: whoever dies now resumes under this number.
            let id = shared.random_u64();
            marker.id = Some(id);
            files::replace(&*shared.disk, &path, marker.to_string().as_bytes()).map_err(OpenError::io(&path))?;
            id
        }
    };
    let plan = Plan::new(&shared.state(), id, marker.rev_min, shared.now());
    let plan = plan.map_err(|error| stop(error.to_string()))?;
    if let Plan::Begin { floor } = plan {
        let mut begin = restore::begin(id, floor, marker.rev_min, shared.now());
        if active(Bug::RaiseFloorLate) {
            begin.parts.retain(|part| !matches!(part, Part::Fact(Fact::Floor(_))));
        }
        worker.settle(vec![begin])?;
    }
    if active(Bug::RemoveMarkerEarly) {
        files::remove(&*shared.disk, &path).map_err(OpenError::io(&path))?;
    }
    if plan != Plan::AlreadyDone {
        // The log has it; the copy beside it may be missing if an earlier start died in between.
        let (floor, path) = (shared.state().sequence.ceiling(), shared.paths.floor());
        files::replace(&*shared.disk, &path, &encode_floor(floor)).map_err(OpenError::io(&path))?;
        tell(worker, id)?;
        if let (true, Plan::Begin { floor }) = (active(Bug::RaiseFloorLate), &plan) {
            worker.settle(vec![Draft::new(shared.now()).fact(Fact::Floor(*floor))])?;
        }
        boot.announced = announce(worker)?;
        worker.settle(vec![restore::done(id, shared.now())])?;
    }
    let report = write_report(worker, id)?;
    files::remove(&*shared.disk, &path).map_err(OpenError::io(&path))?;
    let accounts = shared.state().restore.as_ref().map_or(0, |restore| restore.progress.len() as u64);
    Ok(Some(Restored { id, accounts, resumed: !matches!(plan, Plan::Begin { .. }), report }))
}

/// Rule R2, step 2: every account that is left, many to one sync.
fn tell(worker: &mut Worker, id: u64) -> Result<(), OpenError> {
    let shared = worker.shared.clone();
    let (left, rev_min) = {
        let state = shared.state();
        let left: Vec<Account> = restore::left(&state, id).cloned().collect();
        (left, state.rev_min())
    };
    for accounts in left.chunks(BATCH_TURNS) {
        let mut drafts = Vec::with_capacity(accounts.len());
        for account in accounts {
            let slot = shared.slots.get(account.id);
            let stop = |error: String| OpenError::Restore(error);
            let key = key(&shared, &slot, account).map_err(|error| stop(error.to_string()))?;
            let signer = Signer { key, clock_id: shared.clock_id, rev_min };
            let draft = restore::account(account, id, &signer, shared.now());
            drafts.extend(draft.map_err(|error| stop(error.to_string()))?);
        }
        worker.settle(drafts)?;
    }
    Ok(())
}

/// Writes which accounts were announced active.
fn write_report(worker: &Worker, id: u64) -> Result<PathBuf, OpenError> {
    let shared = &worker.shared;
    let path = shared.paths.report(id);
    // DIDs and handles have no character that JSON escapes.
    let row = |Announced { did, handle, commit, rev, .. }: &Announced| {
        format!(r#"    {{"did": "{did}", "handle": "{handle}", "commit": "{commit}", "rev": "{rev}"}}"#)
    };
    let rows: Vec<String> = restore::report(&shared.state()).iter().map(row).collect();
    let at = shared.now();
    let text = format!(
        "{{\n  \"restore\": \"{id:016x}\",\n  \"at\": \"{at}\",\n  \"active\": [\n{}\n  ]\n}}\n",
        rows.join(",\n")
    );
    files::replace(&*shared.disk, &path, text.as_bytes()).map_err(OpenError::io(&path))?;
    Ok(path)
}

/// The witness file: which start was the newest, and how far the stream was.
#[must_use]
pub fn encode_witness(witness: &Witness) -> Vec<u8> {
    sealed(WITNESS_MAGIC, WITNESS_VERSION, |out| {
        out.u64(witness.nonce).u64(witness.seq);
    })
}

/// Reads it.
/// # Errors
/// What is wrong with it.
pub fn decode_witness(bytes: &Bytes) -> Result<Witness, DecodeError> {
    let mut input: Reader = unsealed(bytes, WITNESS_MAGIC, WITNESS_VERSION)?;
    let witness = Witness { nonce: input.u64()?, seq: input.u64()? };
    input.finish()?;
    Ok(witness)
}

/// What the clock and the witness say. None of it stops a start, nor does a witness that cannot be read.
fn warn(worker: &Worker, boot: &mut Boot) -> Result<(), OpenError> {
    let shared = &worker.shared;
    let mut witness = None;
    if let Some(path) = &shared.options.witness_path {
        match files::read(&*shared.disk, path).map(|bytes| bytes.map(|bytes| decode_witness(&bytes))) {
            Ok(None) => {}
            Ok(Some(Ok(found))) => witness = Some(found),
            Ok(Some(Err(error))) => boot.warnings.push(format!("{} does not read: {error}", path.display())),
            Err(error) => boot.warnings.push(format!("{} cannot be read: {error}", path.display())),
        }
    }
    let marked = shared.disk.exists(&shared.paths.marker()).map_err(OpenError::io(&shared.paths.marker()))?;
    for warning in boot::warnings(&shared.state(), witness, shared.now()) {
        // With a marker the operator said so already.
        if !marked || matches!(warning, Warning::ClockBehind(_)) {
            boot.warnings.push(warning.to_string());
        }
    }
    Ok(())
}

/// Notes this start in the log and outside the volume, if there is a witness. Without one a start leaves no trace.
fn bear_witness(worker: &mut Worker) -> Result<(), OpenError> {
    let shared = worker.shared.clone();
    let Some(path) = &shared.options.witness_path else { return Ok(()) };
    let nonce = shared.random_u64();
    match worker.settle(vec![Draft::new(shared.now()).fact(Fact::Booted(nonce))]) {
        // The witness keeps the start before, which the directory knows.
        Err(Unsettled::Full) => return Ok(()),
        settled => settled?,
    }
    let seq = shared.state().sequence.ceiling();
    if let Err(error) = files::replace(&*shared.disk, path, &encode_witness(&Witness { nonce, seq })) {
        tracing::warn!(event = "witness_not_written", path = %path.display(), %error, "a restore would not be noticed by it");
    }
    Ok(())
}
