//! Random commands against a model that keeps every write it took and derives each answer from that list.

use crate::script::token;
use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Millis, Offset};
use highwater_stream::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const HOUR_MS: u64 = 3_600_000;
const WEEK_MS: u64 = 7 * 24 * HOUR_MS;
const PRODUCERS_MAX: usize = 2;

/// A keyed write that was taken.
#[derive(Debug, Clone)]
struct Taken {
    key: ProducerKey,
    receipt: Receipt,
    at: Millis,
    /// The first write of its producer, without a token, at an epoch that the floor forbade.
    below_floor: bool,
}

#[derive(Debug)]
struct ModelStream {
    incarnation: Incarnation,
    content_type: String,
    bytes: Vec<u8>,
    closed: bool,
    stream_seq: Option<String>,
    floor: Option<u64>,
    taken: Vec<Taken>,
}

#[derive(Default)]
struct Model {
    streams: BTreeMap<String, ModelStream>,
}

fn same_type(stored: &str, asked: &str, whole: bool) -> bool {
    let essence = |t: &str| t.split("; ").next().map(str::to_owned);
    if whole { stored == asked } else { essence(stored) == essence(asked) }
}

impl Model {
    fn apply(&mut self, command: &Command) -> Result<Outcome, Refusal> {
        let found = self.streams.get_mut(&command.path);
        let token_of = |stream: &ModelStream, asked: Option<Incarnation>| match asked {
            Some(asked) if asked != stream.incarnation => {
                Err(Refusal::IncarnationMismatch { current: Some(stream.incarnation) })
            }
            _ => Ok(()),
        };
        match (&command.operation, found) {
            (Operation::Create(create), Some(stream)) => {
                token_of(stream, create.incarnation)?;
                let same = same_type(&stream.content_type, &create.content_type, create.incarnation.is_some());
                if !same || stream.closed != create.closed {
                    return Err(Refusal::AlreadyExists);
                }
                Ok(Outcome::Matched(stream.created()))
            }
            (Operation::Create(create), None) => {
                if create.incarnation.is_some() {
                    return Err(Refusal::IncarnationMismatch { current: None });
                }
                let stream = ModelStream {
                    incarnation: create.new_incarnation,
                    content_type: create.content_type.clone(),
                    bytes: create.body.to_vec(),
                    closed: create.closed,
                    stream_seq: None,
                    floor: None,
                    taken: Vec::new(),
                };
                let outcome = Outcome::Created(stream.created());
                self.streams.insert(command.path.clone(), stream);
                Ok(outcome)
            }
            (Operation::Append(_) | Operation::Delete { .. }, None) => Err(Refusal::StreamNotFound),
            (Operation::Delete { incarnation }, Some(stream)) => {
                token_of(stream, *incarnation)?;
                self.streams.remove(&command.path);
                Ok(Outcome::Deleted)
            }
            (Operation::Append(append), Some(stream)) => {
                token_of(stream, append.incarnation)?;
                stream.append(append, command.at)
            }
            (other, _) => unreachable!("not drawn: {other:?}"),
        }
    }
}

impl ModelStream {
    fn end(&self) -> Offset {
        Offset(self.bytes.len() as u64)
    }

    fn created(&self) -> Created {
        let content_type = self.content_type.clone();
        Created { incarnation: self.incarnation, next: self.end(), closed: self.closed, content_type }
    }

    fn appended(&self, start: Offset) -> Outcome {
        Outcome::Appended { start, next: self.end(), incarnation: self.incarnation, closed: self.closed }
    }

