//! Binding a file to a stream.

use super::disk;
use crate::exit;
use crate::output::{self, Progress};
use anyhow::Result;
use highwater_client::Options;
use highwater_sqlite::bind::{BindOptions, Bound};
use highwater_sqlite::replicator::{self, StreamError};
use serde_json::json;
use std::path::Path;

/// Binds `file` to the stream at `url`.
pub fn run(file: &Path, url: &str, page_size: Option<u32>, auto_vacuum: Option<&str>, json: bool) -> Result<()> {
    let default = BindOptions::default();
    let options = BindOptions {
        page_size: page_size.unwrap_or(default.page_size),
        auto_vacuum: match auto_vacuum {
            Some("full") => 1,
            Some("incremental") => 2,
            _ => 0,
        },
    };
    let mut progress = Progress::new("logging");
    let page_bytes = u64::from(options.page_size);
    let mut report = |done: u64, total: u64| progress.set(done * page_bytes, total * page_bytes);
    let bound = replicator::bind(&disk(), file, url, options, Options::from_environment(), &mut report)
        .map_err(exit::of(StreamError::code))?;
    drop(progress);
    let (state, pages) = match bound {
        Bound::Already => ("already", None),
        Bound::Created => ("created", None),
        Bound::Existing { pages } => ("existing", Some(pages)),
    };
    if json {
        return output::json(&json!({ "path": file, "url": url, "bound": state, "pages": pages }));
    }
    let file = file.display();
    match bound {
        Bound::Already => println!("{file} is bound to {url} already"),
        Bound::Created => println!("{file} is new and bound to {url}"),
        Bound::Existing { pages } => println!(
            "{file} is bound to {url}; its {pages} pages are the first commit, which is sent when a process next writes \
             to it, or by `highwater db push {file}`"
        ),
    }
    Ok(())
}
