//! The writer's thread.

use crate::common::{SEGMENT, frame, names, open, options, survivors};
use highwater_base::OwnerId;
use highwater_disk::sim::Operation;
use highwater_disk::{OsDisk, SimDisk};
use highwater_wal::{AppendError, Frame, Location, Log, LogReader, Writer, WriterHandle};
use std::sync::{Arc, mpsc};
use std::time::Duration;

type Answers = (mpsc::Sender<Result<Vec<Location>, AppendError>>, mpsc::Receiver<Result<Vec<Location>, AppendError>>);

#[test]
fn submissions_that_wait_share_one_sync() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = Log::open(Arc::new(OsDisk::new()), folder.path(), options()).expect("open");
    let reader = log.reader();
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    let gate = hold(&handle);
    let (answer, answers): Answers = mpsc::channel();
    for position in 1..=20 {
        let answer = answer.clone();
        let done = move |result| answer.send(result).expect("the test waits");
        handle.submit(vec![frame(1, position, 300), frame(2, position, 20)], Box::new(done));
    }
    gate.send(()).expect("the writer waits");
    for position in 1..=20 {
        let locations = answers.recv().expect("an answer").expect("durable");
        assert_reads(&reader, &[frame(1, position, 300), frame(2, position, 20)], &locations);
    }
    assert_eq!(handle.metrics().syncs, 2, "one for the first, one for all that waited");
    writer.stop().expect("stop");
    let (_, recovered) = Log::open(Arc::new(OsDisk::new()), folder.path(), options()).expect("open");
    assert_eq!(survivors(&recovered).len(), 41);
    assert_eq!(recovered.last_run(), &highwater_wal::LastRun::Clean);
}

/// Keeps the writer in the callback of a first submission until the answer is used.
fn hold(handle: &WriterHandle) -> mpsc::Sender<()> {
    let (entered, inside) = mpsc::channel::<()>();
    let (gate, wait) = mpsc::channel::<()>();
    let done = move |_| {
        entered.send(()).expect("the test waits");
        wait.recv().expect("the test opens the gate");
    };
    handle.submit(vec![frame(9, 1, 10)], Box::new(done));
    inside.recv().expect("the writer runs");
    gate
}

fn assert_reads(reader: &LogReader, frames: &[Frame], locations: &[Location]) {
    assert_eq!(frames.len(), locations.len());
    for (frame, location) in frames.iter().zip(locations) {
        assert_eq!(reader.read(*location).expect("read"), frame.payload);
    }
}

#[test]
fn a_full_log_refuses_the_one_that_does_not_fit_and_takes_the_rest() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(SEGMENT + (80 << 10)));
    let (log, _) = open(&disk);
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    let gate = hold(&handle);
    let (answer, answers): Answers = mpsc::channel();
    let submitted = [(1, 10), (1, 23_000), (2, 20), (1, 30)];
    for (owner, length) in submitted {
        let answer = answer.clone();
        let done = move |result| answer.send(result).expect("the test waits");
        handle.submit(vec![frame(owner, length as u64, length)], Box::new(done));
    }
    gate.send(()).expect("the writer waits");
    let results: Vec<_> = answers.iter().take(4).collect();
    assert!(results[0].is_ok() && results[2].is_ok());
    assert!(matches!(results[1], Err(AppendError::Full { .. })), "{results:?}");
    // It would fit. But its owner would find it after a restart, and not the one in front of it.
    assert_eq!(results[3], results[1]);
    writer.stop().expect("a full disk stops nothing");
    let (_, recovered) = open(&disk);
    assert_eq!(names(&survivors(&recovered)), [(9, 1), (1, 10), (2, 20)]);
}

/// The story: a forget ran behind all that waited with it, and dropped the first frames of the owner's new life, which
/// then were reported durable.
#[test]
fn a_forget_drops_what_was_submitted_before_it_and_nothing_after() {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk);
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    let gate = hold(&handle);
    let (forgotten, told) = mpsc::channel();
    let submit = |position| {
        handle.submit(vec![frame(1, position, 10)], Box::new(|result| drop(result.expect("durable"))));
    };
    for life in 1..=3 {
        submit(10 * life);
        submit(10 * life + 1);
        if life < 3 {
            let forgotten = forgotten.clone();
            handle.forget(OwnerId(1), Box::new(move |done| forgotten.send(done).expect("the test waits")));
        }
    }
    gate.send(()).expect("the writer waits");
    writer.stop().expect("stop");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [true, true]);
    let (_, recovered) = open(&disk);
    assert_eq!(names(&survivors(&recovered)), [(9, 1), (1, 30), (1, 31)]);
}

#[test]
fn a_forget_that_stops_the_log_ends_the_writer() {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk);
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    disk.fail_next(Operation::Rename, "state.new");
    let (forgotten, told) = mpsc::channel();
    handle.forget(OwnerId(1), Box::new(move |done| forgotten.send(done).expect("the test waits")));
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(false));
    let ended = (0..2_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        handle.ended()
    });
    assert!(ended.is_some_and(|poisoned| poisoned.reason.contains("renaming")));
    writer.stop().expect_err("the log had stopped");
}

