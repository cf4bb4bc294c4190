use super::super::encode::Form;
use super::*;
use proptest::prelude::*;

fn clean() -> Encoder {
    Encoder::new(Form::Text)
}

/// An encoder that holds the beginning of a character.
fn holding() -> Encoder {
    let mut encoder = clean();
    encoder.data(b"\xe2", false, &mut Vec::new());
    encoder
}

fn event(start: u64, next: u64, bytes: usize) -> Event {
    Event {
        start: Offset(start),
        before: clean(),
        next: Offset(next),
        after: clean(),
        bytes: vec![b'x'; bytes].into(),
        data: bytes,
        cursor: 7,
        up_to_date: true,
        closed: false,
    }
}

fn line() -> Line {
    Line::new(Offset(0), clean())
}

fn next(line: &mut Line, standing: &mut Option<Standing>) -> Option<u64> {
    let Some(Standing::Before(number)) = *standing else { panic!("{standing:?}") };
    match line.take(number) {
        Found::Event(event) => {
            *standing = Some(Standing::Before(number + 1));
            Some(event.next.0)
        }
        Found::Nothing => None,
        Found::Lost => {
            *standing = None;
            None
        }
    }
}

#[test]
fn whoever_stands_at_the_end_gets_the_same_bytes_and_then_they_are_gone() {
    let mut line = line();
    let mut readers: Vec<_> = (0..3).map(|_| line.stand(Offset(0), &clean())).collect();
    line.push(event(0, 5, 10));
    let first = line.events[0].event.bytes.as_ptr();
    for (at, reader) in readers.iter_mut().enumerate() {
        assert_eq!(line.events.len(), 1, "reader {at} has yet to take it");
        assert_eq!(line.events[0].event.bytes.as_ptr(), first);
        assert_eq!(next(&mut line, reader), Some(5));
        assert_eq!(next(&mut line, reader), None);
    }
    assert_eq!((line.events.len(), line.bytes, line.at_end), (0, 0, 3));
}

#[test]
fn a_reader_in_another_place_or_state_reads_on_its_own() {
    let mut line = line();
    let behind = line.stand(Offset(0), &clean()).expect("a place");
    line.push(event(0, 5, 10));
    assert_eq!(line.stand(Offset(0), &clean()), Some(behind), "the event is still there");
    assert_eq!(line.stand(Offset(0), &holding()), None, "it holds half a character");
    assert_eq!(line.stand(Offset(3), &clean()), None, "nothing begins there");
    assert_eq!(line.stand(Offset(5), &holding()), None);
    assert_eq!(line.stand(Offset(5), &clean()), Some(Standing::Before(1)));
    assert_eq!(line.stand(Offset(6), &clean()), Some(Standing::Ahead));
    assert!(!line.has_reached(Offset(6)));
    line.push(event(5, 9, 10));
    assert!(line.has_reached(Offset(6)));
}

#[test]
fn a_line_is_wanted_while_somebody_waits_for_more() {
    let mut line = line();
    assert!(!line.is_wanted());
    let mut one = line.stand(Offset(0), &clean());
    assert!(line.is_wanted());
    line.push(event(0, 5, 10));
    assert!(!line.is_wanted(), "it has yet to take what is there");
    assert_eq!(next(&mut line, &mut one), Some(5));
    assert!(line.is_wanted());
    line.leave(one.expect("a place"));
    assert!(!line.is_wanted());
    let ahead = line.stand(Offset(6), &clean()).expect("a place");
    assert!(line.is_wanted());
    line.leave(ahead);
    assert!(!line.is_wanted());
}

#[test]
fn a_reader_that_leaves_keeps_nothing() {
    let mut line = line();
    let (stays, leaves) = (line.stand(Offset(0), &clean()), line.stand(Offset(0), &clean()));
    line.push(event(0, 5, 10));
    let mut stays = stays;
    assert_eq!(next(&mut line, &mut stays), Some(5));
    assert_eq!(line.events.len(), 1);
    line.leave(leaves.expect("a place"));
    assert_eq!((line.events.len(), line.bytes), (0, 0));
}

#[test]
fn a_reader_too_far_behind_loses_its_place_and_the_others_do_not() {
    for (bytes, kept) in [(1usize, EVENTS_MAX), (BYTES_MAX / 4, 4), (BYTES_MAX * 2, 1)] {
        let mut line = line();
        let (mut slow, mut quick) = (line.stand(Offset(0), &clean()), line.stand(Offset(0), &clean()));
        let mut most = 0;
        for at in 0..200 {
            line.push(event(at, at + 1, bytes));
            most = most.max(line.events.len());
            assert_eq!(next(&mut line, &mut quick), Some(at + 1));
        }
        assert_eq!(most, kept, "events of {bytes} bytes");
        assert_eq!(next(&mut line, &mut slow), None);
        assert_eq!(slow, None, "its place is lost");
        // The bytes that were kept for it alone are gone with the next that everybody takes.
        let back = line.stand(Offset(200), &clean()).expect("it has caught up");
        assert!(line.is_wanted());
        line.leave(back);
    }
}

proptest! {
    /// Whatever readers do: each gets every event between its first and its last in order, or loses its place; nothing
    /// is kept that nobody stands in front of, and never more than the bounds.
    #[test]
    fn counts_and_bounds_hold_whatever_readers_do(steps in prop::collection::vec((0u8..4, 0usize..6, 1usize..BYTES_MAX), 1..200)) {
        let mut line = line();
        let mut readers: Vec<Option<(Standing, u64)>> = vec![None; 6];
        for (what, who, bytes) in steps {
            match (what, readers[who]) {
                (0, _) => {
                    let start = line.end.0;
                    drop(line.push(event(start, start + 1, bytes)));
                }
                (1, None) => {
                    let end = line.end;
                    readers[who] = line.stand(end, &clean()).map(|standing| (standing, end.0));
                }
                (2, Some((standing, _))) => {
                    line.leave(standing);
                    readers[who] = None;
                }
                (_, Some((Standing::Before(number), position))) => match line.take(number) {
                    Found::Event(event) => {
                        prop_assert_eq!(event.start.0, position);
                        readers[who] = Some((Standing::Before(number + 1), event.next.0));
                    }
                    Found::Nothing => prop_assert_eq!(position, line.end.0),
                    Found::Lost => readers[who] = None,
                },
                _ => {}
            }
            prop_assert_eq!(line.bytes, line.events.iter().map(|entry| entry.event.bytes.len()).sum::<usize>());
            prop_assert!(line.events.len() <= EVENTS_MAX);
            prop_assert!(line.bytes <= BYTES_MAX || line.events.len() == 1);
            prop_assert!(line.events.front().is_none_or(|front| front.standing > 0));
            let placed = readers.iter().flatten().filter(|(standing, _)| {
                matches!(standing, Standing::Before(number) if *number >= line.first)
            }).count();
            let counted = line.events.iter().map(|entry| entry.standing).sum::<usize>() + line.at_end;
            prop_assert_eq!(placed, counted);
        }
    }
}
