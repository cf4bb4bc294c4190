//! Seeds of lost, late, doubled and lying answers, of crashes between any two steps, and of a second owner.
//!
//! Invariants, checked all along:
//! 1. The stream follows its format, and its whole commits are a prefix of the log of whoever wrote them: each commit
//!    once, in order.
//! 2. What was acknowledged to an owner stays in the stream, at its place, byte for byte.
//! 3. `synced()` resolves only when its target is in the stream, and never for an owner that had lost the stream before
//!    the call.
//! 4. An owner that has no rival never stops.
//!
//! And after the faults end: everything that is logged by the owner of the stream gets there, and everybody who waits is
//! told.

use super::model::{CLUSTER, ModelLog, Raw, Server, incarnation};
use crate::batch::encode_claim;
use crate::engine::{LogPosition, Seal, StopReason};
use crate::replicator::machine::*;
use crate::replicator::perform::batch_bytes;
use highwater_base::planted::{self, Bug};
use highwater_base::random::SplitMix;
use highwater_base::{Digest, Offset, Random};
use highwater_client::{HeadAnswer, TokenId};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Virtual milliseconds with faults, and after them.
const FAULTY_MS: u64 = 120_000;
const QUIET_MS: u64 = 600_000;

#[derive(Debug)]
enum Happening {
    Commit(usize),
    Synced(usize),
    Abandon(usize),
    Timer(usize, u64),
    Crash(usize),
    PowerLoss(usize),
    Takeover,
    Forget,
    /// The server gets a write whose answer nobody waits for.
    Late {
        epoch: u64,
        seq: u64,
        body: Vec<u8>,
    },
    /// A process gets the reply to its request.
    Reply(usize, u64, Box<Reply>),
}

#[derive(Debug, Clone, Default)]
struct Files {
    acknowledged: LogPosition,
    stream_end: Offset,
    epoch: u64,
    in_flight: Option<Seal>,
}

struct Waiter {
    target_lsn: u64,
    /// The stream was somebody else's when the call was made.
    lost_before: bool,
}

struct Owner {
    lineage: [u8; 16],
    log: ModelLog,
    /// What a process that dies leaves, and what a loss of power leaves: the files and the records that were synced.
    files: Files,
    synced: (Files, usize),
    machine: Machine,
    /// Counts the processes; what belongs to an earlier one is void.
    process: u64,
    waiters: BTreeMap<WaiterId, Waiter>,
    stopped: Option<StopReason>,
}

struct World {
    now: u64,
    random: SplitMix,
    faulty: bool,
    server: Server,
    owners: Vec<Owner>,
    queue: BTreeMap<(u64, u64), Happening>,
    queued: u64,
    waiters: u64,
    /// Every commit that was acknowledged, by its number.
    acknowledged: BTreeMap<u64, Digest>,
    trace: Digest,
    stopped: usize,
    resolved: usize,
}

fn machine(owner: &Files, lineage: [u8; 16], log: &ModelLog) -> Machine {
    Machine::new(Start {
        incarnation: incarnation(),
        cluster_id: CLUSTER.to_owned(),
        lineage,
        acknowledged: owner.acknowledged,
        acknowledged_lsn: log.lsn_below(owner.acknowledged).expect("in the log"),
        stream_end: owner.stream_end,
        epoch: owner.epoch,
        in_flight: owner.in_flight,
    })
}

