//! Space comes back, and nothing that was needed goes with it.

use crate::common::{
    DIRECTORY, PAGE, SEGMENT, assert_whole, frame, names, open, options, segment_path, survivors, try_open,
};
use highwater_base::OwnerId;
use highwater_disk::{Disk, OpenMode, SimDisk};
use highwater_wal::{Log, Options, ReadError, Verdict};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

/// The story: a log removed a segment whose entries a later record had made needless, and the file system made the
/// removal durable before the record (Ursula, 2026). After a power loss the record was gone, the segment too, and the
/// replica could not say what it had acknowledged. Here the record is the state file, and it is synced first.
#[test]
fn segment_deleted_before_its_purge_record_was_synced() {
    for stop in 0..12 {
        for seed in 0..12 {
            let disk = SimDisk::new(seed * 100 + stop);
            let (mut log, _) = open(&disk);
            let mut all = Vec::new();
            for round in 1..=24 {
                let batch = [frame(1, round, 2000), frame(2, round, 900)];
                log.append(&batch).expect("append");
                log.sync().expect("sync");
                all.extend(batch);
            }
            disk.stop_at(disk.operations() + 1 + stop);
            for (owner, needed) in [(1, 20), (2, 18)] {
                if log.release(OwnerId(owner), needed).is_err() {
                    break;
                }
            }
            drop(log);
            disk.power_loss();
            let (_, recovered) = open(&disk);
            assert_whole(&recovered, "after the purge");
            let found = survivors(&recovered);
            assert!(all.ends_with(&found), "stop {stop}, seed {seed}");
            let kept = |owner, needed| {
                let wanted = all.iter().filter(|frame| frame.owner == OwnerId(owner) && frame.position >= needed);
                wanted.into_iter().all(|frame| found.contains(frame))
            };
            assert!(kept(1, 20) && kept(2, 18), "stop {stop}, seed {seed}");
        }
    }
}

#[test]
fn a_recycled_segment_shows_nothing_of_its_earlier_life() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    let mut position = 0;
    for life in 0..6 {
        for _ in 0..12 {
            position += 1;
            // Frames of one size, so that those of the earlier life lie exactly where later ones will.
            log.append(&[frame(1, position, 3000)]).expect("append");
            log.sync().expect("sync");
        }
        log.release(OwnerId(1), position - 2).expect("release");
        let (made, released) = (log.metrics().segments_made, log.metrics().segments_released);
        assert!(released > life && made <= 4, "segments are reused: {made} made, {released} released");
    }
    drop(log);
    disk.power_loss();
    let (_, recovered) = open(&disk);
    assert_whole(&recovered, "after many lives");
    let found = survivors(&recovered);
    assert_eq!(found.last(), Some(&frame(1, position, 3000)));
    assert!(found.windows(2).all(|pair| pair[0].position + 1 == pair[1].position));
}

#[test]
fn a_reader_is_told_when_its_segment_was_given_back_and_reused() {
    let disk = SimDisk::new(2);
    let (mut log, _) = open(&disk);
    let reader = log.reader();
    let old = log.append(&[frame(1, 1, 3000)]).expect("append")[0];
    assert_eq!(reader.read(old).expect("read"), frame(1, 1, 3000).payload);
    for position in 2..40 {
        log.append(&[frame(1, position, 3000)]).expect("append");
        log.sync().expect("sync");
        log.release(OwnerId(1), position).expect("release");
    }
    assert!(matches!(reader.read(old), Err(ReadError::Reclaimed(1))));
    let mut wrong = log.append(&[frame(1, 40, 3000)]).expect("append")[0];
    wrong.offset += 4;
    assert!(matches!(reader.read(wrong), Err(ReadError::Damaged { .. })));
    wrong.length = u32::MAX;
    assert!(matches!(reader.read(wrong), Err(ReadError::Damaged { .. })));
}

