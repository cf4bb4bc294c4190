//! The network's relay, in virtual time, reading what a restored server really sends.

use bytes::Bytes;
use highwater_base::Millis;
use highwater_consumer::Frame;
use highwater_consumer::relay::{HostStatus, Input, Output, Relay};
use highwater_host::{Action, CursorRefused, Delivery, NewAccount, RecordWrite, Subscription, WriteBatch, files};
use highwater_pds::lifecycle::Announce;
use highwater_pds::{AccountId, restore};
use highwater_repo::data::{Map, Value, encode};
use highwater_repo::key::Curve;
use highwater_repo::syntax::Did;
use highwater_sim::pds::server::Server;
use highwater_sim::pds::starts::told;
use highwater_sim::pds::swarm::{EVENTS_BYTES_UNBOUND, Swarm};
use std::collections::{BTreeSet, VecDeque};

const MINUTE_MS: u64 = 60_000;
/// Bytes that lie between two programs at the most.
const SOCKET_BYTES: usize = 64 << 10;
/// Milliseconds without progress after which the server closes.
const WRITE_MS_MAX: u64 = 120_000;

enum Item {
    Message(Bytes),
    Pong,
    End,
}

struct Socket {
    subscription: Option<Subscription>,
    /// What the server would write next.
    ready: VecDeque<Bytes>,
    way: VecDeque<Item>,
    bytes: usize,
    progress: u64,
}

/// A server, a relay, and a socket between them.
struct Wire {
    server: Server,
    relay: Relay,
    socket: Option<Socket>,
    dials: Vec<Option<u64>>,
    processed: BTreeSet<u64>,
    outdated: u64,
    too_slow: u64,
    statuses: Vec<HostStatus>,
}

fn write(server: &mut Server, id: AccountId, text: &str) {
    let mut map = Map::new();
    map.insert("$type", Value::Text("app.example.note".into()));
    map.insert("text", Value::Text(text.into()));
    let record = Some(encode(&Value::Map(map)).into());
    let (collection, rkey) = ("app.example.note".to_owned(), Some("one".to_owned()));
    let write = RecordWrite { action: Action::Put, collection, rkey, record, swap_record: None };
    let host = server.host().expect("it runs").clone();
    let mut pending = host.write(id, WriteBatch { writes: vec![write], swap_commit: None });
    server.pump();
    pending.try_take().expect("an answer").expect("written");
}

fn seq(server: &Server) -> u64 {
    server.host().expect("it runs").status().seq
}

/// A server that gives up nothing: what a relay needs hours for is read from the window of three days.
fn kept() -> Swarm {
    Swarm {
        log_segments: 512,
        checkpoint_bytes: 1 << 20,
        retention_seconds: 72 * 3_600,
        events_bytes_max: EVENTS_BYTES_UNBOUND,
        announce: Announce::OnActivation,
        ..Swarm::draw(2)
    }
}

/// A server of so many accounts that was restored, and a relay that had read the lost run to its end.
fn restored(accounts: usize, limit: u64) -> (Wire, Vec<(AccountId, Did)>, u64) {
    let mut server = Server::new(&kept(), 1);
    server.start().expect("it starts");
    for _ in 0..accounts.div_ceil(100) {
        let host = server.host().expect("it runs").clone();
        let new = || NewAccount { handle: None, password_hash: None, curve: Curve::K256, activate: true };
        let pending: Vec<_> = (0..100).map(|_| host.create_account(new())).collect();
        server.pump();
        for mut pending in pending {
            pending.try_take().expect("an answer").expect("made");
        }
    }
    let dids: Vec<(AccountId, Did)> = server.host().expect("it runs").state(|state| {
        let told = state.accounts.values().filter(|row| row.position().is_some());
        told.map(|row| (row.id, row.did.clone())).collect()
    });
    assert_eq!(dids.len(), accounts);
    server.stop();
    let copy = server.copy();
    server.start().expect("it starts");
    for (id, _) in dids.iter().take(20) {
        write(&mut server, *id, "of the lost run");
    }
    let cursor = seq(&server);
    server.stop();
    server.put_back(&copy).expect("put back");
    server.clocks.pass(2 * MINUTE_MS);
    let marker = server.options().directory.join(restore::MARKER_NAME);
    files::replace(&server.disk, &marker, b"").expect("marked");
    let boot = server.start().expect("it starts");
    assert_eq!(boot.frames, 2 * accounts as u64);
    let now = Millis(server.clocks.true_ms());
    let wire = Wire {
        server,
        relay: Relay::resuming(now, limit, cursor),
        socket: None,
        dials: Vec::new(),
        processed: BTreeSet::new(),
        outdated: 0,
        too_slow: 0,
        statuses: Vec::new(),
    };
    (wire, dids, cursor)
}

impl Wire {
    fn now(&self) -> u64 {
        self.server.clocks.true_ms()
    }

    fn input(&mut self, input: Input) {
        for output in self.relay.step(Millis(self.now()), input) {
            match output {
                Output::DescribeServer => self.input(Input::Described(true)),
                Output::Dial { cursor } => {
                    self.dials.push(cursor);
                    self.connect(cursor);
                    self.input(Input::Dialed(true));
                }
                Output::Ping => self.socket.iter_mut().for_each(|socket| socket.way.push_back(Item::Pong)),
                Output::Close => self.socket = None,
                Output::GetRepoStatus { did } => {
                    let host = self.server.host().expect("it runs");
                    let position = host.state(|state| state.by_did(did.as_str()).and_then(|row| row.position()));
                    self.input(Input::RepoStatus { did, position: position.map(told) });
                }
                Output::Processed { sequence, .. } => drop(self.processed.insert(sequence)),
                Output::Host(status) => self.statuses.push(status),
            }
        }
    }

