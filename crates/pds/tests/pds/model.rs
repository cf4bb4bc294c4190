//! Whatever is done to accounts, wherever the process dies, and however often a copy is put back: what must always hold.

use crate::server::{Server, encoded, follower};
use highwater_base::planted::{Bug, plant};
use highwater_consumer::Follower;
use highwater_consumer::follower::Output;
use highwater_pds::lifecycle::{Announce, Change};
use highwater_pds::restore::Marker;
use highwater_pds::{Position, State, Witness};
use highwater_repo::Tree;
use highwater_repo::mst::{Step, Walk};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::collections::VecDeque;

/// Copies that are kept at once.
const COPIES: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Doing {
    Create(Option<Announce>),
    Write(usize, u8, i64),
    Change(usize, Change),
    /// The log has no room for frames, or has it again.
    Full(bool),
    /// A start; it may die before so many records.
    Boot(Option<usize>),
    Checkpoint,
    Copy,
    /// One of the newest copies is put back, with a marker; the follower may have read everything of the run that is lost.
    PutBack(usize, bool),
    Follow,
    Seconds(u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Activate(Announce::OnActivation)),
        Just(Change::Activate(Announce::OnFirstWrite)),
        Just(Change::Lock),
        Just(Change::Lock),
        Just(Change::Lift),
        Just(Change::Lift),
        Just(Change::TakeDown),
        Just(Change::Restore),
        Just(Change::Deactivate),
        Just(Change::Reactivate),
        Just(Change::Decommission),
        Just(Change::Erase),
    ]
}

fn step() -> impl Strategy<Value = Doing> {
    let announce = prop_oneof![Just(None), Just(Some(Announce::OnActivation)), Just(Some(Announce::OnFirstWrite))];
    prop_oneof![
        3 => announce.prop_map(Doing::Create),
        10 => (0..6usize, 0..4u8, 0..1_000i64).prop_map(|(account, key, number)| Doing::Write(account, key, number)),
        10 => (0..6usize, change()).prop_map(|(account, change)| Doing::Change(account, change)),
        2 => any::<bool>().prop_map(Doing::Full),
        4 => proptest::option::of(0..8usize).prop_map(Doing::Boot),
        2 => Just(Doing::Checkpoint),
        2 => Just(Doing::Copy),
        2 => (0..COPIES, any::<bool>()).prop_map(|(copy, followed)| Doing::PutBack(copy, followed)),
        3 => Just(Doing::Follow),
        2 => (1..100u64).prop_map(Doing::Seconds),
    ]
}

struct World {
    server: Server,
    /// Copies that are kept, of any run.
    copies: VecDeque<(crate::server::Directory, usize)>,
    names: Vec<String>,
    follower: Follower,
}

impl World {
    fn do_step(&mut self, step: Doing) {
        // Between two steps time passes, so that a restored host's clock is not behind the lost one's.
        self.server.now.0 += 1_000;
        match step {
            Doing::Create(announce) if self.names.len() < 6 => {
                let name = format!("n{}", self.names.len());
                self.server.create(&name, announce);
                self.names.push(name);
            }
            Doing::Create(_) => {}
            Doing::Write(account, key, number) => {
                if let Some(name) = self.names.get(account).cloned() {
                    let _refused = self.server.write(&name, &format!("k{key}"), number);
                }
            }
            Doing::Change(account, change) => {
                if let Some(name) = self.names.get(account).cloned() {
                    let _refused = self.server.change(&name, change);
                }
            }
            Doing::Full(full) => self.server.full = full,
            Doing::Boot(lives) => {
                self.server.full = false;
                let signs = self.server.directory.marker.is_some();
                let signed = self.server.signed.len();
                self.server.lives = lives;
                if self.server.boot().is_err() {
                    self.server.lives = None;
                    self.server.boot().expect("nothing kills it now");
                }
                self.server.lives = None;
                assert!(signs || self.server.signed.len() == signed, "a start without a marker signs nothing");
                self.told();
                let before = self.server.directory.log.len();
                self.server.boot().expect("nothing kills it");
                assert_eq!(self.server.directory.log.len(), before, "a start where nothing changed stores nothing");
            }
            Doing::Checkpoint => self.server.checkpoint(),
            Doing::Copy => {
                self.copies.push_front((self.server.directory.clone(), self.names.len()));
                self.copies.truncate(COPIES);
            }
            Doing::PutBack(copy, followed) => {
                let Some((copy, names)) = self.copies.get(copy).cloned() else { return };
                if followed {
                    self.server.follow(&mut self.follower);
                }
                // To copy a volume back takes a while.
                self.server.now = self.server.now.plus_seconds(120);
                self.names = (0..names).map(|name| format!("n{name}")).collect();
                self.server.directory = copy;
                self.server.directory.marker = Some(Marker::default());
                self.do_step(Doing::Boot(Some(2)));
            }
            Doing::Follow => drop(self.server.follow(&mut self.follower)),
            Doing::Seconds(seconds) => self.server.now = self.server.now.plus_seconds(seconds),
        }
        self.always();
    }

