//! Claims and what comes before them, how batches are cut, and what `synced()` waits for; the stories of the contract, by name.

use super::model::{CLUSTER, INCARNATION, ModelLog, Raw, Server, done};
use super::scenario::{Fate, LINEAGE, Owner, Saved, Sent};
use super::table::{after, lost, producer_403, refused};
use crate::batch::{BATCH_BYTES_MAX, Claim, encode_claim};
use crate::engine::StopCode;
use crate::replicator::machine::*;
use highwater_base::{Incarnation, Offset};
use highwater_client::{Answer, Head, HeadAnswer, Identity};

#[test]
fn nothing_is_claimed_before_a_write_or_synced() {
    let mut owner = Owner::settled().restarted();
    owner.step(Event::Timer);
    owner.wait(3_600_000);
    assert!(owner.sent.is_empty(), "open and idle: no request");
    owner.synced(1);
    assert_eq!(owner.writes().len(), 1, "synced() claims");
    assert_eq!(owner.resolved.len(), 1, "and the claim, answered where we ended, is the proof");
}

#[test]
fn what_an_earlier_process_left_pending_waits_for_a_wish() {
    let mut owner = Owner::settled();
    owner.log.commit(1, &mut owner.random);
    let mut owner = owner.restarted();
    owner.step(Event::Timer);
    owner.wait(100_000);
    assert!(owner.sent.is_empty());
    owner.step(Event::Wanted);
    assert_eq!(owner.machine.snapshot().acknowledged_lsn, 2);
}

#[test]
fn nothing_is_sent_before_a_won_claim() {
    let mut owner = Owner::fresh();
    owner.writes_meet((0..3).map(|_| lost()));
    owner.commit(1);
    owner.commit(1);
    owner.wait(500);
    let writes = owner.writes();
    assert_eq!(writes.len(), 5);
    assert_eq!(writes[0].1, 0, "a claim");
    assert!(writes[..4].iter().all(|write| *write == writes[0]), "without an answer it is repeated byte for byte");
    assert_eq!(writes[4].1, 1, "then both commits in one batch");
}

#[test]
fn a_stream_of_another_maker_is_refused_unclaimed() {
    let mut later = encode_claim(&Claim { epoch: 9, nonce: [0; 16], lineage: [0; 16], base_lsn: 0 });
    later[8] = 2;
    for bytes in
        [b"SQLite format 3\0 and whatever else there is, for more than a claim's bytes, surely".to_vec(), later]
    {
        let mut server = Server::default();
        server.bytes.clone_from(&bytes);
        let mut owner = Owner::new(server, Saved::default(), ModelLog::default(), 1);
        owner.commit(1);
        owner.wait(65_000);
        assert_eq!(owner.condition(), Some("rejected"));
        assert!(owner.writes().is_empty());
        assert_eq!(owner.server.bytes, bytes);
    }
}

#[test]
fn the_head_decides_which_server_and_which_stream_it_is() {
    let head = |server: &mut Server, change: &dyn Fn(&mut Head, &mut Option<Identity>)| {
        let HeadAnswer { mut identity, answer } = server.head();
        let mut found = answer.done().expect("a head");
        change(&mut found, &mut identity);
        HeadAnswer { identity, answer: done(found) }
    };
    let other = Incarnation::new(INCARNATION + 1).expect("a token");
    type Change = Box<dyn Fn(&mut Head, &mut Option<Identity>)>;
    let rows: Vec<(Change, Result<&str, StopCode>)> = vec![
        (Box::new(|_, identity| *identity = None), Ok("no_server_identity")),
        (
            Box::new(|_, identity| *identity = Some(Identity { protocol: 2, cluster_id: CLUSTER.to_owned() })),
            Ok("protocol_mismatch"),
        ),
        (
            Box::new(|_, identity| *identity = Some(Identity { protocol: 11, cluster_id: "Model".to_owned() })),
            Ok("wrong_cluster"),
        ),
        (Box::new(|head, _| head.closed = true), Ok("rejected")),
        (Box::new(move |head, _| head.incarnation = other), Err(StopCode::Recreated)),
        (
            Box::new(move |head, _| {
                head.previous = Some((head.incarnation, head.next));
                head.incarnation = other;
            }),
            Err(StopCode::History),
        ),
    ];
    for (change, expected) in rows {
        // At a claim, and after a 412 in the middle of things.
        for in_the_middle in [false, true] {
            let mut owner = if in_the_middle { Owner::settled() } else { Owner::settled().restarted() };
            let answer = head(&mut owner.server, &change);
            owner.heads_answer([answer]);
            owner.writes_meet([refused(412, "INCARNATION_MISMATCH")]);
            owner.commit(1);
            owner.wait(25);
            match expected {
                Ok(condition) => assert_eq!(owner.condition(), Some(condition)),
                Err(code) => assert_eq!(owner.stop_code(), Some(code)),
            }
        }
    }
}

