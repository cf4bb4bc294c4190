//! A repository as tests keep it.

use crate::mst::orders;
use bytes::Bytes;
use highwater_repo::car::{Reader, Sections, header};
use highwater_repo::data::{Map, encode};
use highwater_repo::key::{Curve, SigningKey};
use highwater_repo::mst::invert;
use highwater_repo::write::{Change, Prepared, Write, WriteError, stage};
use highwater_repo::{Cid, Commit, Tid, Tree, Value};
use std::collections::BTreeMap;

const DID: &str = "did:web:bot.example";

/// A repository with its blocks, as a server would keep it.
pub struct Repository {
    pub tree: Tree,
    pub blocks: BTreeMap<Cid, Bytes>,
    /// What should be there.
    pub records: BTreeMap<String, Cid>,
    pub key: SigningKey,
    pub rev: Option<Tid>,
    /// The last commit's block, with its name.
    pub commit: Option<(Cid, Bytes)>,
}

impl Repository {
    pub fn new() -> Self {
        let mut tree = Tree::new();
        let blocks = tree.seal().1.into_iter().collect();
        let key = SigningKey::from_secret(Curve::K256, &[9; 32]).expect("a secret");
        Self { tree, blocks, records: BTreeMap::new(), key, rev: None, commit: None }
    }

    pub fn write(&mut self, writes: &[Write]) -> Result<Prepared, WriteError> {
        let staged = stage(&self.tree, writes, &self.blocks)?;
        let rev = Tid::after(self.rev, 1, 0);
        let prepared = staged.commit(DID.parse().expect("a DID"), rev, &self.key);
        self.rev = Some(rev);
        self.commit = Some((prepared.cid, prepared.block.clone()));
        self.tree = prepared.tree.clone();
        self.blocks.extend(prepared.made.iter().cloned());
        for operation in &prepared.operations {
            match operation.cid {
                Some(cid) => self.records.insert(operation.path.clone(), cid),
                None => self.records.remove(&operation.path),
            };
        }
        Ok(prepared)
    }

    /// What somebody who follows the specification finds in a commit's archive.
    pub fn read(&self, prepared: &Prepared, before: Cid) {
        let mut reader = Reader::new();
        reader.push(&prepared.archive);
        let mut blocks = BTreeMap::new();
        while let Some((cid, block)) = reader.block().expect("an archive") {
            assert!(blocks.insert(cid, block).is_none(), "{cid} is sent twice");
        }
        assert_eq!(reader.finish(), Ok(vec![prepared.cid]));
        self.read_stored(prepared);
        let commit = Commit::decode(blocks[&prepared.cid].clone()).expect("a commit");
        assert_eq!(commit.verify(&self.key.public()), Ok(()));
        assert_eq!(Some(commit.data), self.tree.name());
        for operation in &prepared.operations {
            assert!(operation.cid.is_none_or(|cid| blocks.contains_key(&cid)), "a record is missing");
        }
        let operations = &prepared.operations;
        for order in some_orders(operations) {
            assert_eq!(invert(commit.data, &order, &blocks), Ok(before));
        }
    }
}

impl Repository {
    /// What a server that keeps a range of the archive finds in it: the commit and what is new, and nothing that others need.
    fn read_stored(&self, prepared: &Prepared) {
        let stored = &prepared.archive[prepared.stored.clone()];
        assert_eq!(prepared.stored.start, header(&prepared.cid).len());
        let found: Vec<_> = Sections::new(stored)
            .map(|section| section.expect("sound"))
            .map(|(cid, range)| (cid, Bytes::copy_from_slice(&stored[range])))
            .collect();
        let commit = (prepared.cid, prepared.block.clone());
        assert_eq!(found, std::iter::once(commit).chain(prepared.made.iter().cloned()).collect::<Vec<_>>());
    }
}

pub fn record(number: u64) -> Bytes {
    let map: Map =
        [("$type".to_owned(), Value::Text("com.example.kind".into())), ("n".into(), Value::Integer(number as i64))]
            .into_iter()
            .collect();
    encode(&Value::Map(map)).into()
}

pub fn path(number: u64) -> String {
    format!("com.example.kind/{}", Tid::new(number * 7_919, 0))
}

pub fn create(number: u64, record: Bytes) -> Write {
    Write { path: path(number), change: Change::Create(record) }
}

/// Every order of up to six things, and some orders of more: as they are, backwards, and shuffled.
pub fn some_orders<T: Clone>(things: &[T]) -> Vec<Vec<T>> {
    if things.len() <= 6 {
        return orders(things);
    }
    let count = things.len();
    let divisor = |mut one: usize, mut other: usize| {
        while other > 0 {
            (one, other) = (other, one % other);
        }
        one
    };
    let strides = (1..count).filter(|stride| divisor(*stride, count) == 1);
    strides.rev().take(12).map(|stride| (0..count).map(|at| things[at * stride % count].clone()).collect()).collect()
}
