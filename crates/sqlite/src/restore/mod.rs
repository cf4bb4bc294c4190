//! Restoring a database from its stream.

use crate::batch::{Sink, StreamFault, StreamReader};
use crate::bind::{BindError, Restoring};
use crate::replicator::StreamError;
use crate::replicator::connect::{Found, Remote};
use bytes::Bytes;
use highwater_base::{Offset, limits};
use highwater_client::Options;
use highwater_disk::Disk;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

/// How far a restore is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreProgress {
    /// Bytes of the stream that were read.
    pub bytes: u64,
    /// Bytes that the stream had when the restore began; it may have grown since.
    pub bytes_total: u64,
    /// The last commit that was applied.
    pub lsn: u64,
}

/// What a restore brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The last commit.
    pub lsn: u64,
    /// The owner epoch under which it was written.
    pub epoch: u64,
    /// Pages of the database.
    pub pages: u32,
    /// Bytes of the stream that were read.
    pub bytes: u64,
    /// A commit began whose last part never came: it was never acknowledged, and is not in the database.
    pub incomplete: bool,
}

/// Brings the database that the stream at `url` holds to `path`, where nothing lies, bound to that stream.
///
/// Every whole commit is applied and checked in order; a commit whose parts are not all there is left out. Nothing lies
/// at `path` until everything is in place. The database that results claims the stream anew with its first write: an
/// owner that is still alive is fenced then, not now.
/// # Errors
/// See [`StreamError`]; nothing lies at `path` then.
pub fn restore(
    disk: &Arc<dyn Disk>,
    url: &str,
    path: &Path,
    client: Options,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Restored, StreamError> {
    let remote = Remote::new(url, client)?;
    let found = find(&remote, url)?;
    let mut target = Target { restoring: Restoring::begin(disk, path)?, incomplete: false };
    let reader = match replay(&remote, &found, u64::MAX, &mut target, progress) {
        Ok(reader) if reader.lsn() > 0 => reader,
        failed => {
            // What is left, if that fails too, is cleared by the next attempt.
            drop(target.restoring.abandon());
            return Err(failed.err().unwrap_or_else(|| StreamError::Empty { url: url.to_owned() }));
        }
    };
    let (lsn, epoch, bytes) = (reader.lsn(), reader.epoch(), reader.offset().0);
    let (pages, incomplete) = (target.restoring.pages(), target.incomplete);
    target.restoring.finish(&remote.bound(&found, reader.offset()))?;
    Ok(Restored { lsn, epoch, pages, bytes, incomplete })
}

/// The stream, if it holds a database.
pub(crate) fn find(remote: &Remote, url: &str) -> Result<Found, StreamError> {
    let found = remote.look()?.ok_or_else(|| StreamError::NotFound { url: url.to_owned() })?;
    if remote.holds_database(&found.head)? { Ok(found) } else { Err(StreamError::Empty { url: url.to_owned() }) }
}

/// Reads the stream into `target`, up to its tail or until commit `lsn_max` is whole.
///
/// While one piece is applied the next one is on its way.
pub(crate) fn replay(
    remote: &Remote,
    found: &Found,
    lsn_max: u64,
    target: &mut Target,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<StreamReader, StreamError> {
    let url = remote.stream.url().to_string();
    let mut reader = StreamReader::new();
    thread::scope(|scope| {
        let (pieces, arriving) = sync_channel::<Result<Bytes, StreamError>>(1);
        scope.spawn(move || {
            let mut at = Offset(0);
            loop {
                let piece = remote.read(at, limits::READ_BYTES_MAX, found.head.incarnation);
                let last = match &piece {
                    Ok(piece) => piece.body.is_empty() || piece.up_to_date,
                    Err(_) => true,
                };
                at = piece.as_ref().map_or(at, |piece| piece.next);
                // The receiver is gone once it has what it wanted.
                if pieces.send(piece.map(|piece| piece.body)).is_err() || last {
                    return;
                }
            }
        });
        for piece in arriving {
            let piece = piece?;
            let mut limited = Limited { target, lsn_max, reached: false };
            match reader.push(&piece, &mut limited) {
                Ok(()) => {}
                Err(StreamFault::Sink(_)) if limited.reached => return Ok(()),
                Err(StreamFault::Sink(error)) => return Err(StreamError::Files(BindError::Io(error))),
                Err(fault) => {
                    let offset = reader.offset().0;
                    return Err(StreamError::Damaged { url: url.clone(), offset, found: fault.to_string() });
                }
            }
            let (bytes, bytes_total) = (reader.next().0, found.head.next.0);
            progress(RestoreProgress { bytes, bytes_total: bytes_total.max(bytes), lsn: reader.lsn() });
        }
        if reader.next() != reader.offset() {
            let found = "it ends inside a batch".to_owned();
            return Err(StreamError::Damaged { url: url.clone(), offset: reader.offset().0, found });
        }
        Ok(())
    })?;
    Ok(reader)
}

/// The database that is being laid down.
pub(crate) struct Target {
    pub(crate) restoring: Restoring,
    /// The bytes since the last whole commit are not none.
    pub(crate) incomplete: bool,
}

impl Sink for Target {
    fn record_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.incomplete |= !bytes.is_empty();
        self.restoring.push(bytes)
    }

    fn void(&mut self) {
        self.incomplete = false;
        self.restoring.void();
    }

    fn committed(&mut self, _lsn: u64) -> io::Result<()> {
        self.incomplete = false;
        Ok(())
    }
}

/// Lets a target have nothing behind a certain commit.
struct Limited<'a> {
    target: &'a mut Target,
    lsn_max: u64,
    reached: bool,
}

impl Sink for Limited<'_> {
    fn record_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.target.record_bytes(bytes)
    }

    fn void(&mut self) {
        self.target.void();
    }

    fn committed(&mut self, lsn: u64) -> io::Result<()> {
        self.target.committed(lsn)?;
        self.reached = lsn >= self.lsn_max;
        // Ends the reading; the caller tells this end from an error.
        if self.reached { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    }
}
