//! Binding a file to a stream.

use super::connect::Remote;
use super::errors::StreamError;
use crate::bind::{self, BindOptions, BindProgress, Bound, BoundStream};
use crate::engine::Engine;
use highwater_base::{Incarnation, Offset};
use highwater_client::{Options, PROTOCOL, StreamUrl};
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
    if Engine::is_bound(disk.as_ref(), path).map_err(bind::BindError::Io)? {
        // Nothing but the address is compared with what is written down there.
        let url = StreamUrl::parse(url)?.to_string();
        let incarnation = Incarnation::new(1).expect("1 is a token");
        let same = BoundStream { url, incarnation, cluster_id: String::new(), protocol: PROTOCOL, end: Offset(0) };
        return Ok(bind::bind(disk, path, options, &same, progress)?);
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
