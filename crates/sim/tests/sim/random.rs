//! Random seeds, within one budget of time for all of them.
//!
//! `HIGHWATER_SIM_SECONDS` sets the budget, of which a third goes to the world of accounts, and `HIGHWATER_SIM_FIRST` the first
//! seed; `HIGHWATER_SIM_SEED` replays one seed and prints its trace, `HIGHWATER_SIM_PDS_SEED` one of the world of accounts.

use crate::worlds::{WORLDS, World};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Seconds of the budget unless the environment says otherwise.
const SECONDS: u64 = 20;
/// Runs after which everything that the simulator is for must have happened.
const COVERING_SEEDS: u64 = 500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// How often a world was run, and what was met in it.
struct Runs {
    world: &'static World,
    spent: Duration,
    seeds: u64,
    events: u64,
    met: BTreeMap<&'static str, u64>,
}

impl Runs {
    fn new(world: &'static World) -> Self {
        Self { world, spent: Duration::ZERO, seeds: 0, events: 0, met: BTreeMap::new() }
    }

    fn next(&mut self, first: u64) {
        let started = Instant::now();
        let report = self.world.keeps(first + self.seeds, false);
        self.spent += started.elapsed();
        self.seeds += 1;
        self.events += report.events;
        for (what, times) in report.met {
            *self.met.entry(what).or_insert(0) += times;
        }
    }

    fn tell(&self) {
        let (seeds, seconds) = (self.seeds, self.spent.as_secs_f64());
        println!(
            "{}: {seeds} seeds in {seconds:.1} s, {:.0} a minute; {} events: {:#?}",
            self.world.name,
            60.0 * seeds as f64 / seconds,
            self.events,
            self.met
        );
        if seeds >= COVERING_SEEDS {
            let missing: Vec<_> = self.world.meetings.iter().filter(|what| !self.met.contains_key(*what)).collect();
            assert!(missing.is_empty(), "in {seeds} runs of {} these never happened: {missing:?}", self.world.name);
        }
    }
}

#[test]
fn random_runs_keep_every_promise() {
    for world in WORLDS {
        if let Some(seed) = number(world.seed_variable) {
            println!("{:#?}", world.keeps(seed, true));
            return;
        }
    }
    let budget = Duration::from_secs(number("HIGHWATER_SIM_SECONDS").unwrap_or(SECONDS));
    let first = number("HIGHWATER_SIM_FIRST").unwrap_or(1);
    let mut runs = WORLDS.map(Runs::new);
    let started = Instant::now();
    while started.elapsed() < budget {
        // The one that is furthest behind its share.
        let [streams, accounts] = &mut runs;
        let behind = streams.spent / streams.world.share <= accounts.spent / accounts.world.share;
        if behind { streams.next(first) } else { accounts.next(first) }
    }
    runs.iter().for_each(Runs::tell);
}
