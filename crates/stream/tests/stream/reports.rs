//! Reports about this contract and comparable servers, each kept as a test that tells its story.

use crate::script::{Session, token};
use bytes::Bytes;
use highwater_base::{Digest, Millis};
use highwater_stream::*;

fn keyed(path: &str, epoch: u64, seq: u64, body: &str) -> Command {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let digest = Some(Digest::of(&body));
    let append = Append {
        incarnation: Some(token(1)),
        producer: Some(ProducerKey { id: "owner".to_owned(), epoch, seq, digest }),
        body_fault: None,
        content_type: Some("text/plain".to_owned()),
        stream_seq: None,
        close: false,
        body,
    };
    Command { at: Millis(5), path: path.to_owned(), operation: Operation::Append(append) }
}

fn keyless(path: &str, body: &str) -> Command {
    let mut command = keyed(path, 0, 0, body);
    if let Operation::Append(append) = &mut command.operation {
        append.producer = None;
    }
    command
}

fn with_stream(path: &str) -> Machine {
    let mut machine = Machine::new(Options::default());
    let create = Create::plain("text/plain", token(1), Bytes::new());
    let command = Command { at: Millis(1), path: path.to_owned(), operation: Operation::Create(create) };
    assert!(machine.apply(&command).result.is_ok());
    machine
}

/// The answer to an append got lost, so the owner sent the same bytes again. Had the stream taken them twice, a
/// restore would have replayed the batch twice.
#[test]
fn a_write_whose_answer_was_lost_applies_once_and_repeats_its_receipt() {
    let mut machine = with_stream("db");
    let claim = machine.apply(&keyed("db", 1, 0, "claim"));
    assert!(matches!(claim.result, Ok(Outcome::Applied(_))), "{claim:?}");
    let first = machine.apply(&keyed("db", 1, 1, "batch"));
    let Ok(Outcome::Applied(receipt)) = first.result else { panic!("{first:?}") };
    for _ in 0..3 {
        let again = machine.apply(&keyed("db", 1, 1, "batch"));
        assert_eq!(again, Applied { result: Ok(Outcome::Repeated(receipt.clone())), effects: Vec::new() });
    }
    assert_eq!(machine.head("db", Millis(9)).map(|head| head.next), Ok(receipt.next));
}

/// Two processes claimed the same epoch at once and both were told that they own the database; both then wrote.
#[test]
fn of_two_claims_of_one_epoch_exactly_one_wins() {
    for order in [["nonce-a", "nonce-b"], ["nonce-b", "nonce-a"]] {
        let mut machine = with_stream("db");
        let answers = order.map(|nonce| machine.apply(&keyed("db", 7, 0, nonce)).result);
        assert!(matches!(answers[0], Ok(Outcome::Applied(_))), "{answers:?}");
        assert_eq!(answers[1], Err(Refusal::KeyConflict { current: 7 }));
        // The winner is still told that it won when it asks again; the loser still is not.
        assert!(matches!(machine.apply(&keyed("db", 7, 0, order[0])).result, Ok(Outcome::Repeated(_))));
        assert_eq!(machine.apply(&keyed("db", 7, 0, order[1])).result, Err(Refusal::KeyConflict { current: 7 }));
    }
}

/// Appends that arrived together were given one offset, and all but one of them were lost (durable-streams #340).
#[test]
fn appends_that_arrive_together_get_offsets_of_their_own() {
    let mut machine = with_stream("events");
    let mut end = 0;
    for n in 0..50usize {
        let body = "x".repeat(1 + n % 7);
        let applied = machine.apply(&keyless("events", &body));
        let Ok(Outcome::Appended { start, next, .. }) = applied.result else { panic!("{applied:?}") };
        assert_eq!((start.0, next.0), (end, end + body.len() as u64));
        assert_eq!(
            applied.effects,
            [Effect::Append { object: token(1).get(), start, length: body.len() as u64, closed: false }]
        );
        end = next.0;
    }
    assert_eq!(machine.head("events", Millis(9)).map(|head| head.next.0), Ok(end));
}

/// A producer's number was kept apart from the data: after a crash between the two, the repeat was refused as a gap,
/// or taken a second time (durable-streams #143). Here both are in one stored record.
#[test]
fn a_stored_stream_knows_its_producers_exactly_as_far_as_its_bytes() {
    let mut session = Session::new();
    for line in ["create db", "append db as=p/0/0 body=claim", "append db as=p/0/1 body=batch"] {
        session.line(line);
    }
    session.line("reload");
    let repeated = "repeated 0/1 at 5..10 t1";
    assert_eq!(session.line("append db as=p/0/1 body=batch").as_deref(), Some(repeated));
    assert_eq!(session.line("append db as=p/0/2 body=more").as_deref(), Some("applied 0/2 at 10..14 t1"));
}

/// Two streams were given one token by chance. Their bytes are kept under it, so a shared one would mix them.
#[test]
fn a_token_that_is_in_use_is_not_given_to_a_second_stream() {
    let mut session = Session::new();
    session.line("create one new=t1");
    assert_eq!(session.line("create two new=t1").as_deref(), Some("created t2 end=0 type=text/plain"));
    assert_eq!(session.line("create three new=t1").as_deref(), Some("created t3 end=0 type=text/plain"));
}