    fn append(&mut self, append: &Append, at: Millis) -> Result<Outcome, Refusal> {
        // A refusal leaves everything as it was, so the floor and the list are put in place at the end.
        let (mut floor, mut taken) = (self.floor, self.taken.clone());
        let mut closes = None;
        let mut newcomer = false;
        if let Some(key) = &append.producer {
            newcomer = !taken.iter().any(|t| t.key.id == key.id);
            let last = taken.iter().rfind(|t| t.key.id == key.id).cloned();
            if let Some(last) = last.filter(|last| at.since(last.at) >= WEEK_MS) {
                floor = floor.max(Some(last.key.epoch));
                taken.retain(|t| t.key.id != key.id);
            }
            if let Some(known) = self.key_table(key, append.incarnation.is_some(), floor, &taken, &mut closes)? {
                return Ok(known);
            }
        }
        if self.closed {
            let close_again = append.producer.is_none() && append.close && append.body.is_empty();
            return if close_again { Ok(self.appended(self.end())) } else { self.refuse_closed() };
        }
        let below_floor = append.incarnation.is_none()
            && append.producer.as_ref().is_some_and(|key| floor.is_some_and(|floor| key.epoch <= floor));
        if newcomer {
            (floor, taken) = make_room(floor, taken, at)?;
        }
        self.content(append)?;
        let start = self.end();
        self.bytes.extend_from_slice(&append.body);
        self.closed |= append.close;
        self.stream_seq = append.stream_seq.clone().or(self.stream_seq.take());
        (self.floor, self.taken) = (floor, taken);
        let Some(key) = append.producer.clone() else { return Ok(self.appended(start)) };
        let receipt = Receipt {
            epoch: key.epoch,
            seq: key.seq,
            start,
            next: self.end(),
            incarnation: self.incarnation,
            closed_epoch: closes,
            closed_stream: append.close,
            had_body: !append.body.is_empty(),
        };
        let of_producer = self.taken.iter().rfind(|t| t.key.id == key.id);
        let at = of_producer.map_or(at, |t| t.at.max(at));
        self.taken.push(Taken { key, receipt: receipt.clone(), at, below_floor });
        Ok(Outcome::Applied(receipt))
    }

    fn refuse_closed(&self) -> Result<Outcome, Refusal> {
        Err(Refusal::StreamClosed { next: self.end() })
    }

    /// A known answer, or nothing if the write may apply; `closes` gets the epoch that it would end.
    fn key_table(
        &self,
        key: &ProducerKey,
        tokened: bool,
        floor: Option<u64>,
        taken: &[Taken],
        closes: &mut Option<ClosedEpoch>,
    ) -> Result<Option<Outcome>, Refusal> {
        let mine: Vec<&Taken> = taken.iter().filter(|t| t.key.id == key.id).collect();
        let Some(newest) = mine.last() else {
            return match floor {
                Some(floor) if tokened && key.epoch <= floor => Err(Refusal::ProducerExpired { floor }),
                _ if key.seq == 0 => Ok(None),
                _ => Err(Refusal::SeqGap { expected: 0, received: key.seq }),
            };
        };
        let current = newest.key.epoch;
        // As long as every write since the first one lay at or below the floor of its time, so did the record.
        let forbids = floor.filter(|_| tokened && self.opened_below_floor(&mine));
        if let Some(floor) = forbids.filter(|floor| key.seq != 0 || key.epoch <= current.max(*floor)) {
            return Err(Refusal::ProducerExpired { floor });
        }
        let claim = mine.iter().rfind(|t| t.key.seq == 0).expect("a producer begins with a claim");
        let ended = claim.receipt.closed_epoch;
        if key.epoch < current {
            return Err(match ended.filter(|ended| ended.epoch == key.epoch) {
                Some(closed) => Refusal::EpochClosedByClaim { current, closed },
                None => Refusal::EpochStale { current },
            });
        }
        if key.epoch > current {
            *closes = Some(ClosedEpoch { epoch: current, last_seq: newest.key.seq });
            return if key.seq == 0 { Ok(None) } else { Err(Refusal::EpochNotClaimed) };
        }
        let is_newest = key.seq == newest.key.seq;
        if (key.seq == 0 && key.digest != claim.key.digest) || (is_newest && key.digest != newest.key.digest) {
            return Err(Refusal::KeyConflict { current });
        }
        if is_newest {
            return Ok(Some(Outcome::Repeated(newest.receipt.clone())));
        }
        if mine.iter().any(|t| (t.key.epoch, t.key.seq) == (key.epoch, key.seq)) {
            let (epoch, seq, closed) = (current, newest.key.seq, ended.filter(|_| key.seq == 0));
            return Ok(Some(Outcome::Evicted { epoch, seq, incarnation: self.incarnation, closed }));
        }
        match newest.key.seq + 1 {
            expected if expected == key.seq => Ok(None),
            expected => Err(Refusal::SeqGap { expected, received: key.seq }),
        }
    }

