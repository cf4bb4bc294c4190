//! Snapshots, their parts and retention on the node with its threads, on a real disk and through crashes.

use bytes::Bytes;
use highwater_base::{Incarnation, Offset};
use highwater_disk::sim::{ENOSPC, Operation as On};
use highwater_disk::system::{SystemClock, SystemRandom};
use highwater_disk::{Disk, OsDisk, SimDisk};
use highwater_node::{Config, Handle, Node, PartsCommit, ReadRequest, SnapshotHasher, Unavailable};
use highwater_stream::{
    Append, Create, Operation, Outcome, PublishSnapshot, ReadFrom, Refusal, SnapshotHead, SnapshotScope, SnapshotSource,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::runtime::{Builder, Runtime};

/// Counts the bytes that the process holds, and their most.
struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);
static HELD_MAX: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size() as i64, Ordering::Relaxed) + layout.size() as i64;
        HELD_MAX.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PATH: &str = "app/db";
const TYPE: &str = "application/octet-stream";

fn config(data: &Path) -> Config {
    Config {
        groups: 1,
        wal_segment_bytes: 4 << 20,
        wal_bytes_max: 32 << 20,
        checkpoint_bytes: 1 << 20,
        ..Config::new(data)
    }
}

fn open(disk: Arc<dyn Disk>, config: Config) -> Node {
    Node::open(config, disk, Arc::new(SystemClock::new()), Box::new(SystemRandom)).expect("opens")
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn write(handle: &Handle, operation: Operation) -> Result<Outcome, Refusal> {
    handle.write(PATH.to_owned(), operation).await.expect("serves").result
}

async fn create(handle: &Handle) -> Incarnation {
    let new_incarnation = handle.issue_incarnation();
    let create = Create {
        content_type: TYPE.to_owned(),
        closed: false,
        incarnation: None,
        new_incarnation,
        expiry: None,
        body: Bytes::new(),
    };
    match write(handle, Operation::Create(create)).await {
        Ok(Outcome::Created(created)) => created.incarnation,
        other => panic!("{other:?}"),
    }
}

async fn append(handle: &Handle, body: &[u8]) {
    let append = Append {
        incarnation: None,
        producer: None,
        body_fault: None,
        content_type: Some(TYPE.to_owned()),
        stream_seq: None,
        close: false,
        body: Bytes::copy_from_slice(body),
    };
    write(handle, Operation::Append(append)).await.expect("appended");
}

async fn stage(handle: &Handle, body: &[u8]) -> Result<Incarnation, Unavailable> {
    let (part, body) = (handle.issue_incarnation(), Bytes::copy_from_slice(body));
    let answer = handle.write(PATH.to_owned(), Operation::StagePart { incarnation: None, part, body }).await?;
    match answer.result.expect("staged") {
        Outcome::PartStaged { part, .. } => Ok(part),
        other => panic!("{other:?}"),
    }
}

fn named(offset: u64, bodies: &[&[u8]]) -> SnapshotHead {
    let mut hasher = SnapshotHasher::new(TYPE);
    bodies.iter().for_each(|body| hasher.update(body));
    SnapshotHead { offset: Offset(offset), digest: hasher.finish() }
}

async fn commit(handle: &Handle, head: SnapshotHead, parts: &[Incarnation]) -> Result<Outcome, Refusal> {
    try_commit(handle, head, parts).await.expect("serves")
}

async fn try_commit(
    handle: &Handle,
    head: SnapshotHead,
    parts: &[Incarnation],
) -> Result<Result<Outcome, Refusal>, Unavailable> {
    let (path, content_type, parts) = (PATH.to_owned(), TYPE.to_owned(), parts.to_vec());
    let answer = handle.commit_parts(PartsCommit { path, incarnation: None, head, content_type, parts }).await?;
    Ok(answer.and_then(|answer| answer.result))
}

async fn publish(handle: &Handle, offset: u64, body: &[u8]) -> Result<Outcome, Refusal> {
    let head = named(offset, &[body]);
    let publish = PublishSnapshot {
        incarnation: None,
        offset: head.offset,
        digest: head.digest,
        digest_matches: true,
        content_type: TYPE.to_owned(),
        source: SnapshotSource::Body { part: handle.issue_incarnation(), body: Bytes::copy_from_slice(body) },
    };
    write(handle, Operation::PublishSnapshot(publish)).await
}

async fn retain(handle: &Handle, offset: u64) -> Result<Outcome, Refusal> {
    write(handle, Operation::Retain { incarnation: None, offset: Offset(offset) }).await
}

async fn scope(handle: &Handle, offset: u64) -> Result<SnapshotScope, Refusal> {
    handle.snapshot(PATH, None, Offset(offset)).await.expect("serves")
}

async fn snapshot(handle: &Handle, offset: u64) -> Vec<u8> {
    let scope = scope(handle, offset).await.expect("published");
    let mut bytes = Vec::new();
    for part in scope.parts {
        let mut at = 0;
        while at < part.length {
            let piece = handle.read_part(PATH, part.object, at..part.length).await.expect("readable").expect("there");
            at += piece.len() as u64;
            bytes.extend_from_slice(&piece);
        }
    }
    assert_eq!(bytes.len() as u64, scope.length);
    bytes
}

async fn read(handle: &Handle, from: u64) -> Result<Vec<u8>, Refusal> {
    let (path, from) = (PATH.to_owned(), ReadFrom::At(Offset(from)));
    let request = ReadRequest { path, incarnation: None, from, length_max: 1 << 20, leader: true, wait_ms: None };
    handle.read(request).await.expect("serves").map(|answer| answer.body.to_vec())
}

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

#[test]
fn snapshot_retention_and_reads_agree_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let runtime = runtime();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let content = bytes(1, 3 << 20);
    let parts: Vec<Vec<u8>> = (0..3).map(|number| bytes(number, 700_000)).collect();
    let whole = parts.concat();
    let node = open(Arc::clone(&disk), config(directory.path()));
    let handle = node.handle();
    runtime.block_on(async {
        create(&handle).await;
        for piece in content.chunks(200_000) {
            append(&handle, piece).await;
        }
        let mut ids = Vec::new();
        for part in &parts {
            ids.push(stage(&handle, part).await.expect("serves"));
        }
        let head = named(2 << 20, &[&whole]);
        assert!(matches!(commit(&handle, head, &ids).await, Ok(Outcome::Published { .. })));
        assert!(matches!(retain(&handle, 2 << 20).await, Ok(Outcome::Retained { .. })));
    });
    let check = |handle: &Handle, when: &str| {
        let gone = runtime.block_on(read(handle, (2 << 20) - 1));
        assert!(matches!(gone, Err(Refusal::Gone { retained: Offset(0x20_0000), .. })), "{when}: {gone:?}");
        assert_eq!(runtime.block_on(read(handle, 2 << 20)).expect("retained"), content[2 << 20..], "{when}");
        assert_eq!(runtime.block_on(snapshot(handle, 2 << 20)), whole, "{when}");
        let head = runtime.block_on(handle.head(PATH)).expect("serves").expect("a stream");
        assert_eq!((head.retained, head.snapshot), (Offset(2 << 20), Some(named(2 << 20, &[&whole]))), "{when}");
    };
    check(&handle, "at once");
    node.shutdown().expect("a clean end");
    let node = open(Arc::clone(&disk), config(directory.path()));
    let handle = node.handle();
    check(&handle, "after a restart");
    // Enough in the log that checkpoints run, so that the next start reads the index alone.
    for _ in 0..6 {
        runtime.block_on(stage(&handle, &bytes(9, 900_000))).expect("serves");
    }
    check(&handle, "after checkpoints");
    node.shutdown().expect("a clean end");
    let node = open(disk, config(directory.path()));
    check(&node.handle(), "after checkpoints and a restart");
    node.shutdown().expect("a clean end");
}

