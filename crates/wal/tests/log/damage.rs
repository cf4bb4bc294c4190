//! Bits turn over, pages cannot be read, files vanish: each owner gets the verdict that its own frames deserve.

use crate::common::{DIRECTORY, PAGE, SEGMENT, assert_whole, frame, names, open, segment_path, survivors, try_open};
use highwater_base::OwnerId;
use highwater_disk::sim::{EIO, Operation};
use highwater_disk::{Disk, SimDisk};
use highwater_wal::{Frame, Location, Log, OpenError, Options, Recovered, Verdict};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// A frame with the place of its payload.
struct Laid {
    frame: Frame,
    location: Location,
}

/// Three owners in several segments, all of it synced; owner 3 only at the beginning. Then the machine dies.
fn laid(seed: u64) -> (SimDisk, Vec<Laid>) {
    let disk = SimDisk::new(seed);
    let (mut log, _) = open(&disk);
    let mut all = Vec::new();
    for round in 1..=12 {
        let mut batch = vec![frame(1, round, 1200), frame(2, round, 3100)];
        if round <= 3 {
            batch.insert(1, frame(3, round, 500));
        }
        let locations = log.append(&batch).expect("append");
        log.sync().expect("sync");
        all.extend(batch.into_iter().zip(locations).map(|(frame, location)| Laid { frame, location }));
    }
    drop(log);
    disk.power_loss();
    (disk, all)
}

fn newest(all: &[Laid]) -> u64 {
    all.last().expect("frames").location.segment
}

fn verdicts(recovered: &Recovered) -> Vec<(u64, Verdict)> {
    recovered.owners().iter().map(|(owner, found)| (owner.0, found.verdict)).collect()
}

/// Marks are durable, and later lives add to the log without changing them.
fn assert_sticks(disk: &SimDisk, before: &[(u64, Verdict)]) {
    disk.power_loss();
    for life in 0..3u64 {
        let (mut log, recovered) = open(disk);
        assert_eq!(verdicts(&recovered), before, "life {life}");
        let owner = 4 + life % 2;
        if before.iter().all(|(known, _)| *known < 4) {
            log.append(&[frame(1, 100 + life, 900)]).expect("append");
        } else {
            log.append(&[frame(owner, 100 + life, 900)]).expect("append");
        }
        log.sync().expect("sync");
        disk.power_loss();
    }
}

#[test]
fn a_turned_bit_in_a_sealed_segment_damages_the_owner_it_hits_and_no_other() {
    let (intact, all) = laid(1);
    for offset in (0..SEGMENT).step_by(61) {
        let disk = intact.fork(offset);
        disk.flip_bit(&segment_path(2), offset).expect("flip");
        let (_, recovered) = open(&disk);
        let found = survivors(&recovered);
        let lost: Vec<_> = all.iter().filter(|laid| !found.contains(&laid.frame)).collect();
        for (owner, state) in recovered.owners() {
            let hit = lost.iter().any(|laid| laid.frame.owner == *owner);
            match state.verdict {
                Verdict::Whole => assert!(!hit, "{offset}: {owner} lost frames and is not marked"),
                Verdict::Damaged { segment, .. } => {
                    assert!(hit, "{offset}: {owner} lost nothing and is marked");
                    assert_eq!(segment, 2);
                }
                Verdict::Recovering { .. } => panic!("{offset}: a sealed segment was synced for certain"),
            }
        }
        assert!(lost.len() <= 1, "{offset}: one bit takes {} frames", lost.len());
    }
}

