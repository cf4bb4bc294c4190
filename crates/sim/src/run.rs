//! A run: the safety phase, the liveness phase, and the durability scan.

use crate::invariants::{Checked, Invariant, Violation, hold};
use crate::message::Party;
use crate::server::Death;
use crate::world::{Event, World};
use std::collections::BTreeMap;
use std::fmt;

/// Virtual milliseconds in which everything must have converged: a blocked replicator looks every half minute.
const HEAL_MS: u64 = 240_000;
/// Events after which a healed world that has not converged never will.
const HEAL_EVENTS: u64 = 60_000;

/// Milliseconds after which every stream that can end by itself has ended: more than a clock ever jumps back in a run.
const RUN_OUT_MS: i64 = 10 * 365 * 24 * 3_600_000;
/// Tenths of a second after which all of them are removed.
const RUN_OUT_TICKS: u32 = 30;

/// What a clean run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The hash of everything that happened.
    pub hash: u64,
    /// Events.
    pub events: u64,
    /// Virtual milliseconds.
    pub elapsed_ms: u64,
    /// Commits that are whole in the databases' streams.
    pub commits: u64,
    /// What was met of [`crate::MEETINGS`], and how often.
    pub met: BTreeMap<&'static str, u64>,
    /// Bytes that were compared again after restarts.
    pub verified_bytes: u64,
}

/// A run that broke a promise.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The promise, and what was seen.
    pub violation: Violation,
    /// The end of the trace.
    pub lines: Vec<String>,
    /// How a person runs it again.
    pub replay: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {} broke {}", self.seed, self.violation)?;
        f.write_str(&self.replay)
    }
}

/// How a person runs a seed again.
fn replay(seed: u64) -> String {
    format!("replay: HIGHWATER_SIM_SEED={seed} cargo test -p highwater-sim --test sim random -- --nocapture")
}

/// Says which seed it was if something panics in a run: an assertion of production's code has no notion of seeds.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} panicked; {}", self.0, replay(self.0));
        }
    }
}

/// Runs the world of a seed to its end; `print` shows the trace as it comes.
/// # Errors
/// The first promise that broke.
pub fn run(seed: u64, print: bool) -> Result<Report, Box<Failure>> {
    let _named = Named(seed);
    let failed = |violation, lines| Box::new(Failure { seed, violation, lines, replay: replay(seed) });
    let mut world = World::new(seed, print).map_err(|violation| failed(violation, Vec::new()))?;
    match live(&mut world) {
        Ok(()) => Ok(Report {
            seed,
            hash: world.hash(),
            events: world.trace.events(),
            elapsed_ms: world.now_ms(),
            commits: world.bound.iter().filter_map(|b| world.oracle.batches(&b.url)).map(|b| b.lsn()).sum(),
            met: world.trace.met().clone(),
            verified_bytes: world.oracle.verified_bytes,
        }),
        Err(violation) => Err(failed(violation, world.trace.lines())),
    }
}

fn live(world: &mut World) -> Checked {
    for _ in 0..world.swarm.steps {
        if !world.step()? {
            break;
        }
    }
    heal(world);
    converge(world)?;
    scan(world)
}

/// Faults are over: what is down starts, what was full has space, and what is cut is joined again.
fn heal(world: &mut World) {
    world.trace.note(world.schedule.now_ms(), format_args!("the faults are over"));
    world.healed = true;
    world.network.heal();
    world.server.disk.set_capacity(None);
    world.server.disk.clear_faults();
    world.schedule.after(1, Event::ServerStart);
    for index in 0..world.databases.len() {
        let database = &mut world.databases[index];
        database.disk.set_capacity(None);
        database.disk.clear_faults();
        database.paused_until_ms = 0;
        world.schedule.after(1, Event::DatabaseStart(index));
        world.schedule.after(2, Event::Replicate(index));
    }
}

/// Lets the world go on until nobody waits for anything.
fn converge(world: &mut World) -> Checked {
    let deadline_ms = world.now_ms() + HEAL_MS;
    for _ in 0..HEAL_EVENTS {
        if converged(world) {
            break;
        }
        if world.now_ms() > deadline_ms {
            return Err(world.unhealed("the world has not converged"));
        }
        replace_retired(world)?;
        world.step()?;
    }
    if converged(world) { Ok(()) } else { Err(world.unhealed("the world does not converge")) }
}

/// Where every process of a database has lost its stream, its operator restores it once more.
fn replace_retired(world: &mut World) -> Checked {
    if !world.server.serves() {
        return Ok(());
    }
    for bound in world.bound.clone() {
        let processes = || world.databases.iter().filter(|database| database.stream == bound.url);
        if processes().all(|database| database.is_stopped())
            && let Some(index) = processes().map(|database| database.index).max()
            && world.oracle.batches(&bound.url).is_some_and(|batches| batches.lsn() > 0)
        {
            world.take_over(index)?;
        }
    }
    Ok(())
}

fn converged(world: &World) -> bool {
    let clients = world.clients.iter().enumerate();
    let idle = clients.clone().all(|(index, client)| client.is_done() && !world.waits(Party::Client(index)));
    let drained = world.databases.iter().all(|database| database.is_stopped() || database.is_drained());
    let owned = world.bound.iter().all(|bound| {
        let mut processes = world.databases.iter().filter(|database| database.stream == bound.url);
        processes.any(|database| !database.is_stopped())
            || world.oracle.batches(&bound.url).is_none_or(|batches| batches.lsn() == 0)
    });
    world.server.serves() && !world.server.sync_waits() && !world.verify_due && idle && drained && owned
}

/// Power fails everywhere, and everything that anyone was ever told is looked for.
fn scan(world: &mut World) -> Checked {
    world.trace.note(world.schedule.now_ms(), format_args!("the durability scan"));
    world.server_dies(Death::Power, "the durability scan")?;
    let started = world.server.start()?;
    hold(Invariant::Heals, started.is_ok(), || format!("the server does not start: {started:?}"))?;
    world.server.sync();
    let now_ms = world.now_ms();
    let verified = world.oracle.verify(&mut world.server, now_ms)?;
    hold(Invariant::AcknowledgedIsThere, verified, || "the server does not give what it has".to_owned())?;
    for index in 0..world.databases.len() {
        world.databases[index].die(Death::Power);
        world.with_database(index, |database, context| database.start(context))?;
        let database = &world.databases[index];
        hold(Invariant::Heals, database.is_up() || database.retired().is_some(), || database.describe())?;
    }
    for index in 0..world.bound.len() {
        world.take_over(index)?;
    }
    run_out(world)
}

/// Time passes until every stream that ends by itself has ended and every part is too old, and the server is held to
/// what is left.
fn run_out(world: &mut World) -> Checked {
    world.server.jump(RUN_OUT_MS);
    world.oracle.clock_jumped();
    for _ in 0..RUN_OUT_TICKS {
        world.server.tick()?;
        world.server.sync();
        let answers = world.server.answers();
        world.take_answers(answers)?;
    }
    let now_ms = world.now_ms();
    let verified = world.oracle.verify(&mut world.server, now_ms)?;
    hold(Invariant::AcknowledgedIsThere, verified, || "the server does not give what it has".to_owned())?;
    world.oracle.check_run_out(&world.server)
}
