//! Parts of snapshots and retention in the store, step by step.

use crate::harness::{Host, config, create};
use bytes::Bytes;
use highwater_base::{Incarnation, Millis, Offset};
use highwater_node::Config;
use highwater_node::shard::{Answer, Input, Proposal, SnapshotAbout, SnapshotAnswer, SnapshotQuestion};
use highwater_stream::{
    Operation, Outcome, PublishSnapshot, ReadFrom, Refusal, SnapshotHead, SnapshotPart, SnapshotSource,
};

const DAY_MS: u64 = 24 * 3_600_000;

fn one_group() -> Config {
    Config { groups: 1, ..config() }
}

fn stage(host: &mut Host, body: &[u8]) -> Incarnation {
    let part = host.issue();
    match host.done("s", Operation::StagePart { incarnation: None, part, body: Bytes::copy_from_slice(body) }) {
        Outcome::PartStaged { part, .. } => part,
        other => panic!("{other:?}"),
    }
}

fn ask(host: &mut Host, about: SnapshotAbout) -> Result<SnapshotAnswer, Refusal> {
    let token = host.token();
    let question = SnapshotQuestion { path: "s".to_owned(), incarnation: None, about };
    match host.ask(token, Input::Snapshot { token, question }) {
        Some(Answer::Snapshot(answer)) => answer.expect("the node serves"),
        other => panic!("{other:?}"),
    }
}

/// Whether all bytes of an object are planned.
fn stored(host: &mut Host, object: u64, length: u64) -> bool {
    let token = host.token();
    match host.ask(token, Input::Locate { token, path: "s".to_owned(), object, range: 0..length }) {
        Some(Answer::Located(Ok(located))) => located.plan.length() == length,
        other => panic!("{other:?}"),
    }
}

fn publish(parts: Vec<Incarnation>, offset: u64, fill: u8) -> Operation {
    Operation::PublishSnapshot(PublishSnapshot {
        incarnation: None,
        offset: Offset(offset),
        digest: highwater_base::Digest([fill; 32]),
        digest_matches: true,
        content_type: "text/plain".to_owned(),
        source: SnapshotSource::Parts(parts),
    })
}

/// Runs checkpoints until nothing lies in the log alone; the bytes that are stored then.
fn settle(host: &mut Host) -> u64 {
    for _ in 0..50 {
        host.append("filler", &[0; 30_000]);
        host.node().checkpoint();
    }
    let status = host.node().core().status();
    status.iter().map(|group| group.store_bytes + group.unmoved_bytes).sum()
}

/// A client that staged a gibibyte and never came back must not keep it.
#[test]
fn parts_that_no_snapshot_took_are_gone_after_a_day_and_their_space_with_them() {
    let mut host = Host::with(1, one_group());
    host.open().expect("an empty disk is initialised");
    host.create("s");
    host.create("filler");
    let parts: Vec<Incarnation> = (0..8).map(|number| stage(&mut host, &[number; 60_000])).collect();
    let before = settle(&mut host);
    let incarnation = host.head("s").expect("a stream").incarnation;
    for (days, left) in [(0, true), (2, false)] {
        let token = host.token();
        let at = Millis(1_000_000 + days * DAY_MS);
        let proposal = Proposal::new(at, "s".to_owned(), Operation::Expire { incarnation });
        assert!(matches!(host.ask(token, Input::Write { token, proposal }), Some(Answer::Write(Ok(_)))));
        let found = ask(&mut host, SnapshotAbout::Parts(parts.clone()));
        assert_eq!(found.is_ok(), left, "after {days} days: {found:?}");
        assert!(left || matches!(found, Err(Refusal::UnknownPart { .. })), "{found:?}");
        assert!(parts.iter().all(|part| stored(&mut host, part.get(), 60_000) == left), "after {days} days");
    }
    let after = settle(&mut host);
    assert!(after + 8 * 60_000 <= before + 50 * 30_000, "{before} bytes before, {after} after, with the filler's");
    host.kill();
    host.open().expect("what is stored and what streams name agree");
    assert!(matches!(ask(&mut host, SnapshotAbout::Parts(parts)), Err(Refusal::UnknownPart { .. })));
}