    fn opened_below_floor(&self, mine: &[&Taken]) -> bool {
        mine.first().is_some_and(|first| first.below_floor) && mine.iter().all(|t| t.below_floor)
    }

    fn content(&self, append: &Append) -> Result<(), Refusal> {
        if append.body_fault == Some(BodyFault::DigestMismatch) {
            return Err(Refusal::DigestMismatch);
        }
        if append.body.is_empty() && !append.close {
            return Err(Refusal::EmptyAppend);
        }
        if !append.body.is_empty() {
            let asked = append.content_type.as_deref().ok_or(Refusal::MissingContentType)?;
            let states_digest = append.producer.as_ref().is_some_and(|key| key.digest.is_some());
            if !same_type(&self.content_type, asked, append.incarnation.is_some() || states_digest) {
                let expected = self.content_type.clone();
                return Err(Refusal::ContentTypeMismatch { expected, next: self.end() });
            }
        }
        match (&append.stream_seq, &self.stream_seq) {
            (Some(asked), Some(last)) if asked <= last => Err(Refusal::StreamSeqConflict { last: last.clone() }),
            _ => Ok(()),
        }
    }
}

/// Forgets the producers idle for an hour if a newcomer finds the stream full.
fn make_room(floor: Option<u64>, taken: Vec<Taken>, at: Millis) -> Result<(Option<u64>, Vec<Taken>), Refusal> {
    let newest: BTreeMap<String, Taken> = taken.iter().map(|t| (t.key.id.clone(), t.clone())).collect();
    if newest.len() < PRODUCERS_MAX {
        return Ok((floor, taken));
    }
    let idle = |id: &str| newest.get(id).is_some_and(|t| at.since(t.at) >= HOUR_MS);
    let highest = newest.values().filter(|t| idle(&t.key.id)).map(|t| t.key.epoch).max();
    match highest {
        None => Err(Refusal::ProducerLimit),
        Some(_) => Ok((floor.max(highest), taken.into_iter().filter(|t| !idle(&t.key.id)).collect())),
    }
}

/// Stands for the stream's own token until the command is sent.
const CURRENT: u64 = 0;

fn incarnation() -> impl Strategy<Value = Option<Incarnation>> {
    prop_oneof![5 => Just(None), 5 => Just(Some(token(CURRENT))), 1 => Just(Some(token(9)))]
}

fn content_type() -> impl Strategy<Value = String> {
    let types = ["text/plain", "text/plain; charset=utf-8", "application/octet-stream"];
    prop_oneof![8 => Just(types[0]), 2 => Just(types[1]), 1 => Just(types[2])].prop_map(str::to_owned)
}

fn body() -> impl Strategy<Value = Bytes> {
    prop_oneof![1 => Just(""), 6 => Just("a"), 3 => Just("bb")].prop_map(|text| Bytes::from_static(text.as_bytes()))
}

fn producer() -> impl Strategy<Value = ProducerKey> {
    let digest = prop_oneof![
        Just(None),
        Just(Some(Digest::of(b"a"))),
        Just(Some(Digest::of(b"a"))),
        Just(Some(Digest::of(b"bb")))
    ];
    let id = prop_oneof![4 => Just("p"), 2 => Just("q"), 1 => Just("r")].prop_map(str::to_owned);
    (id, 0..4u64, prop_oneof![3 => Just(0), 2 => Just(1), 2 => Just(2), 1 => Just(3u64)], digest)
        .prop_map(|(id, epoch, seq, digest)| ProducerKey { id, epoch, seq, digest })
}

