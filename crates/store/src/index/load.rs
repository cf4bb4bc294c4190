//! Reading an index file from start to end, object by object.

use super::Position;
use super::base::Base;
use super::block::Identity;
use super::fold::{Changes, Each, merge, take_in};
use super::record::Head;
use super::scan::{Scan, ScanError};
use highwater_base::OwnerId;
use highwater_disk::File;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// An index file whose end and whose deltas were read, and whose base is still to be.
pub(crate) struct Opened {
    file: Arc<dyn File>,
    path: PathBuf,
    identity: Identity,
    changes: Changes,
    base_checkpoint: u64,
    base_bytes: u64,
    pub head: Head,
    /// Number of the last whole checkpoint.
    pub checkpoint: u64,
    /// Position behind it.
    pub end: u64,
    /// Position of its first block; 0 if that is the base.
    last_start: u64,
    /// Bytes behind it, which are no part of the index.
    pub torn_bytes: u64,
}

/// Looks through an index file: where its base ends, and all that stands behind it, which is bounded.
/// # Errors
/// As [`Scan`] says.
pub(crate) fn open(file: Arc<dyn File>, path: PathBuf, owner: OwnerId, generation: u64) -> Result<Opened, ScanError> {
    let identity = Identity { owner, generation };
    let scan = Scan::new(&*file, identity)?;
    let base = scan.base_end()?;
    let (base_checkpoint, base_bytes) = (base.checkpoint, base.end);
    let mut changes = Changes::new();
    let reached = scan.deltas(base, &mut |record| take_in(&mut changes, record))?;
    let torn_bytes = scan.file_bytes() - reached.end;
    Ok(Opened {
        path,
        identity,
        changes,
        base_checkpoint,
        base_bytes,
        head: reached.head,
        checkpoint: reached.checkpoint,
        end: reached.end,
        last_start: reached.start,
        torn_bytes,
        file,
    })
}

/// What an index file was found to be.
pub(crate) struct Loaded {
    pub position: Position,
    /// Objects of which the deltas have records.
    pub touched: BTreeSet<u64>,
    last_start: u64,
    /// Bytes behind the last whole checkpoint, which are no part of the index.
    pub torn_bytes: u64,
}

impl Opened {
    /// Reads the base, and hands over every object in order of the keys: the base's with the deltas laid over it.
    ///
    /// Memory holds the deltas and one object.
    /// # Errors
    /// As [`merge`].
    pub fn read(self, each: Each<'_>) -> Result<Loaded, ScanError> {
        let touched = self.changes.keys().copied().collect();
        let table = merge(&Scan::new(&*self.file, self.identity)?, self.changes, each)?;
        let base = Base {
            identity: self.identity,
            checkpoint: self.base_checkpoint,
            bytes: self.base_bytes,
            path: self.path,
            file: self.file,
            table,
        };
        let position =
            Position { checkpoint: self.checkpoint, end: self.end, ..Position::of(Arc::new(base), Vec::new()) };
        Ok(Loaded { position, touched, last_start: self.last_start, torn_bytes: self.torn_bytes })
    }
}

impl Loaded {
    /// Makes durable what was found, and nothing else of the file.
    ///
    /// The process before may have died with its last delta in the page cache alone, even after a sync of it failed: the kernel
    /// takes such pages for written. So the delta is written again as it is, and then synced. All before it was synced well:
    /// after a failed sync nothing is appended.
    /// # Errors
    /// The disk's.
    pub fn settle(&self) -> io::Result<()> {
        let (file, end) = (&self.position.base.file, self.position.end);
        if self.torn_bytes > 0 {
            file.set_length(end)?;
        }
        if self.last_start > 0 {
            let mut delta = vec![0; (end - self.last_start) as usize];
            file.read_exact_at(&mut delta, self.last_start)?;
            file.write_at(&delta, self.last_start)?;
        }
        file.sync_all()
    }
}
