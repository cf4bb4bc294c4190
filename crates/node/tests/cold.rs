//! A node with an object store: its oldest files move there, and nothing that a client is told depends on it but reads of
//! what moved.

use bytes::Bytes;
use highwater_base::Offset;
use highwater_base::random::SplitMix;
use highwater_disk::system::{SystemClock, SystemRandom};
use highwater_disk::{Disk, SimDisk};
use highwater_node::backup::{Local, copy, restore, verify};
use highwater_node::{ColdOptions, ColdStatus, Config, Handle, Node, OpenError, ReadRequest, Unavailable, restored};
use highwater_store::cold::Pieces;
use highwater_store::{ColdError, ColdTier, Folder};
use highwater_stream::{Append, Create, Operation, ReadFrom};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

const PIECE: usize = 30_000;
const PIECES: u8 = 20;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A folder that answers, answers nothing, or answers late.
struct Fickle {
    folder: Folder,
    /// 0: answers; 1: refuses; 2: waits until it is something else.
    mood: AtomicU64,
}

impl Fickle {
    fn new(disk: &SimDisk) -> Arc<Self> {
        disk.create_directory(Path::new("/cold")).expect("made");
        Arc::new(Self { folder: Folder::new(Arc::new(disk.clone()), "/cold"), mood: AtomicU64::new(0) })
    }

    fn set(&self, mood: u64) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    fn answers(&self) -> Result<(), ColdError> {
        while self.mood.load(Ordering::SeqCst) == 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        match self.mood.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(ColdError::Unreachable("connection refused".to_owned())),
        }
    }
}

impl ColdTier for Fickle {
    fn put(&self, name: &str, bytes: u64, pieces: Pieces<'_>) -> Result<(), ColdError> {
        self.answers().and_then(|()| self.folder.put(name, bytes, pieces))
    }

    fn read(&self, name: &str, offset: u64, length: u64) -> Result<Bytes, ColdError> {
        self.answers().and_then(|()| self.folder.read(name, offset, length))
    }

    fn delete(&self, name: &str) -> Result<(), ColdError> {
        self.answers().and_then(|()| self.folder.delete(name))
    }

    fn place(&self) -> String {
        self.folder.place()
    }
}

fn config(data: &str, tier: Option<Arc<dyn ColdTier>>) -> Config {
    Config {
        groups: 2,
        wal_segment_bytes: 1 << 20,
        wal_bytes_max: 16 << 20,
        checkpoint_bytes: 64 << 10,
        scrub_bytes_per_second: 0,
        store: highwater_store::Options { file_bytes_max: 128 << 10, ..Default::default() },
        cold: tier.map(|tier| ColdOptions { local_bytes_max: 0, interval_ms: 20, ..ColdOptions::new(tier) }),
        ..Config::new(data)
    }
}

fn open(disk: &SimDisk, data: &str, tier: &Arc<Fickle>) -> Result<Node, OpenError> {
    open_with(disk, config(data, Some(Arc::clone(tier) as _)))
}

fn open_with(disk: &SimDisk, config: Config) -> Result<Node, OpenError> {
    Node::open(config, Arc::new(disk.clone()), Arc::new(SystemClock::new()), Box::new(SystemRandom))
}

async fn append(handle: &Handle, path: &str, fill: u8) {
    let append = Append::plain("application/octet-stream", Bytes::from(vec![fill; PIECE]));
    handle.write(path.to_owned(), Operation::Append(append)).await.expect("serves").result.expect("taken");
}

async fn fill(handle: &Handle, path: &str) {
    let create = Create::plain("application/octet-stream", handle.issue_incarnation(), Bytes::new());
    handle.write(path.to_owned(), Operation::Create(create)).await.expect("serves").result.expect("created");
    for fill in 0..PIECES {
        append(handle, path, fill).await;
    }
}

