//! Sectors: 508 bytes of data and a mark that says in which life of the file they were written.

use super::{PAGE, Place};

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;
/// Bytes of data in a sector.
pub(crate) const DATA: u64 = 508;
/// Bytes of data in a page.
pub(crate) const PAGE_DATA: u64 = DATA * (PAGE / SECTOR);

const SPREAD: u32 = 0x9e37_79b1;
/// The inverse of `SPREAD` modulo 2^32, to get a segment's number back from a mark.
const GATHER: u32 = inverse(SPREAD);

const fn inverse(odd: u32) -> u32 {
    // Newton's iteration doubles the number of right bits; an odd number is its own inverse modulo 8.
    let mut result = odd;
    let mut round = 0;
    while round < 5 {
        result = result.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(result)));
        round += 1;
    }
    result
}

const _: () = assert!(SPREAD.wrapping_mul(GATHER) == 1);

/// What became of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Written in this life of the file.
    Written,
    /// Still what an earlier life of the file left, to its end at least.
    Unwritten,
    /// Written, and damaged since; or unreadable.
    Garbage,
}

/// The file offset of a data offset.
pub(crate) fn file_offset(data: u64) -> u64 {
    data / DATA * SECTOR + data % DATA
}

/// The data offset of a file offset, which is not inside a mark.
pub(crate) fn data_offset(file: u64) -> u64 {
    file / SECTOR * DATA + file % SECTOR
}

fn mix(place: Place, sector: u64) -> u32 {
    let product = (place.identity ^ sector).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> 32) as u32 ^ product as u32
}

/// The mark of a sector.
pub(crate) fn mark(place: Place, sector: u64) -> u32 {
    (place.segment as u32).wrapping_mul(SPREAD) ^ mix(place, sector)
}

/// What became of a sector, given its 512 bytes.
pub(crate) fn classify(place: Place, sector: u64, bytes: &[u8]) -> Class {
    let found = super::u32_at(bytes, DATA as usize);
    if (found ^ mark(place, sector)).count_ones() <= 2 {
        return Class::Written;
    }
    let set = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    // A write that failed within the sector left its end as it was: with an earlier life's mark, or with none in a new file.
    let cut_short = found.count_ones() <= 1 || is_earlier(place, sector, found);
    if set(bytes) <= 2 || cut_short { Class::Unwritten } else { Class::Garbage }
}

/// Whether a mark is that of an earlier life, with at most one bit off.
fn is_earlier(place: Place, sector: u64, found: u32) -> bool {
    let segment = |found: u32| (found ^ mix(place, sector)).wrapping_mul(GATHER);
    let variants = std::iter::once(found).chain((0..32).map(|bit| found ^ 1 << bit));
    variants.map(segment).any(|segment| segment != 0 && u64::from(segment) < place.segment)
}

/// Lays data out in sectors, from a page boundary on.
pub(crate) struct SectorWriter<'a> {
    place: Place,
    /// File offset of `bytes[0]`.
    start: u64,
    bytes: &'a mut Vec<u8>,
}

impl<'a> SectorWriter<'a> {
    /// Begins at the file offset `start`, a page boundary, with an empty buffer.
    pub(crate) fn new(place: Place, start: u64, bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        Self { place, start, bytes }
    }

    /// The file offset of the next byte of data.
    pub(crate) fn offset(&mut self) -> u64 {
        self.mark_if_full();
        self.start + self.bytes.len() as u64
    }

    pub(crate) fn write(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            self.mark_if_full();
            let room = DATA as usize - self.bytes.len() % SECTOR as usize;
            let (part, rest) = data.split_at(room.min(data.len()));
            self.bytes.extend_from_slice(part);
            data = rest;
        }
    }

    fn mark_if_full(&mut self) {
        if self.bytes.len() as u64 % SECTOR == DATA {
            let sector = (self.start + self.bytes.len() as u64) / SECTOR;
            self.bytes.extend_from_slice(&mark(self.place, sector).to_le_bytes());
        }
    }

    /// Fills the last page with zeros.
    pub(crate) fn finish(mut self) {
        const ZEROS: [u8; DATA as usize] = [0; DATA as usize];
        self.mark_if_full();
        while !(self.bytes.len() as u64).is_multiple_of(PAGE) {
            let room = DATA as usize - self.bytes.len() % SECTOR as usize;
            self.write(&ZEROS[..room]);
            self.mark_if_full();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { identity: 77, segment: 5 };

    #[test]
    fn data_comes_back_and_every_sector_is_marked() {
        let data: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        let mut bytes = Vec::new();
        let mut writer = SectorWriter::new(PLACE, 8192, &mut bytes);
        data.chunks(333).for_each(|part| writer.write(part));
        writer.finish();
        assert_eq!(bytes.len() % PAGE as usize, 0);
        let back: Vec<u8> = bytes.chunks(512).flat_map(|sector| &sector[..508]).copied().collect();
        assert_eq!(back[..data.len()], data);
        assert!(back[data.len()..].iter().all(|byte| *byte == 0));
        for (index, sector) in bytes.chunks(512).enumerate() {
            assert_eq!(classify(PLACE, 16 + index as u64, sector), Class::Written);
        }
    }

    #[test]
    fn a_mark_tells_an_earlier_life_from_damage() {
        let mut sector = [7; 512];
        let mut marked = |segment| {
            sector[508..].copy_from_slice(&mark(Place { segment, ..PLACE }, 9).to_le_bytes());
            sector
        };
        assert_eq!(classify(PLACE, 9, &marked(4)), Class::Unwritten);
        assert_eq!(classify(PLACE, 9, &marked(6)), Class::Garbage, "no later segment was here before");
        assert_eq!(classify(PLACE, 10, &marked(5)), Class::Garbage, "a sector knows its place");
        for bit in 0..32 {
            let mut flipped = marked(5);
            flipped[508 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(classify(PLACE, 9, &flipped), Class::Written, "bit {bit}");
        }
        assert_eq!(classify(PLACE, 9, &[0; 512]), Class::Unwritten);
        sector[508..].fill(0);
        assert_eq!(classify(PLACE, 9, &sector), Class::Unwritten, "a write ended within it, in a new file");
    }

    #[test]
    fn offsets_convert_both_ways() {
        for data in 0..5_000 {
            let file = file_offset(data);
            assert!(file % SECTOR < DATA);
            assert_eq!(data_offset(file), data);
        }
    }
}
