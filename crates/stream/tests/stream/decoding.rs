//! The decoders on their own records, on damaged ones and on noise.

use crate::model::{commands, machine_after};
use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_stream::{Command, Machine, Options};
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
