//! A log of real records in memory, and a server that keeps one stream and the key table of its one producer.

use crate::batch::{Batch, Body, Sink, Splitter, StreamReader};
use crate::engine::LogPosition;
use crate::record::{Encoder, Header};
use crate::replicator::machine::LogView;
use highwater_base::{Digest, Incarnation, Offset, Random};
use highwater_client::headers::Headers;
use highwater_client::{Answer, Head, HeadAnswer, Identity, Outcome, Piece, Refusal, WriteKind, Written, classify};
use std::io;

pub(in crate::replicator) const INCARNATION: u64 = 4_503_599_627_370_497;
pub(in crate::replicator) const CLUSTER: &str = "model";

pub(in crate::replicator) fn incarnation() -> Incarnation {
    Incarnation::new(INCARNATION).expect("a token")
}

/// A commit log whose records are real ones, of one or of very many pages.
#[derive(Debug, Clone, Default)]
pub(in crate::replicator) struct ModelLog {
    pub(in crate::replicator) bytes: Vec<u8>,
    /// Where each record ends.
    ends: Vec<u64>,
    /// The last commit before the first record.
    base_lsn: u64,
}

impl ModelLog {
    pub(in crate::replicator) fn after(base_lsn: u64) -> Self {
        Self { base_lsn, ..Self::default() }
    }

    /// Logs a commit of `pages` pages that do not compress; answers its number.
    pub(in crate::replicator) fn commit(&mut self, pages: u32, random: &mut dyn Random) -> u64 {
        let lsn = self.last_lsn() + 1;
        let mut encoder = Encoder::take().expect("an encoder");
        let mut sink = |part: &[u8]| {
            self.bytes.extend_from_slice(part);
            Ok(())
        };
        encoder.begin(Header { lsn, synced: 0, page_size: 512, pages_after: pages, page_count: pages });
        for number in 1..=pages {
            let mut fill = |page: &mut [u8]| {
                page.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next_u64().to_le_bytes()));
                Ok(())
            };
            encoder.page(number, &mut fill, &mut sink).expect("a page");
        }
        encoder.finish(lsn, &mut sink).expect("a record");
        encoder.give_back();
        self.ends.push(self.bytes.len() as u64);
        lsn
    }

    pub(in crate::replicator) fn last_lsn(&self) -> u64 {
        self.base_lsn + self.ends.len() as u64
    }

    /// Cuts the log back to its first `records` records.
    pub(in crate::replicator) fn cut(&mut self, records: usize) {
        self.ends.truncate(records);
        self.bytes.truncate(self.ends.last().map_or(0, |&end| end as usize));
    }

    pub(in crate::replicator) fn records(&self) -> usize {
        self.ends.len()
    }

    pub(in crate::replicator) fn record(&self, lsn: u64) -> &[u8] {
        let index = (lsn - self.base_lsn - 1) as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[index] as usize]
    }

    pub(in crate::replicator) fn read(&self, from: LogPosition, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let from = from.0 as usize;
        let range = self.bytes.get(from..from + length).ok_or(io::ErrorKind::InvalidInput)?;
        into.extend_from_slice(range);
        Ok(())
    }
}

impl LogView for ModelLog {
    fn confirmed_end(&self) -> LogPosition {
        LogPosition(self.bytes.len() as u64)
    }

    fn record_start(&self, position: LogPosition) -> Option<LogPosition> {
        Some(LogPosition(self.ends.iter().rev().find(|&&end| end <= position.0).copied().unwrap_or(0)))
    }

    fn lsn_below(&self, position: LogPosition) -> Option<u64> {
        Some(self.base_lsn + self.ends.iter().filter(|&&end| end <= position.0).count() as u64)
    }
}

#[derive(Debug, Clone)]
struct Producer {
    epoch: u64,
    seq: u64,
    claim: Digest,
    newest: (Digest, u64, u64),
    closed: Option<(u64, u64)>,
}

/// The server of one stream.
#[derive(Debug, Clone, Default)]
pub(in crate::replicator) struct Server {
    pub(in crate::replicator) bytes: Vec<u8>,
    producer: Option<Producer>,
    floor: u64,
    pub(in crate::replicator) applied: u64,
    pub(in crate::replicator) reads: u64,
    pub(in crate::replicator) heads: u64,
}

