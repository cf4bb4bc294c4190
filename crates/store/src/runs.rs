//! Laying payload down in data files.

use crate::data::{self, BLOCK_PAYLOAD_BYTES, PAGE_BYTES};
use crate::extent::FileExtent;
use crate::files::Files;
use highwater_disk::{File, OpenMode};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes collected for one write.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes that are written before they are synced, so that a checkpoint that has much to do neither fills the system's cache
/// nor lets one sync of the log wait for all of it. Smaller pieces make a checkpoint slower than the log at its fastest: each
/// waits behind a batch of the log. With two mebibytes the log filled up.
const SYNC_BYTES: u64 = 32 << 20;
/// The smallest part of a run that is split off to fill a file; less is left unused, at most 0.4 % of it.
const SPLIT_BYTES_MIN: u64 = 256 << 10;

/// The data file that the next run goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Active {
    /// Its number.
    pub file: u32,
    /// Position behind the last byte that an index names or may name.
    pub end: u32,
}

/// What a step on a data file failed with.
#[derive(Debug)]
pub(crate) struct WriteFault {
    pub path: PathBuf,
    pub source: io::Error,
    /// Whether a sync failed: what of the file is on disk is unknown then.
    pub sync: bool,
}

/// An open file and what was not written to it yet.
struct Output {
    number: u32,
    file: Arc<dyn File>,
    /// Where `buffer` goes.
    position: u32,
    buffer: Vec<u8>,
    /// Bytes before `position` that were not synced.
    unsynced: u64,
    /// Where the first byte of this writer goes: behind the file's end, on a page of its own.
    begin: u32,
}

impl Output {
    fn end(&self) -> u64 {
        u64::from(self.position) + self.buffer.len() as u64
    }

    /// The file and its bytes, if something was written to it. One that was opened and had no room ends where it did.
    fn grown(&self) -> Option<(u32, u64)> {
        (self.end() > u64::from(self.begin)).then(|| (self.number, self.end()))
    }
}

/// A run on its way: its extents are decided before its bytes come.
struct Run {
    object: u64,
    /// Object offset of the next byte.
    next: u64,
    /// Object offset behind the last one.
    end: u64,
    extents: Vec<FileExtent>,
    /// Payload of the block being filled.
    block: Vec<u8>,
}

/// Writes runs into data files; each file is synced once it is left, and the last one by [`RunWriter::sync`].
pub(crate) struct RunWriter<'a> {
    files: &'a Files,
    file_bytes_max: u32,
    /// Where the writer began.
    before: Option<Active>,
    next_file: u32,
    output: Option<Output>,
    run: Option<Run>,
    /// Files that this writer made.
    made: Vec<u32>,
    /// Files that this writer has left, and their bytes.
    left: Vec<(u32, u64)>,
}

