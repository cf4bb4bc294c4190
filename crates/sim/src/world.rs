//! One world from one seed: everything that happens, in the order of virtual time, on one thread.

use crate::clients::{Administrator, Client, Producer, Publisher, Visitor};
use crate::database::{Context, Database};
use crate::invariants::{Checked, Invariant, Violation, hold};
use crate::message::{Ask, Party, Reply, WriteId};
use crate::network::{Network, Return};
use crate::ops::Draft;
use crate::oracle::{Memory, Oracle};
use crate::schedule::Schedule;
use crate::server::Server;
use crate::swarm::Swarm;
use crate::trace::Trace;
use highwater_base::random::SplitMix;
use highwater_base::{Offset, Random};
use highwater_disk::SimDisk;
use highwater_node::shard::{Answer, SnapshotAnswer};
use highwater_sqlite::batch::CONTENT_TYPE;
use highwater_sqlite::bind::BoundStream;
use highwater_stream::{Create, Operation};
use std::collections::BTreeMap;

/// Something that is going to happen.
#[derive(Debug)]
pub enum Event {
    /// A copy of a request reaches the server.
    Arrive(u64, Return),
    /// An answer reaches whoever asked.
    Answer(u64, Box<Reply>),
    /// Whoever asked waits no longer.
    GiveUp(u64),
    /// The server considers what came in.
    ServerTurn,
    /// The server's log writes and syncs.
    ServerSync,
    /// The server's checkpoints run.
    ServerCheckpoint,
    /// A tenth of a second of the server passes.
    ServerTick,
    /// The server fetches the bytes of a read.
    ServerFetch(u64),
    /// The server's process starts.
    ServerStart,
    /// A party does something.
    Act(Party),
    /// A database's replicator is looked at.
    Replicate(usize),
    /// A database's process starts.
    DatabaseStart(usize),
    /// Something goes wrong.
    Fault,
    /// A server's disk, or a database's, has space again.
    Space(Option<usize>),
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) from: Party,
    pub(crate) ask: Ask,
}

/// One copy of a request in the server.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) call: u64,
    pub(crate) party: Party,
    pub(crate) ask: Ask,
    pub(crate) write: Option<WriteId>,
    pub(crate) returns: Return,
    /// The snapshot whose bytes are to be read, and then handed out or published.
    pub(crate) located: Option<SnapshotAnswer>,
}

/// The world.
pub struct World {
    /// What the run is made of.
    pub swarm: Swarm,
    /// Chance.
    pub random: SplitMix,
    /// What happens next.
    pub schedule: Schedule<Event>,
    /// What happened.
    pub trace: Trace,
    /// The network.
    pub network: Network,
    /// The server.
    pub server: Server,
    /// The databases' processes.
    pub databases: Vec<Database>,
    /// The clients.
    pub clients: Vec<Client>,
    /// What is known to be true.
    pub oracle: Oracle,
    /// Whether faults are over.
    pub healed: bool,
    /// Whether everything must be read again because the server started anew.
    pub verify_due: bool,
    /// The stream of each database, as it is bound.
    pub(crate) bound: Vec<BoundStream>,
    pub(crate) calls: BTreeMap<u64, Call>,
    pub(crate) outstanding: BTreeMap<Party, u64>,
    pub(crate) executions: BTreeMap<u64, Execution>,
    pub(crate) next: u64,
    pub(crate) turn_due: bool,
    /// A copy of the server's files, with what was known when it was taken.
    pub(crate) copy: Option<(SimDisk, Memory)>,
    sync_due: bool,
}

impl World {
    /// A world in which the server is up and the databases are bound, and nothing went wrong yet.
    /// # Errors
    /// A promise that is broken without any fault.
    pub fn new(seed: u64, print: bool) -> Checked<Self> {
        let mut random = SplitMix::new(seed);
        let swarm = Swarm::draw(&mut random);
        let server = Server::new(&swarm, random.next_u64());
        let mut world = Self {
            random,
            schedule: Schedule::default(),
            trace: Trace::new(print),
            network: Network::default(),
            server,
            databases: Vec::new(),
            clients: Vec::new(),
            oracle: Oracle::default(),
            healed: false,
            verify_due: false,
            bound: Vec::new(),
            calls: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            executions: BTreeMap::new(),
            next: 0,
            turn_due: false,
            copy: None,
            sync_due: false,
            swarm,
        };
        world.trace.note(0, format_args!("seed {seed}: {:?}", world.swarm));
        world.populate()?;
        Ok(world)
    }

