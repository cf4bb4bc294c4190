//! The store with the log that it is made for.

use crate::world::{DIRECTORY, disk as new_disk, owner, payload, small};
use highwater_disk::{Disk, OsDisk, SimDisk};
use highwater_store::{Options, Store, StoreReader};
use highwater_wal::{Frame, Log};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OBJECT: u64 = 77;

/// A log and a store on one disk: position `n` of the log is the `n`th append of one object.
struct Node {
    log: Log,
    store: Store,
    reader: StoreReader,
    position: u64,
    end: u64,
}

fn log_options() -> highwater_wal::Options {
    highwater_wal::Options { segment_bytes: 64 << 10, log_bytes_max: 512 << 10, ..Default::default() }
}

fn state(end: u64) -> Vec<u8> {
    end.to_le_bytes().to_vec()
}

impl Node {
    fn open(disk: &Arc<dyn Disk>, root: &Path, store: Options, log: highwater_wal::Options) -> Result<Self, String> {
        let (log, recovered) = Log::open(disk.clone(), &root.join("wal"), log).map_err(|e| e.to_string())?;
        assert!(recovered.verdict(owner()).is_whole(), "{:?}", recovered.owners());
        let opened = Store::open(disk.clone(), &root.join("store/g3"), owner(), store);
        let (mut store, loaded) = opened.map_err(|e| e.to_string())?;
        let mut end = loaded
            .objects
            .first()
            .map_or(0, |(_, state)| u64::from_le_bytes(state[..].try_into().expect("eight bytes")));
        let mut position = loaded.applied;
        let replayed = recovered.replay(
            |found| found == owner(),
            |frame| {
                if frame.position <= position {
                    return Ok(());
                }
                if frame.position != position + 1 {
                    return Err(format!("position {} follows {position}", frame.position));
                }
                let length = frame.payload.len() as u32;
                store.append(OBJECT, end, frame.location, 0..length);
                (position, end) = (frame.position, end + u64::from(length));
                Ok(())
            },
        );
        replayed.map_err(|e| format!("{e:?}"))?;
        let reader = store.reader(log.reader());
        Ok(Self { log, store, reader, position, end })
    }

    /// Appends and syncs: acknowledged when it returns.
    fn append(&mut self, length: u64) -> Result<(), String> {
        let bytes = payload(OBJECT, self.end..self.end + length);
        let frame = Frame { owner: owner(), kind: 1, position: self.position + 1, payload: bytes.into() };
        let locations = self.log.append(&[frame]).map_err(|e| e.to_string())?;
        self.log.sync().map_err(|e| e.to_string())?;
        self.store.append(OBJECT, self.end, locations[0], 0..length as u32);
        self.position += 1;
        self.end += length;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let changed = vec![(OBJECT, Some(state(self.end).into()))];
        let checkpoint = self.store.begin_checkpoint(self.position, Default::default(), changed);
        match checkpoint.run(&self.log.reader()) {
            Ok(done) => {
                let applied = done.applied();
                drop(self.store.finish_checkpoint(done));
                self.log.release(owner(), applied + 1).map(drop).map_err(|e| e.to_string())
            }
            Err(error) => {
                let text = error.to_string();
                self.store.fail_checkpoint(error);
                Err(text)
            }
        }
    }

    fn check(&self) {
        let mut at = 0;
        while at < self.end {
            let bytes = self.reader.read(&self.store.plan_read(OBJECT, at, u64::MAX)).expect("readable");
            assert!(!bytes.is_empty() && bytes == payload(OBJECT, at..at + bytes.len() as u64), "at {at}");
            at += bytes.len() as u64;
        }
        assert_eq!(at, self.end);
    }
}

#[test]
fn a_stream_ten_times_larger_than_the_log_lives_on_a_real_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new());
    let store = || Options { file_bytes_max: 4 << 20, ..Options::default() };
    let open = || Node::open(&disk, folder.path(), store(), log_options()).expect("sound");
    let mut node = open();
    for _ in 0..50 {
        for length in [10_000, 30_000, 50_000, 5, 40_000] {
            node.append(length).expect("appended");
        }
        if node.store.unmoved_bytes() > 200_000 {
            node.checkpoint().expect("sound");
        }
    }
    node.append(1234).expect("appended");
    node.check();
    let end = node.end;
    drop(node);
    let node = open();
    assert_eq!(node.end, end);
    node.check();
    let status = node.store.status();
    assert!(status.stored_bytes > 4 << 20 && status.files > 1, "{status:?}");
}

/// Opens, appends and checkpoints until the disk dies; how many bytes were acknowledged.
fn life(disk: &SimDisk) -> u64 {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let Ok(mut node) = Node::open(&shared, &root(), small(), log_options()) else { return 0 };
    for round in 0..12 {
        let done = (0..4).try_for_each(|part| node.append(3000 + part * 4000 + round * 100));
        if done.and_then(|()| if round % 2 == 1 { node.checkpoint() } else { Ok(()) }).is_err() {
            break;
        }
    }
    node.end
}

fn root() -> PathBuf {
    Path::new(DIRECTORY).ancestors().nth(2).expect("/data").to_path_buf()
}

#[test]
fn what_was_acknowledged_is_there_wherever_the_power_fails_in_log_or_store() {
    let total = {
        let disk = new_disk(0);
        assert!(life(&disk) > 400_000);
        disk.operations()
    };
    for stop in 1..=total {
        let disk = new_disk(stop);
        disk.stop_at(stop);
        let acknowledged = life(&disk);
        disk.power_loss();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let opened = Node::open(&shared, &root(), small(), log_options());
        let mut node = opened.unwrap_or_else(|error| panic!("stop {stop} of {total}: {error}"));
        assert!(node.end >= acknowledged, "stop {stop}: {} of {acknowledged} acknowledged bytes", node.end);
        node.check();
        node.append(500).expect("a sound disk");
        node.checkpoint().expect("a sound disk");
        node.check();
    }
}