async fn read(handle: &Handle, path: &str, from: usize) -> Result<Bytes, Unavailable> {
    let request = ReadRequest {
        path: path.to_owned(),
        incarnation: None,
        from: ReadFrom::At(Offset(from as u64)),
        length_max: 50_000,
        leader: true,
        wait_ms: None,
    };
    handle.read(request).await.map(|answer| answer.expect("there").body)
}

/// Reads a stream from its beginning and checks every byte.
async fn check(handle: &Handle, path: &str, pieces: usize) {
    let mut at = 0;
    while at < pieces * PIECE {
        let bytes = read(handle, path, at).await.expect("readable");
        assert!(!bytes.is_empty(), "{path} ends at {at}");
        assert!(bytes.iter().enumerate().all(|(index, byte)| usize::from(*byte) == (at + index) / PIECE % 256));
        at += bytes.len();
    }
}

fn cold(handle: &Handle) -> ColdStatus {
    handle.status().object_store.expect("there is one")
}

/// Waits until the status says so.
fn wait(handle: &Handle, what: &str, said: impl Fn(&ColdStatus) -> bool) -> ColdStatus {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = cold(handle);
        if said(&status) {
            return status;
        }
        assert!(Instant::now() < until, "{what}: {status:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn objects(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let files = disk.files().into_iter().map(|(path, bytes)| (path.display().to_string(), bytes));
    files.filter(|(path, _)| path.starts_with("/cold/life-")).collect()
}

#[test]
fn old_files_move_and_are_read_from_there_and_a_deleted_stream_takes_its_objects_along() {
    let (runtime, disk) = (runtime(), SimDisk::new(1));
    let tier = Fickle::new(&disk);
    let node = open(&disk, "/data", &tier).expect("opens");
    let handle = node.handle();
    runtime.block_on(async {
        fill(&handle, "a").await;
        fill(&handle, "b").await;
    });
    let status = wait(&handle, "files to move", |status| status.moved_files >= 4);
    assert!(status.place == "file:///cold" && status.failing_since_ms.is_none(), "{status:?}");
    runtime.block_on(async {
        check(&handle, "a", PIECES.into()).await;
        check(&handle, "b", PIECES.into()).await;
    });
    let of_groups: u64 = handle.status().groups.iter().map(|group| group.storage.cold).sum();
    assert!(of_groups > 4 * 100_000, "{of_groups}");
    node.shutdown().expect("a clean end");

    let node = open(&disk, "/data", &tier).expect("opens again");
    let handle = node.handle();
    runtime.block_on(async {
        check(&handle, "a", PIECES.into()).await;
        for path in ["a", "b"] {
            let delete = Operation::Delete { incarnation: None };
            handle.write(path.to_owned(), delete).await.expect("serves").result.expect("deleted");
        }
        // Something has to be written, in both groups, for the next checkpoints.
        for path in ["c", "d", "e", "f"] {
            fill(&handle, path).await;
        }
    });
    wait(&handle, "objects to go", |status| status.erased_objects >= 4);
    node.shutdown().expect("a clean end");
}

#[test]
fn without_its_object_store_a_node_starts_writes_and_serves_what_it_has_and_says_what_it_has_not() {
    let (runtime, disk) = (runtime(), SimDisk::new(1));
    let tier = Fickle::new(&disk);
    let node = open(&disk, "/data", &tier).expect("opens");
    runtime.block_on(fill(&node.handle(), "a"));
    wait(&node.handle(), "files to move", |status| status.moved_files >= 2);
    node.shutdown().expect("a clean end");

    tier.set(1);
    let node = open(&disk, "/data", &tier).expect("opens without it");
    let handle = node.handle();
    runtime.block_on(async {
        assert_eq!(read(&handle, "a", 0).await, Err(Unavailable::ColdStoreUnreachable));
        for round in 0..PIECES {
            append(&handle, "a", PIECES + round).await;
        }
        let tail = read(&handle, "a", (2 * usize::from(PIECES) - 1) * PIECE).await.expect("it lies on the disk");
        assert_eq!(tail.len(), PIECE);
    });
    let status = wait(&handle, "failures to be told", |status| status.moves_failed > 0 && status.reads_failed > 0);
    assert!(status.failing_since_ms.is_some(), "{status:?}");
    assert!(status.last_error.expect("why").contains("connection refused"));
    tier.set(0);
    wait(&handle, "it to recover", |status| status.failing_since_ms.is_none() && status.moved_files > 0);
    runtime.block_on(check(&handle, "a", 2 * usize::from(PIECES)));
    node.shutdown().expect("a clean end");
}

/// An object store that never answers holds a few readers of it and nobody else, and no shutdown.
#[test]
fn an_object_store_that_answers_nothing_holds_up_neither_writes_nor_reads_of_the_disk_nor_the_end() {
    let (runtime, disk) = (runtime(), SimDisk::new(1));
    let tier = Fickle::new(&disk);
    let mut settings = config("/data", Some(Arc::clone(&tier) as _));
    settings.cold_reads_max = 2;
    let node = open_with(&disk, settings).expect("opens");
    let handle = node.handle();
    runtime.block_on(fill(&handle, "a"));
    wait(&handle, "files to move", |status| status.moved_files >= 2);
    tier.set(2);
    let waiting: Vec<_> = (0..6)
        .map(|_| {
            let handle = handle.clone();
            runtime.spawn(async move { read(&handle, "a", 0).await })
        })
        .collect();
    runtime.block_on(async {
        for round in 0..PIECES {
            append(&handle, "a", PIECES + round).await;
        }
        let tail = read(&handle, "a", (2 * usize::from(PIECES) - 1) * PIECE).await.expect("it lies on the disk");
        assert_eq!(tail.len(), PIECE);
        // Two have the places; the others are told soon that there is none.
        let (mut told, mut others) = (0, Vec::new());
        for task in waiting {
            match tokio::time::timeout(Duration::from_secs(10), task).await {
                Ok(answer) => {
                    assert_eq!(answer.expect("no panic"), Err(Unavailable::ColdReadsExhausted));
                    told += 1;
                }
                Err(_) => others.push(()),
            }
            if told == 4 {
                break;
            }
        }
        assert_eq!(told, 4);
    });
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(node.shutdown().is_ok()));
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(true), "a shutdown does not wait for it");
    tier.set(1);
}

