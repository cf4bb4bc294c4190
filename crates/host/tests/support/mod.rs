//! A server on a simulated disk, driven by hand.
#![allow(dead_code)]

use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Clock, Millis};
use highwater_disk::{Disk, SimDisk};
use highwater_host::{
    Action, Boot, Delivery, Host, NewAccount, OpenError, Options, Pending, RecordWrite, Seams, Subscription, Worker,
    WriteBatch, WriteRefused, Written,
};
use highwater_pds::AccountId;
use highwater_repo::data::{Decoder, Map, Value, encode};
use highwater_repo::key::Curve;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that is set.
#[derive(Debug)]
pub struct SetClock(pub AtomicU64);

impl SetClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_796_000_000_000)))
    }

    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn wall(&self) -> Millis {
        Millis(self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub const DATA: &str = "/data/pds";

pub fn options() -> Options {
    let mut options = Options::new(DATA, "pds.example");
    options.log.segment_bytes = 256 << 10;
    options.log.log_bytes_max = 16 << 20;
    options.store.file_bytes_max = 128 << 10;
    options
}

/// A server and what drives it.
pub struct Server {
    pub disk: SimDisk,
    pub clock: Arc<SetClock>,
    pub host: Host,
    pub worker: Worker,
    pub boot: Boot,
}

pub fn try_open(disk: &SimDisk, clock: &Arc<SetClock>, options: Options, seed: u64) -> Result<Server, OpenError> {
    let seams = Seams {
        disk: Arc::new(disk.clone()),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        random: Box::new(SplitMix::new(seed)),
        sealer: None,
    };
    let (host, worker, boot) = Host::open(options, seams)?;
    Ok(Server { disk: disk.clone(), clock: Arc::clone(clock), host, worker, boot })
}

pub fn new_account() -> NewAccount {
    NewAccount { handle: None, password_hash: None, curve: Curve::K256, activate: true }
}

/// A record with a text of its own.
pub fn record(text: &str) -> Bytes {
    let mut map = Map::new();
    map.insert("$type", Value::Text("app.example.note".into()));
    map.insert("text", Value::Text(text.into()));
    encode(&Value::Map(map)).into()
}

pub fn put(rkey: &str, text: &str) -> RecordWrite {
    write_of(Action::Put, rkey, Some(record(text)))
}

pub fn write_of(action: Action, rkey: &str, record: Option<Bytes>) -> RecordWrite {
    let collection = "app.example.note".to_owned();
    RecordWrite { action, collection, rkey: Some(rkey.into()), record, swap_record: None }
}

pub fn batch(writes: Vec<RecordWrite>) -> WriteBatch {
    WriteBatch { writes, swap_commit: None }
}

impl Server {
    pub fn new(seed: u64) -> Self {
        Self::with(&SimDisk::new(seed), &SetClock::new(), options())
    }

    pub fn with(disk: &SimDisk, clock: &Arc<SetClock>, options: Options) -> Self {
        let seed = disk.operations() + clock.wall().0;
        try_open(disk, clock, options, seed).expect("it opens")
    }

    /// Drives the writer until an answer is there.
    pub fn settle<T>(&mut self, mut pending: Pending<T>) -> T {
        for _ in 0..1_000 {
            if let Some(answer) = pending.try_take() {
                return answer;
            }
            self.worker.run_once();
        }
        panic!("no answer came");
    }

    pub fn account(&mut self) -> AccountId {
        let pending = self.host.create_account(new_account());
        self.settle(pending).expect("an account")
    }

    pub fn try_write(&mut self, account: AccountId, writes: Vec<RecordWrite>) -> Result<Written, WriteRefused> {
        let pending = self.host.write(account, batch(writes));
        self.settle(pending)
    }

    pub fn write(&mut self, account: AccountId, writes: Vec<RecordWrite>) -> Written {
        self.try_write(account, writes).expect("written")
    }

    pub fn put(&mut self, account: AccountId, rkey: &str, text: &str) -> Written {
        self.write(account, vec![put(rkey, text)])
    }

    /// Stops in order and starts again.
    pub fn restart(self) -> Self {
        let Self { disk, clock, worker, host, .. } = self;
        let options = host.options().clone();
        worker.stop().expect("stopped");
        Self::with(&disk, &clock, options)
    }

    /// Loses power and starts again.
    pub fn crash(self) -> Self {
        let Self { disk, clock, host, worker, .. } = self;
        let options = host.options().clone();
        drop((worker, host));
        disk.power_loss();
        Self::with(&disk, &clock, options)
    }

    /// Everything that is kept of the stream.
    pub fn frames(&self) -> Vec<Bytes> {
        drain(&mut self.host.subscribe(Some(0)).expect("subscribed"))
    }

    pub fn text(&self, account: AccountId, rkey: &str) -> Option<Bytes> {
        let found = self.host.record(account, &format!("app.example.note/{rkey}")).expect("read");
        found.map(|(_, record)| record)
    }
}

/// What a subscriber gets now.
pub fn drain(subscription: &mut Subscription) -> Vec<Bytes> {
    let mut all = Vec::new();
    while let Some(delivery) = subscription.take() {
        match delivery {
            Delivery::Frames(frames) => all.extend(frames),
            other => panic!("{other:?} after {} frames", all.len()),
        }
    }
    all
}

pub fn exists(disk: &SimDisk, path: &std::path::Path) -> bool {
    disk.exists(path).expect("looked")
}

/// A message, taken apart.
#[derive(Debug, Clone)]
pub struct Message {
    pub kind: String,
    pub body: Map,
}

impl Message {
    pub fn of(frame: &Bytes) -> Self {
        let mut input = Decoder::new(frame.clone());
        let (Ok(Value::Map(header)), Ok(Value::Map(body))) = (input.value(), input.value()) else {
            panic!("a message is two maps");
        };
        input.finish().expect("and nothing else");
        let kind = match header.get("t") {
            Some(Value::Text(kind)) => kind.clone(),
            other => panic!("{other:?}"),
        };
        Self { kind, body }
    }

    pub fn seq(&self) -> u64 {
        match self.body.get("seq") {
            Some(Value::Integer(seq)) => *seq as u64,
            other => panic!("{other:?}"),
        }
    }

    pub fn text(&self, name: &str) -> Option<String> {
        match self.body.get(name) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    /// Whose it is.
    pub fn did(&self) -> String {
        self.text("did").or_else(|| self.text("repo")).expect("an account")
    }
}

/// Numbers of messages, which must rise.
pub fn seqs(frames: &[Bytes]) -> Vec<u64> {
    let seqs: Vec<u64> = frames.iter().map(|frame| Message::of(frame).seq()).collect();
    assert!(seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
    seqs
}

/// `#commit`s of each account follow each other: each `since` is the revision before, and revisions rise.
pub fn check_chains(frames: &[Bytes]) {
    let mut newest = std::collections::BTreeMap::new();
    for message in frames.iter().map(Message::of) {
        let Some(rev) = message.text("rev") else { continue };
        let before = newest.insert(message.did(), rev.clone());
        assert!(before.as_ref() < Some(&rev), "{before:?}, then {rev}");
        // Of the first one that is kept nobody knows what was before it.
        if message.kind == "#commit" && before.is_some() {
            assert_eq!(message.text("since"), before, "frame {}", message.seq());
        }
    }
}
