//! Binding a file to a stream.

use super::connect::Remote;
use super::errors::StreamError;
use crate::bind::{self, BindError, BindOptions, BindProgress, Bound};
use crate::engine::Layout;
use highwater_base::Offset;
use highwater_client::{Options, StreamUrl};
use highwater_disk::Disk;
use std::path::Path;
use std::sync::Arc;

/// Binds the database at `path`, making it if it does not exist, to the stream at `url`, making that too.
///
/// The stream must be empty: a database that it already holds is continued by a restore, never by another file. A file
/// that is bound already needs no network: binding it to the same stream again is done at once.
/// # Errors
/// See [`StreamError`]; the file is then as it was.
pub fn bind(
    disk: &Arc<dyn Disk>,
    path: &Path,
    url: &str,
    options: BindOptions,
    client: Options,
    progress: BindProgress<'_>,
) -> Result<Bound, StreamError> {
    // What is bound already is not asked about over the network: a program may bind each time it starts.
    if let Some(bound) = bind::bound_to(disk.as_ref(), path)? {
        if bound.url == StreamUrl::parse(url)?.as_str() {
            return Ok(Bound::Already);
        }
        let path = Layout::of(path).database.display().to_string();
        return Err(BindError::Elsewhere { path, url: bound.url }.into());
    }
    let remote = Remote::new(url, client)?;
    let found = remote.look_or_create()?;
    if found.head.closed {
        return Err(StreamError::Closed { url: url.to_owned() });
    }
    if remote.holds_database(&found.head)? {
        return Err(StreamError::NotEmpty { url: url.to_owned() });
    }
    Ok(bind::bind(disk, path, options, &remote.bound(&found, Offset(0)), progress)?)
}
