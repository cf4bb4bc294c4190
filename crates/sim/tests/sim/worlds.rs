//! The worlds that are run, each with what is kept for it.

use highwater_sim::{Failure, Report, pds, run};

/// Runs a seed; whether its trace is printed.
pub type Run = fn(u64, bool) -> Result<Report, Box<Failure>>;

/// A world.
pub struct World {
    /// What it is called.
    pub name: &'static str,
    /// Runs it.
    pub run: Run,
    /// The variable that names one seed to be replayed.
    pub seed_variable: &'static str,
    /// What runs are meant to meet.
    pub meetings: &'static [&'static str],
    /// Its part of the budget of random runs, of three.
    pub share: u32,
    /// Seeds that are run twice.
    pub repeated: u64,
    /// Seeds that once broke a promise, and those of many kinds of runs: a line each, with what it is kept for.
    corpus: &'static str,
}

/// A whole server with its databases.
pub const STREAMS: World = World {
    name: "streams",
    run,
    seed_variable: "HIGHWATER_SIM_SEED",
    meetings: &highwater_sim::MEETINGS,
    share: 2,
    repeated: 12,
    corpus: include_str!("../../corpus/seeds.txt"),
};

/// A server of accounts with those who follow it.
pub const ACCOUNTS: World = World {
    name: "accounts",
    run: pds::run,
    seed_variable: "HIGHWATER_SIM_PDS_SEED",
    meetings: &pds::MEETINGS,
    share: 1,
    repeated: 6,
    corpus: include_str!("../../corpus/pds.txt"),
};

/// All of them.
pub const WORLDS: [&World; 2] = [&STREAMS, &ACCOUNTS];

impl World {
    /// A run that keeps every promise.
    pub fn keeps(&self, seed: u64, print: bool) -> Report {
        (self.run)(seed, print).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The seeds that are always run.
    pub fn corpus(&self) -> Vec<u64> {
        let lines = self.corpus.lines().filter_map(|line| line.split('#').next().map(str::trim));
        let seeds = lines.filter(|seed| !seed.is_empty());
        seeds.map(|seed| seed.parse().expect("a line is a seed, then what it is kept for")).collect()
    }
}
