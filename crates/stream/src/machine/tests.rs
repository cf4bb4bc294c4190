//! What only a stored machine can show.

use super::*;
use crate::outcome::ReadFrom;

fn token(n: u64) -> Incarnation {
    Incarnation::new((1 << 52) + n).expect("a small number above 2^52 is a token")
}

fn with_streams(paths: &[&str]) -> Machine {
    let mut machine = Machine::new(Options::default());
    for (n, path) in (1..).zip(paths) {
        let create = Create::plain("text/plain", token(n), Bytes::from_static(b"hello"));
        let command = Command { at: Millis(1), path: (*path).to_owned(), operation: Operation::Create(create) };
        assert!(machine.apply(&command).result.is_ok());
    }
    machine
}

fn stored(machine: &mut Machine) -> Vec<(u64, Bytes)> {
    machine.take_changed().into_iter().map(|(object, state)| (object, state.expect("it is there"))).collect()
}

/// A read from the start of a stream whose first bytes are gone is told so; it does not silently begin behind them.
#[test]
fn bytes_below_the_retained_offset_are_gone_for_every_reader() {
    let mut machine = with_streams(&["notes"]);
    for stream in machine.streams.values_mut() {
        stream.retained = Offset(3);
    }
    let gone = Err(Refusal::Gone { retained: Offset(3), incarnation: token(1) });
    for from in [ReadFrom::Start, ReadFrom::At(Offset(2))] {
        assert_eq!(machine.check_read("notes", Millis(1), None, from), gone);
        // Before the token, so that a reader of another history learns where this one begins.
        assert_eq!(machine.check_read("notes", Millis(1), Some(token(9)), from), gone);
    }
    let scope = machine.check_read("notes", Millis(1), Some(token(1)), ReadFrom::At(Offset(3)));
    assert_eq!(scope.map(|scope| (scope.start, scope.next)), Ok((Offset(3), Offset(5))));
    assert_eq!(machine.head("notes", Millis(1)).map(|head| head.retained), Ok(Offset(3)));
}

#[test]
fn one_path_or_one_object_stored_twice_is_refused() {
    let objects = stored(&mut with_streams(&["a", "b"]));
    assert!(Machine::load(Options::default(), Bytes::new(), objects.clone()).is_ok());
    let refused = |objects| Machine::load(Options::default(), Bytes::new(), objects).err();
    let name = record::name_key("a");
    let twice = record::encode_name(&[objects[0].0, objects[0].0 + 9]);
    let same_path = vec![objects[0].clone(), (objects[0].0 + 9, objects[0].1.clone()), (name, twice)];
    assert_eq!(refused(same_path), Some(DecodeError::Invalid("path")));
    let same_object = vec![objects[0].clone(), (objects[0].0, objects[1].1.clone())];
    assert_eq!(refused(same_object), Some(DecodeError::Invalid("object")));
}

/// Names and parts lie apart from their streams, and are not in memory together with them: a lost one is found all the same.
#[test]
fn a_name_or_a_part_that_does_not_agree_with_the_streams_is_refused() {
    let mut machine = with_streams(&["a", "b"]);
    let operation = Operation::StagePart { incarnation: None, part: token(9), body: Bytes::from_static(b"part") };
    assert!(machine.apply(&Command { at: Millis(2), path: "b".to_owned(), operation }).result.is_ok());
    let objects = stored(&mut machine);
    let names = objects.iter().filter(|(key, _)| record::is_name(*key)).count();
    assert_eq!((objects.len(), names), (5, 2));
    for keep in [true, false] {
        for lost in 0..=objects.len() {
            let mut loading = Loading::new(Options::default());
            for (number, (key, state)) in objects.iter().enumerate().filter(|(number, _)| *number != lost) {
                assert_eq!(loading.take(*key, state.clone(), keep), Ok(()), "{number}");
            }
            let loaded = loading.finish(Bytes::new());
            assert_eq!(loaded.is_ok(), lost == objects.len(), "without {:x?}", objects.get(lost));
        }
    }
}

#[test]
fn only_streams_that_changed_are_stored_again() {
    let mut machine = with_streams(&["a", "b", "c"]);
    assert_eq!(machine.take_changed().len(), 6, "each with its name");
    let delete =
        Command { at: Millis(2), path: "b".to_owned(), operation: Operation::Delete { incarnation: Some(token(2)) } };
    let again = Command { operation: Operation::Delete { incarnation: None }, ..delete.clone() };
    assert_eq!(machine.apply(&delete).effects, [Effect::Removed { object: token(2).get() }]);
    assert_eq!(machine.apply(&again).effects, []);
    assert_eq!(machine.take_changed(), vec![(token(2).get(), None), (record::name_key("b"), None)]);
    assert_eq!(machine.take_changed(), vec![]);
}

#[test]
fn a_content_type_is_shared_and_goes_with_its_last_stream() {
    let mut machine = with_streams(&["a", "b"]);
    assert_eq!(machine.content_types.len(), 1);
    for (path, left) in [("a", 1), ("b", 0)] {
        let operation = Operation::Delete { incarnation: None };
        machine.apply(&Command { at: Millis(1), path: path.to_owned(), operation });
        assert_eq!((machine.content_types.len(), machine.names.len(), machine.streams.len()), (left, left, left));
    }
}