#[test]
fn a_turned_bit_in_the_newest_segment_marks_the_owner_it_hits_and_no_other() {
    let (intact, all) = laid(2);
    let last_batch = all[all.len() - 2].location.offset / PAGE * PAGE;
    let (mut damaged, mut recovering) = (0, 0);
    for offset in (0..SEGMENT).step_by(61) {
        let disk = intact.fork(offset);
        disk.flip_bit(&segment_path(newest(&all)), offset).expect("flip");
        let (_, recovered) = open(&disk);
        let found = survivors(&recovered);
        let lost: Vec<_> = all.iter().filter(|laid| !found.contains(&laid.frame)).collect();
        for (owner, state) in recovered.owners() {
            let hit = lost.iter().any(|laid| laid.frame.owner == *owner);
            assert_eq!(hit, !state.verdict.is_whole(), "{offset}: {owner} {:?}", state.verdict);
            match state.verdict {
                Verdict::Damaged { offset, .. } => {
                    assert!(offset < last_batch, "a later batch proves that this one was synced");
                    damaged += 1;
                }
                Verdict::Recovering { offset, .. } => {
                    assert!(offset >= last_batch);
                    recovering += 1;
                }
                Verdict::Whole => {}
            }
        }
        if let Some((_, verdict)) = verdicts(&recovered).iter().find(|(_, verdict)| !verdict.is_whole()) {
            assert!(!verdict.is_whole());
            assert_sticks(&disk, &verdicts(&recovered));
        }
    }
    assert!(damaged > 20 && recovering > 20, "{damaged} damaged, {recovering} recovering");
}

#[test]
fn a_turned_bit_in_the_state_file_or_a_spare_loses_no_frame() {
    let (intact, all) = laid(3);
    let all: Vec<_> = all.into_iter().map(|laid| laid.frame).collect();
    for (path, bytes) in intact.files() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".segment") {
            continue;
        }
        for offset in (0..bytes.len() as u64).step_by(if name == "state" { 1 } else { 509 }) {
            let disk = intact.fork(offset);
            disk.flip_bit(&path, offset).expect("flip");
            let (_, recovered) = open(&disk);
            assert!(survivors(&recovered) == all, "{name} {offset}");
            // Without the state file nobody knows who was marked before.
            let marked = name == "state";
            assert!(recovered.owners().values().all(|owner| owner.verdict.is_whole() != marked), "{name} {offset}");
            assert_eq!(recovered.verdict(OwnerId(77)).is_whole(), !marked);
        }
    }
}

#[test]
fn an_unreadable_page_counts_as_damage_and_the_rest_is_read() {
    let (intact, all) = laid(4);
    for segment in [2, newest(&all)] {
        for page in 0..SEGMENT / PAGE {
            let disk = intact.fork(page);
            // The whole first read fails, then the page itself among the single ones.
            disk.fail(Operation::Read, &format!("{segment:x}.segment"), 1, 1, EIO);
            disk.fail(Operation::Read, &format!("{segment:x}.segment"), 2 + page, 1, EIO);
            let (_, recovered) = open(&disk);
            disk.clear_faults();
            let found = survivors(&recovered);
            for laid in &all {
                let verdict = recovered.verdict(laid.frame.owner);
                assert!(found.contains(&laid.frame) || !verdict.is_whole(), "{segment} {page}");
            }
            assert!(found.len() + 6 >= all.len(), "{segment} {page}: {} of {}", found.len(), all.len());
        }
    }
}

#[test]
fn a_segment_that_vanished_damages_those_it_held() {
    let (intact, all) = laid(5);
    for segment in 1..=newest(&all) {
        let disk = intact.fork(segment);
        disk.remove(&segment_path(segment)).expect("remove");
        disk.sync_directory(Path::new(crate::common::DIRECTORY)).expect("sync");
        let (mut log, recovered) = open(&disk);
        let found = survivors(&recovered);
        for laid in &all {
            let verdict = recovered.verdict(laid.frame.owner);
            if laid.location.segment == segment && segment < newest(&all) {
                assert!(matches!(verdict, Verdict::Damaged { segment: at, .. } if at == segment));
            }
            assert_eq!(found.contains(&laid.frame), laid.location.segment != segment);
        }
        let held = |owner| all.iter().any(|laid| laid.location.segment == segment && laid.frame.owner == owner);
        let goes_on = |owner| all.iter().any(|laid| laid.location.segment > segment && laid.frame.owner == owner);
        for owner in [OwnerId(1), OwnerId(2), OwnerId(3)] {
            if !held(owner) && goes_on(owner) {
                assert!(recovered.verdict(owner).is_whole(), "{owner} goes on behind segment {segment}");
            }
        }
        log.append(&[frame(9, 1, 10)]).expect("a damaged log serves the others");
    }
}