#[test]
fn the_oldest_segment_names_those_who_need_it() {
    let disk = SimDisk::new(3);
    let (mut log, _) = open(&disk);
    // An idle owner with one frame, and a busy one.
    log.append(&[frame(7, 5, 10)]).expect("append");
    for position in 1..=30 {
        log.append(&[frame(1, position, 3000)]).expect("append");
    }
    log.sync().expect("sync");
    log.release(OwnerId(1), 31).expect("release");
    assert_eq!(log.oldest_segment_needs(), [(OwnerId(7), 5)]);
    assert!(disk.exists(&segment_path(1)).expect("exists"));
    let released = log.release(OwnerId(7), 6).expect("release");
    assert!(released.segments > 2, "everything but the newest goes at once");
    assert!(!disk.exists(&segment_path(1)).expect("exists"));
    assert!(log.oldest_segment_needs().is_empty());
}

#[test]
fn a_segment_is_whole_on_the_disk_before_it_has_a_name() {
    let intact = SimDisk::new(4);
    let operations = {
        let disk = intact.fork(0);
        append_some(&disk);
        disk.operations()
    };
    for stop in 1..=operations {
        let disk = intact.fork(stop);
        disk.stop_at(stop);
        append_some(&disk);
        disk.power_loss();
        let segments = disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().ends_with(".segment"));
        for (path, bytes) in segments {
            assert_eq!(bytes.len() as u64, 8 * PAGE, "stop {stop}: {}", path.display());
            assert!(bytes.starts_with(b"HWLOGSEG"), "stop {stop}: {}", path.display());
        }
    }
}

fn append_some(disk: &SimDisk) {
    let Ok((mut log, _)) = try_open(disk) else { return };
    for position in 1..=20 {
        if log.append(&[frame(1, position, 3000)]).is_err() || log.sync().is_err() {
            return;
        }
    }
}

/// The story this prevents: an owner is forgotten while its last frames are not synced. The power fails, the log ends
/// before them, and what the owner appends in its new life lies below the place from which it counts.
#[test]
fn an_owner_forgotten_before_its_frames_were_synced_keeps_its_new_life() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk);
        log.append(&[frame(1, 1, 100)]).expect("append");
        log.sync().expect("sync");
        log.append(&[frame(1, 2, 9000)]).expect("append");
        log.forget(OwnerId(1)).expect("forget");
        drop(log);
        disk.power_loss();
        let (mut log, recovered) = open(&disk);
        assert!(survivors(&recovered).is_empty());
        log.append(&[frame(1, 50, 100)]).expect("append");
        log.sync().expect("sync");
        drop(log);
        disk.power_loss();
        let (_, recovered) = open(&disk);
        assert_whole(&recovered, "in its new life");
        assert!(survivors(&recovered) == [frame(1, 50, 100)], "seed {seed}");
    }
}

/// The story: bytes turned in a part of a segment that held nothing, which harmed nobody. The segment was given back and
/// its file used again, and after the next crash what had turned lay behind the log's end, where it looked like a write
/// that the disk had lost: every owner was marked, and none had lost anything.
#[test]
fn a_segment_with_turned_bytes_is_not_used_again() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    for round in 1..=24 {
        log.append(&[frame(1, round, 2000)]).expect("append");
        log.sync().expect("sync");
    }
    drop(log);
    disk.crash_process();
    for number in 1..=3 {
        let file = disk.open(&segment_path(number), OpenMode::Write).expect("a segment");
        file.write_at(&[0x5a; 512], 7 * PAGE).expect("its last page");
        file.sync_data().expect("synced");
    }
    let (mut log, recovered) = open(&disk);
    assert_whole(&recovered, "turned where nothing was");
    log.release(OwnerId(1), 20).expect("released");
    assert!(!disk.exists(&segment_path(1)).expect("a disk"), "it was not given back");
    // The log goes on into files that were used before, and stops at every point of them.
    for round in 25..=60 {
        log.append(&[frame(1, round, 2000)]).expect("append");
        log.sync().expect("sync");
        let crashed = disk.fork(round);
        assert_whole(&open(&crashed).1, &format!("after round {round}"));
        log.release(OwnerId(1), round - 4).expect("released");
    }
}

