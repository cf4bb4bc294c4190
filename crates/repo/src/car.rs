//! Archives of blocks: CAR, version 1.
//!
//! Source: <https://ipld.io/specs/transport/car/carv1/>; atproto repository specification, "CAR File Serialization".

use crate::cid::{CID_BYTES, Cid, CidError};
use crate::data::{DataError, Decoder, Encoder};
use bytes::{Buf, Bytes, BytesMut};
use std::ops::Range;
use thiserror::Error;

/// Bytes of one block at the most: a record, with room for what others allow.
pub const BLOCK_BYTES_MAX: usize = 2 << 20;
/// Bytes of a header with one root are 59; others may name a few more.
const HEADER_BYTES_MAX: usize = 4096;
/// Bytes of a length at the most.
const VARINT_BYTES_MAX: usize = 9;

/// Why bytes are no archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CarError {
    /// Its header is none of version 1 with a root.
    #[error("the archive's header is none of version 1: {0}")]
    Header(DataError),
    /// A length beyond what there may be, or not in its shortest form.
    #[error("a length in the archive is wrong")]
    Length,
    /// A block's name is none.
    #[error("the name of a block in the archive: {0}")]
    Name(#[from] CidError),
    /// A block does not have the bytes that its name says.
    #[error("the bytes of block {0} are others")]
    Block(Cid),
    /// The archive ends within a block.
    #[error("the archive ends early")]
    Short,
}

fn put_varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_bytes(number: usize) -> usize {
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// The number at the front and the bytes that it takes; `None` if it is not all there.
fn varint(bytes: &[u8]) -> Result<Option<(usize, usize)>, CarError> {
    let mut number = 0u64;
    for (place, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let number = usize::try_from(number).map_err(|_| CarError::Length)?;
            let minimal = varint_bytes(number) == place + 1;
            return if minimal { Ok(Some((number, place + 1))) } else { Err(CarError::Length) };
        }
    }
    if bytes.len() >= VARINT_BYTES_MAX { Err(CarError::Length) } else { Ok(None) }
}

/// The beginning of an archive with one root.
#[must_use]
pub fn header(root: &Cid) -> Vec<u8> {
    let mut data = Encoder::with_capacity(64);
    data.map(2).text("roots").list(1).link(root).text("version").integer(1);
    let data = data.into_vec();
    let mut out = Vec::with_capacity(data.len() + 1);
    put_varint(&mut out, data.len());
    out.extend(data);
    out
}

/// What stands before a block's bytes.
#[must_use]
pub fn block_header(cid: &Cid, block_bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(CID_BYTES + 4);
    put_varint(&mut out, CID_BYTES + block_bytes);
    out.extend(cid.to_bytes());
    out
}

/// Adds a block to an archive.
pub fn put_block(out: &mut Vec<u8>, cid: &Cid, block: &[u8]) {
    put_varint(out, CID_BYTES + block.len());
    out.extend(cid.to_bytes());
    out.extend(block);
}

/// Bytes that a block takes in an archive.
#[must_use]
pub fn section_bytes(block_bytes: usize) -> usize {
    varint_bytes(CID_BYTES + block_bytes) + CID_BYTES + block_bytes
}

/// An archive of blocks, in their order.
#[must_use]
pub fn archive<'a>(root: &Cid, blocks: impl IntoIterator<Item = (&'a Cid, &'a Bytes)>) -> Vec<u8> {
    let mut out = header(root);
    for (cid, block) in blocks {
        put_block(&mut out, cid, block);
    }
    out
}