#[test]
fn a_snapshot_that_is_replaced_takes_its_parts_with_it_and_the_others_stay() {
    let mut host = Host::with(2, one_group());
    host.open().expect("an empty disk is initialised");
    host.create("s");
    host.create("filler");
    host.append("s", &[7; 1000]);
    let parts: Vec<Incarnation> = (0..3).map(|number| stage(&mut host, &[number; 50_000])).collect();
    host.done("s", publish(vec![parts[0], parts[1]], 10, 1));
    settle(&mut host);
    host.done("s", publish(vec![parts[2]], 20, 2));
    for when in ["at once", "after a checkpoint", "after a crash"] {
        match when {
            "after a checkpoint" => drop(settle(&mut host)),
            "after a crash" => {
                host.power_off();
                host.open().expect("what is stored and what streams name agree");
            }
            _ => {}
        }
        assert!(!stored(&mut host, parts[0].get(), 50_000) && !stored(&mut host, parts[1].get(), 50_000), "{when}");
        let latest = ask(&mut host, SnapshotAbout::Latest(Offset(20))).expect("the latest");
        let SnapshotAnswer::Latest(scope) = latest else { panic!("{latest:?}") };
        let part = SnapshotPart { object: parts[2].get(), length: 50_000 };
        assert_eq!((scope.parts, scope.length), (vec![part], 50_000), "{when}");
        assert!(stored(&mut host, part.object, 50_000), "{when}");
        let older = ask(&mut host, SnapshotAbout::Latest(Offset(10)));
        assert!(matches!(older, Err(Refusal::SnapshotNotFound { .. })), "{when}: {older:?}");
    }
    let known = ask(
        &mut host,
        SnapshotAbout::Publish(SnapshotHead { offset: Offset(20), digest: highwater_base::Digest([2; 32]) }),
    );
    assert!(matches!(known, Ok(SnapshotAnswer::Publish(Some(Outcome::Published { .. })))), "{known:?}");
}

/// The power fails anywhere in a life of staging, publishing and retaining: the store and the streams agree, and what was
/// acknowledged is there.
#[test]
fn snapshots_and_retention_survive_a_power_loss_at_every_operation() {
    // The rounds whose snapshot and whose retention were acknowledged.
    let life = |host: &mut Host, reached: &mut (u64, u64)| -> Option<()> {
        host.open().ok()?;
        let token = host.issue();
        host.try_write("s", create(token, b""))?.ok()?;
        for round in 1..5u64 {
            let operation = crate::harness::append(&[round as u8; 30_000]);
            host.try_write("s", operation)?.ok()?;
            let part = host.issue();
            let body = Bytes::from(vec![round as u8; 20_000]);
            host.try_write("s", Operation::StagePart { incarnation: None, part, body })?.ok()?;
            host.try_write("s", publish(vec![part], round * 10_000, round as u8))?.ok()?;
            reached.0 = round;
            let retain = Operation::Retain { incarnation: None, offset: Offset(round * 10_000) };
            host.try_write("s", retain)?.ok()?;
            reached.1 = round;
            host.node().checkpoint();
        }
        Some(())
    };
    let operations = {
        let mut host = Host::with(0, one_group());
        let mut reached = (0, 0);
        assert_eq!((life(&mut host, &mut reached), reached), (Some(()), (4, 4)));
        host.disk.operations()
    };
    let mut stops = 0;
    for stop in (1..=operations).step_by(3) {
        let mut host = Host::with(stop, one_group());
        host.disk.stop_at(stop);
        let mut reached = (0, 0);
        life(&mut host, &mut reached);
        host.power_off();
        host.open().unwrap_or_else(|error| panic!("stop {stop}: {error}"));
        let Ok(head) = host.head("s") else {
            assert_eq!(reached, (0, 0), "stop {stop}");
            continue;
        };
        stops += 1;
        let offset = head.snapshot.map_or(0, |snapshot| snapshot.offset.0);
        assert!(offset >= reached.0 * 10_000, "stop {stop}: the snapshot of round {} is lost", reached.0);
        assert!(head.retained.0 >= reached.1 * 10_000, "stop {stop}: round {} came back", reached.1);
        let content = host.try_read(Host::read_request("s", ReadFrom::At(head.retained))).expect("answered");
        let content = content.expect("the node serves").expect("readable");
        assert_eq!(content.next, head.next, "stop {stop}");
        if let Some(snapshot) = head.snapshot {
            assert!(head.retained <= snapshot.offset, "stop {stop}");
            let latest = ask(&mut host, SnapshotAbout::Latest(snapshot.offset)).expect("the latest");
            let SnapshotAnswer::Latest(scope) = latest else { panic!("{latest:?}") };
            assert!(scope.parts.iter().all(|part| stored(&mut host, part.object, part.length)), "stop {stop}");
        }
        let below = host.try_read(Host::read_request("s", ReadFrom::Start)).expect("answered").expect("serves");
        assert_eq!(below.is_err(), head.retained > Offset(0), "stop {stop}");
    }
    assert!(stops > 20, "{stops} of {operations} operations are no matrix");
}