    fn populate(&mut self) -> Checked {
        let started = self.server.start()?;
        hold(Invariant::Heals, started.is_ok(), || format!("the first start failed: {started:?}"))?;
        self.server.sync();
        for index in 0..self.swarm.databases {
            let path = format!("databases/{index}");
            self.oracle.watch(&path, true);
            self.bind(index, &path)?;
        }
        let paths: Vec<String> = (0..self.swarm.streams).map(|index| format!("streams/{index}")).collect();
        paths.iter().for_each(|path| self.oracle.watch(path, false));
        for index in 0..self.swarm.producers {
            let path = paths[self.random.below(paths.len() as u64) as usize].clone();
            let id = format!("producer-{}", self.random.below(1 + index as u64));
            self.clients.push(Client::Producer(Producer::new(path, id)));
        }
        for _ in 0..self.swarm.visitors {
            self.clients.push(Client::Visitor(Visitor { paths: paths.clone() }));
        }
        self.clients.extend((0..self.swarm.publishers).map(|_| Client::Publisher(Publisher { paths: paths.clone() })));
        self.clients.extend((0..self.swarm.administrators).map(|_| Client::Administrator(Administrator)));
        for index in 0..self.clients.len() {
            self.schedule.after(self.random.below(50), Event::Act(Party::Client(index)));
        }
        for index in 0..self.databases.len() {
            self.schedule.after(0, Event::DatabaseStart(index));
            self.schedule.after(self.random.below(50), Event::Act(Party::Database(index)));
        }
        self.schedule.after(100, Event::ServerTick);
        self.schedule.after(10, Event::ServerCheckpoint);
        if self.swarm.fault_every_ms > 0 && !self.swarm.kinds.is_empty() {
            self.schedule.after(self.swarm.fault_every_ms, Event::Fault);
        }
        Ok(())
    }

    /// Makes a database's stream and binds the database to it, before anything goes wrong.
    fn bind(&mut self, index: usize, path: &str) -> Checked {
        let draft = &mut self.draft();
        let new_incarnation = highwater_base::Incarnation::issue(draft.random);
        let deed = crate::oracle::register::Deed::Create(new_incarnation, None);
        let write = draft.oracle.register.add(path, deed, None, false, bytes::Bytes::new());
        let create = Create {
            content_type: CONTENT_TYPE.to_owned(),
            closed: false,
            incarnation: None,
            new_incarnation,
            expiry: None,
            body: bytes::Bytes::new(),
        };
        self.oracle.arrived(write, self.server.wall(0));
        self.server.write(0, path.to_owned(), Operation::Create(create), 0);
        self.server.turn();
        self.server.sync();
        for (_, answer) in self.server.answers() {
            if let Answer::Write(answer) = answer {
                self.oracle.answered(write, &answer)?;
            }
        }
        self.oracle.look(&mut self.server, 0)?;
        let token = self.oracle.token(path);
        hold(Invariant::Heals, token == Some(new_incarnation), || format!("{path} was not made: {token:?}"))?;
        let stream = BoundStream {
            url: path.to_owned(),
            incarnation: new_incarnation,
            cluster_id: self.server.cluster_id().to_owned(),
            protocol: highwater_client::PROTOCOL,
            end: Offset(0),
        };
        let seed = self.random.next_u64();
        self.databases.push(Database::bound(index, path, &stream, self.swarm.page_size, seed, &mut self.oracle));
        self.bound.push(stream);
        Ok(())
    }