/// Sections of an archive that was verified when it was written, one after another, without its header: where each block's
/// bytes stand. Nothing is hashed.
#[derive(Debug, Clone)]
pub struct Sections<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Sections<'a> {
    /// Of these bytes, all of which are sections.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn section(&mut self) -> Result<(Cid, Range<usize>), CarError> {
        let rest = &self.bytes[self.at..];
        let (length, width) = varint(rest)?.ok_or(CarError::Short)?;
        if length > CID_BYTES + BLOCK_BYTES_MAX {
            return Err(CarError::Length);
        }
        let section = rest.get(width..width + length).ok_or(CarError::Short)?;
        let cid = Cid::from_bytes(section.get(..CID_BYTES).ok_or(CidError::Length)?)?;
        let start = self.at + width + CID_BYTES;
        self.at += width + length;
        Ok((cid, start..self.at))
    }
}

impl Iterator for Sections<'_> {
    /// A block's name, and where its bytes stand; or what is wrong, which ends it.
    type Item = Result<(Cid, Range<usize>), CarError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.bytes.len() {
            return None;
        }
        let section = self.section();
        if section.is_err() {
            self.at = self.bytes.len();
        }
        Some(section)
    }
}

/// Reads an archive in pieces, in whatever order its blocks stand, and verifies each block.
#[derive(Debug, Default)]
pub struct Reader {
    pending: BytesMut,
    roots: Option<Vec<Cid>>,
}

impl Reader {
    /// Before the first piece.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
    }

    /// The roots, once the header was read.
    #[must_use]
    pub fn roots(&self) -> Option<&[Cid]> {
        self.roots.as_deref()
    }

    /// The next block; `None` until there is more.
    /// # Errors
    /// What is wrong with the archive; it cannot be read on.
    pub fn block(&mut self) -> Result<Option<(Cid, Bytes)>, CarError> {
        if self.roots.is_none() {
            let Some(header) = self.section(HEADER_BYTES_MAX)? else { return Ok(None) };
            self.roots = Some(decode_header(header).map_err(CarError::Header)?);
        }
        let Some(mut section) = self.section(CID_BYTES + BLOCK_BYTES_MAX)? else { return Ok(None) };
        if section.len() < CID_BYTES {
            return Err(CidError::Length.into());
        }
        let cid = Cid::from_bytes(&section.split_to(CID_BYTES))?;
        if cid.names(&section) { Ok(Some((cid, section))) } else { Err(CarError::Block(cid)) }
    }

    /// The end of the archive.
    /// # Errors
    /// `Short` if it is within a block or within the header.
    pub fn finish(self) -> Result<Vec<Cid>, CarError> {
        self.roots.filter(|_| self.pending.is_empty()).ok_or(CarError::Short)
    }

    fn section(&mut self, bytes_max: usize) -> Result<Option<Bytes>, CarError> {
        let Some((length, width)) = varint(&self.pending)? else { return Ok(None) };
        if length == 0 || length > bytes_max {
            return Err(CarError::Length);
        }
        if self.pending.len() < width + length {
            return Ok(None);
        }
        self.pending.advance(width);
        Ok(Some(self.pending.split_to(length).freeze()))
    }
}

