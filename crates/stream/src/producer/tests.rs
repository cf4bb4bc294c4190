//! The key table, row by row.

use super::*;
use crate::outcome::Refusal as R;

const EPOCH: u64 = 5;
const NEWEST: u64 = 3;
const ENDED: ClosedEpoch = ClosedEpoch { epoch: 2, last_seq: 9 };
const NOW: ClosedEpoch = ClosedEpoch { epoch: EPOCH, last_seq: NEWEST };

fn digest(name: &str) -> Option<Digest> {
    Some(Digest::of(name.as_bytes()))
}

fn token() -> Incarnation {
    Incarnation::new(1 << 52).expect("2^52 is a token")
}

/// Epoch 5, whose claim ended epoch 2, with writes up to 3.
fn record() -> Producer {
    Producer {
        id: "p".into(),
        epoch: EPOCH,
        seq: NEWEST,
        start: Offset(30),
        next: Offset(40),
        had_body: true,
        closed_stream: false,
        below_floor: false,
        claim_digest: digest("claim"),
        newest_digest: digest("newest"),
        closed_epoch: Some(ENDED),
        history: 1,
        last_applied: Millis(0),
    }
}

/// The same, but nothing was written since the claim.
fn claimed() -> Producer {
    Producer { seq: 0, newest_digest: digest("claim"), ..record() }
}

/// The receipt of the record's newest write.
fn receipt(seq: u64, closed_epoch: Option<ClosedEpoch>) -> Outcome {
    Outcome::Repeated(Receipt {
        epoch: EPOCH,
        seq,
        start: Offset(30),
        next: Offset(40),
        incarnation: token(),
        closed_epoch,
        closed_stream: false,
        had_body: true,
    })
}

fn evicted(closed: Option<ClosedEpoch>) -> Outcome {
    Outcome::Evicted { epoch: EPOCH, seq: NEWEST, incarnation: token(), closed }
}

struct Row {
    name: &'static str,
    record: Option<Producer>,
    tokened: bool,
    floor: Option<u64>,
    history: u64,
    key: (u64, u64, Option<Digest>),
    verdict: Result<Verdict, Refusal>,
}

/// A row with the record of epoch 5, no floor, in the history in which the epoch was claimed, tokened.
fn row(name: &'static str, epoch: u64, seq: u64, stated: &str, verdict: Result<Verdict, Refusal>) -> Row {
    let stated = if stated.is_empty() { None } else { digest(stated) };
    Row { name, record: Some(record()), tokened: true, floor: None, history: 1, key: (epoch, seq, stated), verdict }
}

fn known(outcome: Outcome) -> Result<Verdict, Refusal> {
    Ok(Verdict::Known(outcome))
}

fn claim(closes: Option<ClosedEpoch>) -> Result<Verdict, Refusal> {
    Ok(Verdict::Claim { closes })
}

fn expired(floor: u64) -> Result<Verdict, Refusal> {
    Err(R::ProducerExpired { floor })
}

fn gap(expected: u64, received: u64) -> Result<Verdict, Refusal> {
    Err(R::SeqGap { expected, received })
}

fn rows_without_a_record() -> Vec<Row> {
    let none = |row: Row| Row { record: None, ..row };
    let floor = |row: Row| Row { floor: Some(7), ..none(row) };
    let plain = |row: Row| Row { tokened: false, ..floor(row) };
    vec![
        none(row("a claim of epoch 0 on a fresh stream", 0, 0, "x", claim(None))),
        none(row("any other claim", 9, 0, "x", claim(None))),
        none(row("a write without a claim", 0, 1, "x", gap(0, 1))),
        floor(row("a tokened claim at the floor", 7, 0, "x", expired(7))),
        floor(row("a tokened write below the floor", 3, 4, "x", expired(7))),
        floor(row("a tokened claim above the floor", 8, 0, "x", claim(None))),
        floor(row("a tokened write above the floor", 8, 2, "x", gap(0, 2))),
        plain(row("a plain claim below the floor", 3, 0, "", claim(None))),
        plain(row("a plain write below the floor", 3, 4, "", gap(0, 4))),
        Row { floor: Some(0), ..none(row("epoch 0 at a floor of 0", 0, 0, "x", expired(0))) },
    ]
}

fn rows_below_the_floor() -> Vec<Row> {
    let below = |row: Row| Row { record: Some(Producer { below_floor: true, ..record() }), floor: Some(7), ..row };
    let plain = |row: Row| Row { tokened: false, ..below(row) };
    vec![
        below(row("a tokened repeat", EPOCH, NEWEST, "newest", expired(7))),
        below(row("a tokened next write", EPOCH, NEWEST + 1, "x", expired(7))),
        below(row("a tokened claim above the record, at the floor", 7, 0, "x", expired(7))),
        below(row("a tokened claim above both", 8, 0, "x", claim(Some(NOW)))),
        below(row("a tokened write above both", 8, 1, "x", expired(7))),
        below(row("a tokened write of an older epoch", 2, 1, "x", expired(7))),
        plain(row("a plain repeat", EPOCH, NEWEST, "newest", known(receipt(NEWEST, None)))),
        plain(row("a plain next write", EPOCH, NEWEST + 1, "x", Ok(Verdict::Next))),
        plain(row("a plain claim at the floor", 7, 0, "x", claim(Some(NOW)))),
        Row { floor: Some(4), ..below(row("a claim above the floor, below the record", 5, 0, "claim", expired(4))) },
    ]
}

