//! A node without threads on a simulated disk, and short words for what is asked of it.

use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Incarnation, Millis, Offset};
use highwater_disk::{Disk, SimDisk};
use highwater_node::config::Config;
use highwater_node::shard::{Answer, Input, Proposal};
use highwater_node::solo::Solo;
use highwater_node::{OpenError, ReadAnswer, ReadRequest, Unavailable, WriteAnswer};
use highwater_stream::{Append, Create, Head, Operation, Outcome, ProducerKey, ReadFrom, Receipt, Refusal};
use std::collections::BTreeMap;
use std::sync::Arc;

pub type Written = Result<WriteAnswer, Unavailable>;
pub type Read = Result<Result<ReadAnswer, Refusal>, Unavailable>;

/// A machine with a disk, and a node on it while it runs.
pub struct Host {
    pub disk: SimDisk,
    pub config: Config,
    pub node: Option<Solo<u64>>,
    random: SplitMix,
    token: u64,
    at: u64,
    /// Answers that nobody has asked for yet.
    answers: BTreeMap<u64, Answer>,
}

pub fn config() -> Config {
    Config {
        groups: 2,
        wal_segment_bytes: 128 << 10,
        wal_bytes_max: 2 << 20,
        checkpoint_bytes: 48 << 10,
        live_reads_max: 4,
        ..Config::new("/data")
    }
}

/// The same with no room for streams in memory: whatever may leave it does, and every checkpoint writes a new base.
pub fn config_cold() -> Config {
    Config { hot_metadata_bytes: 0, ..config() }
}

