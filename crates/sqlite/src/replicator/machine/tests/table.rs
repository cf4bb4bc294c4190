//! Every answer to an append and what is done about it.

use super::model::{INCARNATION, Raw};
use super::scenario::{Fate, Owner, Sent};
use crate::engine::StopCode;
use crate::replicator::machine::*;
use highwater_base::Offset;
use highwater_client::TokenId;

pub(super) fn refused(status: u16, code: &'static str) -> Fate {
    Fate::Refused(Raw::plain(status, code))
}

pub(super) fn lost() -> Fate {
    Fate::Refused(Raw::plain(0, ""))
}

pub(super) fn producer_403(code: &'static str, outcome: &str, epoch: u64) -> Raw {
    Raw::plain(403, code).with("producer-epoch", epoch).with("producer-outcome", outcome)
}

/// What a settled owner does about one answer to its next append.
pub(super) fn after(fate: Fate) -> Owner {
    let mut owner = Owner::settled();
    owner.writes_meet([fate]);
    owner.commit(1);
    owner
}

#[test]
fn answers_that_are_sent_again_after_a_short_wait() {
    let unavailable = [
        "NO_LEADER",
        "WAL_DISK_PRESSURE",
        "RAFT_LOG_PRESSURE",
        "INGRESS_BODY_BYTES_LIMIT_REACHED",
        "COLD_BACKPRESSURE",
        "RAFT_UNCOMMITTED_BACKPRESSURE",
        "HISTORY_PENDING",
        "GROUP_RESTARTING",
        "APPLY_STOPPED",
        "OUTCOME_UNKNOWN",
        "NO_UPSTREAM",
        "AUTHENTICATION_UNAVAILABLE",
        "",
    ];
    let mut rows: Vec<(u16, &str)> = unavailable.into_iter().map(|code| (503, code)).collect();
    rows.extend([
        (0, ""),
        (408, "BODY_TOO_SLOW"),
        (408, ""),
        (429, "PRODUCER_LIMIT"),
        (429, "RATE_LIMITED"),
        (500, "INTERNAL"),
        (502, "UPSTREAM_FAILED"),
        (504, "UPSTREAM_TIMEOUT"),
        (401, "INVALID_CREDENTIAL"),
        (307, ""),
        (200, ""),
        (204, ""),
        (302, ""),
    ]);
    for (status, code) in rows {
        let mut owner = after(refused(status, code));
        assert_eq!(owner.condition(), Some("retrying"), "{status} {code}");
        assert!(owner.retry_in() < 25, "{status} {code}");
        owner.wait(25);
        let writes = owner.writes();
        assert_eq!(writes.len(), 2, "{status} {code}");
        assert_eq!(writes[0], writes[1], "{status} {code}: the same key and the same bytes");
        assert_eq!((owner.condition(), owner.machine.snapshot().acknowledged_lsn), (None, 2), "{status} {code}");
    }
}

#[test]
fn answers_that_block_and_are_tried_again_every_half_minute() {
    let rows: [(u16, &str, &str); 14] = [
        (402, "PAYMENT_REQUIRED", "payment_required"),
        (403, "FORBIDDEN", "forbidden"),
        (403, "ACCOUNT_REVOKED", "forbidden"),
        (403, "", "forbidden"),
        (403, "PRODUCER_EPOCH_STALE", "forbidden"),
        (400, "INVALID_PRODUCER", "rejected"),
        (400, "PRODUCER_DIGEST_MISMATCH", "rejected"),
        (400, "", "rejected"),
        (404, "STREAM_NOT_FOUND", "rejected"),
        (405, "METHOD_NOT_ALLOWED", "rejected"),
        (409, "STREAM_CLOSED", "rejected"),
        (409, "CONTENT_TYPE_MISMATCH", "rejected"),
        (410, "STREAM_GONE", "rejected"),
        (418, "", "rejected"),
    ];
    for (status, code, condition) in rows {
        let mut owner = after(refused(status, code));
        owner.wait(25);
        assert_eq!(owner.condition(), Some(condition), "{status} {code}");
        assert!(owner.stopped.is_none(), "{status} {code}");
        assert!((29_000..=30_000).contains(&owner.retry_in()), "{status} {code}: {}", owner.retry_in());
        owner.wait(30_000);
        assert_eq!((owner.condition(), owner.machine.snapshot().acknowledged_lsn), (None, 2), "{status} {code}");
    }
}