fn operation() -> impl Strategy<Value = Operation> {
    let create = (content_type(), prop::bool::weighted(0.1), incarnation(), body()).prop_map(
        |(content_type, closed, incarnation, body)| {
            Operation::Create(Create {
                content_type,
                closed,
                incarnation,
                new_incarnation: token(CURRENT),
                expiry: None,
                body,
            })
        },
    );
    let stream_seq = prop::option::weighted(0.2, prop_oneof![Just("1".to_owned()), Just("2".to_owned())]);
    let append = (
        incarnation(),
        prop::option::weighted(0.8, producer()),
        prop::option::weighted(0.95, content_type()),
        stream_seq,
        prop::bool::weighted(0.03),
        body(),
    )
        .prop_map(|(incarnation, producer, content_type, stream_seq, close, body)| {
            let stated = producer.as_ref().and_then(|key: &ProducerKey| key.digest);
            let matches = stated.is_none_or(|stated| stated == Digest::of(&body));
            let body_fault = (!matches).then_some(BodyFault::DigestMismatch);
            Operation::Append(Append { incarnation, producer, body_fault, content_type, stream_seq, close, body })
        });
    let delete = incarnation().prop_map(|incarnation| Operation::Delete { incarnation });
    prop_oneof![3 => create, 40 => append, 1 => delete]
}

/// A run of commands on two streams, with a clock that stands, jumps ahead and at times back.
pub fn commands(count: usize) -> impl Strategy<Value = Vec<Command>> {
    let step = prop_oneof![
        20 => Just(0),
        2 => Just(60_000),
        2 => Just(HOUR_MS as i64),
        1 => Just(WEEK_MS as i64),
        1 => Just(-(2 * HOUR_MS as i64))
    ];
    let one = (step, prop_oneof![9 => Just("a"), 1 => Just("b")], operation());
    prop::collection::vec(one, count).prop_map(|steps| {
        let mut at = Millis(WEEK_MS);
        let mut number = 1_000;
        let made = steps.into_iter().map(|(step, path, mut operation)| {
            at = Millis(at.0.saturating_add_signed(step));
            number += 1;
            if let Operation::Create(create) = &mut operation {
                create.new_incarnation = token(number);
            }
            Command { at, path: path.to_owned(), operation }
        });
        made.collect()
    })
}

/// The command with the stream's own token where it asks for that.
fn resolve(command: &Command, machine: &Machine) -> Command {
    let mut command = command.clone();
    let asked = match &mut command.operation {
        Operation::Create(create) => &mut create.incarnation,
        Operation::Append(append) => &mut append.incarnation,
        Operation::Delete { incarnation } => incarnation,
        other => unreachable!("not drawn: {other:?}"),
    };
    if *asked == Some(token(CURRENT)) {
        *asked = machine.head(&command.path, command.at).ok().map(|head| head.incarnation).or(*asked);
    }
    command
}

fn options() -> Options {
    Options { producers_max: PRODUCERS_MAX, ..Options::default() }
}

/// The machine after a run of commands.
pub fn machine_after(commands: &[Command]) -> Machine {
    let mut machine = Machine::new(options());
    for command in commands {
        let command = resolve(command, &machine);
        machine.apply(&command);
    }
    machine
}

/// Keeps bytes as the effects say, the way a store does.
fn keep(bytes: &mut BTreeMap<u64, Vec<u8>>, command: &Command, effects: &[Effect]) {
    for effect in effects {
        keep_one(bytes, command, *effect);
    }
}

