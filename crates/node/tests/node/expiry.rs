//! Streams that end by themselves: who keeps one alive, and what is told of one that is over.

use crate::harness::{Host, append, create, delete, keyed};
use highwater_base::{Incarnation, Millis, Offset};
use highwater_node::ReadRequest;
use highwater_node::shard::{Answer, Input};
use highwater_stream::{Create, Expiry, Operation, Outcome, ReadFrom, Refusal};

fn expiring(new_incarnation: Incarnation, expiry: Expiry) -> Operation {
    match create(new_incarnation, b"hello") {
        Operation::Create(create) => Operation::Create(Create { expiry: Some(expiry), ..create }),
        other => other,
    }
}

/// A host with the stream `s`, whose window is two seconds.
fn sliding(seed: u64) -> Host {
    let mut host = Host::serving(seed);
    let token = host.issue();
    assert!(matches!(host.done("s", expiring(token, Expiry::Sliding { ttl_s: 2 })), Outcome::Created(_)));
    host
}

fn streams(host: &mut Host) -> u64 {
    host.node().core().status().iter().map(|group| group.streams).sum()
}

#[test]
fn a_stream_that_nobody_reaches_is_over_after_its_window_and_then_removed() {
    let mut host = sliding(1);
    host.pass(2_000);
    assert!(host.head("s").is_ok(), "it lives through its window");
    host.pass(300);
    assert_eq!(host.head("s"), Err(Refusal::StreamNotFound));
    assert_eq!(host.write("s", append(b"x")).map(|answer| answer.result), Ok(Err(Refusal::StreamNotFound)));
    assert_eq!(host.write("s", delete()).map(|answer| answer.result), Ok(Err(Refusal::StreamNotFound)));
    assert_eq!(host.content("s"), None);
    host.pass(1_200);
    assert_eq!(streams(&mut host), 0, "the sweep removes it");
}

/// HEAD only looks; reads and appends keep a stream, those too that change nothing.
#[test]
fn reads_and_appends_renew_a_window_and_head_does_not() {
    type Reach = fn(&mut Host);
    let reaches: [(&str, bool, Reach); 6] = [
        ("head", false, |host| drop(host.head("s"))),
        ("read", true, |host| drop(host.content("s"))),
        ("read of now", true, |host| drop(host.try_read(Host::read_request("s", ReadFrom::Now)))),
        ("append", true, |host| drop(host.write("s", append(b"x")))),
        ("close", true, |host| drop(host.write("s", keyed(None, b"", true)))),
        ("append with a gap", true, |host| drop(host.write("s", keyed(Some(("p", 0, 5)), b"x", false)))),
    ];
    for (what, renews, reach) in reaches {
        let mut host = sliding(2);
        for _ in 0..4 {
            host.pass(1_500);
            reach(&mut host);
        }
        assert_eq!(host.head("s").is_ok(), renews, "{what}");
    }
}

/// A close that repeats what is so renews too: the stream was reached.
#[test]
fn closing_a_closed_stream_again_renews_its_window() {
    let mut host = sliding(3);
    for _ in 0..4 {
        assert!(matches!(host.done("s", keyed(None, b"", true)), Outcome::Appended { closed: true, .. }));
        host.pass(1_500);
    }
    assert!(host.head("s").is_ok());
}

#[test]
fn a_stream_that_somebody_waits_for_does_not_expire() {
    let mut host = sliding(4);
    let token = host.token();
    let wait_ms = Some(20_000);
    let request = ReadRequest { wait_ms, ..Host::read_request("s", ReadFrom::Now) };
    assert!(host.ask(token, Input::Read { token, request }).is_none(), "it waits");
    host.pass(10_000);
    assert!(host.head("s").is_ok());
    assert!(host.answer(token).is_none(), "and still does");
    host.done("s", append(b"more"));
    let answer = host.answer(token).expect("it is woken");
    assert_eq!(host.fetch(answer).map(|read| read.map(|read| read.body.to_vec())), Ok(Ok(b"more".to_vec())));
    host.pass(4_000);
    assert_eq!(host.head("s"), Err(Refusal::StreamNotFound), "nobody waits any more");
}