/// The process dies between staging and the commit: the ids that the client holds are still good.
#[test]
fn parts_staged_before_a_kill_are_committed_after_it() {
    let disk = SimDisk::new(7);
    let runtime = runtime();
    let (one, two) = (bytes(1, 600_000), bytes(2, 600_000));
    let node = open(Arc::new(disk.clone()), config(Path::new("/data")));
    let handle = node.handle();
    let ids = runtime.block_on(async {
        create(&handle).await;
        append(&handle, b"0123456789").await;
        [stage(&handle, &one).await.expect("serves"), stage(&handle, &two).await.expect("serves")]
    });
    // What a kill would leave: the disk as it is while the node runs, without anything that its end does.
    let left = disk.fork(1);
    drop(node);
    left.crash_process();
    left.power_loss();
    let node = open(Arc::new(left.clone()), config(Path::new("/data")));
    let handle = node.handle();
    runtime.block_on(async {
        let head = named(10, &[&two, &one]);
        let published = commit(&handle, head, &[ids[1], ids[0]]).await;
        assert!(matches!(published, Ok(Outcome::Published { .. })), "{published:?}");
        assert_eq!(snapshot(&handle, 10).await, [two, one].concat());
    });
    // And between the commit's answer and whatever follows it.
    let left = left.fork(2);
    drop(node);
    left.power_loss();
    let node = open(Arc::new(left), config(Path::new("/data")));
    assert_eq!(runtime.block_on(snapshot(&node.handle(), 10)).len(), 1_200_000);
}

