//! The first start of a directory that was put back: rules R1 to R4.

use crate::boot::{Boot, Restored, announce};
use crate::error::OpenError;
use crate::files;
use crate::layout::encode_floor;
use crate::shared::Shared;
use crate::turn::key;
use crate::worker::{BATCH_TURNS, Worker};
use highwater_base::planted::{Bug, active};
use highwater_pds::boot::Warning;
use highwater_pds::restore::{self, Announced, Lost, Marker, Plan};
use highwater_pds::{Account, Draft, Fact, Part, Signer};
use highwater_repo::Tid;
use std::io::ErrorKind;
use std::path::PathBuf;

fn stop(error: impl std::fmt::Display) -> OpenError {
    OpenError::Restore(error.to_string())
}

/// Does what is left to do of a restore, if there is a marker.
pub(crate) fn run(worker: &mut Worker, boot: &mut Boot) -> Result<Option<Restored>, OpenError> {
    let shared = worker.shared.clone();
    let Some((id, marker)) = stamped(&shared)? else { return Ok(None) };
    let (plan, lost) = {
        let state = shared.state();
        let lost = Lost::new(&state, &marker, shared.witnesses.outside(), shared.witnesses.beside());
        (Plan::new(&state, id, lost, shared.now()).map_err(stop)?, lost)
    };
    if let Plan::Begin { floor, rev_min } = plan {
        begin(worker, id, floor, rev_min)?;
        if !lost.is_told {
            boot.warnings.push(Warning::NumbersUntold.to_string());
        }
    }
    if active(Bug::RemoveMarkerEarly) {
        remove_marker(&shared)?;
    }
    if plan != Plan::AlreadyDone {
        remember(&shared)?;
        tell(worker, id)?;
        if let (true, Plan::Begin { floor, .. }) = (active(Bug::RaiseFloorLate), &plan) {
            worker.settle(vec![Draft::new(shared.now()).fact(Fact::Floor(*floor))])?;
        }
        boot.announced = announce(worker)?;
        worker.settle(vec![restore::done(id, shared.now())])?;
    }
    let report = write_report(&shared, id, boot)?;
    remove_marker(&shared)?;
    let accounts = shared.state().restore.as_ref().map_or(0, |restore| restore.progress.len() as u64);
    Ok(Some(Restored { id, accounts, resumed: !matches!(plan, Plan::Begin { .. }), report }))
}

/// The marker, with its number: one that was made by hand gets one before anything else, so that whoever dies now resumes under it.
fn stamped(shared: &Shared) -> Result<Option<(u64, Marker)>, OpenError> {
    let path = shared.paths.marker();
    let Some(bytes) = files::read(&*shared.disk, &path).map_err(OpenError::io(&path))? else { return Ok(None) };
    let mut marker = Marker::parse(&bytes).map_err(stop)?;
    if let Some(id) = marker.id {
        return Ok(Some((id, marker)));
    }
    let id = shared.random_u64();
    marker.id = Some(id);
    files::replace(&*shared.disk, &path, marker.to_string().as_bytes()).map_err(OpenError::io(&path))?;
    Ok(Some((id, marker)))
}

/// Rule R2, step 1: the floor is in the log before anything else.
fn begin(worker: &mut Worker, id: u64, floor: u64, rev_min: Option<Tid>) -> Result<(), OpenError> {
    let mut begin = restore::begin(id, floor, rev_min, worker.shared.now());
    if active(Bug::RaiseFloorLate) {
        begin.parts.retain(|part| !matches!(part, Part::Fact(Fact::Floor(_))));
    }
    Ok(worker.settle(vec![begin])?)
}

/// The floor that the log has goes beside the log, and outside the directory, before any frame is numbered; an earlier start may have died
/// in between.
fn remember(shared: &Shared) -> Result<(), OpenError> {
    let (floor, path) = (shared.state().sequence.ceiling(), shared.paths.floor());
    files::replace(&*shared.disk, &path, &encode_floor(floor)).map_err(OpenError::io(&path))?;
    shared.witnesses.write(shared);
    Ok(())
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
            let key = key(&shared, &slot, account).map_err(stop)?;
            let signer = Signer { key, clock_id: shared.clock_id, rev_min };
            let draft = restore::account(account, id, &signer, shared.now());
            drafts.extend(draft.map_err(stop)?);
        }
        worker.settle(drafts)?;
    }
    Ok(())
}

/// Writes which accounts were announced active. On a full disk the log has them: what relays were told is durable, and the accounts open.
fn write_report(shared: &Shared, id: u64, boot: &mut Boot) -> Result<PathBuf, OpenError> {
    let path = shared.paths.report(id);
    // DIDs and handles have no character that JSON escapes.
    let row = |Announced { did, handle, commit, rev, .. }: &Announced| {
        format!(r#"    {{"did": "{did}", "handle": "{handle}", "commit": "{commit}", "rev": "{rev}"}}"#)
    };
    let told = restore::report(&shared.state());
    let rows: Vec<String> = told.iter().map(row).collect();
    let at = shared.now();
    let text = format!(
        "{{\n  \"restore\": \"{id:016x}\",\n  \"at\": \"{at}\",\n  \"active\": [\n{}\n  ]\n}}\n",
        rows.join(",\n")
    );
    match files::replace(&*shared.disk, &path, text.as_bytes()) {
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            for Announced { did, handle, rev, .. } in told {
                tracing::warn!(event = "restored_active", did, handle, %rev, "the restore announced this account as active");
            }
            boot.warnings.push(format!(
                "the disk is full, so that {} was not written: the log has a line `restored_active` for each account that was announced active",
                path.display()
            ));
        }
        written => written.map_err(OpenError::io(&path))?,
    }
    Ok(path)
}

/// Rule R3.
fn remove_marker(shared: &Shared) -> Result<(), OpenError> {
    let path = shared.paths.marker();
    files::remove(&*shared.disk, &path).map_err(OpenError::io(&path))
}