    fn draft(&mut self) -> Draft<'_> {
        Draft {
            wall: self.server.wall(self.schedule.now_ms()),
            oracle: &mut self.oracle,
            random: &mut self.random,
            body_bytes_max: self.swarm.body_bytes_max,
            expires: self.swarm.expires,
        }
    }

    /// Virtual milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.schedule.now_ms()
    }

    /// Lets the next thing happen; `false` if nothing ever will.
    /// # Errors
    /// The promise that broke.
    pub fn step(&mut self) -> Checked<bool> {
        let Some(event) = self.schedule.take() else { return Ok(false) };
        self.server.at(self.schedule.now_ms());
        match event {
            Event::Arrive(call, returns) => self.arrive(call, returns),
            Event::Answer(call, reply) => self.answer(call, &reply)?,
            Event::GiveUp(call) => self.give_up(call)?,
            Event::ServerTurn => {
                self.turn_due = false;
                self.server.turn();
                self.after_server()?;
            }
            Event::ServerSync => {
                self.sync_due = false;
                self.server.sync();
                self.after_server()?;
            }
            Event::ServerCheckpoint => {
                let done = self.server.checkpoint();
                if done > 0 {
                    self.trace.meet("a checkpoint moved payload");
                    self.trace.note(self.schedule.now_ms(), format_args!("{done} checkpoints"));
                }
                self.after_server()?;
                let delay_ms = 1 + self.random.below(100);
                self.schedule.after(delay_ms, Event::ServerCheckpoint);
            }
            Event::ServerTick => {
                self.server.tick()?;
                self.after_server()?;
                self.schedule.after(100, Event::ServerTick);
            }
            Event::ServerFetch(execution) => self.fetch(execution)?,
            Event::ServerStart => self.start_server()?,
            Event::Act(party) => self.act(party)?,
            Event::Replicate(index) => self.replicate(index)?,
            Event::DatabaseStart(index) => {
                if !self.databases[index].is_up() {
                    self.with_database(index, |database, context| database.start(context))?;
                    if !self.databases[index].is_up() && self.databases[index].retired().is_none() {
                        self.schedule.after(200, Event::DatabaseStart(index));
                    }
                }
            }
            Event::Fault => self.fault()?,
            Event::Space(None) => self.server.disk.set_capacity(None),
            Event::Space(Some(index)) => self.databases[index].disk.set_capacity(None),
        }
        Ok(true)
    }

    /// After anything that the server did: answers leave, the streams are looked at, and it may have died.
    pub(crate) fn after_server(&mut self) -> Checked {
        if let Some(death) = self.server.must_die() {
            return self.server_dies(death, "its disk or its log failed");
        }
        let answers = self.server.answers();
        self.take_answers(answers)?;
        if self.server.sync_waits() && !self.sync_due {
            self.sync_due = true;
            self.schedule.after(self.random.below(6), Event::ServerSync);
        }
        if self.verify_due && self.server.serves() {
            self.verify_due = !self.oracle.verify(&mut self.server, self.schedule.now_ms())?;
            let extra = self.server.answers();
            self.take_answers(extra)?;
        }
        Ok(())
    }

    fn act(&mut self, party: Party) -> Checked {
        let (quiet, now_ms) = (self.healed, self.schedule.now_ms());
        match party {
            Party::Client(index) => {
                if !self.outstanding.contains_key(&party) {
                    let mut draft = Draft {
                        wall: self.server.wall(now_ms),
                        oracle: &mut self.oracle,
                        random: &mut self.random,
                        body_bytes_max: self.swarm.body_bytes_max,
                        expires: self.swarm.expires,
                    };
                    let asked = self.clients[index].act(quiet, &mut draft);
                    if let Some(ask) = asked {
                        self.trace.note(now_ms, format_args!("{party:?} asks {}", ask.describe()));
                        self.send(party, ask);
                    }
                }
            }
            Party::Database(index) => {
                let running = now_ms >= self.databases[index].paused_until_ms;
                if running {
                    self.with_database(index, |database, context| {
                        database.act(quiet, context);
                        Ok(())
                    })?;
                }
            }
        }
        let delay_ms = 1 + self.random.below(2 * self.swarm.latency_ms + 20);
        self.schedule.after(delay_ms, Event::Act(party));
        Ok(())
    }

    fn replicate(&mut self, index: usize) -> Checked {
        self.with_database(index, |_, _| Ok(()))
    }

    /// Does something with a database, and whatever follows from it.
    pub(crate) fn with_database(
        &mut self,
        index: usize,
        does: impl FnOnce(&mut Database, &mut Context<'_>) -> Checked,
    ) -> Checked {
        let (now_ms, mut asks) = (self.schedule.now_ms(), Vec::new());
        let was_up = self.databases[index].is_up();
        let database = &mut self.databases[index];
        let (oracle, trace) = (&mut self.oracle, &mut self.trace);
        let mut context = Context { now_ms, oracle, trace, asks: &mut asks };
        does(database, &mut context)?;
        if now_ms >= database.paused_until_ms && !database.disk.stopped() {
            database.carry_out(&mut context)?;
        }
        if let Some(death) = database.must_die() {
            context.trace.note(now_ms, format_args!("{} dies: {death:?}", database.name()));
            database.die(death);
        }
        let wait_ms = match database.deadline_ms() {
            _ if now_ms < database.paused_until_ms => Some(database.paused_until_ms - now_ms),
            Some(at) => Some(at.saturating_sub(now_ms).max(1)),
            None => None,
        };
        if let Some(wait_ms) = wait_ms {
            self.schedule.after(wait_ms, Event::Replicate(index));
        }
        if was_up && !self.databases[index].is_up() {
            self.outstanding.remove(&Party::Database(index));
            self.schedule.after(20 + self.random.below(500), Event::DatabaseStart(index));
            return Ok(());
        }
        for ask in asks {
            self.send(Party::Database(index), ask);
        }
        Ok(())
    }

    /// The server goes down, and comes up again after a while.
    pub(crate) fn server_dies(&mut self, death: crate::server::Death, why: &str) -> Checked {
        self.trace.note(self.schedule.now_ms(), format_args!("the server dies ({death:?}): {why}"));
        if self.server.disk.stopped() {
            self.trace.meet("the server died in the middle of a write");
        } else if self.server.must_die().is_some() {
            self.trace.meet("the server's log failed");
        }
        if death == crate::server::Death::Power {
            self.trace.meet("the server's machine lost power");
        }
        self.server.die(death);
        self.server_is_down();
        Ok(())
    }

    pub(crate) fn server_is_down(&mut self) {
        self.verify_due = true;
        self.oracle.server_died();
        for (_, execution) in std::mem::take(&mut self.executions) {
            if execution.write.is_some() {
                self.trace.meet("a write's outcome was unknown");
            }
            // A connection that breaks tells the other end, sooner or later.
            if self.random.below(2) == 0 && execution.returns == Return::Plain {
                let delay_ms = 1 + self.random.below(self.swarm.latency_ms + 1);
                let reply = execution.ask.unanswered("the connection broke");
                self.schedule.after(delay_ms, Event::Answer(execution.call, Box::new(reply)));
            }
        }
        self.schedule.after(20 + self.random.below(2_000), Event::ServerStart);
    }

    fn start_server(&mut self) -> Checked {
        if self.server.is_up() {
            return Ok(());
        }
        let started = self.server.start()?;
        let now_ms = self.schedule.now_ms();
        self.trace.note(now_ms, format_args!("the server starts: {started:?}"));
        if started.is_err() {
            self.trace.meet("the server did not start at once");
            if self.server.disk.stopped() {
                self.server.die(self.server.death_at_stop);
            } else {
                self.server.die(crate::server::Death::Process);
            }
            self.schedule.after(100, Event::ServerStart);
            return Ok(());
        }
        self.after_server()
    }

    /// Whoever asked is gone; an answer finds nobody.
    pub(crate) fn forget_request(&mut self, party: Party) {
        self.outstanding.remove(&party);
    }

    /// Whether a party waits for an answer.
    #[must_use]
    pub fn waits(&self, party: Party) -> bool {
        self.outstanding.contains_key(&party)
    }

    /// The hash of everything that happened, the disks' operations among it.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut trace = Trace::default();
        trace.mix(self.trace.hash());
        trace.mix(self.server.disk.trace_hash());
        self.databases.iter().for_each(|database| trace.mix(database.disk.trace_hash()));
        trace.hash()
    }

    /// Reports a promise that is not kept in the end.
    #[must_use]
    pub fn unhealed(&self, what: &str) -> Violation {
        let databases: Vec<_> = self.databases.iter().map(Database::describe).collect();
        let seen = format!("{what} at {} ms; {databases:#?}", self.now_ms());
        Violation { invariant: Invariant::Heals, seen }
    }
}
