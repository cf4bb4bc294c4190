//! A data directory that was put back from an older copy.

use crate::harness::{Host, append, config, keyed, receipt};
use highwater_base::random::SplitMix;
use highwater_base::{Offset, limits};
use highwater_disk::Disk;
use highwater_node::config::Config;
use highwater_node::restored::{self, Mark};
use highwater_node::shard::{Answer, Input, Proposal};
use highwater_node::{GroupState, ReadRequest, Unavailable};
use highwater_stream::{Append, Operation, Outcome, ReadFrom, Refusal};
use std::path::Path;

const DATA: &str = "/data";

fn mark(host: &Host, seed: u64) {
    restored::mark(&host.disk, Path::new(DATA), &mut SplitMix::new(seed)).expect("a stopped server's directory");
}

fn marked(host: &Host) -> bool {
    Mark::read(&host.disk, Path::new(DATA)).expect("readable").is_some()
}

fn tokened(host: &mut Host, token: highwater_base::Incarnation, seq: u64) -> Result<Outcome, Refusal> {
    let Operation::Append(append) = keyed(Some(("owner", 1, seq)), format!("write {seq}").as_bytes(), false) else {
        panic!("an append")
    };
    let operation = Operation::Append(Append { incarnation: Some(token), ..append });
    host.write("db", operation).expect("serves").result
}

/// The story of every restore: an owner was told that its writes are safe, the disk was lost, and an older copy put in
/// its place. Without a word the owner's next write would be refused as a gap, or worse, other bytes would come to lie
/// under its offsets. Marked, the stream has another token, names what both histories share, and closes the epoch.
#[test]
fn an_older_copy_that_was_marked_begins_a_new_history() {
    let mut host = Host::serving(1);
    let token = host.create("db");
    for seq in 0..3 {
        assert!(tokened(&mut host, token, seq).is_ok());
    }
    let copy = host.disk.fork(77);
    let kept = host.head("db").expect("there").next;
    for seq in 3..6 {
        assert!(tokened(&mut host, token, seq).is_ok());
    }
    let lost = host.head("db").expect("there").next;
    assert!(lost > kept);
    // The newer directory is gone; the copy takes its place.
    let mut host = Host::on(copy, 2);
    mark(&host, 7);
    host.open().expect("it recovers");
    let head = host.head("db").expect("there");
    assert_ne!(head.incarnation, token);
    assert_eq!((head.next, head.previous), (kept, Some((token, kept))));
    assert_eq!(tokened(&mut host, token, 6), Err(Refusal::IncarnationMismatch { current: Some(head.incarnation) }));
    // Under the new token: what survived is repeated with its receipt, the rest is fenced at the last that survived.
    let again = tokened(&mut host, head.incarnation, 2).expect("a repeat");
    assert!(receipt(&again).is_some_and(|(receipt, repeat)| repeat && receipt.next == kept));
    for seq in [3, 6] {
        let fenced = tokened(&mut host, head.incarnation, seq);
        let Err(Refusal::EpochClosedByHistory { closed }) = fenced else { panic!("{fenced:?}") };
        assert_eq!((closed.epoch, closed.last_seq), (1, 2));
    }
    assert!(!marked(&host), "the mark is gone once every group has its history");
}

#[test]
fn every_stream_gets_another_token_once_and_no_start_afterwards_changes_it() {
    let mut host = Host::serving(3);
    let tokens: Vec<_> = (0..20).map(|n| (format!("s{n}"), host.create(&format!("s{n}")))).collect();
    host.kill();
    mark(&host, 9);
    host.open().expect("it recovers");
    let renewed: Vec<_> = tokens.iter().map(|(path, _)| host.head(path).expect("there").incarnation).collect();
    assert!(tokens.iter().zip(&renewed).all(|((_, before), after)| before != after));
    for _ in 0..2 {
        host.power_off();
        host.open().expect("it recovers");
        let now: Vec<_> = tokens.iter().map(|(path, _)| host.head(path).expect("there").incarnation).collect();
        assert_eq!(now, renewed);
    }
    assert!(host.node().core().status().iter().all(|group| group.history_events == 1));
}

/// Two restores of one copy end in two histories, even if the copy holds the mark of the first.
#[test]
fn the_same_copy_restored_twice_never_gives_one_token_to_two_histories() {
    let mut host = Host::serving(4);
    host.create("db");
    host.kill();
    mark(&host, 11);
    let copy = host.disk.fork(77);
    host.open().expect("it recovers");
    let first = host.head("db").expect("there").incarnation;
    host.done("db", append(b"in the first"));
    let mut host = Host::on(copy, 5);
    mark(&host, 12);
    host.open().expect("it recovers");
    let second = host.head("db").expect("there").incarnation;
    assert_ne!(first, second);
    host.done("db", append(b"in the second"));
}

