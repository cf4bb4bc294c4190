//! From record bytes to pages, whatever pieces the bytes come in.

use super::{CHECKSUM_BYTES, CHUNK_HEAD_BYTES, HEADER_BYTES, Header, TRAILER_BYTES, TRAILER_MAGIC, lock_page};
use crate::engine::PageNumber;
use std::io;
use thiserror::Error;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::compress_bound;

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordError {
    /// No record begins here.
    #[error("no record begins here")]
    Magic,
    /// The header is damaged.
    #[error("the record's header is damaged")]
    HeaderChecksum,
    /// A later program wrote the record.
    #[error("the record has format version {0}, which this program does not know")]
    Version(u16),
    /// A field holds what it cannot.
    #[error("the record's field {0} holds a value that it cannot have")]
    Field(&'static str),
    /// A chunk of pages is damaged.
    #[error("a chunk of the record is damaged")]
    ChunkChecksum,
    /// A chunk's images do not decompress to their size.
    #[error("a chunk of the record does not decompress")]
    Compression,
    /// The record's end is damaged, or the record was put together from two.
    #[error("the record's end is damaged")]
    TrailerChecksum,
}

impl From<RecordError> for io::Error {
    fn from(error: RecordError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// What a decoder found.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A record begins.
    Begin(Header),
    /// Pages of it; `images` holds them one after another, or nothing if the decoder only checks.
    Pages {
        /// Their numbers, ascending.
        numbers: &'a [PageNumber],
        /// Their images.
        images: &'a [u8],
    },
    /// The record is whole.
    Commit {
        /// Its header.
        header: Header,
        /// The database checksum after it.
        checksum: u64,
        /// Its bytes.
        length: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Header,
    ChunkHead,
    Chunk { pages: usize, packed: usize },
    Trailer,
}

/// Reads records from bytes that arrive in any pieces. Holds one chunk; checks every cap before it allocates and every
/// checksum before it uses what is under it.
pub struct Decoder {
    decompressor: Option<Decompressor<'static>>,
    expect: Expect,
    header: Header,
    buffer: Vec<u8>,
    numbers: Vec<PageNumber>,
    images: Vec<u8>,
    pages_left: u32,
    page_last: PageNumber,
    checksum: u32,
    length: u64,
    /// The last event lies in `buffer` and the next call drops it.
    done: bool,
}

impl Decoder {
    /// A decoder that gives the images.
    /// # Errors
    /// Those of the decompressor.
    pub fn new() -> io::Result<Self> {
        Ok(Self { decompressor: Some(Decompressor::new()?), ..Self::checking() })
    }

    /// A decoder that checks everything and decompresses nothing.
    #[must_use]
    pub fn checking() -> Self {
        Self {
            decompressor: None,
            expect: Expect::Header,
            header: Header { lsn: 0, synced: 0, page_size: 512, pages_after: 1, page_count: 0 },
            buffer: Vec::new(),
            numbers: Vec::new(),
            images: Vec::new(),
            pages_left: 0,
            page_last: 0,
            checksum: 0,
            length: 0,
            done: false,
        }
    }

    /// Whether the bytes taken so far end with a whole record.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.expect == Expect::Header && (self.done || self.buffer.is_empty())
    }

    /// Bytes taken of the record that is not whole yet.
    #[must_use]
    pub fn partial_bytes(&self) -> u64 {
        if self.at_boundary() { 0 } else { self.length + if self.done { 0 } else { self.buffer.len() as u64 } }
    }

    /// Forgets the record that is not whole yet.
    pub fn reset(&mut self) {
        self.buffer.clear();
        self.length = 0;
        self.done = false;
        self.length = 0;
        self.expect = Expect::Header;
    }

    /// Takes bytes off the front of `input` up to the next event; `None` once all are taken.
    /// # Errors
    /// See [`RecordError`]; the decoder is of no use afterwards unless it is reset.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Event<'_>>, RecordError> {
        loop {
            if std::mem::take(&mut self.done) {
                self.buffer.clear();
            }
            let need = self.need();
            let take = input.len().min(need - self.buffer.len());
            let (now, rest) = input.split_at(take);
            self.buffer.extend_from_slice(now);
            *input = rest;
            if self.buffer.len() < need {
                return Ok(None);
            }
            match self.expect {
                Expect::Header => return self.header().map(|header| Some(Event::Begin(header))),
                // Its bytes stay in the buffer: the chunk's checksum covers them.
                Expect::ChunkHead => self.chunk_head()?,
                Expect::Chunk { pages, packed } => {
                    self.chunk(pages, packed)?;
                    return Ok(Some(Event::Pages { numbers: &self.numbers, images: &self.images }));
                }
                Expect::Trailer => {
                    let (checksum, length) = self.trailer()?;
                    return Ok(Some(Event::Commit { header: self.header, checksum, length }));
                }
            }
        }
    }

    fn need(&self) -> usize {
        match self.expect {
            Expect::Header => HEADER_BYTES,
            Expect::ChunkHead => CHUNK_HEAD_BYTES,
            Expect::Chunk { pages, packed } => CHUNK_HEAD_BYTES + 4 * pages + packed + CHECKSUM_BYTES,
            Expect::Trailer => TRAILER_BYTES,
        }
    }

    fn header(&mut self) -> Result<Header, RecordError> {
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(&self.buffer);
        self.header = Header::decode(&bytes)?;
        self.checksum = crc32c::crc32c(&bytes[..HEADER_BYTES - CHECKSUM_BYTES]);
        self.length = HEADER_BYTES as u64;
        self.pages_left = self.header.page_count;
        self.page_last = 0;
        self.after_pages();
        Ok(self.header)
    }

    fn after_pages(&mut self) {
        self.expect = if self.pages_left == 0 { Expect::Trailer } else { Expect::ChunkHead };
        self.done = true;
    }

    fn chunk_head(&mut self) -> Result<(), RecordError> {
        let pages = field_u32(&self.buffer, 0) as usize;
        let packed = field_u32(&self.buffer, 4) as usize;
        if pages == 0 || pages > self.header.chunk_pages() || pages > self.pages_left as usize {
            return Err(RecordError::Field("chunk pages"));
        }
        if packed > compress_bound(pages * self.header.page_size as usize) {
            return Err(RecordError::Field("chunk bytes"));
        }
        self.expect = Expect::Chunk { pages, packed };
        Ok(())
    }

    fn chunk(&mut self, pages: usize, packed: usize) -> Result<(), RecordError> {
        let images = CHUNK_HEAD_BYTES + 4 * pages;
        let end = images + packed;
        if field_u32(&self.buffer, end) != crc32c::crc32c(&self.buffer[..end]) {
            return Err(RecordError::ChunkChecksum);
        }
        self.numbers.clear();
        let lock = lock_page(self.header.page_size);
        for index in 0..pages {
            let number = field_u32(&self.buffer, CHUNK_HEAD_BYTES + 4 * index);
            if number <= self.page_last || number > self.header.pages_after || number == lock {
                return Err(RecordError::Field("page number"));
            }
            self.numbers.push(number);
            self.page_last = number;
        }
        if let Some(decompressor) = &mut self.decompressor {
            let bytes = pages * self.header.page_size as usize;
            self.images.resize(bytes, 0);
            match decompressor.decompress_to_buffer(&self.buffer[images..end], self.images.as_mut_slice()) {
                Ok(length) if length == bytes => {}
                _ => return Err(RecordError::Compression),
            }
        }
        self.checksum = crc32c::crc32c_append(self.checksum, &self.buffer[..end]);
        self.length += self.buffer.len() as u64;
        self.pages_left -= pages as u32;
        self.after_pages();
        Ok(())
    }

    fn trailer(&mut self) -> Result<(u64, u64), RecordError> {
        let checksum = crc32c::crc32c_append(self.checksum, &self.buffer[..TRAILER_BYTES - CHECKSUM_BYTES]);
        let length = self.length + TRAILER_BYTES as u64;
        if self.buffer[..4] != TRAILER_MAGIC
            || field_u32(&self.buffer, 20) != checksum
            || field_u64(&self.buffer, 12) != length
        {
            return Err(RecordError::TrailerChecksum);
        }
        self.expect = Expect::Header;
        self.length = 0;
        self.done = true;
        // What follows is of the next record, from its first byte on.
        self.length = 0;
        Ok((field_u64(&self.buffer, 4), length))
    }
}

/// The little-endian number at `offset`, which lies within `bytes` by the caller's length check.
pub(super) fn field_u32(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

/// As [`field_u32`], of eight bytes.
pub(super) fn field_u64(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}