impl<'a> RunWriter<'a> {
    pub fn new(files: &'a Files, file_bytes_max: u32, active: Option<Active>, next_file: u32) -> Self {
        Self {
            files,
            file_bytes_max,
            before: active,
            next_file,
            output: None,
            run: None,
            made: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Files that this writer made.
    pub fn made(&self) -> &[u32] {
        &self.made
    }

    /// Files that were written, and their bytes.
    pub fn grown(&self) -> Vec<(u32, u64)> {
        let open = self.output.as_ref().and_then(Output::grown);
        self.left.iter().copied().chain(open).collect()
    }

    /// Number of the next data file.
    pub fn next_file(&self) -> u32 {
        self.next_file
    }

    /// Begins the run of the object offsets `start..end`.
    pub fn begin(&mut self, object: u64, start: u64, end: u64) {
        assert!(self.run.is_none() && start < end, "runs follow each other, and none is empty");
        self.run = Some(Run { object, next: start, end, extents: Vec::new(), block: Vec::new() });
    }

    /// Adds the run's next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), WriteFault> {
        let mut run = self.run.take().expect("a run was begun");
        while !bytes.is_empty() {
            if run.extents.last().is_none_or(|extent| extent.end() == run.next) {
                let extent = self.place(run.next, run.end - run.next)?;
                run.extents.push(extent);
            }
            let extent_end = run.extents.last().map_or(run.end, FileExtent::end);
            let room = (BLOCK_PAYLOAD_BYTES - run.block.len()).min((extent_end - run.next) as usize);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            run.block.extend_from_slice(now);
            run.next += now.len() as u64;
            bytes = later;
            if run.block.len() == BLOCK_PAYLOAD_BYTES || run.next == extent_end {
                self.block(run.object, run.next - run.block.len() as u64, &run.block)?;
                run.block.clear();
            }
        }
        self.run = Some(run);
        Ok(())
    }

    /// Ends the run, all of whose bytes were pushed; returns where it lies.
    pub fn end(&mut self) -> Vec<FileExtent> {
        let run = self.run.take().expect("a run was begun");
        assert!(run.next == run.end && run.block.is_empty(), "every byte of the run was pushed");
        run.extents
    }

    /// Decides where the next extent of at most `length` bytes goes; opens a file if it must.
    fn place(&mut self, start: u64, length: u64) -> Result<FileExtent, WriteFault> {
        if self.output.is_none()
            && let Some(active) = self.before
        {
            self.output = self.reopen(active)?;
        }
        let fits = |output: &Output| {
            data::payload_within(u64::from(self.file_bytes_max).saturating_sub(output.end()))
                >= length.min(SPLIT_BYTES_MIN)
        };
        if !self.output.as_ref().is_some_and(fits) {
            self.sync()?;
            self.left.extend(self.output.as_ref().and_then(Output::grown));
            self.output = Some(self.make()?);
        }
        let output = self.output.as_ref().expect("opened above");
        let room = data::payload_within(u64::from(self.file_bytes_max) - output.end());
        let length = u32::try_from(length.min(room)).expect("a file is below 4 GiB");
        Ok(FileExtent { start, length, file: output.number, position: output.end() as u32 })
    }

    /// The active file, unless it is too full for anything.
    fn reopen(&self, active: Active) -> Result<Option<Output>, WriteFault> {
        let position = active.end.next_multiple_of(PAGE_BYTES);
        if position >= self.file_bytes_max {
            return Ok(None);
        }
        let path = self.files.path(active.file);
        let opened = self.files.disk.open(&path, OpenMode::Write).and_then(|file| {
            // What a failed sync left behind the end makes the file seem longer than the disk has it, and no later sync would
            // make that length durable: it must change.
            if file.length()? > u64::from(active.end) {
                file.set_length(u64::from(active.end))?;
            }
            Ok(file)
        });
        match opened {
            Ok(file) => Ok(Some(Output {
                number: active.file,
                file,
                position,
                buffer: Vec::new(),
                unsynced: 0,
                begin: position,
            })),
            Err(source) => Err(WriteFault { path, source, sync: false }),
        }
    }

    fn make(&mut self) -> Result<Output, WriteFault> {
        let number = self.next_file;
        let path = self.files.path(number);
        // The number is spent even if this fails: the name may be there all the same.
        self.next_file += 1;
        self.made.push(number);
        let opened = self.files.disk.open(&path, OpenMode::CreateNew);
        let file = opened.map_err(|source| WriteFault { path, source, sync: false })?;
        let buffer = data::encode_file_header(self.files.owner, number);
        Ok(Output { number, file, position: 0, buffer, unsynced: 0, begin: 0 })
    }

    fn block(&mut self, object: u64, start: u64, payload: &[u8]) -> Result<(), WriteFault> {
        let output = self.output.as_mut().expect("an extent was placed");
        data::encode_block(&mut output.buffer, output.number, object, start, payload);
        if output.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), WriteFault> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let written = output.file.write_at(&output.buffer, u64::from(output.position));
        written.map_err(|source| WriteFault { path: self.files.path(output.number), source, sync: false })?;
        output.position += output.buffer.len() as u32;
        output.unsynced += output.buffer.len() as u64;
        output.buffer.clear();
        if output.unsynced >= SYNC_BYTES { self.settle() } else { Ok(()) }
    }

    /// Syncs what was written. It leaves the system's cache: it was read once from the log, which is still there, and
    /// whatever is read often comes back by itself. Memory that a file takes for good is new memory, which costs a
    /// virtual machine ten times as much as the copy.
    fn settle(&mut self) -> Result<(), WriteFault> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let synced = output.file.sync_data();
        synced.map_err(|source| WriteFault { path: self.files.path(output.number), source, sync: true })?;
        let length = std::mem::take(&mut output.unsynced);
        // Advice only.
        drop(output.file.forget_cached(u64::from(output.position) - length, length));
        Ok(())
    }

    /// Writes what is left and syncs the file.
    pub fn sync(&mut self) -> Result<(), WriteFault> {
        self.flush()?;
        self.settle()
    }

    /// The file that the next checkpoint goes on with.
    pub fn active(&self) -> Option<Active> {
        let written = self.output.as_ref().map(|output| Active { file: output.number, end: output.end() as u32 });
        written.or(self.before)
    }

    /// Takes away what was written, as far as that is possible; nothing names it.
    ///
    /// Returns the file to go on with: the one of before, if it is `sound` and could be cut to what it was.
    pub fn undo(mut self, sound: bool) -> Option<Active> {
        let touched = self.output.take().is_some();
        for file in &self.made {
            // A name that stays is an orphan, which the next open removes.
            drop(self.files.disk.remove(&self.files.path(*file)));
        }
        let active = self.before.filter(|_| sound)?;
        if !touched {
            return Some(active);
        }
        let opened = self.files.disk.open(&self.files.path(active.file), OpenMode::Write);
        opened.and_then(|file| file.set_length(u64::from(active.end))).ok().map(|()| active)
    }
}