#[test]
fn a_node_refuses_the_object_store_of_another_cluster_and_a_start_without_the_one_that_it_needs() {
    let (runtime, disk) = (runtime(), SimDisk::new(1));
    let tier = Fickle::new(&disk);
    let node = open(&disk, "/data", &tier).expect("opens");
    runtime.block_on(fill(&node.handle(), "a"));
    wait(&node.handle(), "files to move", |status| status.moved_files >= 2);
    node.shutdown().expect("a clean end");
    let before = objects(&disk);

    let error = open(&disk, "/other", &tier).expect_err("another cluster's").to_string();
    assert!(error.contains("is the object store of cluster hw-"), "{error}");
    let error = open_with(&disk, config("/data", None)).expect_err("files are away").to_string();
    assert!(error.contains("none is set") && error.contains("object_store"), "{error}");
    // The right kind of place, and the wrong one: an empty folder, as one that is not mounted would be.
    disk.create_directory(Path::new("/empty")).expect("made");
    let empty: Arc<dyn ColdTier> = Arc::new(Folder::new(Arc::new(disk.clone()), "/empty"));
    let node = open_with(&disk, config("/data", Some(empty))).expect("it may come back");
    let handle = node.handle();
    assert_eq!(runtime.block_on(read(&handle, "a", 0)), Err(Unavailable::ColdStoreUnreachable), "nothing is lost");
    let status = wait(&handle, "the reason", |status| status.failing_since_ms.is_some());
    assert!(status.last_error.expect("why").contains("not mounted"));
    assert!(handle.status().scrub.faults.is_empty());
    node.shutdown().expect("a clean end");
    assert_eq!(objects(&disk), before);
    assert!(!disk.files().iter().any(|(path, _)| path.starts_with("/empty")), "nothing was written there");
}

