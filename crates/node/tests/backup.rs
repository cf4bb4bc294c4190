//! A backup is taken from a node that goes on, and what is restored from it is what was acknowledged before it began.

use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Offset};
use highwater_disk::system::{SystemClock, SystemRandom};
use highwater_disk::{Disk, OpenMode, OsDisk, SimDisk};
use highwater_node::backup::{
    BackupError, BackupPlan, CopyError, Local, ManifestError, RestoreError, Source, copy, restore, verify,
};
use highwater_node::{Config, GroupState, Handle, Node, OpenError, ReadRequest, Unavailable};
use highwater_stream::{Append, Create, Operation, ReadFrom};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

const PATHS: [&str; 4] = ["a", "b/c", "d", "e"];

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn config(data: &Path) -> Config {
    Config {
        groups: 2,
        wal_segment_bytes: 1 << 20,
        wal_bytes_max: 16 << 20,
        checkpoint_bytes: 64 << 10,
        scrub_bytes_per_second: 0,
        ..Config::new(data)
    }
}

fn open(disk: &Arc<dyn Disk>, data: &Path) -> Result<Node, OpenError> {
    Node::open(config(data), Arc::clone(disk), Arc::new(SystemClock::new()), Box::new(SystemRandom))
}

async fn create(handle: &Handle, path: &str) {
    let create = Create::plain("application/octet-stream", handle.issue_incarnation(), Bytes::new());
    handle.write(path.to_owned(), Operation::Create(create)).await.expect("serves").result.expect("created");
}

async fn append(handle: &Handle, path: &str, fill: u8, length: usize) {
    let append = Append::plain("application/octet-stream", Bytes::from(vec![fill; length]));
    handle.write(path.to_owned(), Operation::Append(append)).await.expect("serves").result.expect("taken");
}

async fn content(handle: &Handle, path: &str) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let request = ReadRequest {
            path: path.to_owned(),
            incarnation: None,
            from: ReadFrom::At(Offset(content.len() as u64)),
            length_max: u64::MAX,
            leader: true,
            wait_ms: None,
        };
        let answer = handle.read(request).await.expect("serves").expect("readable");
        content.extend_from_slice(&answer.body);
        if answer.up_to_date {
            return content;
        }
    }
}

async fn fill(handle: &Handle) {
    for path in PATHS {
        create(handle, path).await;
        for fill in 1..=4 {
            append(handle, path, fill, 30_000).await;
        }
    }
}

fn expected() -> Vec<u8> {
    (1..=4).flat_map(|fill| vec![fill; 30_000]).collect()
}

/// A disk in memory with a node's directory and a backup of it.
fn backed_up(runtime: &Runtime) -> (SimDisk, Arc<dyn Disk>) {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let node = open(&disk, Path::new("/data")).expect("opens");
    let handle = node.handle();
    runtime.block_on(fill(&handle));
    take(runtime, &handle, &*disk, Path::new("/backup"), None);
    node.shutdown().expect("a clean end");
    (sim, disk)
}

/// A data file of a group of streams, in the backup.
fn data_file(sim: &SimDisk) -> std::path::PathBuf {
    let in_backup = |path: &std::path::PathBuf| {
        let text = path.to_string_lossy();
        text.starts_with("/backup/store/g") && text.contains("/data-")
    };
    sim.files().into_iter().map(|(path, _)| path).find(in_backup).expect("a data file")
}

fn take(runtime: &Runtime, handle: &Handle, disk: &dyn Disk, to: &Path, since: Option<&Path>) -> (BackupPlan, u64) {
    let plan = runtime.block_on(handle.begin_backup(false)).expect("every group serves");
    let copied = copy(&plan, &Local { handle, id: &plan.id }, disk, to, since, &mut |_| {}).expect("copied");
    assert!(handle.end_backup(&plan.id) && !handle.end_backup(&plan.id));
    assert_eq!(copied.copied_bytes + copied.shared_bytes, copied.manifest.bytes());
    (plan, copied.shared_bytes)
}

/// A source whose server is used between any two reads.
struct Busy<'a> {
    runtime: &'a Runtime,
    local: Local<'a>,
    reads: Cell<u32>,
}

