//! A host in memory: a log of records, the state that they make, blocks, and a follower that holds what is sent to the rules.

use bytes::Bytes;
use highwater_base::Millis;
use highwater_consumer::Follower;
use highwater_consumer::follower::{Input, Options, Output, Source};
use highwater_pds::account::StoredKey;
use highwater_pds::boot::{self, Warning};
use highwater_pds::cursor::{self, Start};
use highwater_pds::frame::Kind;
use highwater_pds::lifecycle::{self, Announce, Change, Turned};
use highwater_pds::restore::{self, Lost, Marker, Plan, RestoreError};
use highwater_pds::{
    Account, AccountId, Draft, Entry, Fact, Micros, Position, Record, Refused, Sequence, Signer, State, Witness, turn,
};
use highwater_repo::export::Export;
use highwater_repo::key::{Curve, PublicKey, SigningKey};
use highwater_repo::syntax::Did;
use highwater_repo::write::{self, Write, stage};
use highwater_repo::{Cid, Tid, Tree, car, data};
use std::collections::{BTreeMap, BTreeSet};

/// When the tests begin.
pub const BEGIN: Micros = Micros(1_796_000_000_000_000);
pub const CLOCK_ID: u16 = 5;

/// A frame that was sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub seq: u64,
    pub account: AccountId,
    pub kind: Kind,
    pub frame: Bytes,
}

/// Why a start ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The process died before this record was durable.
    Died,
    Restore(RestoreError),
}

/// What a copy of the data directory holds.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    /// What the store holds: the rest, rows, and lists of blobs.
    pub checkpoint: Option<(Bytes, Vec<Bytes>)>,
    /// Records behind it.
    pub log: Vec<Bytes>,
    /// The file beside it.
    pub floor: u64,
    pub marker: Option<Marker>,
    pub blocks: BTreeMap<Cid, Bytes>,
    /// Frames that are kept.
    pub events: Vec<Sent>,
}

pub struct Server {
    pub directory: Directory,
    pub state: State,
    pub sequence: Sequence,
    pub trees: BTreeMap<AccountId, Tree>,
    pub now: Micros,
    /// The log has room for rows, and none for frames.
    pub full: bool,
    /// Records that the process lives to write.
    pub lives: Option<usize>,
    /// Markers get numbers in turn.
    pub restores: u64,
    /// Every commit that was ever signed here, in every run, by account and revision.
    pub signed: BTreeMap<(AccountId, Tid), Cid>,
    /// Every number that was ever on the wire, in every run.
    pub seen: BTreeSet<u64>,
    /// What relays were told last, in every run.
    pub told: BTreeMap<AccountId, Position>,
    /// What lies outside the directory, if something does.
    pub witness: Option<Witness>,
}

pub fn key(id: AccountId) -> SigningKey {
    SigningKey::from_secret(Curve::K256, &[(id.0 % 250).max(1) as u8; 32]).expect("a secret")
}

pub fn did(name: &str) -> Did {
    format!("did:web:{name}.pds.test").parse().expect("a DID")
}

pub fn row(id: AccountId, name: &str) -> Account {
    let key = key(id);
    let stored = StoredKey {
        curve: Curve::K256,
        public: key.public().multibase(),
        sealed: false,
        secret: Bytes::copy_from_slice(&key.secret()),
    };
    Account::new((id, did(name), format!("{name}-bot.pds.test").parse().expect("a handle")), stored, BEGIN)
}

pub fn record(number: i64) -> Bytes {
    let kind = ("$type".to_owned(), data::Value::Text("com.example.kind".into()));
    let map: data::Map = [kind, ("number".to_owned(), data::Value::Integer(number))].into_iter().collect();
    data::encode(&data::Value::Map(map)).into()
}

impl Server {
    pub fn new() -> Self {
        Self {
            directory: Directory::default(),
            state: State::default(),
            sequence: Sequence::default(),
            trees: BTreeMap::new(),
            now: BEGIN,
            full: false,
            lives: None,
            restores: 0,
            signed: BTreeMap::new(),
            seen: BTreeSet::new(),
            told: BTreeMap::new(),
            witness: None,
        }
    }

