//! The simulator is itself tested: each planted fault must be found within its budget of seeds, and the same seed is clean without it.

use crate::worlds::{ACCOUNTS, STREAMS, World};
use highwater_base::planted::{Bug, plant};
use highwater_sim::Invariant;

/// Plants a fault and runs seeds from 1 on; the seed that finds it must come within the budget, by one of these promises, and keep every
/// promise once the fault is taken away.
fn found(world: &World, bug: Bug, seeds_max: u64, by: &[Invariant]) {
    plant(Some(bug));
    let failure = (1..=seeds_max).find_map(|seed| (world.run)(seed, false).err());
    plant(None);
    let Some(failure) = failure else { panic!("{bug:?} was not found in {seeds_max} seeds") };
    println!("{bug:?}: seed {} broke {}", failure.seed, failure.violation);
    assert!(by.contains(&failure.violation.invariant), "{bug:?} was found by accident: {failure}");
    world.keeps(failure.seed, false);
}

/// A test for each fault: its world, the fault, the budget in seeds, and the promises by which it is found.
macro_rules! planted {
    ($($(#[$why:meta])* $name:ident: $world:ident, $bug:ident, $seeds_max:literal, [$($by:ident),*];)*) => {
        $($(#[$why])* #[test]
        fn $name() {
            found(&$world, Bug::$bug, $seeds_max, &[$(Invariant::$by),*]);
        })*
    };
}

planted! {
    acknowledging_before_the_sync_is_found: STREAMS, AcknowledgeBeforeSync, 60, [AcknowledgedIsThere, RestartAgrees];
    a_skipped_directory_sync_is_found: STREAMS, SkipDirectorySync, 60, [AcknowledgedIsThere, RestartAgrees, ConfirmedSurvives];
    a_forgotten_epoch_check_is_found: STREAMS, ForgetEpochCheck, 60, [EpochsInOrder, RepeatHasTheReceipt];
    sealing_a_batch_anew_for_a_retry_is_found: STREAMS, RecompressOnRetry, 60, [StopHasACause];
    a_front_that_is_given_up_and_not_stored_is_found: STREAMS, ForgetRetained, 100, [RetainedNeverGoesBack];
    a_revocation_that_is_not_stored_is_found: STREAMS, ForgetRevocation, 100, [RevokedStaysRevoked];
    a_snapshot_with_another_digest_is_found: STREAMS, SkipSnapshotDigest, 60, [SnapshotIsWhole, NothingUnwritten];
    parts_that_count_after_they_are_discarded_are_found: STREAMS, MiscountParts, 60, [UsageIsWhatIsStored];
    tokens_that_outlive_a_restore_are_found: STREAMS, KeepTokens, 60, [RestoreIsTold];
    /// The engine refuses to write such a seal down, so that nothing is sent any more and the backlog never drains.
    a_dropped_part_is_found: STREAMS, DropPart, 60, [StreamIsLogPrefix, Heals];
    /// The store may hold more than the log then, and no start goes over that.
    showing_frames_before_the_sync_is_found: ACCOUNTS, AcknowledgeBeforeSync, 60, [FramesStay, AccountsStay, Heals];
    answering_what_rests_on_what_is_not_durable_is_found: ACCOUNTS, AnswerEarly, 100, [AnswersAreDurable];
    a_floor_that_a_restore_does_not_raise_is_found: ACCOUNTS, KeepFloor, 60, [NumbersOnce, RestoreTellsOnce, CursorsAreKnown];
    a_witness_that_is_not_heeded_is_found: ACCOUNTS, ForgetWitness, 200, [NumbersOnce, RestoreTellsOnce, CursorsAreKnown];
    a_floor_that_is_raised_behind_the_frames_is_found: ACCOUNTS, RaiseFloorLate, 60, [NumbersOnce, RestoreTellsOnce];
    a_marker_that_goes_before_relays_are_told_is_found: ACCOUNTS, RemoveMarkerEarly, 200, [RestoreTellsOnce];
    /// The machine refuses the record when it reads it back, so that the server does not start again.
    a_fresh_commit_with_the_revision_before_it_is_found: ACCOUNTS, RepeatRevision, 100, [RestoreTellsOnce, FollowersConverge, Heals];
    a_replay_of_what_is_in_memory_alone_is_found: ACCOUNTS, CutReplay, 60, [FramesStay, FollowersFindNoFault];
    a_frame_that_is_sent_twice_where_a_replay_ends_is_found: ACCOUNTS, RepeatAtCutover, 60, [FollowersFindNoFault];
    a_lift_that_does_not_say_what_the_account_holds_is_found: ACCOUNTS, LiftWithoutSync, 100, [LiftTellsHead];
    positions_that_are_sent_and_do_not_count_as_announced_are_found: ACCOUNTS, ForgetAnnounced, 60, [PositionIsTheRow, StartTellsOnlyNews];
    a_restore_without_fresh_commits_is_found: ACCOUNTS, SkipFreshCommits, 100, [RestoreTellsOnce];
    a_ceiling_that_is_the_newest_frame_is_found: ACCOUNTS, ForgetCeiling, 300, [CursorsAreKnown];
}
