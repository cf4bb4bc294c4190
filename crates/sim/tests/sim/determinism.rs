//! One seed gives one run.

use crate::worlds::WORLDS;
use std::collections::BTreeSet;

/// Two runs of one seed do the same things with the same bytes at the same times; another seed does others.
#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    for world in WORLDS {
        let mut hashes = BTreeSet::new();
        for seed in 0..world.repeated {
            let (first, second) = (world.keeps(seed, false), world.keeps(seed, false));
            assert_eq!(first, second, "seed {seed} of {}", world.name);
            hashes.insert(first.hash);
        }
        assert_eq!(hashes.len() as u64, world.repeated, "two seeds of {} gave one run", world.name);
    }
}
