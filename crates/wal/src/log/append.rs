//! Appending: batches, segments, and the files they are made of.

use super::{Log, Owner, Segment, Tail};
use crate::files::{Failure, Files, Spare};
use crate::format::batch::{BATCH_HEADER, BatchHeader, BatchKind, FRAME_HEADER, FrameHeader, Range, Table, file_bytes};
use crate::format::sector::{PAGE_DATA, SectorWriter};
use crate::format::segment::SegmentHeader;
use crate::format::state::OwnerState;
use crate::format::{PAGE, Place};
use crate::types::{AppendError, Frame, Location, Poisoned, ReleaseError};
use std::collections::{BTreeMap, BTreeSet};

/// A file that should be made before it is needed, away from the thread that appends.
pub struct SpareJob {
    files: Files,
    name: String,
    bytes: u64,
}

/// A file that [`SpareJob`] made, or why it could not.
pub struct SpareDone(Result<Spare, Failure>);

impl SpareJob {
    /// Makes the file.
    #[must_use]
    pub fn run(self) -> SpareDone {
        SpareDone(self.files.make_spare(&self.name, self.bytes))
    }
}

/// Which frames go into one batch, and whether it needs a new segment.
struct Part {
    frames: std::ops::Range<usize>,
    fresh: bool,
}

fn data_bytes(frames: &[Frame]) -> u64 {
    let frame = |frame: &Frame| FRAME_HEADER + frame.payload.len() as u64;
    BATCH_HEADER + frames.iter().map(frame).sum::<u64>()
}

impl Log {
    pub(super) fn append_frames(&mut self, frames: &[Frame]) -> Result<Vec<Location>, AppendError> {
        if frames.is_empty() {
            return Ok(Vec::new());
        }
        let parts = self.plan(frames)?;
        self.claim(parts.iter().filter(|part| part.fresh).count())?;
        let mut locations = Vec::with_capacity(frames.len());
        for part in parts {
            if part.fresh {
                self.roll()?;
            }
            self.write_batch(&frames[part.frames], &mut locations)?;
        }
        Ok(locations)
    }

    /// Deals frames out to segments: all to this one, or all to the next, or as they fit from the next one on.
    fn plan(&self, frames: &[Frame]) -> Result<Vec<Part>, AppendError> {
        let here = self.segments.last().filter(|_| self.tail.open);
        if let Some(segment) = here {
            let new = frames.iter().map(|frame| frame.owner).filter(|owner| !segment.ranges.contains_key(owner));
            let owners = segment.ranges.len() + new.collect::<BTreeSet<_>>().len();
            let needed = file_bytes(data_bytes(frames)) + Table::file_bytes(owners);
            if self.tail.write_pos + needed <= segment.bytes {
                return Ok(vec![Part { frames: 0..frames.len(), fresh: false }]);
            }
        }
        let mut parts = Vec::new();
        let (mut start, mut data, mut owners) = (0, BATCH_HEADER, BTreeSet::new());
        for (index, frame) in frames.iter().enumerate() {
            let more = FRAME_HEADER + frame.payload.len() as u64;
            if !self.fits(BATCH_HEADER + more, 1) {
                return Err(self.too_large(frame));
            }
            let count = owners.len() + usize::from(!owners.contains(&frame.owner));
            if !self.fits(data + more, count) {
                parts.push(Part { frames: start..index, fresh: true });
                (start, data) = (index, BATCH_HEADER);
                owners.clear();
            }
            owners.insert(frame.owner);
            data += more;
        }
        parts.push(Part { frames: start..frames.len(), fresh: true });
        Ok(parts)
    }

    /// Whether a batch of so much data of so many owners fits into an empty segment.
    fn fits(&self, data: u64, owners: usize) -> bool {
        PAGE + file_bytes(data) + Table::file_bytes(owners) <= self.options.segment_bytes
    }

    fn too_large(&self, frame: &Frame) -> AppendError {
        let pages = self.options.segment_bytes / PAGE;
        let bytes_max = pages.saturating_sub(2) * PAGE_DATA - BATCH_HEADER - FRAME_HEADER;
        AppendError::TooLarge { bytes: frame.payload.len() as u64, bytes_max }
    }

    /// Makes sure that so many segments can be had.
    fn claim(&mut self, segments: usize) -> Result<(), AppendError> {
        if segments == 0 {
            return Ok(());
        }
        let added = segments as u64 * self.options.segment_bytes;
        if self.bytes() + added > self.options.log_bytes_max {
            match self.make_room() {
                Ok(_) | Err(ReleaseError::Full) => {}
                Err(ReleaseError::Poisoned(error)) => return Err(error.into()),
            }
        }
        let bytes = self.bytes();
        if bytes + added > self.options.log_bytes_max {
            return Err(AppendError::Full { bytes });
        }
        while self.spares.len() < segments {
            let done = self.spare_job().run();
            if !self.take_spare(done)? {
                return Err(AppendError::Full { bytes });
            }
        }
        Ok(())
    }

    fn spare_job(&mut self) -> SpareJob {
        self.next_spare += 1;
        let name = format!("spare-{:016x}", self.next_spare);
        SpareJob { files: self.files.clone(), name, bytes: self.options.segment_bytes }
    }

