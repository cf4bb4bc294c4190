//! Reads: of more than memory, after a restart, and waiting ones.

use crate::harness::{Host, config, create, delete, keyed};
use highwater_base::{Offset, limits};
use highwater_node::config::Config;
use highwater_node::shard::{Answer, Input};
use highwater_node::{ReadAnswer, ReadRequest, Unavailable, WriteAnswer};
use highwater_stream::{ReadFrom, Refusal};

fn waiting(path: &str, from: ReadFrom, wait_ms: u64) -> ReadRequest {
    ReadRequest { wait_ms: Some(wait_ms), leader: false, ..Host::read_request(path, from) }
}

/// Begins to wait; the token under which the answer will come.
fn wait(host: &mut Host, request: ReadRequest) -> u64 {
    let token = host.token();
    let answer = host.ask(token, Input::Read { token, request });
    assert!(answer.is_none(), "it did not wait: {answer:?}");
    token
}

fn woken(host: &mut Host, token: u64) -> Result<ReadAnswer, Refusal> {
    let answer = host.answer(token).expect("the reader was not woken");
    host.fetch(answer).expect("the node serves")
}

#[test]
fn a_stream_larger_than_the_log_reads_back_whole() {
    let mut host = Host::serving(5);
    host.create("s");
    let mut expected = Vec::new();
    // 6 MB through a log of at most 2 MiB, in pieces of all sizes.
    for round in 0..300u32 {
        let body: Vec<u8> = (0..round * 131 % 40_000 + 1).map(|i| (i ^ round) as u8).collect();
        host.append("s", &body);
        expected.extend_from_slice(&body);
        host.node().checkpoint();
    }
    assert!(expected.len() as u64 > 2 * host.config.wal_bytes_max);
    assert!(host.node().log_bytes() <= host.config.wal_bytes_max);
    assert_eq!(host.content("s").as_deref(), Some(&expected[..]));
    for power in [false, true] {
        if power {
            host.power_off()
        } else {
            host.kill()
        }
        host.open().expect("recovers");
        assert_eq!(host.content("s").as_deref(), Some(&expected[..]));
    }
}

#[test]
fn a_restart_after_a_checkpoint_reads_no_payload() {
    let mut host = Host::with(5, Config { groups: 1, ..config() });
    host.open().expect("made");
    host.create("s");
    for _ in 0..40 {
        host.append("s", &[7; 30_000]);
        host.node().checkpoint();
    }
    host.power_off();
    // A payload that cannot be read must not matter: it is not read.
    let data: Vec<_> = host
        .disk
        .files()
        .into_iter()
        .filter(|(path, bytes)| path.starts_with("/data/store/g0") && bytes.len() > 100_000)
        .collect();
    assert!(!data.is_empty(), "the payload lies in data files");
    for (path, _) in &data {
        host.disk.fail(highwater_disk::sim::Operation::Read, &path.to_string_lossy(), 0, u64::MAX, 5);
    }
    host.open().expect("opens without its payload");
    assert_eq!(host.head("s").map(|h| h.next), Ok(Offset(1_200_000)));
    host.disk.clear_faults();
    assert_eq!(host.content("s").map(|c| c.len()), Some(1_200_000));
}

#[test]
fn one_answer_holds_at_most_what_was_asked_for_and_what_is_allowed() {
    let mut host = Host::with(
        5,
        Config { wal_segment_bytes: 64 << 20, wal_bytes_max: 256 << 20, checkpoint_bytes: 64 << 20, ..config() },
    );
    host.open().expect("made");
    host.create("s");
    let body = vec![3; 5 << 20];
    host.append("s", &body);
    host.append("s", &body);
    let read = |host: &mut Host, length_max| {
        let request = ReadRequest { length_max, ..Host::read_request("s", ReadFrom::Start) };
        host.try_read(request).expect("answered").expect("serves").expect("readable")
    };
    assert_eq!(read(&mut host, 10).body.len(), 10);
    assert_eq!(read(&mut host, u64::MAX).body.len() as u64, limits::READ_BYTES_MAX);
    assert!(!read(&mut host, u64::MAX).up_to_date);
}

#[test]
fn a_waiting_reader_is_woken_by_an_append() {
    let mut host = Host::serving(1);
    host.create("s");
    host.append("s", b"old");
    let token = wait(&mut host, waiting("s", ReadFrom::Now, 1_000));
    host.append("s", b"new");
    let answer = woken(&mut host, token).expect("readable");
    assert_eq!((answer.start, &answer.body[..], answer.timed_out), (Offset(3), &b"new"[..], false));
}