/// A full disk is an answer: nothing half staged stays, and what was there before is whole.
#[test]
fn a_full_disk_refuses_parts_and_keeps_what_was_published() {
    let disk = SimDisk::new(3);
    let runtime = runtime();
    let node = open(Arc::new(disk.clone()), config(Path::new("/data")));
    let handle = node.handle();
    runtime.block_on(async {
        create(&handle).await;
        publish(&handle, 0, b"the snapshot").await.expect("published");
        disk.set_capacity(Some(disk.used_bytes() + (8 << 20)));
        let mut staged = Vec::new();
        let refused = loop {
            match stage(&handle, &bytes(4, 900_000)).await {
                Ok(part) => staged.push(part),
                Err(why) => break why,
            }
            assert!(staged.len() < 64, "the disk never was full");
        };
        assert!(
            matches!(refused, Unavailable::WalDiskPressure | Unavailable::OutcomeUnknown { .. }),
            "a full disk says so: {refused:?}"
        );
        assert_eq!(snapshot(&handle, 0).await, b"the snapshot");
        let discarded = write(&handle, Operation::DiscardParts { incarnation: None }).await;
        assert!(matches!(discarded, Ok(Outcome::PartsDiscarded { .. })), "what makes room is taken: {discarded:?}");
        disk.set_capacity(None);
        let mut tries = 0;
        while stage(&handle, b"after").await.is_err() {
            tries += 1;
            assert!(tries < 100, "there is space again");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    drop(node);
    disk.power_loss();
    let node = open(Arc::new(disk), config(Path::new("/data")));
    assert_eq!(runtime.block_on(snapshot(&node.handle(), 0)), b"the snapshot");
}

#[test]
fn a_commit_whose_parts_cannot_be_read_publishes_nothing() {
    let disk = SimDisk::new(3);
    let runtime = runtime();
    let node = open(Arc::new(disk.clone()), config(Path::new("/data")));
    let handle = node.handle();
    runtime.block_on(async {
        create(&handle).await;
        let part = stage(&handle, &bytes(4, 900_000)).await.expect("serves");
        disk.fail(On::Open, "data-", 0, 1, ENOSPC);
        disk.fail(On::Open, "segment", 0, 1, ENOSPC);
        drop(try_commit(&handle, named(0, &[b"other bytes"]), &[part]).await);
        disk.clear_faults();
        assert!(matches!(scope(&handle, 0).await, Err(Refusal::SnapshotNotFound { .. })), "nothing was published");
        let mismatch = commit(&handle, named(0, &[b"other bytes"]), &[part]).await;
        assert_eq!(mismatch, Err(Refusal::SnapshotDigestMismatch));
        let published = commit(&handle, named(0, &[&bytes(4, 900_000)]), &[part]).await;
        assert!(matches!(published, Ok(Outcome::Published { .. })), "the part was not used up: {published:?}");
    });
}

/// Two owners publish at once: one wins, and the other is told who did.
#[test]
fn publishes_that_race_leave_one_whole_snapshot() {
    let directory = tempfile::tempdir().expect("a directory");
    let runtime = runtime();
    let node = open(Arc::new(OsDisk::new()), config(directory.path()));
    let handle = node.handle();
    runtime.block_on(async {
        create(&handle).await;
        append(&handle, &bytes(0, 100)).await;
        for round in 1..20u64 {
            let bodies: Vec<Vec<u8>> = (0..4).map(|number| bytes(number, 50_000 + round as usize)).collect();
            let racing: Vec<_> = bodies
                .iter()
                .map(|body| {
                    let (handle, body) = (handle.clone(), body.clone());
                    tokio::spawn(async move { publish(&handle, round, &body).await })
                })
                .collect();
            let mut won = Vec::new();
            for (body, race) in bodies.iter().zip(racing) {
                match race.await.expect("no panic") {
                    Ok(Outcome::Published { .. }) => won.push(body),
                    Err(Refusal::SnapshotConflict { latest: Some(latest), .. }) => assert_eq!(latest.offset.0, round),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(won.len(), 1, "one of them");
            assert_eq!(&snapshot(&handle, round).await, won[0]);
        }
    });
    node.shutdown().expect("a clean end");
}

#[test]
fn commits_are_bounded_and_one_of_a_stream_runs_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let runtime = runtime();
    let none = Config { snapshot_commits_max: 0, ..config(directory.path()) };
    let node = open(Arc::new(OsDisk::new()), none);
    let handle = node.handle();
    runtime.block_on(async {
        create(&handle).await;
        let part = stage(&handle, b"a part").await.expect("serves");
        let busy = try_commit(&handle, named(0, &[b"a part"]), &[part]).await;
        assert_eq!(busy, Err(Unavailable::SnapshotCommitsBusy));
    });
    node.shutdown().expect("a clean end");
    let node = open(Arc::new(OsDisk::new()), config(directory.path()));
    let handle = node.handle();
    runtime.block_on(async {
        let mut parts = Vec::new();
        let body = bytes(1, 2 << 20);
        for _ in 0..8 {
            parts.push(stage(&handle, &body).await.expect("serves"));
        }
        let head = named(0, &[&body[..]; 8]);
        let (first, second) = tokio::join!(try_commit(&handle, head, &parts), try_commit(&handle, head, &parts));
        let mut answers = [first, second];
        answers.sort_by_key(Result::is_err);
        assert!(matches!(answers[0], Ok(Ok(Outcome::Published { .. }))), "{answers:?}");
        assert_eq!(answers[1], Err(Unavailable::SnapshotCommitInProgress));
        assert_eq!(handle.status().snapshot_commits, 0);
        let repeat = handle.check_publish(PATH, None, head).await.expect("serves");
        assert!(matches!(repeat, Ok(Some(Outcome::Published { .. }))), "the repeat hears of it: {repeat:?}");
    });
    node.shutdown().expect("a clean end");
}

/// A quarter of a gibibyte in parts of 8 MiB, committed and read: what is held does not grow with it.
#[test]
fn a_large_snapshot_passes_through_and_is_never_whole_in_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let runtime = runtime();
    let config = Config { wal_segment_bytes: 16 << 20, wal_bytes_max: 128 << 20, ..config(directory.path()) };
    let node = open(Arc::new(OsDisk::new()), config);
    let handle = node.handle();
    runtime.block_on(async {
        create(&handle).await;
        let body = bytes(1, 8 << 20);
        let mut parts = Vec::new();
        while parts.len() < 32 {
            match stage(&handle, &body).await {
                Ok(part) => parts.push(part),
                // The log fills faster than checkpoints empty it.
                Err(Unavailable::WalDiskPressure | Unavailable::RaftUncommittedBackpressure) => {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        let head = named(0, &vec![&body[..]; 32]);
        let before = HELD.load(Ordering::Relaxed);
        HELD_MAX.store(before, Ordering::Relaxed);
        commit(&handle, head, &parts).await.expect("published");
        let scope = scope(&handle, 0).await.expect("published");
        assert_eq!(scope.length, 256 << 20);
        for part in scope.parts {
            let piece = handle.read_part(PATH, part.object, 0..part.length).await.expect("readable").expect("there");
            assert_eq!(piece.len(), 8 << 20);
        }
        let grown = HELD_MAX.load(Ordering::Relaxed) - before;
        assert!(grown < 128 << 20, "{grown} bytes more for a snapshot of {}", scope.length);
    });
    node.shutdown().expect("a clean end");
}