impl Owner {
    fn new(lineage: [u8; 16], log: ModelLog, files: Files) -> Self {
        let machine = machine(&files, lineage, &log);
        let synced = (files.clone(), log.records());
        Self { lineage, log, files, synced, machine, process: 0, waiters: BTreeMap::new(), stopped: None }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            now: 0,
            random: SplitMix::new(seed),
            faulty: true,
            server: Server::default(),
            owners: vec![Owner::new([1; 16], ModelLog::default(), Files::default())],
            queue: BTreeMap::new(),
            queued: 0,
            waiters: 0,
            acknowledged: BTreeMap::new(),
            trace: Digest::of(b""),
            stopped: 0,
            resolved: 0,
        };
        world.plan(0, seed.is_multiple_of(3));
        world
    }

    fn later(&mut self, ms: u64, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now + ms, self.queued), happening);
    }

    /// What befalls an owner while there are faults.
    fn plan(&mut self, owner: usize, rival: bool) {
        for _ in 0..10 + self.random.below(20) {
            let at = self.random.below(FAULTY_MS.saturating_sub(self.now).max(1));
            let happening = match self.random.below(20) {
                0..=10 => Happening::Commit(owner),
                11..=15 => Happening::Synced(owner),
                16 => Happening::Abandon(owner),
                17..=18 => Happening::Crash(owner),
                _ => Happening::PowerLoss(owner),
            };
            self.later(at, happening);
        }
        if rival {
            let at = self.random.below(FAULTY_MS);
            self.later(at, Happening::Takeover);
        }
        if self.random.below(4) == 0 {
            let at = self.random.below(FAULTY_MS);
            self.later(at, Happening::Forget);
        }
    }

    fn run(&mut self, until: u64) {
        while let Some((&(at, number), _)) = self.queue.first_key_value() {
            if at > until {
                break;
            }
            let happening = self.queue.remove(&(at, number)).expect("the first entry");
            self.now = at;
            let line = format!("{} {at} {happening:?}", self.trace);
            self.trace = Digest::of(line.as_bytes());
            self.happen(happening);
        }
        self.now = until;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Commit(owner) => {
                if self.owners[owner].stopped.is_none() {
                    let pages = if self.random.below(5) == 0 { 150 + self.random.below(300) } else { 1 };
                    self.owners[owner].log.commit(pages as u32, &mut self.random);
                    self.step(owner, Event::Wanted);
                }
            }
            Happening::Synced(owner) => self.call_synced(owner),
            Happening::Abandon(owner) => {
                if let Some((id, _)) = self.owners[owner].waiters.pop_first() {
                    self.step(owner, Event::Abandoned { id });
                }
            }
            Happening::Timer(owner, process) => {
                if self.owners[owner].process == process {
                    self.step(owner, Event::Timer);
                }
            }
            Happening::Crash(owner) => self.restart(owner),
            Happening::PowerLoss(owner) => {
                let (files, records) = self.owners[owner].synced.clone();
                self.owners[owner].files = files;
                self.owners[owner].log.cut(records);
                self.restart(owner);
            }
            Happening::Takeover => self.takeover(),
            Happening::Forget => self.server.forget(),
            Happening::Late { epoch, seq, body } => {
                self.server.append(epoch, seq, &body);
            }
            Happening::Reply(owner, process, reply) => {
                if self.owners[owner].process == process {
                    self.step(owner, Event::Answered { token: TokenId(1), reply });
                }
            }
        }
    }

    fn call_synced(&mut self, owner: usize) {
        self.waiters += 1;
        let id = WaiterId(self.waiters);
        let this = &mut self.owners[owner];
        let target_lsn = this.log.last_lsn();
        let end = this.machine.snapshot().stream_end;
        let lost_before = self.server.claimed_behind(end).is_some_and(|lineage| lineage != this.lineage);
        this.waiters.insert(id, Waiter { target_lsn, lost_before });
        self.step(owner, Event::Synced { id, target_lsn });
    }

    /// The process dies, and another one opens the files.
    fn restart(&mut self, owner: usize) {
        let this = &mut self.owners[owner];
        if this.stopped.is_some() {
            return;
        }
        this.process += 1;
        this.waiters.clear();
        this.machine = machine(&this.files, this.lineage, &this.log);
    }

    /// Another process restores the database from the stream and writes.
    fn takeover(&mut self) {
        let (reader, commits) = self.server.commits();
        let files = Files { stream_end: reader.offset(), ..Files::default() };
        let number = self.owners.len() as u8 + 1;
        self.owners.push(Owner::new([number; 16], ModelLog::after(commits.len() as u64), files));
        let owner = self.owners.len() - 1;
        self.plan(owner, false);
        self.later(1, Happening::Commit(owner));
    }

    fn step(&mut self, owner: usize, event: Event) {
        let this = &mut self.owners[owner];
        let mut out = Vec::new();
        let mut environment = Environment { now_ms: self.now, log: &this.log, random: &mut self.random };
        this.machine.step(event, &mut environment, &mut out);
        let process = this.process;
        for action in out {
            // The process may die between any two actions.
            if self.faulty && self.random.below(150) == 0 {
                return self.restart(owner);
            }
            self.carry_out(owner, process, action);
        }
        if let Some(at) = self.owners[owner].machine.deadline() {
            let wait = at.saturating_sub(self.now);
            self.later(wait, Happening::Timer(owner, process));
        }
    }

    fn carry_out(&mut self, owner: usize, process: u64, action: Action) {
        let this = &mut self.owners[owner];
        match action {
            Action::Send(request) => self.send(owner, process, &request),
            Action::SaveClaim(claim) => {
                let files = &mut this.files;
                (files.epoch, files.stream_end) = (claim.epoch, claim.stream_end);
                (files.acknowledged, files.in_flight) = (claim.resume, None);
                this.synced = (files.clone(), this.log.records());
            }
            Action::SaveAcknowledged(acknowledged) => {
                let files = &mut this.files;
                (files.acknowledged, files.stream_end) = (acknowledged.upto, acknowledged.stream_end);
                files.in_flight = None;
                let lsn = this.log.lsn_below(acknowledged.upto).expect("in the log");
                let first = lsn.saturating_sub(this.log.records() as u64);
                for lsn in first + 1..=lsn {
                    if lsn > this.log.last_lsn() - this.log.records() as u64 {
                        self.acknowledged.entry(lsn).or_insert_with(|| Digest::of(this.log.record(lsn)));
                    }
                }
            }
            Action::Resolve { id, result } => {
                let waiter = this.waiters.remove(&id).expect("somebody who waits");
                self.resolved += 1;
                if result.is_ok() {
                    assert!(!waiter.lost_before, "synced() resolved for an owner that had lost the stream");
                    let held = self.server.commits().1;
                    assert!(held.len() as u64 >= waiter.target_lsn, "synced() resolved too early");
                } else {
                    assert!(this.stopped.is_some() || self.owners.len() > 1, "refused without a rival");
                }
            }
            Action::Stop(reason) => {
                self.stopped += 1;
                assert!(self.owners.len() > 1, "an owner without a rival stopped: {reason}");
                self.owners[owner].stopped = Some(reason);
            }
            Action::RereadToken => {}
        }
    }

    fn send(&mut self, owner: usize, process: u64, request: &Request) {
        let latency = 1 + self.random.below(30);
        let trouble = if self.faulty { self.random.below(100) } else { 99 };
        let refusal = self.refusal();
        let (epoch, seq, body) = match request {
            Request::Claim(claim) => (claim.epoch, 0, encode_claim(claim)),
            Request::Append(sealed) => (sealed.epoch, sealed.seq, self.sealed(owner, sealed)),
            _ => {
                let reply = self.look(request, trouble, &refusal);
                let wait = if trouble < 5 { 10_000 } else { latency };
                return self.later(wait, Happening::Reply(owner, process, Box::new(reply)));
            }
        };
        let (digest, body_bytes) = (Digest::of(&body), body.len() as u64);
        let none = Raw::plain(0, "");
        let late = |body: &[u8]| Happening::Late { epoch, seq, body: body.to_vec() };
        let (raw, wait) = match trouble {
            // Lost on the way there.
            0..=7 => (none, 10_000),
            // Lost on the way back.
            8..=17 => {
                self.server.append(epoch, seq, &body);
                (none, 10_000)
            }
            // Held somewhere, and delivered when nobody waits any more.
            18..=24 => {
                let delay = self.random.below(60_000);
                self.later(delay, late(&body));
                (none, 10_000)
            }
            // Delivered twice.
            25..=30 => {
                let raw = self.server.append(epoch, seq, &body);
                let delay = self.random.below(20_000);
                self.later(delay, late(&body));
                (raw, latency)
            }
            // Applied, and answered as if nobody knew.
            31..=38 => {
                self.server.append(epoch, seq, &body);
                let lies =
                    [(500, "INTERNAL"), (502, "UPSTREAM_FAILED"), (503, "OUTCOME_UNKNOWN"), (200, ""), (504, "")];
                let (status, code) = lies[self.random.below(lies.len() as u64) as usize];
                (Raw::plain(status, code), latency)
            }
            39..=50 => (refusal, latency),
            _ => (self.server.append(epoch, seq, &body), latency),
        };
        let reply = Reply::Written { answer: raw.written(), body_bytes, digest, took_ms: wait };
        self.later(wait, Happening::Reply(owner, process, Box::new(reply)));
    }

    /// A refusal by something in front of the stream, before anything was forwarded.
    fn refusal(&mut self) -> Raw {
        let rows = [
            (503, "NO_LEADER"),
            (503, "WAL_DISK_PRESSURE"),
            (429, "RATE_LIMITED"),
            (401, "INVALID_CREDENTIAL"),
            (402, "PAYMENT_REQUIRED"),
            (403, "FORBIDDEN"),
            (404, ""),
            (307, ""),
            (408, "BODY_TOO_SLOW"),
            (413, "REQUEST_TOO_LARGE"),
            (400, ""),
            (412, ""),
        ];
        let (status, code) = rows[self.random.below(rows.len() as u64) as usize];
        Raw::plain(status, code)
    }

    fn sealed(&mut self, owner: usize, sealed: &Sealed) -> Vec<u8> {
        let this = &mut self.owners[owner];
        let read = |from, length, into: &mut Vec<u8>| this.log.read(from, length, into);
        let (body, digest) = batch_bytes(sealed, &this.log, read).expect("the bytes that were sealed");
        if sealed.digest.is_none() {
            let Sealed { epoch, seq, from, to, stream_offset, .. } = *sealed;
            this.files.in_flight =
                Some(Seal { incarnation: incarnation(), epoch, seq, from, to, digest, stream_offset });
            this.synced = (this.files.clone(), this.log.records());
        }
        body
    }

    fn look(&mut self, request: &Request, trouble: u64, refusal: &Raw) -> Reply {
        let lost = trouble < 5;
        let raw = if lost { Raw::plain(0, "") } else { refusal.clone() };
        let refused = lost || (40..48).contains(&trouble);
        match request {
            // A 404 without identity is a concealed stream; that is what this refusal looks like in a head.
            Request::Head if refused => Reply::Head(HeadAnswer { identity: None, answer: raw.answer() }),
            Request::Head => Reply::Head(self.server.head()),
            _ if refused => Reply::Read(raw.answer()),
            Request::Tail { at, bytes_max } => {
                // An answer may end anywhere, inside a batch too.
                let most = if self.random.below(3) == 0 { 1 + self.random.below(*bytes_max) } else { *bytes_max };
                Reply::Read(self.server.read(*at, most))
            }
            _ => Reply::Read(self.server.read(Offset(0), 4096)),
        }
    }

    /// What must hold at any time.
    fn check(&self) {
        let (_, commits) = self.server.commits();
        for (&lsn, digest) in &self.acknowledged {
            let held = commits.get(lsn as usize - 1).expect("an acknowledged commit is in the stream");
            assert_eq!(Digest::of(held), *digest, "commit {lsn} is not the one that was acknowledged");
        }
        if let [owner] = self.owners.as_slice() {
            for (lsn, held) in (1..).zip(&commits) {
                assert!(lsn <= owner.log.last_lsn(), "the stream holds commit {lsn}, which the log lost");
                assert_eq!(held, owner.log.record(lsn), "commit {lsn} is not the log's");
            }
        }
    }
}

