//! The decoders on their own records, on damaged ones and on noise.

use crate::model::{commands, machine_after};
use crate::script::token;
use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_base::{Digest, Millis};
use highwater_stream::{Append, Command, Create, Machine, Operation, Options, ProducerKey};
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
        for (object, record) in machine.take_changed() {
            let Some(record) = record else { continue };
            let record = damaged(record.to_vec(), &wounds);
            if let Ok(loaded) = Machine::load(Options::default(), vec![(object, record)]) {
                // Whatever was let in can be written to without a panic.
                let mut loaded = loaded;
                for command in &commands {
                    loaded.apply(command);
                }
                prop_assert_eq!(loaded.fingerprint(), loaded.clone().fingerprint());
            }
        }
    }

    #[test]
    fn noise_is_refused_without_a_panic(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut with_version = vec![1, 0];
        with_version.extend_from_slice(&noise);
        for record in [noise, with_version] {
            let record = Bytes::from(record);
            let _refused = Command::decode(record.clone()).is_err();
            let _refused = Machine::load(Options::default(), vec![(1, record)]).is_err();
        }
    }
}

#[test]
fn a_later_version_is_refused_by_its_number() {
    let later = Bytes::from_static(&[2, 0, 9, 9, 9]);
    assert_eq!(Command::decode(later.clone()), Err(DecodeError::Version(2)));
    assert!(matches!(Machine::load(Options::default(), vec![(1, later)]), Err(DecodeError::Version(2))));
}

fn golden() -> [(Command, &'static [u8]); 4] {
    let at = Millis(1_700_000_000_000);
    let command = |operation| Command { at, path: "notes/today".to_owned(), operation };
    let create = Create {
        content_type: "text/plain".to_owned(),
        closed: true,
        incarnation: Some(token(1)),
        new_incarnation: token(2),
        body: Bytes::from_static(b"hello"),
    };
    let most = Append {
        incarnation: Some(token(2)),
        producer: Some(ProducerKey { id: "owner".to_owned(), epoch: 7, seq: 3, digest: Some(Digest::of(b"world")) }),
        digest_matches: true,
        content_type: Some("text/plain".to_owned()),
        stream_seq: Some("0009".to_owned()),
        close: false,
        body: Bytes::from_static(b"world"),
    };
    let least = Append {
        incarnation: None,
        producer: None,
        digest_matches: true,
        content_type: None,
        stream_seq: None,
        close: true,
        body: Bytes::new(),
    };
    [
        (command(Operation::Create(create)), include_bytes!("../../golden/create-v1.bin")),
        (command(Operation::Append(most)), include_bytes!("../../golden/append-v1.bin")),
        (command(Operation::Append(least)), include_bytes!("../../golden/close-v1.bin")),
        (command(Operation::Delete { incarnation: Some(token(2)) }), include_bytes!("../../golden/delete-v1.bin")),
    ]
}

#[test]
fn the_golden_commands_are_read_and_written_as_ever() {
    for (command, golden) in golden() {
        assert_eq!(Command::decode(Bytes::from_static(golden)), Ok(command.clone()));
        assert_eq!(command.encode(), golden);
    }
}