    /// After every step.
    fn always(&self) {
        let state = &self.server.state;
        for account in state.accounts.values() {
            if let Some(announced) = account.announced {
                assert!(
                    account.position().is_some(),
                    "{} was announced as {announced:?} and has no position",
                    account.did
                );
                // A restore does not speak for an account that went elsewhere, whatever the lost run said of it.
                if !account.standing.decommissioned {
                    assert_eq!(self.server.told.get(&account.id), Some(&announced), "{}", account.did);
                }
            }
            if account.standing.may_write() {
                assert!(account.head.is_some(), "{} may write and has no repository", account.did);
            }
        }
        // What is durable makes the same state again, to the byte.
        let mut again = State::default();
        if let Some((rest, rows)) = &self.server.directory.checkpoint {
            again = State::decode_rest(rest.clone()).expect("it reads back");
            for row in rows {
                again.load_row(row.clone()).expect("it reads back");
            }
        }
        for payload in &self.server.directory.log {
            again.apply(&highwater_pds::Record::decode(payload.clone()).expect("it reads back")).expect("it fits");
        }
        assert_eq!(again.encode_rest(), state.encode_rest());
        assert!(again.accounts.values().map(encoded).eq(state.accounts.values().map(encoded)));
        assert_eq!(again.sequence.ceiling(), state.sequence.ceiling());
    }

    /// After a start: relays were told of everything.
    fn told(&self) {
        for account in self.server.state.accounts.values().filter(|account| account.position().is_some()) {
            assert_eq!(account.position(), account.announced, "{} as it was announced", account.did);
        }
    }

    /// A follower that takes everything, by its own cursor, ends on what the server has.
    fn settled(&mut self) {
        self.do_step(Doing::Boot(None));
        let found = self.server.follow(&mut self.follower);
        assert!(!found.iter().any(|output| matches!(output, Output::Refused(_))));
        for account in self.server.state.accounts.values().filter(|account| account.position().is_some()) {
            let held = self.follower.account(&account.did).expect("it was told of");
            let active = account.position() == Some(Position::Active);
            assert_eq!(held.position().map(|position| position.is_active()), Some(active), "{}", account.did);
            if !active {
                continue;
            }
            assert!(held.is_synchronized(), "{}", account.did);
            assert_eq!(held.head().map(|head| head.rev), account.head.map(|head| head.rev), "{}", account.did);
            let (blocks, head) = (&self.server.directory.blocks, account.head.expect("it has one"));
            let mut walk = Walk::new(&Tree::open(head.data, blocks).expect("whole"));
            let mut there = Vec::new();
            while let Some(step) = walk.next(blocks).expect("whole") {
                if let Step::Record(key, cid) = step {
                    there.push((key.to_string(), cid));
                }
            }
            let held = held.records().expect("they are known").iter().map(|(key, record)| (key.clone(), record.cid));
            assert_eq!(held.collect::<Vec<_>>(), there, "{}", account.did);
        }
    }
}

/// Lives until one shows that a rule is broken, or so many of them. How many it took to find one.
fn lives(cases: u32, max_shrink_iters: u32) -> Result<(), u32> {
    let config = ProptestConfig { cases, max_shrink_iters, failure_persistence: None, ..ProptestConfig::default() };
    // The same lives every time.
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, random);
    let lived = std::cell::Cell::new(0);
    let result = runner.run(&proptest::collection::vec(step(), 1..60), |steps| {
        lived.set(lived.get() + 1);
        let (server, follower) = (Server { witness: Some(Witness::default()), ..Server::new() }, follower());
        let mut world = World { server, copies: VecDeque::new(), names: Vec::new(), follower };
        steps.into_iter().for_each(|step| world.do_step(step));
        world.settled();
        Ok(())
    });
    result.map_err(|error| {
        eprintln!("{error}");
        lived.get()
    })
}

/// The server in these tests asserts by itself that numbers rise over all runs, that a revision is minted once in all of them, that a
/// row which was advanced is the row that is applied, and that a follower finds no rule broken.
#[test]
fn numbers_and_revisions_never_repeat_and_followers_end_on_what_is_there() {
    assert_eq!(lives(192, 256), Ok(()));
}

/// What these tests would be worth if they found none of these.
#[test]
fn planted_faults_of_the_machine_are_found() {
    for bug in [Bug::ForgetAnnounced, Bug::KeepFloor, Bug::SkipFreshCommits] {
        plant(Some(bug));
        let found = lives(192, 0);
        plant(None);
        assert!(found.is_err(), "{bug:?} was not found");
    }
}