fn decode_header(header: Bytes) -> Result<Vec<Cid>, DataError> {
    let mut data = Decoder::new(header);
    if data.map()? != 2 {
        return Err(DataError::Expected("roots and version"));
    }
    data.key("roots")?;
    let count = data.list()?;
    let roots = (0..count).map(|_| data.link()).collect::<Result<Vec<_>, _>>()?;
    data.key("version")?;
    if data.unsigned()? != 1 {
        return Err(DataError::Expected("version 1"));
    }
    data.finish()?;
    if roots.is_empty() { Err(DataError::Expected("a root")) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::Codec;
    use proptest::prelude::*;

    fn blocks() -> Vec<(Cid, Bytes)> {
        let block = |bytes: Vec<u8>| (Cid::of(Codec::Raw, &bytes), Bytes::from(bytes));
        vec![block(vec![1]), block(vec![]), block(vec![7; 100_000]), block(vec![1])]
    }

    /// Roots and blocks.
    type Contents = (Vec<Cid>, Vec<(Cid, Bytes)>);

    fn read(pieces: impl Iterator<Item = Vec<u8>>) -> Result<Contents, CarError> {
        let (mut reader, mut found) = (Reader::new(), Vec::new());
        for piece in pieces {
            reader.push(&piece);
            while let Some(block) = reader.block()? {
                found.push(block);
            }
        }
        Ok((reader.finish()?, found))
    }

    #[test]
    fn an_archive_reads_back_however_it_is_cut() {
        let blocks = blocks();
        let archive = archive(&blocks[0].0, blocks.iter().map(|(cid, block)| (cid, block)));
        let sections: usize = blocks.iter().map(|(_, block)| section_bytes(block.len())).sum();
        assert_eq!(archive.len(), header(&blocks[0].0).len() + sections);
        for size in [1, 7, 4096, archive.len()] {
            let back = read(archive.chunks(size).map(<[u8]>::to_vec));
            assert_eq!(back, Ok((vec![blocks[0].0], blocks.clone())), "{size}");
        }
        for cut in [0, 1, 30, 58, 60, 70, archive.len() - 1] {
            assert_eq!(read(std::iter::once(archive[..cut].to_vec())), Err(CarError::Short), "{cut}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_archive_is_said() {
        let (cid, block) = blocks().remove(2);
        let mut bad = archive(&cid, [(&cid, &block)]);
        *bad.last_mut().expect("not empty") ^= 1;
        assert_eq!(read(std::iter::once(bad)), Err(CarError::Block(cid)));
        let huge = [header(&cid), vec![0xff, 0xff, 0xff, 0x7f]].concat();
        assert_eq!(read(std::iter::once(huge)), Err(CarError::Length));
        let long = [header(&cid), vec![0x81, 0]].concat();
        assert_eq!(read(std::iter::once(long)), Err(CarError::Length));
        assert_eq!(read(std::iter::once(vec![0x80; 9])), Err(CarError::Length));
        let tiny = [header(&cid), vec![1, 1]].concat();
        assert_eq!(read(std::iter::once(tiny)), Err(CarError::Name(CidError::Length)));
    }

    #[test]
    fn sections_say_where_blocks_stand_and_what_is_wrong() {
        let blocks = blocks();
        let archive = archive(&blocks[0].0, blocks.iter().map(|(cid, block)| (cid, block)));
        let sections = &archive[header(&blocks[0].0).len()..];
        let found: Vec<_> = Sections::new(sections).map(|section| section.expect("sound")).collect();
        let bytes = |(cid, range): &(Cid, Range<usize>)| (*cid, Bytes::copy_from_slice(&sections[range.clone()]));
        assert_eq!(found.iter().map(bytes).collect::<Vec<_>>(), blocks);
        let last = |bytes: &[u8]| Sections::new(bytes).last();
        assert_eq!(last(&[]), None);
        for cut in [1, 20, 36, 39, 74, 80, sections.len() - 1] {
            assert_eq!(last(&sections[..cut]), Some(Err(CarError::Short)), "{cut}");
        }
        assert_eq!(last(&[1, 1]), Some(Err(CarError::Name(CidError::Length))));
        assert_eq!(last(&[0x81, 0]), Some(Err(CarError::Length)));
        assert_eq!(last(&[0xff, 0xff, 0xff, 0x7f]), Some(Err(CarError::Length)));
        assert_eq!(last(&[&[36][..], &[0; 36]].concat()), Some(Err(CarError::Name(CidError::Kind))));
    }

    proptest! {
        #[test]
        fn lengths_read_back(number in prop_oneof![0usize..300, any::<u32>().prop_map(|n| n as usize)]) {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            prop_assert_eq!(varint(&out), Ok(Some((number, out.len()))));
            prop_assert_eq!(varint_bytes(number), out.len());
        }

        #[test]
        fn random_bytes_never_panic_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            drop(read(std::iter::once([header(&Cid::of(Codec::Raw, b"")), bytes.clone()].concat())));
            drop(read(std::iter::once(bytes)));
        }
    }
}