#[test]
fn a_newest_segment_that_vanished_after_a_clean_close_is_noticed() {
    let (disk, all) = laid(6);
    let (log, _) = open(&disk);
    log.close().expect("close");
    disk.remove(&segment_path(newest(&all))).expect("remove");
    let (mut log, recovered) = open(&disk);
    assert!(matches!(recovered.verdict(OwnerId(1)), Verdict::Damaged { .. }));
    log.append(&[frame(9, 1, 10)]).expect("append");
    log.sync().expect("sync");
    disk.power_loss();
    let (_, recovered) = open(&disk);
    assert!(survivors(&recovered).contains(&frame(9, 1, 10)));
    assert!(matches!(recovered.verdict(OwnerId(1)), Verdict::Damaged { .. }));
}

#[test]
fn where_the_table_is_bad_too_owners_that_go_on_behind_it_are_proven_whole() {
    let (intact, all) = laid(7);
    let first: Vec<_> = all.iter().filter(|laid| laid.location.segment == 1).collect();
    let disk = intact.fork(1);
    // A frame of owner 1 is bad beyond reading whose it was, and so is the table behind the last frame.
    let header = first[0].location.offset - 40;
    for offset in [header, header + 17, header + 25] {
        disk.flip_bit(&segment_path(1), offset).expect("flip");
    }
    let last = first.last().expect("frames").location;
    let table = (last.offset + u64::from(last.length)).div_ceil(PAGE) * PAGE;
    disk.flip_bit(&segment_path(1), table + 40).expect("flip");
    let (_, recovered) = open(&disk);
    assert!(matches!(recovered.verdict(OwnerId(1)), Verdict::Damaged { segment: 1, .. }));
    assert!(recovered.verdict(OwnerId(2)).is_whole(), "owner 2 goes on without a gap");
    let only_before = all.iter().filter(|laid| laid.frame.owner == OwnerId(3)).all(|laid| laid.location.segment == 1);
    let behind = first.iter().any(|laid| laid.frame.owner == OwnerId(3));
    assert!(only_before && behind && recovered.verdict(OwnerId(3)).is_whole(), "its frames lie behind the bad one");
    assert!(!recovered.verdict(OwnerId(77)).is_whole(), "an owner with that one frame alone would be lost");
}

#[test]
fn a_marked_owner_is_whole_again_once_it_was_forgotten_and_starts_anew() {
    let (disk, all) = laid(8);
    let victim = all.iter().find(|laid| laid.location.segment == 2).expect("a frame");
    disk.flip_bit(&segment_path(2), victim.location.offset).expect("flip");
    let owner = victim.frame.owner;
    let (mut log, recovered) = open(&disk);
    assert!(!recovered.verdict(owner).is_whole());
    log.forget(owner).expect("forget");
    log.append(&[frame(owner.0, 1, 33)]).expect("append");
    log.sync().expect("sync");
    drop(log);
    disk.power_loss();
    let (_, recovered) = open(&disk);
    assert_whole(&recovered, "after forgetting");
    let found = survivors(&recovered);
    let own: Vec<_> = found.into_iter().filter(|frame| frame.owner == owner).collect();
    assert_eq!(names(&own), [(owner.0, 1)]);
}

/// A damage that may have taken every trace of an owner is remembered for the owners nobody heard of, until such an
/// owner starts anew, or the segment is given back.
#[test]
fn an_owner_that_may_be_lost_without_a_trace_stays_marked() {
    let disk = SimDisk::new(10);
    let (mut log, _) = open(&disk);
    log.append(&[frame(1, 1, 500)]).expect("append");
    log.sync().expect("sync");
    let only = log.append(&[frame(5, 1, 500)]).expect("append")[0];
    log.sync().expect("sync");
    log.append(&[frame(1, 2, 500)]).expect("append");
    log.sync().expect("sync");
    drop(log);
    disk.power_loss();
    for offset in [40, 17, 9] {
        disk.flip_bit(&segment_path(1), only.offset - offset).expect("flip");
    }
    for _ in 0..3 {
        let (mut log, recovered) = open(&disk);
        assert!(recovered.verdict(OwnerId(1)).is_whole(), "it goes on behind the damage");
        assert!(matches!(recovered.verdict(OwnerId(5)), Verdict::Damaged { segment: 1, .. }));
        log.append(&[frame(1, 3, 500)]).expect("append");
        log.sync().expect("sync");
        disk.power_loss();
    }
    let (mut log, _) = open(&disk);
    log.forget(OwnerId(5)).expect("forget");
    drop(log);
    let (mut log, recovered) = open(&disk);
    assert!(recovered.verdict(OwnerId(5)).is_whole() && !recovered.verdict(OwnerId(6)).is_whole());
    while log.oldest_segment_needs().is_empty() {
        log.append(&[frame(1, 4, 3000)]).expect("append");
    }
    log.sync().expect("sync");
    assert!(log.release(OwnerId(1), 4).expect("release").segments > 0);
    drop(log);
    let (_, recovered) = open(&disk);
    assert!(recovered.verdict(OwnerId(6)).is_whole());
}

