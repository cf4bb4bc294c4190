//! Comparing a database that stopped with whatever its stream holds now.
//!
//! Which commits the stream still has, nobody can tell from here: it may be an older copy or another stream. So all of it is
//! replayed and laid beside the file, which holds every commit that was made here.

use super::{Stopped, Verified, VerifyError, clear, differences, fill};
use crate::engine::open::lock_process;
use crate::engine::{Layout, StopReason};
use crate::replicator::StreamError;
use crate::replicator::connect::Remote;
use crate::restore::{RestoreProgress, Target, find, replay};
use highwater_client::Options;
use highwater_disk::{Disk, OpenMode};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Position of the page size in a database's header.
const PAGE_SIZE_AT: usize = 16;

/// Compares the file of a database that stopped for `reason` with its stream, to the stream's end.
pub(super) fn verify(
    disk: &Arc<dyn Disk>,
    path: &Path,
    reason: StopReason,
    url: &str,
    client: Options,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Verified, VerifyError> {
    let layout = Layout::of(path);
    let _owned = lock_process(&**disk, &layout)?;
    let beside = layout.folder.join("verify.db");
    let result = compare(disk, &layout, &beside, url, client, progress);
    clear(disk.as_ref(), &beside)?;
    let (lsn, (pages, different, different_pages)) = result?;
    let stopped = Some(Stopped { reason });
    Ok(Verified { acknowledged_lsn: lsn, lsn, pages, different, different_pages, stopped })
}

type Compared = (u64, (u64, u64, Vec<u32>));

fn compare(
    disk: &Arc<dyn Disk>,
    layout: &Layout,
    beside: &Path,
    url: &str,
    client: Options,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Compared, VerifyError> {
    clear(disk.as_ref(), beside)?;
    let remote = Remote::new(url, client)?;
    let found = find(&remote, url)?;
    let begun = crate::bind::Restoring::begin(disk, beside).map_err(StreamError::Files)?;
    let mut target = Target { restoring: begun, incomplete: false };
    let reader = replay(&remote, &found, u64::MAX, &mut target, progress)?;
    if reader.lsn() == 0 {
        return Err(StreamError::Empty { url: url.to_owned() }.into());
    }
    target.restoring.void();
    target.restoring.finish(&remote.bound(&found, reader.offset())).map_err(StreamError::Files)?;
    let (ours, theirs) = (disk.open(&layout.database, OpenMode::Read)?, disk.open(beside, OpenMode::Read)?);
    let mut header = [0; 100];
    fill(&*theirs, &mut header, 0)?;
    Ok((reader.lsn(), differences(&*ours, &*theirs, page_bytes(&header)?)?))
}

/// Bytes of a page, of which 1 stands for 65,536.
fn page_bytes(header: &[u8; 100]) -> io::Result<u64> {
    match u16::from_be_bytes([header[PAGE_SIZE_AT], header[PAGE_SIZE_AT + 1]]) {
        1 => Ok(65_536),
        size if size >= 512 => Ok(u64::from(size)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "what the stream holds has no page size")),
    }
}