#[test]
fn a_time_that_stands_is_not_moved_by_readers_and_ends_their_wait() {
    let mut host = Host::serving(5);
    let token = host.issue();
    let ends = host.wall().plus(2_000);
    host.done("s", expiring(token, Expiry::At(ends)));
    let (reader, wait_ms) = (host.token(), Some(30_000));
    let request = ReadRequest { wait_ms, ..Host::read_request("s", ReadFrom::Now) };
    assert!(host.ask(reader, Input::Read { token: reader, request }).is_none(), "it waits");
    host.pass(1_500);
    assert!(host.content("s").is_some());
    host.pass(1_500);
    assert_eq!(host.head("s"), Err(Refusal::StreamNotFound));
    let answer = host.answer(reader).expect("the reader is told");
    assert_eq!(host.fetch(answer), Ok(Err(Refusal::StreamNotFound)));
}

/// The published suite deletes nothing itself: it waits for the end of a stream and makes it anew at once.
#[test]
fn a_stream_made_where_one_is_over_is_another_one() {
    let mut host = sliding(6);
    let before = host.head("s").expect("there");
    host.pass(2_300);
    let token = host.issue();
    let Outcome::Created(created) = host.done("s", create(token, b"anew")) else { panic!("it is new") };
    assert_ne!(created.incarnation, before.incarnation);
    assert_eq!(created.next, Offset(4));
    assert_eq!(host.content("s").as_deref(), Some(&b"anew"[..]));
    assert_eq!(streams(&mut host), 1);
    host.pass(20_000);
    assert_eq!(host.content("s").as_deref(), Some(&b"anew"[..]), "the first one's end is not the second one's");
}

#[test]
fn settings_of_expiry_are_compared_when_a_stream_is_created_again() {
    let mut host = sliding(7);
    for (expiry, matches) in [
        (Some(Expiry::Sliding { ttl_s: 2 }), true),
        (Some(Expiry::Sliding { ttl_s: 3 }), false),
        (Some(Expiry::At(Millis(2))), false),
        (None, false),
    ] {
        let token = host.issue();
        let Operation::Create(plain) = create(token, b"") else { panic!("a create") };
        let answer = host.write("s", Operation::Create(Create { expiry, ..plain })).expect("serves");
        assert_eq!(matches!(answer.result, Ok(Outcome::Matched(_))), matches, "{expiry:?}");
    }
}

/// The server was down for longer than the window. Nobody could reach the stream meanwhile, so it gets one more.
#[test]
fn a_stream_has_a_whole_window_after_the_server_was_away() {
    let mut host = sliding(8);
    host.kill();
    host.skip(3_600_000);
    host.open().expect("it recovers");
    host.pass(1_500);
    assert_eq!(host.content("s").as_deref(), Some(&b"hello"[..]));
    host.pass(1_500);
    assert!(host.head("s").is_ok(), "the read renewed it");
    host.pass(2_000);
    assert_eq!(host.head("s"), Err(Refusal::StreamNotFound));
}

/// What was touched stays so through a crash: a window is no shorter for it.
#[test]
fn touches_survive_a_loss_of_power() {
    let mut host = sliding(9);
    for _ in 0..3 {
        host.pass(1_500);
        host.content("s");
        host.power_off();
        host.open().expect("it recovers");
    }
    host.pass(1_500);
    assert!(host.head("s").is_ok());
}

/// Eight touches a window, however often a stream is read.
#[test]
fn a_stream_that_is_read_all_the_time_costs_few_entries() {
    let mut host = sliding(10);
    let applied = |host: &mut Host| host.node().core().status().iter().map(|group| group.applied).sum::<u64>();
    let before = applied(&mut host);
    for _ in 0..200 {
        host.pass(100);
        host.content("s");
    }
    let entries = applied(&mut host) - before;
    assert!((60..=100).contains(&entries), "{entries} entries in ten windows");
}

#[test]
fn answers_to_nobody_are_not_kept() {
    let mut host = sliding(11);
    host.pass(10_000);
    let token = host.token();
    let answered = host.ask(token, Input::Head { token, path: "s".to_owned(), at: host.wall() });
    assert!(matches!(answered, Some(Answer::Head(Ok(Err(Refusal::StreamNotFound))))));
    assert!(host.node().core().idle(), "nothing of the sweep is left over");
}