#[test]
fn a_private_stream_that_is_concealed_is_forbidden_not_gone() {
    let mut owner = Owner::settled();
    let concealed = || HeadAnswer { identity: None, answer: Raw::plain(404, "BUCKET_NOT_FOUND").answer() };
    owner.heads_answer([concealed()]);
    owner.writes_meet([refused(404, "BUCKET_NOT_FOUND")]);
    owner.commit(1);
    owner.wait(25);
    assert_eq!(owner.condition(), Some("forbidden"));
}

/// A claim of somebody else, applied by the server.
fn foreign_claim(server: &mut Server, epoch: u64, lineage: [u8; 16]) {
    let claim = encode_claim(&Claim { epoch, nonce: [epoch as u8; 16], lineage, base_lsn: 0 });
    assert_eq!(server.append(epoch, 0, &claim).0, 200);
}

#[test]
fn r10_of_two_claims_of_one_epoch_exactly_one_is_taken_and_the_other_looks_again() {
    let mut owner = Owner::fresh();
    // The other one is faster by the time between our look and our claim.
    owner.writes_meet([Fate::Refused(producer_403("PRODUCER_KEY_CONFLICT", "key-conflict", 1))]);
    owner.commit(1);
    foreign_claim(&mut owner.server, 1, [2; 16]);
    owner.wait(25);
    assert_eq!(owner.stop_code(), Some(StopCode::Fenced));
    assert_eq!(owner.server.applied, 1, "the winner is not fenced by the loser");
}

#[test]
fn a_claim_below_the_current_epoch_is_raised_above_it() {
    // A restored database knows no epoch.
    let mut owner = Owner::settled();
    let saved = Saved { epoch: 0, ..owner.saved.clone() };
    owner.saved = saved;
    let mut owner = owner.restarted();
    owner.commit(1);
    owner.wait(1_000);
    assert_eq!((owner.machine.snapshot().epoch, owner.machine.snapshot().acknowledged_lsn), (2, 2));
}

#[test]
fn p14_files_restored_from_an_older_backup_find_the_stream_past_their_end() {
    let mut owner = Owner::settled();
    let (old, log) = (owner.saved.clone(), owner.log.clone());
    owner.commit(1);
    let bytes = owner.server.bytes.clone();
    let mut copy = Owner::new(owner.server, old, log, 5);
    copy.step(Event::Timer);
    assert!(copy.sent.is_empty(), "a copy that only reads fences nobody");
    copy.commit(1);
    assert!(matches!(copy.stop_code(), Some(StopCode::ForeignWrite | StopCode::Fenced)), "{:?}", copy.stopped);
    assert_eq!(copy.server.bytes, bytes, "and nothing was claimed or sent");
}