    pub fn id(&self, name: &str) -> AccountId {
        self.state.by_did(did(name).as_str()).expect("there is such an account").id
    }

    pub fn account(&self, name: &str) -> &Account {
        &self.state.accounts[&self.id(name)]
    }

    /// Numbers a turn and makes it durable, then shows it.
    pub fn append(&mut self, draft: &Draft) -> Result<(), Stopped> {
        if self.lives == Some(0) {
            return Err(Stopped::Died);
        }
        self.lives = self.lives.map(|lives| lives - 1);
        let expected = self.advanced(draft);
        let payload = draft.number(&mut self.sequence).expect("there are numbers");
        self.directory.log.push(payload.clone());
        let record = Record::decode(payload.clone()).expect("a record reads back");
        self.keep_blocks(&record, &payload);
        self.state.apply(&record).expect("what was handed over fits");
        if let Some(expected) = expected {
            assert_eq!(
                self.state.accounts[&expected.id], expected,
                "a row that was advanced is the row that is applied"
            );
        }
        self.publish(&record);
        Ok(())
    }

    fn advanced(&self, draft: &Draft) -> Option<Account> {
        let mut row = draft.parts.iter().find_map(|part| match part {
            highwater_pds::Part::Fact(Fact::Created(account)) => Some(account.as_ref().clone()),
            highwater_pds::Part::Frame(account, _) => self.state.accounts.get(account).cloned(),
            highwater_pds::Part::Fact(Fact::Standing(account, _)) => self.state.accounts.get(account).cloned(),
            _ => None,
        })?;
        row.advance(draft);
        Some(row)
    }

    fn keep_blocks(&mut self, record: &Record, payload: &Bytes) {
        for entry in &record.entries {
            let Entry::Committed(committed) = entry else { continue };
            let sections = &payload[committed.place.start as usize..committed.place.end as usize];
            for section in car::Sections::new(sections) {
                let (cid, place) = section.expect("whole sections");
                let block = Bytes::copy_from_slice(&sections[place]);
                assert!(cid.names(&block), "a place holds its block");
                self.directory.blocks.insert(cid, block);
            }
            assert!(self.directory.blocks.contains_key(&committed.head.commit), "a head's commit is kept");
            let again = self.signed.insert((committed.account, committed.head.rev), committed.head.commit);
            assert_eq!(again, None, "a revision is minted once");
        }
    }

    fn publish(&mut self, record: &Record) {
        for entry in &record.entries {
            match entry {
                Entry::Event(event) => {
                    assert!(self.seen.last().is_none_or(|last| *last < event.seq.0), "numbers of all runs rise");
                    self.seen.insert(event.seq.0);
                    let (account, kind, frame) = (event.account, event.kind, event.frame.clone());
                    self.directory.events.push(Sent { seq: event.seq.0, account, kind, frame });
                }
                Entry::Fact(Fact::Announced(account, position)) => {
                    self.told.insert(*account, *position);
                }
                _ => {}
            }
        }
    }

    /// A turn with frames, or the row's change alone if they find no room.
    fn turn(&mut self, turned: Turned) -> bool {
        let draft = match turned {
            Turned { draft, fallback } if self.full && draft.has_frames() => {
                // Its numbers were handed out, and are skipped.
                draft.number(&mut self.sequence).expect("there are numbers");
                let Some(fallback) = fallback else { return false };
                fallback
            }
            Turned { draft, .. } => draft,
        };
        self.append(&draft).expect("it lives");
        true
    }

    pub fn create(&mut self, name: &str, activate: Option<Announce>) {
        let account = row(self.state.next_account(), name);
        let key = key(account.id);
        let turned = lifecycle::create(account, activate, &self.signer(&key), self.now)
            .expect("a new account is refused nothing");
        self.turn(turned);
    }

