//! Checking a store that nobody has open.

use crate::files::Files;
use crate::index;
use crate::open::{Listing, OpenError, io_error, scan_error};
use crate::scrub::{Fault, Pace, check_extents};
use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_disk::{Disk, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// What a store holds, all of it verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// The position that its checkpoint covers.
    pub applied: u64,
    /// The caller's bytes of that checkpoint.
    pub meta: Bytes,
    /// Every object's key and state.
    pub objects: Vec<(u64, Bytes)>,
    /// Bytes of payload and index that were read.
    pub bytes: u64,
    /// What cannot be believed.
    pub faults: Vec<Fault>,
}

/// Reads a store's index and every block that it names. Changes nothing.
/// # Errors
/// As [`crate::Store::open`], for an index that cannot be read; damaged payload is in [`Verified::faults`].
pub fn verify(disk: Arc<dyn Disk>, directory: &Path, owner: OwnerId, pace: Pace<'_>) -> Result<Verified, OpenError> {
    let listing = Listing::of(&*disk, directory)?;
    let Some(generation) = listing.generations.last().copied() else {
        return Err(OpenError::Damaged { path: directory.into(), what: "there is no index".into() });
    };
    let path = index::path(directory, generation);
    let file = disk.open(&path, OpenMode::Read).map_err(io_error(&path))?;
    let damaged = |error| scan_error(path.clone(), error);
    let opened = index::open(file, path.clone(), owner, generation).map_err(damaged)?;
    let mut verified = Verified {
        applied: opened.head.applied,
        meta: opened.head.meta.clone(),
        bytes: opened.end,
        ..Verified::default()
    };
    if opened.torn_bytes > 0 {
        let what = format!("{} bytes behind the last whole checkpoint", opened.torn_bytes);
        verified.faults.push(Fault { path: path.clone(), position: opened.end, what, object: None });
    }
    let files = Arc::new(Files::new(disk, directory.into(), owner, 1));
    let read = opened.read(&mut |key, image, _| {
        let extents: Vec<_> = image.extents.iter().map(|extent| (key, *extent)).collect();
        extents.iter().for_each(|(_, extent)| files.name(extent.file));
        verified.bytes += check_extents(&files, &extents, pace, &mut verified.faults);
        verified.objects.push((key, image.state));
        Ok(())
    });
    read.map_err(damaged)?;
    Ok(verified)
}
