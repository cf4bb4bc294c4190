//! What a write is answered, and when.

use crate::harness::{Host, append, config, delete, keyed, receipt};
use highwater_base::{Offset, limits};
use highwater_node::config::Config;
use highwater_node::shard::{Answer, Input};
use highwater_node::{Durability, Unavailable};
use highwater_stream::{Outcome, ReadFrom, Refusal};

#[test]
fn a_write_is_answered_after_its_sync_and_never_before() {
    let mut host = Host::serving(1);
    host.create("s");
    let (token, input) = host.proposal("s", append(b"hello"));
    host.node().turn([input]);
    assert!(host.node().answers().is_empty(), "acknowledged before it was durable");
    // Nor may anybody read it.
    let (read, request) = (host.token(), Host::read_request("s", ReadFrom::Start));
    host.node().turn([Input::Read { token: read, request }]);
    let Some(Answer::Read(Ok(Ok(located)))) = host.answer(read) else { panic!("a read of what is there is answered") };
    assert_eq!((located.next, located.up_to_date), (Offset(0), true));
    host.node().sync();
    let Some(Answer::Write(Ok(answer))) = host.answer(token) else { panic!("it is durable and not answered") };
    assert_eq!(answer.durability, Durability { synced: 1, of: 1 });
    assert_eq!(host.content("s").as_deref(), Some(&b"hello"[..]));
}

#[test]
fn an_answer_says_on_how_many_copies_it_was_durable() {
    let mut host = Host::serving(1);
    host.create("s");
    let answer = host.write("s", append(b"x")).expect("serves");
    assert_eq!(answer.durability, Durability { synced: 1, of: 1 });
    // A refusal is as durable as what it rests on.
    let answer = host.write("missing", append(b"x")).expect("serves");
    assert_eq!(answer.result, Err(Refusal::StreamNotFound));
    assert_eq!(answer.durability, Durability { synced: 1, of: 1 });
}

#[test]
fn fifty_parallel_appends_get_fifty_offsets() {
    // durable-streams #340: concurrent appends to one stream collapsed to one offset.
    let mut host = Host::serving(1);
    host.create("s");
    let bodies: Vec<Vec<u8>> = (0..50u8).map(|i| vec![i; usize::from(i) + 1]).collect();
    let (tokens, inputs): (Vec<_>, Vec<_>) = bodies.iter().map(|body| host.proposal("s", append(body))).unzip();
    host.node().turn(inputs);
    host.node().sync();
    let mut ranges = Vec::new();
    for (token, answer) in host.node().answers() {
        assert!(tokens.contains(&token));
        let Answer::Write(Ok(answer)) = answer else { panic!("{answer:?}") };
        let Ok(Outcome::Appended { start, next, .. }) = answer.result else { panic!("{answer:?}") };
        ranges.push((start, next));
    }
    ranges.sort();
    assert_eq!(ranges.len(), 50);
    assert_eq!(ranges[0].0, Offset(0));
    assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "offsets overlap or leave a gap: {ranges:?}");
    let total: usize = bodies.iter().map(Vec::len).sum();
    assert_eq!(ranges[49].1, Offset(total as u64));
    assert_eq!(host.content("s").map(|c| c.len()), Some(total));
}

#[test]
fn writes_that_come_together_share_one_sync() {
    let mut host = Host::serving(1);
    host.create("s");
    host.create("t");
    let inputs: Vec<_> = (0..40).map(|i| host.proposal(if i % 2 == 0 { "s" } else { "t" }, append(b"x")).1).collect();
    let before = host.disk.operations();
    host.node().turn(inputs);
    host.node().sync();
    assert_eq!(host.node().answers().len(), 40);
    let operations = host.disk.operations() - before;
    assert!(operations <= 3, "{operations} operations on the disk for one batch");
}

#[test]
fn a_kill_between_append_and_answer_applies_the_write_exactly_once() {
    // durable-streams #143: a crash gave a false conflict or a duplicate.
    for power in [false, true] {
        let mut host = Host::serving(7);
        host.create("s");
        host.done("s", keyed(Some(("p", 1, 0)), b"claim", false));
        let (_, input) = host.proposal("s", keyed(Some(("p", 1, 1)), b"once", false));
        host.node().turn([input]);
        host.node().sync();
        // The answer is lost with the process.
        if power {
            host.power_off()
        } else {
            host.kill()
        }
        host.open().expect("recovers");
        let repeated = host.done("s", keyed(Some(("p", 1, 1)), b"once", false));
        let (again, repeat) = receipt(&repeated).expect("a keyed answer");
        assert!(repeat, "it was synced, so it had applied");
        assert_eq!((again.start, again.next), (Offset(5), Offset(9)));
        assert_eq!(host.content("s").as_deref(), Some(&b"claimonce"[..]));
    }
}

#[test]
fn a_deleted_stream_stays_deleted() {
    // electric #4675: an acknowledged DELETE came back after a crash.
    for checkpointed in [false, true] {
        let mut host = Host::serving(3);
        let first = host.create("s");
        host.append("s", &[1; 60_000]);
        if checkpointed {
            assert!(host.node().checkpoint() > 0, "60 kB and the rest start a checkpoint");
        }
        assert_eq!(host.done("s", delete()), Outcome::Deleted);
        host.power_off();
        host.open().expect("recovers");
        assert_eq!(host.content("s"), None);
        assert_ne!(host.create("s"), first);
        assert_eq!(host.content("s").as_deref(), Some(&b""[..]));
    }
}

#[test]
fn the_largest_request_is_taken_with_the_default_settings() {
    let mut host = Host::with(1, Config::new("/data"));
    host.open().expect("made");
    host.create("s");
    let length = usize::try_from(limits::REQUEST_BYTES_MAX).expect("it is memory");
    assert_eq!(host.append("s", &vec![7; length]).1, Offset(limits::REQUEST_BYTES_MAX));
}

#[test]
fn too_many_uncommitted_bytes_are_refused_and_taken_once_there_is_room() {
    let mut host = Host::with(1, Config { uncommitted_bytes_max: 50_000, ..config() });
    host.open().expect("made");
    host.create("s");
    let inputs: Vec<_> = (0..3).map(|_| host.proposal("s", append(&[0; 20_000])).1).collect();
    host.node().turn(inputs);
    let refused: Vec<_> = host.node().answers();
    assert_eq!(refused.len(), 1);
    assert!(matches!(refused[0].1, Answer::Write(Err(Unavailable::RaftUncommittedBackpressure))), "{refused:?}");
    host.node().sync();
    assert_eq!(host.node().answers().len(), 2);
    assert_eq!(host.node().core().uncommitted_bytes(), 0);
    host.append("s", &[0; 20_000]);
}
