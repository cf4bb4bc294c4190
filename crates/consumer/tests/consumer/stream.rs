//! A server in memory that keeps its rules, whose messages a test may change before they are encoded.

use bytes::Bytes;
use highwater_base::Millis;
use highwater_consumer::follower::Source;
use highwater_consumer::frame::Position;
use highwater_repo::car::{self, Reader};
use highwater_repo::data::{Encoder, Map, encode};
use highwater_repo::key::{Curve, PublicKey, SigningKey};
use highwater_repo::mst::{Step, Walk};
use highwater_repo::syntax::Did;
use highwater_repo::write::{Change, Operation, Write, stage};
use highwater_repo::{Cid, Commit, Tid, Tree, Value};
use std::collections::BTreeMap;

pub const TIME: &str = "2026-11-30T11:07:00.000Z";
/// Milliseconds since 1970 when the tests begin.
pub const BEGIN: Millis = Millis(1_796_000_000_000);

pub fn did(name: &str) -> Did {
    format!("did:web:{name}.example").parse().expect("a DID")
}

/// A record of its own kind.
pub fn record(number: i64) -> Bytes {
    let kind = ("$type".to_owned(), Value::Text("com.example.kind".into()));
    let map: Map = [kind, ("number".to_owned(), Value::Integer(number))].into_iter().collect();
    encode(&Value::Map(map)).into()
}

pub fn path(key: u64) -> String {
    format!("com.example.kind/{}", Tid::new(key * 7_919, 0))
}

pub fn create(key: u64, number: i64) -> Write {
    Write { path: path(key), change: Change::Create(record(number)) }
}

pub fn update(key: u64, number: i64) -> Write {
    Write { path: path(key), change: Change::Update(record(number)) }
}

pub fn delete(key: u64) -> Write {
    Write { path: path(key), change: Change::Delete }
}

/// What a `#commit` will say.
#[derive(Clone)]
pub struct Told {
    pub did: Did,
    pub rev: Tid,
    pub since: Option<Tid>,
    pub previous_data: Option<Cid>,
    pub operations: Vec<Operation>,
    pub commit: Commit,
    pub root: Cid,
    /// The first is the commit's.
    pub blocks: Vec<(Cid, Bytes)>,
    /// Blocks that are new: nodes and records.
    pub made: Vec<Cid>,
}

impl Told {
    /// Puts another commit in the place of the one that is told, in every place.
    pub fn retell(&mut self, commit: Commit) {
        let (cid, block) = commit.block();
        (self.root, self.blocks[0], self.commit) = (cid, (cid, block), commit);
    }

    fn encode(&self, sequence: u64) -> Bytes {
        let archive = car::archive(&self.root, self.blocks.iter().map(|(cid, block)| (cid, block)));
        let mut out = Encoder::with_capacity(archive.len() + 1_024);
        out.map(2).text("t").text("#commit").text("op").integer(1);
        out.map(if self.previous_data.is_some() { 12 } else { 11 }).text("ops").list(self.operations.len());
        for operation in &self.operations {
            let action = match (operation.cid, operation.previous) {
                (Some(_), None) => "create",
                (Some(_), Some(_)) => "update",
                _ => "delete",
            };
            out.map(if operation.previous.is_some() { 4 } else { 3 });
            out.text("cid").optional_link(operation.cid.as_ref()).text("path").text(&operation.path);
            if let Some(previous) = &operation.previous {
                out.text("prev").link(previous);
            }
            out.text("action").text(action);
        }
        out.text("rev").text(&self.rev.to_string()).text("seq").integer(sequence as i64);
        out.text("repo").text(self.did.as_str()).text("time").text(TIME).text("blobs").list(0).text("since");
        match self.since {
            Some(since) => out.text(&since.to_string()),
            None => out.null(),
        };
        out.text("blocks").bytes(&archive).text("commit").link(&self.root);
        out.text("rebase").bool(false).text("tooBig").bool(false);
        if let Some(data) = &self.previous_data {
            out.text("prevData").link(data);
        }
        out.into_vec().into()
    }
}

