//! The machine dies at every operation, loses what it may, and the log is opened again.

use crate::common::{PAGE, assert_whole, found_in, frame, names, open, segment_path, survivors, try_open};
use highwater_base::OwnerId;
use highwater_base::planted::{Bug, plant};
use highwater_disk::sim::{EIO, Operation};
use highwater_disk::{Disk as _, OpenMode, SimDisk};
use highwater_wal::{Frame, Log, Recovered};

/// What a script did before the machine died.
#[derive(Default)]
struct Story {
    appended: Vec<Frame>,
    /// How many of them were reported durable.
    durable: usize,
    /// The position from which each of the owners 1 to 3 needs its frames.
    needed: [u64; 4],
}

const ROUNDS: u64 = 26;

/// Appends, syncs, releases and rolls until something fails.
fn run(disk: &SimDisk, story: &mut Story) -> Option<()> {
    let (mut log, _) = try_open(disk).ok()?;
    for round in 1..=ROUNDS {
        step(&mut log, story, round)?;
        if round == ROUNDS / 2 {
            // A clean restart in the middle.
            log.close().ok()?;
            (log, _) = try_open(disk).ok()?;
        }
    }
    log.close().ok()
}

fn step(log: &mut Log, story: &mut Story, round: u64) -> Option<()> {
    let length = |owner: u64| ((round * 977 + owner * 331) % 3000) as usize;
    let mut batch = vec![frame(1, round, length(1)), frame(2, round, length(2)), frame(1, round, 17)];
    if round.is_multiple_of(3) {
        batch.push(frame(3, round, 5000));
    }
    story.appended.extend(batch.iter().cloned());
    log.append(&batch).ok()?;
    // Every fourth batch waits for the next one's sync.
    if !round.is_multiple_of(4) {
        log.sync().ok()?;
        story.durable = story.appended.len();
    }
    if round.is_multiple_of(5) {
        for owner in 1..=3 {
            let needed = round.saturating_sub(4);
            // What the log may give back counts from the call on.
            story.needed[owner as usize] = needed;
            log.release(OwnerId(owner), needed).ok()?;
        }
    }
    Some(())
}

/// What survives is a stretch of what was appended: all that was reported durable and is needed, and nothing else.
fn check(recovered: &Recovered, story: &Story) -> Result<usize, String> {
    if let Some((owner, found)) = recovered.owners().iter().find(|(_, found)| !found.verdict.is_whole()) {
        return Err(format!("{owner} is {:?}", found.verdict));
    }
    let found = survivors(recovered);
    let start = found_in(&found, &story.appended)
        .ok_or_else(|| format!("{:?} is no stretch of {:?}", names(&found), names(&story.appended)))?;
    let needed = |frame: &&Frame| frame.position >= story.needed[frame.owner.0 as usize];
    if let Some(gone) = story.appended[..start].iter().find(needed) {
        return Err(format!("{:?} is gone", names(std::slice::from_ref(gone))));
    }
    let end = start + found.len();
    if end < story.durable {
        return Err(format!("{end} of {} durable frames are left", story.durable));
    }
    Ok(end)
}

fn operations_of_the_script() -> u64 {
    let disk = SimDisk::new(0);
    let mut story = Story::default();
    run(&disk, &mut story).expect("nothing fails");
    assert_eq!(story.durable, story.appended.len() - if ROUNDS.is_multiple_of(4) { 4 } else { 0 });
    disk.operations()
}

/// Opens after a crash, checks, goes on for some rounds, and comes through a power loss.
fn recover_and_go_on(disk: &SimDisk, story: &mut Story) -> Result<(), String> {
    let (mut log, recovered) = try_open(disk).map_err(|error| error.to_string())?;
    let end = check(&recovered, story)?;
    drop(recovered);
    story.appended.truncate(end);
    // What was reported as surviving is durable from now on.
    story.durable = end;
    for round in 101..=106 {
        step(&mut log, story, round).ok_or("a recovered log takes no frames")?;
    }
    drop(log);
    disk.power_loss();
    let (_, recovered) = try_open(disk).map_err(|error| error.to_string())?;
    check(&recovered, story).map(drop)
}

/// One cell of the matrix: dies at the operation `stop`, and tells what went wrong afterwards.
fn cell(stop: u64, seed: u64, crash: impl Fn(&SimDisk)) -> Result<(), String> {
    let disk = SimDisk::new(seed * 1_000_003 + stop);
    disk.stop_at(stop);
    let mut story = Story::default();
    assert!(run(&disk, &mut story).is_none(), "the machine dies at {stop}");
    crash(&disk);
    recover_and_go_on(&disk, &mut story).map_err(|error| format!("stop {stop}, seed {seed}: {error}"))
}

#[test]
fn a_power_loss_at_any_operation_takes_nothing_that_was_reported_durable() {
    let operations = operations_of_the_script();
    assert!(operations > 150, "the script rolls, releases and restarts: {operations}");
    for stop in 1..=operations {
        for seed in 0..6 {
            cell(stop, seed, SimDisk::power_loss).expect("nothing durable is lost");
        }
    }
}

#[test]
fn a_killed_process_at_any_operation_takes_nothing_that_was_reported_durable() {
    // What the page cache showed to the second life must outlive the machine, whose power fails next.
    for stop in 1..=operations_of_the_script() {
        cell(stop, 0, SimDisk::crash_process).expect("nothing durable is lost");
    }
}

#[test]
fn a_power_loss_during_recovery_changes_no_verdict() {
    for stop in (1..=operations_of_the_script()).step_by(3) {
        for seed in 0..8 {
            let crashes = |disk: &SimDisk| {
                disk.power_loss();
                for second in 1..4 {
                    disk.stop_at(disk.operations() + second * 2 + seed % 2);
                    drop(try_open(disk));
                    disk.power_loss();
                }
            };
            cell(stop, seed, crashes).expect("nothing durable is lost");
        }
    }
}

