//! A populated database: all of its pages become the first commit.

use super::{BindError, BindProgress, Bound, BoundStream, Lineage, laydown};
use crate::engine::Layout;
use crate::engine::open::{bytes_of, fingerprint};
use crate::meta::{Checkpoint, Meta};
use crate::record::{Encoder, Header, is_page_size, lock_page};
use highwater_disk::{Disk, File};
use std::io;
use std::sync::Arc;

/// Pages between two calls of `progress`.
const PROGRESS_PAGES: u32 = 1024;

/// What the file's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shape {
    page_size: u32,
    pages: u32,
    /// The first 100 bytes as they are to be: in WAL mode.
    header: [u8; 100],
    /// Whether they are so already.
    is_wal: bool,
}

/// Refuses a database whose last transactions lie in a file beside it.
pub(super) fn refuse_journals(disk: &dyn Disk, layout: &Layout) -> Result<(), BindError> {
    for suffix in ["-wal", "-journal"] {
        let journal = layout.beside(suffix);
        if bytes_of(disk, &journal).map_err(BindError::io(layout))? > 0 {
            return Err(BindError::HotJournal { journal: journal.display().to_string() });
        }
    }
    Ok(())
}

pub(super) fn bind(
    disk: &Arc<dyn Disk>,
    layout: &Layout,
    database: &dyn File,
    stream: &BoundStream,
    lineage: Lineage,
    progress: BindProgress<'_>,
) -> Result<Bound, BindError> {
    let io_error = BindError::io(layout);
    let length = database.length().map_err(&io_error)?;
    let mut header = [0; 100];
    let read = database.read_at(&mut header, 0).map_err(&io_error)?;
    let shape = read_shape(header, read, length)
        .map_err(|why| BindError::NotADatabase { path: layout.database.display().to_string(), why })?;
    let binding = laydown::new_binding(stream, shape.page_size, lineage);
    let mut segment = laydown::FirstSegment::create(&**disk, layout, binding.lineage, 1).map_err(&io_error)?;
    let checksum = log_image(&mut segment, database, &shape, progress).map_err(&io_error)?;
    segment.sync(&**disk, layout).map_err(&io_error)?;
    if !shape.is_wal {
        // One sector, so it is written whole or not. A crash from here on leaves an unbound database in WAL mode,
        // which every SQLite reads.
        database.write_at(&shape.header, 0).and_then(|()| database.sync_all()).map_err(&io_error)?;
    }
    let checkpoint = Checkpoint { position: segment.end, lsn: 1, pages: shape.pages, checksum };
    let fingerprint = Some(fingerprint(database).map_err(&io_error)?);
    let meta = Meta { fingerprint, image_end: segment.end, ..Meta::new(binding, checkpoint, stream.end) };
    laydown::commit(&**disk, layout, &meta)?;
    Ok(Bound::Existing { pages: shape.pages })
}

/// Logs all pages as commit 1; answers the rolling checksum.
fn log_image(
    segment: &mut laydown::FirstSegment,
    database: &dyn File,
    shape: &Shape,
    progress: BindProgress<'_>,
) -> io::Result<u64> {
    let lock = lock_page(shape.page_size);
    let page_count = shape.pages - u32::from(lock <= shape.pages);
    let mut encoder = Encoder::take()?;
    encoder.begin(Header { lsn: 1, synced: 0, page_size: shape.page_size, pages_after: shape.pages, page_count });
    let mut sink = |bytes: &[u8]| segment.write(bytes);
    let mut checksum = 0;
    for number in (1..=shape.pages).filter(|number| *number != lock) {
        let mut fill = |buffer: &mut [u8]| {
            database.read_exact_at(buffer, u64::from(number - 1) * u64::from(shape.page_size))?;
            if number == 1 {
                buffer[..100].copy_from_slice(&shape.header);
            }
            Ok(())
        };
        checksum ^= encoder.page(number, &mut fill, &mut sink)?;
        if number % PROGRESS_PAGES == 0 {
            progress(u64::from(number), u64::from(shape.pages));
        }
    }
    encoder.finish(checksum, &mut sink)?;
    encoder.give_back();
    progress(u64::from(shape.pages), u64::from(shape.pages));
    Ok(checksum)
}

/// Reads the header of a database file.
///
/// Source: SQLite, "Database File Format", section 1.3.
fn read_shape(mut header: [u8; 100], read: usize, length: u64) -> Result<Shape, String> {
    if read < 100 || header[..16] != *b"SQLite format 3\0" {
        return Err("it does not begin with SQLite's header; an encrypted database cannot be bound".into());
    }
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let page_size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u32::from(size),
    };
    if !is_page_size(page_size) {
        return Err(format!("its page size is {page_size}"));
    }
    if header[18] > 2 || header[19] > 2 || header[18] == 0 || header[19] == 0 {
        return Err(format!("its format versions are {} and {}", header[18], header[19]));
    }
    let (counter, stated, valid_for) = (number(24), number(28), number(92));
    let on_disk = length / u64::from(page_size);
    // The count in the header holds only if the writer that set it was the last one.
    let pages = if stated > 0 && counter == valid_for { u64::from(stated) } else { on_disk };
    if pages == 0 || pages > on_disk {
        return Err(format!("it says {pages} pages and holds {on_disk}"));
    }
    let pages = u32::try_from(pages).map_err(|_| "it has more pages than SQLite can count".to_owned())?;
    let is_wal = header[18] == 2 && header[19] == 2;
    if !is_wal {
        header[18..20].copy_from_slice(&[2, 2]);
        // As SQLite does at a change of the journal mode: a connection elsewhere sees that its cache is old.
        let counter = counter.wrapping_add(1).to_be_bytes();
        header[24..28].copy_from_slice(&counter);
        header[28..32].copy_from_slice(&pages.to_be_bytes());
        header[92..96].copy_from_slice(&counter);
    }
    Ok(Shape { page_size, pages, header, is_wal })
}