#[test]
fn another_owners_claim_behind_our_end_fences_and_other_bytes_are_a_foreign_write() {
    let mut owner = Owner::settled();
    foreign_claim(&mut owner.server, 7, [2; 16]);
    owner.synced(1);
    assert_eq!(owner.stop_code(), Some(StopCode::Fenced), "found by an idle synced()");
    assert!(owner.resolved[&WaiterId(1)].is_err());

    let mut owner = Owner::settled();
    owner.server.bytes.extend_from_slice(b"not a batch");
    owner.synced(1);
    assert_eq!(owner.stop_code(), Some(StopCode::ForeignWrite));

    let mut owner = Owner::settled().restarted();
    owner.server.bytes.extend_from_slice(b"not a batch, and longer than a batch's header is");
    owner.commit(1);
    assert_eq!(owner.stop_code(), Some(StopCode::ForeignWrite), "found by the look before a claim");
    assert_eq!(owner.writes().len(), 0);
}

#[test]
fn after_a_crash_the_batch_in_flight_is_found_or_sent_again() {
    for applied in [false, true] {
        let mut owner = Owner::settled();
        let fate = if applied { Fate::Applied(Raw::plain(0, "")) } else { lost() };
        owner.writes_meet([fate]);
        owner.commit(3);
        let mut owner = owner.restarted();
        assert!(owner.saved.in_flight.is_some());
        owner.commit(1);
        assert_eq!(owner.machine.snapshot().acknowledged_lsn, 3, "applied: {applied}");
        let (_, commits) = owner.server.commits();
        assert_eq!(commits.len(), 3);
        assert!((1..=3).all(|lsn| commits[lsn as usize - 1] == owner.log.record(lsn)));
    }
}

#[test]
fn a_batch_in_flight_that_arrives_between_the_look_and_the_claim_is_counted() {
    let mut owner = Owner::settled();
    owner.writes_meet([lost()]);
    owner.commit(3);
    let seal = owner.saved.in_flight.expect("a seal");
    let late = owner.batch_of(&seal);
    let mut owner = owner.restarted();
    // The first claim is lost, the batch arrives late, and the claim is repeated.
    owner.writes_meet([lost()]);
    owner.commit(1);
    assert_eq!(owner.server.append(seal.epoch, seal.seq, &late).0, 200);
    owner.wait(25);
    assert_eq!(owner.machine.snapshot().acknowledged_lsn, 3);
    assert_eq!(owner.server.commits().1.len(), 3);
}

#[test]
fn a_claim_inside_a_run_of_parts_voids_the_run_and_the_record_is_sent_anew() {
    let mut owner = Owner::settled();
    // Three parts of at most 64 KiB; the second one's fate is unknown when the process dies.
    owner.bytes_per_s = 30_000;
    owner.writes_meet([]);
    let lsn = owner.log.commit(300, &mut owner.random);
    owner.writes_meet([Fate::Applied(Raw::plain(0, ""))]);
    owner.step(Event::Wanted);
    let mut owner = owner.restarted();
    owner.commit(1);
    owner.wait(60_000);
    let (_, commits) = owner.server.commits();
    assert_eq!(commits.len(), 3);
    assert_eq!(commits[lsn as usize - 1], owner.log.record(lsn));
}

#[test]
fn an_expired_producer_claims_above_the_floor_if_nothing_was_written_since() {
    let mut owner = Owner::settled();
    owner.server.forget();
    owner.commit(1);
    owner.wait(100);
    assert_eq!((owner.machine.snapshot().epoch, owner.machine.snapshot().acknowledged_lsn), (2, 2));

    let mut owner = Owner::settled();
    owner.server.forget();
    foreign_claim(&mut owner.server, 2, [2; 16]);
    owner.server.forget();
    owner.commit(1);
    owner.wait(100);
    assert_eq!(owner.stop_code(), Some(StopCode::Expired));
}

