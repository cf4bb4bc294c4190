//! The machine of the server, held to the rules by a follower through lives of accounts that chance made up.

use crate::machine::Machine;
use crate::stream::{BEGIN, create, delete, update};
use highwater_base::Random as _;
use highwater_base::random::SplitMix;
use highwater_consumer::follower::{Cause, Follower, Input, Options, Output};
use highwater_consumer::frame::Status;
use highwater_pds::lifecycle::{Announce, Change};
use highwater_pds::{Account, AccountId, Position};
use std::collections::BTreeSet;

/// Milliseconds between two steps.
const STEP_MS: u64 = 1_000;

/// A server, whoever follows it, and chance.
struct Life {
    machine: Machine,
    follower: Follower,
    random: SplitMix,
    /// How many events the follower has been brought.
    read: usize,
    found: Vec<Output>,
    /// Accounts of which the lost run told what the copy does not know.
    unknown: BTreeSet<AccountId>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut follower = Follower::new(Options::default());
        follower.step(BEGIN, Input::Connected { cursor: Some(0) });
        let (machine, random) = (Machine::new(BEGIN), SplitMix::new(seed));
        Self { machine, follower, random, read: 0, found: Vec::new(), unknown: BTreeSet::new() }
    }

    fn one(&mut self) -> Option<AccountId> {
        let ids = self.machine.state.accounts.keys().copied();
        let ids: Vec<AccountId> = ids.filter(|id| !self.unknown.contains(id)).collect();
        ids.get(self.random.below(ids.len() as u64) as usize).copied()
    }

    fn write(&mut self, id: AccountId) {
        let held: BTreeSet<String> =
            self.machine.records(&self.machine.state.accounts[&id]).into_iter().map(|(path, _)| path).collect();
        let mut keys: BTreeSet<u64> = BTreeSet::new();
        for _ in 0..=self.random.below(4) {
            keys.insert(self.random.below(40));
        }
        let value = self.random.below(1_000) as i64;
        let writes = keys.into_iter().map(|key| match (held.contains(&crate::stream::path(key)), value % 3) {
            (false, _) => create(key, value),
            (true, 0) => delete(key),
            (true, _) => update(key, -1 - value),
        });
        // An account that may not write does not.
        self.machine.write(id, &writes.collect::<Vec<_>>()).err();
    }

    /// Something happens to some account.
    fn happen(&mut self) {
        self.machine.now.0 += STEP_MS * 1_000;
        let (what, room) = (self.random.below(100), self.random.below(8) > 0);
        let Some(id) = self.one().filter(|_| what >= 9) else {
            let activate = [Some(Announce::OnActivation), Some(Announce::OnFirstWrite), None];
            return self.machine.create(activate[self.random.below(3) as usize], room);
        };
        let change = match what {
            9..60 => return self.write(id),
            60..64 => Change::Activate(Announce::OnActivation),
            64..66 => Change::Activate(Announce::OnFirstWrite),
            66..72 => Change::Lock,
            72..80 => Change::Lift,
            80..83 => Change::TakeDown,
            83..87 => Change::Restore,
            87..89 => Change::Deactivate,
            89..93 => Change::Reactivate,
            93..94 => Change::Erase,
            94..95 => Change::Decommission,
            _ => {
                self.machine.boot();
                return;
            }
        };
        self.machine.change(id, change, room);
    }

    /// The follower reads what was sent, and now and then connects anew.
    fn follow(&mut self) {
        if self.random.below(10) == 0 {
            self.connect();
        }
        while let Some((.., message)) = self.machine.sent.get(self.read) {
            self.read += 1;
            let message = message.clone();
            self.take(message);
        }
    }

    fn take(&mut self, message: bytes::Bytes) {
        let now = self.machine.millis();
        let found = self.follower.follow(now, Input::Message(message), &mut self.machine);
        self.found.extend(found);
    }

    fn connect(&mut self) {
        let cursor = self.follower.cursor().or(Some(0));
        self.follower.step(self.machine.millis(), Input::Connected { cursor });
        for message in self.machine.subscribe(cursor) {
            self.take(message);
        }
        self.read = self.machine.sent.len();
    }

    /// Nothing was found that the server must not do.
    fn blameless(&mut self) {
        let wrong = self.found.drain(..).find(|output| match output {
            Output::Violation { .. } | Output::Refused(_) | Output::Ignored { fetched: false, .. } => true,
            Output::Desynchronized { cause, .. } => *cause != Cause::Sync,
            _ => false,
        });
        assert_eq!(wrong, None);
    }

    /// Whatever the server would answer is what the follower holds.
    fn agree(&self) {
        for account in self.machine.state.by_did_order().filter(|account| !self.unknown.contains(&account.id)) {
            let held = self.follower.account(&account.did);
            let Some(position) = account.announced else {
                assert!(held.is_none(), "{} was never announced", account.did);
                continue;
            };
            let held = held.expect("it was announced");
            let told = held.position().expect("it was announced");
            match position {
                Position::Active => assert!(told.is_active(), "{}", account.did),
                Position::Inactive(status) => {
                    assert_eq!(told.status().map(Status::as_str), Some(status.as_str()), "{}", account.did);
                }
            }
            let head = account.head.filter(|head| head.sent && position == Position::Active);
            if let Some(head) = head.filter(|_| account.position() == Some(Position::Active)) {
                assert_eq!(
                    held.head().map(|held| (held.rev, held.data)),
                    Some((head.rev, head.data)),
                    "{}",
                    account.did
                );
                let records = held.records().expect("they are held");
                let records: Vec<_> = records.iter().map(|(path, record)| (path.clone(), record.cid)).collect();
                assert_eq!(records, self.machine.records(account), "{}", account.did);
            }
        }
    }
}

