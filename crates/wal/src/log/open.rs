//! Opening: what survived, and what is made sure before anything is appended.

use super::{Log, Owner, Segment, Tail};
use crate::files::{Files, Listing, Spare, tried};
use crate::format::segment::{HeaderFound, SEGMENT_HEADER, SegmentHeader};
use crate::format::state::{Condition, Spot, State};
use crate::format::{PAGE, Place};
use crate::merge::Merged;
use crate::reader::LogReader;
use crate::recovered::{LastRun, Recovered, Verdict};
use crate::scan::{Event, Image, Known, Scan, scan};
use crate::types::{OpenError, Options};
use crate::writer::Metrics;
use highwater_base::codec::DecodeError;
use highwater_disk::{File, OpenMode, create_directory_durably};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pages of the smallest segment: enough for a header, a frame and the table of some owners.
const SEGMENT_PAGES_MIN: u64 = 4;
/// Bytes of the largest segment: the length of a frame's payload has four bytes, and opening reads a segment whole.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of one read and write while the end of the log is made durable.
const CHUNK: u64 = 1 << 20;

/// The state file, or what stands in for it.
struct Before {
    state: State,
    last_run: LastRun,
    /// There were segments without a readable state file.
    lost: bool,
}

/// A segment's file before it is judged.
struct Candidate {
    number: u64,
    file: Arc<dyn File>,
    header: HeaderFound,
}

fn check(options: &Options) -> Result<(), OpenError> {
    let Options { segment_bytes, log_bytes_max, boot_id, .. } = options;
    if !segment_bytes.is_multiple_of(PAGE) || !(SEGMENT_PAGES_MIN * PAGE..=SEGMENT_BYTES_MAX).contains(segment_bytes) {
        return Err(OpenError::Options("a segment has whole pages, at least four and at most 1 GiB"));
    }
    if log_bytes_max < segment_bytes {
        return Err(OpenError::Options("the log must have room for one segment"));
    }
    if boot_id.len() > 64 {
        return Err(OpenError::Options("a boot id has at most 64 bytes"));
    }
    Ok(())
}

pub(super) fn open(files: Files, options: Options) -> Result<(Log, Recovered), OpenError> {
    check(&options)?;
    let directory = &files.directory;
    tried(create_directory_durably(&*files.disk, directory), "making", directory)?;
    let lock_path = files.path("lock");
    let lock = files.open(&lock_path, OpenMode::Create)?;
    if !tried(lock.try_lock(), "locking", &lock_path)? {
        return Err(OpenError::Locked(lock_path));
    }
    let listing = files.list()?;
    for name in &listing.unfinished {
        files.remove(&files.path(name))?;
    }
    let candidates = candidates(&files, &listing)?;
    let before = before(&files, &listing, &candidates, &options)?;
    let first = before.state.first_segment;
    // A crash came between the record and the file. It may have been one to set aside.
    let marked = before.state.owners.values().any(|owner| !owner.mark.is_whole());
    for number in listing.segments.iter().filter(|number| **number < first) {
        match marked {
            true => files.set_aside(*number)?,
            false => files.remove(&files.segment_path(*number))?,
        }
    }
    let candidates: Vec<_> = candidates.into_iter().filter(|found| found.number >= first).collect();
    let (merged, newest) = judge(&files, &before, &candidates)?;
    if let (Some(newest), Some(last)) = (&newest, candidates.last())
        && before.state.condition != Condition::Clean
    {
        make_durable(&files, last, newest)?;
    }
    let log = assemble(files, options, &before.state, candidates, &merged, newest.as_ref(), lock)?;
    log.files.write_state(&log.state(Condition::Open))?;
    log.files.restore_reserve()?;
    let recovered = Recovered {
        owners: merged.owners.iter().map(|(owner, tracker)| (*owner, tracker.recovery())).collect(),
        unlisted: log.unlisted,
        last_run: before.last_run,
        cut: newest.and_then(|newest| Some((log.segments.last()?.number, newest.cut?))),
        survivors: merged.survivors,
        reader: log.reader.clone(),
    };
    Ok((log, recovered))
}

