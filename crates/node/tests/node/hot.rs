//! Streams that are on disk alone: they answer like all others, only later.

use crate::harness::{Host, append, config_cold, create, delete};
use highwater_base::Offset;
use highwater_disk::sim::{EIO, Operation};
use highwater_node::shard::{Answer, Input};
use highwater_node::{GroupState, HotStatus, Unavailable};
use highwater_stream::{Outcome, PublishSnapshot, ReadFrom, Refusal, SnapshotSource};

const STREAMS: usize = 60;

fn path(number: usize) -> String {
    format!("bucket/{number}")
}

/// A host with streams of which none is in memory.
fn cold(seed: u64) -> Host {
    let mut host = Host::with(seed, config_cold());
    host.open().expect("an empty disk is initialised");
    for number in 0..STREAMS {
        host.create(&path(number));
        host.append(&path(number), path(number).as_bytes());
    }
    chill(&mut host);
    host
}

/// Lets everything leave memory.
fn chill(host: &mut Host) {
    for group in 0..2 {
        let token = host.token();
        let pin = Input::Pin { token, group: highwater_base::GroupId(group) };
        assert!(host.ask(token, pin).is_none(), "answered by the checkpoint");
        host.node().checkpoint();
        assert!(matches!(host.answer(token), Some(Answer::Pin(Ok(_)))));
    }
    host.pass(500);
    assert_eq!(hot(host).streams, 0, "{:?}", hot(host));
}

/// What all groups have in memory.
fn hot(host: &mut Host) -> HotStatus {
    host.node().core().status().iter().fold(HotStatus::default(), |sum, group| HotStatus {
        streams: sum.streams + group.hot.streams,
        bytes: sum.bytes + group.hot.bytes,
        loads: sum.loads + group.hot.loads,
        loads_us: sum.loads_us + group.hot.loads_us,
        evictions: sum.evictions + group.hot.evictions,
    })
}

fn streams(host: &mut Host) -> u64 {
    host.node().core().status().iter().map(|group| group.streams).sum()
}

#[test]
fn a_stream_on_disk_alone_is_read_written_deleted_and_made_again() {
    let mut host = cold(1);
    assert_eq!(streams(&mut host), STREAMS as u64, "they are counted all the same");
    for restart in [false, true] {
        if restart {
            host.power_off();
            host.open().expect("what was synced is there");
            assert_eq!(hot(&mut host).streams, 0, "a restart keeps nothing that has no room");
        }
        let before = hot(&mut host).loads;
        for number in (0..STREAMS).step_by(7) {
            let path = path(number);
            assert_eq!(host.content(&path).map(|bytes| bytes.starts_with(path.as_bytes())), Some(true));
            let end = host.head(&path).expect("it is there").next;
            assert_eq!(host.append(&path, b"more").0, end);
            let again = host.issue();
            assert!(matches!(host.done(&path, create(again, b"")), Outcome::Matched(_)));
        }
        assert!(hot(&mut host).loads > before, "{:?}", hot(&mut host));
        assert_eq!(host.head("bucket/none"), Err(Refusal::StreamNotFound));
        chill(&mut host);
    }
    host.done(&path(3), delete());
    assert_eq!(host.head(&path(3)), Err(Refusal::StreamNotFound));
    chill(&mut host);
    assert_eq!(host.content(&path(3)), None, "it does not come back from the index");
    host.create(&path(3));
    assert_eq!(host.content(&path(3)), Some(Vec::new()));
    chill(&mut host);
    assert_eq!((host.content(&path(3)), streams(&mut host)), (Some(Vec::new()), STREAMS as u64));
}