#[derive(Clone)]
pub struct Bot {
    pub key: SigningKey,
    pub head: Option<(Tid, Cid)>,
    pub commit: Option<Commit>,
    pub records: BTreeMap<String, Cid>,
    tree: Tree,
    blocks: BTreeMap<Cid, Bytes>,
}

/// A server with its accounts and its stream.
#[derive(Clone)]
pub struct Server {
    pub now: Millis,
    pub bots: BTreeMap<Did, Bot>,
    pub sequence: u64,
    /// Every message that was sent, with its number.
    pub sent: Vec<(u64, Bytes)>,
    /// How often a repository was asked for.
    pub exports: usize,
}

impl Server {
    pub fn new() -> Self {
        Self { now: BEGIN, bots: BTreeMap::new(), sequence: 0, sent: Vec::new(), exports: 0 }
    }

    /// With active accounts of these names, announced.
    pub fn with(names: &[&str]) -> Self {
        let mut server = Self::new();
        for (number, name) in names.iter().enumerate() {
            let curve = if number % 2 == 0 { Curve::K256 } else { Curve::P256 };
            let key = SigningKey::from_secret(curve, &[number as u8 + 1; 32]).expect("a secret");
            let mut tree = Tree::new();
            let blocks = tree.seal().1.into_iter().collect();
            let bot = Bot { key, head: None, commit: None, records: BTreeMap::new(), tree, blocks };
            server.bots.insert(did(name), bot);
            server.identity(name, Some(&format!("{name}.example")));
            server.account(name, Position::ACTIVE);
        }
        server
    }

    pub fn bot(&mut self, name: &str) -> &mut Bot {
        self.bots.get_mut(&did(name)).expect("an account")
    }

    /// Sends a message with the next number.
    pub fn send(&mut self, encode: impl FnOnce(u64) -> Bytes) -> Bytes {
        self.sequence += 1;
        let message = encode(self.sequence);
        self.sent.push((self.sequence, message.clone()));
        message
    }

    fn event(
        &mut self,
        kind: &str,
        keys: usize,
        rest: impl FnOnce(&mut Encoder),
        who: &Did,
        rev: Option<Tid>,
    ) -> Bytes {
        self.send(|sequence| {
            let mut out = Encoder::with_capacity(1_024);
            out.map(2).text("t").text(kind).text("op").integer(1);
            out.map(keys).text("did").text(who.as_str());
            if let Some(rev) = rev {
                out.text("rev").text(&rev.to_string());
            }
            out.text("seq").integer(sequence as i64).text("time").text(TIME);
            rest(&mut out);
            out.into_vec().into()
        })
    }

    pub fn identity(&mut self, name: &str, handle: Option<&str>) -> Bytes {
        let rest = |out: &mut Encoder| {
            if let Some(handle) = handle {
                out.text("handle").text(handle);
            }
        };
        self.event("#identity", if handle.is_some() { 4 } else { 3 }, rest, &did(name), None)
    }

    pub fn account(&mut self, name: &str, position: Position) -> Bytes {
        let rest = |out: &mut Encoder| {
            out.text("active").bool(position.is_active());
            if let Some(status) = position.status() {
                out.text("status").text(status.as_str());
            }
        };
        self.event("#account", if position.status().is_some() { 5 } else { 4 }, rest, &did(name), None)
    }

    /// A revision of now, or of the next moment.
    fn rev(&mut self, name: &str) -> Tid {
        let (now, bot) = (self.now.0, self.bot(name));
        Tid::after(bot.head.map(|(rev, _)| rev), now * 1_000, 7)
    }