#[test]
fn an_answer_that_leads_to_rejected_is_checked_against_the_head_first() {
    let owner = after(refused(404, "STREAM_NOT_FOUND"));
    assert_eq!(owner.sent.len(), 1, "the head is asked after the short wait");
    let mut owner = after(refused(409, "STREAM_CLOSED"));
    owner.wait(25);
    assert_eq!(owner.sent.last().map(|(_, sent)| sent), Some(&Sent::Head));
}

#[test]
fn answers_that_stop_the_database() {
    let closed = |seq: u64| {
        producer_403("PRODUCER_EPOCH_CLOSED", "epoch-closed;by=claim", 2)
            .with("producer-closed-epoch", 1)
            .with("producer-closed-seq", seq)
    };
    let history = producer_403("PRODUCER_EPOCH_CLOSED", "epoch-closed;by=history", 1)
        .with("producer-closed-epoch", 1)
        .with("producer-closed-seq", 1);
    let receipt = |start: u64, end: u64, seq: u64| {
        Raw::plain(200, "")
            .with("producer-epoch", 1)
            .with("producer-seq", seq)
            .with("stream-incarnation", INCARNATION)
            .with("stream-offset", Offset(start))
            .with("stream-next-offset", Offset(end))
    };
    let evicted = Raw::plain(204, "")
        .with("producer-epoch", 1)
        .with("producer-seq", 5)
        .with("stream-incarnation", INCARNATION)
        .with("producer-outcome", "receipt-evicted");
    let rows = [
        (closed(1), StopCode::Fenced),
        (producer_403("PRODUCER_EPOCH_STALE", "stale-epoch", 3), StopCode::Fenced),
        (producer_403("PRODUCER_KEY_CONFLICT", "key-conflict", 1), StopCode::Fenced),
        (history, StopCode::History),
        (receipt(5_000, 6_000, 2), StopCode::ForeignWrite),
        (receipt(0, 100, 9), StopCode::Fenced),
        (evicted, StopCode::Fenced),
    ];
    for (raw, code) in rows {
        let mut owner = Owner::settled();
        owner.writes_meet([Fate::Refused(raw.clone())]);
        owner.synced(1);
        assert_eq!(owner.resolved.len(), 1, "the idle read resolved it");
        owner.log.commit(1, &mut owner.random);
        owner.synced(2);
        assert_eq!(owner.stop_code(), Some(code), "{raw:?}");
        let refused = owner.resolved.get(&WaiterId(2)).expect("waiters are told").as_ref().expect_err("of the stop");
        assert_eq!(refused.code, code);
        let writes = owner.writes().len();
        owner.commit(1);
        owner.wait(120_000);
        assert_eq!(owner.writes().len(), writes, "{raw:?}: nothing is sent any more");
        owner.synced(3);
        assert!(owner.resolved[&WaiterId(3)].is_err(), "{raw:?}: nor does anybody wait");
    }
}

#[test]
fn a_fence_that_says_the_batch_applied_acknowledges_it_first() {
    let raw = producer_403("PRODUCER_EPOCH_CLOSED", "epoch-closed;by=claim", 2)
        .with("producer-closed-epoch", 1)
        .with("producer-closed-seq", 2);
    let owner = after(Fate::Applied(raw));
    assert_eq!(owner.stop_code(), Some(StopCode::Fenced));
    assert_eq!(owner.saved.acknowledged, owner.log.confirmed_end());
}

#[test]
fn a_gap_below_what_was_acknowledged_says_that_the_server_lost_data() {
    let raw =
        Raw::plain(409, "PRODUCER_SEQ_CONFLICT").with("producer-expected-seq", 1).with("producer-received-seq", 2);
    let mut owner = after(Fate::Refused(raw));
    owner.wait(25);
    assert_eq!(owner.condition(), Some("rejected"));
    assert!(owner.machine.snapshot().last_error.starts_with("server_lost_data"), "{:?}", owner.machine.snapshot());
    assert!(owner.stopped.is_none());
}

#[test]
fn a_stream_that_ends_below_our_acknowledged_end_is_refused_and_every_file_kept() {
    let mut owner = Owner::settled().restarted();
    let end = owner.server.bytes.len();
    owner.server.bytes.truncate(end - 10);
    owner.commit(1);
    assert_eq!(owner.condition(), Some("rejected"));
    let snapshot = owner.machine.snapshot();
    assert!(snapshot.last_error.contains("server_lost_data"), "{}", snapshot.last_error);
    assert!(snapshot.last_error.contains("local files are kept"));
    assert!(owner.stopped.is_none() && owner.writes().is_empty(), "nothing is claimed, nothing is stopped");
    owner.wait(65_000);
    assert!(owner.writes().is_empty());
}