impl Source for Busy<'_> {
    fn read(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, String> {
        self.reads.set(self.reads.get() + 1);
        self.runtime.block_on(async {
            append(self.local.handle, "a", 9, 40_000).await;
            append(self.local.handle, "b/c", 9, 40_000).await;
            if self.reads.get() == 2 {
                let delete = Operation::Delete { incarnation: None };
                self.local.handle.write("d".to_owned(), delete).await.expect("serves").result.expect("deleted");
            }
        });
        // Small pieces, so that much happens in between.
        self.local.read(path, offset, length.min(50_000))
    }

    fn digest(&self, path: &str) -> Result<Digest, String> {
        self.local.digest(path)
    }
}

#[test]
fn what_was_acknowledged_before_a_backup_is_restored_though_the_server_went_on_meanwhile() {
    let runtime = runtime();
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let node = open(&disk, Path::new("/data")).expect("opens");
    let handle = node.handle();
    runtime.block_on(fill(&handle));
    let plan = runtime.block_on(handle.begin_backup(false)).expect("every group serves");
    assert_eq!(handle.status().backups, 1);
    let source = Busy { runtime: &runtime, local: Local { handle: &handle, id: &plan.id }, reads: Cell::new(0) };
    let mut through = 0;
    let copied =
        copy(&plan, &source, &*disk, Path::new("/backup"), None, &mut |bytes| through = bytes).expect("copied");
    assert!(through == copied.manifest.bytes() && source.reads.get() > 5, "{through} {}", source.reads.get());
    handle.end_backup(&plan.id);
    assert_eq!(handle.status().backups, 0);
    let after = runtime.block_on(content(&handle, "a")).len();
    assert!(after > expected().len() + 100_000, "the server was not held up");
    node.shutdown().expect("a clean end");

    let verified = verify(&disk, Path::new("/backup"), &mut |_| {}).expect("a manifest");
    assert_eq!((verified.faults, verified.streams), (Vec::new(), 4));
    let mut random = SplitMix::new(1);
    restore(&disk, Path::new("/backup"), Path::new("/again"), false, &mut random, &mut |_| {}).expect("restored");
    let node = open(&disk, Path::new("/again")).expect("a data directory");
    let handle = node.handle();
    runtime.block_on(async {
        for path in PATHS {
            assert_eq!(content(&handle, path).await, expected(), "{path}");
        }
        append(&handle, "a", 5, 10).await;
        assert_eq!(content(&handle, "a").await.len(), expected().len() + 10);
    });
    assert!(node.shutdown().is_ok());
    // And it recovers like any other.
    let node = open(&disk, Path::new("/again")).expect("opens again");
    assert_eq!(runtime.block_on(content(&node.handle(), "a")).len(), expected().len() + 10);
}

#[test]
fn a_second_backup_names_the_files_that_the_first_has_and_stands_alone() {
    let runtime = runtime();
    let folder = tempfile::tempdir().expect("a folder");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let node = open(&disk, &folder.path().join("data")).expect("opens");
    let handle = node.handle();
    runtime.block_on(fill(&handle));
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    take(&runtime, &handle, &*disk, &first, None);
    runtime.block_on(append(&handle, "a", 7, 10));
    let (plan, shared) = take(&runtime, &handle, &*disk, &second, Some(&first));
    let bytes: u64 = plan.files.iter().map(|file| file.bytes).sum();
    assert!(shared > 0 && shared < bytes, "{shared} of {bytes} bytes");
    node.shutdown().expect("a clean end");
    std::fs::remove_dir_all(&first).expect("it can go");
    assert_eq!(verify(&disk, &second, &mut |_| {}).expect("a manifest").faults, []);
    let restored = folder.path().join("restored");
    restore(&disk, &second, &restored, false, &mut SystemRandom, &mut |_| {}).expect("restored");
    let node = open(&disk, &restored).expect("a data directory");
    assert_eq!(runtime.block_on(content(&node.handle(), "a")).len(), expected().len() + 10);
}

