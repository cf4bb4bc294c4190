//! The machine of the server, in memory: everything that it hands over is durable at once, and is sent.

use crate::stream::did;
use bytes::Bytes;
use highwater_base::Millis;
use highwater_consumer::follower::Source;
use highwater_pds::account::StoredKey;
use highwater_pds::cursor::{self, Start};
use highwater_pds::frame::{self, Kind};
use highwater_pds::lifecycle::{self, Announce, Change, Turned};
use highwater_pds::restore::{self, Lost, Plan};
use highwater_pds::turn::{self, Refused, Signer};
use highwater_pds::{Account, AccountId, Draft, Entry, Micros, Position, Record, Sequence, State, boot};
use highwater_repo::car::{self, Sections};
use highwater_repo::key::{Curve, PublicKey, SigningKey};
use highwater_repo::mst::{Step, Walk};
use highwater_repo::syntax::Did;
use highwater_repo::write::{Write, stage};
use highwater_repo::{Cid, Tree};
use std::collections::BTreeMap;

#[derive(Clone)]
pub struct Machine {
    pub now: Micros,
    /// Names of accounts that it makes begin with this, so that two runs never give the same one.
    pub run: &'static str,
    pub state: State,
    sequence: Sequence,
    blocks: BTreeMap<Cid, Bytes>,
    /// Every event, with what it is and whom it is about.
    pub sent: Vec<(u64, AccountId, Kind, Bytes)>,
}

/// The key of the account with this number: no two are the same, and every second one is of the other curve.
fn key(id: AccountId) -> SigningKey {
    let curve = if id.0.is_multiple_of(2) { Curve::K256 } else { Curve::P256 };
    SigningKey::from_secret(curve, &[id.0 as u8 + 1; 32]).expect("a secret")
}

impl Machine {
    pub fn new(now: Millis) -> Self {
        Self {
            now: Micros(now.0 * 1_000),
            run: "bot",
            state: State::default(),
            sequence: Sequence::default(),
            blocks: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    /// The milliseconds of its clock.
    pub fn millis(&self) -> Millis {
        Millis(self.now.0 / 1_000)
    }

    fn signer<'a>(&self, key: &'a SigningKey) -> Signer<'a> {
        Signer { key, clock_id: 7, rev_min: self.state.rev_min() }
    }

    /// Makes a turn durable, and sends its frames.
    pub fn turn(&mut self, draft: &Draft) {
        let bytes = draft.number(&mut self.sequence).expect("there are numbers");
        let record = Record::decode(bytes.clone()).expect("a record");
        self.state.apply(&record).expect("it fits what was there");
        for entry in record.entries {
            match entry {
                Entry::Event(event) => self.sent.push((event.seq.0, event.account, event.kind, event.frame)),
                Entry::Committed(committed) => {
                    let kept = &bytes[committed.place.start as usize..committed.place.end as usize];
                    for section in Sections::new(kept) {
                        let (cid, place) = section.expect("sections");
                        self.blocks.insert(cid, Bytes::copy_from_slice(&kept[place]));
                    }
                }
                Entry::Fact(_) | Entry::Copied(_) => {}
            }
        }
    }

    /// Makes a turn durable; if there is no room for frames, what can be done without them.
    fn turned(&mut self, turned: Turned, room: bool) {
        if room {
            self.turn(&turned.draft);
        } else if let Some(fallback) = turned.fallback {
            self.turn(&fallback);
        }
    }

    pub fn create(&mut self, activate: Option<Announce>, room: bool) {
        let id = self.state.next_account();
        let name = format!("{}-{}", self.run, id.0);
        let key = key(id);
        let secret = Bytes::copy_from_slice(&key.secret());
        let stored = StoredKey {
            curve: if id.0.is_multiple_of(2) { Curve::K256 } else { Curve::P256 },
            public: key.public().multibase(),
            sealed: false,
            secret,
        };
        let handle = format!("{name}.pds.example").parse().expect("a handle");
        let account = Account::new((id, did(&name), handle), stored, self.now);
        let turned = lifecycle::create(account, activate, &self.signer(&key), self.now).expect("a new account");
        // An account that cannot be announced is not made at all, or made without a word.
        self.turned(turned, room);
    }

    pub fn change(&mut self, id: AccountId, change: Change, room: bool) {
        let key = key(id);
        let decided = lifecycle::decide(&self.state.accounts[&id], change, &self.signer(&key), self.now);
        if let Ok(Some(turned)) = decided {
            self.turned(turned, room);
        }
    }