    fn connect(&mut self, cursor: Option<u64>) {
        let subscription = match self.server.host().expect("it runs").subscribe(cursor) {
            Ok(subscription) => Some(subscription),
            Err(CursorRefused::Future { .. }) => panic!("a cursor of the lost run is one of the future"),
            Err(refused) => panic!("{refused}"),
        };
        let (ready, way, progress) = (VecDeque::new(), VecDeque::new(), self.now());
        self.socket = Some(Socket { subscription, ready, way, bytes: 0, progress });
    }

    /// Writes what there is room for, and brings what the relay would read.
    fn transfer(&mut self) {
        loop {
            let Some(socket) = &mut self.socket else { return };
            while socket.bytes < SOCKET_BYTES {
                if socket.ready.is_empty() {
                    match socket.subscription.as_mut().and_then(Subscription::take) {
                        Some(Delivery::Frames(frames)) => socket.ready.extend(frames),
                        Some(Delivery::TooSlow) => {
                            self.too_slow += 1;
                            socket.subscription = None;
                            socket.way.push_back(Item::End);
                        }
                        Some(Delivery::Ended(why)) => panic!("{why}"),
                        None => {}
                    }
                }
                let Some(message) = socket.ready.pop_front() else { break };
                self.outdated += u64::from(matches!(Frame::decode(message.clone()), Ok(Frame::Outdated(_))));
                socket.bytes += message.len();
                socket.way.push_back(Item::Message(message));
            }
            if !self.relay.reads() {
                return;
            }
            let now = self.server.clocks.true_ms();
            let Some(item) = socket.way.pop_front() else { return };
            socket.progress = now;
            let input = match item {
                Item::Message(message) => {
                    socket.bytes -= message.len();
                    Input::Message(message)
                }
                Item::Pong => Input::Pong,
                Item::End => Input::Closed,
            };
            self.input(input);
        }
    }

    fn run(&mut self, ms: u64) {
        let end = self.now() + ms;
        loop {
            self.transfer();
            let full = self.socket.as_ref();
            let full = full.filter(|socket| socket.subscription.is_some() && socket.bytes >= SOCKET_BYTES);
            let timeout = full.map_or(u64::MAX, |socket| socket.progress + WRITE_MS_MAX);
            let due = self.relay.due().map_or(u64::MAX, |due| due.0).min(timeout).min(end);
            let now = self.now();
            self.server.clocks.pass(due.saturating_sub(now));
            if timeout <= self.now()
                && let Some(socket) = &mut self.socket
            {
                socket.subscription = None;
                socket.ready.clear();
                socket.way.push_back(Item::End);
            }
            self.input(Input::Tick);
            if self.now() >= end {
                return;
            }
        }
    }
}

/// Lets the relay read until it is through, while accounts go on writing; how many minutes that took.
fn read(wire: &mut Wire, dids: &[(AccountId, Did)]) -> u64 {
    let frames: Vec<u64> = {
        let mut all = wire.server.host().expect("it runs").subscribe(Some(0)).expect("subscribed");
        let mut seqs = Vec::new();
        while let Some(Delivery::Frames(frames)) = all.take() {
            seqs.extend(frames.into_iter().filter_map(|frame| Frame::decode(frame).ok()?.sequence()));
        }
        let floor = wire.server.host().expect("it runs").state(|state| state.sequence.floor);
        seqs.into_iter().filter(|seq| *seq > floor).collect()
    };
    assert_eq!(frames.len(), 2 * dids.len());
    let last = frames[frames.len() - 1];
    for minute in 1..=300 {
        wire.run(MINUTE_MS);
        write(&mut wire.server, dids[minute as usize].0, &format!("minute {minute}"));
        if wire.relay.host().1 >= last {
            let missing: Vec<_> = frames.iter().filter(|seq| !wire.processed.contains(seq)).collect();
            assert!(missing.is_empty(), "{} frames of the restore were passed over", missing.len());
            assert_eq!((wire.too_slow, wire.statuses.len()), (0, 0), "it stays active, and is never too slow");
            return minute;
        }
    }
    panic!("it is at {:?} of {last} after five hours, having dialed {} times", wire.relay.host(), wire.dials.len());
}

/// Source: what a relay takes of a host, docs/runbooks/pds-capacity.md.
#[test]
fn a_relay_reads_the_restore_of_a_thousand_accounts_within_two_minutes() {
    let (mut wire, dids, cursor) = restored(1_000, 1_000);
    let minutes = read(&mut wire, &dids);
    assert!(minutes <= 2, "{minutes} minutes");
    assert_eq!((wire.dials.as_slice(), wire.outdated), ([Some(cursor)].as_slice(), 1));
    for (id, did) in dids.iter().skip(400) {
        let head = wire.server.host().expect("it runs").head(*id).expect("served");
        let held = wire.relay.account(did).expect("it was told of");
        assert_eq!((held.rev, held.throttled), (Some(head.rev), false), "{did}");
    }
}

/// The relay's limit of an hour is less than the frames of the restore: it stops reading, loses its connection and comes back, again and
/// again, until the hour turns.
#[test]
fn a_relay_reads_the_restore_of_three_thousand_accounts_however_often_it_begins_again() {
    let (mut wire, dids, _) = restored(3_000, 100);
    let minutes = read(&mut wire, &dids);
    assert!((60..300).contains(&minutes), "{minutes} minutes");
    assert!(wire.dials.len() > 1 && wire.dials.is_sorted(), "each dial begins where the one before got to");
}
