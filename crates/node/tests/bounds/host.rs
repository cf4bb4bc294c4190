//! A node without threads on the operating system's disk, and what it reads of which files.

use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Incarnation, Millis};
use highwater_disk::watched::{Call, WatchedDisk, Watcher};
use highwater_disk::{Disk, OsDisk};
use highwater_node::config::Config;
use highwater_node::shard::{Answer, Input, Proposal};
use highwater_node::solo::Solo;
use highwater_node::{ReadRequest, Unavailable};
use highwater_stream::{Append, Create, Operation, ReadFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read so far.
#[derive(Default)]
pub struct Read {
    /// From data files, which hold payload.
    pub payload: AtomicU64,
    /// From the stores' indexes.
    pub index: AtomicU64,
}

impl Watcher for Read {
    fn after(&self, call: Call, path: &Path, bytes: u64) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name {
            _ if call != Call::Read => {}
            name if name.starts_with("data-") => drop(self.payload.fetch_add(bytes, Ordering::Relaxed)),
            name if name.starts_with("index-") => drop(self.index.fetch_add(bytes, Ordering::Relaxed)),
            _ => {}
        }
    }
}

/// The operating system's disk, counting.
#[derive(Clone, Default)]
pub struct CountingDisk(pub Arc<Read>);

/// A node that a test drives.
pub struct Host {
    pub node: Solo<u64>,
    random: SplitMix,
    token: u64,
}

impl Host {
    pub fn open(data: &Path, disk: &CountingDisk) -> Self {
        Self::open_with(data, disk, Config::new(data).hot_metadata_bytes)
    }

    /// The same with so many bytes of memory for streams.
    pub fn open_with(data: &Path, disk: &CountingDisk, hot_metadata_bytes: u64) -> Self {
        let mut random = SplitMix::new(7);
        let disk: Arc<dyn Disk> = Arc::new(WatchedDisk::new(OsDisk::new(), disk.0.clone()));
        // Small enough that most of what a test does has left the log when it ends.
        let (wal_segment_bytes, wal_bytes_max, checkpoint_bytes) = (16 << 20, 128 << 20, 2 << 20);
        let config =
            Config { wal_segment_bytes, wal_bytes_max, checkpoint_bytes, hot_metadata_bytes, ..Config::new(data) };
        let mut node = Solo::open(&config, &disk, &mut random).expect("opens");
        node.sync();
        Self { node, random, token: 0 }
    }

    /// Does writes that have come together, and all that they lead to; every one must apply.
    pub fn write(&mut self, writes: impl IntoIterator<Item = (String, Operation)>) {
        let mut inputs = Vec::new();
        for (path, operation) in writes {
            self.token += 1;
            let proposal = Proposal::new(Millis(1_000 + self.token), path, operation);
            inputs.push(Input::Write { token: self.token, proposal });
        }
        let count = inputs.len();
        self.node.turn(inputs);
        self.node.sync();
        self.node.checkpoint();
        let answers = self.node.answers();
        let applied =
            answers.iter().filter(|(_, answer)| matches!(answer, Answer::Write(Ok(done)) if done.result.is_ok()));
        assert_eq!(applied.count(), count, "{:?}", answers.first());
    }

    pub fn create(&mut self, path: &str, body: &'static [u8]) -> (String, Operation) {
        let create =
            Create::plain("application/octet-stream", Incarnation::issue(&mut self.random), Bytes::from_static(body));
        (path.to_owned(), Operation::Create(create))
    }

    pub fn append(path: &str, body: Bytes) -> (String, Operation) {
        let append = Append::plain("application/octet-stream", body);
        (path.to_owned(), Operation::Append(append))
    }

    /// Asks for bytes; the answer, unless the reader waits.
    pub fn read(&mut self, request: ReadRequest) -> Option<Answer> {
        self.token += 1;
        self.node.turn([Input::Read { token: self.token, request }]);
        self.node.answers().pop().map(|(_, answer)| answer)
    }
}

pub fn request(path: &str, from: ReadFrom, wait_ms: Option<u64>) -> ReadRequest {
    ReadRequest { path: path.to_owned(), incarnation: None, from, length_max: u64::MAX, leader: false, wait_ms }
}

/// Why a read was not answered with bytes.
pub fn refused(answer: &Answer) -> Option<&Unavailable> {
    match answer {
        Answer::Read(Err(why)) => Some(why),
        _ => None,
    }
}