    /// Writes, if the account may.
    pub fn write(&mut self, id: AccountId, writes: &[Write]) -> Result<(), Refused> {
        let account = self.state.accounts[&id].clone();
        turn::may_write(&account)?;
        let key = key(id);
        let head = account.head.expect("it was activated");
        let tree = Tree::open(head.data, &self.blocks).expect("whole");
        let staged = stage(&tree, writes, &self.blocks).expect("writes that fit");
        let rev = self.signer(&key).rev(&account, self.now);
        let prepared = staged.commit(account.did.clone(), rev, &key);
        let block = self.blocks.get(&head.commit).cloned();
        let draft = turn::commit(&account, &prepared, Vec::new(), block.as_ref(), self.now)?;
        self.turn(&draft);
        Ok(())
    }

    /// Its process ends and begins again: what was handed out and did not become durable is forgotten. Returns how many frames
    /// the start sent.
    pub fn boot(&mut self) -> usize {
        self.sequence = self.state.sequence.clone();
        self.tell_due()
    }

    fn tell_due(&mut self) -> usize {
        let before = self.sent.len();
        let due: Vec<Account> = boot::due(&self.state).cloned().collect();
        for account in due {
            let block = account.head_untold().and_then(|cid| self.blocks.get(&cid).cloned());
            if let Some(draft) = boot::draft(&account, block.as_ref(), self.now).expect("its block is there") {
                self.turn(&draft);
            }
        }
        self.sent.len() - before
    }

    /// A start that finds the marker, and dies behind so many accounts. Returns whether it came to the end.
    pub fn restore(&mut self, id: u64, accounts_max: usize) -> bool {
        self.sequence = self.state.sequence.clone();
        match Plan::new(&self.state, id, Lost::default(), self.now).expect("the clock is right") {
            Plan::Begin { floor, rev_min } => self.turn(&restore::begin(id, floor, rev_min, self.now)),
            Plan::Resume => {}
            Plan::AlreadyDone => return true,
        }
        let left: Vec<Account> = restore::left(&self.state, id).cloned().collect();
        for (done, account) in left.iter().enumerate() {
            if done == accounts_max {
                return false;
            }
            let key = key(account.id);
            if let Some(draft) =
                restore::account(account, id, &self.signer(&key), self.now).expect("the clock is right")
            {
                self.turn(&draft);
            }
        }
        self.tell_due();
        self.turn(&restore::done(id, self.now));
        true
    }

    /// What somebody who connects with a cursor gets of what was sent.
    pub fn subscribe(&self, cursor: Option<u64>) -> Vec<Bytes> {
        let (from, outdated) = match cursor::start(cursor, &self.state.events, &self.state.sequence) {
            Start::Live => return Vec::new(),
            Start::Behind { seq, outdated } => (seq, outdated),
            Start::Future { .. } => return vec![frame::error("FutureCursor", "ahead of the stream")],
        };
        let kept = self.sent.iter().filter(|(sequence, account, kind, _)| {
            *sequence > from && !cursor::is_left_out(&self.state, *account, *kind)
        });
        let info = outdated.then(|| frame::outdated_cursor("what is missing was lost"));
        info.into_iter().chain(kept.map(|(.., message)| message.clone())).collect()
    }

    /// The records of an account that has any.
    pub fn records(&self, account: &Account) -> Vec<(String, Cid)> {
        let Some(head) = account.head else { return Vec::new() };
        let (mut walk, mut records) = (Walk::new(&Tree::open(head.data, &self.blocks).expect("whole")), Vec::new());
        while let Some(step) = walk.next(&self.blocks).expect("whole") {
            if let Step::Record(path, cid) = step {
                records.push((path.to_string(), cid));
            }
        }
        records
    }
}

impl Source for Machine {
    fn key(&mut self, did: &Did) -> Option<PublicKey> {
        self.state.by_did(did.as_str()).map(|account| PublicKey::parse(&account.key.public).expect("a key"))
    }

    /// As `getRepo` does: nothing of an account that is not active.
    fn repo(&mut self, did: &Did) -> Option<Bytes> {
        let account = self.state.by_did(did.as_str()).filter(|account| account.position() == Some(Position::Active))?;
        let head = account.head?;
        let mut blocks = vec![(head.commit, self.blocks[&head.commit].clone())];
        let mut walk = Walk::new(&Tree::open(head.data, &self.blocks).expect("whole"));
        while let Some(step) = walk.next(&self.blocks).expect("whole") {
            blocks.push(match step {
                Step::Node(cid, block) => (cid, block),
                Step::Record(_, cid) => (cid, self.blocks[&cid].clone()),
            });
        }
        Some(car::archive(&head.commit, blocks.iter().map(|(cid, block)| (cid, block))).into())
    }
}
