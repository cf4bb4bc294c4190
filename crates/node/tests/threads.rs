//! The node with its threads on a real disk.

use bytes::Bytes;
use highwater_base::{Clock, Digest, Millis, Offset};
use highwater_disk::sim::Operation as On;
use highwater_disk::system::{SystemClock, SystemRandom};
use highwater_disk::watched::{Call, WatchedDisk, Watcher};
use highwater_disk::{OsDisk, SimDisk};
use highwater_node::{Config, Handle, Node, OpenError, ReadRequest, Unavailable};
use highwater_stream::{Append, Create, Operation, Outcome, ProducerKey, ReadFrom, Refusal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

fn config(data: &Path) -> Config {
    Config { wal_segment_bytes: 4 << 20, wal_bytes_max: 64 << 20, checkpoint_bytes: 1 << 20, ..Config::new(data) }
}

fn open(data: &Path) -> Result<Node, OpenError> {
    open_with(config(data))
}

fn open_with(config: Config) -> Result<Node, OpenError> {
    Node::open(config, Arc::new(OsDisk::new()), Arc::new(SystemClock::new()), Box::new(SystemRandom))
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn create(handle: &Handle, path: &str) {
    let new_incarnation = handle.issue_incarnation();
    let create = Create {
        content_type: "application/octet-stream".to_owned(),
        closed: false,
        incarnation: None,
        new_incarnation,
        expiry: None,
        body: Bytes::new(),
    };
    let answer = handle.write(path.to_owned(), Operation::Create(create)).await.expect("serves");
    assert!(matches!(answer.result, Ok(Outcome::Created(_))), "{answer:?}");
}

fn append(body: &[u8], key: Option<(u64, u64)>) -> Operation {
    let producer =
        key.map(|(epoch, seq)| ProducerKey { id: "p".to_owned(), epoch, seq, digest: Some(Digest::of(body)) });
    Operation::Append(Append {
        incarnation: None,
        producer,
        body_fault: None,
        content_type: Some("application/octet-stream".to_owned()),
        stream_seq: None,
        close: false,
        body: Bytes::copy_from_slice(body),
    })
}

fn request(path: &str, from: u64) -> ReadRequest {
    ReadRequest {
        path: path.to_owned(),
        incarnation: None,
        from: ReadFrom::At(Offset(from)),
        length_max: u64::MAX,
        leader: true,
        wait_ms: None,
    }
}

async fn content(handle: &Handle, path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let answer = handle.read(request(path, content.len() as u64)).await.expect("serves").expect("readable");
        content.extend_from_slice(&answer.body);
        if answer.up_to_date {
            return content;
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_shutdown_and_after_a_drop() {
    let directory = tempfile::tempdir().expect("a directory");
    let runtime = runtime();
    let mut expected = Vec::new();
    for round in 0..3u8 {
        let node = open(directory.path()).expect("opens");
        let handle = node.handle();
        assert!(handle.ready());
        runtime.block_on(async {
            if round == 0 {
                create(&handle, "s").await;
            }
            assert_eq!(content(&handle, "s").await, expected);
            for i in 0..20u8 {
                let body = vec![round * 20 + i; 10_000];
                handle.write("s".to_owned(), append(&body, None)).await.expect("serves").result.expect("taken");
                expected.extend_from_slice(&body);
            }
        });
        if round == 0 {
            drop(node)
        } else {
            node.shutdown().expect("a clean end")
        }
        let refused = runtime.block_on(handle.write("s".to_owned(), append(b"x", None)));
        assert_eq!(refused, Err(Unavailable::GroupRestarting));
        assert!(!handle.ready());
    }
}

#[test]
fn parallel_writers_get_distinct_offsets_and_share_syncs() {
    let directory = tempfile::tempdir().expect("a directory");
    let node = open(directory.path()).expect("opens");
    let handle = node.handle();
    runtime().block_on(async {
        create(&handle, "s").await;
        let before = handle.status().wal_syncs;
        let writers: Vec<_> = (0..50u8)
            .map(|i| {
                let handle = handle.clone();
                tokio::spawn(async move {
                    let answer = handle.write("s".to_owned(), append(&[i; 100], None)).await.expect("serves");
                    let Ok(Outcome::Appended { start, next, .. }) = answer.result else { panic!("{answer:?}") };
                    (start.0, next.0)
                })
            })
            .collect();
        let mut ranges = Vec::new();
        for writer in writers {
            ranges.push(writer.await.expect("it ended"));
        }
        ranges.sort_unstable();
        assert_eq!(ranges, (0..50).map(|i| (i * 100, i * 100 + 100)).collect::<Vec<_>>());
        let syncs = handle.status().wal_syncs - before;
        assert!(syncs < 50, "{syncs} syncs for 50 writes that came together");
    });
    node.shutdown().expect("a clean end");
}

#[test]
fn a_second_server_on_the_directory_is_refused_in_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let node = open(directory.path()).expect("opens");
    let refused = open(directory.path()).expect_err("refused");
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    assert!(refused.to_string().contains("another highwater server"), "{refused}");
    drop(node);
    open(directory.path()).expect("free again");
}

#[test]
fn a_stream_larger_than_the_log_is_written_and_read_while_checkpoints_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config { wal_bytes_max: 16 << 20, ..config(directory.path()) };
    let node = open_with(config.clone()).expect("opens");
    let handle = node.handle();
    let runtime = runtime();
    let piece = |i: u32| -> Vec<u8> { (0..500_000u32).map(|b| (b ^ i) as u8).collect() };
    runtime.block_on(async {
        create(&handle, "s").await;
        for i in 0..64 {
            // A log that is full for a moment is an answer; the client tries again.
            loop {
                match handle.write("s".to_owned(), append(&piece(i), None)).await {
                    Ok(answer) => break drop(answer.result.expect("taken")),
                    Err(Unavailable::WalDiskPressure) => tokio::time::sleep(Duration::from_millis(20)).await,
                    Err(other) => panic!("{other}"),
                }
            }
        }
        let read = content(&handle, "s").await;
        assert_eq!(read.len(), 32_000_000);
        assert!((0..64).all(|i| read[i as usize * 500_000..][..500_000] == piece(i)));
        assert!(handle.status().wal_bytes <= 16 << 20);
    });
    node.shutdown().expect("a clean end");
    let began = Instant::now();
    let node = open_with(config).expect("opens");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let head = runtime.block_on(node.handle().head("s")).expect("serves").expect("is there");
    assert_eq!(head.next, Offset(32_000_000));
}

#[test]
fn a_waiting_reader_is_woken_at_once_and_goes_away_in_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let node = open(directory.path()).expect("opens");
    let handle = node.handle();
    runtime().block_on(async {
        create(&handle, "s").await;
        let wait = |wait_ms| ReadRequest { wait_ms: Some(wait_ms), leader: false, ..request("s", 0) };
        let began = Instant::now();
        let answer = handle.read(wait(150)).await.expect("serves").expect("readable");
        // The shard reads its clock once a turn, in whole milliseconds: a wait may end that much early.
        assert!(answer.timed_out && began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
        let reader = tokio::spawn({
            let handle = handle.clone();
            async move { handle.read(wait(30_000)).await }
        });
        while handle.status().live_reads == 0 {
            tokio::task::yield_now().await;
        }
        handle.write("s".to_owned(), append(b"news", None)).await.expect("serves").result.expect("taken");
        let answer = reader.await.expect("it ended").expect("serves").expect("readable");
        assert_eq!((&answer.body[..], answer.timed_out), (&b"news"[..], false));
        // A reader that went away makes room.
        let abandoned = tokio::spawn({
            let handle = handle.clone();
            async move { handle.read(ReadRequest { wait_ms: Some(30_000), ..request("s", 4) }).await }
        });
        while handle.status().live_reads == 0 {
            tokio::task::yield_now().await;
        }
        abandoned.abort();
        let began = Instant::now();
        while handle.status().live_reads > 0 {
            assert!(began.elapsed() < Duration::from_secs(5), "it is still counted");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn the_body_limit_is_refused_before_a_body_is_read_and_given_back_after_its_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let node = open_with(Config { ingress_bytes_max: 1_000, ..config(directory.path()) }).expect("opens");
    let handle = node.handle();
    runtime().block_on(async {
        create(&handle, "s").await;
        let held = handle.admit(900).expect("room");
        assert_eq!(handle.admit(200).err(), Some(Unavailable::IngressBodyBytesLimit));
        let answer = handle.write_admitted("s".to_owned(), append(&[0; 900], None), held).await;
        answer.expect("serves").result.expect("taken");
        drop(handle.admit(1_000).expect("all of it is free again"));
    });
}

#[test]
fn keyed_repeats_and_early_answers_come_back_over_threads_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let node = open(directory.path()).expect("opens");
    let handle = node.handle();
    runtime().block_on(async {
        create(&handle, "s").await;
        let first = handle.write("s".to_owned(), append(b"a", Some((1, 0)))).await.expect("serves");
        let again = handle.write("s".to_owned(), append(b"a", Some((1, 0)))).await.expect("serves");
        let (Ok(Outcome::Applied(first)), Ok(Outcome::Repeated(again))) = (first.result, again.result) else {
            panic!("applied once, then repeated")
        };
        assert_eq!(first, again);
        let head = handle.head("s").await.expect("serves").expect("is there");
        let key = ProducerKey { id: "p".to_owned(), epoch: 1, seq: 0, digest: Some(Digest::of(b"a")) };
        let early = handle.early("s", head.incarnation, &key).await.expect("serves");
        assert_eq!(early.map(|answer| answer.result), Some(Ok(Outcome::Repeated(first))));
        assert_eq!(handle.head("missing").await, Ok(Err(Refusal::StreamNotFound)));
        let status = handle.status();
        assert_eq!(status.groups.len(), 16);
        assert_eq!(status.groups.iter().map(|g| g.streams).sum::<u64>(), 1);
        assert!(status.ready && status.failed.is_none());
    });
}

#[test]
fn a_failed_sync_is_told_to_everyone_and_the_node_stops_loudly() {
    let disk = SimDisk::new(1);
    let config = Config { wal_segment_bytes: 1 << 20, wal_bytes_max: 8 << 20, ..Config::new("/data") };
    let open = || {
        let clock = Arc::new(SystemClock::new());
        Node::open(config.clone(), Arc::new(disk.clone()), clock, Box::new(SystemRandom))
    };
    let node = open().expect("opens");
    let handle = node.handle();
    let runtime = runtime();
    runtime.block_on(async {
        create(&handle, "s").await;
        let reader = tokio::spawn({
            let handle = handle.clone();
            async move { handle.read(ReadRequest { wait_ms: Some(30_000), ..request("s", 0) }).await }
        });
        while handle.status().live_reads == 0 {
            tokio::task::yield_now().await;
        }
        disk.fail_next(On::Sync, "/data/wal");
        let answer = handle.write("s".to_owned(), append(b"x", None)).await;
        assert_eq!(answer, Err(Unavailable::OutcomeUnknown { leadership_lost: false }));
        assert!(!handle.failed().await.is_empty());
        assert_eq!(reader.await.expect("it ended"), Err(Unavailable::ApplyStopped));
        assert_eq!(handle.write("s".to_owned(), append(b"x", None)).await, Err(Unavailable::ApplyStopped));
        assert!(!handle.ready() && handle.status().failed.is_some());
    });
    assert!(matches!(node.shutdown(), Err(OpenError::LogFailed(_))));
    disk.power_loss();
    let node = open().expect("a restart recovers");
    assert!(runtime.block_on(node.handle().head("s")).expect("serves").is_ok());
}

#[test]
fn a_write_whose_caller_goes_away_is_still_applied_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let node = open(directory.path()).expect("opens");
    let handle = node.handle();
    runtime().block_on(async {
        create(&handle, "s").await;
        for seq in 0..50 {
            let task = tokio::spawn({
                let handle = handle.clone();
                async move { handle.write("s".to_owned(), append(b"x", Some((1, seq)))).await }
            });
            tokio::task::yield_now().await;
            task.abort();
            // Whether it got in or not, the repeat settles it.
            let answer = handle.write("s".to_owned(), append(b"x", Some((1, seq)))).await.expect("serves");
            assert!(matches!(answer.result, Ok(Outcome::Applied(_) | Outcome::Repeated(_))), "{answer:?}");
        }
        assert_eq!(content(&handle, "s").await, b"x".repeat(50));
        assert_eq!(handle.status().ingress_bytes, 0, "room was not given back");
    });
}

/// The story: the append that met the full disk was proposed, and answered after five seconds with an unknown outcome;
/// the delete that the page on full disks names was refused; and the log asked the disk for space without a pause.
#[test]
fn on_a_full_disk_every_append_is_refused_at_once_and_a_delete_makes_room() {
    let disk = SimDisk::new(1);
    let config = Config {
        wal_segment_bytes: 1 << 20,
        wal_bytes_max: 64 << 20,
        checkpoint_bytes: 1 << 20,
        groups: 2,
        ..Config::new("/data")
    };
    let clock = Arc::new(SystemClock::new());
    let node = Node::open(config, Arc::new(disk.clone()), clock, Box::new(SystemRandom)).expect("opens");
    let handle = node.handle();
    runtime().block_on(async {
        create(&handle, "s").await;
        create(&handle, "t").await;
        disk.set_capacity(Some(disk.used_bytes() + (6 << 20)));
        let mut refused = 0;
        while refused < 20 {
            let began = Instant::now();
            match handle.write("s".to_owned(), append(&[1; 20_000], None)).await {
                Ok(answer) => drop(answer.result.expect("taken")),
                Err(Unavailable::WalDiskPressure) => {
                    refused += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(other) => panic!("{other}"),
            }
            assert!(began.elapsed() < Duration::from_secs(3), "it waited for {:?}", began.elapsed());
        }
        let before = disk.operations();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(disk.operations() < before + 200, "{} operations in 200 ms", disk.operations() - before);
        // Full to the last byte, a disk takes no checkpoint either, as the page says.
        disk.set_capacity(Some(disk.used_bytes() + (64 << 10)));
        let delete = Operation::Delete { incarnation: None };
        handle.write("s".to_owned(), delete).await.expect("a delete makes room").result.expect("done");
        let began = Instant::now();
        while handle.write("t".to_owned(), append(b"x", None)).await == Err(Unavailable::WalDiskPressure) {
            assert!(began.elapsed() < Duration::from_secs(20), "no room came of it");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(content(&handle, "t").await, b"x");
    });
    node.shutdown().expect("a clean end");
}

/// Panics on the thread of a name, once it is told to: in the clock, which the shard's thread asks in every turn, or in
/// the disk below a path.
#[derive(Clone)]
struct Planted {
    thread: &'static str,
    armed: Arc<AtomicBool>,
}

impl Planted {
    fn meet(&self) {
        if self.armed.load(Ordering::Relaxed) && std::thread::current().name() == Some(self.thread) {
            panic!("a planted panic on the thread {}", self.thread);
        }
    }
}

impl Clock for Planted {
    fn wall(&self) -> Millis {
        Millis(1)
    }

    fn monotonic(&self) -> u64 {
        self.meet();
        SystemClock::new().monotonic()
    }
}

impl Watcher for Planted {
    fn before(&self, call: Call, _path: &Path, _bytes: u64) {
        if call != Call::Read {
            self.meet();
        }
    }
}

/// The name of the threads on which tasks run.
const CALLER: &str = "tokio-rt-worker";

/// Runs a node in which a thread panics while a write is in flight and a reader waits, and checks that it says so.
fn a_panic_on(thread: &'static str, body_bytes: usize, answered: bool) {
    let planted = Planted { thread, armed: Arc::default() };
    let config = Config {
        wal_segment_bytes: 1 << 20,
        wal_bytes_max: 8 << 20,
        checkpoint_bytes: 1 << 10,
        ..Config::new("/data")
    };
    let disk = Arc::new(WatchedDisk::new(SimDisk::new(1), Arc::new(planted.clone())));
    let node = Node::open(config, disk, Arc::new(planted.clone()), Box::new(SystemRandom)).expect("opens");
    let handle = node.handle();
    let limit = Duration::from_secs(20);
    runtime().block_on(async {
        create(&handle, "s").await;
        let reader = tokio::spawn({
            let handle = handle.clone();
            async move { handle.read(ReadRequest { wait_ms: Some(60_000), ..request("t", 0) }).await }
        });
        create(&handle, "t").await;
        planted.armed.store(true, Ordering::Relaxed);
        let write = tokio::spawn({
            let handle = handle.clone();
            async move { handle.write("s".to_owned(), append(&vec![1; body_bytes], None)).await }
        });
        match tokio::time::timeout(limit, write).await.expect("the one in flight is answered") {
            Ok(answer) => {
                let unknown = Err(Unavailable::OutcomeUnknown { leadership_lost: false });
                // One that does not wait for the thread is answered, or refused after its end.
                let others = answered && (answer.is_ok() || answer == Err(Unavailable::ApplyStopped));
                assert!(answer == unknown || others, "{answer:?}");
            }
            Err(ended) => assert!(ended.is_panic() && thread == CALLER, "{ended}"),
        }
        let reason = tokio::time::timeout(limit, handle.failed()).await.expect("the node says that it failed");
        assert!(reason.contains("panicked"), "{reason}");
        assert!(!handle.ready() && !handle.status().ready, "it says that it serves");
        let answer = tokio::time::timeout(limit, handle.write("s".to_owned(), append(b"x", None))).await;
        assert!(matches!(answer, Ok(Err(_))), "{answer:?}");
        let reader = tokio::time::timeout(limit, reader).await.expect("the reader is answered");
        assert!(reader.is_ok() || thread == CALLER, "{reader:?}");
    });
    planted.armed.store(false, Ordering::Relaxed);
    assert!(matches!(node.shutdown(), Err(OpenError::LogFailed(_))));
}

#[test]
fn a_panic_of_the_shards_thread_is_told_to_everyone_and_the_node_stops_loudly() {
    a_panic_on("shard", 10, true);
}

/// A caller drives the shard for all others; a panic there is the caller's and everybody's.
#[test]
fn a_panic_of_a_caller_in_the_shard_is_told_to_everyone_and_the_node_stops_loudly() {
    a_panic_on(CALLER, 10, true);
}

#[test]
fn a_panic_of_the_logs_thread_is_told_to_everyone_and_the_node_stops_loudly() {
    // Too large to be written by its caller.
    a_panic_on("wal", 100_000, false);
}

#[test]
fn a_panic_of_the_checkpointers_thread_is_told_to_everyone_and_the_node_stops_loudly() {
    a_panic_on("checkpointer", 10_000, true);
}
