//! Who is there, and what happens next.

use super::copies::Copies;
use super::model::{Asked, Known, Shape, Waiting, Wanted};
use super::observer::Observer;
use super::seen::Seen;
use super::server::{Server, taken};
use super::swarm::Swarm;
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::server::Death;
use crate::trace::Trace;
use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Millis, Random};
use highwater_host::{Action, Delivery, Host, NewAccount, Pending, RecordWrite, Refused, Subscription, WriteBatch};
use highwater_pds::lifecycle::Change;
use highwater_pds::{AccountId, Fact, Position, credentials};
use highwater_repo::data::{Map, Value, encode};
use highwater_repo::key::Curve;
use highwater_repo::{Cid, Codec};
use std::collections::BTreeMap;

/// The kind of all records.
const COLLECTION: &str = "app.example.note";
/// Writes of a batch at the most.
const BATCH_MAX: u64 = 6;
/// Checkpoints after which a log that was full has space.
const ATTEMPTS_MAX: usize = 10;
/// Milliseconds of a pause between two steps at the most.
const PAUSE_MS_MAX: u64 = 1_200_000;

/// An account that is on its way.
pub(crate) type Creating = (Shape, Option<Pending<Result<AccountId, Refused>>>);

/// The world of one seed.
pub struct World {
    pub(crate) swarm: Swarm,
    pub(crate) random: SplitMix,
    /// What happened.
    pub trace: Trace,
    /// The server.
    pub server: Server,
    pub(crate) accounts: BTreeMap<AccountId, Known>,
    pub(crate) creating: Vec<Creating>,
    pub(crate) seen: Seen,
    /// Who sees every frame as soon as anybody can.
    pub(crate) tap: Option<Subscription>,
    pub(crate) observers: Vec<Observer>,
    pub(crate) copies: Copies,
    /// A marker lies in the directory.
    pub(crate) restoring: bool,
    pub(crate) clock_was_behind: bool,
    pub(crate) healed: bool,
    records: u64,
}

impl World {
    /// The world of a seed, before anything happened.
    #[must_use]
    pub fn new(seed: u64, print: bool) -> Self {
        Self::with(Swarm::draw(seed), seed, print)
    }

    /// A world of this shape, before anything happened.
    #[must_use]
    pub fn with(swarm: Swarm, seed: u64, print: bool) -> Self {
        let mut trace = Trace::new(print);
        trace.note(0, format_args!("{swarm:?}"));
        let observers = (0..swarm.observers).map(|_| Observer::new()).collect();
        Self {
            server: Server::new(&swarm, seed),
            swarm,
            random: SplitMix::new(seed),
            trace,
            accounts: BTreeMap::new(),
            creating: Vec::new(),
            seen: Seen::default(),
            tap: None,
            observers,
            copies: Copies::default(),
            restoring: false,
            clock_was_behind: false,
            healed: false,
            records: 0,
        }
    }

    pub(crate) fn random_below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    pub(crate) fn note(&mut self, event: std::fmt::Arguments<'_>) {
        self.trace.note(self.server.clocks.true_ms() % 1_000_000_000, event);
    }

    /// Something happens.
    /// # Errors
    /// A promise that broke over it.
    pub fn step(&mut self) -> Checked {
        let ms = match self.random.below(40) {
            0 => self.random.below(PAUSE_MS_MAX),
            _ => self.random.below(self.swarm.step_ms_max),
        };
        self.server.clocks.pass(1 + ms);
        if self.swarm.fault_every > 0 && self.random.below(self.swarm.fault_every) == 0 {
            self.fault()?;
        }
        if self.server.process.is_none() {
            if self.random.below(3) > 0 {
                self.start()?;
            }
        } else {
            match self.random.below(20) {
                0 => self.create(),
                1..=6 => self.write()?,
                7 => self.change()?,
                8 => self.password()?,
                9..=14 => self.pump()?,
                15 => self.resync(),
                _ => self.observe()?,
            }
        }
        self.bury()
    }

    /// If the process died by its disk, it is dead from now on.
    pub(crate) fn bury(&mut self) -> Checked {
        let Some(death) = self.server.must_die().filter(|_| self.server.process.is_some()) else { return Ok(()) };
        self.trace.meet(match self.server.disk.stopped() {
            true => "a server of accounts died in the middle of an operation",
            false => "the log of accounts failed",
        });
        self.die(death)
    }

    /// The process or its machine dies.
    pub(crate) fn die(&mut self, death: Death) -> Checked {
        self.note(format_args!("the server dies: {death:?}"));
        if death == Death::Power {
            self.trace.meet("a server of accounts lost power");
        }
        // What was shown was shown, and what was answered was answered, whatever becomes of the process.
        self.drain()?;
        self.leave();
        self.server.die(death);
        Ok(())
    }

