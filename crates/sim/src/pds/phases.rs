//! A run: faults, healing, and the search for everything that anybody was told.

use super::starts::told;
use super::world::World;
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::run::{Failure, Report};
use crate::server::Death;
use highwater_base::Millis;
use highwater_pds::{Account, Position};

/// Messages that a consumer reads at the most in the end.
const READ_MAX: usize = 1 << 20;

/// How a person runs a seed again.
fn replay(seed: u64) -> String {
    format!("replay: HIGHWATER_SIM_PDS_SEED={seed} cargo test -p highwater-sim --test sim random -- --nocapture")
}

/// Says which seed it was if something panics in a run.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} of the accounts panicked; {}", self.0, replay(self.0));
        }
    }
}

/// Runs the world of accounts of a seed to its end; `print` shows the trace as it comes.
/// # Errors
/// The first promise that broke.
pub fn run(seed: u64, print: bool) -> Result<Report, Box<Failure>> {
    let _named = Named(seed);
    let mut world = World::new(seed, print);
    let began = world.server.clocks.true_ms();
    match live(&mut world) {
        Ok(()) => Ok(Report {
            seed,
            hash: world.trace.hash(),
            events: world.trace.events(),
            elapsed_ms: world.server.clocks.true_ms() - began,
            commits: world.seen.numbers().len() as u64,
            met: world.trace.met().clone(),
            verified_bytes: 0,
        }),
        Err(violation) => Err(Box::new(Failure { seed, violation, lines: world.trace.lines(), replay: replay(seed) })),
    }
}

fn live(world: &mut World) -> Checked {
    world.start()?;
    for _ in 0..world.swarm.steps {
        world.step()?;
    }
    heal(world)?;
    converge(world)?;
    scan(world)
}

/// Faults are over: the disk has space and does what it should, the clock is right, and the server runs.
pub(crate) fn heal(world: &mut World) -> Checked {
    world.note(format_args!("the faults are over"));
    world.healed = true;
    for _ in 0..3 {
        world.server.disk.clear_faults();
        world.server.disk.set_capacity(None);
        world.server.clocks.set_behind(0);
        world.bury()?;
        if world.server.process.is_none() {
            world.server.clocks.pass(10_000);
            world.start()?;
        }
    }
    if world.server.process.is_none() {
        return violated(Invariant::Heals, "the server does not start");
    }
    world.settle()?;
    if world.untold() {
        // What found no room on the full disk is told by the next start.
        world.stop()?;
        world.start()?;
        hold(Invariant::Heals, !world.untold(), || "a start leaves something untold".to_owned())?;
    }
    Ok(())
}

/// Everybody who follows ends with what the server has: with what was sent so far, and with one more write of each account.
pub(crate) fn converge(world: &mut World) -> Checked {
    read_everything(world)?;
    for place in 0..world.observers.len() {
        let observer = &world.observers[place];
        if !observer.missed && !observer.is_partial() {
            agrees(world, place, true)?;
        }
    }
    world.write_everywhere()?;
    world.settle()?;
    read_everything(world)?;
    for place in 0..world.observers.len() {
        let whole = !world.observers[place].is_partial();
        agrees(world, place, whole)?;
    }
    Ok(())
}

pub(crate) fn read_everything(world: &mut World) -> Checked {
    let Some(host) = world.server.host().cloned() else { return Ok(()) };
    let now = Millis(world.server.clocks.true_ms());
    for observer in &mut world.observers {
        if !observer.is_connected() {
            observer.connect(&host, true, now)?;
        }
        observer.read(&world.server, READ_MAX)?;
    }
    Ok(())
}

/// Whether a consumer holds what the server has, of all accounts or of the active ones.
fn agrees(world: &World, place: usize, of_all: bool) -> Checked {
    let Some(host) = world.server.host() else { return Ok(()) };
    let rows: Vec<Account> = host.state(|state| state.accounts.values().cloned().collect());
    for row in rows {
        let Some(position) = row.position() else { continue };
        let active = position == Position::Active;
        // A restore says nothing of an account that went elsewhere, even if the lost run said something new of it.
        let elsewhere = row.standing.decommissioned && world.copies.is_restored();
        if elsewhere || !active && !of_all {
            continue;
        }
        let seen = |what: String| format!("consumer {place}, {} at {position:?}: {what}", row.did);
        let Some(held) = world.observers[place].follower.account(&row.did) else {
            return violated(Invariant::FollowersConverge, seen("it knows nothing of it".into()));
        };
        hold(Invariant::FollowersConverge, held.position() == Some(told(position)), || {
            seen(format!("it was told {:?}", held.position()))
        })?;
        if !active {
            continue;
        }
        hold(Invariant::FollowersConverge, held.is_synchronized(), || seen("it is not synchronized".into()))?;
        let (theirs, ours) = (held.head(), row.head);
        let same = theirs.map(|head| (head.rev, head.commit, head.data))
            == ours.map(|head| (head.rev, head.commit, head.data));
        hold(Invariant::FollowersConverge, same, || seen(format!("it holds {theirs:?} and the server {ours:?}")))?;
        let records = held.records().map(|records| {
            let records = records.iter().map(|(path, record)| (path, &record.cid));
            records.eq(world.accounts.get(&row.id).iter().flat_map(|known| &known.settled.records))
        });
        hold(Invariant::FollowersConverge, records == Some(true), || seen("it holds other records".into()))?;
    }
    Ok(())
}

/// Power fails, and everything that anybody was ever told is looked for.
pub(crate) fn scan(world: &mut World) -> Checked {
    world.note(format_args!("the durability scan"));
    let Some(before) = world.standing() else { return Ok(()) };
    world.die(Death::Power)?;
    match world.server.start() {
        Ok(boot) => {
            world.check_start(&boot)?;
            world.check_silence(&before, &boot)
        }
        Err(error) => violated(Invariant::Heals, format!("it does not start: {error}")),
    }
}
