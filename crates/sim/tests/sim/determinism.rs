//! One seed gives one run.

use highwater_sim::run;

/// Two runs of one seed do the same things with the same bytes at the same times; another seed does others.
#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    let mut hashes = Vec::new();
    for seed in 0..12 {
        let (first, second) = (run(seed, false), run(seed, false));
        let first = first.unwrap_or_else(|failure| panic!("{failure}"));
        let second = second.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 12, "two seeds gave one run");
}
