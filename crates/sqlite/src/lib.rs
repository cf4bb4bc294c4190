//! Placeholder front page.

pub mod bind;
pub mod engine;
pub mod log;
pub mod meta;
pub mod record;
