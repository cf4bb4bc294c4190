//! Seeds that once broke a promise, and those of many kinds of runs: replayed always.

use crate::worlds::WORLDS;

#[test]
fn the_corpus_keeps_every_promise() {
    for world in WORLDS {
        let seeds = world.corpus();
        assert!(!seeds.is_empty(), "{}", world.name);
        for seed in seeds {
            world.keeps(seed, false);
        }
    }
}