fn rows_of_the_epoch() -> Vec<Row> {
    let by_claim = || Err(R::EpochClosedByClaim { current: EPOCH, closed: ENDED });
    let stale = || Err(R::EpochStale { current: EPOCH });
    let conflict = || Err(R::KeyConflict { current: EPOCH });
    let fresh = |row: Row| Row { record: Some(claimed()), ..row };
    vec![
        row("the epoch that the claim ended, applied", 2, 9, "x", by_claim()),
        row("the epoch that the claim ended, never applied", 2, 10, "x", by_claim()),
        row("the epoch that the claim ended, its claim", 2, 0, "x", by_claim()),
        row("an epoch between", 4, 0, "x", stale()),
        row("an epoch before", 1, 1, "x", stale()),
        row("an older epoch with the newest number and digest", 4, NEWEST, "newest", stale()),
        row("a higher claim", 6, 0, "x", claim(Some(NOW))),
        row("a much higher claim", 60, 0, "x", claim(Some(NOW))),
        row("a write of a higher epoch", 6, 1, "x", Err(R::EpochNotClaimed)),
        row("the newest again", EPOCH, NEWEST, "newest", known(receipt(NEWEST, None))),
        row("the newest with other bytes", EPOCH, NEWEST, "x", conflict()),
        row("the newest without its digest", EPOCH, NEWEST, "", conflict()),
        row("an earlier write", EPOCH, 1, "x", known(evicted(None))),
        row("the claim again", EPOCH, 0, "claim", known(evicted(Some(ENDED)))),
        row("the claim with other bytes", EPOCH, 0, "x", conflict()),
        row("the claim without its digest", EPOCH, 0, "", conflict()),
        row("the next write", EPOCH, NEWEST + 1, "x", Ok(Verdict::Next)),
        row("a write above the next", EPOCH, NEWEST + 2, "x", gap(NEWEST + 1, NEWEST + 2)),
        fresh(row("the claim again, as the newest write", EPOCH, 0, "claim", known(receipt(0, Some(ENDED))))),
        fresh(row("another claim of the epoch", EPOCH, 0, "x", conflict())),
        fresh(row("the first write after the claim", EPOCH, 1, "x", Ok(Verdict::Next))),
        Row {
            floor: Some(50),
            ..row("a living record below the floor goes on", EPOCH, NEWEST + 1, "x", Ok(Verdict::Next))
        },
        Row {
            tokened: false,
            ..row("a plain write goes on under a tokened claim", EPOCH, NEWEST + 1, "", Ok(Verdict::Next))
        },
    ]
}

fn rows_of_an_older_history() -> Vec<Row> {
    let later = |row: Row| Row { history: 2, ..row };
    let by_history = || Err(R::EpochClosedByHistory { closed: NOW });
    vec![
        later(row("the next write", EPOCH, NEWEST + 1, "x", by_history())),
        later(row("a write above the next", EPOCH, NEWEST + 9, "x", by_history())),
        later(row("the newest again", EPOCH, NEWEST, "newest", known(receipt(NEWEST, None)))),
        later(row("the newest with other bytes", EPOCH, NEWEST, "x", Err(R::KeyConflict { current: EPOCH }))),
        later(row("an earlier write", EPOCH, 1, "x", known(evicted(None)))),
        later(row("a higher claim", 6, 0, "x", claim(Some(NOW)))),
        later(row("an older epoch", 1, 0, "x", Err(R::EpochStale { current: EPOCH }))),
    ]
}

#[test]
fn the_key_table_answers_every_row() {
    let tables = [rows_without_a_record(), rows_below_the_floor(), rows_of_the_epoch(), rows_of_an_older_history()];
    for row in tables.into_iter().flatten() {
        let (epoch, seq, digest) = row.key;
        let key = ProducerKey { id: "p".to_owned(), epoch, seq, digest };
        let circumstances =
            Circumstances { tokened: row.tokened, floor: row.floor, history: row.history, incarnation: token() };
        assert_eq!(judge(row.record.as_ref(), &key, circumstances), row.verdict, "{}", row.name);
    }
}

#[test]
fn only_repeats_and_conflicts_are_answered_early() {
    assert!(early(known(evicted(None))).is_some());
    assert!(early(Err(R::KeyConflict { current: 1 })).is_some());
    for later in [Ok(Verdict::Next), claim(None), gap(1, 2), expired(1), Err(R::EpochStale { current: 1 })] {
        assert_eq!(early(later), None);
    }
}

#[test]
fn producers_are_found_whatever_the_order_they_came_in() {
    let mut producers = Producers::default();
    for n in [5u64, 1, 9, 3, 7] {
        producers.put(Producer { id: n.to_string().into(), epoch: n, last_applied: Millis(n), ..record() });
    }
    producers.put(Producer { id: "3".into(), epoch: 33, last_applied: Millis(3), ..record() });
    let epochs: Vec<u64> = producers.iter().map(|producer| producer.epoch).collect();
    assert_eq!(epochs, [1, 33, 5, 7, 9]);
    // Those last heard of at 1, 3 and 5 were idle for 5 ms at 10.
    assert_eq!(producers.evict(Millis(10), 5), Some(33));
    assert_eq!(producers.iter().map(|producer| producer.epoch).collect::<Vec<_>>(), [7, 9]);
    assert_eq!(producers.evict(Millis(10), 5), None);
}