    /// The process ends in good order.
    pub(crate) fn stop(&mut self) -> Checked {
        self.note(format_args!("the server stops"));
        self.server.stop();
        self.drain()?;
        self.leave();
        Ok(())
    }

    fn leave(&mut self) {
        self.tap = None;
        self.observers.iter_mut().for_each(Observer::disconnect);
        self.accounts.values_mut().for_each(Known::lose_answers);
        self.creating.iter_mut().for_each(|(_, pending)| *pending = None);
    }

    /// Takes every frame and every answer that is there.
    fn drain(&mut self) -> Checked {
        while let Some(delivery) = self.tap.as_mut().and_then(Subscription::take) {
            let Delivery::Frames(frames) = delivery else {
                self.tap = None;
                break;
            };
            for frame in frames {
                self.trace.mix(u64::from(frame.iter().fold(0u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte))));
                let seq = self.seen.take(frame)?;
                if let Some(id) = self.seen.history.window.get(&seq).and_then(|shown| self.account_of(&shown.did))
                    && let Some(known) = self.accounts.get_mut(&id)
                {
                    known.changed = true;
                }
            }
        }
        for known in self.accounts.values_mut() {
            known.take_answers()?;
        }
        self.created()
    }

    /// Accounts that were made since.
    fn created(&mut self) -> Checked {
        let mut waiting = Vec::new();
        for (shape, mut pending) in std::mem::take(&mut self.creating) {
            match taken(&mut pending) {
                Some(Ok(id)) => {
                    let did = self
                        .server
                        .host()
                        .and_then(|host| host.state(|state| state.accounts.get(&id).map(|row| row.did.clone())));
                    match did {
                        Some(did) => drop(self.accounts.insert(id, Known::new(did, shape))),
                        // The process that made it just stopped.
                        None if self.server.process.is_none() => waiting.push((shape, None)),
                        None => return violated(Invariant::AccountsStay, format!("account {} is not there", id.0)),
                    }
                }
                Some(Err(Refused::Unsettled(highwater_host::Unsettled::Stopped(_)))) => waiting.push((shape, None)),
                Some(Err(_)) => self.trace.meet("a turn found no space"),
                None => waiting.push((shape, pending)),
            }
        }
        self.creating = waiting;
        Ok(())
    }

    /// The writer runs once, and what it did is looked at.
    pub(crate) fn pump(&mut self) -> Checked {
        self.server.pump();
        self.drain()?;
        if self.server.must_die().is_some() {
            return Ok(());
        }
        self.check_rows()?;
        self.meet();
        let hash = self.server.disk.trace_hash();
        self.trace.mix(hash);
        Ok(())
    }

    /// Counts what there is to be met.
    fn meet(&mut self) {
        let Some(host) = self.server.host() else { return };
        let status = host.status();
        let given_up = host.state(|state| state.events.oldest().is_some_and(|point| point.ordinal > 0));
        for (met, what) in [
            (status.turns_refused > 0, "a turn found no space"),
            (given_up, "frames were given up"),
            (status.checkpoints > 0, "a checkpoint of accounts was made"),
        ] {
            if met {
                self.trace.meet(what);
            }
        }
    }

    /// Whether an account stands elsewhere than relays were told.
    pub(crate) fn untold(&self) -> bool {
        let untold = |row: &highwater_pds::Account| row.position().is_some() && row.position() != row.announced;
        self.server.host().is_some_and(|host| host.state(|state| state.accounts.values().any(untold)))
    }

    fn pick(&mut self) -> Option<AccountId> {
        let place = self.random.below(self.accounts.len() as u64) as usize;
        self.accounts.keys().nth(place).copied()
    }

    pub(crate) fn create(&mut self) {
        let Some(host) = self.server.host().cloned() else { return };
        if self.accounts.len() + self.creating.len() >= self.swarm.accounts_max {
            return;
        }
        let activate = self.random.below(4) > 0;
        let curve = if self.random.below(4) == 0 { Curve::P256 } else { Curve::K256 };
        self.make(&host, activate, curve);
    }

    /// Somebody asks for an account.
    pub(crate) fn make(&mut self, host: &Host, activate: bool, curve: Curve) {
        let shape = Shape::new(activate.then_some(self.swarm.announce));
        self.note(format_args!("create, activate: {activate}, {curve:?}"));
        let new = NewAccount { handle: None, password_hash: None, curve, activate };
        self.creating.push((shape, Some(host.create_account(new))));
    }

    /// A record that no other one is, or one of a few.
    fn record(&mut self) -> Bytes {
        self.records += 1;
        let (number, bytes) = match self.random.below(4) {
            0 => (self.random.below(3), 10),
            1 => (self.records, self.swarm.record_bytes_max),
            _ => (self.records, 20 + self.random.below(100)),
        };
        let mut map = Map::new();
        map.insert("$type", Value::Text(COLLECTION.into()));
        map.insert("text", Value::Text(format!("{number:>width$}", width = bytes as usize)));
        encode(&Value::Map(map)).into()
    }

    /// Writes of a batch, each of another key.
    fn draw_writes(&mut self, id: AccountId) -> Vec<(Wanted, RecordWrite)> {
        let ahead = self.accounts[&id].ahead();
        let count = if self.random.below(3) == 0 { 1 + self.random.below(BATCH_MAX) } else { 1 };
        let mut wanted: BTreeMap<String, (Wanted, RecordWrite)> = BTreeMap::new();
        for _ in 0..count {
            let rkey = format!("key{}", self.random.below(self.swarm.keys));
            let path = format!("{COLLECTION}/{rkey}");
            let there = ahead.records.get(&path).copied();
            let action = match (self.random.below(10), there) {
                (0, _) => Action::Create,
                (1, _) => Action::Update,
                (2, _) => Action::Delete,
                (3, _) => Action::Remove,
                (_, None) if self.random.below(2) == 0 => Action::Create,
                _ => Action::Put,
            };
            let record = (!matches!(action, Action::Delete | Action::Remove)).then(|| self.record());
            let cid = record.as_ref().map(|record| Cid::of(Codec::DagCbor, record));
            let swap = match self.random.below(12) {
                0 => Some(there),
                1 => Some(cid),
                _ => None,
            };
            let write =
                RecordWrite { action, collection: COLLECTION.to_owned(), rkey: Some(rkey), record, swap_record: swap };
            wanted.insert(path.clone(), (Wanted { action, path, cid, swap }, write));
        }
        wanted.into_values().collect()
    }

    pub(crate) fn write(&mut self) -> Checked {
        let Some((host, id)) = self.server.host().cloned().zip(self.pick()) else { return Ok(()) };
        let settled = self.accounts[&id].asked.is_empty();
        let wanted = self.draw_writes(id);
        let head = host.state(|state| state.accounts.get(&id).and_then(|row| row.head));
        let (swap_commit, wrong) = match self.random.below(15) {
            // What the newest commit will be is known only while nothing is under way.
            0 if settled => (head.map(|head| head.commit), false),
            1 => (Some(Cid::of(Codec::DagCbor, b"no commit")), true),
            _ => (None, false),
        };
        let (wanted, writes): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        self.note(format_args!("account {}: write {}", id.0, writes.len()));
        let waiting = Waiting::Write(host.write(id, WriteBatch { writes, swap_commit }));
        self.ask(id, Asked::Write(wanted, wrong), waiting)
    }

    fn ask(&mut self, id: AccountId, asked: Asked, waiting: Waiting) -> Checked {
        let Some(known) = self.accounts.get_mut(&id) else { return Ok(()) };
        known.asked.push_back((asked, waiting));
        known.changed = true;
        known.take_answers()
    }

    pub(crate) fn change(&mut self) -> Checked {
        let Some((host, id)) = self.server.host().cloned().zip(self.pick()) else { return Ok(()) };
        let change = self.draw_change(id);
        self.ask_change(&host, id, change)
    }

    fn draw_change(&mut self, id: AccountId) -> Change {
        let standing = self.accounts[&id].ahead().standing;
        match self.random.below(24) {
            0 if self.accounts.len() > 1 => Change::Erase,
            1 if self.accounts.len() > 1 => Change::Decommission,
            2..=4 => Change::TakeDown,
            5..=7 => Change::Restore,
            8..=9 => Change::Deactivate,
            10..=12 => Change::Reactivate,
            _ if !standing.activated => Change::Activate(self.swarm.announce),
            // An account that cannot write has nothing to show: it is not left so for long.
            14..=19 if standing.taken_down => Change::Restore,
            14..=19 if standing.deactivated => Change::Reactivate,
            _ if standing.suspended => Change::Lift,
            13 => Change::Lift,
            _ => Change::Lock,
        }
    }

    /// Somebody asks for an account to stand elsewhere.
    pub(crate) fn ask_change(&mut self, host: &Host, id: AccountId, change: Change) -> Checked {
        if change == Change::Lift && self.accounts[&id].ahead().standing.suspended {
            self.trace.meet("an account was locked and lifted");
        }
        if change == Change::Erase {
            self.trace.meet("an account was erased");
        }
        self.note(format_args!("account {}: {change:?}", id.0));
        let waiting = Waiting::Change(host.change(id, change));
        self.ask(id, Asked::Change(change), waiting)
    }

    fn password(&mut self) -> Checked {
        let Some((host, id)) = self.server.host().cloned().zip(self.pick()) else { return Ok(()) };
        self.records += 1;
        let hash = format!("hash {}", self.records);
        let fact = Fact::Credentials(id, credentials::Change::Password(hash.clone()));
        self.note(format_args!("account {}: {hash}", id.0));
        let waiting = Waiting::Fact(host.fact(id, fact));
        self.ask(id, Asked::Password(hash), waiting)
    }

    /// The operator has relays told of an account once more. It changes nothing, so nobody waits for it.
    fn resync(&mut self) {
        if let Some((host, id)) = self.server.host().cloned().zip(self.pick()) {
            self.note(format_args!("account {}: told once more", id.0));
            drop(host.resync(id));
        }
    }

    /// A consumer does something.
    pub(crate) fn observe(&mut self) -> Checked {
        let Some(host) = self.server.host().cloned() else { return Ok(()) };
        let place = self.random.below(self.observers.len() as u64) as usize;
        let (choice, whole) = (self.random.below(8), self.random.below(3) > 0);
        let most = 1 + self.random.below(40) as usize;
        let now = Millis(self.server.clocks.true_ms());
        let observer = &mut self.observers[place];
        let (outdated, fetched) = (observer.outdated, observer.fetched);
        let read = match choice {
            0 if observer.is_connected() => {
                observer.disconnect();
                0
            }
            _ if !observer.is_connected() => {
                observer.connect(&host, whole, now)?;
                0
            }
            _ => observer.read(&self.server, most)?,
        };
        let (outdated, fetched) = (observer.outdated > outdated, observer.fetched > fetched);
        let cursor = observer.follower.cursor();
        if outdated {
            self.trace.meet("a consumer's cursor was outdated");
        }
        if fetched {
            self.trace.meet("a consumer fetched a repository");
        }
        self.note(format_args!("consumer {place} read {read} and is at {cursor:?}"));
        Ok(())
    }

    /// Everything that was asked for is answered.
    /// # Errors
    /// [`Invariant::Heals`] if it is not.
    pub(crate) fn settle(&mut self) -> Checked {
        for _ in 0..20 {
            let waits = self.accounts.values().any(|known| !known.asked.is_empty()) || !self.creating.is_empty();
            if !waits {
                break;
            }
            self.pump()?;
        }
        self.pump()?;
        let waits: Vec<u64> =
            self.accounts.iter().filter(|(_, known)| !known.asked.is_empty()).map(|(id, _)| id.0).collect();
        hold(Invariant::Heals, waits.is_empty() && self.creating.is_empty(), || {
            format!("accounts {waits:?} were not answered, nor {} that are on their way", self.creating.len())
        })
    }

    /// Accounts that relays know as active.
    pub(crate) fn active(&self) -> Vec<AccountId> {
        self.server.host().map_or_else(Vec::new, |host| {
            host.state(|state| {
                let rows = state.accounts.values().filter(|row| row.position() == Some(Position::Active));
                rows.map(|row| row.id).collect()
            })
        })
    }

    /// Every active account is told of once more, and writes.
    /// # Errors
    /// [`Invariant::Heals`] if there is no space for that, although the disk has space again.
    pub(crate) fn write_everywhere(&mut self) -> Checked {
        let Some(host) = self.server.host().cloned() else { return Ok(()) };
        for id in self.active() {
            self.tell_again(&host, id)?;
            let (record, path) = (self.record(), format!("{COLLECTION}/last"));
            let cid = Some(Cid::of(Codec::DagCbor, &record));
            let write = RecordWrite {
                action: Action::Put,
                collection: COLLECTION.to_owned(),
                rkey: Some("last".to_owned()),
                record: Some(record),
                swap_record: None,
            };
            let waiting = Waiting::Write(host.write(id, WriteBatch { writes: vec![write], swap_commit: None }));
            self.ask(id, Asked::Write(vec![Wanted { action: Action::Put, path, cid, swap: None }], false), waiting)?;
        }
        Ok(())
    }

    /// A log that was full has space again once a checkpoint was made.
    fn tell_again(&mut self, host: &Host, id: AccountId) -> Checked {
        for _ in 0..ATTEMPTS_MAX {
            let mut waiting = Some(host.resync(id));
            self.pump()?;
            if let Some(Ok(())) = taken(&mut waiting) {
                return Ok(());
            }
            host.checkpoint_soon();
            self.server.clocks.pass(10_000);
            self.pump()?;
        }
        violated(Invariant::Heals, format!("relays are not told of account {} for want of space", id.0))
    }
}
