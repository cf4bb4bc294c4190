//! From pages to record bytes, a chunk at a time.

use super::{CHUNK_BYTES_MAX, COMPRESSION_LEVEL, Header, TRAILER_MAGIC, page_hash};
use crate::engine::PageNumber;
use std::io;
use std::sync::Mutex;
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

/// Where finished bytes go, in order.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// Finished bytes kept before they go to the sink, so that a small commit is one write.
const OUT_BYTES_MAX: usize = CHUNK_BYTES_MAX;

/// Idle encoders kept by the process: as many as commit at the same moment on a common machine. One takes about
/// 1.5 MiB, which an idle database must not hold.
const IDLE_MAX: usize = 4;

static IDLE: Mutex<Vec<Encoder>> = Mutex::new(Vec::new());

/// Makes records, one after another. Holds one chunk raw, one compressed, and the bytes of a small record.
pub struct Encoder {
    compressor: Compressor<'static>,
    header: Header,
    numbers: Vec<PageNumber>,
    raw: Vec<u8>,
    packed: Vec<u8>,
    out: Vec<u8>,
    checksum: u32,
    length: u64,
    pages: u32,
}

impl Encoder {
    /// An encoder of the process's pool; [`Encoder::give_back`] returns it.
    /// # Errors
    /// `OutOfMemory`-like errors of the compressor.
    pub fn take() -> io::Result<Self> {
        // Never waited for: in a forked child the one who held the lock may not exist.
        let idle = IDLE.try_lock().ok().and_then(|mut idle| idle.pop());
        idle.map_or_else(Self::new, Ok)
    }

    /// Keeps the encoder for the next commit of any database.
    pub fn give_back(self) {
        if let Ok(mut idle) = IDLE.try_lock()
            && idle.len() < IDLE_MAX
        {
            idle.push(self);
        }
    }

    fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(COMPRESSION_LEVEL)?,
            header: Header { lsn: 0, synced: 0, page_size: 512, pages_after: 1, page_count: 0 },
            numbers: Vec::new(),
            raw: Vec::new(),
            packed: Vec::new(),
            out: Vec::new(),
            checksum: 0,
            length: 0,
            pages: 0,
        })
    }

    /// Begins a record; one that was begun before and not finished is forgotten.
    pub fn begin(&mut self, header: Header) {
        self.header = header;
        self.numbers.clear();
        self.raw.clear();
        self.out.clear();
        (self.checksum, self.length, self.pages) = (0, 0, 0);
        let bytes = header.encode();
        let (covered, checksum) = bytes.split_at(super::HEADER_BYTES - super::CHECKSUM_BYTES);
        self.put(covered);
        self.put_uncovered(checksum);
    }

    /// Adds the page `number`, whose image `fill` writes into the buffer it is given; answers the page's hash.
    ///
    /// Pages come in ascending order, at most as many as the header says, none past its end.
    /// # Errors
    /// Those of `fill` and of the sink; the record is then void.
    pub fn page(
        &mut self,
        number: PageNumber,
        fill: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
        sink: Sink<'_>,
    ) -> io::Result<u64> {
        let start = self.raw.len();
        self.raw.resize(start + self.header.page_size as usize, 0);
        fill(&mut self.raw[start..])?;
        let hash = page_hash(number, &self.raw[start..]);
        self.numbers.push(number);
        self.pages += 1;
        if self.numbers.len() == self.header.chunk_pages() {
            self.end_chunk(sink)?;
        }
        Ok(hash)
    }

    /// Ends the record with the database checksum after it, and hands its last bytes to the sink; answers the
    /// record's length.
    /// # Errors
    /// Those of the sink; `InvalidInput` if the header announced another number of pages.
    pub fn finish(&mut self, database_checksum: u64, sink: Sink<'_>) -> io::Result<u64> {
        if self.pages != self.header.page_count {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a record has other pages than its header says"));
        }
        if !self.numbers.is_empty() {
            self.end_chunk(sink)?;
        }
        let mut trailer = [0; super::TRAILER_BYTES];
        let length = self.length + trailer.len() as u64;
        trailer[..4].copy_from_slice(&TRAILER_MAGIC);
        trailer[4..12].copy_from_slice(&database_checksum.to_le_bytes());
        trailer[12..20].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c::crc32c_append(self.checksum, &trailer[..20]);
        trailer[20..].copy_from_slice(&checksum.to_le_bytes());
        self.put_uncovered(&trailer);
        self.flush(sink)?;
        Ok(length)
    }

    fn end_chunk(&mut self, sink: Sink<'_>) -> io::Result<()> {
        self.packed.clear();
        self.packed.reserve(compress_bound(self.raw.len()));
        self.compressor.compress_to_buffer(&self.raw, &mut self.packed)?;
        let mut head = Vec::with_capacity(super::CHUNK_HEAD_BYTES + 4 * self.numbers.len());
        head.extend_from_slice(&(self.numbers.len() as u32).to_le_bytes());
        head.extend_from_slice(&(self.packed.len() as u32).to_le_bytes());
        self.numbers.iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head), &self.packed);
        self.put(&head);
        let packed = std::mem::take(&mut self.packed);
        self.put(&packed);
        self.packed = packed;
        self.put_uncovered(&checksum.to_le_bytes());
        self.numbers.clear();
        self.raw.clear();
        if self.out.len() >= OUT_BYTES_MAX { self.flush(sink) } else { Ok(()) }
    }

    /// Adds bytes under the record's checksum.
    fn put(&mut self, bytes: &[u8]) {
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.put_uncovered(bytes);
    }

    /// Adds a checksum. The record's own checksum leaves the others out: a CRC that runs over data and then over the
    /// data's CRC no longer depends on the data.
    fn put_uncovered(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.out.extend_from_slice(bytes);
    }

    fn flush(&mut self, sink: Sink<'_>) -> io::Result<()> {
        sink(&self.out)?;
        self.out.clear();
        Ok(())
    }
}