/// An older copy of the directory is restored, and the newer one's objects are in the same object store.
#[test]
fn a_directory_restored_from_an_older_copy_keeps_its_hands_off_what_the_newer_one_wrote() {
    let (runtime, disk) = (runtime(), SimDisk::new(1));
    let tier = Fickle::new(&disk);
    let node = open(&disk, "/data", &tier).expect("opens");
    runtime.block_on(fill(&node.handle(), "a"));
    wait(&node.handle(), "files to move", |status| status.moved_files >= 2);
    let life = cold(&node.handle()).life;
    node.shutdown().expect("a clean end");
    // The copy; then the newer life goes on.
    for (path, bytes) in disk.files().into_iter().filter(|(path, _)| path.starts_with("/data")) {
        let copy = Path::new("/copy").join(path.strip_prefix("/data").expect("below it"));
        disk.create_directory(copy.parent().expect("a folder")).expect("made");
        disk.open(&copy, highwater_disk::OpenMode::CreateNew).and_then(|f| f.write_at(&bytes, 0)).expect("copied");
    }
    let node = open(&disk, "/data", &tier).expect("opens");
    runtime.block_on(fill(&node.handle(), "b"));
    wait(&node.handle(), "more to move", |status| status.moved_files >= 2);
    node.shutdown().expect("a clean end");
    let newer = objects(&disk);

    restored::mark(&disk, Path::new("/copy"), &mut SplitMix::new(3)).expect("marked");
    let node = open(&disk, "/copy", &tier).expect("opens");
    let handle = node.handle();
    assert_ne!(cold(&handle).life, life, "the copy has a life of its own");
    runtime.block_on(async {
        check(&handle, "a", PIECES.into()).await;
        let delete = Operation::Delete { incarnation: None };
        handle.write("a".to_owned(), delete).await.expect("serves").result.expect("deleted");
        fill(&handle, "c").await;
    });
    wait(&handle, "it to move files of its own", |status| status.moved_files >= 2);
    let own = cold(&handle).life;
    node.shutdown().expect("a clean end");
    // The mark is used up; the life stays.
    let node = open(&disk, "/copy", &tier).expect("opens again");
    assert_eq!(cold(&node.handle()).life, own);
    node.shutdown().expect("a clean end");
    let after = objects(&disk);
    assert!(newer.iter().all(|object| after.contains(object)), "every object of the newer life is there, unaltered");

    let node = open(&disk, "/data", &tier).expect("the newer one opens too");
    runtime.block_on(async {
        check(&node.handle(), "a", PIECES.into()).await;
        check(&node.handle(), "b", PIECES.into()).await;
    });
    node.shutdown().expect("a clean end");
}

#[test]
fn a_backup_holds_the_bytes_that_lie_in_the_object_store_and_is_restored_without_it() {
    let (runtime, disk) = (runtime(), SimDisk::new(1));
    let tier = Fickle::new(&disk);
    let node = open(&disk, "/data", &tier).expect("opens");
    let handle = node.handle();
    runtime.block_on(fill(&handle, "a"));
    wait(&handle, "files to move", |status| status.moved_files >= 2);
    let plan = runtime.block_on(handle.begin_backup(false)).expect("every group serves");
    let source = Local { handle: &handle, id: &plan.id };
    copy(&plan, &source, &disk, Path::new("/backup"), None, &mut |_| {}).expect("copied");
    handle.end_backup(&plan.id);
    node.shutdown().expect("a clean end");
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    assert_eq!(verify(&shared, Path::new("/backup"), &mut |_| {}).expect("a manifest").faults, []);
    restore(&shared, Path::new("/backup"), Path::new("/again"), false, &mut SplitMix::new(1), &mut |_| {})
        .expect("restored");
    let node = open_with(&disk, config("/again", None)).expect("it needs no object store");
    runtime.block_on(check(&node.handle(), "a", PIECES.into()));
    node.shutdown().expect("a clean end");
}
