//! Seeds that once broke a promise, and those of many kinds of runs: replayed always.

use highwater_sim::run;

const SEEDS: &str = include_str!("../../corpus/seeds.txt");

#[test]
fn the_corpus_keeps_every_promise() {
    let seeds: Vec<u64> = SEEDS
        .lines()
        .filter_map(|line| line.split('#').next().map(str::trim).filter(|seed| !seed.is_empty()))
        .map(|seed| seed.parse().expect("a line is a seed, then what it is kept for"))
        .collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        run(seed, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