fn keep_one(bytes: &mut BTreeMap<u64, Vec<u8>>, command: &Command, effect: Effect) {
    match effect {
        Effect::Created { object, length } => {
            assert_eq!(command.body().len() as u64, length);
            assert!(bytes.insert(object, command.body().to_vec()).is_none(), "an object is made once");
        }
        Effect::Append { object, start, length, .. } => {
            assert_eq!(command.body().len() as u64, length);
            let kept = bytes.get_mut(&object).expect("appended to an object that is there");
            assert_eq!(kept.len() as u64, start.0, "bytes are appended without a hole");
            kept.extend_from_slice(command.body());
        }
        Effect::Removed { object } => assert!(bytes.remove(&object).is_some(), "removed what was there"),
        _ => {}
    }
}

fn early_agrees(machine: &Machine, command: &Command, result: &Result<Outcome, Refusal>) -> bool {
    let Operation::Append(Append { incarnation: Some(token), producer: Some(key), .. }) = &command.operation else {
        return true;
    };
    let known = matches!(result, Ok(Outcome::Repeated(_) | Outcome::Evicted { .. }) | Err(Refusal::KeyConflict { .. }));
    match machine.early(&command.path, command.at, *token, key) {
        Some(early) if known => early == *result,
        // Idleness alone parts the two: the head says what applied, the apply that the record is too old to go by.
        Some(_) => matches!(result, Err(Refusal::ProducerExpired { .. })),
        None => !known,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_machine_answers_what_the_list_of_all_writes_says(commands in commands(120)) {
        let mut machine = Machine::new(options());
        let mut model = Model::default();
        let mut bytes = BTreeMap::new();
        for command in &commands {
            let command = resolve(command, &machine);
            let before = machine.clone();
            let applied = machine.apply(&command);
            let expected = model.apply(&command);
            prop_assert_eq!(&applied.result, &expected, "{:?}", command);
            prop_assert!(early_agrees(&before, &command, &expected), "{:?} early on {:?}", command, expected);
            if applied.effects.is_empty() {
                prop_assert_eq!(before.fingerprint(), machine.fingerprint(), "{:?} told nobody", command);
            }
            keep(&mut bytes, &command, &applied.effects);
        }
        for (path, stream) in &model.streams {
            let head = machine.head(path, Millis(0));
            prop_assert_eq!(head.map(|head| head.next), Ok(stream.end()));
            prop_assert_eq!(&bytes[&stream.incarnation.get()], &stream.bytes);
        }
        prop_assert_eq!(bytes.len(), model.streams.len());
    }

    #[test]
    fn a_machine_that_was_stored_goes_on_as_if_it_never_stopped(
        commands in commands(80), stores in prop::collection::vec(any::<prop::sample::Index>(), 1..4)
    ) {
        let mut machine = Machine::new(options());
        let cuts: Vec<usize> = stores.iter().map(|at| at.index(commands.len())).collect();
        let mut stored: BTreeMap<u64, Bytes> = BTreeMap::new();
        let mut copies: Vec<Machine> = Vec::new();
        for (number, command) in commands.iter().enumerate() {
            if cuts.contains(&number) {
                let touched = machine.take_changed();
                stored.extend(touched.iter().filter_map(|(object, state)| state.clone().map(|state| (*object, state))));
                for (object, _) in touched.iter().filter(|(_, state)| state.is_none()) {
                    stored.remove(object);
                }
                prop_assert!(machine.take_changed().is_empty());
                let objects = stored.iter().map(|(object, state)| (*object, state.clone())).collect();
                let copy = Machine::load(options(), machine.meta(), objects);
                prop_assert!(copy.is_ok(), "{:?}", copy.err());
                copies.extend(copy);
            }
            let command = resolve(command, &machine);
            let applied = machine.apply(&command);
            for copy in &mut copies {
                prop_assert_eq!(copy.apply(&command), applied.clone());
            }
        }
        for copy in &copies {
            prop_assert_eq!(copy.fingerprint(), machine.fingerprint());
        }
    }
}