/// An answer as it travels.
#[derive(Debug, Clone)]
pub(in crate::replicator) struct Raw(
    pub(in crate::replicator) u16,
    pub(in crate::replicator) Vec<(&'static str, String)>,
    pub(in crate::replicator) &'static str,
);

impl Raw {
    pub(in crate::replicator) fn plain(status: u16, code: &'static str) -> Self {
        Self(status, Vec::new(), code)
    }

    pub(in crate::replicator) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.1.push((name, value.to_string()));
        self
    }

    /// As the client reads it.
    pub(in crate::replicator) fn written(&self) -> Answer<Written> {
        if self.0 == 0 {
            return Answer::none("no answer".to_owned());
        }
        let headers = Headers::new(self.1.iter().map(|(name, value)| (*name, value.as_bytes())));
        classify(WriteKind::Keyed, self.0, &headers, &self.body())
    }

    pub(in crate::replicator) fn body(&self) -> Vec<u8> {
        match self.2 {
            "" => Vec::new(),
            code => format!(r#"{{"error":{{"code":"{code}"}}}}"#).into_bytes(),
        }
    }

    /// As the client reads it, for a request whose success it is not.
    pub(in crate::replicator) fn answer<T>(&self) -> Answer<T> {
        let written = self.written();
        let outcome = match written.outcome {
            Outcome::Refused(refusal) => Outcome::Refused(refusal),
            Outcome::Redirected => Outcome::Redirected,
            Outcome::Done(_) | Outcome::Unknown => Outcome::Unknown,
        };
        let Answer { status, code, message, retry_after_ms, .. } = written;
        Answer { outcome, status, code, message, retry_after_ms }
    }
}

impl Server {
    pub(in crate::replicator) fn head(&mut self) -> HeadAnswer {
        self.heads += 1;
        let head = Head {
            incarnation: incarnation(),
            next: Offset(self.bytes.len() as u64),
            retained: Offset(0),
            closed: false,
            content_type: crate::batch::CONTENT_TYPE.to_owned(),
            previous: None,
            expiry: None,
            request_bytes_max: Some(32 << 20),
        };
        HeadAnswer { identity: Some(Identity { protocol: 11, cluster_id: CLUSTER.to_owned() }), answer: done(head) }
    }

    pub(in crate::replicator) fn read(&mut self, at: Offset, bytes_max: u64) -> Answer<Piece> {
        self.reads += 1;
        let (from, end) = (at.0 as usize, self.bytes.len());
        if from > end {
            let refusal = Refusal {
                status: 416,
                code: "OFFSET_OUT_OF_RANGE".to_owned(),
                producer: None,
                incarnation: Some(incarnation()),
                next: Some(Offset(end as u64)),
                request_bytes_max: None,
            };
            return Answer { outcome: Outcome::Refused(refusal), ..Answer::none(String::new()) };
        }
        let to = end.min(from + bytes_max as usize);
        done(Piece {
            body: self.bytes[from..to].to_vec().into(),
            content_type: crate::batch::CONTENT_TYPE.to_owned(),
            next: Offset(to as u64),
            incarnation: incarnation(),
            up_to_date: to == end,
            closed: false,
        })
    }

    /// A keyed write with a token, by the key table.
    pub(in crate::replicator) fn append(&mut self, epoch: u64, seq: u64, body: &[u8]) -> Raw {
        let digest = Digest::of(body);
        let Some(producer) = self.producer.clone() else {
            return match seq {
                _ if epoch <= self.floor => {
                    let raw = Raw::plain(403, "PRODUCER_EXPIRED").with("producer-epoch", self.floor);
                    raw.with("producer-outcome", "producer-expired")
                }
                0 => self.apply(epoch, 0, digest, digest, None, body),
                _ => gap(0, seq),
            };
        };
        let stale = |code, outcome: &str| {
            Raw::plain(403, code).with("producer-epoch", producer.epoch).with("producer-outcome", outcome)
        };
        match producer.closed {
            Some((closed, last)) if epoch == closed => {
                return stale("PRODUCER_EPOCH_CLOSED", "epoch-closed;by=claim")
                    .with("producer-closed-epoch", closed)
                    .with("producer-closed-seq", last);
            }
            _ if epoch < producer.epoch => return stale("PRODUCER_EPOCH_STALE", "stale-epoch"),
            _ if epoch > producer.epoch && seq == 0 => {
                return self.apply(epoch, 0, digest, digest, Some((producer.epoch, producer.seq)), body);
            }
            _ if epoch > producer.epoch => {
                return Raw::plain(400, "INVALID_PRODUCER").with("producer-expected-seq", 0);
            }
            _ => {}
        }
        let other_bytes =
            (seq == 0 && digest != producer.claim) || (seq == producer.seq && digest != producer.newest.0);
        if other_bytes {
            return stale("PRODUCER_KEY_CONFLICT", "key-conflict");
        }
        if seq == producer.seq {
            return self.receipt(204, producer.newest.1, producer.newest.2);
        }
        if seq < producer.seq {
            return self.progress(204).with("producer-outcome", "receipt-evicted");
        }
        if seq > producer.seq + 1 {
            return gap(producer.seq + 1, seq);
        }
        self.apply(epoch, seq, producer.claim, digest, producer.closed, body)
    }

    fn apply(
        &mut self,
        epoch: u64,
        seq: u64,
        claim: Digest,
        digest: Digest,
        closed: Option<(u64, u64)>,
        body: &[u8],
    ) -> Raw {
        let start = self.bytes.len() as u64;
        self.bytes.extend_from_slice(body);
        let end = self.bytes.len() as u64;
        self.applied += 1;
        self.producer = Some(Producer { epoch, seq, claim, newest: (digest, start, end), closed });
        self.receipt(200, start, end)
    }

    fn progress(&self, status: u16) -> Raw {
        let producer = self.producer.as_ref().expect("an applied write");
        let raw = Raw::plain(status, "")
            .with("producer-epoch", producer.epoch)
            .with("producer-seq", producer.seq)
            .with("stream-incarnation", INCARNATION);
        match producer.closed {
            Some((epoch, seq)) if producer.seq == 0 => {
                raw.with("producer-closed-epoch", epoch).with("producer-closed-seq", seq)
            }
            _ => raw,
        }
    }

    fn receipt(&self, status: u16, start: u64, end: u64) -> Raw {
        self.progress(status).with("stream-offset", Offset(start)).with("stream-next-offset", Offset(end))
    }

    /// Where the newest write begins.
    pub(in crate::replicator) fn last_start(&self) -> usize {
        self.producer.as_ref().map_or(0, |producer| producer.newest.1 as usize)
    }

    /// Forgets the producer, as after a week of silence.
    pub(in crate::replicator) fn forget(&mut self) {
        if let Some(producer) = self.producer.take() {
            self.floor = self.floor.max(producer.epoch);
        }
    }

    /// The whole commits that the stream holds, in order, as the format's own reader finds them.
    pub(in crate::replicator) fn commits(&self) -> (StreamReader, Vec<Vec<u8>>) {
        let (mut reader, mut commits) = (StreamReader::new(), Commits::default());
        let read = reader.push(&self.bytes, &mut commits);
        assert!(read.is_ok(), "the stream breaks its format at {}: {read:?}", reader.offset());
        (reader, commits.whole)
    }

    /// The lineage of the last claim at or behind `from`, if there is one.
    pub(in crate::replicator) fn claimed_behind(&self, from: Offset) -> Option<[u8; 16]> {
        let (mut splitter, mut rest, mut found) = (Splitter::at(0), self.bytes.as_slice(), None);
        loop {
            let at = splitter.offset();
            match splitter.next(&mut rest) {
                Ok(Some(Batch { body: Body::Claim(claim), .. })) if at >= from.0 => found = Some(claim.lineage),
                Ok(Some(_)) => {}
                _ => return found,
            }
        }
    }
}

fn gap(expected: u64, received: u64) -> Raw {
    Raw::plain(409, "PRODUCER_SEQ_CONFLICT")
        .with("producer-expected-seq", expected)
        .with("producer-received-seq", received)
}

pub(in crate::replicator) fn done<T>(value: T) -> Answer<T> {
    Answer {
        outcome: Outcome::Done(value),
        status: 200,
        code: String::new(),
        message: String::new(),
        retry_after_ms: None,
    }
}

#[derive(Default)]
struct Commits {
    partial: Vec<u8>,
    whole: Vec<Vec<u8>>,
}

impl Sink for Commits {
    fn record_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn void(&mut self) {
        self.partial.clear();
    }

    fn committed(&mut self, lsn: u64) -> io::Result<()> {
        self.whole.push(std::mem::take(&mut self.partial));
        assert_eq!(lsn, self.whole.len() as u64);
        Ok(())
    }
}
