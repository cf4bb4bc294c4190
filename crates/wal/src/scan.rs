//! Walks one segment and finds out what of it stands.

use crate::format::batch::{BATCH_HEADER, BatchHeader, BatchKind, FRAME_HEADER, FrameHeader, Table};
use crate::format::sector::{Class, DATA, PAGE_DATA, SECTOR, classify, file_offset};
use crate::format::{PAGE, Place};
use crate::types::Location;
use highwater_base::OwnerId;
use highwater_disk::File;
use std::io;

const SECTORS: u64 = PAGE / SECTOR;
/// Bytes of one read while a segment is loaded.
const CHUNK: u64 = 1 << 20;

/// A segment's file in memory, sectors taken apart.
pub(crate) struct Image {
    place: Place,
    /// Data of all pages, page 0 included, so that data offsets index it.
    data: Vec<u8>,
    /// One per sector.
    classes: Vec<Class>,
    pages: u64,
}

impl Image {
    /// Reads a file; a page that cannot be read is garbage.
    /// # Errors
    /// The system's, if not even the length is known.
    pub(crate) fn load(file: &dyn File, place: Place) -> io::Result<Self> {
        let pages = file.length()? / PAGE;
        let mut image = Self {
            place,
            data: Vec::with_capacity((pages * PAGE_DATA) as usize),
            classes: Vec::with_capacity((pages * SECTORS) as usize),
            pages,
        };
        let mut chunk = vec![0; CHUNK.min(pages * PAGE) as usize];
        let mut offset = 0;
        while offset < pages * PAGE {
            let length = CHUNK.min(pages * PAGE - offset) as usize;
            if file.read_exact_at(&mut chunk[..length], offset).is_ok() {
                image.take(&chunk[..length], offset);
            } else {
                for page in (offset..offset + length as u64).step_by(PAGE as usize) {
                    let page_bytes = &mut chunk[..PAGE as usize];
                    if file.read_exact_at(page_bytes, page).is_ok() {
                        image.take(&chunk[..PAGE as usize], page);
                    } else {
                        image.take_unreadable();
                    }
                }
            }
            offset += length as u64;
        }
        Ok(image)
    }

    fn take(&mut self, bytes: &[u8], offset: u64) {
        for (index, sector) in bytes.chunks_exact(SECTOR as usize).enumerate() {
            self.data.extend_from_slice(&sector[..DATA as usize]);
            self.classes.push(classify(self.place, offset / SECTOR + index as u64, sector));
        }
    }

    fn take_unreadable(&mut self) {
        self.data.resize(self.data.len() + PAGE_DATA as usize, 0xa5);
        self.classes.resize(self.classes.len() + SECTORS as usize, Class::Garbage);
    }

    fn any(&self, pages: std::ops::Range<u64>, class: Class) -> bool {
        self.classes[(pages.start * SECTORS) as usize..(pages.end * SECTORS) as usize].contains(&class)
    }

    /// File offset behind the last page that was touched in this life.
    fn remains_end(&self) -> u64 {
        let touched =
            |page: &u64| self.any(*page..*page + 1, Class::Written) || self.any(*page..*page + 1, Class::Garbage);
        (1..self.pages).rev().find(touched).map_or(PAGE, |page| (page + 1) * PAGE)
    }

    fn batch_at(&self, page: u64) -> Option<(BatchHeader, u64)> {
        let data = self.data.get((page * PAGE_DATA) as usize..)?;
        let header = BatchHeader::decode(data, self.place, page * PAGE)?;
        let end = page.checked_add(header.length.div_ceil(PAGE_DATA))?;
        (end <= self.pages).then_some((header, end))
    }
}

/// What others say about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// It is the newest of the log.
    pub newest: bool,
    /// File offset below which everything was synced, as far as others tell.
    pub synced: u64,
    /// Where its frames end, as the next segment's header has it.
    pub frames_end: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundFrame {
    /// File offset of the frame's header.
    pub offset: u64,
    pub owner: OwnerId,
    pub kind: u8,
    pub position: u64,
    pub sequence: u64,
    pub location: Location,
}

