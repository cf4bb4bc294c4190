//! Reading a log that a process left behind, and judging it.

use super::{Entry, Index, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::engine::{Layout, LogPosition};
use crate::meta::Checkpoint;
use crate::record::{Decoder, Event, HEADER_BYTES, Header, RecordError};
use highwater_disk::{Disk, File, OpenMode};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Bytes read at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// Why a log is refused. Nothing was changed.
#[derive(Debug, Error)]
pub enum Damage {
    /// A record, or what should be one, is bad although it was durable.
    #[error("the record of commit {lsn} at log position {position} ({segment}) is damaged: {why}")]
    Record {
        /// The commit that should be there.
        lsn: u64,
        /// Its first byte.
        position: LogPosition,
        /// The segment's file.
        segment: String,
        /// What is wrong.
        why: String,
    },
    /// A later program wrote it.
    #[error("{segment} has format version {version}, which this program does not know")]
    Version {
        /// The segment's file.
        segment: String,
        /// The version.
        version: u16,
    },
    /// A segment is not of this log.
    #[error("{segment} belongs to another log: files of two databases, or of a copy, were mixed")]
    Lineage {
        /// The segment's file.
        segment: String,
    },
    /// The system's.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What a scan found, and what [`super::Log::open`] does about it.
#[derive(Debug)]
pub struct Scanned {
    /// The segments to keep.
    pub segments: VecDeque<LogPosition>,
    /// The whole records from the start of the scan on.
    pub index: Index,
    /// Segments behind a torn tail.
    pub condemned: Vec<LogPosition>,
    /// Segments that were released before.
    pub obsolete: Vec<LogPosition>,
    /// Whether all of it was known to be durable already.
    pub clean: bool,
    /// Below, all of it was: by `meta`, or by what a later record says.
    pub durable: LogPosition,
}

/// Where the first bad byte stands, if any.
struct Bad {
    error: RecordError,
}

/// Scans the log from `base` on, a record's start, whose position `meta` remembers.
///
/// `floor` is the position below which `meta` knows the log to be durable.
/// # Errors
/// See [`Damage`].
pub fn scan(
    disk: &dyn Disk,
    layout: &Layout,
    lineage: [u8; 16],
    base: Checkpoint,
    floor: LogPosition,
) -> Result<Scanned, Damage> {
    let mut starts = segments(disk, layout)?;
    let first = first_needed(disk, layout, &starts, base.position)?;
    let obsolete: Vec<_> = starts.drain(..first).collect();
    let mut scanned = Scanned {
        segments: VecDeque::new(),
        index: Index::new(base),
        condemned: Vec::new(),
        obsolete,
        clean: true,
        durable: floor,
    };
    let mut bad = None;
    for (number, start) in starts.iter().enumerate() {
        let expected = if number == 0 { *start <= base.position } else { *start == scanned.index.end() };
        let file = disk.open(&layout.segment(*start), OpenMode::Read)?;
        bad = match expected.then(|| header(&*file)).transpose()? {
            Some(Ok(header)) => {
                let belongs = check_segment(layout, lineage, *start, &header, number, &scanned.index)?;
                if belongs {
                    if file.length()? < SEGMENT_HEADER_BYTES + scanned.index.end().since(*start) {
                        // Only the first segment is entered in its middle, at a place that was durable once.
                        break;
                    }
                    scanned.segments.push_back(*start);
                    segment(&*file, *start, &mut scanned)?
                } else {
                    Some(Bad { error: RecordError::Field("lsn") })
                }
            }
            Some(Err(RecordError::Version(version))) => {
                return Err(Damage::Version { segment: name(layout, *start), version });
            }
            Some(Err(error)) => Some(Bad { error }),
            None => Some(Bad { error: RecordError::Magic }),
        };
        if bad.is_some() {
            scanned.condemned = starts[number..].iter().copied().filter(|s| !scanned.segments.contains(s)).collect();
            break;
        }
    }
    // A segment without a byte below the floor may itself not be durable yet.
    let tail = scanned.segments.back().copied().unwrap_or(floor);
    scanned.clean = bad.is_none() && scanned.index.end() <= floor && tail < floor;
    verdict(disk, layout, &scanned, bad, floor)?;
    Ok(scanned)
}

/// The segment to begin with: the one that holds the byte before `position` if the one that begins there was made
/// without becoming durable.
fn first_needed(disk: &dyn Disk, layout: &Layout, starts: &[LogPosition], position: LogPosition) -> io::Result<usize> {
    let first = starts.partition_point(|start| *start <= position).saturating_sub(1);
    if first > 0 && starts[first] == position {
        let file = disk.open(&layout.segment(position), OpenMode::Read)?;
        if matches!(header(&*file)?, Err(error) if !matches!(error, RecordError::Version(_))) {
            return Ok(first - 1);
        }
    }
    Ok(first)
}

/// Whether a later segment's header fits what came before; an error if it is of another log.
fn check_segment(
    layout: &Layout,
    lineage: [u8; 16],
    start: LogPosition,
    header: &SegmentHeader,
    number: usize,
    index: &Index,
) -> Result<bool, Damage> {
    if header.lineage != lineage {
        return Err(Damage::Lineage { segment: name(layout, start) });
    }
    Ok(header.position == start && (number == 0 || header.first_lsn == index.last_lsn() + 1))
}

/// Refuses damage; a torn tail passes.
fn verdict(
    disk: &dyn Disk,
    layout: &Layout,
    scanned: &Scanned,
    bad: Option<Bad>,
    floor: LogPosition,
) -> Result<(), Damage> {
    let (position, lsn) = (scanned.index.end(), scanned.index.last_lsn() + 1);
    let segment = scanned.segments.back().copied().unwrap_or(position);
    let damage = |why: String| Damage::Record { lsn, position, segment: name(layout, segment), why };
    let error = bad.as_ref().map(|bad| bad.error);
    if let Some(RecordError::Version(version)) = error {
        return Err(Damage::Version { segment: name(layout, segment), version });
    }
    if scanned.segments.is_empty() {
        return Err(damage("its segment is missing, has no whole header or ends before it".into()));
    }
    if position < floor {
        let why = error.map_or("the log ends before it".to_owned(), |error| error.to_string());
        return Err(damage(format!("{why}, and the log was synced up to {floor}")));
    }
    let Some(error) = error else { return Ok(()) };
    let file = disk.open(&layout.segment(segment), OpenMode::Read)?;
    let after = SEGMENT_HEADER_BYTES + position.since(segment) + 1;
    let mut proof = find_proof(&*file, after, position, lsn)?;
    for later in &scanned.condemned {
        if proof.is_none() {
            proof = find_proof(&*disk.open(&layout.segment(*later), OpenMode::Read)?, 0, position, lsn)?;
        }
    }
    match proof {
        Some(later) => Err(damage(format!("{error}, and commit {later} was logged after it was synced"))),
        None => Ok(()),
    }
}

/// A record begun after the bad one was synced: its lsn, if there is one at or after `offset`.
fn find_proof(file: &dyn File, offset: u64, bad: LogPosition, lsn: u64) -> io::Result<Option<u64>> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut offset = offset;
    loop {
        let read = file.read_at(&mut block, offset)?;
        for at in 0..(read + 1).saturating_sub(HEADER_BYTES) {
            if block[at] != b'H' {
                continue;
            }
            let mut bytes = [0; HEADER_BYTES];
            bytes.copy_from_slice(&block[at..at + HEADER_BYTES]);
            if let Ok(header) = Header::decode(&bytes)
                && header.synced > bad.0
                && header.lsn > lsn
            {
                return Ok(Some(header.lsn));
            }
        }
        if read < BLOCK_BYTES {
            return Ok(None);
        }
        offset += (BLOCK_BYTES - HEADER_BYTES + 1) as u64;
    }
}

/// Where segments start, ascending.
fn segments(disk: &dyn Disk, layout: &Layout) -> io::Result<Vec<LogPosition>> {
    let names = match disk.list(&layout.log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    let number = |name: &String| {
        let digits = name.strip_suffix(".log")?;
        let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse().ok().map(LogPosition)).flatten()
    };
    Ok(names.iter().filter_map(number).collect())
}

fn name(layout: &Layout, start: LogPosition) -> String {
    layout.segment(start).display().to_string()
}

fn header(file: &dyn File) -> io::Result<Result<SegmentHeader, RecordError>> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    let read = file.read_at(&mut bytes, 0)?;
    Ok(if read < bytes.len() { Err(RecordError::HeaderChecksum) } else { SegmentHeader::decode(&bytes) })
}

