//! A server and a relay in virtual time, with a socket between them that holds only so much.

use crate::stream::{TIME, did, error, info};
use bytes::Bytes;
use highwater_base::Millis;
use highwater_consumer::frame::Position;
use highwater_consumer::relay::{Input, Output, Relay, Verdict};
use highwater_repo::data::Encoder;
use highwater_repo::syntax::Did;
use highwater_repo::{Cid, Codec, Commit, Tid, car};
use std::collections::{BTreeMap, VecDeque};

/// Bytes that lie between two programs at the most.
const SOCKET_BYTES: usize = 64 << 10;
/// Live messages that may wait for a reader.
const LIVE_MAX: usize = 4_096;
/// Milliseconds without progress after which the server closes.
const WRITE_MS_MAX: u64 = 120_000;

/// What is on its way.
enum Item {
    Message(Bytes),
    Pong,
    End,
}

struct Socket {
    way: VecDeque<Item>,
    bytes: usize,
    /// The number behind which the server has not written yet; `None` if it will write nothing more.
    written: Option<u64>,
    /// When something was read last.
    progress: u64,
    /// Messages that were published since the reader had come to the end of what there was.
    live: Option<usize>,
}

/// A server with its stream, and a relay.
pub struct Network {
    pub now: u64,
    pub relay: Relay,
    /// The window, by number.
    pub window: BTreeMap<u64, Bytes>,
    /// The highest number that may have been handed out.
    pub ceiling: u64,
    /// Above which numbers a gap lies, and below which.
    pub gap: Option<(u64, u64)>,
    pub positions: BTreeMap<Did, Position>,
    /// Whether a dial leads anywhere.
    pub reachable: bool,
    /// Whether the server answers pings.
    pub pongs: bool,
    socket: Option<Socket>,
    pub outputs: Vec<(u64, Output)>,
    pub too_slow: usize,
    pub timeouts: usize,
}

impl Network {
    pub fn new(relay: Relay, now: Millis) -> Self {
        Self {
            now: now.0,
            relay,
            window: BTreeMap::new(),
            ceiling: 0,
            gap: None,
            positions: BTreeMap::new(),
            reachable: true,
            pongs: true,
            socket: None,
            outputs: Vec::new(),
            too_slow: 0,
            timeouts: 0,
        }
    }

    /// Publishes a message with the next number.
    pub fn publish(&mut self, encode: impl FnOnce(u64) -> Bytes) -> u64 {
        self.ceiling += 1;
        self.window.insert(self.ceiling, encode(self.ceiling));
        if let Some(socket) = &mut self.socket {
            socket.live = socket.live.map(|live| live + 1);
            if socket.live.is_some_and(|live| live > LIVE_MAX) {
                self.too_slow += 1;
                (socket.written, socket.live) = (None, None);
                socket.way.extend([Item::Message(error("ConsumerTooSlow")), Item::End]);
            }
        }
        self.ceiling
    }

    /// What a restored server does before anybody connects.
    pub fn restore(&mut self, dids: &[Did], rev: Tid) {
        let before = self.ceiling;
        self.window.clear();
        self.ceiling += 1_000_000_000_000;
        self.gap = Some((before, self.ceiling));
        for did in dids {
            self.publish(|sequence| account(did, sequence, Position::ACTIVE));
            self.publish(|sequence| sync(did, sequence, rev));
            self.positions.insert(did.clone(), Position::ACTIVE);
        }
    }

    pub fn crawl(&mut self) {
        self.input(Input::RequestCrawl);
    }

    /// The process of the server ends: whoever is connected sees the end.
    pub fn disconnect(&mut self) {
        if let Some(socket) = &mut self.socket {
            socket.written = None;
            socket.way.push_back(Item::End);
        }
    }

    pub fn input(&mut self, input: Input) {
        let outputs = self.relay.step(Millis(self.now), input);
        for output in outputs {
            self.outputs.push((self.now, output.clone()));
            match output {
                Output::DescribeServer => self.input(Input::Described(self.reachable)),
                Output::Dial { cursor } => {
                    if self.reachable {
                        self.connect(cursor);
                    }
                    self.input(Input::Dialed(self.reachable));
                }
                Output::Ping if self.pongs => {
                    self.socket.iter_mut().for_each(|socket| socket.way.push_back(Item::Pong))
                }
                Output::Close => self.socket = None,
                Output::GetRepoStatus { did } => {
                    let position = self.positions.get(&did).copied();
                    self.input(Input::RepoStatus { did, position });
                }
                Output::Ping | Output::Processed { .. } | Output::Host(_) => {}
            }
        }
    }