/// Owner 1 has frames in the first segments and is abandoned; owner 2 goes on until the log would be full, `rounds` of
/// it. Returns the last one that was durable.
fn go_on_beside_an_abandoned_owner(disk: &SimDisk, rounds: RangeInclusive<u64>) -> u64 {
    let options = Options { log_bytes_max: 8 * SEGMENT, ..options() };
    let Ok((mut log, _)) = Log::open(Arc::new(disk.clone()), Path::new(DIRECTORY), options) else { return 0 };
    log.abandon(OwnerId(1));
    let last = *rounds.end();
    for round in rounds {
        let appended = log.append(&[frame(2, round, 9_000)]).is_ok() && log.sync().is_ok();
        if !appended {
            return round - 1;
        }
        drop(log.release(OwnerId(2), round.saturating_sub(2)));
    }
    last
}

fn with_a_stopped_owner(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let (mut log, _) = open(&disk);
    for position in 1..=4 {
        log.append(&[frame(1, position, 9_000), frame(2, 0, 10)]).expect("append");
        log.sync().expect("sync");
    }
    log.close().expect("closed");
    disk
}

/// The story: one group of sixteen was damaged, and released nothing any more. The log filled up behind its oldest
/// frame, and refused every write of the other fifteen for good.
#[test]
fn an_owner_that_went_down_does_not_hold_up_the_others_and_its_segments_are_kept() {
    let disk = with_a_stopped_owner(1);
    let before: Vec<_> = segments(&disk);
    assert_eq!(go_on_beside_an_abandoned_owner(&disk, 1..=120), 120, "the log was full");
    disk.power_loss();
    let (log, recovered) = open(&disk);
    assert!(log.bytes() <= 8 * SEGMENT);
    assert!(
        matches!(recovered.verdict(OwnerId(1)), Verdict::Damaged { segment: 1, .. }),
        "a part is gone, and it knows"
    );
    assert!(recovered.verdict(OwnerId(2)).is_whole());
    // The same bytes, under the name that nobody touches. The last one goes on with the log.
    for (number, bytes) in &before[..before.len() - 1] {
        let kept = Path::new(DIRECTORY).join(format!("{number:016x}.kept"));
        let (_, found) = disk.files().into_iter().find(|(path, _)| *path == kept).expect("it is kept");
        assert!(found == *bytes, "segment {number} was changed");
    }
    // It holds nobody up after the restart either, and nothing else of it is in the way.
    drop((log, recovered));
    assert_eq!(go_on_beside_an_abandoned_owner(&disk, 121..=240), 240);
}

fn segments(disk: &SimDisk) -> Vec<(u64, Vec<u8>)> {
    let number = |path: &Path| u64::from_str_radix(path.file_name()?.to_str()?.strip_suffix(".segment")?, 16).ok();
    disk.files().into_iter().filter_map(|(path, bytes)| Some((number(&path)?, bytes))).collect()
}

#[test]
fn a_crash_while_segments_are_set_aside_loses_no_file_and_believes_no_owner_without_its_frames() {
    let intact = with_a_stopped_owner(2);
    let owned: Vec<_> = segments(&intact).into_iter().map(|(number, _)| number).collect();
    let owned = &owned[..owned.len() - 1];
    let before = intact.operations();
    let total = {
        let disk = intact.fork(0);
        go_on_beside_an_abandoned_owner(&disk, 1..=45);
        assert!(
            disk.files().iter().any(|(path, _)| path.to_string_lossy().ends_with(".kept")),
            "nothing was set aside"
        );
        disk.operations()
    };
    for stop in before..=total {
        let disk = intact.fork(stop);
        disk.stop_at(stop);
        let durable = go_on_beside_an_abandoned_owner(&disk, 1..=45);
        disk.power_loss();
        let (_, recovered) = open(&disk);
        assert!(recovered.verdict(OwnerId(2)).is_whole(), "stop {stop}");
        let found = names(&survivors(&recovered));
        assert!(durable == 0 || found.contains(&(2, durable)), "stop {stop}: {durable} is lost");
        let whole = (1..=4).all(|position| found.contains(&(1, position)));
        assert!(whole || !recovered.verdict(OwnerId(1)).is_whole(), "stop {stop}: {found:?} passes for all of it");
        for number in owned {
            let kept = Path::new(DIRECTORY).join(format!("{number:016x}.kept"));
            let there = disk.exists(&kept).expect("a disk") || disk.exists(&segment_path(*number)).expect("a disk");
            assert!(there, "stop {stop}: segment {number} is gone");
        }
    }
}