    /// The file that should be made now, so that the next segment is there when this one is full; `None` if there is
    /// one already, or it is early, or the disk had no space for it and nobody said that there may be some again.
    pub fn prepare(&mut self) -> Option<SpareJob> {
        // At full speed a segment is written in about the time that it takes to make one.
        let begun = self.segments.last().is_some_and(|segment| self.tail.write_pos > segment.bytes / 4);
        let room = self.bytes() + self.options.segment_bytes <= self.options.log_bytes_max;
        let needed = self.spares.is_empty() && room && (begun || self.no_space || !self.tail.open);
        if self.poisoned.is_some() || !needed {
            return None;
        }
        // A full disk is not asked without end.
        let may = std::mem::take(&mut self.retry_space) || !self.no_space;
        may.then(|| self.spare_job())
    }

    /// Takes a file that was made; `false` if there was no space for it.
    /// # Errors
    /// `Poisoned` if it failed for another reason.
    pub fn take_spare(&mut self, done: SpareDone) -> Result<bool, Poisoned> {
        self.alive()?;
        match done.0 {
            Ok(spare) => {
                self.spares.push(spare);
                self.no_space = false;
                self.metrics.segments_made += 1;
                Ok(true)
            }
            Err(failure) if failure.is_full() => {
                self.no_space = true;
                Ok(false)
            }
            Err(failure) => Err(self.poison(&failure)),
        }
    }

    /// Ends the newest segment and begins the next, from a spare that is there.
    fn roll(&mut self) -> Result<(), Poisoned> {
        self.seal()?;
        let Some(spare) = self.spares.pop() else {
            let error = std::io::Error::other("no spare segment was claimed");
            return Err(self.poison(&Failure { what: "beginning a segment".to_owned(), error, unsettled: true }));
        };
        let number = self.next_number;
        let adjacent = self.segments.last().is_some_and(|segment| segment.number + 1 == number);
        let header = SegmentHeader {
            place: Place { identity: self.identity, segment: number },
            bytes: self.options.segment_bytes,
            previous_end: if adjacent { self.tail.record_pos } else { 0 },
            previous_table: self.tail.table.filter(|_| adjacent).unwrap_or(0),
        };
        let mut page = vec![0; PAGE as usize];
        let encoded = header.encode();
        page[..encoded.len()].copy_from_slice(&encoded);
        self.check(spare.file.write_at(&page, 0), "writing the header of", number)?;
        self.check(spare.file.sync_all(), "syncing the header of", number)?;
        let named = self.files.name_segment(&spare.path, number);
        named.map_err(|failure| self.poison(&failure))?;
        self.reader.add(number, spare.file.clone(), self.options.segment_bytes);
        let bytes = self.options.segment_bytes;
        self.segments.push(Segment { number, file: spare.file, bytes, ranges: BTreeMap::new(), garbage: false });
        self.tail = Tail { write_pos: PAGE, record_pos: PAGE, flush_pos: PAGE, open: true, table: None };
        self.next_number = number + 1;
        Ok(())
    }

    /// Syncs the newest segment and writes its table, if it has none and there is room behind what was written.
    fn seal(&mut self) -> Result<(), Poisoned> {
        self.flush()?;
        let Some(segment) = self.segments.last().filter(|_| self.tail.table.is_none()) else { return Ok(()) };
        let (number, file, at) = (segment.number, segment.file.clone(), self.tail.write_pos);
        self.tail.open = false;
        if at + Table::file_bytes(segment.ranges.len()) > segment.bytes {
            return Ok(());
        }
        let table = Table { frames_end: self.tail.record_pos, owners: segment.ranges.clone() };
        let mut buffer = std::mem::take(&mut self.buffer);
        table.encode(Place { identity: self.identity, segment: number }, at, &mut buffer);
        let written = file.write_at(&buffer, at);
        self.buffer = buffer;
        self.check(written, "writing the table of", number)?;
        self.check(file.sync_data(), "syncing the table of", number)?;
        self.tail.table = Some(at);
        Ok(())
    }

    fn write_batch(&mut self, frames: &[Frame], locations: &mut Vec<Location>) -> Result<(), Poisoned> {
        let Some(segment) = self.segments.last_mut() else { return Ok(()) };
        let (number, file) = (segment.number, segment.file.clone());
        let place = Place { identity: self.identity, segment: number };
        let start = self.tail.write_pos;
        let header = BatchHeader {
            kind: BatchKind::Frames,
            count: frames.len() as u32,
            length: data_bytes(frames),
            synced: self.tail.flush_pos,
        };
        let mut writer = SectorWriter::new(place, start, &mut self.buffer);
        writer.write(&header.encode(place, start));
        for frame in frames {
            let owner = self
                .owners
                .entry(frame.owner)
                .or_insert_with(|| Owner { state: OwnerState::default(), next_sequence: 1 });
            let header = FrameHeader {
                payload_crc: crc32c::crc32c(&frame.payload),
                length: frame.payload.len() as u32,
                kind: frame.kind,
                owner: frame.owner,
                position: frame.position,
                sequence: owner.next_sequence,
            };
            segment
                .ranges
                .entry(frame.owner)
                .and_modify(|range| range.extend(frame.position, header.sequence))
                .or_insert_with(|| Range::of(frame.position, header.sequence));
            owner.next_sequence += 1;
            let offset = writer.offset();
            writer.write(&header.encode(place, offset));
            let location = Location { segment: number, offset: writer.offset(), length: header.length };
            locations.push(location);
            writer.write(&frame.payload);
            self.metrics.frames += 1;
            self.metrics.bytes += frame.payload.len() as u64;
        }
        writer.finish();
        let written = file.write_at(&self.buffer, start);
        self.check(written, "writing to", number)?;
        self.tail.write_pos = start + self.buffer.len() as u64;
        self.tail.record_pos = self.tail.write_pos;
        self.metrics.batches += 1;
        Ok(())
    }
}
