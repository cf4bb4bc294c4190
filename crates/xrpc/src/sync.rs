//! `com.atproto.sync`: repositories, as relays and archives read them.

mod export;
mod status;

pub use export::{get_blocks, get_checkout, get_record, get_repo};
pub use status::{get_head, get_latest_commit, get_repo_status, list_repos};
