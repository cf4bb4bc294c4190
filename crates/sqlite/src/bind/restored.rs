//! A restored database: records in, a bound database out.

use super::{BindError, BoundStream, Lineage, laydown};
use crate::engine::Layout;
use crate::engine::PageNumber;
use crate::engine::apply::Applier;
use crate::engine::open::{bytes_of, fingerprint, lock_process, remove_if_there};
use crate::engine::pages::PageTable;
use crate::meta::{Checkpoint, Meta};
use crate::record::{Decoder, Event, page_hash};
use highwater_disk::{Disk, File, OpenMode};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes of an incomplete record kept in memory; a larger one goes to a file.
///
/// Most commits are a few KiB, and one batch is at most 4 MiB.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// A database that is being restored from its stream: nothing lies at its path until [`Restoring::finish`].
///
/// A record is applied once it is whole, so that a run which a claim voids leaves no trace. The first one is applied
/// as it arrives, into an empty file: it may be a whole database.
pub struct Restoring {
    disk: Arc<dyn Disk>,
    layout: Layout,
    _process: Arc<dyn File>,
    file: Arc<dyn File>,
    /// Sees the bytes as they arrive.
    arriving: Decoder,
    record: Spool,
    state: State,
    /// Whether the file holds nothing of a voided first record.
    emptied: bool,
}

/// The database so far.
struct State {
    lsn: u64,
    page_size: u32,
    table: PageTable,
    applier: Option<Applier>,
    hashes: Vec<(PageNumber, u64)>,
}

impl Restoring {
    /// Starts: refuses a path that holds something, and clears what an earlier attempt left.
    /// # Errors
    /// See [`BindError`].
    pub fn begin(disk: &Arc<dyn Disk>, path: &Path) -> Result<Self, BindError> {
        let layout = Layout::of(path);
        let io_error = BindError::io(&layout);
        let taken = |disk: &dyn Disk| -> io::Result<bool> {
            Ok(disk.exists(&layout.meta)? || bytes_of(disk, &layout.database)? > 0)
        };
        let path = layout.database.display().to_string();
        if taken(&**disk).map_err(&io_error)? {
            return Err(BindError::Exists { path });
        }
        disk.create_directory(&layout.log).map_err(&io_error)?;
        let process = lock_process(&**disk, &layout)?;
        if taken(&**disk).map_err(&io_error)? {
            return Err(BindError::Exists { path });
        }
        laydown::clear(&**disk, &layout).map_err(&io_error)?;
        let file = disk.open(&layout.database_new, OpenMode::CreateNew).map_err(&io_error)?;
        let arriving = Decoder::new().map_err(&io_error)?;
        let state = State { lsn: 0, page_size: 0, table: PageTable::new(0, 0, 0), applier: None, hashes: Vec::new() };
        let record = Spool::new(disk.clone(), &layout);
        Ok(Self { disk: disk.clone(), layout, _process: process, file, arriving, record, state, emptied: true })
    }

    /// Takes record bytes, in any pieces; each record is checked, and applied as it becomes whole.
    /// # Errors
    /// `InvalidData` naming the commit, or the system's; the attempt is void then.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.empty()?;
        let mut input = bytes;
        loop {
            let before = input;
            let event = self.arriving.next(&mut input).map_err(|error| self.state.invalid(&error.to_string()))?;
            let taken = before.len() - input.len();
            if self.state.lsn == 0 {
                let Some(event) = event else { return Ok(()) };
                self.state.event(&self.file, &event)?;
                // From the second record on, the bytes are only checked as they arrive.
                if self.state.lsn == 1 {
                    self.arriving = Decoder::checking();
                }
                continue;
            }
            self.record.append(&before[..taken])?;
            match event {
                None => return Ok(()),
                Some(Event::Begin(header)) => self.state.check(header.lsn, header.page_size)?,
                Some(Event::Pages { .. }) => {}
                Some(Event::Commit { .. }) => {
                    let (file, state) = (&self.file, &mut self.state);
                    self.record.drain(&mut |event| state.event(file, event))?;
                }
            }
        }
    }

    /// Forgets the bytes of an incomplete record: a claim voided its run.
    pub fn void(&mut self) {
        self.arriving.reset();
        self.record.clear();
        if self.state.lsn == 0 {
            self.state.applier = None;
            self.state.hashes.clear();
            self.emptied = false;
        }
    }

    /// Takes away what a voided first record left in the file.
    fn empty(&mut self) -> io::Result<()> {
        if !self.emptied {
            self.file.set_length(0)?;
            self.emptied = true;
        }
        Ok(())
    }

    /// The last commit applied.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.state.lsn
    }

    /// Pages of the database after it.
    #[must_use]
    pub fn pages(&self) -> PageNumber {
        self.state.table.pages()
    }

    /// Bytes that arrived of a record that is not whole.
    #[must_use]
    pub fn partial_bytes(&self) -> u64 {
        self.arriving.partial_bytes()
    }

    /// Syncs, and gives the database its binding and its name. An incomplete record is left out.
    /// # Errors
    /// See [`BindError`]; `Empty` if no commit was whole.
    pub fn finish(self, stream: &BoundStream) -> Result<(), BindError> {
        let lineage = laydown::fresh_lineage().map_err(BindError::io(&self.layout))?;
        self.finish_as(stream, lineage)
    }

    /// As [`Restoring::finish`], with the name that the new log gets; for simulations, which draw everything from one
    /// seed.
    /// # Errors
    /// As [`Restoring::finish`].
    pub fn finish_as(mut self, stream: &BoundStream, lineage: Lineage) -> Result<(), BindError> {
        let io_error = BindError::io(&self.layout);
        super::check_stream(stream)?;
        self.void();
        self.empty().map_err(&io_error)?;
        let Some(applier) = self.state.applier.take() else { return Err(BindError::Empty) };
        applier.finish().map_err(&io_error)?;
        let State { lsn, page_size, table, .. } = &self.state;
        let binding = laydown::new_binding(stream, *page_size, lineage);
        let segment = laydown::FirstSegment::create(&*self.disk, &self.layout, binding.lineage, lsn + 1);
        let segment = segment.map_err(&io_error)?;
        segment.sync(&*self.disk, &self.layout).map_err(&io_error)?;
        let (pages, checksum) = (table.pages(), table.checksum());
        let checkpoint = Checkpoint { position: segment.end, lsn: *lsn, pages, checksum };
        let fingerprint = Some(fingerprint(&*self.file).map_err(&io_error)?);
        let meta = Meta::new(binding, checkpoint, stream.end);
        laydown::commit(&*self.disk, &self.layout, &Meta { fingerprint, acknowledged_lsn: *lsn, ..meta })
    }

    /// Removes what was laid down so far, as far as that is possible.
    /// # Errors
    /// The system's.
    pub fn abandon(mut self) -> io::Result<()> {
        self.record.clear();
        laydown::clear(&*self.disk, &self.layout)?;
        remove_if_there(&*self.disk, &self.layout.lock)
    }
}