#[test]
fn a_413_is_cut_anew_under_the_same_key_if_every_attempt_was_refused() {
    let mut owner = Owner::settled();
    owner.log.commit(100, &mut owner.random);
    owner.writes_meet([
        refused(503, "NO_LEADER"),
        Fate::Refused(Raw::plain(413, "REQUEST_TOO_LARGE").with("ursula-max-request-bytes", 20_000)),
    ]);
    owner.step(Event::Wanted);
    owner.wait(100);
    let writes: Vec<_> = owner
        .sent
        .iter()
        .filter_map(|(_, sent)| match sent {
            Sent::Write { epoch, seq, bytes, .. } => Some((*epoch, *seq, *bytes)),
            _ => None,
        })
        .collect();
    assert_eq!((writes[1].0, writes[1].1), (writes[2].0, writes[2].1), "the same key");
    assert!(writes[1].2 > 20_000 && writes[2..].iter().all(|write| write.2 <= 20_000), "{writes:?}");
    assert_eq!(owner.machine.snapshot().acknowledged_lsn, 2);
}

#[test]
fn a_413_after_an_unknown_attempt_is_settled_by_a_claim() {
    for applied in [false, true] {
        let mut owner = Owner::settled();
        owner.log.commit(100, &mut owner.random);
        let unknown = if applied { Fate::Applied(Raw::plain(0, "")) } else { lost() };
        owner.writes_meet([unknown, refused(413, "")]);
        owner.step(Event::Wanted);
        owner.wait(200);
        let snapshot = owner.machine.snapshot();
        assert_eq!((snapshot.epoch, snapshot.acknowledged_lsn), (2, 2), "applied: {applied}");
        assert_eq!(owner.server.commits().1[1], owner.log.record(2));
    }
}

#[test]
fn a_layer_that_takes_less_than_4_kib_blocks() {
    let mut owner = Owner::settled();
    owner.log.commit(100, &mut owner.random);
    owner.writes_meet((0..20).map(|_| refused(413, "")));
    owner.step(Event::Wanted);
    owner.wait(2_000);
    assert_eq!(owner.condition(), Some("request_too_large"));
    let mut owner = after(Fate::Refused(Raw::plain(413, "").with("ursula-max-request-bytes", 1_000)));
    assert_eq!(owner.condition(), Some("request_too_large"), "the layer says so itself");
    owner.wait(31_000);
    assert_eq!(owner.condition(), None);
}

#[test]
fn p20_a_slow_link_drains_in_batches_of_a_few_seconds() {
    let mut owner = Owner::fresh();
    owner.bytes_per_s = 20_000;
    let lsn = owner.log.commit(2_500, &mut owner.random);
    let started = owner.now;
    owner.step(Event::Wanted);
    assert_eq!(owner.machine.snapshot().acknowledged_lsn, lsn);
    let elapsed = owner.now - started;
    let bytes = owner.log.bytes.len() as u64;
    assert!(elapsed < bytes / 20 + bytes / 200, "{bytes} bytes took {elapsed} ms");
    let longest = owner.sent.iter().filter_map(|(_, sent)| match sent {
        Sent::Write { bytes, .. } => Some(*bytes),
        _ => None,
    });
    assert!(longest.max() <= Some(64 << 10), "no batch for ever");
}

#[test]
fn a_fast_link_gets_batches_of_four_mebibytes() {
    let mut owner = Owner::settled();
    owner.log.commit(20_000, &mut owner.random);
    owner.step(Event::Wanted);
    let sizes: Vec<_> = owner
        .sent
        .iter()
        .filter_map(|(_, sent)| match sent {
            Sent::Write { bytes, .. } => Some(*bytes),
            _ => None,
        })
        .collect();
    assert_eq!(sizes[1], BATCH_BYTES_MAX, "{sizes:?}");
    assert!(sizes.iter().all(|&bytes| bytes <= BATCH_BYTES_MAX));
}