fn candidates(files: &Files, listing: &Listing) -> Result<Vec<Candidate>, OpenError> {
    let mut found = Vec::new();
    for number in &listing.segments {
        let path = files.segment_path(*number);
        let file = files.open(&path, OpenMode::Write)?;
        let mut header = [0; SEGMENT_HEADER];
        // A sector is lost if it cannot be read twice in a row; without this one, what was cut off the segment before
        // would count again.
        let read = file.read_exact_at(&mut header, 0).or_else(|_| file.read_exact_at(&mut header, 0));
        let header = match read {
            Ok(()) => SegmentHeader::decode(&header),
            Err(_) => HeaderFound::Damaged,
        };
        if let HeaderFound::Version(version) = header {
            return Err(OpenError::Version { path, version });
        }
        found.push(Candidate { number: *number, file, header });
    }
    Ok(found)
}

/// A new log's identity, so that a segment of another log is not taken for its own.
fn identity_new(options: &Options) -> u64 {
    options.identity_new.unwrap_or_else(|| identity_of_boot(&options.boot_id))
}

fn identity_of_boot(boot_id: &str) -> u64 {
    boot_id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn before(files: &Files, listing: &Listing, candidates: &[Candidate], options: &Options) -> Result<Before, OpenError> {
    let read = listing.has_state.then(|| files.read_state().map(State::decode));
    let path = files.path("state");
    match read {
        Some(Ok(Ok(state))) => {
            let last_run = match &state.condition {
                Condition::Clean => LastRun::Clean,
                Condition::Poisoned(reason) => LastRun::Poisoned(reason.clone()),
                Condition::Open => LastRun::Crashed { same_boot: state.boot_id == options.boot_id },
            };
            return Ok(Before { state, last_run, lost: false });
        }
        Some(Ok(Err(DecodeError::Version(version)))) => return Err(OpenError::Version { path, version }),
        // A read that fails may succeed the next time. Without the file every owner would be marked, for good.
        Some(Err(failure)) => return Err(failure.into()),
        Some(Ok(Err(_))) | None => {}
    }
    let headers = candidates.iter().filter_map(|found| match found.header {
        HeaderFound::Good(header) => Some(header.place.identity),
        _ => None,
    });
    let state = State {
        identity: headers.into_iter().next().unwrap_or_else(|| identity_new(options)),
        condition: Condition::Open,
        boot_id: options.boot_id.clone(),
        first_segment: listing.segments.first().copied().unwrap_or(1),
        synced: Spot::default(),
        unlisted: Verdict::Whole,
        owners: BTreeMap::new(),
    };
    let lost = !listing.segments.is_empty() || listing.has_state;
    let last_run = if lost { LastRun::Crashed { same_boot: false } } else { LastRun::New };
    Ok(Before { state, last_run, lost })
}

/// Judges all segments, and the owners by them; what stands of the newest comes with it.
fn judge(files: &Files, before: &Before, candidates: &[Candidate]) -> Result<(Merged, Option<Scan>), OpenError> {
    let Before { state, lost, .. } = before;
    let mut merged = Merged::new(&state.owners);
    let mut newest = None;
    let mut expected = state.first_segment;
    for (index, found) in candidates.iter().enumerate() {
        if found.number > expected {
            merged.add(expected, None);
        }
        expected = found.number.saturating_add(1);
        let next = candidates.get(index + 1).filter(|next| next.number == expected).map(|next| next.header);
        let frames_end = match next {
            Some(HeaderFound::Good(header)) if header.previous_end >= PAGE => Some(header.previous_end),
            _ => None,
        };
        let synced = if found.number == state.synced.segment { state.synced.offset } else { 0 };
        let known =
            Known { newest: index + 1 == candidates.len() && state.synced.segment <= found.number, synced, frames_end };
        let place = Place { identity: state.identity, segment: found.number };
        let path = files.segment_path(found.number);
        let image = tried(Image::load(&*found.file, place), "reading", &path)?;
        let judged = scan(&image, known);
        merged.add(found.number, Some(&judged));
        newest = Some(judged);
    }
    if state.synced.segment >= expected {
        merged.add(expected, None);
    }
    merged.finish();
    if *lost {
        merged.distrust(Spot { segment: state.first_segment, offset: 0 });
    }
    Ok((merged, newest))
}

/// Writes what was not witnessed as synced again, in place, and syncs it: after a failed sync the page cache may show
/// bytes that the disk never got, and would take a second sync for done.
fn make_durable(files: &Files, found: &Candidate, scan: &Scan) -> Result<(), OpenError> {
    let path = files.segment_path(found.number);
    let mut offset = scan.witnessed.min(scan.frames_end).max(PAGE);
    let mut chunk = vec![0; CHUNK as usize];
    while offset < scan.remains_end {
        let length = CHUNK.min(scan.remains_end - offset) as usize;
        if found.file.read_exact_at(&mut chunk[..length], offset).is_ok() {
            tried(found.file.write_at(&chunk[..length], offset), "rewriting", &path)?;
        }
        offset += length as u64;
    }
    Ok(tried(found.file.sync_data(), "syncing", &path)?)
}

/// The newest segment takes more frames only if nothing in it is bad, missing or left over.
fn tail(found: &Candidate, scan: &Scan, bytes: u64) -> Tail {
    let whole = |event: &Event| matches!(event, Event::Frame(_));
    let open = matches!(found.header, HeaderFound::Good(header) if header.bytes == bytes)
        && scan.table.is_none()
        && scan.cut.is_none()
        && scan.remains_end <= scan.frames_end
        && scan.events.iter().all(whole);
    Tail {
        write_pos: scan.frames_end.max(scan.remains_end),
        record_pos: scan.frames_end,
        flush_pos: scan.frames_end,
        open,
        table: scan.table.as_ref().map(|(offset, _)| *offset),
    }
}

fn assemble(
    files: Files,
    options: Options,
    state: &State,
    candidates: Vec<Candidate>,
    merged: &Merged,
    newest: Option<&Scan>,
    lock: Arc<dyn File>,
) -> Result<Log, OpenError> {
    let (spares, next_spare) = spares(&files, &options)?;
    let owners = merged.owners.iter().map(|(owner, tracker)| {
        let mut state = tracker.state;
        state.mark = tracker.verdict();
        (*owner, Owner { state, next_sequence: tracker.next })
    });
    let owners = owners.collect();
    let mut log = Log {
        identity: state.identity,
        owners,
        abandoned: BTreeSet::new(),
        segments: Vec::new(),
        tail: Tail::default(),
        first_segment: state.first_segment,
        unlisted: match (state.unlisted, merged.unlisted) {
            (Verdict::Whole, Some(hit)) => hit.verdict(),
            (mark, _) => mark,
        },
        next_number: state.first_segment.max(state.synced.segment + 1),
        spares,
        next_spare,
        no_space: false,
        retry_space: false,
        reader: LogReader::new(state.identity),
        poisoned: None,
        buffer: Vec::new(),
        metrics: Metrics::default(),
        _lock: lock,
        files,
        options,
    };
    for found in candidates {
        let path = log.files.segment_path(found.number);
        let bytes = tried(found.file.length(), "reading", &path)?;
        if let Some(newest) = newest {
            log.tail = tail(&found, newest, bytes);
        }
        log.next_number = log.next_number.max(found.number.saturating_add(1));
        log.reader.add(found.number, found.file.clone(), bytes);
        let ranges = merged.ranges.get(&found.number).cloned().unwrap_or_default();
        let garbage = merged.garbage.contains(&found.number);
        log.segments.push(Segment { number: found.number, file: found.file, bytes, ranges, garbage });
    }
    // A segment that was lost behind the newest one leaves its number unused.
    log.tail.open &= log.segments.last().is_some_and(|segment| segment.number + 1 == log.next_number);
    Ok(log)
}

/// Opens the files that wait to become segments; one of another size is no use.
fn spares(files: &Files, options: &Options) -> Result<(Vec<Spare>, u64), OpenError> {
    let mut spares = Vec::new();
    let mut next = 0;
    for name in files.list()?.spares {
        let number = u64::from_str_radix(&name["spare-".len()..], 16).unwrap_or(0);
        next = next.max(number);
        let path = files.path(&name);
        let file = files.open(&path, OpenMode::Write)?;
        let length = tried(file.length(), "reading", &path)?;
        if length == options.segment_bytes && spares.len() < options.spare_segments_max.max(1) {
            spares.push(Spare { path, file });
        } else {
            files.remove(&path)?;
        }
    }
    Ok((spares, next))
}
