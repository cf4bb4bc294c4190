//! The steps that bind and restore share.

use super::{BindError, BoundStream, Lineage};
use crate::engine::open::remove_if_there;
use crate::engine::{Binding, Layout, LogPosition};
use crate::log::{SEGMENT_HEADER_BYTES, SegmentHeader, create_segment};
use crate::meta::{Meta, MetaFile};
use highwater_disk::{Disk, File, OpenMode};
use std::io;
use std::sync::Arc;

/// Removes what an attempt that did not end left in the folder, which is locked.
pub(super) fn clear(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    for path in [&layout.meta_new, &layout.database_new, &layout.record_new, &layout.wal] {
        remove_if_there(disk, path)?;
    }
    for name in disk.list(&layout.log)? {
        disk.remove(&layout.log.join(name))?;
    }
    Ok(())
}

/// The binding of a log to its stream.
pub(super) fn new_binding(stream: &BoundStream, page_size: u32, lineage: Lineage) -> Binding {
    Binding {
        url: stream.url.clone(),
        incarnation: stream.incarnation,
        cluster_id: stream.cluster_id.clone(),
        protocol: stream.protocol,
        page_size,
        lineage,
    }
}

/// 128 bits of the system's entropy.
pub(super) fn fresh_lineage() -> io::Result<Lineage> {
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer has the length that the call is told.
    match unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), bytes.len()) } {
        0 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The first segment of a new log, and what was written to it.
pub(super) struct FirstSegment {
    file: Arc<dyn File>,
    /// The end of the log.
    pub end: LogPosition,
}

impl FirstSegment {
    pub(super) fn create(disk: &dyn Disk, layout: &Layout, lineage: [u8; 16], first_lsn: u64) -> io::Result<Self> {
        let header = SegmentHeader { lineage, position: LogPosition(0), first_lsn };
        Ok(Self { file: create_segment(disk, layout, &header)?, end: LogPosition(0) })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(bytes, SEGMENT_HEADER_BYTES + self.end.0)?;
        self.end = self.end.plus(bytes.len() as u64);
        Ok(())
    }

    /// Makes the log and all names on the way to it durable.
    pub(super) fn sync(&self, disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
        self.file.sync_data()?;
        disk.sync_directory(&layout.log)?;
        disk.sync_directory(&layout.folder)?;
        disk.sync_directory(&layout.parent())
    }
}

/// Binds: gives `meta` its name. Log and database file are durable already, the latter perhaps as `database.new`.
pub(super) fn commit(disk: &dyn Disk, layout: &Layout, meta: &Meta) -> Result<(), BindError> {
    let io_error = BindError::io(layout);
    let file = disk.open(&layout.meta_new, OpenMode::Create).map_err(&io_error)?;
    MetaFile::create(file, meta).map_err(&io_error)?;
    disk.rename(&layout.meta_new, &layout.meta).map_err(&io_error)?;
    disk.sync_directory(&layout.folder).map_err(&io_error)?;
    if disk.exists(&layout.database_new).map_err(&io_error)? {
        disk.rename(&layout.database_new, &layout.database).map_err(&io_error)?;
        disk.sync_directory(&layout.parent()).map_err(&io_error)?;
    }
    Ok(())
}