#[test]
fn a_later_version_is_refused_and_nothing_is_touched() {
    let (intact, _) = laid(9);
    for name in ["0000000000000002.segment", "state"] {
        let disk = intact.fork(0);
        let path = Path::new(crate::common::DIRECTORY).join(name);
        let file = disk.open(&path, highwater_disk::OpenMode::Write).expect("open");
        let mut bytes = vec![0; if name == "state" { file.length().expect("length") as usize } else { 64 }];
        file.read_exact_at(&mut bytes, 0).expect("read");
        bytes[8] = 2;
        if name == "state" {
            let crc = crc32c::crc32c_append(crc32c::crc32c(&[2, 0]), &bytes[14..]);
            bytes[10..14].copy_from_slice(&crc.to_le_bytes());
        } else {
            let crc = crc32c::crc32c(&bytes[..60]);
            bytes[60..].copy_from_slice(&crc.to_le_bytes());
        }
        file.write_at(&bytes, 0).expect("write");
        drop(file);
        let before = disk.files();
        match try_open(&disk) {
            Err(OpenError::Version { version: 2, path: at }) => assert_eq!(at, path),
            other => panic!("{name}: {:?}", other.map(drop)),
        }
        assert!(disk.files() == before);
    }
}

/// The story: all logs that were made in one boot had one identity, so that a segment which an operator copied into the
/// wrong directory read back as this log's own.
#[test]
fn a_segment_of_another_log_of_the_same_boot_is_not_taken_for_its_own() {
    let written = |identity: u64, length: usize| {
        let disk = SimDisk::new(identity);
        let options = || Options { identity_new: Some(identity), ..crate::common::options() };
        let (mut log, _) = Log::open(Arc::new(disk.clone()), Path::new(DIRECTORY), options()).expect("open");
        for position in 1..=3 {
            log.append(&[frame(1, position, length)]).expect("append");
            log.sync().expect("sync");
        }
        log.close().expect("close");
        disk
    };
    let (disk, other) = (written(1, 100), written(2, 200));
    let files = other.files();
    let (path, foreign) = files.iter().find(|(path, _)| *path == segment_path(1)).expect("a segment");
    let file = disk.open(path, highwater_disk::OpenMode::Write).expect("open");
    file.write_at(foreign, 0).expect("write");
    // Whichever identity a later start would draw, a log keeps its own.
    let (_, recovered) = open(&disk);
    assert_eq!(names(&survivors(&recovered)), []);
    assert!(matches!(recovered.verdict(OwnerId(1)), Verdict::Damaged { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever happens to the bytes, opening says so or refuses; it never panics, and never invents a frame.
    #[test]
    fn random_bytes_over_any_file_invent_no_frame(
        seed in 0u64..8,
        spots in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..900)), 1..5),
    ) {
        let (disk, all) = laid(seed);
        let files = disk.files();
        for (which, place, bytes) in &spots {
            let (path, content) = &files[which.index(files.len())];
            let file = disk.open(path, highwater_disk::OpenMode::Write).expect("open");
            file.write_at(bytes, place.index(content.len().max(1)) as u64).expect("write");
            file.sync_data().expect("sync");
        }
        if let Ok((mut log, recovered)) = try_open(&disk) {
            let found = survivors(&recovered);
            let mut rest = all.iter();
            for frame in &found {
                prop_assert!(rest.any(|laid| laid.frame == *frame), "invented or out of order");
            }
            for laid in &all {
                prop_assert!(found.contains(&laid.frame) || !recovered.verdict(laid.frame.owner).is_whole());
            }
            log.append(&[frame(9, 1, 10)]).expect("append");
            log.sync().expect("sync");
        }
    }
}
