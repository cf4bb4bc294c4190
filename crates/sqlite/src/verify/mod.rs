//! Comparing a database with its stream.

mod stopped;

use crate::bind::BindError;
use crate::engine::{Engine, Layout, OpenError, OpenOptions, StopReason};
use crate::replicator::StreamError;
use crate::replicator::connect::Remote;
use crate::restore::{RestoreProgress, Target, find, replay};
use highwater_client::Options;
use highwater_disk::{Disk, File, OpenMode};
use std::io;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// Pages that differ of which the numbers are reported.
const DIFFERENT_MAX: usize = 20;

/// Bytes compared at once.
const COMPARE_BYTES: usize = 1 << 20;

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The last commit that the stream acknowledged; the comparison is made there.
    pub acknowledged_lsn: u64,
    /// The last commit of the local database, whose pending commits were laid over the stream's.
    pub lsn: u64,
    /// Pages compared.
    pub pages: u64,
    /// Pages that differ.
    pub different: u64,
    /// The first of them.
    pub different_pages: Vec<u32>,
    /// The database had stopped: its file, with every commit that was made here, was compared with all that the stream holds
    /// now, of which both numbers above are the last commit.
    pub stopped: Option<Stopped>,
}

/// Why a database that was compared is no longer replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// What it stopped with.
    pub reason: StopReason,
}

/// Why nothing was compared.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The database does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its stream cannot be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream is not the one that the database is bound to.
    #[error("other_stream: {path} is bound to {bound}, not to {given}")]
    OtherStream {
        /// The database.
        path: String,
        /// Its stream.
        bound: String,
        /// The stream that was named.
        given: String,
    },
    /// The stream lacks commits that it acknowledged.
    #[error(
        "server_lost_data: the stream holds {found} commits, {acknowledged} were acknowledged; keep the local files"
    )]
    Lost {
        /// Commits in the stream.
        found: u64,
        /// Commits that were acknowledged.
        acknowledged: u64,
    },
    /// The system's.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl VerifyError {
    /// The code an application can switch on.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Open(error) => error.code(),
            Self::Stream(error) => error.code(),
            Self::OtherStream { .. } => "other_stream",
            Self::Lost { .. } => "server_lost_data",
            Self::Io(_) => "io",
        }
    }
}

