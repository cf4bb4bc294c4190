//! The stream of a bound database: filled as its replicator fills it, and rebuilt as a restore rebuilds it.

use crate::bed::{path, stream};
use crate::script::Random;
use highwater_base::Offset;
use highwater_disk::{Disk, SimDisk};
use highwater_sqlite::batch::{BATCH_BYTES_MAX, Claim, HEADER_BYTES, Sink, StreamReader, encode_claim};
use highwater_sqlite::bind::Restoring;
use highwater_sqlite::engine::{Acknowledgement, ClaimWon, Engine, LogPosition, Seal};
use highwater_sqlite::replicator::batch_bytes;
use highwater_sqlite::replicator::machine::Sealed;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What a mirror has come across, so that a test can tell that it tested what it says.
#[derive(Debug, Default, Clone, Copy)]
pub struct Seen {
    /// Batches of the record that took the most.
    pub parts_max: u64,
    /// Records that were partly sent when an owner claimed.
    pub voided: u64,
    /// Bytes of the largest record.
    pub record_bytes_max: u64,
}

impl Seen {
    pub fn and(self, other: Self) -> Self {
        Self {
            parts_max: self.parts_max.max(other.parts_max),
            voided: self.voided + other.voided,
            record_bytes_max: self.record_bytes_max.max(other.record_bytes_max),
        }
    }
}

/// One database's stream.
pub struct Mirror {
    bytes: Vec<u8>,
    random: Random,
    parts: u64,
    pub seen: Seen,
}

impl Mirror {
    /// An empty stream.
    pub fn new(seed: u64) -> Self {
        Self { bytes: Vec::new(), random: Random::new(seed), parts: 0, seen: Seen::default() }
    }

    /// An owner takes the stream, and begins again with the record that was on its way.
    pub fn claim(&mut self, engine: &Engine) {
        let progress = engine.progress();
        let resume = engine.record_start(progress.acknowledged).expect("what is not acknowledged is in the log");
        let base_lsn = engine.lsn_below(resume).expect("in the log");
        let nonce = self.random.next().to_le_bytes().repeat(2).try_into().expect("16 bytes");
        let claim = Claim { epoch: progress.epoch + 1, nonce, lineage: engine.binding().lineage, base_lsn };
        self.bytes.extend(encode_claim(&claim));
        let stream_end = Offset(self.bytes.len() as u64);
        let won = ClaimWon { epoch: claim.epoch, stream_end, resume, next_seq: 1 };
        engine.save_epoch(won).expect("the claim is noted");
        self.seen.voided += u64::from(resume < progress.acknowledged);
        self.parts = 0;
    }

    /// Sends all that is confirmed.
    pub fn send_all(&mut self, engine: &Engine) {
        self.send(engine, engine.confirmed_end());
    }

    /// Sends up to anywhere, most likely inside a record.
    pub fn send_some(&mut self, engine: &Engine) {
        let acknowledged = engine.progress().acknowledged;
        let pending = engine.confirmed_end().since(acknowledged);
        let to = acknowledged.plus(self.random.below(pending + 1));
        self.send(engine, to);
    }

    /// Sends up to inside the last record.
    pub fn send_part_of_last(&mut self, engine: &Engine) {
        let end = engine.confirmed_end();
        // A log whose records were all sent and copied into the file may begin at its end.
        let Some(start) = engine.record_start(LogPosition(end.0 - 1)) else { return };
        let to = start.plus(1 + self.random.below(end.since(start) - 1));
        if to > engine.progress().acknowledged {
            self.send(engine, to);
        }
    }

    fn send(&mut self, engine: &Engine, to: LogPosition) {
        loop {
            let progress = engine.progress();
            let from = progress.acknowledged;
            if from >= to {
                return;
            }
            let most = match self.random.below(4) {
                0 => 64,
                1 => 4 << 10,
                2 => 256 << 10,
                _ => BATCH_BYTES_MAX - HEADER_BYTES as u64,
            };
            let upto = from.plus((1 + self.random.below(most)).min(to.since(from)));
            let (epoch, seq, stream_offset) = (progress.epoch, progress.next_seq, progress.stream_end);
            assert_eq!(stream_offset.0, self.bytes.len() as u64, "the database knows where its stream ends");
            let sealed = Sealed { epoch, seq, from, to: upto, stream_offset, digest: None };
            let read = |from, length, into: &mut Vec<u8>| engine.read_log(from, length, into);
            let (body, digest) = batch_bytes(&sealed, engine, read).expect("what is confirmed can be sent");
            let incarnation = engine.binding().incarnation;
            engine.save_seal(Seal { incarnation, epoch, seq, from, to: upto, digest, stream_offset }).expect("seal");
            self.bytes.extend(&body);
            self.count(engine, from, upto);
            let stream_end = Offset(self.bytes.len() as u64);
            let acknowledged = Acknowledgement { upto, stream_end, next_seq: seq + 1 };
            engine.save_acknowledged(acknowledged).expect("acknowledge");
        }
    }

    fn count(&mut self, engine: &Engine, from: LogPosition, to: LogPosition) {
        let (first, last) = (engine.record_start(from), engine.record_start(LogPosition(to.0 - 1)));
        self.parts = if first == last { self.parts + 1 } else { 1 };
        self.seen.parts_max = self.seen.parts_max.max(self.parts);
        let start = last.expect("just sent");
        let end = engine.lsn_below(start).and_then(|lsn| engine.record_end(lsn + 1)).expect("just sent");
        self.seen.record_bytes_max = self.seen.record_bytes_max.max(end.since(start));
    }

    /// Rebuilds the database from the stream, as it arrives in any pieces; its last commit and its bytes.
    pub fn restore(&mut self) -> (u64, Vec<u8>) {
        let memory = SimDisk::new(self.random.next());
        memory.create_directory(Path::new("/sim")).expect("a directory");
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let path = path("restored.db");
        let mut target = Target(Restoring::begin(&disk, &path).expect("nothing is there"));
        let mut reader = StreamReader::new();
        let mut rest = self.bytes.as_slice();
        while !rest.is_empty() {
            let most = [100, 10_000, 1 << 20][self.random.below(3) as usize];
            let (piece, later) = rest.split_at((1 + self.random.below(most)).min(rest.len() as u64) as usize);
            reader.push(piece, &mut target).expect("a stream of ours");
            rest = later;
        }
        assert_eq!(reader.next(), reader.offset(), "it ends with a whole batch");
        assert_eq!(reader.lsn(), target.0.lsn());
        target.0.finish(&stream()).expect("a database");
        let file = memory.files().into_iter().find(|(name, _)| *name == path);
        (reader.lsn(), file.expect("it lies at its path").1)
    }
}

struct Target(Restoring);

impl Sink for Target {
    fn record_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.push(bytes)
    }

    fn void(&mut self) {
        self.0.void();
    }

    fn committed(&mut self, _lsn: u64) -> io::Result<()> {
        Ok(())
    }
}
