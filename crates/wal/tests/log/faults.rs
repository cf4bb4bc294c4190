//! The disk says no: errors stop the log for good, a full disk does not.

use crate::common::{SEGMENT, assert_whole, found_in, frame, open, survivors, try_open};
use highwater_base::OwnerId;
use highwater_disk::sim::{ENOSPC, Operation};
use highwater_disk::{Disk, SimDisk};
use highwater_wal::{AppendError, Frame, LastRun, OpenError, ReleaseError};
use std::path::Path;

#[test]
fn the_first_failed_sync_stops_the_log_and_no_later_one_is_believed() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[frame(1, 1, 100)]).expect("append");
    log.sync().expect("sync");
    log.append(&[frame(1, 2, 100)]).expect("append");
    disk.fail_next(Operation::Sync, ".segment");
    log.sync().expect_err("the sync fails");
    let operations = disk.operations();
    log.sync().expect_err("a second sync would lie about the first");
    assert!(matches!(log.append(&[frame(1, 3, 100)]), Err(AppendError::Poisoned(_))));
    assert!(matches!(log.release(OwnerId(1), 9), Err(ReleaseError::Poisoned(_))));
    assert_eq!(disk.operations(), operations, "a stopped log leaves the disk alone");
    drop(log);
    // The process ends and another opens the log on the same machine: the page cache shows the second frame, and the
    // disk may never have got it.
    let (log, recovered) = open(&disk);
    assert!(matches!(recovered.last_run(), LastRun::Poisoned(reason) if reason.contains("syncing")));
    let seen = survivors(&recovered);
    assert!(found_in(&[frame(1, 1, 100)], &seen) == Some(0));
    drop(log);
    disk.power_loss();
    let (_, recovered) = open(&disk);
    assert!(survivors(&recovered) == seen, "what opening reported as surviving is durable");
    assert_whole(&recovered, "after the failed sync");
}

#[test]
fn a_failed_write_stops_the_log_wherever_it_hits() {
    let count = {
        let disk = SimDisk::new(0);
        run_until_it_stops(&disk);
        disk.operations()
    };
    for operation in [Operation::Write, Operation::Sync, Operation::SyncDirectory, Operation::Rename] {
        for after in 0..count {
            let disk = SimDisk::new(after);
            disk.fail_after(after, operation);
            let Some(durable) = run_until_it_stops(&disk) else { continue };
            disk.clear_faults();
            disk.power_loss();
            let (_, recovered) = open(&disk);
            assert_whole(&recovered, "after the failed operation");
            let found = survivors(&recovered);
            assert!(
                found_in(&durable, &found) == Some(0),
                "{operation:?} {after}: {} of {}",
                found.len(),
                durable.len()
            );
        }
    }
}

/// Appends until the log stops; what was durable then. `None` if opening failed already.
fn run_until_it_stops(disk: &SimDisk) -> Option<Vec<Frame>> {
    let (mut log, _) = try_open(disk).ok()?;
    let mut durable = Vec::new();
    for round in 1..=12 {
        let batch = [frame(1, round, 2000), frame(2, round, 3000)];
        let synced = match log.append(&batch) {
            Ok(_) => log.sync().is_ok(),
            Err(AppendError::Poisoned(_)) => false,
            Err(other) => panic!("{other}"),
        };
        if !synced {
            log.append(&batch).expect_err("it stays stopped");
            break;
        }
        durable.extend(batch);
    }
    Some(durable)
}

