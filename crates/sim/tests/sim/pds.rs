//! The world of accounts: its corpus, the same seed twice, and planted faults.

use highwater_base::planted::{Bug, plant};
use highwater_sim::Invariant;
use highwater_sim::pds::run;

/// Two runs of one seed do the same things with the same bytes at the same times; another seed does others.
#[test]
fn the_same_seed_of_accounts_twice_gives_the_same_trace() {
    let mut hashes = Vec::new();
    for seed in 0..6 {
        let (first, second) = (run(seed, false), run(seed, false));
        let first = first.unwrap_or_else(|failure| panic!("{failure}"));
        let second = second.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 6, "two seeds gave one run");
}

const SEEDS: &str = include_str!("../../corpus/pds.txt");

/// Seeds that once broke a promise, and those of many kinds of runs.
#[test]
fn the_corpus_of_accounts_keeps_every_promise() {
    let seeds = SEEDS.lines().filter_map(|line| line.split('#').next().map(str::trim).filter(|seed| !seed.is_empty()));
    let seeds: Vec<u64> = seeds.map(|seed| seed.parse().expect("a line is a seed, then what it is kept for")).collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        run(seed, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Plants a fault and runs seeds from 1 on; the seed that finds it must come within the budget, by one of these promises, and keep every
/// promise once the fault is taken away.
fn found(bug: Bug, seeds_max: u64, by: &[Invariant]) {
    plant(Some(bug));
    let failure = (1..=seeds_max).find_map(|seed| run(seed, false).err());
    plant(None);
    let Some(failure) = failure else { panic!("{bug:?} was not found in {seeds_max} seeds") };
    println!("{bug:?}: seed {} broke {}", failure.seed, failure.violation);
    assert!(by.contains(&failure.violation.invariant), "{bug:?} was found by accident: {failure}");
    run(failure.seed, false).unwrap_or_else(|failure| panic!("without a fault: {failure}"));
}

#[test]
fn showing_frames_before_the_sync_is_found() {
    found(Bug::AcknowledgeBeforeSync, 60, &[Invariant::FramesStay, Invariant::AccountsStay]);
}

#[test]
fn a_floor_that_a_restore_does_not_raise_is_found() {
    found(Bug::KeepFloor, 60, &[Invariant::NumbersOnce, Invariant::RestoreTellsOnce, Invariant::CursorsAreKnown]);
}

#[test]
fn a_floor_that_is_raised_behind_the_frames_is_found() {
    found(Bug::RaiseFloorLate, 60, &[Invariant::NumbersOnce, Invariant::RestoreTellsOnce]);
}

#[test]
fn a_marker_that_goes_before_relays_are_told_is_found() {
    found(Bug::RemoveMarkerEarly, 200, &[Invariant::RestoreTellsOnce]);
}

#[test]
fn a_fresh_commit_with_the_revision_before_it_is_found() {
    // The machine refuses the record when it reads it back, so that the server does not start again.
    let by = [Invariant::RestoreTellsOnce, Invariant::FollowersConverge, Invariant::Heals];
    found(Bug::RepeatRevision, 100, &by);
}

#[test]
fn a_replay_of_what_is_in_memory_alone_is_found() {
    found(Bug::CutReplay, 60, &[Invariant::FramesStay, Invariant::FollowersFindNoFault]);
}

#[test]
fn a_frame_that_is_sent_twice_where_a_replay_ends_is_found() {
    found(Bug::RepeatAtCutover, 60, &[Invariant::FollowersFindNoFault]);
}

#[test]
fn a_lift_that_does_not_say_what_the_account_holds_is_found() {
    found(Bug::LiftWithoutSync, 100, &[Invariant::LiftTellsHead]);
}

#[test]
fn positions_that_are_sent_and_do_not_count_as_announced_are_found() {
    found(Bug::ForgetAnnounced, 60, &[Invariant::PositionIsTheRow, Invariant::StartTellsOnlyNews]);
}

#[test]
fn a_restore_without_fresh_commits_is_found() {
    found(Bug::SkipFreshCommits, 100, &[Invariant::RestoreTellsOnce]);
}

#[test]
fn a_ceiling_that_is_the_newest_frame_is_found() {
    found(Bug::ForgetCeiling, 300, &[Invariant::CursorsAreKnown]);
}