    fn connect(&mut self, cursor: Option<u64>) {
        let newest = self.window.keys().next_back().copied().unwrap_or_default();
        let outdated = cursor.is_some_and(|cursor| self.gap.is_some_and(|(low, high)| low <= cursor && cursor < high));
        let mut socket = Socket {
            way: VecDeque::new(),
            bytes: 0,
            written: Some(cursor.unwrap_or(newest)),
            progress: self.now,
            live: None,
        };
        if cursor > Some(self.ceiling) {
            socket.written = None;
            socket.way.extend([Item::Message(error("FutureCursor")), Item::End]);
        } else if outdated {
            socket.way.push_back(Item::Message(info()));
        }
        self.socket = Some(socket);
    }

    /// Writes what there is room for, and brings what the relay would read.
    fn transfer(&mut self) {
        loop {
            let Some(socket) = &mut self.socket else { return };
            while let Some(written) = socket.written.filter(|_| socket.bytes < SOCKET_BYTES) {
                let Some((sequence, message)) = self.window.range(written + 1..).next() else {
                    socket.live = Some(0);
                    break;
                };
                socket.written = Some(*sequence);
                socket.live = socket.live.map(|live| live.saturating_sub(1));
                socket.bytes += message.len();
                socket.way.push_back(Item::Message(message.clone()));
            }
            if !self.relay.reads() {
                return;
            }
            let Some(item) = socket.way.pop_front() else { return };
            socket.progress = self.now;
            let input = match item {
                Item::Message(message) => {
                    socket.bytes = socket.bytes.saturating_sub(message.len());
                    Input::Message(message)
                }
                Item::Pong => Input::Pong,
                Item::End => Input::Closed,
            };
            self.input(input);
        }
    }

    /// Lets time pass up to a moment.
    pub fn run_until(&mut self, end: u64) {
        loop {
            self.transfer();
            let stalled =
                self.socket.as_ref().filter(|socket| socket.written.is_some() && socket.bytes >= SOCKET_BYTES);
            let timeout = stalled.map_or(u64::MAX, |socket| socket.progress + WRITE_MS_MAX);
            let due = self.relay.due().map_or(u64::MAX, |due| due.0).min(timeout);
            if due > end {
                self.now = end;
                return self.input(Input::Tick);
            }
            self.now = self.now.max(due);
            if timeout <= self.now {
                self.timeouts += 1;
                self.disconnect();
            }
            self.input(Input::Tick);
        }
    }

    pub fn run(&mut self, ms: u64) {
        self.run_until(self.now + ms);
    }

    pub fn dials(&self) -> Vec<Option<u64>> {
        let dials = self.outputs.iter().filter_map(|(_, output)| match output {
            Output::Dial { cursor } => Some(*cursor),
            _ => None,
        });
        dials.collect()
    }

    pub fn verdicts(&self) -> Vec<(u64, Verdict)> {
        let verdicts = self.outputs.iter().filter_map(|(_, output)| match output {
            Output::Processed { sequence, verdict, .. } => Some((*sequence, *verdict)),
            _ => None,
        });
        verdicts.collect()
    }
}

pub fn dids(count: usize) -> Vec<Did> {
    (0..count).map(|number| did(&format!("bot-{number:05}"))).collect()
}

pub fn account(who: &Did, sequence: u64, position: Position) -> Bytes {
    let mut out = Encoder::with_capacity(128);
    out.map(2).text("t").text("#account").text("op").integer(1);
    out.map(if position.status().is_some() { 5 } else { 4 }).text("did").text(who.as_str());
    out.text("seq").integer(sequence as i64).text("time").text(TIME).text("active").bool(position.is_active());
    if let Some(status) = position.status() {
        out.text("status").text(status.as_str());
    }
    out.into_vec().into()
}

/// A `#sync` that nobody signed: the relay of the model does not look at signatures.
pub fn sync(who: &Did, sequence: u64, rev: Tid) -> Bytes {
    let data = Cid::of(Codec::DagCbor, who.as_str().as_bytes());
    let commit = Commit { did: who.clone(), rev, data, previous: None, signature: vec![0; 64].into() };
    let (cid, block) = commit.block();
    let mut out = Encoder::with_capacity(512);
    out.map(2).text("t").text("#sync").text("op").integer(1).map(5).text("did").text(who.as_str());
    out.text("rev").text(&rev.to_string()).text("seq").integer(sequence as i64).text("time").text(TIME);
    out.text("blocks").bytes(&car::archive(&cid, [(&cid, &block)]));
    out.into_vec().into()
}
