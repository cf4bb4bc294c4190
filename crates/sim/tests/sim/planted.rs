//! The simulator is itself tested: each planted fault must be found within its budget of seeds, and the same seeds are
//! clean without it.

use highwater_base::planted::{Bug, plant};
use highwater_sim::{Invariant, run};

/// Plants a fault and runs seeds from 1 on; the seed that finds it must come within the budget, by one of these
/// promises, and keep every promise once the fault is taken away.
fn found(bug: Bug, seeds_max: u64, by: &[Invariant]) {
    plant(Some(bug));
    let failure = (1..=seeds_max).find_map(|seed| run(seed, false).err());
    plant(None);
    let Some(failure) = failure else { panic!("{bug:?} was not found in {seeds_max} seeds") };
    println!("{bug:?}: seed {} broke {}", failure.seed, failure.violation);
    assert!(by.contains(&failure.violation.invariant), "{bug:?} was found by accident: {failure}");
    for seed in 1..=failure.seed {
        run(seed, false).unwrap_or_else(|failure| panic!("without a fault: {failure}"));
    }
}

#[test]
fn acknowledging_before_the_sync_is_found() {
    found(Bug::AcknowledgeBeforeSync, 60, &[Invariant::AcknowledgedIsThere, Invariant::RestartAgrees]);
}

#[test]
fn a_skipped_directory_sync_is_found() {
    let by = [Invariant::AcknowledgedIsThere, Invariant::RestartAgrees, Invariant::ConfirmedSurvives];
    found(Bug::SkipDirectorySync, 60, &by);
}

#[test]
fn a_forgotten_epoch_check_is_found() {
    found(Bug::ForgetEpochCheck, 60, &[Invariant::EpochsInOrder, Invariant::RepeatHasTheReceipt]);
}

#[test]
fn sealing_a_batch_anew_for_a_retry_is_found() {
    found(Bug::RecompressOnRetry, 60, &[Invariant::StopHasACause]);
}

#[test]
fn a_front_that_is_given_up_and_not_stored_is_found() {
    found(Bug::ForgetRetained, 100, &[Invariant::RetainedNeverGoesBack]);
}

#[test]
fn a_revocation_that_is_not_stored_is_found() {
    found(Bug::ForgetRevocation, 100, &[Invariant::RevokedStaysRevoked]);
}

#[test]
fn a_snapshot_with_another_digest_is_found() {
    found(Bug::SkipSnapshotDigest, 60, &[Invariant::SnapshotIsWhole, Invariant::NothingUnwritten]);
}

#[test]
fn parts_that_count_after_they_are_discarded_are_found() {
    found(Bug::MiscountParts, 60, &[Invariant::UsageIsWhatIsStored]);
}

#[test]
fn tokens_that_outlive_a_restore_are_found() {
    found(Bug::KeepTokens, 60, &[Invariant::RestoreIsTold]);
}

#[test]
fn a_dropped_part_is_found() {
    // The engine refuses to write such a seal down, so that nothing is sent any more and the backlog never drains.
    found(Bug::DropPart, 60, &[Invariant::StreamIsLogPrefix, Invariant::Heals]);
}