/// A directory that came back from an older copy gives the numbers of its files anew: a number and a length prove nothing.
#[test]
fn a_file_of_the_same_name_and_length_with_other_bytes_is_copied_again() {
    let runtime = runtime();
    let folder = tempfile::tempdir().expect("a folder");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let mut backups = Vec::new();
    for fill in [1, 2] {
        let data = folder.path().join(format!("data-{fill}"));
        let node = open(&disk, &data).expect("opens");
        let handle = node.handle();
        runtime.block_on(async {
            create(&handle, "a").await;
            append(&handle, "a", fill, 100_000).await;
        });
        let backup = folder.path().join(format!("backup-{fill}"));
        take(&runtime, &handle, &*disk, &backup, backups.last().map(std::path::PathBuf::as_path));
        backups.push(backup);
        node.shutdown().expect("a clean end");
    }
    let restored = folder.path().join("restored");
    restore(&disk, &backups[1], &restored, false, &mut SystemRandom, &mut |_| {}).expect("restored");
    let node = open(&disk, &restored).expect("a data directory");
    assert!(runtime.block_on(content(&node.handle(), "a")).iter().all(|byte| *byte == 2));
}

#[test]
fn a_flipped_bit_of_a_backup_is_found_with_its_stream_and_not_restored() {
    let runtime = runtime();
    let (sim, disk) = backed_up(&runtime);
    let data = data_file(&sim);
    sim.flip_bit(&data, 4096 + 100).expect("a byte");
    let verified = verify(&disk, Path::new("/backup"), &mut |_| {}).expect("a manifest");
    assert_eq!(verified.faults.len(), 2, "the digest and the block: {:?}", verified.faults);
    let stream = verified.faults[1].stream.as_deref().expect("the stream is named");
    assert!(PATHS.contains(&stream) && verified.faults[1].what.contains("byte 4096"), "{:?}", verified.faults);
    let refused = restore(&disk, Path::new("/backup"), Path::new("/again"), false, &mut SystemRandom, &mut |_| {});
    assert!(matches!(&refused, Err(RestoreError::Damaged { path, .. }) if *path == data), "{refused:?}");
    open(&disk, Path::new("/again")).expect_err("what was restored in part is no data directory");
}

#[test]
fn a_missing_file_or_manifest_is_said_and_nothing_is_restored_over_data() {
    let runtime = runtime();
    let (sim, disk) = backed_up(&runtime);
    let into =
        |data: &str| restore(&disk, Path::new("/backup"), Path::new(data), false, &mut SystemRandom, &mut |_| {});
    let refused = into("/data").expect_err("a directory with data");
    assert!(matches!(refused, RestoreError::NotEmpty { .. }), "{refused}");
    let data = data_file(&sim);
    sim.remove(&data).expect("a file");
    let verified = verify(&disk, Path::new("/backup"), &mut |_| {}).expect("a manifest");
    let named = verified.faults.iter().any(|fault| Path::new("/backup").join(&fault.file) == data);
    assert!(named, "{:?}", verified.faults);
    into("/again").expect_err("a file is missing");
    sim.remove(Path::new("/backup/manifest")).expect("the manifest");
    assert!(matches!(into("/third"), Err(RestoreError::Manifest(ManifestError::Missing(_)))));
}

/// A source that breaks off.
struct Broken<'a>(Local<'a>, Cell<u32>);

impl Source for Broken<'_> {
    fn read(&self, path: &str, offset: u64, length: u64) -> Result<Bytes, String> {
        self.1.set(self.1.get() + 1);
        if self.1.get() > 2 { Err("no answer".to_owned()) } else { self.0.read(path, offset, length) }
    }

    fn digest(&self, path: &str) -> Result<Digest, String> {
        self.0.digest(path)
    }
}