impl State {
    fn invalid(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("commit {} of the stream: {why}", self.lsn + 1))
    }

    fn check(&self, lsn: u64, page_size: u32) -> io::Result<()> {
        if lsn != self.lsn + 1 {
            return Err(self.invalid(&format!("commit {lsn} follows commit {}", self.lsn)));
        }
        if self.lsn > 0 && page_size != self.page_size {
            return Err(self.invalid(&format!("its pages have {page_size} bytes, not {}", self.page_size)));
        }
        Ok(())
    }

    fn event(&mut self, file: &Arc<dyn File>, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::Begin(header) => {
                self.check(header.lsn, header.page_size)?;
                self.hashes.clear();
                if self.applier.is_none() {
                    self.page_size = header.page_size;
                    self.table = PageTable::new(header.page_size, 0, 0);
                    self.applier = Some(Applier::new(file.clone(), header.page_size, 0)?);
                }
            }
            Event::Pages { numbers, images } => {
                let pages = numbers.iter().zip(images.chunks_exact(self.page_size as usize));
                self.hashes.extend(pages.map(|(number, page)| (*number, page_hash(*number, page))));
            }
            Event::Commit { header, checksum, .. } => {
                let hashes = std::mem::take(&mut self.hashes);
                let change = self.table.change(header.pages_after, hashes, &**file)?;
                if change.checksum != *checksum {
                    return Err(self.invalid("the database's checksum after it differs from the one it carries"));
                }
                self.table.apply(change);
                self.lsn = header.lsn;
            }
        }
        self.applier.as_mut().map_or(Ok(()), |applier| applier.event(event))
    }
}

/// The bytes of the record that is arriving.
struct Spool {
    disk: Arc<dyn Disk>,
    path: std::path::PathBuf,
    memory: Vec<u8>,
    file: Option<(Arc<dyn File>, u64)>,
}

impl Spool {
    fn new(disk: Arc<dyn Disk>, layout: &Layout) -> Self {
        Self { disk, path: layout.record_new.clone(), memory: Vec::new(), file: None }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.memory.extend_from_slice(bytes);
        if self.memory.len() > RECORD_BYTES_MAX {
            let (file, length) = match self.file.take() {
                Some(spilled) => spilled,
                None => (self.disk.open(&self.path, OpenMode::Create)?, 0),
            };
            file.write_at(&self.memory, length)?;
            self.file = Some((file, length + self.memory.len() as u64));
            self.memory.clear();
        }
        Ok(())
    }

    /// Gives the record's events to `each` and forgets it.
    fn drain(&mut self, each: &mut dyn FnMut(&Event<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut decoder = Decoder::new()?;
        let mut decode = |mut input: &[u8]| -> io::Result<()> {
            while let Some(event) = decoder.next(&mut input)? {
                each(&event)?;
            }
            Ok(())
        };
        if let Some((file, length)) = &self.file {
            let mut block = vec![0; RECORD_BYTES_MAX.min(1 << 20)];
            let mut at = 0;
            while at < *length {
                let now = (*length - at).min(block.len() as u64) as usize;
                file.read_exact_at(&mut block[..now], at)?;
                decode(&block[..now])?;
                at += now as u64;
            }
        }
        decode(&self.memory)?;
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.memory.clear();
        if self.file.take().is_some() {
            // A file that stays is overwritten by the next record, or removed by the next attempt.
            drop(self.disk.remove(&self.path));
        }
    }
}