/// Accounts are made, written to, locked, lifted, taken down, deactivated, erased and decommissioned; frames find no room and go
/// out later; the process ends and begins. Whoever follows holds what the server has, and finds no rule broken.
#[test]
fn whatever_happens_to_accounts_a_follower_holds_what_the_server_has() {
    let mut events = 0;
    for seed in 0..8 {
        let mut life = Life::new(seed);
        for _ in 0..250 {
            life.happen();
            life.follow();
        }
        // What found no room goes out with the next start, and the start behind it has nothing to say.
        life.machine.boot();
        life.follow();
        assert_eq!(life.machine.boot(), 0, "nothing changed");
        life.blameless();
        life.agree();
        events += life.machine.sent.len();
    }
    assert!(events > 700, "{events} events");
}

/// A copy is made, the run goes on and is lost, and the copy is restored by starts of which some die on their way. Whoever
/// followed the lost run ends with what the copy has, and goes on with it.
#[test]
fn whoever_followed_a_lost_run_ends_with_what_the_restored_machine_has() {
    for seed in 100..108 {
        let mut life = Life::new(seed);
        for _ in 0..120 {
            life.happen();
            life.follow();
        }
        life.machine.boot();
        life.follow();
        let mut copy = life.machine.clone();
        for _ in 0..80 {
            life.happen();
            life.follow();
        }
        life.blameless();
        let lost = life.follower.cursor().expect("something was sent");
        copy.now.0 = life.machine.now.0 + 60_000_000;
        let told = copy.sent.len();
        while !copy.restore(seed, life.random.below(4) as usize + 1) {
            copy.now.0 += 1_000_000;
        }
        assert!(copy.restore(seed, 0), "a marker whose restore is done brings nothing");
        assert!(copy.sent[told..].iter().all(|(sequence, ..)| *sequence > lost));
        let accounts: Vec<_> = copy.sent[told..].iter().map(|(_, account, kind, _)| (*account, *kind)).collect();
        let once: BTreeSet<_> = accounts.iter().map(|(account, kind)| (account.0, format!("{kind:?}"))).collect();
        assert_eq!(once.len(), accounts.len(), "no frame repeats, however often the start died");
        // Of an account that has no position in the copy, and of one that had left it, nothing can be told.
        let untold = |account: &&Account| account.announced.is_none() || account.standing.decommissioned;
        life.unknown = copy.state.by_did_order().filter(untold).map(|account| account.id).collect();
        copy.run = "new";
        life.machine = copy;
        life.connect();
        assert_eq!(life.found.first(), Some(&Output::Outdated));
        life.blameless();
        life.agree();
        for _ in 0..80 {
            life.happen();
            life.follow();
        }
        life.machine.boot();
        life.follow();
        life.blameless();
        life.agree();
    }
}