    pub fn signer<'a>(&self, key: &'a SigningKey) -> Signer<'a> {
        Signer { key, clock_id: CLOCK_ID, rev_min: self.state.rev_min() }
    }

    /// `Ok(false)` if there was nothing to do, or no room.
    pub fn change(&mut self, name: &str, change: Change) -> Result<bool, Refused> {
        let (account, key) = (self.account(name).clone(), key(self.id(name)));
        match lifecycle::decide(&account, change, &self.signer(&key), self.now)? {
            Some(turned) => Ok(self.turn(turned)),
            None => Ok(false),
        }
    }

    pub fn write(&mut self, name: &str, rkey: &str, number: i64) -> Result<bool, Refused> {
        let account = self.account(name).clone();
        turn::may_write(&account)?;
        let path = format!("com.example.kind/{rkey}");
        let blocks = &self.directory.blocks;
        let tree = match (self.trees.get(&account.id), account.head) {
            (Some(tree), _) => tree.clone(),
            (None, Some(head)) => Tree::open(head.data, blocks).expect("the tree is there"),
            (None, None) => Tree::new(),
        };
        let there = tree.get(&path, blocks).expect("whole").is_some();
        let change = if there { write::Change::Update(record(number)) } else { write::Change::Create(record(number)) };
        let staged = stage(&tree, &[Write { path, change }], blocks).expect("a good write");
        let key = key(account.id);
        let rev = self.signer(&key).rev(&account, self.now);
        let prepared = staged.commit(account.did.clone(), rev, &key);
        let head_block = account.head_untold().and_then(|cid| blocks.get(&cid).cloned());
        let draft = turn::commit(&account, &prepared, Vec::new(), head_block.as_ref(), self.now)?;
        if self.full {
            draft.number(&mut self.sequence).expect("there are numbers");
            return Ok(false);
        }
        self.append(&draft).expect("it lives");
        self.trees.insert(account.id, prepared.tree);
        Ok(true)
    }

    /// Puts the state into the store and empties the log.
    pub fn checkpoint(&mut self) {
        let rows: Vec<Bytes> = self.state.accounts.values().map(encoded).collect();
        drop(self.state.take_changed());
        self.directory.checkpoint = Some((self.state.encode_rest(), rows));
        self.directory.log.clear();
        self.directory.floor = self.state.sequence.ceiling();
        self.bear_witness();
    }

    /// Makes the state anew from what is durable.
    pub fn replay(&mut self) {
        let mut state = State::default();
        if let Some((rest, rows)) = &self.directory.checkpoint {
            state = State::decode_rest(rest.clone()).expect("the rest reads back");
            for row in rows {
                state.load_row(row.clone()).expect("a row reads back");
            }
        }
        for payload in &self.directory.log {
            let record = Record::decode(payload.clone()).expect("a record reads back");
            state.apply(&record).expect("it did apply");
        }
        self.sequence = state.sequence.clone();
        self.state = state;
        self.trees.clear();
    }

    /// A start: replay, a restore if there is a marker, and what relays do not know yet.
    pub fn boot(&mut self) -> Result<Vec<Warning>, Stopped> {
        self.replay();
        let warnings = boot::warnings(&self.state, self.witness, self.now);
        if let Some(draft) = boot::floor(&self.state.sequence, self.directory.floor, self.now) {
            self.append(&draft)?;
        }
        if let Some(marker) = self.directory.marker {
            let id = marker.id.unwrap_or_else(|| {
                self.restores += 1;
                self.restores
            });
            self.directory.marker = Some(Marker { id: Some(id), ..marker });
            self.restore(id, &marker)?;
        }
        self.announce()?;
        self.bear_witness();
        Ok(warnings)
    }

    /// Writes what lies outside the directory, if anything does.
    fn bear_witness(&mut self) {
        if self.witness.is_some() {
            self.witness = Some(Witness::of(&self.state, self.witness));
        }
    }

    fn restore(&mut self, id: u64, marker: &Marker) -> Result<(), Stopped> {
        let lost = Lost::new(&self.state, marker, self.witness, None);
        match Plan::new(&self.state, id, lost, self.now).map_err(Stopped::Restore)? {
            Plan::Begin { floor, rev_min } => {
                self.append(&restore::begin(id, floor, rev_min, self.now))?;
                self.directory.floor = floor;
                self.bear_witness();
            }
            Plan::Resume => {}
            Plan::AlreadyDone => {
                self.directory.marker = None;
                return Ok(());
            }
        }
        let left: Vec<Account> = restore::left(&self.state, id).cloned().collect();
        for account in left {
            let key = key(account.id);
            let draft = restore::account(&account, id, &self.signer(&key), self.now).map_err(Stopped::Restore)?;
            self.append(&draft.expect("it has a position"))?;
        }
        self.announce()?;
        self.append(&restore::done(id, self.now))?;
        self.directory.marker = None;
        Ok(())
    }

    fn announce(&mut self) -> Result<(), Stopped> {
        let due: Vec<Account> = boot::due(&self.state).cloned().collect();
        for account in due {
            let block = account.head_untold().and_then(|cid| self.directory.blocks.get(&cid).cloned());
            let draft = boot::draft(&account, block.as_ref(), self.now).expect("its block is there");
            self.append(&draft.expect("something is due"))?;
        }
        Ok(())
    }

    /// What a subscriber with a cursor is sent now, an erased account's frames left out.
    pub fn subscribe(&self, cursor: Option<u64>) -> (Start, Vec<Bytes>) {
        let start = cursor::start(cursor, &self.state.events, &self.state.sequence);
        let behind = match start {
            Start::Behind { seq, .. } => seq,
            Start::Live | Start::Future { .. } => u64::MAX,
        };
        let oldest = self.state.events.oldest().map_or(0, |point| point.seq.0);
        let kept = self.directory.events.iter().filter(|sent| sent.seq > behind && sent.seq >= oldest);
        let kept = kept.filter(|sent| !cursor::is_left_out(&self.state, sent.account, sent.kind));
        (start, kept.map(|sent| sent.frame.clone()).collect())
    }

    pub fn millis(&self) -> Millis {
        Millis(self.now.0 / 1_000)
    }

    /// Lets a follower connect with its cursor and take everything that is kept for it. Returns what it found.
    pub fn follow(&mut self, follower: &mut Follower) -> Vec<Output> {
        let now = self.millis();
        let cursor = follower.cursor().or(Some(0));
        let (start, frames) = self.subscribe(cursor);
        let mut found = follower.follow(now, Input::Connected { cursor }, self);
        if matches!(start, Start::Behind { outdated: true, .. }) {
            let info = highwater_pds::frame::outdated_cursor("frames are missing");
            found.extend(follower.follow(now, Input::Message(info), self));
        }
        assert!(!matches!(start, Start::Future { .. }), "a cursor that was given out is never in the future");
        for frame in frames {
            found.extend(follower.follow(now, Input::Message(frame), self));
        }
        for output in &found {
            assert!(!matches!(output, Output::Violation { .. }), "{output:?}");
        }
        found
    }
}

pub fn follower() -> Follower {
    Follower::new(Options { bytes_kept: true, ..Options::default() })
}

pub fn encoded(account: &Account) -> Bytes {
    let mut out = highwater_base::codec::Writer::new();
    account.encode(&mut out);
    out.into_vec().into()
}

impl Source for Server {
    fn key(&mut self, did: &Did) -> Option<PublicKey> {
        let account = self.state.by_did(did.as_str())?;
        PublicKey::parse(&account.key.public).ok()
    }

    fn repo(&mut self, did: &Did) -> Option<Bytes> {
        let account = self.state.by_did(did.as_str()).filter(|account| account.position() == Some(Position::Active))?;
        let (head, blocks) = (account.head?, &self.directory.blocks);
        let tree = Tree::open(head.data, blocks).expect("the tree is there");
        let (mut out, mut export) = (Vec::new(), Export::new(&head.commit, &blocks[&head.commit], &tree));
        while export.fill(&mut out, usize::MAX, blocks).expect("whole") {}
        Some(out.into())
    }
}