#[test]
fn a_copy_that_broke_off_is_no_backup_and_a_backup_that_ended_is_not_read() {
    let runtime = runtime();
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let node = open(&disk, Path::new("/data")).expect("opens");
    let handle = node.handle();
    runtime.block_on(fill(&handle));
    let plan = runtime.block_on(handle.begin_backup(false)).expect("every group serves");
    let broken = Broken(Local { handle: &handle, id: &plan.id }, Cell::new(0));
    let refused = copy(&plan, &broken, &*disk, Path::new("/backup"), None, &mut |_| {});
    assert!(matches!(refused, Err(CopyError::Source { .. })), "{refused:?}");
    assert!(matches!(verify(&disk, Path::new("/backup"), &mut |_| {}), Err(ManifestError::Missing(_))));
    let again = copy(&plan, &broken.0, &*disk, Path::new("/backup"), None, &mut |_| {});
    assert!(matches!(again, Err(CopyError::NotEmpty(_))), "{again:?}");
    for path in ["store/g0/../../lock", "wal/state", "store/g9/data-00000001", "nothing"] {
        assert!(matches!(handle.read_backup(&plan.id, path, 0, 10), Err(BackupError::Unknown)), "{path}");
    }
    assert!(handle.end_backup(&plan.id));
    assert!(matches!(handle.read_backup(&plan.id, "cluster", 0, 10), Err(BackupError::Unknown)));
    let ids: Vec<_> = (0..4).map(|_| runtime.block_on(handle.begin_backup(false)).expect("up to four").id).collect();
    assert!(matches!(runtime.block_on(handle.begin_backup(false)), Err(BackupError::TooMany)));
    assert!(ids.iter().all(|id| handle.end_backup(id)));
}

/// Whatever operation of a restore the power fails at: afterwards there is a data directory, whole and marked, or none.
#[test]
fn a_restore_that_was_interrupted_is_whole_or_refused() {
    let runtime = runtime();
    let (sim, _) = backed_up(&runtime);
    let into = |sim: &SimDisk| {
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        restore(&disk, Path::new("/backup"), Path::new("/again"), false, &mut SplitMix::new(3), &mut |_| {}).is_ok()
    };
    let whole = sim.fork(0);
    let before = whole.operations();
    assert!(into(&whole));
    let total = whole.operations() - before;
    let (mut refused, mut restored) = (0, 0);
    // Of the last operations every outcome must be met.
    let seeds = |stop| if stop + 3 > total { 16 } else { 1 };
    for (stop, seed) in (1..=total).flat_map(|stop| (0..seeds(stop)).map(move |seed| (stop, seed))) {
        let sim = sim.fork(stop * 100 + seed);
        sim.stop_at(sim.operations() + stop);
        let done = into(&sim);
        sim.power_loss();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let names = disk.list(Path::new("/again")).unwrap_or_default();
        if !names.contains(&"cluster".to_owned()) {
            assert!(!done, "operation {stop}: it was said to be done");
            refused += 1;
            // An empty directory is nobody's yet; anything else must not be taken for one that may be made.
            if names.iter().any(|name| name == "store" || name == "wal") {
                open(&disk, Path::new("/again")).expect_err("a part of a restore");
            }
            continue;
        }
        restored += 1;
        assert!(names.contains(&"restored".to_owned()), "operation {stop}: a directory without its mark");
        let node = open(&disk, Path::new("/again")).unwrap_or_else(|error| panic!("operation {stop}: {error}"));
        runtime.block_on(async {
            for path in PATHS {
                assert_eq!(content(&node.handle(), path).await, expected(), "operation {stop}");
            }
        });
    }
    assert!(refused > 20 && restored > 0, "{refused} {restored}");
}

#[test]
fn a_file_of_the_disk_is_left_as_it_is_by_a_check() {
    let runtime = runtime();
    let (sim, disk) = backed_up(&runtime);
    let (before, operations) = (sim.files(), sim.operations());
    verify(&disk, Path::new("/backup"), &mut |_| {}).expect("a manifest");
    assert_eq!((sim.files(), sim.operations()), (before, operations));
    assert!(disk.open(Path::new("/backup/cluster"), OpenMode::Read).is_ok());
}

/// Paths of which both groups have some.
fn spread() -> impl Iterator<Item = String> {
    (0..12).map(|number| format!("spread-{number}"))
}

