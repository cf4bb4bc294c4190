//! A new database: one page, as SQLite writes it for an empty database in WAL mode.

use super::{BindError, BindOptions, Bound, BoundStream, Lineage, laydown};
use crate::engine::Layout;
use crate::engine::open::fingerprint;
use crate::meta::{Checkpoint, Meta};
use crate::record::{Encoder, Header, is_page_size};
use highwater_disk::{Disk, OpenMode};
use std::sync::Arc;

/// The version of the oldest SQLite that is served, as the one that wrote the file.
const SQLITE_VERSION: u32 = 3_040_001;

pub(super) fn bind(
    disk: &Arc<dyn Disk>,
    layout: &Layout,
    options: BindOptions,
    stream: &BoundStream,
    lineage: Lineage,
) -> Result<Bound, BindError> {
    let io_error = BindError::io(layout);
    if !is_page_size(options.page_size) {
        return Err(BindError::Option("page_size is a power of two from 512 to 65536"));
    }
    if options.auto_vacuum > 2 {
        return Err(BindError::Option("auto_vacuum is 0 (none), 1 (full) or 2 (incremental)"));
    }
    let page = empty_page(options.page_size, options.auto_vacuum);
    let file = disk.open(&layout.database_new, OpenMode::Create).map_err(&io_error)?;
    file.write_at(&page, 0).and_then(|()| file.sync_all()).map_err(&io_error)?;
    let binding = laydown::new_binding(stream, options.page_size, lineage);
    let mut segment = laydown::FirstSegment::create(&**disk, layout, binding.lineage, 1).map_err(&io_error)?;
    let mut encoder = Encoder::take().map_err(&io_error)?;
    let header = Header { lsn: 1, synced: 0, page_size: options.page_size, pages_after: 1, page_count: 1 };
    encoder.begin(header);
    let mut sink = |bytes: &[u8]| segment.write(bytes);
    let mut fill = |buffer: &mut [u8]| {
        buffer.copy_from_slice(&page);
        Ok(())
    };
    let checksum = encoder.page(1, &mut fill, &mut sink).map_err(&io_error)?;
    encoder.finish(checksum, &mut sink).map_err(&io_error)?;
    encoder.give_back();
    segment.sync(&**disk, layout).map_err(&io_error)?;
    let checkpoint = Checkpoint { position: segment.end, lsn: 1, pages: 1, checksum };
    let fingerprint = Some(fingerprint(&*file).map_err(&io_error)?);
    laydown::commit(&**disk, layout, &Meta { fingerprint, ..Meta::new(binding, checkpoint, stream.end) })?;
    Ok(Bound::Created)
}

/// Page 1 of an empty database in WAL mode.
///
/// Source: SQLite, "Database File Format", sections 1.3 and 1.6.
pub(super) fn empty_page(page_size: u32, auto_vacuum: u8) -> Vec<u8> {
    let mut page = vec![0; page_size as usize];
    page[..16].copy_from_slice(b"SQLite format 3\0");
    // 65536 is spelled 1.
    let size = if page_size == 65_536 { 1 } else { page_size as u16 };
    page[16..18].copy_from_slice(&size.to_be_bytes());
    page[18..24].copy_from_slice(&[2, 2, 0, 64, 32, 32]);
    let mut number = |at: usize, value: u32| page[at..at + 4].copy_from_slice(&value.to_be_bytes());
    number(24, 1);
    number(28, 1);
    number(52, u32::from(auto_vacuum > 0));
    number(64, u32::from(auto_vacuum == 2));
    number(92, 1);
    number(96, SQLITE_VERSION);
    // An empty leaf of a table; its cells would grow down from the page's end, which 65536 spells 0.
    page[100] = 0x0d;
    page[105..107].copy_from_slice(&(page_size as u16).to_be_bytes());
    page
}