/// Adds a segment's whole records to the index; what stands behind them if it is not the end of the file.
fn segment(file: &dyn File, start: LogPosition, scanned: &mut Scanned) -> io::Result<Option<Bad>> {
    let Scanned { index, durable, .. } = scanned;
    let mut decoder = Decoder::checking();
    let mut offset = SEGMENT_HEADER_BYTES + index.end().since(start);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let read = file.read_at(&mut block, offset)?;
        offset += read as u64;
        let mut input = &block[..read];
        loop {
            match decoder.next(&mut input) {
                Ok(Some(Event::Begin(header))) if header.lsn != index.last_lsn() + 1 => {
                    return Ok(Some(Bad { error: RecordError::Field("lsn") }));
                }
                Ok(Some(Event::Commit { header, checksum, length })) => {
                    let entry = Entry { start: index.end(), pages_after: header.pages_after, checksum };
                    index.push(entry, index.end().plus(length));
                    *durable = (*durable).max(LogPosition(header.synced));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    let end = SEGMENT_HEADER_BYTES + index.end().since(start);
                    let bad = !zeros_from(file, end)?;
                    return Ok(bad.then_some(Bad { error }));
                }
            }
        }
        if read < BLOCK_BYTES {
            let end = SEGMENT_HEADER_BYTES + index.end().since(start);
            let whole = decoder.at_boundary() || zeros_from(file, end)?;
            return Ok((!whole).then_some(Bad { error: RecordError::TrailerChecksum }));
        }
    }
}

