//! Space comes back, and nothing that was needed goes with it.

use crate::common::{DIRECTORY, PAGE, assert_whole, frame, open, segment_path, survivors};
use highwater_base::OwnerId;
use highwater_disk::{Disk, SimDisk};
use highwater_wal::ReadError;
use std::path::Path;

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
    let disk = SimDisk::new(4);
    let (mut log, _) = open(&disk);
    for position in 1..=10 {
        log.append(&[frame(1, position, 3000)]).expect("append");
        for name in disk.list(Path::new(DIRECTORY)).expect("list").iter().filter(|name| name.ends_with(".segment")) {
            let file = disk.open(&Path::new(DIRECTORY).join(name), highwater_disk::OpenMode::Read).expect("open");
            assert_eq!(file.length().expect("length"), 8 * PAGE);
        }
    }
}
