//! `com.atproto.repo`: records, as their owner writes them and anybody reads them.

mod input;
mod read;
mod write;

pub use input::write_anything;
pub use read::{describe_repo, get_record, list_records};
pub use write::{apply_writes, create_record, delete_record, put_record};