impl Host {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, config())
    }

    pub fn with(seed: u64, config: Config) -> Self {
        let random = SplitMix::new(seed);
        Self { disk: SimDisk::new(seed), config, node: None, random, token: 0, at: 1_000_000, answers: BTreeMap::new() }
    }

    /// A host whose node serves.
    pub fn serving(seed: u64) -> Self {
        let mut host = Self::new(seed);
        host.open().expect("an empty disk is initialised");
        host
    }

    /// A host on a disk that was used before.
    pub fn on(disk: SimDisk, seed: u64) -> Self {
        Self { disk, ..Self::new(seed) }
    }

    /// The wall clock.
    pub fn wall(&self) -> Millis {
        Millis(self.at)
    }

    /// Lets time pass while nothing runs.
    pub fn skip(&mut self, milliseconds: u64) {
        self.at += milliseconds;
    }

    pub fn open(&mut self) -> Result<(), OpenError> {
        self.open_unsynced()?;
        self.node().sync();
        Ok(())
    }

    /// Opens the directory and leaves what waits for the log waiting.
    pub fn open_unsynced(&mut self) -> Result<(), OpenError> {
        self.node = None;
        self.answers.clear();
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let node = Solo::open_at(&self.config, &disk, &mut self.random, Millis(self.at))?;
        self.node = Some(node);
        Ok(())
    }

    /// The process dies; what was written stays.
    pub fn kill(&mut self) {
        self.node = None;
        self.disk.crash_process();
    }

    /// The power fails; what was not synced may be gone.
    pub fn power_off(&mut self) {
        self.node = None;
        self.disk.power_loss();
    }

    pub fn node(&mut self) -> &mut Solo<u64> {
        self.node.as_mut().expect("the node runs")
    }

    pub fn token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    pub fn issue(&mut self) -> Incarnation {
        Incarnation::issue(&mut self.random)
    }

    pub fn proposal(&mut self, path: &str, operation: Operation) -> (u64, Input<u64>) {
        self.at += 1;
        let token = self.token();
        (token, Input::Write { token, proposal: Proposal::new(Millis(self.at), path.to_owned(), operation) })
    }

    /// Gives one input and lets everything it leads to happen; the answer, if there is one by then.
    pub fn ask(&mut self, token: u64, input: Input<u64>) -> Option<Answer> {
        let at = Millis(self.at);
        let node = self.node();
        node.set_wall(at);
        node.turn([input]);
        node.sync();
        self.answer(token)
    }

    /// Lets time pass, and everything happen that it leads to.
    pub fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 100 {
            let at = Millis(self.at);
            let node = self.node();
            node.set_wall(at);
            node.pass(100);
            node.sync();
            self.at += 100;
        }
    }

    pub fn answer(&mut self, token: u64) -> Option<Answer> {
        let answers = self.node().answers();
        self.answers.extend(answers);
        self.answers.remove(&token)
    }

    pub fn try_write(&mut self, path: &str, operation: Operation) -> Option<Written> {
        let (token, input) = self.proposal(path, operation);
        match self.ask(token, input)? {
            Answer::Write(answer) => Some(answer),
            other => panic!("a write was answered with {other:?}"),
        }
    }

    pub fn write(&mut self, path: &str, operation: Operation) -> Written {
        self.try_write(path, operation).expect("a write is answered once it is synced")
    }

    pub fn done(&mut self, path: &str, operation: Operation) -> Outcome {
        self.write(path, operation).expect("the node serves").result.expect("the machine takes it")
    }

    pub fn create(&mut self, path: &str) -> Incarnation {
        let new_incarnation = self.issue();
        match self.done(path, create(new_incarnation, b"")) {
            Outcome::Created(created) => created.incarnation,
            other => panic!("{path} was there: {other:?}"),
        }
    }

    /// Changes keys, accounts or plans.
    pub fn control(
        &mut self,
        operation: highwater_control::Operation,
    ) -> Result<highwater_node::ControlAnswer, Unavailable> {
        let token = self.token();
        let proposal = Proposal::control(Millis(self.at), operation);
        match self.ask(token, Input::Write { token, proposal }) {
            Some(Answer::Control(answer)) => answer,
            other => panic!("a change was answered with {other:?}"),
        }
    }

    pub fn append(&mut self, path: &str, body: &[u8]) -> (Offset, Offset) {
        match self.done(path, append(body)) {
            Outcome::Appended { start, next, .. } => (start, next),
            other => panic!("an append was answered with {other:?}"),
        }
    }

    pub fn read_request(path: &str, from: ReadFrom) -> ReadRequest {
        ReadRequest {
            path: path.to_owned(),
            incarnation: None,
            from,
            length_max: u64::MAX,
            leader: true,
            wait_ms: None,
        }
    }

    /// Asks for a read; `None` if it waits.
    pub fn try_read(&mut self, request: ReadRequest) -> Option<Read> {
        let token = self.token();
        let answer = self.ask(token, Input::Read { token, request })?;
        Some(self.fetch(answer))
    }

    pub fn fetch(&mut self, answer: Answer) -> Read {
        let Answer::Read(located) = answer else { panic!("a read was answered with {answer:?}") };
        located.map(|located| located.map(|located| self.node().fetch(located).expect("its bytes are there")))
    }

    /// All bytes of a stream, read in as many requests as it takes; `None` if there is no such stream.
    pub fn content(&mut self, path: &str) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let from = ReadFrom::At(Offset(content.len() as u64));
            match self.try_read(Self::read_request(path, from)).expect("answered").expect("the node serves") {
                Ok(answer) => {
                    assert_eq!(answer.start, Offset(content.len() as u64));
                    content.extend_from_slice(&answer.body);
                    assert_eq!(answer.next, Offset(content.len() as u64));
                    if answer.up_to_date {
                        return Some(content);
                    }
                    assert!(!answer.body.is_empty(), "a read below the tail got nothing");
                }
                Err(Refusal::StreamNotFound) => return None,
                Err(other) => panic!("{path} cannot be read: {other:?}"),
            }
        }
    }

    pub fn head(&mut self, path: &str) -> Result<Head, Refusal> {
        let token = self.token();
        match self.ask(token, Input::Head { token, path: path.to_owned(), at: Millis(self.at) }) {
            Some(Answer::Head(answer)) => answer.expect("the node serves"),
            other => panic!("a head was answered with {other:?}"),
        }
    }
}

pub fn create(new_incarnation: Incarnation, body: &[u8]) -> Operation {
    Operation::Create(Create {
        content_type: "application/octet-stream".to_owned(),
        closed: false,
        incarnation: None,
        new_incarnation,
        expiry: None,
        body: Bytes::copy_from_slice(body),
    })
}

pub fn append(body: &[u8]) -> Operation {
    keyed(None, body, false)
}

/// A keyed append with its digest, or a keyless one.
pub fn keyed(key: Option<(&str, u64, u64)>, body: &[u8], close: bool) -> Operation {
    let producer =
        key.map(|(id, epoch, seq)| ProducerKey { id: id.to_owned(), epoch, seq, digest: Some(Digest::of(body)) });
    Operation::Append(Append {
        incarnation: None,
        producer,
        body_fault: None,
        content_type: Some("application/octet-stream".to_owned()),
        stream_seq: None,
        close,
        body: Bytes::copy_from_slice(body),
    })
}

pub fn delete() -> Operation {
    Operation::Delete { incarnation: None }
}

/// The receipt of a keyed write, and whether it was a repeat.
pub fn receipt(outcome: &Outcome) -> Option<(Receipt, bool)> {
    match outcome {
        Outcome::Applied(receipt) => Some((receipt.clone(), false)),
        Outcome::Repeated(receipt) => Some((receipt.clone(), true)),
        _ => None,
    }
}