/// Runs one seed to its end; answers the trace, and how much happened.
fn run(seed: u64) -> (Digest, usize, usize) {
    let mut world = World::new(seed);
    for part in 1..=8 {
        world.run(part * FAULTY_MS / 8);
        world.check();
    }
    world.faulty = false;
    world.run(FAULTY_MS + QUIET_MS);
    for owner in 0..world.owners.len() {
        world.happen(Happening::Commit(owner));
        world.call_synced(owner);
    }
    world.run(FAULTY_MS + 2 * QUIET_MS);
    world.check();
    let (_, commits) = world.server.commits();
    let alive: Vec<_> = world.owners.iter().filter(|owner| owner.stopped.is_none()).collect();
    assert!(alive.len() <= 1, "two owners of one stream");
    for owner in &alive {
        let snapshot = owner.machine.snapshot();
        assert_eq!(snapshot.acknowledged_lsn, owner.log.last_lsn(), "{snapshot:?}");
        assert_eq!((commits.len() as u64, snapshot.condition), (owner.log.last_lsn(), None));
    }
    assert!(world.owners.iter().all(|owner| owner.waiters.is_empty()), "somebody still waits");
    (world.trace, world.stopped, world.resolved)
}

/// The seeds of a normal run.
const SEEDS: u64 = 120;