/// What was found, in the order of the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Frame(FoundFrame),
    /// A frame that is bad, and whose it is; `certain` if it was synced once.
    Bad {
        frame: FoundFrame,
        certain: bool,
    },
    /// Frames may be missing here, and nothing says whose.
    Hole {
        offset: u64,
        certain: bool,
    },
}

/// What stands of a segment.
pub(crate) struct Scan {
    pub events: Vec<Event>,
    pub table: Option<(u64, Table)>,
    /// File offset behind the last batch of frames that stands.
    pub frames_end: u64,
    /// File offset behind everything that was touched in this life of the file.
    pub remains_end: u64,
    /// Below, everything was synced.
    pub witnessed: u64,
    /// Where a torn end was cut off.
    pub cut: Option<u64>,
    /// Somewhere in the file, in use or not, lie bytes that no life of it left whole.
    pub garbage: bool,
}

/// A stretch of pages, before it is judged.
#[derive(Debug, Clone, Copy)]
enum Stretch {
    Batch {
        page: u64,
        end: u64,
        header: BatchHeader,
    },
    /// Touched, and no batch's header.
    Bad {
        page: u64,
    },
    Unwritten {
        page: u64,
    },
}

impl Stretch {
    fn page(&self) -> u64 {
        match self {
            Self::Batch { page, .. } | Self::Bad { page } | Self::Unwritten { page } => *page,
        }
    }
}

fn stretches(image: &Image) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut page = 1;
    while page < image.pages {
        if let Some((header, end)) = image.batch_at(page) {
            // A start that cut off a torn batch may have sealed the segment within the pages that the batch was to fill.
            let table = |page: &u64| image.batch_at(*page).is_some_and(|(found, _)| found.kind == BatchKind::Table);
            let end = (page + 1..end).find(table).unwrap_or(end);
            found.push(Stretch::Batch { page, end, header });
            page = end;
            continue;
        }
        let unwritten = image.classes[(page * SECTORS) as usize] == Class::Unwritten;
        match (found.last(), unwritten) {
            (Some(Stretch::Unwritten { .. }), true) | (Some(Stretch::Bad { .. }), false) => {}
            (_, true) => found.push(Stretch::Unwritten { page }),
            (_, false) => found.push(Stretch::Bad { page }),
        }
        page += 1;
    }
    found
}

/// Judges a segment.
pub(crate) fn scan(image: &Image, known: Known) -> Scan {
    let mut found = stretches(image);
    let table = found.iter().rev().find_map(|stretch| match stretch {
        Stretch::Batch { page, header, .. } if header.kind == BatchKind::Table => {
            let data = &image.data[(page * PAGE_DATA) as usize..];
            Table::decode(header, data, image.place, page * PAGE).map(|table| (page * PAGE, table))
        }
        _ => None,
    });
    let frames_end = table.as_ref().map(|(_, table)| table.frames_end).or(known.frames_end);
    let witnessed = match frames_end {
        _ if !known.newest => u64::MAX,
        Some(_) => u64::MAX,
        None => found.iter().fold(known.synced, |synced, stretch| match stretch {
            Stretch::Batch { header, .. } => synced.max(header.synced),
            _ => synced,
        }),
    };
    if let Some(frames_end) = frames_end {
        found.retain(|stretch| stretch.page() * PAGE < frames_end);
    }
    let mut judge = Judge { image, known, frames_end, witnessed, events: Vec::new(), end: PAGE, cut: None };
    for (index, stretch) in found.iter().enumerate() {
        let next = found.get(index + 1).map(Stretch::page);
        if !judge.take(*stretch, next) {
            break;
        }
    }
    Scan {
        events: judge.events,
        table,
        frames_end: frames_end.unwrap_or(judge.end),
        remains_end: image.remains_end(),
        witnessed,
        cut: judge.cut,
        garbage: image.pages > 1 && image.any(1..image.pages, Class::Garbage),
    }
}

struct Judge<'a> {
    image: &'a Image,
    known: Known,
    frames_end: Option<u64>,
    witnessed: u64,
    events: Vec<Event>,
    end: u64,
    cut: Option<u64>,
}