/// Everything about one stream is answered in its order, and another stream does not wait for it.
#[test]
fn what_waits_for_a_stream_keeps_its_order() {
    let mut host = cold(2);
    host.node().hold_loads(true);
    let (first, one) = host.proposal(&path(5), append(b"one"));
    let (second, two) = host.proposal(&path(5), append(b"two"));
    let reader = host.token();
    let read = Input::Read { token: reader, request: Host::read_request(&path(5), ReadFrom::Start) };
    let header = host.token();
    let head = Input::Head { token: header, path: path(5), at: host.wall() };
    host.node().turn([one, two]);
    host.node().sync();
    host.node().turn([read, head]);
    assert!(host.node().loads_waiting());
    for token in [first, second, reader, header] {
        assert!(host.answer(token).is_none(), "nobody knows the stream yet");
    }
    assert_eq!(host.node().load(), 1, "one trip for all of them");
    let start = path(5).len() as u64;
    for (token, from) in [(first, start), (second, start + 3)] {
        match host.answer(token) {
            Some(Answer::Write(Ok(answer))) => {
                assert!(matches!(answer.result, Ok(Outcome::Appended { start, .. }) if start == Offset(from)));
            }
            other => panic!("{other:?}"),
        }
    }
    let answer = host.answer(reader).expect("answered");
    let body = host.fetch(answer).expect("serves").expect("is there").body;
    assert_eq!(&body[..], [path(5).as_bytes(), b"onetwo"].concat());
    assert!(matches!(host.answer(header), Some(Answer::Head(Ok(Ok(head)))) if head.next == Offset(start + 6)));
}

/// What a write lacks is on its way before its entry is durable.
#[test]
fn a_write_looks_its_stream_up_while_the_log_is_synced() {
    let mut host = cold(3);
    host.node().hold_loads(true);
    let (token, input) = host.proposal(&path(8), append(b"more"));
    host.node().turn([input]);
    assert!(host.node().loads_waiting() && host.node().appends_waiting() == 1);
    assert_eq!(host.node().load(), 1);
    // Here nothing stays in memory for longer than somebody waits for it.
    host.node().hold_loads(false);
    host.node().sync();
    assert!(matches!(host.answer(token), Some(Answer::Write(Ok(answer))) if answer.result.is_ok()));
}

#[test]
fn a_snapshot_of_a_stream_on_disk_alone_is_served_replaced_and_deleted() {
    let mut host = cold(4);
    let publish = |host: &mut Host, offset: u64| {
        let part = host.issue();
        highwater_stream::Operation::PublishSnapshot(PublishSnapshot {
            incarnation: None,
            offset: Offset(offset),
            digest: highwater_base::Digest::of(&offset.to_le_bytes()),
            digest_matches: true,
            content_type: "text/plain".to_owned(),
            source: SnapshotSource::Body { part, body: bytes::Bytes::from_static(b"everything so far") },
        })
    };
    for offset in [1, 3, 5] {
        let operation = publish(&mut host, offset);
        host.done(&path(9), operation);
        chill(&mut host);
        let head = host.head(&path(9)).expect("it is there");
        assert_eq!(head.snapshot.map(|snapshot| snapshot.offset), Some(Offset(offset)));
    }
    chill(&mut host);
    host.done(&path(9), delete());
    chill(&mut host);
    assert_eq!(host.head(&path(9)), Err(Refusal::StreamNotFound));
    assert!(host.node().scrub().faults.is_empty());
    host.power_off();
    host.open().expect("names, parts and streams agree");
    assert_eq!(streams(&mut host), STREAMS as u64 - 1);
}

/// A read of the index that fails is tried again, at once and then later; who waits hears nothing of it.
#[test]
fn an_index_that_could_not_be_read_is_read_again() {
    let mut host = cold(5);
    host.disk.fail_next(Operation::Read, "index");
    assert!(host.head(&path(2)).is_ok());
    host.disk.fail(Operation::Read, "index", 0, 3, EIO);
    let token = host.token();
    let head = Input::Head { token, path: path(1), at: host.wall() };
    assert!(host.ask(token, head).is_none(), "the read of the index failed");
    host.pass(1_000);
    assert!(matches!(host.answer(token), Some(Answer::Head(Ok(Ok(_))))));
}

/// One that cannot be read at all stops its group: nothing of it is answered from what happens to be in memory.
#[test]
fn a_group_whose_index_does_not_read_stops_and_says_why() {
    let mut host = cold(6);
    let (token, write) = host.proposal(&path(1), append(b"more"));
    host.disk.fail(Operation::Read, "index", 0, u64::MAX, EIO);
    assert!(host.ask(token, write).is_none());
    host.pass(5_000);
    let unknown = Unavailable::OutcomeUnknown { leadership_lost: false };
    assert!(matches!(host.answer(token), Some(Answer::Write(Err(why))) if why == unknown));
    let states: Vec<GroupState> = host.node().core().status().into_iter().map(|group| group.state).collect();
    let stopped = states.iter().filter(|state| matches!(state, GroupState::Stopped(why) if why.contains("index")));
    assert_eq!(stopped.count(), 1, "{states:?}");
}
