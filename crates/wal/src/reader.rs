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
        let mut payload = Vec::with_capacity(location.length as usize);
        self.read_into(location, &mut payload, &mut Vec::new())?;
        Ok(payload.into())
    }

    /// The same, appended to `out`; `scratch` is memory that is used again from one read to the next.
    /// # Errors
    /// As [`Self::read`]; `out` is then as it was.
    pub fn read_into(&self, location: Location, out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<(), ReadError> {
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
        let raw_bytes = (end - start) as usize;
        if scratch.len() < raw_bytes {
            scratch.resize(raw_bytes, 0);
        }
        let raw = &mut scratch[..raw_bytes];
        file.read_exact_at(raw, start).map_err(|error| ReadError::Io { segment, error })?;
        let begun = out.len();
        let header = gather(raw, start, out);
        let place = Place { identity: self.identity, segment };
        let header = FrameHeader::decode(&header, place, start).filter(|header| header.length == length);
        let body = &out[begun..];
        match header {
            Some(header) if body.len() == length as usize && crc32c::crc32c(body) == header.payload_crc => Ok(()),
            // The file may have begun its next life while it was read.
            _ => {
                out.truncate(begun);
                self.readable(segment).and(Err(damaged))
            }
        }
    }

    fn readable(&self, segment: u64) -> Result<Readable, ReadError> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.get(&segment).cloned().ok_or(ReadError::Reclaimed(segment))
    }
}

/// Takes the marks out of a frame that starts at the file offset `start`: gives its header and appends its payload.
fn gather(bytes: &[u8], start: u64, payload: &mut Vec<u8>) -> [u8; FRAME_HEADER as usize] {
    let mut header = [0; FRAME_HEADER as usize];
    let (mut from, mut headed) = (0, 0);
    while from < bytes.len() {
        let within = (start as usize + from) % SECTOR as usize;
        let data = (DATA as usize).saturating_sub(within).min(bytes.len() - from);
        let piece = &bytes[from..from + data];
        let (head, rest) = piece.split_at(piece.len().min(header.len() - headed));
        header[headed..headed + head.len()].copy_from_slice(head);
        headed += head.len();
        payload.extend_from_slice(rest);
        from += data + (SECTOR - DATA) as usize;
    }
    header
}