#[test]
fn a_full_disk_is_an_answer_and_the_log_goes_on_when_there_is_space() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        disk.set_capacity(Some(3 * SEGMENT + (80 << 10)));
        let (mut log, _) = open(&disk);
        let mut all = Vec::new();
        let full = loop {
            let batch = [frame(1, all.len() as u64 + 1, 2500)];
            match log.append(&batch) {
                Ok(_) => all.extend(batch),
                Err(error) => break error,
            }
            log.sync().expect("sync");
        };
        assert!(matches!(full, AppendError::Full { bytes } if bytes == log.bytes()), "{full}");
        assert!(all.len() > 15, "{}", all.len());
        let unchanged = log.bytes();
        log.append(&[frame(1, 99, 2500)]).expect_err("still full");
        assert_eq!(log.bytes(), unchanged);
        // Either the owner checkpoints and releases, or someone makes room.
        if seed % 2 == 0 {
            let needs = log.oldest_segment_needs();
            assert_eq!(needs.len(), 1);
            let released = log.release(OwnerId(1), needs[0].1 + 1).expect("a release needs no new space");
            assert_eq!(released.segments, 1);
            all.retain(|frame| frame.position > needs[0].1);
        } else {
            disk.set_capacity(None);
        }
        let next = all.last().expect("frames").position + 1;
        log.append(&[frame(1, next, 2500)]).expect("there is space again");
        log.sync().expect("sync");
        all.push(frame(1, next, 2500));
        drop(log);
        disk.power_loss();
        let (_, recovered) = open(&disk);
        assert_whole(&recovered, "after the full disk");
        assert!(survivors(&recovered) == all);
    }
}

/// One read of the state file failed while a server started, and all of its groups were marked as lost, durably.
#[test]
fn a_state_file_that_cannot_be_read_refuses_this_start_and_marks_nobody() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[frame(1, 1, 100)]).expect("append");
    log.sync().expect("sync");
    drop(log);
    disk.fail_next(Operation::Read, "state");
    assert!(matches!(try_open(&disk), Err(OpenError::Io { .. })));
    let (_, recovered) = open(&disk);
    assert_whole(&recovered, "after a failed read");
    assert!(survivors(&recovered) == [frame(1, 1, 100)]);
}

/// One read failed while a server started, and never again. It was that of the newest segment's header, which says where
/// the segment before ends: what had been cut off there came back, and a group was marked as damaged for good.
#[test]
fn one_failed_read_while_opening_marks_nobody() {
    let mut cuts = 0;
    for seed in 0..30 {
        let disk = SimDisk::new(seed);
        let (mut log, _) = open(&disk);
        log.append(&[frame(1, 1, 100)]).expect("append");
        log.sync().expect("sync");
        log.append(&[frame(2, 1, 5000), frame(1, 2, 5000)]).expect("append");
        drop(log);
        disk.power_loss();
        let (mut log, recovered) = open(&disk);
        cuts += usize::from(recovered.cut().is_some());
        let mut all = survivors(&recovered);
        for at in 3..12 {
            log.append(&[frame(at % 3, at, 2500)]).expect("append");
            log.sync().expect("sync");
            all.push(frame(at % 3, at, 2500));
        }
        drop(log);
        for after in 0..8 {
            let disk = disk.fork(after);
            disk.fail_after(after, Operation::Read);
            drop(try_open(&disk));
            disk.clear_faults();
            let (_, recovered) = open(&disk);
            assert_whole(&recovered, &format!("seed {seed}, after read {after} failed"));
            assert!(survivors(&recovered) == all, "seed {seed}, read {after}");
        }
    }
    assert!(cuts > 0, "no seed tore the end of the log");
}

#[test]
fn a_disk_too_full_for_the_state_file_is_helped_by_the_reserve() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    for round in 1..=20 {
        log.append(&[frame(1, round, 2500)]).expect("append");
        log.sync().expect("sync");
    }
    disk.set_capacity(Some(disk.used_bytes()));
    let released = log.release(OwnerId(1), 15).expect("the reserve makes room");
    assert!(released.segments >= 1);
    let names = disk.list(Path::new(crate::common::DIRECTORY)).expect("list");
    assert!(!names.contains(&"state.new".to_owned()));
}