/// Replays the stream at `url` beside the database at `path`, up to the last commit that it acknowledged, lays the pending
/// commits over that, and compares the result with the database page by page.
///
/// The database is opened as any process would, so nobody else may have it open; nothing is claimed or sent. It needs as
/// much space again as the database has. A database that stopped is compared with all that the stream holds.
/// # Errors
/// See [`VerifyError`]. Pages that differ are no error but a finding.
pub fn verify(
    disk: &Arc<dyn Disk>,
    path: &Path,
    url: &str,
    client: Options,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Verified, VerifyError> {
    let engine = match Engine::open(Arc::clone(disk), path, OpenOptions::default()) {
        Err(OpenError::Reset { reason, url: bound }) if bound == url => {
            return stopped::verify(disk, path, reason, url, client, progress);
        }
        engine => engine?,
    };
    let result = verify_open(disk, &engine, url, client, progress);
    engine.close();
    result
}

fn verify_open(
    disk: &Arc<dyn Disk>,
    engine: &Engine,
    url: &str,
    client: Options,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Verified, VerifyError> {
    let bound = engine.binding().url;
    if bound != url {
        let path = engine.layout().database.display().to_string();
        return Err(VerifyError::OtherStream { path, bound, given: url.to_owned() });
    }
    let beside = engine.layout().folder.join("verify.db");
    let result = compare(disk, engine, &beside, url, client, progress);
    clear(disk.as_ref(), &beside)?;
    result
}

fn compare(
    disk: &Arc<dyn Disk>,
    engine: &Engine,
    beside: &Path,
    url: &str,
    client: Options,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Verified, VerifyError> {
    clear(disk.as_ref(), beside)?;
    let remote = Remote::new(url, client)?;
    let found = find(&remote, url)?;
    let begun = crate::bind::Restoring::begin(disk, beside).map_err(StreamError::Files)?;
    let mut target = Target { restoring: begun, incomplete: false };
    let local = engine.progress();
    // Before the first acknowledgement nothing of the stream counts.
    if local.acknowledged_lsn > 0 {
        let reader = replay(&remote, &found, local.acknowledged_lsn, &mut target, progress)?;
        if reader.lsn() < local.acknowledged_lsn {
            return Err(VerifyError::Lost { found: reader.lsn(), acknowledged: local.acknowledged_lsn });
        }
    }
    target.restoring.void();
    overlay(engine, &mut target)?;
    target.restoring.finish(&remote.bound(&found, found.head.next)).map_err(StreamError::Files)?;
    let replayed = disk.open(beside, OpenMode::Read)?;
    let page_bytes = u64::from(engine.page_size());
    let (pages, different, different_pages) = differences(engine.database().as_ref(), replayed.as_ref(), page_bytes)?;
    let (acknowledged_lsn, lsn) = (local.acknowledged_lsn, local.last_lsn);
    Ok(Verified { acknowledged_lsn, lsn, pages, different, different_pages, stopped: None })
}

/// Lays the commits that the stream does not hold yet over those that it does.
fn overlay(engine: &Engine, target: &mut Target) -> io::Result<()> {
    let local = engine.progress();
    let mut at = engine.record_start(local.acknowledged).unwrap_or(local.acknowledged);
    while at < local.confirmed_end {
        let length = usize::try_from(local.confirmed_end.since(at)).unwrap_or(usize::MAX).min(COMPARE_BYTES);
        let mut bytes = Vec::with_capacity(length);
        engine.read_log(at, length, &mut bytes)?;
        target.restoring.push(&bytes)?;
        at = at.plus(length as u64);
    }
    Ok(())
}

/// Pages in the longer file, how many of them differ, and the first of those.
fn differences(one: &dyn File, other: &dyn File, page_bytes: u64) -> io::Result<(u64, u64, Vec<u32>)> {
    let (shorter, length) = {
        let (one, other) = (one.length()?, other.length()?);
        (one.min(other), one.max(other))
    };
    let (mut different, mut numbers) = (0, Vec::new());
    let (mut left, mut right) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    let mut at = 0;
    while at < length {
        let (found_left, found_right) = (fill(one, &mut left, at)?, fill(other, &mut right, at)?);
        let longer = found_left.max(found_right);
        let pages = left[..longer].chunks(page_bytes as usize).zip(right[..longer].chunks(page_bytes as usize));
        for (number, (mine, theirs)) in (at / page_bytes + 1..).zip(pages) {
            // A page that only one of them has differs, zeros or not.
            if mine != theirs || number * page_bytes > shorter {
                different += 1;
                if numbers.len() < DIFFERENT_MAX {
                    numbers.push(u32::try_from(number).unwrap_or(u32::MAX));
                }
            }
        }
        at += COMPARE_BYTES as u64;
    }
    Ok((length.div_ceil(page_bytes), different, numbers))
}

/// Reads as much as there is, and zeros behind it.
fn fill(file: &dyn File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut found = 0;
    while found < buffer.len() {
        match file.read_at(&mut buffer[found..], at + found as u64)? {
            0 => break,
            more => found += more,
        }
    }
    buffer[found..].fill(0);
    Ok(found)
}

/// Removes what a comparison laid down.
fn clear(disk: &dyn Disk, beside: &Path) -> io::Result<()> {
    let layout = Layout::of(beside);
    for folder in [&layout.log, &layout.folder] {
        let names = match disk.list(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            names => names?,
        };
        for name in names {
            let path = folder.join(name);
            if path != layout.log {
                disk.remove(&path)?;
            }
        }
        disk.remove_directory(folder)?;
    }
    if disk.exists(&layout.database)? { disk.remove(&layout.database) } else { Ok(()) }
}

impl From<BindError> for VerifyError {
    fn from(error: BindError) -> Self {
        Self::Stream(StreamError::Files(error))
    }
}
