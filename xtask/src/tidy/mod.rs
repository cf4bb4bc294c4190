//! Style as a test: only what breaks correctness when it slips.

mod dependencies;
mod sources;
