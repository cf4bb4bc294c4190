//! Stored streams: the golden record, and what is refused.

use super::*;
use crate::record::{Record, encode_stream};
use bytes::Bytes;
use highwater_base::Incarnation;

fn token(n: u64) -> Incarnation {
    Incarnation::new((1 << 52) + n).expect("a small number above 2^52 is a token")
}

/// A stream with every field that a stream can have, and one producer with every field and one with the fewest.
fn full() -> Stream {
    let producer = Producer {
        id: "owner".into(),
        epoch: 7,
        seq: 3,
        start: Offset(900),
        next: Offset(1_000),
        had_body: true,
        closed_stream: true,
        below_floor: false,
        claim_digest: Some(Digest::of(b"claim")),
        newest_digest: Some(Digest::of(b"newest")),
        closed_epoch: Some(ClosedEpoch { epoch: 6, last_seq: 41 }),
        history: 1,
        last_applied: Millis(1_700_000_000_000),
    };
    let plain = Producer {
        id: "plain".into(),
        epoch: 0,
        seq: 0,
        had_body: false,
        closed_stream: false,
        below_floor: true,
        claim_digest: None,
        newest_digest: None,
        closed_epoch: None,
        ..producer.clone()
    };
    let mut producers = Producers::default();
    assert!(producers.push_stored(producer) && producers.push_stored(plain));
    Stream {
        path: "notes/today".into(),
        incarnation: token(2),
        content_type: "text/plain".into(),
        next: Offset(1_000),
        retained: Offset(10),
        closed: true,
        history: 2,
        rare: Some(Box::new(Rare {
            previous: Some((token(1), Offset(800))),
            lifetime: Some(Lifetime::Sliding { ttl_s: 60, deadline: Millis(1_700_000_067_500) }),
            snapshot: Some(Snapshot {
                head: SnapshotHead { offset: Offset(500), digest: Digest::of(b"snapshot") },
                content_type: "application/octet-stream".into(),
                parts: [SnapshotPart { object: 7, length: 70 }, SnapshotPart { object: 3, length: 0 }].into(),
            }),
            staged: BTreeMap::from([(11, Staged { length: 110, at: Millis(1_700_000_000_000) })]),
            stream_seq: Some("0009".into()),
            floor: Some(5),
        })),
        producers,
        residence: Residence::default(),
    }
}

fn decode(record: Bytes) -> Result<Stream, DecodeError> {
    Record::decode(1, record).map(|record| match record {
        Record::Stream(stream) => *stream,
        other => panic!("no stream: {other:?}"),
    })
}

fn encode(stream: &Stream) -> Vec<u8> {
    encode_stream(stream).to_vec()
}

fn refused(change: impl FnOnce(&mut Stream)) -> Option<DecodeError> {
    let mut stream = full();
    change(&mut stream);
    decode(encode(&stream).into()).err()
}

#[test]
fn the_golden_stream_is_read_and_written_as_ever() {
    let golden = include_bytes!("../../../golden/stream-v3.bin");
    assert_eq!(decode(Bytes::from_static(golden)), Ok(full()));
    assert_eq!(encode(&full()), golden);
}

/// A program reads no record of another version, an earlier one included: there was no release with it.
#[test]
fn every_other_version_is_refused_by_its_number() {
    for version in [1u8, 2, 4] {
        let mut record = encode(&full());
        record[0] = version;
        assert_eq!(decode(record.into()), Err(DecodeError::Version(version.into())));
    }
}

#[test]
fn a_stream_cut_anywhere_is_refused() {
    let record = Bytes::from(encode(&full()));
    for cut in 0..record.len() {
        assert!(decode(record.slice(..cut)).is_err(), "whole at {cut}");
    }
}

#[test]
fn what_the_machine_relies_on_is_checked() {
    let invalid = |field| Some(DecodeError::Invalid(field));
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|stream| stream.retained = Offset(1_001)), invalid("retained offset"));
    assert_eq!(refused(|stream| stream.retained = Offset(501)), invalid("snapshot offset"));
    assert_eq!(refused(|stream| stream.rare_mut().snapshot = None), invalid("snapshot offset"));
    assert_eq!(refused(|stream| stream.rare = Some(Box::default())), invalid("flag"));
    let staged = Staged { length: 1 << 32, at: Millis(0) };
    assert_eq!(refused(|stream| stream.rare_mut().staged.extend([(12, staged)])), invalid("part length"));
    assert_eq!(refused(|stream| stream.next = Offset(1 << 63)), invalid("offset"));
    let with = |change: fn(&mut Producer)| {
        refused(|stream| {
            let mut producer = stream.producers.get("owner").expect("it is there").clone();
            change(&mut producer);
            stream.producers.put(producer);
        })
    };
    assert_eq!(with(|producer| producer.start = Offset(1_001)), invalid("receipt range"));
    assert_eq!(with(|producer| producer.seq = 0), invalid("digest of the claim"));
}

#[test]
fn producers_out_of_order_or_twice_are_refused() {
    let record = encode(&full());
    let position = |name: &[u8]| record.windows(name.len()).position(|bytes| bytes == name).expect("it is there");
    for twin in [b"plain", b"aaaaa"] {
        let mut record = record.clone();
        let (owner, plain) = (position(b"owner"), position(b"plain"));
        record[owner..owner + 5].copy_from_slice(b"plain");
        record[plain..plain + 5].copy_from_slice(twin);
        assert_eq!(decode(record.into()), Err(DecodeError::Invalid("producer order")));
    }
}
