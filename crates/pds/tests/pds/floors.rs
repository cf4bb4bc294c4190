//! Whatever is copied, put back and begun again, and however clocks are set: no number is given out twice.

use highwater_pds::boot::{self, Warning};
use highwater_pds::restore::{self, Lost, Marker, Plan, RestoreError};
use highwater_pds::sequence::{PASSED_MICROS_MAX, RESTORE_RAISE, SEQ_MAX};
use highwater_pds::{Draft, Fact, Micros, Record, Seq, State, Witness};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

const BEGIN: u64 = 1_796_000_000_000_000;
/// More than is sent between two times at which a witness is written.
const SENT_MAX: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
enum Doing {
    /// So many frames.
    Send(u64),
    Copy,
    /// One of the copies is put back.
    PutBack(usize),
    /// A checkpoint, at which a witness is written.
    Checkpoint,
    /// The clock goes on by so many microseconds.
    Pass(u64),
    /// The clock is set back by so many microseconds.
    SetBack(u64),
}

fn step() -> impl Strategy<Value = Doing> {
    let passes = prop_oneof![1..1_000_000u64, 1..86_400_000_000u64, 1..40 * 86_400_000_000u64];
    prop_oneof![
        6 => (1..SENT_MAX).prop_map(Doing::Send),
        2 => Just(Doing::Copy),
        3 => any::<usize>().prop_map(Doing::PutBack),
        1 => Just(Doing::Checkpoint),
        3 => passes.prop_map(Doing::Pass),
        1 => (1..30 * 86_400_000_000u64).prop_map(Doing::SetBack),
    ]
}

/// Who remembers what the lost run gave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// A file outside the volume.
    Witness,
    /// A file in the data directory, when `pds` in it is put back alone.
    Beside,
    /// An operator who asked a relay, which was behind by less than it takes in between.
    Operator,
    Nobody,
}

struct Server {
    state: State,
    witness: Witness,
    copies: Vec<State>,
    now: u64,
    restores: u64,
    /// The highest number that anybody was ever given.
    newest: u64,
}

impl Server {
    fn new() -> Self {
        let state = State::default();
        let witness = Witness::default();
        Self { copies: vec![state.clone()], state, witness, now: BEGIN, restores: 0, newest: 0 }
    }

    fn append(&mut self, draft: &Draft) {
        let payload = draft.number(&mut self.state.sequence.clone()).expect("there are numbers");
        self.state.apply(&Record::decode(payload).expect("a record")).expect("it fits");
    }

    /// The numbers of so many frames, and when the last of them was stored.
    fn send(&mut self, count: u64) -> Result<(), String> {
        let first = self.state.sequence.ceiling() + 1;
        if first <= self.newest {
            return Err(format!("{first} is given out again: {} was given out before", self.newest));
        }
        self.newest = first + count - 1;
        self.state.sequence.note(Seq(self.newest));
        self.state.newest = self.state.newest.max(Micros(self.now));
        Ok(())
    }

    fn remember(&mut self) {
        self.witness = Witness::of(&self.state, Some(self.witness));
    }

    fn put_back(&mut self, copy: usize, memory: Memory) -> Result<(), String> {
        self.state = self.copies[copy % self.copies.len()].clone();
        self.restores += 1;
        let seq_min = (memory == Memory::Operator).then_some(self.newest.saturating_sub(SENT_MAX / 2));
        let outside = (memory == Memory::Witness).then_some(self.witness);
        let beside = (memory == Memory::Beside).then_some(self.witness);
        let lost = Lost::new(&self.state, &Marker { seq_min, ..Marker::default() }, outside, beside);
        let before = self.state.sequence.ceiling();
        match Plan::new(&self.state, self.restores, lost, Micros(self.now)).map_err(|error| error.to_string())? {
            Plan::Begin { floor, rev_min } if floor >= before + RESTORE_RAISE => {
                self.append(&restore::begin(self.restores, floor, rev_min, Micros(self.now)));
            }
            plan => return Err(format!("{plan:?} above {before}")),
        }
        self.remember();
        // What the restore tells.
        self.send(3)
    }

    fn act(&mut self, step: Doing, memory: Memory) -> Result<(), String> {
        match step {
            Doing::Send(count) => {
                self.send(count)?;
                // Nobody sends more than this between two checkpoints.
                self.remember();
            }
            Doing::Copy => self.copies.push(self.state.clone()),
            Doing::PutBack(copy) => self.put_back(copy, memory)?,
            Doing::Checkpoint => self.remember(),
            Doing::Pass(micros) => self.now += micros,
            Doing::SetBack(micros) => self.now -= micros,
        }
        Ok(())
    }
}

fn lives(memory: Memory) -> Result<(), String> {
    let config = ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, random);
    let result = runner.run(&proptest::collection::vec(step(), 1..40), |steps| {
        let mut server = Server::new();
        for step in steps {
            server.act(step, memory).map_err(TestCaseError::fail)?;
        }
        Ok(())
    });
    result.map_err(|error| error.to_string())
}

/// Copies of any run, put back in any order and as often as anybody likes, with clocks that are weeks behind.
#[test]
fn no_history_of_copies_and_restores_gives_a_number_twice_if_anybody_remembers_the_highest() {
    for memory in [Memory::Witness, Memory::Beside, Memory::Operator] {
        assert_eq!(lives(memory), Ok(()), "{memory:?}");
    }
    // And what this test would be worth if nobody did.
    let found = lives(Memory::Nobody).expect_err("nobody remembered, and nothing was given out twice");
    assert!(found.contains("given out again"), "{found}");
}