#[test]
fn a_large_batch_that_never_gets_through_is_given_up_for_smaller_ones_under_a_new_claim() {
    let mut owner = Owner::settled();
    owner.log.commit(2_000, &mut owner.random);
    owner.step(Event::Wanted);
    assert_eq!(owner.machine.snapshot().batch_bytes, BATCH_BYTES_MAX);
    owner.log.commit(4_000, &mut owner.random);
    owner.sent.clear();
    // A layer swallows two megabytes and gives no answer.
    owner.bytes_per_s = 100_000;
    owner.writes_meet((0..5).map(|_| lost()));
    owner.step(Event::Wanted);
    owner.wait(200_000);
    let snapshot = owner.machine.snapshot();
    assert_eq!((snapshot.epoch, snapshot.acknowledged_lsn), (2, 3), "{snapshot:?}");
}

#[test]
fn a_thousand_idle_callers_cost_one_read() {
    let mut owner = Owner::settled();
    let target_lsn = owner.log.last_lsn();
    let mut out = Vec::new();
    for id in 0..1_000 {
        let mut environment = Environment { now_ms: owner.now, log: &owner.log, random: &mut owner.random };
        owner.machine.step(Event::Synced { id: WaiterId(id), target_lsn }, &mut environment, &mut out);
    }
    // The first call's read is on its way when the others come: they need one that starts after them, and share it.
    let Some(Action::Send(Request::Tail { at, .. })) = out.pop() else { panic!("one read: {out:?}") };
    assert!(out.is_empty());
    let reply = Reply::Read(owner.server.read(at, 4096));
    owner.step(Event::Answered { token: owner.token, reply: Box::new(reply) });
    assert_eq!(owner.resolved.len(), 1_000);
    assert_eq!(owner.server.reads, 2, "one for the first caller, one for all the others");
}

#[test]
fn an_append_that_started_before_the_call_does_not_prove_anything() {
    let mut owner = Owner::settled();
    owner.log.commit(1, &mut owner.random);
    let mut out = Vec::new();
    let target_lsn = owner.log.last_lsn();
    let mut environment = Environment { now_ms: owner.now, log: &owner.log, random: &mut owner.random };
    owner.machine.step(Event::Wanted, &mut environment, &mut out);
    owner.machine.step(Event::Synced { id: WaiterId(1), target_lsn }, &mut environment, &mut out);
    let [Action::Send(Request::Append(sealed))] = out.as_slice() else { panic!("{out:?}") };
    let read = |from, length, into: &mut Vec<u8>| owner.log.read(from, length, into);
    let (body, digest) = crate::replicator::batch_bytes(sealed, &owner.log, read).expect("in the log");
    let answer = owner.server.append(sealed.epoch, sealed.seq, &body).written();
    let reply = Reply::Written { answer, body_bytes: body.len() as u64, digest, took_ms: 1 };
    owner.step(Event::Answered { token: owner.token, reply: Box::new(reply) });
    assert_eq!(owner.resolved.len(), 1, "resolved by the read that followed");
    assert_eq!((owner.tails(), owner.machine.snapshot().acknowledged_lsn), (1, 2));
}

#[test]
fn a_claim_that_started_before_the_call_does_not_prove_anything_though_it_is_looked_into_after() {
    let mut owner = Owner::settled();
    owner.writes_meet([lost()]);
    owner.commit(1);
    let seal = owner.saved.in_flight.expect("a seal");
    let late = owner.batch_of(&seal);
    let mut owner = owner.restarted();
    let head = owner.step_once(Event::Wanted).expect("the head");
    let head = owner.answer(&head);
    let opening = owner.step_once(head).expect("the opening");
    let opening = owner.answer(&opening);
    let claim = owner.step_once(opening).expect("the claim");
    // The batch of the earlier process arrives just before the claim, so that the claim must be looked into.
    assert_eq!(owner.server.append(seal.epoch, seal.seq, &late).0, 200);
    let claim = owner.answer(&claim);
    let target_lsn = owner.log.last_lsn();
    assert_eq!(owner.step_once(Event::Synced { id: WaiterId(1), target_lsn }), None);
    let gap = owner.step_once(claim).expect("what came before the claim");
    let gap = owner.answer(&gap);
    let proof = owner.step_once(gap).expect("a read that starts after the call");
    assert!(owner.resolved.is_empty(), "the claim started before the call");
    assert_eq!(owner.machine.snapshot().acknowledged_lsn, target_lsn);
    let proof = owner.answer(&proof);
    assert_eq!((owner.step_once(proof), owner.resolved.len()), (None, 1));
}

