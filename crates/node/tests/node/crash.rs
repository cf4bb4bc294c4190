//! The crash matrix: a script of writes, stopped at every operation on the disk, then the power fails.
//!
//! Afterwards every acknowledged write is there with its receipt, a write without an answer is there whole or not at
//! all and can be repeated, and a deleted stream stays deleted.

use crate::harness::{Host, Written, create, delete, keyed, receipt};
use highwater_base::Incarnation;
use highwater_stream::{Operation, Outcome, Receipt, Refusal};
use std::collections::BTreeMap;

/// One step of the script. Every write can be repeated until it is answered.
#[derive(Debug, Clone, Copy)]
enum Step {
    Create(&'static str),
    /// A keyed append of so many bytes, with this sequence number.
    Append(&'static str, u64, usize),
    Close(&'static str, u64),
    Delete(&'static str),
    Checkpoint,
}

const SCRIPT: [Step; 22] = [
    Step::Create("a"),
    Step::Append("a", 0, 10),
    Step::Create("b"),
    Step::Append("b", 0, 40_000),
    Step::Append("a", 1, 5_000),
    Step::Append("b", 1, 30_000),
    Step::Checkpoint,
    Step::Append("a", 2, 3),
    Step::Delete("b"),
    Step::Create("c"),
    Step::Append("c", 0, 45_000),
    Step::Append("a", 3, 25_000),
    Step::Checkpoint,
    Step::Append("a", 4, 1),
    Step::Create("b"),
    Step::Append("b", 0, 7),
    Step::Append("c", 1, 50_000),
    Step::Append("c", 2, 50_000),
    Step::Checkpoint,
    Step::Close("c", 3),
    Step::Append("a", 5, 60_000),
    Step::Checkpoint,
];

fn body(path: &str, seq: u64, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(7) ^ path.as_bytes()[0] ^ (seq as u8)).collect()
}

fn operation(step: Step, token: Incarnation) -> Option<(&'static str, Operation)> {
    Some(match step {
        Step::Create(path) => (path, create(token, b"")),
        Step::Append(path, seq, length) => (path, keyed(Some(("p", 1, seq)), &body(path, seq, length), false)),
        Step::Close(path, seq) => (path, keyed(Some(("p", 1, seq)), b"", true)),
        Step::Delete(path) => (path, delete()),
        Step::Checkpoint => return None,
    })
}

/// What streams hold after some steps, and the last receipt of each.
#[derive(Debug, Default, Clone)]
struct Model {
    streams: BTreeMap<&'static str, (Vec<u8>, Option<Receipt>)>,
}

impl Model {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Create(path) => {
                self.streams.insert(path, (Vec::new(), None));
            }
            Step::Append(path, seq, length) => {
                let stream = self.streams.get_mut(path).expect("the script creates it first");
                stream.0.extend(body(path, seq, length));
            }
            Step::Delete(path) => {
                self.streams.remove(path);
            }
            Step::Close(..) | Step::Checkpoint => {}
        }
    }
}

/// Runs the script from step `from` until an answer fails to come; returns the step that has none.
fn run(host: &mut Host, from: usize, model: &mut Model) -> usize {
    for (number, step) in SCRIPT.iter().enumerate().skip(from) {
        let token = host.issue();
        let Some((path, operation)) = operation(*step, token) else {
            host.node().checkpoint();
            if host.disk.stopped() {
                return number + 1;
            }
            continue;
        };
        match host.try_write(path, operation) {
            Some(Ok(answer)) => acknowledged(*step, answer.result, model),
            Some(Err(_)) | None => return number,
        }
        // Checkpoints that became due are run where the script says so; those at a full log are not waited for.
    }
    SCRIPT.len()
}

fn acknowledged(step: Step, result: Result<Outcome, Refusal>, model: &mut Model) {
    match (step, result) {
        (Step::Create(_), Ok(Outcome::Created(_) | Outcome::Matched(_)))
        | (Step::Delete(_), Ok(Outcome::Deleted) | Err(Refusal::StreamNotFound)) => model.apply(step),
        (Step::Append(path, ..) | Step::Close(path, _), Ok(outcome)) => {
            let (receipt, _) = receipt(&outcome).unwrap_or_else(|| panic!("{step:?}: {outcome:?}"));
            model.apply(step);
            model.streams.get_mut(path).expect("it is there").1 = Some(receipt);
        }
        (step, result) => panic!("{step:?} was answered with {result:?}"),
    }
}

/// The streams are as the model says, or as it says after `unanswered` too.
fn check(host: &mut Host, model: &Model, unanswered: Option<Step>, what: &str) {
    let mut after = model.clone();
    if let Some(step) = unanswered {
        after.apply(step);
    }
    for path in ["a", "b", "c"] {
        let found = host.content(path);
        let expected = [model, &after].map(|m| m.streams.get(path).map(|(content, _)| content.clone()));
        assert!(expected.contains(&found), "{what}: {path} holds {:?} bytes", found.map(|c| c.len()));
    }
    // The newest acknowledged write of each stream, repeated, gets its receipt again.
    for (path, (_, kept)) in &model.streams {
        let Some(kept) = kept else { continue };
        let newest = unanswered.is_none_or(
            |step| !matches!(step, Step::Append(p, ..) | Step::Close(p, _) | Step::Delete(p) if p == *path),
        );
        if newest {
            repeat(host, path, kept, what);
        }
    }
}

fn repeat(host: &mut Host, path: &str, kept: &Receipt, what: &str) {
    let bytes = body(path, kept.seq, usize::try_from(kept.next.since(kept.start)).expect("small"));
    let again: Written = host.write(path, keyed(Some(("p", kept.epoch, kept.seq)), &bytes, kept.closed_stream));
    let again = again.unwrap_or_else(|error| panic!("{what}: {path}: {error}"));
    assert_eq!(again.result, Ok(Outcome::Repeated(kept.clone())), "{what}: {path}");
}

/// Runs the script, stopped at `stop`; after the power failure, checks, finishes the script and checks again.
fn crash_at(stop: u64, seed: u64, again: Option<u64>) {
    let what = format!("stopped at {stop}, seed {seed}, again {again:?}");
    let mut host = Host::serving(seed);
    let base = host.disk.operations();
    host.disk.stop_at(base + stop);
    let mut model = Model::default();
    let reached = run(&mut host, 0, &mut model);
    host.power_off();
    if let Some(again) = again {
        // It dies once more while it recovers.
        host.disk.stop_at(host.disk.operations() + again);
        drop(host.open());
        host.power_off();
    }
    host.open().unwrap_or_else(|error| panic!("{what}: {error}"));
    for group in host.node().core().status() {
        assert_eq!(group.state, highwater_node::GroupState::Serving, "{what}");
    }
    check(&mut host, &model, SCRIPT.get(reached).copied(), &what);
    let end = run(&mut host, reached, &mut model);
    assert_eq!(end, SCRIPT.len(), "{what}: the script does not finish after the crash");
    check(&mut host, &model, None, &what);
}

/// Operations on the disk that the whole script takes.
fn operations(seed: u64) -> u64 {
    let mut host = Host::serving(seed);
    let base = host.disk.operations();
    let mut model = Model::default();
    assert_eq!(run(&mut host, 0, &mut model), SCRIPT.len());
    check(&mut host, &model, None, "without a crash");
    host.disk.operations() - base
}

#[test]
fn a_power_failure_at_any_operation_loses_nothing_acknowledged() {
    let all = operations(11);
    assert!(all > 40, "{all}");
    // Two hundred points of it, and different fates of what was not synced.
    let step = all.div_ceil(200);
    for stop in (1..=all).step_by(usize::try_from(step).expect("small")) {
        crash_at(stop, 11 + stop % 5, None);
    }
}

#[test]
fn a_second_power_failure_during_the_recovery_loses_nothing_either() {
    let all = operations(23);
    for i in 0..60 {
        crash_at(1 + i * all / 60, 23 + i, Some(1 + i % 9));
    }
}

#[test]
fn one_seed_gives_one_run() {
    let trace = |seed| {
        let mut host = Host::serving(seed);
        run(&mut host, 0, &mut Model::default());
        host.disk.trace_hash()
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}