/// A node's directory with streams in both groups, of which one is damaged, and its backup without that one.
fn backed_up_in_part(runtime: &Runtime, damaged: &str) -> (Arc<dyn Disk>, BackupPlan) {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let node = open(&disk, Path::new("/data")).expect("opens");
    runtime.block_on(async {
        fill(&node.handle()).await;
        for path in spread() {
            create(&node.handle(), &path).await;
            append(&node.handle(), &path, 5, 5_000).await;
        }
    });
    let pins: Vec<_> = (0..3).map(|group| runtime.block_on(node.handle().pin(group)).expect("a checkpoint")).collect();
    drop(pins);
    node.shutdown().expect("a clean end");
    let folder = format!("/data/store/{damaged}/index-");
    let index = sim.files().into_iter().map(|(path, _)| path).find(|path| path.to_string_lossy().starts_with(&folder));
    sim.flip_bit(&index.expect("it made a checkpoint"), 20).expect("in the file");

    let node = open(&disk, Path::new("/data")).expect("the others serve");
    let handle = node.handle();
    let refused = runtime.block_on(handle.begin_backup(false));
    let Err(BackupError::Group { group, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(group.to_string(), damaged);
    let plan = runtime.block_on(handle.begin_backup(true)).expect("the others are sound");
    let local = Local { handle: &handle, id: &plan.id };
    copy(&plan, &local, &*disk, Path::new("/backup"), None, &mut |_| {}).expect("copied");
    handle.end_backup(&plan.id);
    node.shutdown().expect("a clean end");
    (disk, plan)
}

/// The story: one damaged group of sixteen made a backup of the fifteen others impossible.
#[test]
fn a_damaged_group_is_left_out_of_a_backup_that_names_it_and_the_others_come_back() {
    let runtime = runtime();
    let (disk, plan) = backed_up_in_part(&runtime, "g0");
    let [absent] = &plan.absent[..] else { panic!("{:?}", plan.absent) };
    assert!(absent.group == "g0" && absent.why.contains("its store does not open"), "{absent:?}");
    let verified = verify(&disk, Path::new("/backup"), &mut |_| {}).expect("a manifest");
    assert_eq!((verified.faults, &verified.manifest.absent), (Vec::new(), &plan.absent));

    let mut random = SystemRandom;
    let again = Path::new("/again");
    let refused = restore(&disk, Path::new("/backup"), again, false, &mut random, &mut |_| {});
    let Err(RestoreError::Absent { absent }) = refused else { panic!("{refused:?}") };
    assert_eq!(absent, ["g0"]);
    restore(&disk, Path::new("/backup"), again, true, &mut random, &mut |_| {}).expect("restored");
    let node = open(&disk, again).expect("opens");
    let handle = node.handle();
    let (mut whole, mut refused) = (0, 0);
    assert!(matches!(handle.status().groups[0].state, GroupState::Damaged(_)), "a group that is not there serves");
    for path in spread() {
        match runtime.block_on(handle.head(&path)) {
            Ok(head) => {
                assert!(head.is_ok(), "{path}");
                assert_eq!(runtime.block_on(content(&handle, &path)), vec![5; 5_000], "{path}");
                whole += 1;
            }
            Err(why) => {
                assert_eq!(why, Unavailable::ApplyStopped, "{path} is not said to be gone");
                refused += 1;
            }
        }
    }
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
    node.shutdown().expect("a clean end");
}

#[test]
fn a_backup_without_the_control_group_comes_back_without_keys_and_serves_the_streams() {
    let runtime = runtime();
    let (disk, plan) = backed_up_in_part(&runtime, "control");
    assert_eq!(plan.absent.iter().map(|absent| absent.group.as_str()).collect::<Vec<_>>(), ["control"]);
    let again = Path::new("/again");
    restore(&disk, Path::new("/backup"), again, true, &mut SystemRandom, &mut |_| {}).expect("restored");
    let node = open(&disk, again).expect("opens");
    let handle = node.handle();
    for path in PATHS {
        assert_eq!(runtime.block_on(content(&handle, path)), expected(), "{path}");
    }
    let view = runtime.block_on(async {
        let mut view = handle.control_view();
        let known = view.wait_for(Option::is_some).await.expect("the node lives");
        known.clone().expect("known")
    });
    assert!(!view.is_keyed());
    node.shutdown().expect("a clean end");
}