/// Whether nothing but the zeros that are written ahead of the log's end stands from `offset` to the end of the file.
/// No record begins with a zero.
fn zeros_from(file: &dyn File, mut offset: u64) -> io::Result<bool> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let read = file.read_at(&mut block, offset)?;
        if block[..read].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        if read < BLOCK_BYTES {
            return Ok(true);
        }
        offset += read as u64;
    }
}

/// Gives every event of the records in `from..to`, both record boundaries of the scanned log, to `each`.
/// # Errors
/// Those of `each`, the system's, and `InvalidData` where bytes changed since the scan.
pub fn read_records(
    disk: &dyn Disk,
    layout: &Layout,
    segments: &VecDeque<LogPosition>,
    (from, to): (LogPosition, LogPosition),
    each: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut decoder = Decoder::new()?;
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = from;
    while at < to {
        let after = segments.partition_point(|start| *start <= at);
        let start = after.checked_sub(1).map(|index| segments[index]).ok_or(io::ErrorKind::NotFound)?;
        let until = segments.get(after).map_or(to, |next| to.min(*next));
        let file: Arc<dyn File> = disk.open(&layout.segment(start), OpenMode::Read)?;
        while at < until {
            let length = (until.since(at) as usize).min(BLOCK_BYTES);
            file.read_exact_at(&mut block[..length], SEGMENT_HEADER_BYTES + at.since(start))?;
            let mut input = &block[..length];
            while let Some(event) = decoder.next(&mut input)? {
                each(event)?;
            }
            at = at.plus(length as u64);
        }
    }
    Ok(())
}