/// Power fails at any moment of the start that follows a mark: the event happens once, and before anything is served.
#[test]
fn a_crash_while_the_history_is_recorded_leaves_one_event() {
    for steps in 1..13 {
        let mut host = Host::serving(6);
        let token = host.create("db");
        host.power_off();
        mark(&host, 13);
        host.disk.stop_at(host.disk.operations() + steps);
        let opened = host.open();
        if opened.is_ok() && !host.disk.stopped() {
            break;
        }
        host.power_off();
        host.open().expect("it recovers");
        let head = host.head("db").expect("there");
        assert_ne!(head.incarnation, token, "after {steps} steps");
        assert_eq!(head.previous, Some((token, Offset(0))));
        assert!(host.node().core().status().iter().all(|group| group.history_events == 1), "after {steps} steps");
        assert!(!marked(&host));
    }
}

/// Nothing is answered between the start and the event: neither from the old history nor from a guess.
#[test]
fn requests_before_the_event_is_recorded_are_told_to_come_again() {
    let mut host = Host::serving(7);
    host.create("db");
    host.kill();
    mark(&host, 14);
    host.open_unsynced().expect("it recovers");
    assert!(host.node().core().status().iter().all(|group| group.state == GroupState::HistoryPending));
    assert!(host.node().core().refusals().iter().all(|why| *why == Some(Unavailable::HistoryPending)));
    assert!(!host.node().core().ready() && host.node().core().history_pending());
    let (token, input) = host.proposal("db", append(b"x"));
    host.node().turn([input]);
    assert!(matches!(host.answer(token), Some(Answer::Write(Err(Unavailable::HistoryPending)))));
    let token = host.token();
    let request = Host::read_request("db", ReadFrom::Start);
    host.node().turn([Input::Read { token, request }]);
    assert!(matches!(host.answer(token), Some(Answer::Read(Err(Unavailable::HistoryPending)))));
    host.node().sync();
    assert!(host.node().core().ready() && !host.node().core().history_pending());
    assert!(host.node().core().refusals().iter().all(Option::is_none));
}

/// A group that cannot be read cannot record its event. The others go on, and the mark stays for it.
#[test]
fn the_mark_stays_as_long_as_a_group_is_damaged() {
    let mut host = Host::with(8, Config { groups: 2, ..config() });
    host.open().expect("made");
    for n in 0..8 {
        host.create(&format!("s{n}"));
    }
    host.kill();
    let store = Path::new(DATA).join("store").join("g0");
    let index = host.disk.list(&store).expect("listed").into_iter().find(|name| name.starts_with("index-"));
    let path = store.join(index.expect("there is one"));
    let file = host.disk.open(&path, highwater_disk::OpenMode::Write).expect("opened");
    file.write_at(&[0xff; 64], 0).expect("written");
    mark(&host, 15);
    host.open().expect("the others serve");
    let states: Vec<_> = host.node().core().status().into_iter().map(|group| group.state).collect();
    assert!(matches!(states[0], GroupState::Damaged(_)) && states[1] == GroupState::Serving, "{states:?}");
    assert!(host.node().core().history_pending());
    assert!(marked(&host), "for the group that has not recorded it");
    assert!(host.node().core().ready(), "what can serve, serves");
}

/// Long-polls that wait when a history begins are told at once; their offsets belong to another history.
#[test]
fn waiting_readers_are_told_of_a_new_history() {
    let mut host = Host::with(9, Config { groups: 1, ..config() });
    host.open().expect("made");
    let before = host.create("db");
    let token = host.token();
    let wait_ms = Some(limits::LONG_POLL_MS_MAX);
    let request = ReadRequest { wait_ms, ..Host::read_request("db", ReadFrom::Now) };
    assert!(host.ask(token, Input::Read { token, request }).is_none(), "it waits");
    let event = host.token();
    let proposal = Proposal::new(host.wall(), String::new(), Operation::History { nonce: 5 });
    assert!(host.ask(event, Input::Write { token: event, proposal }).is_some());
    let answer = host.answer(token).expect("the reader is told");
    let Ok(Err(Refusal::IncarnationMismatch { current: Some(current) })) = host.fetch(answer) else {
        panic!("another history")
    };
    assert_ne!(current, before);
}