impl Judge<'_> {
    /// Judges one stretch, which ends where the `next` begins; `false` if the log ends before it.
    fn take(&mut self, stretch: Stretch, next: Option<u64>) -> bool {
        let offset = stretch.page() * PAGE;
        let certain = offset < self.witnessed;
        match stretch {
            Stretch::Unwritten { .. } if !certain => {
                self.cut = (next.is_some() || self.image.remains_end() > offset).then_some(offset);
                return false;
            }
            Stretch::Unwritten { .. } => {
                // Without a table and a next header, a segment that is not the newest just ends here.
                if next.is_some() || self.frames_end.is_some() || self.known.newest {
                    self.events.push(Event::Hole { offset, certain });
                }
            }
            // A table that is bad, or void: no frames come behind a table.
            Stretch::Batch { header, .. } if header.kind == BatchKind::Table => return !self.known.newest,
            Stretch::Batch { page, end, header } => {
                let before = self.events.len();
                let clean = self.walk(page, end, Some(header.count), Some(header.length), certain);
                if !clean && !certain && self.image.any(page..end, Class::Unwritten) {
                    self.events.truncate(before);
                    self.cut = Some(offset);
                    return false;
                }
                self.end = end * PAGE;
            }
            Stretch::Bad { page } => {
                let limit = self.frames_end.map_or(self.image.pages, |end| (end / PAGE).min(self.image.pages));
                let end = next.unwrap_or(limit).max(page + 1).min(self.image.pages);
                self.walk(page, end, None, None, certain);
                self.end = end * PAGE;
            }
        }
        true
    }

    /// Walks the frames of a batch. Without a `count` it ends where only zeros are left of its page, and the next
    /// page may begin another batch. Says whether nothing is bad or missing.
    fn walk(&mut self, page: u64, end: u64, count: Option<u32>, length: Option<u64>, certain: bool) -> bool {
        let (mut at, start) = (page * PAGE_DATA + BATCH_HEADER, page * PAGE_DATA);
        let end = length.map_or(end * PAGE_DATA, |length| start + length);
        let (mut frames, mut clean, mut lost) = (0, true, false);
        while count != Some(frames) && at + FRAME_HEADER <= end {
            if let Some((frame, good, next)) = self.frame_at(at, end) {
                self.events.push(if good { Event::Frame(frame) } else { Event::Bad { frame, certain } });
                clean &= good;
                frames += 1;
                at = next;
                continue;
            }
            let page_end = (at / PAGE_DATA + 1) * PAGE_DATA;
            if count.is_none() && self.image.data[at as usize..page_end as usize].iter().all(|byte| *byte == 0) {
                at = page_end + BATCH_HEADER;
                continue;
            }
            (clean, lost) = (false, true);
            self.events.push(Event::Hole { offset: file_offset(at), certain });
            match (at + 1..end.saturating_sub(FRAME_HEADER - 1)).find(|at| self.begins_at(*at, end)) {
                Some(next) => at = next,
                None => break,
            }
        }
        if !lost && count.is_some_and(|count| frames < count) {
            self.events.push(Event::Hole { offset: file_offset(at), certain });
            clean = false;
        }
        clean
    }

    /// Whether a frame with a good header begins at a data offset.
    fn begins_at(&self, at: u64, end: u64) -> bool {
        let data = &self.image.data[at as usize..end as usize];
        let header = FrameHeader::decode(data, self.image.place, file_offset(at));
        header.is_some_and(|header| FRAME_HEADER + u64::from(header.length) <= end - at)
    }

    /// The frame at a data offset, whether it is good, and where the next begins.
    fn frame_at(&self, at: u64, end: u64) -> Option<(FoundFrame, bool, u64)> {
        let data = &self.image.data[at as usize..end as usize];
        let (place, offset) = (self.image.place, file_offset(at));
        let (header, good) = match FrameHeader::decode(data, place, offset) {
            Some(header) => (header, true),
            None => (FrameHeader::attribute(data, place, offset)?, false),
        };
        let payload = data[FRAME_HEADER as usize..].get(..header.length as usize)?;
        let good = good && crc32c::crc32c(payload) == header.payload_crc;
        let location =
            Location { segment: place.segment, offset: file_offset(at + FRAME_HEADER), length: header.length };
        let FrameHeader { owner, kind, position, sequence, .. } = header;
        let next = at + FRAME_HEADER + u64::from(header.length);
        Some((FoundFrame { offset, owner, kind, position, sequence, location }, good, next))
    }
}