#[test]
fn a_waiting_reader_is_woken_by_the_end_of_its_stream() {
    let mut host = Host::serving(1);
    host.create("s");
    let token = wait(&mut host, waiting("s", ReadFrom::Start, 1_000));
    host.done("s", keyed(None, b"", true));
    let answer = woken(&mut host, token).expect("readable");
    assert!(answer.closed && answer.body.is_empty() && !answer.timed_out);
    // At a closed tail nobody waits.
    let answer = host.try_read(waiting("s", ReadFrom::Start, 1_000)).expect("at once");
    assert!(answer.expect("serves").expect("readable").closed);
}

#[test]
fn a_waiting_reader_hears_that_its_stream_is_gone_or_another_one() {
    let mut host = Host::serving(1);
    host.create("s");
    let token = wait(&mut host, waiting("s", ReadFrom::Start, 1_000));
    host.done("s", delete());
    assert_eq!(woken(&mut host, token), Err(Refusal::StreamNotFound));

    host.create("s");
    let token = wait(&mut host, waiting("s", ReadFrom::Start, 1_000));
    let (_, gone) = host.proposal("s", delete());
    let incarnation = host.issue();
    let (_, back) = host.proposal("s", create(incarnation, b"other"));
    host.node().turn([gone, back]);
    host.node().sync();
    let answer = woken(&mut host, token);
    assert_eq!(answer, Err(Refusal::IncarnationMismatch { current: Some(incarnation) }));
}

#[test]
fn a_waiting_reader_leaves_at_its_deadline_with_the_tail() {
    let mut host = Host::serving(1);
    host.create("s");
    let token = wait(&mut host, waiting("s", ReadFrom::Start, 250));
    host.node().pass(200);
    assert!(host.answer(token).is_none());
    host.node().pass(100);
    let answer = woken(&mut host, token).expect("readable");
    assert!(answer.timed_out && answer.up_to_date && !answer.closed && answer.body.is_empty());
}

#[test]
fn waiting_readers_are_bounded() {
    let mut host = Host::serving(1);
    host.create("s");
    for _ in 0..host.config.live_reads_max {
        wait(&mut host, waiting("s", ReadFrom::Start, 1_000));
    }
    let refused = host.try_read(waiting("s", ReadFrom::Start, 1_000)).expect("at once");
    assert_eq!(refused, Err(Unavailable::LiveReadsExhausted));
    // What needs no waiting is served.
    assert_eq!(host.content("s").as_deref(), Some(&b""[..]));
    host.append("s", b"x");
    assert_eq!(host.node().core().live_reads(), 0);
}

#[test]
fn a_read_sees_every_write_that_was_answered_before_it() {
    let mut host = Host::serving(1);
    host.create("s");
    for i in 1..20u64 {
        host.append("s", b"x");
        assert_eq!(host.head("s").map(|h| h.next), Ok(Offset(i)));
    }
}

#[test]
fn an_early_answer_comes_from_the_head_alone() {
    let mut host = Host::serving(1);
    let incarnation = host.create("s");
    host.done("s", keyed(Some(("p", 1, 0)), b"body", false));
    let Some(key) = (match keyed(Some(("p", 1, 0)), b"body", false) {
        highwater_stream::Operation::Append(append) => append.producer,
        _ => None,
    }) else {
        panic!("a keyed append has a key")
    };
    let token = host.token();
    let input = Input::Early { token, path: "s".to_owned(), incarnation, key };
    let Some(Answer::Early(Ok(Some(WriteAnswer { result: Ok(outcome), durability })))) = host.ask(token, input) else {
        panic!("a repeat is answered early")
    };
    assert!(crate::harness::receipt(&outcome).is_some_and(|(_, repeat)| repeat));
    assert_eq!((durability.synced, durability.of), (1, 1));
}

#[test]
fn a_plan_whose_bytes_moved_is_made_anew() {
    let mut host = Host::serving(5);
    host.create("s");
    host.append("s", &[1; 60_000]);
    let token = host.token();
    let request = Host::read_request("s", ReadFrom::Start);
    let Some(Answer::Read(Ok(Ok(located)))) = host.ask(token, Input::Read { token, request }) else {
        panic!("located")
    };
    // The bytes move to a data file and the log's segments are given back, before they are fetched.
    for _ in 0..30 {
        host.append("s", &[2; 60_000]);
        host.node().checkpoint();
    }
    match host.node().fetch(located) {
        Ok(answer) => assert_eq!(answer.body[..60_000], [1; 60_000]),
        Err(highwater_store::ReadError::Moved) => {}
        Err(other) => panic!("{other}"),
    }
    assert_eq!(host.content("s").map(|c| c[..60_000] == [1; 60_000]), Some(true));
}
