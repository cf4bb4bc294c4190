//! The simulator's runs: the corpus, random seeds within a budget, the same seed twice, and planted faults.

mod corpus;
mod determinism;
mod planted;
mod random;
mod relay;
mod stories;
mod worlds;