#[test]
fn the_stream_is_a_prefix_of_the_log_whatever_befalls_answers_and_processes() {
    let (mut stopped, mut resolved) = (0, 0);
    for seed in 0..SEEDS {
        let result = catch_unwind(|| run(seed));
        let (_, stops, resolves) = result.unwrap_or_else(|_| panic!("seed {seed}"));
        stopped += stops;
        resolved += resolves;
    }
    // The seeds do reach what they are meant to reach.
    assert!(stopped > 12, "{stopped} owners were fenced");
    assert!(resolved > 300, "{resolved} calls were resolved");
}

#[test]
fn one_seed_gives_one_run() {
    for seed in [0, 1, 2, 77] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// Seeds within which a planted fault must be found.
const BUDGET: u64 = 30;

/// What the first seed that notices a planted fault says of it.
fn found(bug: Bug) -> Option<String> {
    (0..BUDGET).find_map(|seed| {
        planted::plant(Some(bug));
        let result = catch_unwind(AssertUnwindSafe(|| run(seed)));
        planted::plant(None);
        let said = result.err()?;
        Some(said.downcast::<String>().map_or_else(|_| "a panic without words".to_owned(), |said| *said))
    })
}

#[test]
fn a_retry_that_seals_anew_is_found() {
    let said = found(Bug::RecompressOnRetry).expect("a seed notices");
    assert!(said.starts_with("an owner without a rival stopped: foreign_write"), "{said}");
}

#[test]
fn a_part_that_is_left_out_is_found() {
    let said = found(Bug::DropPart).expect("a seed notices");
    assert!(said.starts_with("the stream breaks its format"), "{said}");
}