#[test]
fn while_commits_flow_the_appends_are_the_round_trip() {
    let mut owner = Owner::settled();
    owner.log.commit(1, &mut owner.random);
    owner.synced(1);
    assert_eq!(owner.resolved.len(), 1);
    assert_eq!((owner.tails(), owner.writes().len()), (0, 1), "one append, no read");
}

#[test]
fn a_repeat_proves_the_key_but_not_the_tail() {
    let mut owner = Owner::settled();
    owner.writes_meet([Fate::Applied(Raw::plain(0, ""))]);
    owner.log.commit(1, &mut owner.random);
    owner.synced(1);
    owner.wait(25);
    assert_eq!(owner.resolved.len(), 1);
    assert_eq!(owner.tails(), 1, "a read after the repeat");
}

#[test]
fn synced_never_fails_for_the_networks_sake() {
    let mut owner = Owner::settled();
    owner.writes_meet((0..100).map(|_| lost()));
    owner.log.commit(1, &mut owner.random);
    owner.synced(1);
    owner.wait(100_000);
    assert!(owner.resolved.is_empty());
    owner.wait(400_000);
    assert_eq!(owner.resolved.get(&WaiterId(1)), Some(&Ok(())));
}

#[test]
fn a_caller_who_gave_up_is_forgotten_and_replication_goes_on() {
    let mut owner = Owner::settled();
    owner.writes_meet((0..3).map(|_| lost()));
    owner.log.commit(1, &mut owner.random);
    owner.synced(1);
    owner.step(Event::Abandoned { id: WaiterId(1) });
    owner.wait(1_000);
    assert!(owner.resolved.is_empty());
    assert_eq!(owner.machine.snapshot().acknowledged_lsn, 2);
}

#[test]
fn a_claim_of_our_own_lineage_that_nobody_answered_is_ours_after_a_restart() {
    let mut owner = Owner::settled().restarted();
    owner.writes_meet([Fate::Applied(Raw::plain(0, ""))]);
    owner.commit(1);
    let mut owner = owner.restarted();
    owner.commit(1);
    owner.wait(100);
    assert!(owner.stopped.is_none());
    assert_eq!(owner.machine.snapshot().acknowledged_lsn, 3);
    assert_eq!(owner.server.claimed_behind(Offset(0)), Some(LINEAGE));
}

#[test]
fn a_local_failure_sends_nothing_and_is_tried_again() {
    let mut owner = Owner::settled();
    owner.log.commit(1, &mut owner.random);
    let mut out = Vec::new();
    let mut environment = Environment { now_ms: owner.now, log: &owner.log, random: &mut owner.random };
    owner.machine.step(Event::Wanted, &mut environment, &mut out);
    let reply = Box::new(Reply::Local("the disk is full".to_owned()));
    owner.step(Event::Answered { token: owner.token, reply });
    assert_eq!(owner.machine.snapshot().last_error, "local: the disk is full");
    owner.wait(25);
    assert_eq!(owner.machine.snapshot().acknowledged_lsn, 2);
}

#[test]
fn a_head_that_is_no_answer_is_asked_again() {
    let mut owner = Owner::fresh();
    let none = || HeadAnswer { identity: None, answer: Answer::none("reset".to_owned()) };
    owner.heads_answer([none(), none()]);
    owner.commit(1);
    assert_eq!(owner.condition(), Some("retrying"));
    owner.wait(200);
    assert_eq!((owner.condition(), owner.machine.snapshot().acknowledged_lsn), (None, 1));
}
