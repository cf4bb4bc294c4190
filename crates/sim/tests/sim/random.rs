//! Random seeds, within one budget of time for all of them.
//!
//! `HIGHWATER_SIM_SECONDS` sets the budget, `HIGHWATER_SIM_FIRST` the first seed; `HIGHWATER_SIM_SEED` replays one seed
//! and prints its trace.

use highwater_sim::{Report, run};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Seconds of the budget unless the environment says otherwise.
const SECONDS: u64 = 20;
/// Runs after which everything that the simulator is for must have happened.
const COVERING_SEEDS: u64 = 500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

fn keeps(seed: u64, print: bool) -> Report {
    run(seed, print).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn random_runs_keep_every_promise() {
    if let Some(seed) = number("HIGHWATER_SIM_SEED") {
        println!("{:#?}", keeps(seed, true));
        return;
    }
    let budget = Duration::from_secs(number("HIGHWATER_SIM_SECONDS").unwrap_or(SECONDS));
    let first = number("HIGHWATER_SIM_FIRST").unwrap_or(1);
    let started = Instant::now();
    let (mut seeds, mut events, mut met) = (0, 0, BTreeMap::new());
    while started.elapsed() < budget {
        let report = keeps(first + seeds, false);
        seeds += 1;
        events += report.events;
        for (what, times) in report.met {
            *met.entry(what).or_insert(0) += times;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds in {seconds:.1} s, {:.0} a minute; {events} events: {met:#?}",
        60.0 * seeds as f64 / seconds
    );
    if seeds >= COVERING_SEEDS {
        let missing: Vec<_> = highwater_sim::MEETINGS.iter().filter(|what| !met.contains_key(*what)).collect();
        assert!(missing.is_empty(), "in {seeds} runs these never happened: {missing:?}");
    }
}