/// What a login page in front of the server answers proves nothing about the batch, but is a redirect all the same.
#[test]
fn the_redirects_of_a_login_page_block_too_and_the_batch_is_repeated_as_it_was() {
    for status in [301, 302, 303] {
        let mut owner = Owner::settled();
        owner.writes_meet([refused(status, ""), refused(302, ""), refused(status, "")]);
        owner.commit(1);
        owner.wait(500);
        assert_eq!(owner.condition(), Some("redirected"), "{status}");
        owner.wait(60_000);
        assert_eq!(owner.condition(), None, "{status}");
        assert!(owner.stopped.is_none());
    }
}

#[test]
fn three_redirects_in_a_row_block_and_two_do_not() {
    let mut owner = Owner::settled();
    owner.writes_meet([
        refused(307, ""),
        refused(307, ""),
        refused(503, "NO_LEADER"),
        refused(308, ""),
        refused(307, ""),
    ]);
    owner.commit(1);
    owner.wait(5_000);
    assert_eq!((owner.condition(), owner.writes().len()), (None, 6));
    owner.writes_meet([refused(307, ""), refused(308, ""), refused(307, "")]);
    owner.commit(1);
    owner.wait(500);
    assert_eq!(owner.condition(), Some("redirected"));
    assert!(owner.retry_in() > 29_000);
}

#[test]
fn p19_a_token_that_expires_is_named_and_its_successor_resumes_without_a_restart() {
    let mut owner = Owner::settled();
    owner.writes_meet((0..4).map(|_| refused(401, "CREDENTIAL_EXPIRED")));
    owner.commit(1);
    assert_eq!(owner.condition(), Some("retrying"), "the token is read again first");
    owner.wait(50);
    assert_eq!(owner.condition(), Some("unauthorized"), "the same token, refused twice");
    owner.wait(31_000);
    assert_eq!(owner.condition(), Some("unauthorized"));
    owner.token = TokenId(8);
    let asked = owner.writes().len();
    owner.wait(31_000);
    assert_eq!(owner.writes().len(), asked + 2, "another token is given its second chance at once");
    assert_eq!((owner.condition(), owner.machine.snapshot().acknowledged_lsn), (None, 2));
}

#[test]
fn r9_retry_after_is_honoured_up_to_a_minute() {
    for (given, least, most) in
        [("0", 0, 25), ("60", 60_000, 60_000), ("3600", 60_000, 60_000), ("soon", 0, 25), ("-5", 0, 25)]
    {
        let owner = after(Fate::Refused(Raw::plain(429, "RATE_LIMITED").with("retry-after", given)));
        assert!((least..=most).contains(&owner.retry_in()), "{given}: {}", owner.retry_in());
    }
    let owner = after(Fate::Refused(
        Raw::plain(503, "NO_LEADER")
            .with("retry-after", "Fri, 01 Mar 2024 00:00:15 GMT")
            .with("date", "Fri, 01 Mar 2024 00:00:00 GMT"),
    ));
    assert_eq!(owner.retry_in(), 15_000);
}

#[test]
fn r8_a_lost_answer_is_sent_again_and_applied_once() {
    let mut owner = Owner::settled();
    let before = owner.server.applied;
    owner.writes_meet([Fate::Applied(Raw::plain(0, ""))]);
    owner.commit(1);
    owner.wait(25);
    assert_eq!(owner.server.applied, before + 1);
    assert_eq!((owner.condition(), owner.machine.snapshot().acknowledged_lsn), (None, 2));
    assert_eq!(owner.server.commits().1.len(), 2);
}

#[test]
fn the_wait_grows_to_five_seconds_and_the_retries_never_end() {
    let mut owner = Owner::settled();
    owner.writes_meet((0..200).map(|_| lost()));
    owner.commit(1);
    owner.wait(1_000_000);
    let writes = owner.writes();
    assert_eq!(writes.len(), 201);
    assert!(writes.iter().all(|write| *write == writes[0]));
    let times: Vec<u64> = owner.sent.iter().map(|(at, _)| *at).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 5_001));
    assert!(times.windows(2).skip(10).any(|pair| pair[1] - pair[0] > 4_000));
}