    /// Writes and does not send it yet.
    pub fn prepare(&mut self, name: &str, writes: &[Write]) -> Told {
        let rev = self.rev(name);
        let bot = self.bot(name);
        let staged = stage(&bot.tree, writes, &bot.blocks).expect("writes that fit");
        let prepared = staged.commit(did(name), rev, &bot.key);
        let before = bot.head.replace((rev, prepared.commit.data));
        bot.tree = prepared.tree.clone();
        bot.blocks.extend(prepared.made.iter().cloned());
        for operation in &prepared.operations {
            match operation.cid {
                Some(cid) => bot.records.insert(operation.path.clone(), cid),
                None => bot.records.remove(&operation.path),
            };
        }
        bot.commit = Some(prepared.commit.clone());
        Told {
            did: did(name),
            rev,
            since: before.map(|(rev, _)| rev),
            previous_data: before.map(|(_, data)| data),
            operations: prepared.operations,
            commit: prepared.commit,
            root: prepared.cid,
            blocks: blocks_of(&prepared.archive),
            made: prepared.made.iter().map(|(cid, _)| *cid).collect(),
        }
    }

    /// Sends a commit as it is told.
    pub fn tell(&mut self, told: &Told) -> Bytes {
        self.send(|sequence| told.encode(sequence))
    }

    pub fn write(&mut self, name: &str, writes: &[Write]) -> Bytes {
        let told = self.prepare(name, writes);
        self.tell(&told)
    }

    /// A fresh commit over the present tree, which is not sent yet.
    pub fn recommit(&mut self, name: &str) -> Commit {
        let rev = self.rev(name);
        let bot = self.bot(name);
        let data = bot.tree.name().expect("sealed");
        let commit = Commit::sign(did(name), rev, data, &bot.key);
        (bot.head, bot.commit) = (Some((rev, data)), Some(commit.clone()));
        commit
    }

    /// A `#sync` of a commit.
    pub fn sync(&mut self, name: &str, commit: &Commit) -> Bytes {
        let (cid, block) = commit.block();
        self.sync_of(name, commit.rev, &car::archive(&cid, [(&cid, &block)]))
    }

    pub fn sync_of(&mut self, name: &str, rev: Tid, archive: &[u8]) -> Bytes {
        let rest = |out: &mut Encoder| {
            out.text("blocks").bytes(archive);
        };
        self.event("#sync", 5, rest, &did(name), Some(rev))
    }

    /// What a restored server does before anybody connects: the floor rises, and every account is told with a fresh commit.
    pub fn restore(&mut self) {
        self.sequence += 1_000_000_000_000;
        self.sent.clear();
        let names: Vec<String> =
            self.bots.keys().map(|did| did.as_str()["did:web:".len()..].replace(".example", "")).collect();
        for name in names {
            self.account(&name, Position::ACTIVE);
            let commit = self.recommit(&name);
            self.sync(&name, &commit);
        }
    }

    /// What `getRepo` answers.
    pub fn export(&self, who: &Did) -> Option<Bytes> {
        let bot = self.bots.get(who)?;
        let (cid, block) = bot.commit.as_ref()?.block();
        let mut blocks = vec![(cid, block)];
        let mut walk = Walk::new(&bot.tree);
        while let Some(step) = walk.next(&bot.blocks).expect("whole") {
            blocks.push(match step {
                Step::Node(cid, block) => (cid, block),
                Step::Record(_, cid) => (cid, bot.blocks[&cid].clone()),
            });
        }
        Some(car::archive(&cid, blocks.iter().map(|(cid, block)| (cid, block))).into())
    }
}

impl Source for Server {
    fn key(&mut self, did: &Did) -> Option<PublicKey> {
        self.bots.get(did).map(|bot| bot.key.public())
    }

    fn repo(&mut self, did: &Did) -> Option<Bytes> {
        self.exports += 1;
        self.export(did)
    }
}

pub fn info() -> Bytes {
    Bytes::from_static(b"\xa2\x61t\x65#info\x62op\x01\xa1\x64name\x6eOutdatedCursor")
}

pub fn error(name: &str) -> Bytes {
    let mut out = Encoder::with_capacity(64);
    out.map(1).text("op").integer(-1).map(1).text("error").text(name);
    out.into_vec().into()
}

pub fn blocks_of(archive: &[u8]) -> Vec<(Cid, Bytes)> {
    let mut reader = Reader::new();
    reader.push(archive);
    std::iter::from_fn(|| reader.block().expect("an archive")).collect()
}
