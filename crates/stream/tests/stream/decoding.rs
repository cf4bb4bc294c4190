//! The decoders on their own records, on damaged ones and on noise.

use crate::model::{commands, machine_after};
use crate::script::token;
use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_base::{Digest, Millis, Offset};
use highwater_stream::*;
use proptest::prelude::*;

/// How a record is damaged: a byte is set, bytes are cut off, or a piece is put in.
fn damage() -> impl Strategy<Value = (u8, prop::sample::Index, u8)> {
    (0..3u8, any::<prop::sample::Index>(), any::<u8>())
}

fn damaged(mut record: Vec<u8>, wounds: &[(u8, prop::sample::Index, u8)]) -> Bytes {
    for (kind, at, value) in wounds {
        let at = at.index(record.len().max(1));
        match kind {
            0 if at < record.len() => record[at] = *value,
            1 => record.truncate(at),
            _ => record.insert(at.min(record.len()), *value),
        }
    }
    record.into()
}

proptest! {
    #[test]
    fn a_command_reads_back_and_its_body_lies_at_the_end(commands in commands(4)) {
        for command in commands {
            let record = Bytes::from(command.encode());
            prop_assert_eq!(Command::decode(record.clone()), Ok(command.clone()));
            let range = command.body_range(record.len() as u32);
            prop_assert_eq!(&record[range.start as usize..range.end as usize], command.body());
            for cut in 0..record.len() {
                prop_assert!(Command::decode(record.slice(..cut)).is_err(), "a cut record was whole at {}", cut);
            }
        }
    }

    #[test]
    fn a_damaged_command_is_refused_or_is_another_command(
        commands in commands(1), wounds in prop::collection::vec(damage(), 1..6)
    ) {
        let record = damaged(commands[0].encode(), &wounds);
        if let Ok(command) = Command::decode(record.clone()) {
            prop_assert_eq!(Bytes::from(command.encode()), record, "one command has two spellings");
        }
    }

    #[test]
    fn a_damaged_stream_is_refused_or_is_another_stream(
        commands in commands(40), wounds in prop::collection::vec(damage(), 1..6)
    ) {
        let mut machine = machine_after(&commands);
        let changed = machine.take_changed();
        for (object, record) in changed {
            let Some(record) = record else { continue };
            let record = damaged(record.to_vec(), &wounds);
            // As a record that comes from the disk while the machine runs: nobody compares it with the others.
            let mut loaded = Machine::load(Options::default(), machine.meta(), Vec::new()).expect("nothing is stored");
            if loaded.admit(object, record).is_ok() {
                // Whatever was let in can be written to without a panic.
                for command in &commands {
                    loaded.apply(command);
                }
                prop_assert_eq!(loaded.fingerprint(), loaded.clone().fingerprint());
            }
        }
    }

    #[test]
    fn noise_is_refused_without_a_panic(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut with_version = vec![3, 0, 1];
        with_version.extend_from_slice(&noise);
        for record in [noise, with_version] {
            let record = Bytes::from(record);
            let _refused = Command::decode(record.clone()).is_err();
            let _refused = Machine::load(Options::default(), Bytes::new(), vec![(1, record.clone())]).is_err();
            let _refused = Machine::new(Options::default()).admit(1 << 63, record).is_err();
        }
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    let refused = |version: u8| (Bytes::from(vec![version, 0, 9, 9, 9]), DecodeError::Version(version.into()));
    for (other, refused) in [1, 3].map(refused) {
        assert_eq!(Command::decode(other), Err(refused));
    }
    for (other, refused) in [1, 2, 4].map(refused) {
        assert_eq!(Machine::load(Options::default(), Bytes::new(), vec![(1, other)]).err(), Some(refused));
    }
}

fn golden() -> [(Command, &'static [u8]); 12] {
    let at = Millis(1_700_000_000_000);
    let command = |operation| Command { at, path: "notes/today".to_owned(), operation };
    let create = Create {
        content_type: "text/plain".to_owned(),
        closed: true,
        incarnation: Some(token(1)),
        new_incarnation: token(2),
        expiry: Some(Expiry::Sliding { ttl_s: 3_600 }),
        body: Bytes::from_static(b"hello"),
    };
    let most = Append {
        incarnation: Some(token(2)),
        producer: Some(ProducerKey { id: "owner".to_owned(), epoch: 7, seq: 3, digest: Some(Digest::of(b"world")) }),
        body_fault: None,
        content_type: Some("text/plain".to_owned()),
        stream_seq: Some("0009".to_owned()),
        close: false,
        body: Bytes::from_static(b"world"),
    };
    let least = Append {
        incarnation: None,
        producer: None,
        body_fault: Some(BodyFault::DigestMismatch),
        content_type: None,
        stream_seq: None,
        close: true,
        body: Bytes::new(),
    };
    let publish = |source| {
        Operation::PublishSnapshot(PublishSnapshot {
            incarnation: Some(token(2)),
            offset: Offset(500),
            digest: Digest::of(b"snapshot"),
            digest_matches: true,
            content_type: "application/octet-stream".to_owned(),
            source,
        })
    };
    let body = Bytes::from_static(b"snapshot");
    let stage = Operation::StagePart { incarnation: None, part: token(3), body: Bytes::from_static(b"part") };
    let group = |operation| Command { at, path: String::new(), operation };
    [
        (command(Operation::Create(create)), include_bytes!("../../golden/create-v2.bin")),
        (command(Operation::Append(most)), include_bytes!("../../golden/append-v2.bin")),
        (command(Operation::Append(least)), include_bytes!("../../golden/close-v2.bin")),
        (command(Operation::Delete { incarnation: Some(token(2)) }), include_bytes!("../../golden/delete-v2.bin")),
        (command(Operation::Touch { incarnation: token(2) }), include_bytes!("../../golden/touch-v2.bin")),
        (command(Operation::Expire { incarnation: token(2) }), include_bytes!("../../golden/expire-v2.bin")),
        (command(stage), include_bytes!("../../golden/stage-part-v2.bin")),
        (command(Operation::DiscardParts { incarnation: None }), include_bytes!("../../golden/discard-parts-v2.bin")),
        (
            command(publish(SnapshotSource::Body { part: token(4), body })),
            include_bytes!("../../golden/publish-body-v2.bin"),
        ),
        (
            command(publish(SnapshotSource::Parts(vec![token(3), token(5)]))),
            include_bytes!("../../golden/publish-parts-v2.bin"),
        ),
        (
            command(Operation::Retain { incarnation: None, offset: Offset(400) }),
            include_bytes!("../../golden/retain-v2.bin"),
        ),
        (group(Operation::History { nonce: 7 }), include_bytes!("../../golden/history-v2.bin")),
    ]
}

/// Earlier versions were never in a release; their records are told apart, not misread.
#[test]
fn the_golden_records_of_earlier_versions_are_refused() {
    let commands: [&[u8]; 4] = [
        include_bytes!("../../golden/create-v1.bin"),
        include_bytes!("../../golden/append-v1.bin"),
        include_bytes!("../../golden/close-v1.bin"),
        include_bytes!("../../golden/delete-v1.bin"),
    ];
    for record in commands {
        assert_eq!(Command::decode(Bytes::from_static(record)), Err(DecodeError::Version(1)));
    }
    let streams: [(u16, &[u8]); 2] =
        [(1, include_bytes!("../../golden/stream-v1.bin")), (2, include_bytes!("../../golden/stream-v2.bin"))];
    for (version, stream) in streams {
        let loaded = Machine::load(Options::default(), Bytes::new(), vec![(1, Bytes::from_static(stream))]);
        assert_eq!(loaded.err(), Some(DecodeError::Version(version)));
    }
}

#[test]
fn the_golden_commands_are_read_and_written_as_ever() {
    for (command, golden) in golden() {
        assert_eq!(Command::decode(Bytes::from_static(golden)), Ok(command.clone()));
        assert_eq!(command.encode(), golden);
    }
}