#[test]
fn a_failed_sync_answers_everyone_and_nobody_after_waits() {
    let disk = SimDisk::new(2);
    let (log, _) = open(&disk);
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    let (answer, answers): Answers = mpsc::channel();
    let submit = |position| {
        let answer = answer.clone();
        let done = move |result| answer.send(result).expect("the test waits");
        handle.submit(vec![frame(1, position, 300)], Box::new(done));
        answers.recv().expect("an answer")
    };
    submit(1).expect("durable");
    disk.fail_next(Operation::Sync, ".segment");
    assert!(matches!(submit(2), Err(AppendError::Poisoned(_))));
    assert!(matches!(submit(3), Err(AppendError::Poisoned(_))));
    writer.stop().expect_err("the log had stopped");
}

/// The story: a panic on the log's thread, in the middle of a round. Those of the round who were not told yet waited for
/// ever, and the server with them: it went on saying that it serves.
#[test]
fn a_panic_of_the_logs_thread_leaves_nobody_of_its_round_waiting() {
    let disk = SimDisk::new(2);
    let (log, _) = open(&disk);
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    assert_eq!(handle.ended(), None);
    let gate = hold(&handle);
    handle.submit(vec![frame(1, 1, 10)], Box::new(|_| panic!("a planted panic")));
    let (answer, answers): Answers = mpsc::channel();
    for position in 2..=3 {
        let answer = answer.clone();
        let done = move |result| answer.send(result).expect("the test waits");
        handle.submit(vec![frame(1, position, 10)], Box::new(done));
    }
    gate.send(()).expect("the writer waits");
    for _ in 2..=3 {
        let result = answers.recv_timeout(Duration::from_secs(20)).expect("an answer");
        assert!(matches!(result, Err(AppendError::Poisoned(_))), "{result:?}");
    }
    writer.stop().expect_err("the thread panicked");
    assert!(handle.ended().is_some());
}

#[test]
fn the_next_segment_is_made_before_it_is_needed_and_releases_give_space_back() {
    let disk = SimDisk::new(3);
    let (log, _) = open(&disk);
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    for position in 1..=60 {
        let (answer, answers): Answers = mpsc::channel();
        let done = move |result| answer.send(result).expect("the test waits");
        handle.submit(vec![frame(1, position, 3000)], Box::new(done));
        answers.recv().expect("an answer").expect("durable");
        handle.release(OwnerId(1), position);
    }
    writer.stop().expect("stop");
    let metrics = handle.metrics();
    assert!(metrics.segments_released > 5 && metrics.log_bytes <= 3 * SEGMENT, "{metrics:?}");
    assert_eq!((metrics.frames, metrics.bytes), (60, 180_000));
    let (refused, answers): Answers = mpsc::channel();
    handle.submit(vec![frame(1, 61, 1)], Box::new(move |result| refused.send(result).expect("the test waits")));
    answers.recv().expect("an answer").expect_err("the writer has ended");
}

/// A lone submission is written and synced by whoever brings it, once the disk is known to be quick; it is counted, read
/// back and found again like any other.
#[test]
fn a_lone_small_submission_is_written_where_it_is_brought() {
    let disk = SimDisk::new(4);
    let (log, _) = open(&disk);
    let reader = log.reader();
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    let frames = vec![frame(1, 1, 300)];
    assert_eq!(handle.write_here(frames.clone()), Err(frames), "nothing is known of the disk yet");
    through_the_thread(&handle, 2);
    let locations = here(&handle, 3);
    assert_reads(&reader, &[frame(1, 3, 300)], &locations);
    assert_eq!((handle.metrics().syncs, handle.metrics().frames), (2, 2));
    let large = vec![frame(1, 4, 40_000)];
    assert_eq!(handle.write_here(large.clone()), Err(large), "it would keep its caller for long");
    let gate = hold(&handle);
    let frames = vec![frame(1, 4, 300)];
    assert_eq!(handle.write_here(frames.clone()), Err(frames), "the thread writes");
    gate.send(()).expect("the writer waits");
    writer.stop().expect("stop");
    let frames = vec![frame(1, 5, 300)];
    assert_eq!(handle.write_here(frames.clone()), Err(frames), "the writer has ended");
    let (_, recovered) = open(&disk);
    assert_eq!(names(&survivors(&recovered)), [(1, 2), (1, 3), (9, 1)]);
}

fn through_the_thread(handle: &WriterHandle, position: u64) {
    let (answer, answers): Answers = mpsc::channel();
    let done = move |result| answer.send(result).expect("the test waits");
    handle.submit(vec![frame(1, position, 300)], Box::new(done));
    answers.recv().expect("an answer").expect("durable");
}

/// Writes here, as soon as the thread has let go of the log.
fn here(handle: &WriterHandle, position: u64) -> Vec<Location> {
    let mut frames = vec![frame(1, position, 300)];
    for _ in 0..2_000 {
        match handle.write_here(frames) {
            Ok(result) => return result.expect("durable"),
            Err(back) => frames = back,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the log is never free");
}

#[test]
fn a_sync_that_fails_where_it_is_done_ends_the_writer_for_everyone() {
    let disk = SimDisk::new(5);
    let (log, _) = open(&disk);
    let writer = Writer::spawn(log);
    let handle = writer.handle();
    through_the_thread(&handle, 1);
    here(&handle, 2);
    disk.fail_next(Operation::Sync, ".segment");
    let result = (0..2_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        handle.write_here(vec![frame(1, 3, 300)]).ok()
    });
    assert!(matches!(result, Some(Err(AppendError::Poisoned(_)))), "{result:?}");
    assert!(handle.ended().is_some());
    writer.stop().expect_err("the log had stopped");
    let (_, recovered) = open(&disk);
    assert_eq!(names(&survivors(&recovered))[..2], [(1, 1), (1, 2)]);
}