#[test]
fn a_release_that_finds_no_space_loses_nothing_and_stops_nothing() {
    let disk = SimDisk::new(2);
    let (mut log, _) = open(&disk);
    for round in 1..=20 {
        log.append(&[frame(1, round, 2500)]).expect("append");
        log.sync().expect("sync");
    }
    disk.fail(Operation::Write, "state.new", 0, 2, ENOSPC);
    assert_eq!(log.release(OwnerId(1), 15), Err(ReleaseError::Full));
    assert!(log.release(OwnerId(1), 15).expect("the next one finds space").segments >= 1);
    log.append(&[frame(1, 21, 2500)]).expect("append");
}

/// The story: a forget whose rename had happened, and whose directory sync found the disk full, counted as not having
/// happened. The log went on, and after a crash the forgotten state dropped what was acknowledged since.
#[test]
fn a_disk_that_is_full_once_the_state_may_have_changed_stops_the_log() {
    let hits = [(Operation::Rename, "state.new"), (Operation::SyncDirectory, ""), (Operation::Sync, "state.new")];
    for (operation, path) in hits {
        for seed in 0..10 {
            let disk = SimDisk::new(seed);
            let (mut log, _) = open(&disk);
            log.append(&[frame(1, 1, 100), frame(2, 1, 100)]).expect("append");
            log.sync().expect("sync");
            disk.fail(operation, path, 0, 1, ENOSPC);
            let result = log.forget(OwnerId(1));
            assert!(matches!(result, Err(ReleaseError::Poisoned(_))), "{operation:?}: {result:?}");
            assert!(matches!(log.append(&[frame(1, 2, 100)]), Err(AppendError::Poisoned(_))));
            drop(log);
            disk.power_loss();
            let (mut log, recovered) = open(&disk);
            assert_whole(&recovered, "after the failed forget");
            let found = survivors(&recovered);
            assert!(found == [frame(1, 1, 100), frame(2, 1, 100)] || found == [frame(2, 1, 100)], "{operation:?}");
            log.append(&[frame(1, 2, 100)]).expect("it goes on");
        }
    }
}

#[test]
fn a_frame_larger_than_a_segment_is_refused_and_a_large_batch_is_split() {
    let disk = SimDisk::new(3);
    let (mut log, _) = open(&disk);
    let AppendError::TooLarge { bytes_max, .. } = log.append(&[frame(1, 1, 1 << 20)]).expect_err("too large") else {
        panic!("another error");
    };
    log.append(&[frame(1, 1, bytes_max as usize + 1)]).expect_err("one byte more");
    let batch: Vec<_> = (1..=9).map(|at| frame(at, 1, bytes_max as usize / 2)).collect();
    let mut all = vec![frame(1, 0, bytes_max as usize)];
    log.append(&all).expect("the largest");
    let locations = log.append(&batch).expect("split");
    assert!(locations.windows(2).any(|pair| pair[0].segment != pair[1].segment));
    log.sync().expect("sync");
    all.extend(batch);
    disk.power_loss();
    drop(log);
    let (_, recovered) = open(&disk);
    assert!(survivors(&recovered) == all);
}

#[test]
fn a_batch_that_would_need_more_segments_than_there_is_room_for_claims_nothing() {
    let disk = SimDisk::new(4);
    let (mut log, _) = open(&disk);
    log.append(&[frame(1, 1, 100)]).expect("append");
    log.sync().expect("sync");
    let bytes = log.bytes();
    let batch: Vec<_> = (2..=100).map(|at| frame(1, at, 20_000)).collect();
    assert!(matches!(log.append(&batch), Err(AppendError::Full { .. })));
    assert_eq!(log.bytes(), bytes);
    log.append(&[frame(1, 2, 100)]).expect("a small one still fits");
    log.sync().expect("sync");
    disk.power_loss();
    drop(log);
    let (_, recovered) = open(&disk);
    assert!(survivors(&recovered) == [frame(1, 1, 100), frame(1, 2, 100)]);
    assert_whole(&recovered, "after the refusal");
}

#[test]
fn a_second_opener_is_told_that_the_log_is_locked() {
    let disk = SimDisk::new(5);
    let (log, _) = open(&disk);
    assert!(matches!(try_open(&disk), Err(OpenError::Locked(_))));
    drop(log);
    open(&disk);
}
