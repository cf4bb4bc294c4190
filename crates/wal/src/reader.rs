//! Frames by location.

use crate::format::Place;
use crate::format::batch::{BATCH_HEADER, FRAME_HEADER, FrameHeader};
use crate::format::sector::{DATA, PAGE_DATA, SECTOR, data_offset, file_offset};
use crate::types::{Location, ReadError};
use bytes::Bytes;
use highwater_disk::File;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Reads frames, from any thread, while the log goes on.
#[derive(Clone)]
pub struct LogReader {
    identity: u64,
    segments: Arc<RwLock<BTreeMap<u64, Readable>>>,
}

#[derive(Clone)]
struct Readable {
    file: Arc<dyn File>,
    bytes: u64,
}

impl LogReader {
    pub(crate) fn new(identity: u64) -> Self {
        Self { identity, segments: Arc::default() }
    }

    pub(crate) fn add(&self, segment: u64, file: Arc<dyn File>, bytes: u64) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.insert(segment, Readable { file, bytes });
    }

    pub(crate) fn remove(&self, segment: u64) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&segment);
    }

    /// Reads a frame's payload, synced or not, and verifies its checksums.
    /// # Errors
    /// `Reclaimed` if its segment was given back, `Damaged` if the bytes are not what was appended, or the system's.
    pub fn read(&self, location: Location) -> Result<Bytes, ReadError> {
        let Location { segment, offset, length } = location;
        let Readable { file, bytes } = self.readable(segment)?;
        let damaged = ReadError::Damaged { segment, offset };
        // Before anything is allocated: is there room for such a frame at all?
        if offset % SECTOR >= DATA || offset >= bytes {
            return Err(damaged);
        }
        let payload = data_offset(offset);
        let end = file_offset(payload + u64::from(length));
        if payload < PAGE_DATA + BATCH_HEADER + FRAME_HEADER || end > bytes {
            return Err(damaged);
        }
        let start = file_offset(payload - FRAME_HEADER);
        let mut raw = vec![0; (end - start) as usize];
        file.read_exact_at(&mut raw, start).map_err(|error| ReadError::Io { segment, error })?;
        gather(&mut raw, start);
        let frame = Bytes::from(raw);
        let place = Place { identity: self.identity, segment };
        let header = FrameHeader::decode(&frame, place, start).filter(|header| header.length == length);
        let body = frame.slice((FRAME_HEADER as usize).min(frame.len())..);
        match header {
            Some(header) if crc32c::crc32c(&body) == header.payload_crc && body.len() == length as usize => Ok(body),
            // The file may have begun its next life while it was read.
            _ => self.readable(segment).and(Err(damaged)),
        }
    }

    fn readable(&self, segment: u64) -> Result<Readable, ReadError> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.get(&segment).cloned().ok_or(ReadError::Reclaimed(segment))
    }
}

/// Takes the marks out of bytes that start at the file offset `start`.
fn gather(bytes: &mut Vec<u8>, start: u64) {
    let mut from = 0;
    let mut to = 0;
    while from < bytes.len() {
        let within = (start as usize + from) % SECTOR as usize;
        let data = (DATA as usize).saturating_sub(within).min(bytes.len() - from);
        bytes.copy_within(from..from + data, to);
        to += data;
        from += data + (SECTOR - DATA) as usize;
    }
    bytes.truncate(to);
}