/// How many power losses it takes until the matrix notices a planted fault.
fn cells_until_found(bug: Bug) -> usize {
    let operations = operations_of_the_script();
    plant(Some(bug));
    let cells = (0..6).flat_map(|seed| (1..=operations).map(move |stop| (stop, seed)));
    let found = cells.enumerate().find(|(_, (stop, seed))| cell(*stop, *seed, SimDisk::power_loss).is_err());
    plant(None);
    found.map(|(index, _)| index + 1).expect("the planted fault is found")
}

#[test]
fn the_matrix_notices_a_log_that_acknowledges_before_it_syncs() {
    assert!(cells_until_found(Bug::AcknowledgeBeforeSync) < 200);
}

#[test]
fn the_matrix_notices_a_log_that_skips_the_directory_sync() {
    assert!(cells_until_found(Bug::SkipDirectorySync) < 200);
}

/// The story: a log's recovery read one segment after another and, on an end that it did not expect in the middle,
/// dropped what the later segments held, acknowledged as it was (electric-sql/electric #4675). Here a torn end can only
/// be in the newest segment, and each segment's table and successor say where it ends.
#[test]
fn recovery_over_several_segments_drops_no_acknowledged_record() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let mut story = Story::default();
        // Each life ends in a power loss, so that several segments have a cut end.
        for life in 0..6 {
            let (mut log, recovered) = open(&disk);
            let end = check(&recovered, &story).expect("nothing durable is lost");
            story.appended.truncate(end);
            story.durable = end;
            for round in life * 10 + 1..=life * 10 + 6 {
                let batch = [frame(1, round, 1500), frame(2, round, 40 * round as usize)];
                log.append(&batch).expect("append");
                story.appended.extend(batch);
                if !round.is_multiple_of(3) {
                    log.sync().expect("sync");
                    story.durable = story.appended.len();
                }
            }
            drop(log);
            disk.power_loss();
        }
    }
}

#[test]
fn one_seed_gives_one_run() {
    let run_once = |seed, stop| {
        let disk = SimDisk::new(seed);
        disk.stop_at(stop);
        assert!(run(&disk, &mut Story::default()).is_none());
        disk.power_loss();
        run(&disk, &mut Story::default());
        (disk.trace_hash(), disk.files())
    };
    let mut seeds_differ = false;
    for stop in 80..120 {
        assert!(run_once(3, stop) == run_once(3, stop));
        seeds_differ |= run_once(3, stop).0 != run_once(4, stop).0;
    }
    assert!(seeds_differ);
}

/// A batch over three pages was torn: its first page arrived, the others did not, and nobody was told of it. The next start cut it off and
/// sealed the segment behind the page, with a table in the second page; the power failed before the next segment had a name, and the
/// start after that put its table into the third page. Now no page of the torn batch was unwritten any more, so that it looked like
/// one that had been whole once: an owner without copies was told that something acknowledged was lost, and refused to serve. A
/// batch ends where another one begins, whatever its header says.
#[test]
fn a_torn_batch_under_the_tables_of_two_starts_that_died_is_still_torn() {
    let disk = SimDisk::new(3);
    let (mut log, _) = open(&disk);
    log.append(&[frame(1, 1, 9_000)]).expect("appended");
    drop(log);
    disk.crash_process();
    let torn = disk.open(&segment_path(1), OpenMode::Write).expect("the segment");
    torn.write_at(&[0; 2 * PAGE as usize], 2 * PAGE).and_then(|()| torn.sync_all()).expect("written");
    drop(torn);
    for _ in 0..2 {
        let (mut log, recovered) = open(&disk);
        assert_whole(&recovered, "torn");
        disk.fail(Operation::Rename, "segment", 0, 1, EIO);
        assert!(log.append(&[frame(1, 1, 100)]).is_err(), "the next segment gets no name");
        drop(log);
        disk.clear_faults();
        disk.crash_process();
    }
    let (mut log, recovered) = open(&disk);
    assert_whole(&recovered, "sealed twice");
    assert_eq!(survivors(&recovered), []);
    log.append(&[frame(1, 1, 100)]).and_then(|_| Ok(log.sync()?)).expect("it goes on");
}

/// Found by the simulator: a write failed within the last sector of its batch, in a segment whose file was new, so that the end of the sector
/// was still zeros. In a file of an earlier life the sector kept that life's mark and was known as unwritten; here it was taken for one
/// that had been whole and was damaged since, and an owner without copies refused to serve although nobody was told of the batch.
#[test]
fn a_write_that_failed_within_its_last_sector_is_torn_in_a_new_file_as_well() {
    for missing in (64..=440).step_by(8) {
        let disk = SimDisk::new(missing as u64);
        let (mut log, _) = open(&disk);
        log.append(&[frame(1, 1, 100)]).and_then(|_| Ok(log.sync()?)).expect("durable");
        log.append(&[frame(1, 2, 3_950)]).expect("appended");
        drop(log);
        disk.crash_process();
        let torn = disk.open(&segment_path(1), OpenMode::Write).expect("the segment");
        let end = 3 * PAGE - missing as u64;
        torn.write_at(&vec![0; missing], end).and_then(|()| torn.sync_all()).expect("written");
        drop(torn);
        let (mut log, recovered) = open(&disk);
        assert_whole(&recovered, &format!("{missing} bytes are missing"));
        assert_eq!(survivors(&recovered), [frame(1, 1, 100)], "{missing} bytes are missing");
        log.append(&[frame(1, 2, 100)]).and_then(|_| Ok(log.sync()?)).expect("it goes on");
    }
}