/// Without anybody who remembers: the copy that is put back is of the run before it, or one that was put back already, and the clock
/// goes on. This is what a restore promises without a witness, and the start says where it ends.
#[test]
fn without_a_witness_a_copy_put_back_again_and_again_gives_no_number_twice() {
    let mut server = Server::new();
    server.act(Doing::Send(1_000), Memory::Nobody).expect("sent");
    for _ in 0..3 {
        server.act(Doing::Copy, Memory::Nobody).expect("copied");
        let copy = server.copies.len() - 1;
        for _ in 0..3 {
            server.act(Doing::Send(1_000_000), Memory::Nobody).expect("sent");
            // A second is a million numbers, and this run gave out fewer.
            server.act(Doing::Pass(2_000_000), Memory::Nobody).expect("passed");
            server.act(Doing::PutBack(copy), Memory::Nobody).expect("put back");
        }
    }
    let told = |lost: Lost| lost.is_told;
    let (state, marker) = (&server.state, Marker::default());
    let witness = Witness::of(state, None);
    assert!(!told(Lost::new(state, &marker, None, None)));
    assert!(told(Lost::new(state, &marker, Some(witness), None)));
    assert!(told(Lost::new(state, &Marker { seq_min: Some(1), ..marker }, None, None)));
    // What lies in the data directory and is not ahead may have come back with all of it.
    assert!(!told(Lost::new(state, &marker, None, Some(witness))));
    assert!(told(Lost::new(state, &marker, None, Some(Witness { seq: witness.seq + 1, ..witness }))));
    let words = Warning::NumbersUntold.to_string();
    assert!(words.contains("--min-seq") && words.contains("pds.witness_path"), "{words}");
}

/// A machine that believes it is 2106 would use up a third of all numbers with one restore.
#[test]
fn a_clock_that_is_decades_ahead_uses_up_no_numbers() {
    let mut server = Server::new();
    server.send(10).expect("sent");
    let later = Micros(BEGIN + 80 * 365 * 86_400_000_000);
    let refused = Plan::new(&server.state, 1, Lost::default(), later).expect_err("nobody keeps a copy for so long");
    assert!(matches!(refused, RestoreError::Age { days: 29_200 }), "{refused}");
    assert!(refused.to_string().contains("--min-seq"), "{refused}");
    let told = Lost { seq: 5_000, is_told: true, ..Lost::default() };
    let plan = Plan::new(&server.state, 1, told, later);
    assert_eq!(plan, Ok(Plan::Begin { floor: 5_000 + RESTORE_RAISE + PASSED_MICROS_MAX, rev_min: None }));
    // A copy of an empty directory is put back twice like any other, and does not use up all numbers either.
    let floor = |now| match Plan::new(&State::default(), 1, Lost::default(), now) {
        Ok(Plan::Begin { floor, .. }) => floor,
        other => panic!("{other:?}"),
    };
    let (first, second) = (floor(Micros(BEGIN)), floor(Micros(BEGIN + 2_000_000)));
    assert_eq!(second, first + 2_000_000);
    assert!(floor(later) < SEQ_MAX / 8, "{}", floor(later));
}

#[test]
fn a_raise_that_would_pass_the_end_of_numbers_is_refused_whoever_asks_for_it() {
    let mut server = Server::new();
    server.send(10).expect("sent");
    let lost = |seq| Lost { seq, is_told: true, ..Lost::default() };
    let plan = |seq| Plan::new(&server.state, 1, lost(seq), Micros(BEGIN));
    assert_eq!(plan(SEQ_MAX - RESTORE_RAISE - 1), Ok(Plan::Begin { floor: SEQ_MAX - 1, rev_min: None }));
    assert!(matches!(plan(SEQ_MAX - RESTORE_RAISE), Err(RestoreError::Exhausted(_))));
}

/// Revisions of the lost run are behind what a restore makes even where the clock is behind them, if a witness knew them.
#[test]
fn what_a_witness_remembers_is_never_less_than_before() {
    let mut server = Server::new();
    server.send(10).expect("sent");
    server.append(&Draft::new(Micros(BEGIN)).fact(Fact::Booted(7)));
    let before = Witness { nonce: 1, seq: 99, rev: Some(highwater_repo::Tid::new(BEGIN, 3)), account: 4 };
    let after = Witness::of(&server.state, Some(before));
    assert_eq!(after, Witness { nonce: 7, ..before });
    assert!(!after.knows(&server.state), "it tells of more than the directory knows");
    assert_eq!(boot::warnings(&server.state, [after], Micros(BEGIN)), [Warning::WitnessDiffers]);
    let lost = Lost::new(&server.state, &Marker::default(), Some(after), None);
    assert_eq!((lost.seq, lost.rev), (99, before.rev));
    // A restore that went above all of it is the end of the lost run's accounts, and not of its revisions.
    let mut restored = server.state.clone();
    restored.sequence.raise(lost.seq + RESTORE_RAISE);
    let after = Witness::of(&restored, Some(before));
    assert_eq!(after, Witness { nonce: 7, seq: 99 + RESTORE_RAISE, rev: before.rev, account: 0 });
    assert!(after.knows(&restored));
    let named = highwater_repo::Tid::new(BEGIN - 1, 0);
    let marker = Marker { rev_min: Some(named), ..Marker::default() };
    assert_eq!(Lost::new(&server.state, &marker, Some(before), None).rev, Some(named), "the operator's word counts");
}
