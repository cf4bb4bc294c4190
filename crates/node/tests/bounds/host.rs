//! A node without threads on the operating system's disk, and what it reads of which files.

use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Incarnation, Millis};
use highwater_disk::{Disk, File, OpenMode, OsDisk};
use highwater_node::config::Config;
use highwater_node::shard::{Answer, Input, Proposal};
use highwater_node::solo::Solo;
use highwater_node::{ReadRequest, Unavailable};
use highwater_stream::{Append, Create, Operation, ReadFrom};
use std::io;
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

/// The operating system's disk, counting.
#[derive(Clone, Default)]
pub struct CountingDisk(pub Arc<Read>);

struct CountingFile(Arc<dyn File>, Arc<Read>, Kind);

#[derive(Clone, Copy)]
enum Kind {
    Payload,
    Index,
    Other,
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let kind = match name {
            name if name.starts_with("data-") => Kind::Payload,
            name if name.starts_with("index-") => Kind::Index,
            _ => Kind::Other,
        };
        Ok(Arc::new(CountingFile(OsDisk::new().open(path, mode)?, self.0.clone(), kind)))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        OsDisk::new().create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        OsDisk::new().sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk::new().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        OsDisk::new().remove(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        OsDisk::new().remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        OsDisk::new().list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        OsDisk::new().exists(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        OsDisk::new().free_bytes(path)
    }
}

impl File for CountingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.0.read_at(buffer, offset)?;
        match self.2 {
            Kind::Payload => drop(self.1.payload.fetch_add(read as u64, Ordering::Relaxed)),
            Kind::Index => drop(self.1.index.fetch_add(read as u64, Ordering::Relaxed)),
            Kind::Other => {}
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.reserve(offset, length)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.0.try_lock()
    }
}

/// A node that a test drives.
pub struct Host {
    pub node: Solo<u64>,
    random: SplitMix,
    token: u64,
}

impl Host {
    pub fn open(data: &Path, disk: &CountingDisk) -> Self {
        let mut random = SplitMix::new(7);
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        // Small enough that most of what a test does has left the log when it ends.
        let (wal_segment_bytes, wal_bytes_max, checkpoint_bytes) = (16 << 20, 128 << 20, 2 << 20);
        let config = Config { wal_segment_bytes, wal_bytes_max, checkpoint_bytes, ..Config::new(data) };
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
        let create = Create {
            content_type: "application/octet-stream".to_owned(),
            closed: false,
            incarnation: None,
            new_incarnation: Incarnation::issue(&mut self.random),
            expiry: None,
            body: Bytes::from_static(body),
        };
        (path.to_owned(), Operation::Create(create))
    }

    pub fn append(path: &str, body: Bytes) -> (String, Operation) {
        let append = Append {
            incarnation: None,
            producer: None,
            body_fault: None,
            content_type: Some("application/octet-stream".to_owned()),
            stream_seq: None,
            close: false,
            body,
        };
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
